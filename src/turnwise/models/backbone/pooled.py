"""Backbones that give a vector a text at once: what `turnwise export` writes. They can be run, not trained."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import PreTrainedTokenizerBase

from turnwise.models.backbone.backbone import Backbone, Layers
from turnwise.models.backbone.source import BackboneError
from turnwise.models.backbone.stream import TokenStream


class PooledBackbone(Backbone):
    """An exported model: `vectors` instead of token states, and no weights to train.

    Attributes:
        kind: what a model's folder calls it.
        described: what messages call it.
        tokenizer: its tokenizer.
    """

    kind: ClassVar[str]
    described: ClassVar[str]

    def __init__(self, config: Any, tokenizer: PreTrainedTokenizerBase):
        torch.nn.Module.__init__(self)  # not Backbone's own, which takes a transformers model
        self.tokenizer = tokenizer
        self._config = config

    @property
    @abstractmethod
    def place(self) -> Path:
        """The folder that it was read from, for messages."""

    @abstractmethod
    def vectors(self, stream: TokenStream) -> torch.Tensor:
        """Pooled vectors (sequences, hidden), not scaled, in the order in which the sequences were given."""

    @abstractmethod
    def save(self, folder: Path, normalise: bool) -> None:
        """Writes everything but `turnwise.json` into a folder that is there."""

    @property
    def config(self) -> Any:
        """A transformers configuration."""
        return self._config

    @property
    def layers(self) -> int:
        """How many transformer layers there are."""
        return int(self.config.num_hidden_layers)

    @property
    def model(self) -> Any:  # type: ignore[override]
        """There is none: whoever asks for it wants to train it, or to change it.

        Raises:
            BackboneError: always.
        """
        raise BackboneError(
            f"{self.place} is {self.described}, which runs but cannot be trained or changed: take the one that it was exported from"
        )

    def forward(self, stream: TokenStream, layers: Layers = "last") -> torch.Tensor:
        """There are no token states.

        Raises:
            BackboneError: always.
        """
        raise BackboneError(
            f"{self.place} is {self.described}, which gives a vector a text and no token states: take the one that it was"
            " exported from"
        )
