"""Isotropy against plain NumPy and known clouds; which answers are frequent, and who is paired with whom."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.encoders import ConstantEncoder, RandomEncoder
from turnwise import Turn, evaluate
from turnwise.core.errors import DatasetError
from turnwise.core.text import normalise_text
from turnwise.evaluation.datasets.dialogues import ConversationData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.geometry import (
    MIN_TEXTS,
    AnsweredContext,
    find_contexts,
    frequent_answers,
    isotropy,
    pairs_sharing_answers,
)

COSINE = "mean cosine of random pairs"
SHARE = "variance of the first principal component"
DISTANCE = "distance of contexts that share a frequent answer"
RELATIVE = f"{DISTANCE}, relative to random pairs"

TURNS = st.builds(Turn, st.sampled_from(["user", "system"]), st.sampled_from(["a", "A ", "b", "c", "yes", "Yes", "ok"]))
DIALOGUES = st.lists(st.lists(TURNS, min_size=1, max_size=6).map(tuple), max_size=40)


class ConversationEncoder(RandomEncoder):
    """Vectors of texts and conversations alike, by all that was said; `inputs` has those of every call."""

    def __init__(self, size: int = 6):
        super().__init__(size)
        self.inputs: list[list[Any]] = []

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        self.inputs.append(list(inputs))
        return super().encode([text_of(item) for item in inputs], normalise=normalise, max_length=max_length)


def text_of(item: Any) -> str:
    return item if isinstance(item, str) else " / ".join(turn.text for turn in item)


def held(
    count: int = 150, length: int = 5, answers: Sequence[str] = ("Yes", "yes ", "thank you", "bye")
) -> ConversationData:
    """Dialogues of questions that differ and answers that do not."""

    def dialogue(number: int) -> tuple[Turn, ...]:
        return tuple(
            Turn("system", answers[(number + place) % len(answers)])
            if place % 2
            else Turn("user", f"question {number} {place}")
            for place in range(length)
        )

    return ConversationData("toy", tuple(dialogue(number) for number in range(count)))


def metric_values(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], float]:
    assert len({outcome.key for outcome in outcomes}) == len(outcomes)
    return {(outcome.setting, outcome.metric): outcome.row().value for outcome in outcomes}


def test_equals_plain_numpy() -> None:
    data, encoder = held(), ConversationEncoder()
    actual = metric_values(isotropy(encoder, data))
    sizes = {"utterances": 150 * 3 + 3, "contexts of 1 turn": 150 * 2 + 3, "contexts of 3 turns": 300}
    answers = frequent_answers(context.answer for context in find_contexts(data.dialogues, 1))
    assert len(actual) == 2 + 4 + 4
    for (setting, size), inputs in zip(sizes.items(), encoder.inputs, strict=True):
        sampled = [text_of(item) for item in inputs[: size // 2 * 2]]
        assert len({normalise_text(text) for text in sampled}) == len(sampled)
        units = np.stack([encoder.unit(text) for text in sampled])
        cosines = [one @ two for one, two in zip(units[::2], units[1::2], strict=True)]
        assert actual[setting, COSINE] == pytest.approx(np.mean(cosines), abs=1e-6)
        spread = np.linalg.svd(units - units.mean(0), compute_uv=False) ** 2
        assert actual[setting, SHARE] == pytest.approx(100 * spread[0] / spread.sum(), abs=1e-4)
        if setting == "utterances":
            continue
        pairs = pairs_sharing_answers(find_contexts(data.dialogues, int(setting.split()[2])), answers)
        apart = [1 - encoder.unit(text_of(one.turns)) @ encoder.unit(text_of(two.turns)) for one, two in pairs]
        assert len(apart) >= 40
        assert actual[setting, DISTANCE] == pytest.approx(np.mean(apart), abs=1e-6)
        assert actual[setting, RELATIVE] == pytest.approx(
            np.mean(apart) / (1 - np.mean(cosines[: len(apart)])), abs=1e-6
        )


def test_a_model_that_tells_nothing_apart_gains_nothing() -> None:
    actual = metric_values(isotropy(ConstantEncoder(), held()))
    for (_, metric), value in actual.items():
        expected = {COSINE: 1.0, SHARE: 100.0, DISTANCE: 0.0, RELATIVE: math.nan}[metric]
        assert value == pytest.approx(expected, nan_ok=True)


def test_utterances_are_texts_and_contexts_conversations() -> None:
    encoder = ConversationEncoder()
    isotropy(encoder, held())
    utterances, single, triple = encoder.inputs
    assert all(isinstance(item, str) for item in utterances)
    assert {len(item) for item in single} == {1} and {len(item) for item in triple} == {3}
    assert {tuple(turn.speaker for turn in item) for item in triple} == {
        ("user", "system", "user"),
        ("system", "user", "system"),
    }
    assert encoder.lengths == [128] * 3


def test_what_a_corpus_has_too_little_of() -> None:
    with pytest.raises(
        DatasetError, match=f"toy has {MIN_TEXTS - 1} different utterances, at least {MIN_TEXTS} are needed.*more dial"
    ):
        isotropy(ConversationEncoder(), held(MIN_TEXTS - 1, 1))
    # single turns have no answers, pairs no contexts of three turns, and distinct answers are not frequent
    assert {key[0] for key in metric_values(isotropy(ConversationEncoder(), held(MIN_TEXTS, 1)))} == {"utterances"}
    assert {key[0] for key in metric_values(isotropy(ConversationEncoder(), held(150, 2)))} == {
        "utterances",
        "contexts of 1 turn",
    }
    rare = held(150, 4, [f"answer {number}" for number in range(1000)])
    assert {key[1] for key in metric_values(isotropy(ConversationEncoder(), rare))} == {COSINE, SHARE}


@given(DIALOGUES, st.integers(1, 4))
def test_contexts_are_all_windows_before_a_turn(dialogues: list[tuple[Turn, ...]], window: int) -> None:
    expected = [
        AnsweredContext(
            tuple(turns[end - window : end]),
            tuple(turn.text.strip().lower() for turn in turns[end - window : end]),
            turns[end].text.strip().lower(),
            number,
        )
        for number, turns in enumerate(dialogues)
        for end in range(len(turns))
        if end >= window
    ]
    assert find_contexts(dialogues, window) == expected


def test_frequent_answers() -> None:
    # ten at least, though one per cent is fewer; five occurrences at least
    counts = {f"answer {number:02}": 5 + number % 2 for number in range(12)} | {"rare": 4}
    many = [text for text, count in counts.items() for _ in range(count)]
    odd = [f"answer {number:02}" for number in range(1, 12, 2)]
    assert frequent_answers(many) == [*odd, "answer 00", "answer 02", "answer 04", "answer 06"]
    assert frequent_answers(["yes"] * 5 + ["no"] * 4) == ["yes"]
    assert frequent_answers([]) == []
    # one per cent of 2,000 distinct ones
    assert (
        frequent_answers([str(number) for number in range(2000) for _ in range(5)])
        == sorted(map(str, range(2000)))[:20]
    )


@given(DIALOGUES, st.integers(1, 3), st.integers(0, 5))
def test_who_is_paired(dialogues: list[tuple[Turn, ...]], window: int, seed: int) -> None:
    actual = find_contexts(dialogues, window)
    frequent = ["yes", "a", "b"]
    pairs = pairs_sharing_answers(actual, frequent, seed)
    assert pairs == pairs_sharing_answers(actual, frequent, seed)
    for one, two in pairs:
        assert one.answer == two.answer and one.answer in frequent
        assert one.dialogue != two.dialogue and one.texts != two.texts
        assert one in actual and two in actual
    for answer in frequent:
        of_answer = [context for pair in pairs if pair[0].answer == answer for context in pair]
        assert (
            len({context.dialogue for context in of_answer})
            == len({context.texts for context in of_answer})
            == len(of_answer)
        )
        left = [
            context
            for context in actual
            if context.answer == answer
            and context.dialogue not in {other.dialogue for other in of_answer}
            and context.texts not in {other.texts for other in of_answer}
        ]
        # whoever is left is one alone, or has the dialogue or the text of that one
        assert not left or any(
            all(one.dialogue == two.dialogue or one.texts == two.texts for two in left) for one in left
        )


def test_no_answer_makes_up_all_pairs() -> None:
    def context(number: int, answer: str) -> AnsweredContext:
        return AnsweredContext((Turn("user", f"question {number}"),), (f"question {number}",), answer, number)

    actual = [context(number, "yes") for number in range(1000)] + [
        context(number, "no") for number in range(1000, 1007)
    ]
    pairs = pairs_sharing_answers(actual, ["yes", "no"])
    assert Counter(one.answer for one, _ in pairs) == {"yes": 20, "no": 3}
    # they take turns, so that any beginning has about as many of each
    assert [one.answer for one, _ in pairs[:7]] == ["yes", "no"] * 3 + ["yes"]


def test_a_sample_world_is_measured_by_the_command(sample_world: Callable[[int], Path]) -> None:
    encoder = RandomEncoder()
    results = evaluate(lambda texts: encoder.encode(texts), sample_world(1_500), tasks=["geometry"], name="drawn")
    assert results.facts["left out"] == {}
    assert {(row.dataset, row.setting) for row in results.rows} == {
        ("sample", setting)
        for setting in ("test utterances", "utterances", "contexts of 1 turn", "contexts of 3 turns")
    }
    measured = [row for row in results.rows if row.setting != "test utterances"]
    assert Counter(row.metric for row in measured) == {COSINE: 3, SHARE: 3, DISTANCE: 2, RELATIVE: 2}
    for row in measured:
        # random vectors know no corpus: no direction, and answers do not matter
        expected, tolerance = {COSINE: (0, 0.1), SHARE: (100 / 6, 4), DISTANCE: (1, 0.2), RELATIVE: (1, 0.2)}[
            row.metric
        ]
        assert row.value == pytest.approx(expected, abs=tolerance), row
