"""Progress of long operations: the library reports to a callback and never prints."""

from typing import Protocol


class Progress(Protocol):
    """A callback that is called repeatedly during a long operation; the command line passes one that draws a bar."""

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        """Report that `done` of `total` units (None: unknown) of `what` are finished; text after a colon may change."""


def silent(what: str, done: int, total: int | None = None) -> None:
    """Report nothing."""
