"""How long work tells how far it is, without knowing who watches.

The library never prints. It calls a `Progress` it was given; the command line hands in one that draws a bar.
"""

from typing import Protocol


class Progress(Protocol):
    """Called now and then while something long is under way."""

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        """Says that `done` of `total` (None: unknown) units of `what` are finished; what follows a colon in it may change."""


def silent(what: str, done: int, total: int | None = None) -> None:
    """The `Progress` for those who do not want to know."""
