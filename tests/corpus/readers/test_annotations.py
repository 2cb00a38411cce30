"""Tests how slots are located from inline annotations and tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.corpus.readers.shared.annotations import parse_inline_slots, parse_slot_tags, slot_spans

WORD = st.text("abcdé五点", min_size=1, max_size=4)
NAME = st.sampled_from(["time", "pet.name", "list_name"])
SPACE = st.sampled_from([" ", "  ", "\t", "\u3000"])


@st.composite
def utterances(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, str, int]]]:
    """A text, its annotation with other white space, and the slots' names, values and places."""
    text = annotation = ""
    slots = []
    for _ in range(draw(st.integers(1, 6))):
        value = draw(SPACE).join(draw(st.lists(WORD, min_size=1, max_size=3)))
        text += draw(st.sampled_from(["", " ", "  "]))
        if draw(st.booleans()):
            name = draw(NAME)
            slots.append((name, value, len(text)))
            annotation += f"{draw(SPACE)}[{draw(SPACE)}{name}{draw(SPACE)}:{value}{draw(SPACE)}]"
        else:
            annotation += draw(SPACE) + value
        text += value
    return text, annotation, slots


@given(utterances())
def test_inline_slots_are_located_despite_white_space(made: tuple):
    text, annotation, slots = made
    spans = slot_spans(parse_inline_slots(annotation), text)
    assert [(name, text[start:end], start) for name, start, end in spans] == slots


@given(st.lists(st.tuples(WORD, st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"])), min_size=1, max_size=8), SPACE)
def test_slot_tags(tagged: list, space: str):
    """A word has the slot of its tag; a slot starts at B, or where the name changes."""
    words = [word for word, _ in tagged]
    text = space.join(words)
    spans = slot_spans(parse_slot_tags(words, [tag for _, tag in tagged]), text)
    position, names = 0, []
    for word in words:
        names.append(next((name for name, start, end in spans if start <= position < end), ""))
        position += len(word) + len(space)
    assert names == [tag[2:] for _, tag in tagged]
    before = ["", *names]
    assert len(spans) == sum(
        tag[0] == "B" or (tag[0] == "I" and tag[2:] != last) for (_, tag), last in zip(tagged, before, strict=False)
    )


def test_unclosed_annotation_is_rejected_quickly():
    """A pattern that backtracks over the white space would need hours."""
    with pytest.raises(ValueError, match="slots must be marked as"):
        parse_inline_slots("[" + " " * 200_000 + "!")
