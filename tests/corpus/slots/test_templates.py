"""Templates against what they came from, and the entity book against a plain count."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.strategies import NAMES, TEXTS, corpora, turns
from turnwise import Dialogue, Slot, Turn
from turnwise.corpus.slots.template import Template, non_overlapping_slots
from turnwise.corpus.slots.template_table import EntityBook, TemplateTable, open_training_split
from turnwise.corpus.source import CorpusError
from turnwise.corpus.store import StoreWriter


def said(text: str, *marked: tuple[str, str], intent: str | None = None, speaker: str = "user") -> Turn:
    """A turn whose slots are (name, value), each where the value first stands."""
    slots = [Slot.from_text(text, name, text.index(value), text.index(value) + len(value)) for name, value in marked]
    return Turn(speaker, text, intent, (), tuple(slots))


def dialogue(number: int, *said_turns: Turn, split: str | None = "train") -> Dialogue:
    return Dialogue(str(number), said_turns, "made-up", split)


def test_every_value_is_replaced() -> None:
    turn = said("wake me at seven in the loft", ("room", "the loft"), ("time", "seven"))
    assert Template.from_turn(turn).text() == "wake me at {SLOT} in {SLOT}"
    assert Template.from_turn(turn).text(names=True) == "wake me at {time} in {room}"
    assert Template.from_turn(said("good night")).text() == "good night"
    assert Template.from_turn(said("seven", ("time", "seven"))).text() == "{SLOT}"


@given(turns())
def test_with_its_own_values_put_back_a_template_is_the_utterance(turn: Turn) -> None:
    """`turns` draws texts with any characters and slots that may overlap."""
    slots = non_overlapping_slots(turn)
    template = Template.from_turn(turn)
    text, found = template.fill([slot.value for slot in slots])
    assert (text, found) == (turn.text, slots)
    assert set(slots) <= set(turn.slots)
    assert bool(slots) == bool(turn.slots)
    assert len(template.text()) == len(turn.text) + sum(len("{SLOT}") - len(slot.value) for slot in slots)


@given(st.lists(st.text("ab {}%\\", max_size=5), min_size=1, max_size=5), st.data())
def test_slots_point_at_the_values_that_were_put_in(words: list[str], data: st.DataObject) -> None:
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


def test_of_slots_that_overlap_the_longer_then_the_earlier_counts() -> None:
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


def test_a_template_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="2 pieces, not 1"):
        Template(("a",), ("b",))
    with pytest.raises(ValueError, match="as many values, got 2"):
        Template(("a", ""), ("b",)).fill(["c", "d"])


def test_forms_of_one_value_count_together_under_the_most_frequent() -> None:
    values = ["Oslo", "oslo", "oslo", "OSLO", "Rome", "rome", "bergen", "bergen", "Athens", "athens"]
    book = EntityBook.from_corpus([dialogue(n, said(f"to {value}", ("city", value))) for n, value in enumerate(values)])
    assert book.most_common("city", 9) == [("oslo", 4), ("Athens", 2), ("Rome", 2), ("bergen", 2)]
    assert book.most_common("river", 2) == []
    assert (book.counts, book.distinct_values) == ({"city": 10}, 4)


@settings(deadline=None, max_examples=25)
@given(corpora(6), st.sampled_from([None, "user", "speaker_1"]))
def test_the_book_equals_a_plain_count(dialogues: list[Dialogue], speaker: str | None) -> None:
    book = EntityBook.from_corpus(dialogues, speaker)
    turns_said = [turn for found in dialogues for turn in found.turns if speaker in (None, turn.speaker)]
    counted = Counter(slot.name for turn in turns_said for slot in non_overlapping_slots(turn) if slot.value.strip())
    assert book.counts == counted
    assert list(book.counts) == sorted(counted, key=lambda name: (-counted[name], name))
    for name in counted:
        values = book.most_common(name, 10**6)
        assert [count for _, count in values] == sorted((count for _, count in values), reverse=True)
        assert len({value.strip().lower() for value, _ in values}) == len(values)
        assert sum(count for _, count in values) == counted[name]


def test_templates_are_counted_and_numbered_by_intent() -> None:
    corpus = [
        dialogue(1, said("to Oslo", ("city", "Oslo"), intent="fly"), said("to Rome", ("city", "Rome"), intent="fly")),
        dialogue(2, said("to Rome", ("city", "Rome"), intent="ride"), said("thanks"), said("thanks")),
        dialogue(3, said("to noon", ("time", "noon"), intent="fly"), said("Oslo?", ("city", "Oslo"), speaker="system")),
    ]
    table = TemplateTable.from_corpus(corpus, "user")
    assert [(use.template.text(names=True), use.intent, use.number, use.utterances) for use in table.with_slots()] == [
        ("to {city}", "fly", 0, 2),
        ("to {city}", "ride", 1, 1),
        ("to {time}", "fly", 3, 1),
    ]
    assert (len(table), table.utterances) == (3, 6)
    assert [(template.text(names=True), count) for template, count in table.most_common(5)] == [
        ("to {city}", 3),
        ("to {time}", 1),
    ]
    assert len(TemplateTable.from_corpus(corpus)) == 4


def test_a_test_split_is_never_read_unasked(tmp_path: Path) -> None:
    def store(*splits: str | None) -> Path:
        folder = tmp_path / "-".join(map(str, splits))
        with StoreWriter(folder) as writer:
            for number, split in enumerate(splits):
                writer.write(dialogue(number, said(f"in {split}"), split=split))
            writer.commit({})
        return folder

    def read(folder: Path, split: str | None = None) -> list[str | None]:
        return [found.split for found in open_training_split(folder, split)]

    assert read(store("train", "test", None)) == ["train"]
    assert read(store("train", "test"), "test") == ["test"]
    assert read(store(None, None)) == [None, None]
    with pytest.raises(CorpusError, match=r"splits test, valid but no train.*--split"):
        read(store("valid", "test", None))
    with pytest.raises(CorpusError, match="no dialogue is in split dev"):
        read(store("train"), "dev")
