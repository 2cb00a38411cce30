"""The papers' plots of a model, as SVG: t-SNE maps of its vectors, and TaDSE's Figures 5, 6 and 8."""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import get_args

import numpy as np
from sklearn.manifold import TSNE

from turnwise.core.errors import DatasetError
from turnwise.core.plots import BLACK, BLUE, RED, Cloud, line_chart, palette, scatter_chart
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.evaluation.datasets.candidates import CandidateData
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.evaluation_protocols import NEIGHBOURS
from turnwise.evaluation.results import Results
from turnwise.evaluation.suites import LoadDataset
from turnwise.evaluation.tables import format_number
from turnwise.evaluation.tasks.coherence import complete_dialogues, sample_questions
from turnwise.evaluation.tasks.compression import MixedEncoder
from turnwise.evaluation.tasks.intents import MAX_LENGTH
from turnwise.evaluation.tasks.responses import MAX_LENGTH as RESPONSE_MAX_LENGTH
from turnwise.models.backbone.inputs import MARKS, AuxiliaryTask
from turnwise.models.loading import ModelUnderTest
from turnwise.models.reranker import Reranker
from turnwise.models.vector_cache import encode_distinct

PERPLEXITY = 30  # scikit-learn's default, which TaDSE names
MARKED_WINDOWS = 200  # windows of UMS's Figure 4

_Points = list[tuple[float, float]]

ATIS_INTENTS = 26  # number of intents in the test set of ATIS: TaDSE's Figures 9 and 10 show all of them
TWO_INTENTS_WEIGHT, ATIS_WEIGHT = 0.5, 0.2  # λ of the compressed vectors in TaDSE's Figures 4 and 10

#: A setting of uniformity and alignment; without λ, of vectors without compression.
_GEOMETRY_SETTING = re.compile(r"test utterances(?:, λ = (?P<weight>[\d.]+), templates \w+)?")

_NamedPlot = tuple[str, Callable[[], str]]  # the file name of a plot, and the function that draws it


def add_plots(suite: str, model: ModelUnderTest, load: LoadDataset, results: Results) -> None:
    """Add the plots of a suite to the results, or to their facts why a plot cannot be drawn."""
    if suite == "dse" and model.encoder is not None:
        plots = _dse_plots(model.encoder, model.name, load)
    elif suite == "tadse":
        plots = _tadse_plots(model, load, results)
    elif suite == "ums" and isinstance(model.scorer, Reranker):
        plots = _ums_plots(model.scorer, model.name, load)
    else:
        return
    for name, draw in plots:
        results.add_plot(name, draw)


def _dse_plots(encoder: SupportsEncode, model: str, load: LoadDataset) -> Iterator[_NamedPlot]:
    for name in ("clinc150", "sample"):
        if (data := load("out-of-scope", name)) is not None:
            yield f"intents_{name}.svg", partial(intent_map, encoder, data, model=model)
    for name in ("amazonqa", "sample"):
        if (data := load("answers", name)) is not None:
            yield f"answers_{name}.svg", partial(answer_map, encoder, data.pairs, data.name, model=model)


def _tadse_plots(model: ModelUnderTest, load: LoadDataset, results: Results) -> Iterator[_NamedPlot]:
    encoder, name = model.encoder, model.name
    if encoder is not None:
        yield from _two_intent_maps(encoder, name, load)
        yield from _atis_map(encoder, name, load)
        if (given := model.variants.get("given")) is not None:
            assert given.encoder is not None
            two, atis = (MixedEncoder(encoder, given.encoder, each) for each in (TWO_INTENTS_WEIGHT, ATIS_WEIGHT))
            yield from _two_intent_maps(two, f"{name}, λ = {TWO_INTENTS_WEIGHT}", load, "_compressed")
            yield from _atis_map(atis, f"{name}, λ = {ATIS_WEIGHT}", load, "_compressed")
    yield "neighbours.svg", partial(_draw_neighbour_accuracy, results)
    if lines := _geometry_lines(results):
        title = "alignment (upwards) by uniformity; lower is better for both"
        yield "geometry.svg", partial(line_chart, lines, title, "uniformity", from_zero=False, legend_outside=True)


def _two_intent_maps(encoder: SupportsEncode, model: str, load: LoadDataset, suffix: str = "") -> Iterator[_NamedPlot]:
    """Yield TaDSE's Figure 4 for every data set."""
    for name in ("snips", "sample"):
        if (data := load("nearest", name)) is not None:
            counts = Counter(utterance.intent for utterance in data.test)
            frequent = sorted(counts, key=lambda intent: (-counts[intent], intent))
            intents = ("PlayMusic", "AddToPlaylist") if name == "snips" else frequent[:2]
            yield f"two_intents_{name}{suffix}.svg", partial(two_intents_map, encoder, data, intents, model)


def _atis_map(encoder: SupportsEncode, model: str, load: LoadDataset, suffix: str = "") -> Iterator[_NamedPlot]:
    """Yield TaDSE's Figures 9 and 10."""
    if (data := load("nearest", "atis")) is not None:
        draw = partial(intent_map, encoder, data, intents=ATIS_INTENTS, out_of_scope=False, model=model)
        yield f"intents_atis{suffix}.svg", draw


def _draw_neighbour_accuracy(results: Results) -> str:
    """Draw TaDSE's Figure 6: accuracy over the number of neighbours, with a line for every data set."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in results.rows:
        count = row.setting.removesuffix("-NN")
        if row.task == "intents" and count.isdecimal() and int(count) in NEIGHBOURS and row.dataset != "average":
            series.setdefault(row.dataset, []).append((float(count), row.value))
    return line_chart(series, "accuracy of the k nearest neighbours", "k", log_x=True)


def _geometry_lines(results: Results) -> dict[str, list[tuple[float, float]]]:
    """Return TaDSE's Figures 5 and 8: (uniformity, alignment) by increasing λ, for every compressed data set."""
    metrics: dict[str, dict[float, dict[str, float]]] = {}
    for row in results.rows:
        setting = _GEOMETRY_SETTING.fullmatch(row.setting)
        if row.task == "geometry" and row.metric in ("uniformity", "alignment") and setting is not None:
            weights = metrics.setdefault(row.dataset, {})
            weights.setdefault(float(setting["weight"] or 0), {})[row.metric] = row.value
    lines = {}
    for dataset, weights in metrics.items():
        points = {weight: (at["uniformity"], at["alignment"]) for weight, at in sorted(weights.items())}
        if len(points) > 1:  # without compression there is only one point
            # the label names the ends, because the line does not show its direction
            ends = [f"λ = {weight:g} at {format_number(points[weight][0], 2)}" for weight in (min(points), max(points))]
            lines[f"{dataset}: {', '.join(ends)}"] = list(points.values())
    return lines


def _ums_plots(reranker: Reranker, model: str, load: LoadDataset) -> Iterator[_NamedPlot]:
    for name in ("ubuntu_v1", "douban", "ecommerce", "irc_ubuntu", "sample"):
        if (data := load("candidates", name)) is not None:
            for task in get_args(AuxiliaryTask):
                if task in reranker.heads:
                    yield f"marks_{name}_{task}.svg", partial(mark_map, reranker, data, task, model=model)


def intent_map(
    encoder: SupportsEncode, data: IntentData, *, intents: int = 10, out_of_scope: bool = True, model: str = ""
) -> str:
    """Draw test utterances of some intents in colour, and as many out-of-scope ones as rings (DSE, Fig. 1, left)."""
    if out_of_scope and not data.out_of_scope.test:
        raise DatasetError(f"{data.name} has no out-of-scope utterances: show its intents alone (out_of_scope=False)")
    random = np.random.default_rng(0)
    known = sorted({example.intent for example in data.test})
    shown = sorted(random.choice(known, min(intents, len(known)), replace=False).tolist())
    groups = [[example.input for example in data.test if example.intent == intent] for intent in shown]
    outside: list[str] = []
    if out_of_scope:
        count = min(len(data.out_of_scope.test), sum(map(len, groups)))
        outside = random.choice(np.array(data.out_of_scope.test, object), count, replace=False).tolist()
    first, *others = _project_inputs(encoder, [outside, *groups], MAX_LENGTH, data.name)
    clouds = [Cloud(first, BLACK, "ring", "out of scope")] if out_of_scope else []
    clouds += [
        Cloud(points, colour, name=name)
        for points, colour, name in zip(others, palette(len(shown)), shown, strict=True)
    ]
    return scatter_chart(clouds, _title(f"{data.name}: {len(shown)} intents", model))


def answer_map(
    encoder: SupportsEncode, pairs: Sequence[tuple[str, str]], name: str, *, others: int = 100, model: str = ""
) -> str:
    """Draw twelve questions as triangles, answers as circles, others as black rings (DSE, Fig. 1, right)."""
    count = 12
    if len(pairs) < count + others:
        raise DatasetError(f"{name} has {len(pairs)} pairs, {count + others} are needed: give more, or ask for fewer")
    sample = [pairs[index] for index in np.random.default_rng(0).permutation(len(pairs))[: count + others]]
    texts = [question for question, _ in sample[:count]], [answer for _, answer in sample]
    questions, answers = _project_inputs(encoder, texts, RESPONSE_MAX_LENGTH, name)
    clouds = [Cloud(answers[count:], BLACK, "ring", "answers to others")]
    for number, colour in enumerate(palette(count)):
        # one legend for all: colours show which belong together
        clouds.append(Cloud([answers[number]], colour, "circle", "" if number else "its answer, in the same colour"))
        clouds.append(Cloud([questions[number]], colour, "triangle", "" if number else "question"))
    return scatter_chart(clouds, _title(f"{name}: questions and answers", model))


def two_intents_map(
    encoder: SupportsEncode, data: IntentData, intents: Sequence[str] = ("PlayMusic", "AddToPlaylist"), model: str = ""
) -> str:
    """Draw test utterances of two intents in red and blue (TaDSE, Fig. 4)."""
    groups = [[example.input for example in data.test if example.intent == intent] for intent in intents]
    for intent, inputs in zip(intents, groups, strict=True):
        if not inputs:
            raise DatasetError(f"{data.name} has no test utterance of intent {intent!r}: choose two of its intents")
    points = _project_inputs(encoder, groups, MAX_LENGTH, data.name)
    clouds = [Cloud(each, colour, name=name) for each, colour, name in zip(points, (RED, BLUE), intents, strict=True)]
    return scatter_chart(clouds, _title(f"{data.name}: {' and '.join(intents)}", model))


def mark_map(reranker: Reranker, data: CandidateData, task: AuxiliaryTask, model: str = "") -> str:
    """Draw the states at the marks of windows of test dialogues, correct ones red, others blue (UMS, Fig. 4)."""
    questions = [
        question
        for question in sample_questions(complete_dialogues(data.test), window=reranker.window)
        if len(question.turns) > 2
    ]
    sampled = np.sort(np.random.default_rng(0).permutation(len(questions))[:MARKED_WINDOWS])
    # the turns that the re-ranker reads, the target if there is one, and the correct mark
    queries: list[tuple[Sequence[str], str | None, int]] = []
    for each in (questions[number] for number in sampled):
        if task == "deletion":
            queries.append((each.with_foreign, None, each.inserted_at))
        elif task == "insertion":
            queries.append((each.without_removed, each.turns[each.removed], each.removed))
        else:
            queries.append((each.shuffled, each.turns[-1], each.shuffled.index(each.turns[-2])))
    inputs = reranker.mark_texts(task, [(turns, target) for turns, target, _ in queries])
    flags = [np.arange(len(each.positions)) == mark for each, (*_, mark) in zip(inputs, queries, strict=True)]
    _check_size(sum(map(len, flags)), data.name, "marks")
    correct, points = np.concatenate(flags), np.array(_tsne(np.concatenate(reranker.states(inputs))))
    mark = MARKS[task]
    clouds = [
        Cloud([(x, y) for x, y in points[correct == flag].tolist()], colour, name=name)
        for flag, colour, name in ((False, BLUE, f"other {mark}"), (True, RED, f"correct {mark}"))
    ]
    return scatter_chart(clouds, _title(f"{data.name}: {task}", model))


def _project_inputs(
    encoder: SupportsEncode, groups: Sequence[Sequence[Hashable]], max_length: int, name: str
) -> list[_Points]:
    """Return the coordinates of inputs, group by group."""
    inputs = [each for group in groups for each in group]
    _check_size(len(inputs), name, "texts to show")
    points = iter(_tsne(encode_distinct(encoder, inputs, normalise=True, max_length=max_length)))
    return [[next(points) for _ in group] for group in groups]


def _check_size(count: int, dataset: str, what: str) -> None:
    if count <= PERPLEXITY:
        raise DatasetError(
            f"{dataset} has {count} {what}: t-SNE with a perplexity of {PERPLEXITY} needs more than that"
        )


def _tsne(vectors: Vectors) -> _Points:
    return [(x, y) for x, y in TSNE(perplexity=PERPLEXITY, random_state=0).fit_transform(vectors).tolist()]


def _title(text: str, model: str) -> str:
    return f"{text} ({model})" if model else text
