"""The base class of all errors that a user can act on, and suggestions for mistyped names."""

import difflib
from collections.abc import Iterable


class TurnwiseError(Exception):
    """An operation failed; the message says what is wrong, where, and what to do. The command line prints only it."""

    #: The exit status of the command line.
    exit_status = 1


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the known name that is closest to a mistyped one, such as ' Did you mean dse?', or ''."""
    spellings = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), spellings, n=1, cutoff=0.6)
    return f" Did you mean {spellings[close[0]]}?" if close else ""
