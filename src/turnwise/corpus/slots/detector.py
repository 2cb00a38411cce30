"""What a detector is: it finds slots in a text that nobody annotated."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from turnwise.core.dialogue import Slot
from turnwise.core.errors import TurnwiseError


class DetectorError(TurnwiseError):
    """A detector cannot be made or loaded; the message says what is missing and how to get it."""


class Detector(Protocol):
    """Finds slots in texts.

    A detector can be written as JSON and made again from it (`kinds.detector_from`): templates of new texts are like those of old
    ones only if the same detector made both.
    """

    def find(self, text: str) -> tuple[Slot, ...]:
        """The slots of a text: from left to right, without overlaps."""
        ...

    def find_all(self, texts: Iterable[str]) -> Iterator[tuple[Slot, ...]]:
        """The slots of every text, in the same order; a stream."""
        return map(self.find, texts)

    def to_json(self) -> dict[str, Any]:
        """What makes the same detector again; its `kind` says which one it is."""
        ...
