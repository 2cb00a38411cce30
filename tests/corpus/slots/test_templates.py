"""Templates against what they came from, and the entity book against a plain count."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.annotated_turns import annotate
from tests.helpers.stores import write_store
from tests.helpers.strategies import NAMES, TEXTS, corpora, turns
from turnwise import Dialogue, Slot, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.slots.templates import (
    EntityBook,
    Template,
    TemplateTable,
    non_overlapping_slots,
    open_training_split,
)


def annotated(text: str, *slots: tuple[str, str], intent: str | None = None, speaker: str = "user") -> Turn:
    return replace(annotate(text, *slots, speaker=speaker), intent=intent)


def dialogue(number: int, *dialogue_turns: Turn, split: str | None = "train") -> Dialogue:
    return Dialogue(str(number), dialogue_turns, "made-up", split)


def test_every_value_is_replaced() -> None:
    turn = annotated("wake me at seven in the loft", ("room", "the loft"), ("time", "seven"))
    assert Template.from_turn(turn).text() == "wake me at {SLOT} in {SLOT}"
    assert Template.from_turn(turn).text(names=True) == "wake me at {time} in {room}"
    assert Template.from_turn(annotated("good night")).text() == "good night"
    assert Template.from_turn(annotated("seven", ("time", "seven"))).text() == "{SLOT}"


@given(turns())
def test_template_filled_with_its_own_values_is_the_utterance(turn: Turn) -> None:
    """`turns` draws texts with any characters and slots that may overlap."""
    slots = non_overlapping_slots(turn)
    template = Template.from_turn(turn)
    text, filled_slots = template.fill([slot.value for slot in slots])
    assert (text, filled_slots) == (turn.text, slots)
    assert set(slots) <= set(turn.slots)
    assert bool(slots) == bool(turn.slots)
    assert len(template.text()) == len(turn.text) + sum(len("{SLOT}") - len(slot.value) for slot in slots)


@given(st.lists(st.text("ab {}%\\", max_size=5), min_size=1, max_size=5), st.data())
def test_slots_have_the_offsets_of_the_values(words: list[str], data: st.DataObject) -> None:
    """Braces, empty pieces between slots and values that look like marks change nothing."""
    size = len(words) - 1
    names = data.draw(st.lists(NAMES, min_size=size, max_size=size))
    values = data.draw(st.lists(st.sampled_from(["{SLOT}", "{a}", "x", "}{"]) | TEXTS, min_size=size, max_size=size))
    template = Template(tuple(words), tuple(names))
    text, slots = template.fill(values)
    assert [(slot.name, slot.value) for slot in slots] == list(zip(names, values, strict=True))
    assert [text[slot.start : slot.end] for slot in slots] == values
    if text.strip():
        assert Template.from_turn(Turn("user", text, None, (), slots)) == template


def test_longest_then_earliest_of_overlapping_slots_is_taken() -> None:
    text = "from new york city hall on"
    city, hall = Slot.from_text(text, "city", 5, 18), Slot.from_text(text, "place", 14, 23)
    state = Slot.from_text(text, "state", 5, 13)
    assert non_overlapping_slots(Turn("user", text, None, (), (state, hall, city))) == (city,)
    first, second = Slot.from_text(text, "a", 0, 8), Slot.from_text(text, "b", 5, 13)
    assert non_overlapping_slots(Turn("user", text, None, (), (second, first))) == (first,)
    same = Slot.from_text(text, "town", 5, 18)
    assert non_overlapping_slots(Turn("user", text, None, (), (same, city))) == (same,)
    touching = Slot.from_text(text, "e", 0, 5), Slot.from_text(text, "f", 5, 8)
    assert non_overlapping_slots(Turn("user", text, None, (), touching)) == touching


def test_wrong_numbers_of_pieces_and_values_are_rejected() -> None:
    with pytest.raises(ValueError, match="2 pieces, not 1"):
        Template(("a",), ("b",))
    with pytest.raises(ValueError, match="as many values, got 2"):
        Template(("a", ""), ("b",)).fill(["c", "d"])


def test_forms_of_one_value_count_together_under_the_most_frequent() -> None:
    values = ["Oslo", "oslo", "oslo", "OSLO", "Rome", "rome", "bergen", "bergen", "Athens", "athens"]
    book = EntityBook.from_corpus(
        [dialogue(n, annotated(f"to {value}", ("city", value))) for n, value in enumerate(values)]
    )
    assert book.most_common("city", 9) == [("oslo", 4), ("Athens", 2), ("Rome", 2), ("bergen", 2)]
    assert book.most_common("river", 2) == []
    assert (book.counts, book.distinct_values) == ({"city": 10}, 4)


@settings(deadline=None, max_examples=25)
@given(corpora(6), st.sampled_from([None, "user", "speaker_1"]))
def test_entity_book_equals_a_simple_count(dialogues: list[Dialogue], speaker: str | None) -> None:
    book = EntityBook.from_corpus(dialogues, speaker)
    speaker_turns = [turn for each in dialogues for turn in each.turns if speaker in (None, turn.speaker)]
    counted = Counter(slot.name for turn in speaker_turns for slot in non_overlapping_slots(turn) if slot.value.strip())
    assert book.counts == counted
    assert list(book.counts) == sorted(counted, key=lambda name: (-counted[name], name))
    for name in counted:
        values = book.most_common(name, 10**6)
        assert [count for _, count in values] == sorted((count for _, count in values), reverse=True)
        assert len({value.strip().lower() for value, _ in values}) == len(values)
        assert sum(count for _, count in values) == counted[name]


def test_templates_are_counted_and_numbered_by_intent() -> None:
    corpus = [
        dialogue(
            1,
            annotated("to Oslo", ("city", "Oslo"), intent="fly"),
            annotated("to Rome", ("city", "Rome"), intent="fly"),
        ),
        dialogue(2, annotated("to Rome", ("city", "Rome"), intent="ride"), annotated("thanks"), annotated("thanks")),
        dialogue(
            3,
            annotated("to noon", ("time", "noon"), intent="fly"),
            annotated("Oslo?", ("city", "Oslo"), speaker="system"),
        ),
    ]
    table = TemplateTable.from_corpus(corpus, "user")
    assert [(use.template.text(names=True), use.intent, use.number) for use in table.with_slots()] == [
        ("to {city}", "fly", 0),
        ("to {city}", "ride", 1),
        ("to {time}", "fly", 3),
    ]
    assert (len(table), table.utterances) == (3, 6)
    assert [(template.text(names=True), count) for template, count in table.most_common(5)] == [
        ("to {city}", 3),
        ("to {time}", 1),
    ]
    assert len(TemplateTable.from_corpus(corpus)) == 4


def test_test_split_is_only_read_on_request(tmp_path: Path) -> None:
    def store(*splits: str | None) -> Path:
        folder = tmp_path / "-".join(map(str, splits))
        dialogues = (dialogue(number, annotated(f"in {split}"), split=split) for number, split in enumerate(splits))
        return write_store(folder, dialogues)

    def read(folder: Path, split: str | None = None) -> list[str | None]:
        return [each.split for each in open_training_split(folder, split)]

    assert read(store("train", "test", None)) == ["train"]
    assert read(store("train", "test"), "test") == ["test"]
    assert read(store(None, None)) == [None, None]
    with pytest.raises(CorpusError, match=r"splits test, valid but no train.*--split"):
        read(store("valid", "test", None))
    with pytest.raises(CorpusError, match="no dialogue is in split dev"):
        read(store("train"), "dev")
