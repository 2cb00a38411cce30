"""The words everything speaks: slots, turns and dialogues.

All three are frozen and check themselves when they are made, so whoever holds one may trust it. What is refused is refused
with a `ValueError` that says what is wrong and where; readers turn that into a line of `rejected.jsonl`.
"""

import re
from dataclasses import dataclass

USER = "user"
SYSTEM = "system"

#: The intent of a dialogue's last turn where its source says whether that answers what was said before.
RIGHT_RESPONSE = "right response"
WRONG_RESPONSE = "wrong response"

#: People who talk as equals have no role: they are numbered in the order in which they first speak.
PEER = re.compile(r"speaker_[1-9][0-9]*")


def peer(number: int) -> str:
    """The speaker name of the `number`-th (from 1) participant of a conversation without roles."""
    return f"speaker_{number}"


def is_speaker(name: object) -> bool:
    """Whether `name` may speak a turn: 'user', 'system', or 'speaker_1', 'speaker_2', …."""
    return name in (USER, SYSTEM) or (isinstance(name, str) and PEER.fullmatch(name) is not None)


@dataclass(frozen=True, slots=True)
class Slot:
    """A named value in a turn's text: `text[start:end] == value`."""

    name: str
    value: str
    start: int
    end: int

    def __post_init__(self) -> None:
        _check_word(self.name, "a slot's name")
        if not self.name:
            raise ValueError("a slot needs a name")
        if not 0 <= self.start < self.end:
            raise ValueError(f"slot {self.name!r}: offsets {self.start}:{self.end} do not enclose any text")

    @classmethod
    def of(cls, text: str, name: str, start: int, end: int) -> "Slot":
        """The slot that `text[start:end]` is; refused where the offsets lie outside the text."""
        if not 0 <= start < end <= len(text):
            raise ValueError(f"slot {name!r}: offsets {start}:{end} lie outside the text of {len(text)} characters")
        return cls(name, text[start:end], start, end)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one speaker says at once, with the labels that its source gives it.

    Attributes:
        speaker: 'user', 'system', or 'speaker_1', 'speaker_2', … in a conversation without roles.
        text: what was said; never empty.
        intent: what the speaker wants, where the source says so.
        acts: dialogue acts, such as 'inform' or 'request(date)'.
        slots: values in the text, by character offsets.
    """

    speaker: str
    text: str
    intent: str | None = None
    acts: tuple[str, ...] = ()
    slots: tuple[Slot, ...] = ()

    def __post_init__(self) -> None:
        if not is_speaker(self.speaker):
            raise ValueError(
                f"unknown speaker {self.speaker!r}: a turn is spoken by 'user', 'system', or 'speaker_1', 'speaker_2', …"
            )
        text = self.text
        if not isinstance(text, str):
            raise ValueError(f"the text is a {type(text).__name__}, not a string")
        if not text or text.isspace():
            raise ValueError("the text is empty")
        if "\0" in text:
            raise ValueError("the text holds a NUL character, as binary data does")
        if not text.isascii():
            _refuse_lone_surrogates(text)
        if self.intent is not None:
            _check_word(self.intent, "the intent")
        for act in self.acts:
            _check_word(act, "an act")
        for slot in self.slots:
            if text[slot.start : slot.end] != slot.value:
                raise ValueError(
                    f"slot {slot.name!r}: offsets {slot.start}:{slot.end} hold {text[slot.start : slot.end]!r}, not {slot.value!r}"
                )


def _refuse_lone_surrogates(text: str, what: str = "the text") -> None:
    """JSON escapes can smuggle in half a character (a lone surrogate), which no UTF-8 file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} holds half a character (a lone surrogate) at offset {error.start}") from None


def _check_word(word: object, what: str) -> None:
    if not isinstance(word, str):
        raise ValueError(f"{what} is a {type(word).__name__}, not a string")
    if not word.isascii():
        _refuse_lone_surrogates(word, what)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One conversation, its turns in the order in which they were spoken.

    Attributes:
        id: unique within a store.
        turns: at least one.
        source: the corpus or log that it comes from.
        split: 'train', 'valid', 'test', where the source is split.
    """

    id: str
    turns: tuple[Turn, ...]
    source: str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        if not self.id or not isinstance(self.id, str):
            raise ValueError("a dialogue needs an id")
        _check_word(self.id, "the id")
        for word, what in ((self.source, "the source"), (self.split, "the split")):
            if word is not None:
                _check_word(word, what)
        if not self.turns:
            raise ValueError("the dialogue has no turns")


def same_text(text: str) -> str:
    """A text as utterances are told apart and counted: case and surrounding space make no difference (as in WMDC's Table 5)."""
    return text.strip().lower()
