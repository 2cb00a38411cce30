"""Coherence scores against plain restatements: windows, means, orders; perfect heads find the truth."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import ModelError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.models.backbone.inputs import (
    END_OF_TURN,
    MARKS,
    Composer,
    MarkedInput,
)
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.ragged import Tokens
from turnwise.models.coherence import (
    CoherenceReport,
    check_corpus,
    out_of_place_scores,
    placement_scores,
    predecessor_scores,
    predict_orders,
)
from turnwise.models.reranker import Reranker

# ---- a head that is a function of the texts that it is shown

#: From the turns behind the marks, and the target where there is one, to what the head says at each mark.
Head = Callable[[list[str], str | None], Sequence[float]]

_SPECIAL = {token: number for number, token in enumerate((END_OF_TURN, *MARKS.values(), "[CLS]", "[SEP]"), 1)}
_CLS, _SEP = np.array([5], np.int32), np.array([6], np.int32)
_COMPOSER = Composer(_CLS, _SEP, _SEP, _SEP, {}, -1, 10**6, _SPECIAL)


class FakeReranker:
    """A re-ranker whose tokens are whole texts, so that its head is a function of texts."""

    def __init__(self, head: Head, window: int = 5):
        self.max_length = 64
        self.window = window
        self.head = head
        self.queries: list[tuple[str, list[str], str | None]] = []
        self.calls = 0
        self._ids: dict[str, int] = {}

    composer = _COMPOSER
    mark_texts = Reranker.mark_texts

    def tokenise(self, texts: Sequence[str]) -> dict[str, Tokens]:
        return {text: np.array([self._ids.setdefault(text, 10 + len(self._ids))], np.int32) for text in texts}

    def logits(
        self, task: str, marked: Sequence[MarkedInput], *, progress: Progress = silent
    ) -> list[npt.NDArray[np.float32]]:
        self.calls += 1
        texts = {number: text for text, number in self._ids.items()}
        result = []
        for each in marked:
            turns = [texts[token] for token in each.tokens.tolist() if token in texts]
            target = turns.pop() if task != "deletion" else None
            self.queries.append((task, turns, target))
            result.append(np.array(self.head(turns, target), np.float32))
            assert len(result[-1]) == len(each.positions)
        return result


def sigmoid(value: float) -> float:
    return 1 / (1 + np.exp(-value))


def steady(turns: list[str], target: str | None, marks: int) -> list[float]:
    """Something that depends on all that is shown and on the place, the same in every process."""
    shown = "|".join([*turns, target or ""])
    return [((sum(map(ord, shown)) * 31 + 17 * place) % 23) / 7 - 1.5 for place in range(marks)]


# ---- windows and means


def expected_windows(count: int, width: int) -> list[range]:
    return [range(count)] if count <= width else [range(start, start + width) for start in range(count - width + 1)]


@settings(deadline=None)
@given(st.integers(2, 14), st.integers(2, 6))
def test_out_of_place_scores_average_windows_of_k_plus_1_turns(count: int, window: int) -> None:
    turns = [f"t{number}" for number in range(count)]
    head: Head = lambda turns, target: steady(turns, target, len(turns))  # noqa: E731
    (result,) = out_of_place_scores(FakeReranker(head, window), [turns])
    seen: list[list[float]] = [[] for _ in turns]
    for each in expected_windows(count, window + 1):
        shown = [turns[place] for place in each]
        for place, value in zip(each, steady(shown, None, len(shown)), strict=True):
            seen[place].append(sigmoid(value))
    assert result.scores == pytest.approx([sum(values) / len(values) for values in seen])
    assert result.index == max(range(count), key=lambda place: result.scores[place])


@settings(deadline=None)
@given(st.integers(1, 14), st.integers(2, 6))
def test_placement_scores_average_windows_of_k_minus_1_turns(count: int, window: int) -> None:
    turns = [f"t{number}" for number in range(count)]
    head: Head = lambda turns, target: steady(turns, target, len(turns) + 1)  # noqa: E731
    (result,) = placement_scores(FakeReranker(head, window), [(turns, "new")])
    seen: list[list[float]] = [[] for _ in range(count + 1)]
    for each in expected_windows(count, window - 1):
        shown = [turns[place] for place in each]
        for gap, value in enumerate(steady(shown, "new", len(shown) + 1)):
            seen[each[0] + gap].append(sigmoid(value))
    assert result.scores == pytest.approx([sum(values) / len(values) for values in seen])


# ---- heads that know


@settings(deadline=None)
@given(st.integers(2, 12), st.data())
def test_perfect_deletion_head_finds_the_foreign_turn_at_any_position(count: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, count))
    turns = [f"t{number}" for number in range(count)]
    turns.insert(place, "foreign")
    head: Head = lambda turns, target: [5 if text == "foreign" else -5 for text in turns]  # noqa: E731
    assert out_of_place_scores(FakeReranker(head), [turns])[0].index == place


@settings(deadline=None)
@given(st.integers(1, 12), st.data())
def test_perfect_insertion_head_finds_the_gap(count: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, count))
    rest = [f"t{number}" for number in range(count)]

    def head(turns: list[str], target: str | None) -> list[float]:
        numbers = [int(text[1:]) for text in turns]
        return [5.0 if numbers[0] + gap == place else -5.0 for gap in range(len(turns) + 1)]

    assert placement_scores(FakeReranker(head), [(rest, "new")])[0].index == place


def order_head(turns: list[str], target: str | None) -> list[float]:
    """Turns are named by when they were said, padded so that their texts sort otherwise."""
    assert target is not None
    return [4.0 if int(text.split()[-1]) + 1 == int(target.split()[-1]) else -4.0 for text in turns]


def named(number: int) -> str:
    return f"{(number * 7919) % 101} turn {number}"


def gap_head(turns: list[str], target: str | None) -> list[float]:
    """Where the turn belongs among ordered turns; among others, next to its neighbours in number."""
    assert target is not None
    numbers, number = [int(text.split()[-1]) for text in turns], int(target.split()[-1])
    return [
        4.0 if (not gap or numbers[gap - 1] < number) and (gap == len(numbers) or number < numbers[gap]) else -4.0
        for gap in range(len(numbers) + 1)
    ]


@settings(deadline=None)
@given(st.integers(2, 9).flatmap(lambda count: st.permutations(range(count))), st.integers(3, 6))
def test_perfect_insertion_head_recovers_any_permutation(given_as: list[int], window: int) -> None:
    reranker = FakeReranker(gap_head, window)
    (result,) = predict_orders(reranker, [[named(number) for number in given_as]])
    assert [given_as[index] for index in result.indices] == list(range(len(given_as)))
    assert result.score >= result.given
    assert max(len(turns) for _, turns, _ in reranker.queries) <= window - 1


@settings(deadline=None)
@given(st.permutations(range(4)))
def test_order_score_is_the_mean_log_probability_of_its_gaps(given_as: list[int]) -> None:
    turns = [named(number) for number in given_as]
    (result,) = predict_orders(FakeReranker(gap_head, 5), [turns])

    def expected_score(order: list[str]) -> float:
        logs = []
        for place, turn in enumerate(order):
            scores = [sigmoid(value) for value in gap_head(order[:place] + order[place + 1 :], turn)]
            logs.append(np.log(scores[place] / sum(scores)))
        return float(np.mean(logs))

    assert result.given == pytest.approx(expected_score(turns))
    assert result.score == pytest.approx(expected_score([turns[index] for index in result.indices]))


@given(st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=8), st.data())
def test_predicted_order_does_not_depend_on_input_order(turns: list[str], data: st.DataObject) -> None:
    """Neither the order nor its score depends on it, even if texts repeat."""
    head: Head = lambda turns, target: steady(turns, target, len(turns) + 1)  # noqa: E731
    shuffled = data.draw(st.permutations(turns))
    first, second = predict_orders(FakeReranker(head), [turns, shuffled])
    assert [turns[index] for index in first.indices] == [shuffled[index] for index in second.indices]
    assert first.score == pytest.approx(second.score)
    assert sorted(first.indices) == list(range(len(turns)))
    assert first.score >= first.given - 1e-9 or first.indices != tuple(range(len(turns)))


def test_predecessor_scores_are_the_heads_logits() -> None:
    assert predecessor_scores(FakeReranker(order_head), [(["x 3", "y 1"], "z 2")])[0].tolist() == [-4, 4]


# ---- errors


@pytest.mark.parametrize("ask", [out_of_place_scores, predict_orders])
def test_single_turn_is_rejected(ask: Callable[..., object]) -> None:
    for alone in (["hello"], [Turn("user", "hello")], Dialogue("d1", (Turn("user", "hello"),))):
        with pytest.raises(ModelError, match="has 1 turn: 2 or more are needed"):
            ask(FakeReranker(order_head), [alone])
    with pytest.raises(ModelError, match="dialogue 'd1'"):
        ask(FakeReranker(order_head), [Dialogue("d1", (Turn("user", "hello"),))])
    with pytest.raises(ModelError, match="not a string"):
        ask(FakeReranker(order_head), ["hello there"])
    with pytest.raises(ModelError, match="needs at least one turn"):
        placement_scores(FakeReranker(order_head), [([], "hello")])


# ---- a model


#: Of the tiny model's words.
TEXTS = [
    "i want a table",
    "which city",
    "the north please",
    "a taxi is cheap now",
    "no thanks",
    "when is it",
    "tomorrow",
    "good",
]


@pytest.fixture(scope="module")
def reranker(tiny_folder: Callable[[str], Path]) -> Reranker:
    backbone = load_backbone(str(tiny_folder("bert")))
    backbone.add_tokens((END_OF_TURN, *MARKS.values()))
    torch.manual_seed(1)
    return Reranker(
        backbone, {task: nn.Linear(backbone.hidden, 1) for task in ("selection", "insertion", "deletion", "search")}
    )


def test_reranker_methods_equal_the_functions(reranker: Reranker) -> None:
    dialogue = Dialogue("d1", tuple(Turn("user", text) for text in TEXTS))
    for turns in (dialogue, dialogue.turns):
        assert reranker.out_of_place(turns) == reranker.out_of_place(TEXTS) == out_of_place_scores(reranker, [TEXTS])[0]
        assert (
            reranker.place(turns, "yes")
            == reranker.place(TEXTS, "yes")
            == placement_scores(reranker, [(TEXTS, "yes")])[0]
        )
        assert reranker.order(turns) == reranker.order(TEXTS) == predict_orders(reranker, [TEXTS])[0]
    assert len(reranker.out_of_place(dialogue).scores) == len(TEXTS)
    assert len(reranker.place(dialogue, "yes").scores) == len(TEXTS) + 1
    backwards = reranker.order(TEXTS[::-1])
    assert [TEXTS[::-1][index] for index in backwards.indices] == [
        TEXTS[index] for index in reranker.order(TEXTS).indices
    ]


# ---- a whole corpus


SAMPLE = list(sample_dialogues(40, 1))


def lengths(turns: list[str], target: str | None) -> list[float]:
    return [len(text) / 10 for text in turns]


def check_sample(top: int = 5, threshold: float = 0.0) -> CoherenceReport:
    return check_corpus(FakeReranker(lengths), SAMPLE, top=top, threshold=threshold)


def test_corpus_check_does_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    dialogues = [Dialogue("alone", (Turn("user", "nothing before and nothing behind"),)), *SAMPLE]
    reports: list[int] = []

    def check(chunk: int) -> CoherenceReport:
        monkeypatch.setattr("turnwise.models.coherence.CHUNK", chunk)
        reports.clear()
        return check_corpus(
            FakeReranker(lengths), iter(dialogues), top=7, progress=lambda what, done, total=None: reports.append(done)
        )

    result = check(10**6)
    assert reports == [len(dialogues)]
    assert result == check(3)
    assert reports[-1] == len(dialogues) and len(reports) > 5
    assert (result.dialogues, result.skipped) == (len(dialogues), 1)
    assert result.turns == sum(len(dialogue.turns) for dialogue in SAMPLE)
    every = [
        (-score, order, dialogue.id, number)
        for order, dialogue in enumerate(SAMPLE)
        for number, score in enumerate(out_of_place_scores(FakeReranker(lengths), [dialogue])[0].scores, start=1)
    ]
    assert [(suspect.dialogue, suspect.turn) for suspect in result.suspects] == [each[2:] for each in sorted(every)[:7]]
    by_id = {dialogue.id: dialogue for dialogue in SAMPLE}
    for suspect in result.suspects:
        turns = by_id[suspect.dialogue].turns
        assert (suspect.speaker, suspect.text) == (turns[suspect.turn - 1].speaker, turns[suspect.turn - 1].text)
        assert suspect.before == (turns[suspect.turn - 2].text if suspect.turn > 1 else None)


def test_threshold_drops_lower_scores() -> None:
    scores = [suspect.score for suspect in check_sample(top=10**6).suspects]
    middle = sorted(scores)[len(scores) // 2]
    assert [suspect.score for suspect in check_sample(10**6, middle).suspects] == [
        score for score in scores if score >= middle
    ]
    assert check_sample(threshold=1.0).suspects == ()
