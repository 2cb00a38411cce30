"""Contexts and responses whose files do not say who speaks, as turns of a conversation.

Models that mark who speaks need to be told. Speakers are taken to alternate, such that a response is the system's: the newest turn
of its context is the user's. To models that only separate turns this makes no difference.
"""

from collections.abc import Sequence

from turnwise.dialogue import SYSTEM, USER, Turn

#: What an encoder is given: turns, or a text where there is no word that anybody could have said.
Said = tuple[Turn, ...] | str


def conversation(context: Sequence[str]) -> Said:
    """A context, newest turn last; turns without a word are left out, as nobody can have said them."""
    said = [text for text in context if text.strip()]
    return tuple(Turn(USER if (len(said) - place) % 2 else SYSTEM, text) for place, text in enumerate(said)) or ""


def reply(text: str) -> Said:
    """A candidate for what the system says next."""
    return (Turn(SYSTEM, text),) if text.strip() else text
