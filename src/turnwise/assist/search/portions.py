"""An encoder that keeps what it has made: work that was stopped goes on where it was."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.types import SupportsEncode

#: What an encoder is known by: its vector of this text, rounded as far as machines agree.
_PROBE, _DECIMALS = "What can I do for you?", 3

_KEPT, _WRITING = ".vectors-", ".writing-vectors"


class KeptPortions:
    """Keeps the vectors of every list of texts that it encodes in a folder, until it is told to clear that.

    Attributes:
        encoder: what encodes.
        folder: where vectors are kept, a file a list.
    """

    def __init__(self, encoder: SupportsEncode, folder: Path):
        self.encoder = encoder
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._encoder_key = np.round(encoder.encode([_PROBE], normalise=True).astype(np.float64), _DECIMALS).tolist()

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        """The encoder's vectors of texts, read where they are kept.

        Args:
            inputs: the texts.
            normalise: as the encoder has it.
            max_length: as the encoder has it.
        """
        known = json.dumps([self._encoder_key, normalise, max_length, list(inputs)])
        path = self.folder / f"{_KEPT}{hashlib.sha256(known.encode()).hexdigest()[:24]}.npy"
        if path.is_file():
            kept: npt.NDArray[np.float32] = np.load(path, allow_pickle=False)
            return kept
        vectors = self.encoder.encode(inputs, normalise=normalise, max_length=max_length)
        unfinished = self.folder / _WRITING
        with unfinished.open("wb") as file:
            np.save(file, vectors, allow_pickle=False)
        unfinished.replace(path)
        return vectors

    def clear(self) -> None:
        """Removes what is kept."""
        for path in (*self.folder.glob(f"{_KEPT}*.npy"), self.folder / _WRITING):
            path.unlink(missing_ok=True)
