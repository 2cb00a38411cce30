"""Coherence: how questions are sampled, the scores of perfect and of guessing models, which models can answer."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau
from torch import nn

from tests.helpers.encoders import TextEncoder
from turnwise import evaluate
from turnwise.core.errors import DatasetError, TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.evaluation_protocols import PROTOCOLS
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.coherence import CoherenceQuestion, coherence, complete_dialogues, sample_questions
from turnwise.models.backbone.inputs import END_OF_TURN, MARKS, Composer, MarkedInput
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.ragged import Tokens
from turnwise.models.loading import wrap_model
from turnwise.models.reranker import Reranker

_SPECIAL = {END_OF_TURN: 1, **{mark: number for number, mark in enumerate(MARKS.values(), 2)}}


def letter(number: int) -> str:
    return chr(ord("a") + number)


#: Dialogues by topic: of topic 'a' turn 2 is 'a2', so that whose it is and when it was said can be read off it.
EXAMPLES = [
    Candidates(
        tuple(f"{letter(topic)}{turn}" for turn in range(size)),
        (f"{letter(topic)}{size}", "wrong", f"{letter(topic)} or so"),
        (True, False, True),
    )
    for topic, size in enumerate((1, 2, 3, 4, 5, 7, 9, 12))
]


class Reader:
    """A re-ranker whose tokens are whole texts; its heads are told what they are shown."""

    def __init__(self, heads: dict[str, Callable[[list[str], str], Sequence[float]]]):
        self.max_length = 64
        self.window = 5
        self.heads = heads
        self._ids: dict[str, int] = {}

    composer = Composer(*[np.array([5], np.int32)] * 4, {}, -1, 10**6, _SPECIAL)
    mark_texts = Reranker.mark_texts

    def tokenise(self, texts: Sequence[str]) -> dict[str, Tokens]:
        return {text: np.array([self._ids.setdefault(text, 10 + len(self._ids))], np.int32) for text in texts}

    def logits(
        self, task: str, marked: Sequence[MarkedInput], *, progress: Progress = silent
    ) -> list[npt.NDArray[np.float32]]:
        texts = {number: text for text, number in self._ids.items()}
        shown = [[texts[token] for token in each.tokens.tolist() if token in texts] for each in marked]
        return [
            np.array(
                self.heads[task](turn_texts, "")
                if task == "deletion"
                else self.heads[task](turn_texts[:-1], turn_texts[-1]),
                np.float32,
            )
            for turn_texts in shown
        ]


def _topics(turn_texts: list[str], target: str) -> list[float]:
    """How few of the others have the same topic."""
    return [-float(sum(other[0] == text[0] for other in turn_texts)) for text in turn_texts]


def _gaps(turn_texts: list[str], target: str) -> list[float]:
    place = sum(int(text[1:]) < int(target[1:]) for text in turn_texts)
    return [float(gap == place) for gap in range(len(turn_texts) + 1)]


def _before(turn_texts: list[str], target: str) -> list[float]:
    return [float(int(text[1:]) + 1 == int(target[1:])) for text in turn_texts]


def _nothing(turn_texts: list[str], target: str) -> list[float]:
    return [0.0] * (len(turn_texts) + 1)


KNOWING = Reader({"selection": _before, "insertion": _gaps, "deletion": _topics, "search": _before})


def values(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], float]:
    return {(outcome.setting, outcome.metric): outcome.value for outcome in outcomes}


def test_a_dialogue_is_a_context_with_its_first_right_response() -> None:
    wrong = Candidates(("x0", "x1"), ("x2",), (False,))
    empty = Candidates(("y0", " "), ("",), (True,))
    actual = complete_dialogues([*EXAMPLES[:2], EXAMPLES[0], wrong, empty])
    assert actual == [("a0", "a1"), ("b0", "b1", "b2"), ("x0", "x1")]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdABCD"), min_size=2, max_size=9).map(tuple), max_size=8), st.integers(0, 99)
)
def test_puzzles_are_made_of_a_window_and_a_turn_that_is_not_its_own(
    dialogues: list[tuple[str, ...]], seed: int
) -> None:
    puzzles = sample_questions(dialogues, seed)
    everything = {normalise_text(turn) for dialogue in dialogues for turn in dialogue}
    answerable = [dialogue for dialogue in dialogues if {normalise_text(turn) for turn in dialogue} != everything]
    assert len(puzzles) == len(answerable)
    for dialogue, puzzle in zip(answerable, puzzles, strict=True):
        size = min(5, len(dialogue))
        assert puzzle.turns in [dialogue[start : start + size] for start in range(len(dialogue) - size + 1)]
        assert normalise_text(puzzle.foreign) in everything - {normalise_text(turn) for turn in dialogue}
        assert sorted(puzzle.shuffled) == sorted(puzzle.turns[:-1])
        planted = list(puzzle.with_foreign)
        assert planted.pop(puzzle.inserted_at) == puzzle.foreign and tuple(planted) == puzzle.turns
        rest = list(puzzle.without_removed)
        rest.insert(puzzle.removed, puzzle.turns[puzzle.removed])
        assert tuple(rest) == puzzle.turns
    assert sample_questions(dialogues, seed) == puzzles


def test_every_position_is_equally_likely() -> None:
    puzzles = sample_questions([(f"{number}a", f"{number}b", f"{number}c") for number in range(2_000)])
    counts: list[tuple[int, Callable[[CoherenceQuestion], int]]] = [
        (4, lambda puzzle: puzzle.inserted_at),
        (3, lambda puzzle: puzzle.removed),
        (2, lambda puzzle: puzzle.shuffled.index(puzzle.turns[-2])),
    ]
    for places, place in counts:
        shares = np.bincount([place(puzzle) for puzzle in puzzles], minlength=places) / len(puzzles)
        assert shares == pytest.approx([1 / places] * places, abs=0.05)


def test_a_model_that_knows_gets_everything_and_chance_is_stated() -> None:
    actual = values(coherence(KNOWING, EXAMPLES, "toy"))
    sizes = [min(5, len(example.context) + 1) for example in EXAMPLES]
    long = [size for size in sizes if size > 2]
    assert actual == pytest.approx(
        {
            ("misfit, re-ranker", "accuracy"): 1,
            ("misfit, re-ranker", "chance"): np.mean([1 / (size + 1) for size in sizes]),
            ("place, re-ranker", "accuracy"): 1,
            ("place, re-ranker", "chance"): np.mean([1 / size for size in sizes]),
            ("predecessor, re-ranker", "accuracy"): 1,
            ("predecessor, re-ranker", "chance"): np.mean([1 / (size - 1) for size in long]),
            ("order, re-ranker", "adjacent pairs"): 1,
            ("order, re-ranker", "chance"): np.mean([1 / size for size in sizes]),
            ("order, re-ranker", "Kendall's τ"): 1,
        }
    )


def test_ties_never_favour_the_model() -> None:
    blank = Reader(
        {
            "insertion": _nothing,
            "deletion": lambda turn_texts, _: [0.0] * len(turn_texts),
            "search": lambda turn_texts, _: [0.0] * len(turn_texts),
        }
    )
    actual = values(coherence(blank, EXAMPLES, "toy"))
    for setting in ("misfit", "place", "predecessor"):
        assert actual[f"{setting}, re-ranker", "accuracy"] == 0


def gaps_by(rank: Callable[[str], int]) -> Callable[[list[str], str], list[float]]:
    """A head that has turns said in the order of their ranks: 1 for the one gap where a turn then belongs, else 0."""

    def head(turn_texts: list[str], target: str) -> list[float]:
        before = sum(rank(text) < rank(target) for text in turn_texts)
        return [9.0 if gap == before else -9.0 for gap in range(len(turn_texts) + 1)]

    return head


@settings(deadline=None)
@given(st.integers(2, 5).flatmap(lambda size: st.permutations(range(size))))
def test_the_order_is_measured_as_by_scipy(turn_texts: list[int]) -> None:
    """A head that has turns said in any order whatever."""
    head = Reader({"insertion": gaps_by(lambda text: turn_texts.index(int(text[1:])))})
    truth = tuple(f"a{number}" for number in range(len(turn_texts)))
    planted = [Candidates(truth[:-1], truth[-1:], (True,)), Candidates(("b0",), ("b1",), (True,))]
    outcomes = {outcome.metric: outcome.evidence[0, 0] for outcome in coherence(head, planted, "toy")}
    assert outcomes["Kendall's τ"] == pytest.approx(kendalltau(range(len(turn_texts)), turn_texts).statistic)
    assert outcomes["adjacent pairs"] == np.mean([second == first + 1 for first, second in pairwise(turn_texts)])


def test_equal_turns_are_not_held_against_a_model() -> None:
    """Where a turn repeats another, every answer that makes the same window is right."""
    same = [Candidates(("m0", "m0", "m0"), ("m0",), (True,)), Candidates(("n0",), ("n1",), (True,))]
    for head in (_gaps, _nothing):
        actual = values(
            coherence(Reader({"insertion": head, "search": lambda turn_texts, _: [0.0] * len(turn_texts)}), same, "toy")
        )
        assert actual["predecessor, re-ranker", "accuracy"] == actual["predecessor, re-ranker", "chance"] == 1
        assert actual["place, re-ranker", "chance"] == (1 + 1 / 2) / 2
        assert actual["place, re-ranker", "accuracy"] == (1 if head is _gaps else 1 / 2)
    assert actual["order, re-ranker", "adjacent pairs"] >= 1 / 2


class Topics(TextEncoder):
    """Distinguishes topics only."""

    def __init__(self) -> None:
        super().__init__(lambda text: [text[0] == letter(topic) for topic in range(8)], max_length=128)


def test_an_encoder_finds_the_misfit_by_its_neighbours() -> None:
    """A turn is told from both neighbours, or at an end from the only one."""
    outcomes = coherence(Topics(), EXAMPLES, "toy")
    assert [(outcome.setting, outcome.metric) for outcome in outcomes] == [
        ("misfit, cosine", "accuracy"),
        ("misfit, cosine", "chance"),
    ]
    for puzzle, right in zip(
        sample_questions(complete_dialogues(EXAMPLES)), outcomes[0].evidence[0].tolist(), strict=True
    ):
        turn_texts = [turn[0] for turn in puzzle.with_foreign]
        means = []
        for place in range(len(turn_texts)):
            near = [turn_texts[other] for other in (place - 1, place + 1) if 0 <= other < len(turn_texts)]
            means.append(sum(other == turn_texts[place] for other in near) / len(near))
        others = means[: puzzle.inserted_at] + means[puzzle.inserted_at + 1 :]
        assert right == (means[puzzle.inserted_at] < min(others))


def test_data_without_another_dialogue_is_refused() -> None:
    for few in ([], EXAMPLES[:1], [Candidates(("a",), ("b",), (False,))] * 2):
        with pytest.raises(DatasetError, match="toy has no dialogue of two turns or more"):
            coherence(KNOWING, few, "toy")


@pytest.fixture(scope="module")
def reranker(tiny_folder: Callable[[str], Path]) -> Reranker:
    backbone = load_backbone(str(tiny_folder("bert")))
    backbone.add_tokens((END_OF_TURN, *MARKS.values()))
    torch.manual_seed(1)
    return Reranker(
        backbone, {task: nn.Linear(backbone.hidden, 1) for task in ("selection", "insertion", "deletion", "search")}
    )


def test_a_re_ranker_is_measured_on_a_sample_world(reranker: Reranker, sample_world: Callable[[int], Path]) -> None:
    world = sample_world(60)
    results = evaluate(reranker, world, tasks=["coherence"], name="tiny")
    assert {(row.task, row.dataset) for row in results.rows} == {("coherence", "sample")}
    settings = [f"{tool}, re-ranker" for tool in ("misfit", "place", "order", "predecessor")]
    assert list(dict.fromkeys(row.setting for row in results.rows)) == settings
    for row in results.rows:
        assert row.low <= row.value + 1e-9 and row.value <= row.high + 1e-9
        assert -1 <= row.value <= 1
    assert evaluate(reranker, world, tasks=["coherence"], name="tiny").rows == results.rows


def test_a_re_ranker_without_the_heads_is_passed_over(reranker: Reranker, sample_world: Callable[[int], Path]) -> None:
    only = Reranker(reranker.backbone, {"selection": reranker.heads["selection"]})  # type: ignore[dict-item]
    suits = PROTOCOLS["coherence"].supports
    assert suits(wrap_model(reranker)) and suits(wrap_model(Topics())) and not suits(wrap_model(only))
    assert evaluate(only, sample_world(60), suite="ums", plots=False).facts["left out"].keys() >= {"coherence"}
    with pytest.raises(TurnwiseError, match="no protocol of coherence can be run"):
        evaluate(only, sample_world(60), tasks=["coherence"])
