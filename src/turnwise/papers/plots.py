"""The pictures of an evaluation: what the papers show of their vectors, of the model at hand."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from sklearn.manifold import TSNE

from turnwise.core.plots import BLUE, RED, Cloud, line_chart, scatter_chart
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.candidates import CandidateData
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.evaluation_protocols import NEIGHBOURS
from turnwise.evaluation.results import Results
from turnwise.evaluation.suites import LoadDataset
from turnwise.evaluation.tables import format_number
from turnwise.evaluation.tasks.coherence import Puzzle, drawn_puzzles, whole_dialogues
from turnwise.evaluation.tasks.compressed import Mixed
from turnwise.evaluation.tasks.geometry import PERPLEXITY, answer_map, intent_map, two_intents_map
from turnwise.models.backbone.inputs import (
    DELETE,
    INSERT,
    SEARCH,
    Composer,
    MarkedInput,
    deletion_input,
    insertion_input,
    search_input,
)
from turnwise.models.backbone.stream import Tokens
from turnwise.models.loading import ModelUnderTest
from turnwise.models.reranker import Reranker

#: All that occur in its test set: TaDSE's Figures 9 and 10 leave none out.
ATIS_INTENTS = 26

#: λ of the compressed vectors in TaDSE's Figures 4 and 10.
TWO_INTENTS_SHARE, ATIS_SHARE = 0.5, 0.2

#: Windows of UMS's Figure 4, each of which shows all of its marks.
WINDOWS = 200

#: UMS's tasks with marks of their own.
MarkTask = Literal["insertion", "deletion", "search"]

_MARKS: dict[MarkTask, str] = {"insertion": INSERT, "deletion": DELETE, "search": SEARCH}

#: A setting of uniformity and alignment: without λ, the model's vectors as they are.
_GEOMETRY = re.compile(r"test utterances(?:, λ = (?P<share>[\d.]+), templates \w+)?")


def draw(suite: str, model: ModelUnderTest, load: LoadDataset, results: Results) -> None:
    """Adds a suite's pictures to results: both panels of DSE's Figure 1, TaDSE's Figures 4, 6, 9, UMS's Figure 4.

    Of a model that has learnt templates there are TaDSE's Figures 5, 8 and 10 too, and the compressed panel of 4. UMS's is of
    re-rankers that have heads beside that of selection. A data set that is too small for a picture is noted in the results' facts.
    """
    pictures: dict[str, Callable[[], str]] = {}
    if model.encoder is not None:
        pictures |= _pictures(suite, model.encoder, model.name, load)
        if suite == "tadse" and "given" in model.templates:
            pictures |= _compressed_pictures(model.encoder, model.templates["given"], model.name, load)
    if suite == "ums" and isinstance(model.scorer, Reranker):
        pictures |= _mark_pictures(model.scorer, model.name, load)
    if suite == "tadse":
        pictures["neighbours.svg"] = partial(_neighbours, results)
        if lines := _geometry_lines(results):
            title = "alignment (upwards) by uniformity; lower is better for both"
            pictures["geometry.svg"] = partial(
                line_chart, lines, title, "uniformity", from_zero=False, legend_outside=True
            )
    for name, make in pictures.items():
        results.add_plot(name, make)


# ---- the states of UMS's marks


def mark_map(
    reranker: Reranker, data: CandidateData, task: MarkTask, *, windows: int = WINDOWS, seed: int = 0, model: str = ""
) -> str:
    """The states at the marks of windows of test dialogues, the right ones red, the others blue (UMS's Fig. 4), as SVG.

    Args:
        reranker: with a head for the task.
        data: contexts with labelled candidates; a context and its first right response are a dialogue.
        task: whose marks.
        windows: how many are drawn; all where there are fewer.
        seed: of the windows and of t-SNE.
        model: its name, for the title.

    Raises:
        DatasetError: if there are too few marks to show.
    """
    puzzles = [
        puzzle for puzzle in drawn_puzzles(whole_dialogues(data.test), seed, reranker.window) if len(puzzle.turns) > 2
    ]
    chosen = np.sort(np.random.default_rng(seed).permutation(len(puzzles))[:windows])
    known = reranker.tokenise([turn for puzzle in puzzles for turn in (*puzzle.turns, puzzle.foreign)])
    composer = reranker.composer
    asked = [_asked(composer, known, puzzles[place], task, reranker.max_length) for place in chosen]
    targets = np.concatenate(
        [np.arange(len(marked.positions)) == target for marked, target in asked] or [np.empty(0, np.bool_)]
    )
    if len(targets) <= PERPLEXITY:
        raise DatasetError(
            f"{data.name} has {len(targets)} marks to show: t-SNE with a perplexity of {PERPLEXITY} needs more than that"
        )
    states = np.concatenate(reranker.states([marked for marked, _ in asked]))
    places = TSNE(perplexity=PERPLEXITY, random_state=seed).fit_transform(states)
    clouds = [
        Cloud([(x, y) for x, y in places[targets == right].tolist()], colour, name=name)
        for right, colour, name in (
            (False, BLUE, f"other {_MARKS[task]}"),
            (True, RED, f"{_MARKS[task]} that is asked for"),
        )
    ]
    return scatter_chart(clouds, f"{data.name}: {task}" + (f" ({model})" if model else ""))


def _asked(
    composer: Composer, known: Mapping[str, Tokens], puzzle: Puzzle, task: MarkTask, longest: int
) -> tuple[MarkedInput, int]:
    """What is read of a window, and the format_number of the mark that is asked for."""
    if task == "deletion":
        return deletion_input(composer, [known[turn] for turn in puzzle.planted], longest), puzzle.planted_at
    if task == "insertion":
        taken = known[puzzle.turns[puzzle.taken]]
        return insertion_input(composer, [known[turn] for turn in puzzle.rest], taken, longest), puzzle.taken
    shuffled = [known[turn] for turn in puzzle.shuffled]
    return search_input(composer, shuffled, known[puzzle.turns[-1]], longest), puzzle.shuffled.index(puzzle.turns[-2])


def _mark_pictures(reranker: Reranker, model: str, load: LoadDataset) -> dict[str, Callable[[], str]]:
    """UMS's Figure 4, by data set and task: on its own data sets, and on what anybody can get."""
    found: dict[str, Callable[[], str]] = {}
    for name in ("ubuntu_v1", "douban", "ecommerce", "irc_ubuntu", "sample"):
        if (data := load("candidates", name)) is not None:
            for task in get_args(MarkTask):
                if task in reranker.heads:
                    found[f"marks_{name}_{task}.svg"] = partial(mark_map, reranker, data, task, model=model)
    return found


# ---- vectors of texts


def _pictures(suite: str, encoder: SupportsEncode, model: str, load: LoadDataset) -> dict[str, Callable[[], str]]:
    found: dict[str, Callable[[], str]] = {}
    if suite == "dse":
        for name in ("clinc150", "sample"):
            if (data := load("out-of-scope", name)) is not None:
                found[f"intents_{name}.svg"] = partial(intent_map, encoder, data, model=model)
        for name in ("amazonqa", "sample"):
            if (data := load("answers", name)) is not None:
                found[f"answers_{name}.svg"] = partial(answer_map, encoder, data.pairs, data.name, model=model)
    if suite == "tadse":
        found |= {f"two_intents_{name}.svg": make for name, make in _two_intents(encoder, model, load).items()}
        found |= {f"intents_{name}.svg": make for name, make in _all_intents(encoder, model, load).items()}
    return found


def _compressed_pictures(
    utterances: SupportsEncode, templates: SupportsEncode, model: str, load: LoadDataset
) -> dict[str, Callable[[], str]]:
    """The right panel of TaDSE's Figure 4, and its Figure 10."""
    two, every = (Mixed(utterances, templates, share) for share in (TWO_INTENTS_SHARE, ATIS_SHARE))
    pairs = _two_intents(two, f"{model}, λ = {TWO_INTENTS_SHARE}", load)
    found = {f"two_intents_{name}_compressed.svg": make for name, make in pairs.items()}
    atis = _all_intents(every, f"{model}, λ = {ATIS_SHARE}", load)
    return found | {f"intents_{name}_compressed.svg": make for name, make in atis.items()}


def _two_intents(encoder: SupportsEncode, model: str, load: LoadDataset) -> dict[str, Callable[[], str]]:
    """TaDSE's Figure 4, by data set."""
    found: dict[str, Callable[[], str]] = {}
    for name in ("snips", "sample"):
        if (data := load("nearest", name)) is not None:
            intents = ("PlayMusic", "AddToPlaylist") if name == "snips" else _commonest(data)
            found[name] = partial(two_intents_map, encoder, data, intents, model=model)
    return found


def _all_intents(encoder: SupportsEncode, model: str, load: LoadDataset) -> dict[str, Callable[[], str]]:
    """TaDSE's Figures 9 and 10, by data set."""
    data = load("nearest", "atis")
    if data is None:
        return {}
    return {"atis": partial(intent_map, encoder, data, intents=ATIS_INTENTS, out_of_scope=False, model=model)}


def _commonest(data: Any) -> tuple[str, str]:
    """The two intents of most test utterances."""
    counts: dict[str, int] = {}
    for utterance in data.test:
        counts[utterance.intent] = counts.get(utterance.intent, 0) + 1
    first, second = sorted(counts, key=lambda intent: (-counts[intent], intent))[:2]
    return first, second


def _neighbours(results: Results) -> str:
    """TaDSE's Figure 6: accuracy over k, a line a data set."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in results.rows:
        count = row.setting.removesuffix("-NN")
        if row.task == "intents" and count.isdecimal() and int(count) in NEIGHBOURS and row.dataset != "average":
            series.setdefault(row.dataset, []).append((float(count), row.value))
    return line_chart(series, "accuracy by the k nearest", "k", log_x=True)


def _geometry_lines(results: Results) -> dict[str, list[tuple[float, float]]]:
    """TaDSE's Figures 5 and 8: uniformity and alignment from the least λ to the highest, a line a data set that was compressed."""
    metrics = ("uniformity", "alignment")
    found: dict[str, dict[float, dict[str, float]]] = {}
    for row in results.rows:
        setting = _GEOMETRY.fullmatch(row.setting)
        if row.task == "geometry" and row.metric in metrics and setting is not None:
            shares = found.setdefault(row.dataset, {})
            shares.setdefault(float(setting["share"] or 0), {})[row.metric] = row.value
    lines = {}
    for dataset, shares in found.items():
        points = {share: (at["uniformity"], at["alignment"]) for share, at in sorted(shares.items())}
        if len(points) > 1:  # what was not compressed is a point
            # a line says not by itself where it begins
            ends = ", ".join(
                f"λ = {share:g} at {format_number(points[share][0], 2)}" for share in (min(points), max(points))
            )
            lines[f"{dataset}: {ends}"] = list(points.values())
    return lines
