"""Annotated utterances for the tests of detectors."""

import re
from collections.abc import Iterable
from pathlib import Path

from hypothesis import strategies as st

from tests.helpers.stores import write_store
from turnwise import Dialogue, Slot, Turn

#: Few words, so that values occur inside and outside slots; some contain punctuation or a space.
WORDS = st.sampled_from(
    [
        *("pizza", "Oslo", "oslo's", "new", "york", "York", "the", "of", "take-out", "out", "401k"),
        *("five", "5", "5 pm", "o’clock", "!", "İzmir"),
    ]
)
PHRASES = st.lists(WORDS, min_size=1, max_size=7).map(" ".join)
ANYTHING = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=60).filter(
    lambda text: text == "" or bool(text.strip())
)


def annotate(text: str, *marked: tuple[str, str], speaker: str = "user") -> Turn:
    """Return a turn whose slots are (name, value), each where the value first occurs."""
    slots = [Slot.from_text(text, name, text.index(value), text.index(value) + len(value)) for name, value in marked]
    return Turn(speaker, text, None, (), tuple(slots))


def as_dialogues(turns: Iterable[Turn], split: str | None = "train") -> list[Dialogue]:
    """Return each turn as a dialogue."""
    return [Dialogue(f"{split}-{number}", (turn,), "made-up", split) for number, turn in enumerate(turns)]


def annotated_store(folder: Path, dialogues: Iterable[Dialogue]) -> Path:
    return write_store(folder, dialogues, reader="made-up", licence="none of yours")


@st.composite
def annotated_turns(draw: st.DrawFn) -> Turn:
    """A phrase with up to two slots, which may overlap and mostly, but not always, hold whole words."""
    text = draw(PHRASES)
    words = [match.span() for match in re.finditer(r"\S+", text)]
    slots = []
    for _ in range(draw(st.integers(0, 2))):
        first = draw(st.integers(0, len(words) - 1))
        start, end = words[first][0], words[draw(st.integers(first, len(words) - 1))][1]
        if draw(st.integers(0, 3)) == 0:
            end = draw(st.integers(start + 1, len(text)))
        slots.append(Slot.from_text(text, draw(st.sampled_from(["city", "food", "time"])), start, end))
    return Turn("user", text, None, (), tuple(slots))


def annotated_corpora() -> st.SearchStrategy[list[Turn]]:
    return st.lists(annotated_turns(), min_size=1, max_size=8)
