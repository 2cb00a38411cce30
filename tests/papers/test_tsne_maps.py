"""t-SNE maps: what is shown, in which shapes and colours, and that a seed determines the plot."""

from collections import Counter
from xml.etree import ElementTree

import pytest

from tests.helpers.encoders import RandomEncoder
from tests.helpers.svg import groups, shapes
from turnwise.core.errors import DatasetError
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance, OutOfScopeTexts
from turnwise.papers.plots import answer_map, intent_map, two_intents_map


def data_of(test: list[IntentUtterance], outside: int = 0) -> IntentData:
    texts = tuple(f"outside {number}" for number in range(outside))
    return IntentData("toy", test=tuple(test), out_of_scope=OutOfScopeTexts(test=texts))


def marks(svg: str) -> list[Counter[tuple[str, str]]]:
    """(shape, colour) of the points, cloud by cloud."""
    return [Counter(shapes(cloud)) for cloud in groups(ElementTree.fromstring(svg), "cloud-")]


def test_intents_in_colour_and_out_of_scope_as_black_rings() -> None:
    data = data_of([IntentUtterance(f"text {number}", f"intent {number % 5}") for number in range(40)], outside=100)
    encoder = RandomEncoder()
    svg = intent_map(encoder, data, intents=3, model="a model")
    assert svg == intent_map(RandomEncoder(), data, intents=3, model="a model")
    outside, *intents = marks(svg)
    assert outside == {("ring", "#222222"): 24}
    assert [sum(intent.values()) for intent in intents] == [8, 8, 8]
    assert len({colour for intent in intents for _, colour in intent}) == 3
    assert "toy: 3 intents (a model)" in svg
    assert len(encoder.encoded) == 48
    assert len(marks(intent_map(RandomEncoder(), data, out_of_scope=False))) == 5


def test_questions_and_answers() -> None:
    pairs = [(f"question {number}", f"answer {number}") for number in range(50)]
    encoder = RandomEncoder()
    others, *shown = marks(answer_map(encoder, pairs, "toy", others=30))
    assert others == {("ring", "#222222"): 30}
    assert [list(cloud) for cloud in shown[::2]] == [[("circle", next(iter(cloud))[1])] for cloud in shown[1::2]]
    assert {shape for cloud in shown[1::2] for shape, _ in cloud} == {"triangle"}
    assert len({colour for cloud in shown for _, colour in cloud}) == 12
    question_numbers = {text.split()[1] for text in encoder.encoded if text.startswith("question")}
    assert len(question_numbers) == 12
    assert question_numbers <= {text.split()[1] for text in encoder.encoded if text.startswith("answer")}
    with pytest.raises(DatasetError, match="toy has 50 pairs, 112 are needed"):
        answer_map(RandomEncoder(), pairs, "toy")


def test_two_intents() -> None:
    data = data_of(
        [IntentUtterance(f"text {number}", ("PlayMusic", "AddToPlaylist", "other")[number % 3]) for number in range(60)]
    )
    assert marks(two_intents_map(RandomEncoder(), data)) == [{("circle", "#b3261e"): 20}, {("circle", "#1f4e79"): 20}]
    with pytest.raises(DatasetError, match="no test utterance of intent 'nothing'"):
        two_intents_map(RandomEncoder(), data, ("other", "nothing"))


def test_too_little_to_show_says_so() -> None:
    few = data_of(
        [IntentUtterance(f"text {number}", "PlayMusic" if number % 2 else "AddToPlaylist") for number in range(30)]
    )
    with pytest.raises(DatasetError, match="toy has 30 texts to show"):
        two_intents_map(RandomEncoder(), few)
    with pytest.raises(DatasetError, match="no out-of-scope utterances"):
        intent_map(RandomEncoder(), few)
