"""What exported models have in common: they return one vector per text, run on the CPU, and cannot be trained.

They need no torch and no transformers, but NumPy and the tokenizers library; see `onnx_graph` and `static_table`.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from turnwise.core.types import Vectors
from turnwise.models.backbone.ragged import RaggedTokens


class ExportedModel(ABC):
    """A function from token ids to vectors; copies may share it, because it never changes."""

    kind: ClassVar[str]  # its name in `turnwise.json`
    hidden: int  # the size of a vector
    digest: str  # equal for equal models

    @property
    def configuration(self) -> str:
        """What determines vectors besides the digest."""
        return self.kind

    @abstractmethod
    def run(self, sequences: RaggedTokens) -> Vectors:
        """Return vectors (sequences, hidden), not normalised, of sequences that have at least one token each."""

    @abstractmethod
    def save(self, folder: Path, normalise: bool) -> None:
        """Write the model after `config.json` and the tokenizer."""
