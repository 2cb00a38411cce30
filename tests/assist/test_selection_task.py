"""Two-stage response selection: metrics against a plain restatement, times, the command, and the plots."""

import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.helpers.command_line import run
from tests.helpers.svg import groups, marks, paths
from turnwise import evaluate
from turnwise.assist.evaluation_tasks import add_selection_plots, evaluate_selection
from turnwise.core.dialogue import Turn
from turnwise.core.errors import DatasetError, ModelError, TurnwiseError
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.datasets.candidates import CandidateData
from turnwise.evaluation.metrics import DESCRIPTIVE_METRICS, MILLISECONDS, Outcome
from turnwise.evaluation.results import Results
from turnwise.evaluation.tasks.coherence import complete_dialogues, sample_questions
from turnwise.models.backbone.inputs import END_OF_TURN, MARKS, RerankerTask, marked_input
from turnwise.models.backbone.load import load_backbone
from turnwise.models.loading import ModelUnderTest, with_reranker, wrap_model
from turnwise.models.reranker import Reranker
from turnwise.papers.plots import add_plots, mark_map


def joined(item: Any) -> str:
    return item if isinstance(item, str) else "\n".join(turn.text if isinstance(turn, Turn) else turn for turn in item)


class Encodes:
    """Random vectors by text, on few axes, so that cosines tie; or the same for all."""

    fingerprint = "random"

    def __init__(self, kind: str = "axes"):
        self.kind = kind
        self.seen = 0

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        self.seen += len(inputs)
        numbers = [zlib.crc32(joined(item).encode()) for item in inputs]
        if self.kind == "constant":
            return np.ones((len(inputs), 1), np.float32)
        if self.kind == "axes":
            return np.eye(3, dtype=np.float32)[np.array(numbers) % 3]
        vectors = np.stack([np.random.default_rng(number).normal(size=5) for number in numbers])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class Scores:
    """Random scores from few values; or the same for all."""

    fingerprint = "scores"

    def __init__(self, constant: bool = False):
        self.constant = constant
        self.candidate_counts: list[int] = []

    def score(self, context: Sequence[str], candidates: Sequence[str]) -> npt.NDArray[np.float64]:
        self.candidate_counts.append(len(candidates))
        text = joined(context)
        return np.array(
            [0.0 if self.constant else zlib.crc32(f"{text}\t{each}".encode()) % 7 for each in candidates], np.float64
        )


def examples(count: int, right: int = 1, shared: int = 0) -> list[Candidates]:
    """Contexts with their own right responses, the first few sharing one, and a response that is wrong for all."""
    made = []
    for number in range(count):
        own = [f"answer {number} {place}" if number >= shared else f"the answer {place}" for place in range(right)]
        made.append(Candidates(("hello", f"question {number}"), (*own, "nobody's"), (*(True,) * right, False)))
    return made


def values(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], list[float]]:
    return {(each.setting, each.metric): each.evidence[0].tolist() for each in outcomes if each.metric != MILLISECONDS}


def plain(
    given_examples: Sequence[Candidates], encoder: Encodes, depth: int
) -> list[tuple[float, float, float, float]]:
    """Of each context: Top-1, MRR and retrieved at a depth, and the reciprocal rank by similarity.

    Wrong ones win ties.
    """
    pool = list(dict.fromkeys(text for example in given_examples for text in example.positives))
    metrics = []
    for example in given_examples:
        query = encoder.encode([example.context])[0].astype(np.float64)
        cosine = {text: float((encoder.encode([text])[0].astype(np.float64) * query).sum()) for text in pool}
        near = sorted(pool, key=lambda text: (-cosine[text], text in example.positives))[:depth]
        scores = dict(zip(near, Scores().score(example.context, near), strict=True))
        ranked = sorted(near, key=lambda text: (-scores[text], text in example.positives))
        places = [[text in example.positives for text in order] for order in (ranked, near)]
        reciprocal, by_cosine = (1 / (1 + each.index(True)) if any(each) else 0.0 for each in places)
        metrics.append((float(reciprocal == 1), reciprocal, float(any(places[0])), by_cosine))
    return metrics


@settings(max_examples=40)
@given(st.integers(2, 9), st.integers(1, 3), st.integers(0, 3), st.sampled_from(["axes", "free", "constant"]))
def test_figures_are_what_sorting_gives(count: int, right: int, shared: int, kind: str) -> None:
    made = examples(count, right, min(shared, count - 1))
    pool = len({text for example in made for text in example.positives})
    outcomes = evaluate_selection(Encodes(kind), Scores(), made, "mine", depths=(1, 3, 100))
    metrics = values(outcomes)
    depths = sorted({1, min(3, pool), pool})
    assert set(metrics) == {
        *(
            (f"the first {depth} of {pool} re-ranked", metric)
            for depth in depths
            for metric in ("Top-1", "MRR", "retrieved")
        ),
        *((f"the first {pool} of {pool} by similarity", metric) for metric in ("Top-1", "MRR")),
    }
    for depth in depths:
        expected = plain(made, Encodes(kind), depth)
        for place, metric in enumerate(("Top-1", "MRR", "retrieved")):
            assert metrics[f"the first {depth} of {pool} re-ranked", metric] == pytest.approx(
                [each[place] for each in expected]
            )
    by_similarity = [each[3] for each in plain(made, Encodes(kind), pool)]
    assert metrics[f"the first {pool} of {pool} by similarity", "MRR"] == pytest.approx(by_similarity)
    assert all(outcome.scale == 100 for outcome in outcomes if outcome.metric != MILLISECONDS)


def test_ties_never_favour_the_models() -> None:
    """Where all vectors are the same nothing is retrieved before the end of the pool.

    Where all scores are, nothing comes first.
    """
    metrics = values(
        evaluate_selection(Encodes("constant"), Scores(constant=True), examples(10), "mine", depths=(1, 9, 10))
    )
    assert sum(metrics["the first 9 of 10 re-ranked", "retrieved"]) == 0
    assert sum(metrics["the first 10 of 10 re-ranked", "retrieved"]) == 10
    assert metrics["the first 10 of 10 re-ranked", "MRR"] == [0.1] * 10


def test_the_largest_depth_is_scored_once_for_each_context_that_is_asked() -> None:
    reranker = Scores()
    outcomes = evaluate_selection(Encodes("free"), reranker, examples(50), "mine", depths=(1, 5, 20), max_contexts=35)
    assert reranker.candidate_counts == [1, *[20] * 35]  # the first is not timed
    assert {outcome.evidence.shape for outcome in outcomes if outcome.metric != MILLISECONDS} == {(1, 35)}
    assert "the first 5 of 50 re-ranked" in {outcome.setting for outcome in outcomes}
    again = evaluate_selection(Encodes("free"), Scores(), examples(50), "mine", depths=(1, 5, 20), max_contexts=35)
    assert values(again) == values(outcomes)


def test_times_are_of_blocks_of_contexts_and_no_two_models_are_compared_by_them() -> None:
    ticks = iter(range(1000))
    with patch("turnwise.assist.evaluation_tasks.perf_counter", lambda: float(next(ticks) ** 2)):
        outcomes = evaluate_selection(Encodes("free"), Scores(), examples(40), "mine", depths=(5,))
    times = {outcome.setting: outcome for outcome in outcomes if outcome.metric == MILLISECONDS}
    assert MILLISECONDS in DESCRIPTIVE_METRICS
    # read at 0, 1, 2, 3 for 32 contexts, at 4, 5, 6, 7 for 8
    assert times["retrieving 5 of 40"].evidence.tolist() == [[[1, 32], [25 - 16, 8]]]
    assert times["re-ranking 5 of 40"].evidence.tolist() == [[[9 - 4, 32], [49 - 36, 8]]]
    assert times["re-ranking 5 of 40"].value == pytest.approx(1000 * (5 + 13) / 40)


def test_nothing_to_select_is_said() -> None:
    with pytest.raises(DatasetError, match="mine has one right response for all contexts"):
        evaluate_selection(Encodes(), Scores(), examples(3, shared=3), "mine")
    with pytest.raises(DatasetError, match="no context with a correct response"):
        evaluate_selection(Encodes(), Scores(), [Candidates(("a",), ("b",), (False,))], "mine")


# ---- a pair of models


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Forty test contexts as files of candidates."""
    folder = tmp_path / "data" / "responses"
    folder.mkdir(parents=True)
    for split, size in (("train", 2), ("valid", 10), ("test", 10)):
        lines = []
        for number in range(40):
            own = [f"answer {number}", *(f"wrong {number} {place}" for place in range(size - 1))]
            lines += [f"{int(not place)}\thello\tquestion {number}\t{text}\n" for place, text in enumerate(own)]
        (folder / f"{split}.txt").write_text("".join(lines))
    return tmp_path / "data"


def test_a_pair_measures_what_takes_both(data: Path) -> None:
    results = evaluate(
        Encodes("free"), data, reranker=Scores(), tasks=["selection", "reranking", "responses"], name="pair"
    )
    assert results.model == "pair" and set(results.plots) == {"selection_sample.svg"}
    settings = {(row.task, row.setting) for row in results.rows}
    assert ("reranking", "re-ranker") in settings and ("reranking", "cosine, history") not in settings
    assert ("responses", "0-shot similarity, history") in settings
    expected = values(evaluate_selection(Encodes("free"), Scores(), sample(data), "sample"))
    metrics = {(row.setting, row.metric): row.value for row in results.rows if row.task == "selection"}
    assert {key: metrics[key] for key in expected} == pytest.approx(
        {key: 100 * np.mean(each) for key, each in expected.items()}
    )


def sample(data: Path) -> Sequence[Candidates]:
    from turnwise.evaluation.datasets.candidates import CANDIDATE_DATASETS

    return CANDIDATE_DATASETS["sample"].load(data).test


def test_a_pair_is_named_and_known_by_both() -> None:
    encoder, reranker = wrap_model(Encodes(), "mine"), wrap_model(Scores(), "models/theirs")
    pair = with_reranker(encoder, reranker)
    assert (pair.name, pair.encoder, pair.scorer) == ("mine, re-ranked by theirs", encoder.encoder, reranker.scorer)
    assert len({pair.fingerprint, encoder.fingerprint, reranker.fingerprint}) == 3
    unknown = wrap_model(lambda texts: np.ones((len(texts), 1)), "function")
    assert with_reranker(unknown, reranker).fingerprint is None
    with pytest.raises(ModelError, match="models/theirs gives no vectors"):
        with_reranker(reranker, reranker)
    with pytest.raises(ModelError, match="mine is not a re-ranker"):
        with_reranker(encoder, encoder)


def test_times_are_kept_with_the_machine_that_took_them(data: Path, tmp_path: Path) -> None:
    """And are those of encoding, not of looking up vectors that were encoded before."""
    pool_and_contexts = 80
    encoder = Encodes("free")

    def run() -> int:
        before = encoder.seen
        evaluate(encoder, data, reranker=Scores(), tasks=["selection"], out=tmp_path / "out")
        return encoder.seen - before

    evaluate(encoder, data, reranker=Scores(), tasks=["responses"], out=tmp_path / "out")  # keeps vectors
    assert run() == pool_and_contexts
    assert run() == 0
    with patch("turnwise.evaluation.runner.evaluation_environment", lambda: {"device": "another"}):
        assert run() == pool_and_contexts


def test_an_encoder_alone_is_told_what_it_lacks(data: Path) -> None:
    with pytest.raises(TurnwiseError, match="it needs an encoder and a re-ranker, which --reranker names"):
        evaluate(Encodes(), data, tasks=["selection"])


# ---- the command


@pytest.fixture(scope="module")
def reranker(tiny_folder: Callable[[str], Path]) -> Reranker:
    backbone = load_backbone(tiny_folder("bert"))
    backbone.add_tokens((END_OF_TURN, *MARKS.values()))
    torch.manual_seed(0)
    tasks: tuple[RerankerTask, ...] = ("selection", "insertion", "deletion", "search")
    return Reranker(backbone, {task: nn.Linear(backbone.hidden, 1) for task in tasks}).eval()


def test_the_command_measures_two_stages_and_draws_them(
    reranker: Reranker, tiny_folder: Callable[[str], Path], sample_world: Callable[[int], Path], tmp_path: Path
) -> None:
    reranker.save(tmp_path / "reranker")
    model, out = tiny_folder("bert"), tmp_path / "out"
    pair = (model, "--reranker", tmp_path / "reranker")
    result = run("evaluate", *pair, "--task", "selection", "--data", sample_world(40), "--out", out)
    assert "re-ranked by reranker" in " ".join(result.stdout.split())
    rows = json.loads((out / "results.json").read_text(encoding="utf-8"))["rows"]
    assert {row["metric"] for row in rows} == {"Top-1", "MRR", "retrieved", MILLISECONDS}
    assert all(row["value"] > 0 for row in rows if row["metric"] == MILLISECONDS)
    quality = [row for row in rows if row["setting"].endswith("re-ranked")]
    ceilings = [row["value"] for row in quality if row["metric"] == "retrieved"]
    assert len(ceilings) > 2 and ceilings == sorted(ceilings) and ceilings[-1] == 100
    assert [path.name for path in (out / "plots").iterdir()] == ["selection_sample.svg"]


# ---- pictures


def test_a_line_for_each_figure_runs_over_k() -> None:
    results = Results("mine", "selection")
    results.add(evaluate_selection(Encodes("free"), Scores(), examples(30), "mine", depths=(1, 5, 10, 30)))
    add_selection_plots(results)
    root = ElementTree.fromstring(results.plots["selection_mine.svg"])
    lines = [paths(line)[0] for line in groups(root, "line-")]
    assert [len(line) for line in lines] == [4, 4, 4]
    metrics = {(row.setting, row.metric): row.value for row in results.rows}
    heights = np.array([[y for _, y in line] for line in lines])
    expected = np.array(
        [
            [metrics[f"the first {k} of 30 re-ranked", metric] for k in (1, 5, 10, 30)]
            for metric in ("Top-1", "MRR", "retrieved")
        ]
    )
    assert np.corrcoef(-heights.ravel(), expected.ravel())[0, 1] == pytest.approx(1, abs=1e-4)
    empty = Results("mine", "nli")
    add_selection_plots(empty)
    assert empty.plots == {}


def talks(count: int) -> CandidateData:
    test = tuple(
        Candidates(
            tuple(f"talk {number} turn {turn}" for turn in range(5)), (f"talk {number} ends", "no"), (True, False)
        )
        for number in range(count)
    )
    return CandidateData("sample", (), (), test)


def test_states_at_marks_are_shown_by_whether_they_are_asked_for(reranker: Reranker) -> None:
    """Windows of five: five gaps, six turns with the planted one, four candidates; one of each is right."""
    results = Results("mine", "ums")
    model = ModelUnderTest("mine", None, reranker, None, None)
    few = talks(9)
    add_plots("ums", model, lambda protocol, name: few if name == "sample" else None, results)
    expected = {"insertion": 5, "deletion": 6, "search": 4}
    assert set(results.plots) == {f"marks_sample_{task}.svg" for task in expected}
    for task, count in expected.items():
        clouds = groups(ElementTree.fromstring(results.plots[f"marks_sample_{task}.svg"]), "cloud-")
        assert [len(marks(cloud)) for cloud in clouds] == [9 * (count - 1), 9]


def test_a_re_ranker_shows_the_heads_that_it_has(reranker: Reranker) -> None:
    results = Results("mine", "ums")
    alone = Reranker(reranker.backbone, {"selection": nn.Linear(reranker.backbone.hidden, 1)})
    add_plots("ums", ModelUnderTest("mine", None, alone, None, None), lambda protocol, name: talks(9), results)
    assert results.plots == {}
    add_plots("ums", ModelUnderTest("mine", None, reranker, None, None), lambda protocol, name: talks(3), results)
    assert results.plots == {} and len(results.facts["plots left out"]) == 3 * 5
    with pytest.raises(DatasetError, match="sample has 15 marks"):
        mark_map(reranker, talks(3), "insertion")


def test_states_are_what_heads_look_at(reranker: Reranker) -> None:
    puzzle = sample_questions(complete_dialogues(talks(5).test))[0]
    tokens = reranker.tokenise(puzzle.with_foreign)
    marked = [
        marked_input(reranker.composer, "deletion", [tokens[turn] for turn in turns], None, 64)
        for turns in (puzzle.with_foreign, puzzle.with_foreign[:3])
    ]
    head = reranker.heads["deletion"]
    for states, logits in zip(reranker.states(marked), reranker.logits("deletion", marked), strict=True):
        with torch.inference_mode():
            expected = head(torch.from_numpy(states))[:, 0].numpy()
        np.testing.assert_allclose(logits, expected, atol=1e-5)
        assert states.shape == (len(logits), reranker.backbone.hidden)
