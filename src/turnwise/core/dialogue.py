"""Slots, turns and dialogues, and the other forms in which conversations are passed to models.

`Slot`, `Turn` and `Dialogue` are immutable and validate themselves: invalid values raise a `ValueError` that says what
is wrong, which readers turn into a line of `rejected.jsonl`.

Models that mark who speaks need the speakers, which many files of contexts and responses do not give. Speakers are then
assumed to alternate, such that a response is the system's and the newest turn of its context is the user's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

USER = "user"
SYSTEM = "system"

#: Intents of the last turn of a dialogue whose source says whether it is a correct response to the turns before.
RIGHT_RESPONSE = "right response"
WRONG_RESPONSE = "wrong response"

#: The intent of texts that belong to none of the intents: examples of what a classifier should reject.
OUT_OF_SCOPE = "out_of_scope"

#: Participants without a role are numbered in the order in which they first speak.
_PEER = re.compile(r"speaker_[1-9][0-9]*")


def peer(number: int) -> str:
    """Return the speaker name of the `number`-th participant (from 1) of a conversation without roles."""
    return f"speaker_{number}"


def is_speaker(name: object) -> bool:
    """Return whether `name` is a valid speaker: 'user', 'system', or 'speaker_1', 'speaker_2', …."""
    return name in (USER, SYSTEM) or (isinstance(name, str) and _PEER.fullmatch(name) is not None)


@dataclass(frozen=True, slots=True)
class Slot:
    """A named value in the text of a turn: `text[start:end] == value`."""

    name: str
    value: str
    start: int
    end: int

    def __post_init__(self) -> None:
        _check_string(self.name, "the name of a slot")
        if not self.name:
            raise ValueError("a slot needs a name")
        if not 0 <= self.start < self.end:
            raise ValueError(f"slot {self.name!r}: offsets {self.start}:{self.end} enclose no text")

    @classmethod
    def from_text(cls, text: str, name: str, start: int, end: int) -> "Slot":
        """Return the slot at `text[start:end]`."""
        if not 0 <= start < end <= len(text):
            raise ValueError(f"slot {name!r}: offsets {start}:{end} lie outside the text of {len(text)} characters")
        return cls(name, text[start:end], start, end)


@dataclass(frozen=True, slots=True)
class Turn:
    """An utterance of one speaker, with the labels that its source gives it.

    Attributes:
        speaker: 'user', 'system', or 'speaker_1', 'speaker_2', … in a conversation without roles.
        text: never empty.
        intent: what the speaker wants, such as 'book_table'.
        acts: dialogue acts, such as 'inform' or 'request(date)'.
        slots: named values in the text.
    """

    speaker: str
    text: str
    intent: str | None = None
    acts: tuple[str, ...] = ()
    slots: tuple[Slot, ...] = ()

    def __post_init__(self) -> None:
        if not is_speaker(self.speaker):
            raise ValueError(
                f"unknown speaker {self.speaker!r}: must be 'user', 'system', or 'speaker_1', 'speaker_2', …"
            )
        text = self.text
        if not isinstance(text, str) or not text.isascii():  # skips the call for most texts
            _check_string(text, "the text")
        if not text or text.isspace():
            raise ValueError("the text is empty")
        if "\0" in text:
            raise ValueError("the text contains a NUL character, as binary data does")
        if self.intent is not None:
            _check_string(self.intent, "the intent")
        for act in self.acts:
            _check_string(act, "an act")
        for slot in self.slots:
            value = text[slot.start : slot.end]
            if value != slot.value:
                raise ValueError(
                    f"slot {slot.name!r}: offsets {slot.start}:{slot.end} enclose {value!r}, not {slot.value!r}"
                )


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation, its turns in order.

    Attributes:
        id: unique within a store.
        turns: at least one.
        source: the corpus or log that it comes from.
        split: 'train', 'valid' or 'test', if the source is split.
    """

    id: str
    turns: tuple[Turn, ...]
    source: str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("a dialogue needs an id")
        _check_string(self.id, "the id")
        for value, name in ((self.source, "the source"), (self.split, "the split")):
            if value is not None:
                _check_string(value, name)
        if not self.turns:
            raise ValueError("the dialogue has no turns")


def _check_string(value: object, name: str) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} is a {type(value).__name__}, not a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON escapes can contain it, but no UTF-8 file can hold it
        raise ValueError(f"{name} contains half a character (a lone surrogate) at offset {error.start}") from None


Conversation = Dialogue | Sequence[Turn] | Sequence[str]  # a conversation as users pass it, newest turn last

#: An input of an encoder: turns, or a text without any word, which cannot be a turn.
EncoderInput = tuple[Turn, ...] | str


def context_turns(texts: Sequence[str]) -> EncoderInput:
    """Return a context as turns, newest last, with alternating speakers; blank texts are left out."""
    texts = [text for text in texts if text.strip()]
    return tuple(Turn(USER if (len(texts) - place) % 2 else SYSTEM, text) for place, text in enumerate(texts)) or ""


def response_turns(text: str) -> EncoderInput:
    """Return a candidate response as a turn of the system."""
    return (Turn(SYSTEM, text),) if text.strip() else text


def turn_texts(conversation: Conversation) -> list[str]:
    """Return the texts of a conversation; raise a ValueError or a TypeError if it is none."""
    if isinstance(conversation, str):
        raise ValueError("a conversation is a dialogue or a list of turns, not a string: pass a single turn as [text]")
    turns = conversation.turns if isinstance(conversation, Dialogue) else conversation
    if not len(turns):
        raise ValueError("a conversation needs at least one turn")
    texts = [turn.text if isinstance(turn, Turn) else turn for turn in turns]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"a turn is a string or a Turn, not {type(text).__name__}")
    return texts


def as_turns(conversation: Conversation) -> tuple[Turn, ...]:
    """Return the turns of a conversation; texts get speakers as in `context_turns`. Raises as `turn_texts` does."""
    texts = turn_texts(conversation)
    given = conversation.turns if isinstance(conversation, Dialogue) else conversation
    turns = tuple(turn for turn in given if isinstance(turn, Turn))
    return turns if len(turns) == len(texts) else context_turns(texts) or ()  # type: ignore[return-value]
