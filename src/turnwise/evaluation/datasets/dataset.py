"""What is known of a data set: where it lies, whose it is, what its files hash to, and how it is read."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from turnwise.core.errors import TurnwiseError
from turnwise.core.files import sha256

Data = TypeVar("Data")


class DatasetError(TurnwiseError):
    """A data set is missing or not in the expected layout."""


@dataclass(frozen=True, slots=True)
class Dataset(Generic[Data]):
    """A data set that can be loaded.

    Attributes:
        name: its plain name.
        folder: where it lies in a folder of data sets.
        files: what is read of it, as patterns below its folder; a data set is there when each pattern finds something.
        read: from its folder to its contents.
        licence: under which its authors give it.
        home: where to get it.
        digest: what its files hashed to when its figures were taken; empty where everybody has files of their own.
        differs: how it differs from what the papers measured on; empty where it does not.
    """

    name: str
    folder: str
    files: tuple[str, ...]
    read: Callable[[Path], Data]
    licence: str
    home: str
    digest: str = ""
    differs: str = ""

    def found(self, data: Path) -> list[Path]:
        """Its files in a folder of data sets, in the order of their names; none if something is missing."""
        found = [sorted((data / self.folder).glob(pattern)) for pattern in self.files]
        return sorted({path for paths in found for path in paths}) if all(found) else []

    def present(self, data: Path) -> bool:
        """Whether a folder of data sets holds it."""
        return bool(self.found(data))

    def load(self, data: Path) -> Data:
        """Its contents.

        Raises:
            DatasetError: if it is missing or not in its authors' layout.
        """
        place = data / self.folder
        if not self.present(data):
            missing = next(pattern for pattern in self.files if not any(place.glob(pattern)))
            layout = f"{self.name} is expected in its authors' layout; get it from {self.home}"
            raise DatasetError(f"{place / missing} is not there: {layout}")
        try:
            return self.read(place)
        except (KeyError, ValueError, TypeError, IndexError, SyntaxError) as error:
            raise DatasetError(f"{place} is not in {self.name}'s layout: {error!r}") from None

    def hashed(self, data: Path) -> str:
        """The SHA-256 of its files' names and contents."""
        digest = hashlib.sha256()
        for path in self.found(data):
            digest.update(f"{path.relative_to(data / self.folder)}\0{sha256(path)}\n".encode())
        return digest.hexdigest()
