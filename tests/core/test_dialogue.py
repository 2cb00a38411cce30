"""Slots, turns and dialogues reject invalid values and say why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import Dialogue, Slot, Turn
from turnwise.core.text import normalise_text


@pytest.mark.parametrize("speaker", ["", "bob", "USER", "speaker_0", "speaker_", "speaker_1 ", None, 3])
def test_unknown_speakers_are_refused(speaker: object) -> None:
    with pytest.raises(ValueError, match="unknown speaker"):
        Turn(speaker, "hello")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \t\n", "empty"),
        ("a\0b", "NUL"),
        ("half \ud83d", "lone surrogate\\) at offset 5"),
        (None, "NoneType"),
        (3, "int"),
    ],
)
def test_bad_texts_are_refused_with_the_reason(text: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Turn("user", text)  # type: ignore[arg-type]


def test_slots_must_match_the_text() -> None:
    Turn("user", "from Rome to Oslo", slots=(Slot("origin", "Rome", 5, 9),))
    with pytest.raises(ValueError, match="offsets 5:9 enclose 'Rome', not 'Oslo'"):
        Turn("user", "from Rome to Oslo", slots=(Slot("origin", "Oslo", 5, 9),))
    with pytest.raises(ValueError, match="outside the text of 17 characters"):
        Slot.from_text("from Rome to Oslo", "city", 13, 18)
    with pytest.raises(ValueError, match="enclose no text"):
        Slot("city", "", 3, 3)
    with pytest.raises(ValueError, match="name"):
        Slot("", "Rome", 5, 9)


@pytest.mark.parametrize(("identity", "turns", "reason"), [("", (Turn("user", "hi"),), "id"), ("1", (), "no turns")])
def test_a_dialogue_needs_an_id_and_turns(identity: str, turns: tuple[Turn, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Dialogue(identity, turns)


@given(st.text(), st.text(" \t\n\u00a0\u3000"), st.text(" \t\n\u00a0\u3000"))
def test_the_same_text_is_the_same_however_it_is_framed(text: str, before: str, after: str) -> None:
    plain = normalise_text(text)
    assert normalise_text(plain) == plain
    assert normalise_text(before + text + after) == plain
    assert plain == text.lower().strip()
