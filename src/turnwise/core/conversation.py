"""Conversations in the forms in which people have them: turns with or without their speakers, or texts alone.

Models that mark who speaks need to be told, and many files of contexts and responses do not say it. Speakers are then taken to
alternate, such that a response is the system's: the newest turn of its context is the user's. To models that only separate turns
this makes no difference.
"""

from collections.abc import Sequence

from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn

#: A conversation, newest turn last.
Conversation = Dialogue | Sequence[Turn] | Sequence[str]

#: What an encoder is given: turns, or a text where there is no word that anybody could have said.
Said = tuple[Turn, ...] | str


def conversation(context: Sequence[str]) -> Said:
    """A context, newest turn last; turns without a word are left out, as nobody can have said them."""
    said = [text for text in context if text.strip()]
    return tuple(Turn(USER if (len(said) - place) % 2 else SYSTEM, text) for place, text in enumerate(said)) or ""


def reply(text: str) -> Said:
    """A candidate for what the system says next."""
    return (Turn(SYSTEM, text),) if text.strip() else text


def texts_of(said: Conversation) -> list[str]:
    """The texts of a conversation's turns.

    Raises:
        ValueError: if it is a single text, or holds no turn.
        TypeError: if a turn is neither a text nor a Turn.
    """
    if isinstance(said, str):
        raise ValueError(
            "a conversation is a dialogue or a list of turns, not a single text: give a single turn as [text]"
        )
    turns = said.turns if isinstance(said, Dialogue) else said
    if not len(turns):
        raise ValueError("a conversation needs a turn at least")
    texts = [turn.text if isinstance(turn, Turn) else turn for turn in turns]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"a turn is a string or a Turn, not {type(text).__name__}")
    return texts


def turns_of(said: Conversation) -> tuple[Turn, ...]:
    """Return the turns of a conversation; of bare texts the speakers alternate and the newest is the user's.

    Raises:
        ValueError: if it is a single text, or has no turn.
        TypeError: if a turn is neither a text nor a Turn.
    """
    texts = texts_of(said)
    turns = [turn for turn in (said.turns if isinstance(said, Dialogue) else said) if isinstance(turn, Turn)]
    return tuple(turns) if len(turns) == len(texts) else conversation(texts) or ()  # type: ignore[return-value]
