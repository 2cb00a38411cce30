"""Whether a re-ranker improves suggestions: held-out answers are compared with what the other conversations suggest."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.bag_of_words import BagOfWords
from turnwise import Dialogue, Responder, Turn
from turnwise.assist.responses.reranking import measure_reranking
from turnwise.core.errors import SearchError

PLACES = ("Bremen", "Kiel", "Ulm", "Trier", "Jena", "Hof")


def dialogues(split: str, count: int) -> list[Dialogue]:
    """Equal questions with two kinds of answers: the place is told by the conversation only."""
    made = []
    for number in range(count):
        place = PLACES[number % len(PLACES)]
        turns = (Turn("user", "hello there"), Turn("user", f"when to {place}"), Turn("system", f"{place} at noon"))
        made.append(Dialogue(f"{split}-{number}", turns, "logs", split))
    return made


class Scores:
    """Scores an answer by whether it names the place that the conversation names, or the opposite."""

    def __init__(self, factor: float):
        self.factor = factor
        self.read: list[str] = []

    def score(self, context: Sequence[Turn], candidates: Sequence[str]) -> np.ndarray:
        self.read += candidates
        named = context[-1].text.split()[-1]
        return np.array([0.5 + self.factor * (candidate.split()[0] == named) for candidate in candidates])


@pytest.fixture
def responder(tmp_path: Path) -> Responder:
    made = Responder.open(tmp_path / "responses", BagOfWords())
    made.index([*dialogues("train", 6), *dialogues("test", 30)])
    return made


def test_a_reranker_is_judged_by_held_out_answers(responder: Responder) -> None:
    held_out = dialogues("test", 30)
    harmful = measure_reranking(responder, Scores(-0.4), held_out)
    assert harmful.reranked < harmful.without == pytest.approx(1) and not harmful.is_better
    assert harmful.difference == pytest.approx(harmful.reranked - harmful.without)
    assert harmful.low <= harmful.difference <= harmful.high < 0
    useless = measure_reranking(responder, Scores(0), held_out, turns=12)
    assert (useless.turns, useless.difference, useless.is_better) == (12, 0, False)
    helped = measure_reranking(responder, Scores(0.4), [swap(each) for each in held_out])
    assert helped.is_better and helped.low > 0


def swap(dialogue: Dialogue) -> Dialogue:
    """Let the situation resemble that of another place, which only the re-ranker overlooks."""
    first, second, answer = dialogue.turns
    other = PLACES[PLACES.index(answer.text.split()[0]) - 1]
    misleading = f"{other} {other} {other} when to {second.text.split()[-1]}"
    return Dialogue(dialogue.id, (first, Turn("user", misleading), answer), dialogue.source, dialogue.split)


def test_held_out_conversations_are_not_suggested(responder: Responder) -> None:
    reranker = Scores(0.4)
    [answer] = {turn.text for turn in dialogues("test", 1)[0].turns if turn.speaker == "system"}
    only_there = Dialogue("x", (Turn("user", "when to Rome"), Turn("system", "Rome never")), "logs", "valid")
    responder.index([only_there])
    measure_reranking(responder, reranker, [*dialogues("test", 10), only_there])
    assert answer in reranker.read and "Rome never" not in reranker.read


def test_too_few_held_out_answers(responder: Responder) -> None:
    with pytest.raises(SearchError, match=r"valid and test have 9 answers.*at least 10.*--split 80/10/10"):
        measure_reranking(responder, Scores(0), [*dialogues("train", 30), *dialogues("test", 9)])
