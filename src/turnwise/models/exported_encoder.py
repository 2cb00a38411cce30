"""Exported encoders, which give one vector per text, run on the CPU without torch, and cannot be trained."""

from functools import cached_property
from pathlib import Path
from typing import Any

from turnwise.core.errors import ModelError
from turnwise.core.files import read_json, write_json
from turnwise.core.types import Vectors
from turnwise.models.backbone.exported import ExportedModel
from turnwise.models.backbone.inputs import Composer
from turnwise.models.backbone.onnx_graph import OnnxGraph
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import Pooling
from turnwise.models.backbone.static_table import UNLIMITED, StaticTable
from turnwise.models.backbone.tokenizer import FastTokenizer
from turnwise.models.encoder import Architecture, Encoder, Precision
from turnwise.models.encoder_config import EncoderConfig, describe_export
from turnwise.models.identity import digest_model, vocabulary_text

#: Tokens of one pass.
_BATCH_TOKENS = 16_384

#: Names of the number of transformer layers in configurations.
_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")


class ExportedEncoder(Encoder):
    """An ONNX graph or a static table with its tokenizer; see `Encoder` for its other attributes.

    Attributes:
        model: the graph or the table.
        folder: where it was loaded from, for messages.
    """

    def __init__(
        self,
        model: ExportedModel,
        tokenizer: FastTokenizer,
        settings: EncoderConfig,
        backbone: dict[str, Any],
        folder: Path,
    ):
        """Combine the parts; `backbone` is the configuration of the model that it was exported from."""
        longest = UNLIMITED if settings.max_length is None else settings.max_length
        super().__init__(settings.pooling, longest, settings.normalise, settings.style)
        self.model = model
        self.folder = folder
        self._tokenizer = tokenizer
        self._backbone = backbone

    @property
    def hidden(self) -> int:
        """The size of a vector."""
        return self.model.hidden

    @property
    def tokenizer(self) -> FastTokenizer:
        """The tokenizer."""
        return self._tokenizer

    @cached_property
    def composer(self) -> Composer:
        """Composes the token sequences of this encoder; made once, because its tokenizer never changes."""
        return super().composer

    @property
    def device(self) -> str:
        """The CPU."""
        return "cpu"

    @property
    def architecture(self) -> Architecture:
        """The type, layers and hidden units of the model that it was exported from; a table has no layers."""
        layers = next((int(self._backbone[name]) for name in _LAYERS if name in self._backbone), 0)
        return str(self._backbone.get("model_type")), layers, self.hidden

    def configuration(self) -> str:
        """Return the kind of the model and what runs it; its digest covers the rest."""
        return self.model.configuration

    def digest(self, *texts: str) -> str:
        """Return a hash of the model and of texts."""
        return digest_model(None, self.model.digest, *texts)

    def weights_fingerprint(self) -> str:
        """Return a hash of the model and its vocabulary; see `Encoder`."""
        return digest_model(None, self.model.digest, vocabulary_text(self.tokenizer))

    def _encode_batch(self, batch: RaggedTokens) -> Vectors:
        return self.model.run(batch)

    @property
    def _batch_tokens(self) -> int:
        return _BATCH_TOKENS

    # ---- loading and saving

    def set_precision(self, precision: Precision) -> None:
        """Raise an error unless it is 'float32': the precision of an exported model is its own."""
        if precision != "float32":
            raise ModelError(f"{self.folder} is exported, and its precision is fixed: leave {precision!r} out")

    @classmethod
    def from_folder(
        cls, folder: Path, config: EncoderConfig, device: Any, pooling: Pooling | None
    ) -> "ExportedEncoder":
        """Load a folder of `turnwise export`, or a static one of model2vec or sentence-transformers."""
        _check_options(folder, config, device, pooling)
        path = folder / config.path
        model: ExportedModel
        if config.exported == "static":
            tokenizer = FastTokenizer.load_plain(path)
            model = StaticTable.load(path, tokenizer)
        else:
            model = OnnxGraph.load(path, config.runtime)
            tokenizer = FastTokenizer.load(path)
        backbone = read_json(path / "config.json") if (path / "config.json").is_file() else {}
        return cls(model, tokenizer, config, backbone, folder)

    def _save_model(self, folder: Path) -> dict[str, Any]:
        write_json(folder / "config.json", self._backbone)
        self.tokenizer.save_pretrained(folder)
        self.model.save(folder, self.normalise)
        settings = {"kind": self.model.kind, "pooling": self.pooling, "max_length": self.max_length}
        return {**settings, "normalise": self.normalise, "origin": self.origin}


def _check_options(folder: Path, config: EncoderConfig, device: Any, pooling: Pooling | None) -> None:
    """Make sure that a pooling and a device fit an exported model."""
    if pooling not in (None, config.pooling):
        if config.exported == "static":
            raise ModelError(f"{folder} is a table of token vectors, whose pooling is 'mean': leave {pooling!r} out")
        raise ModelError(
            f"{folder} was exported with the pooling {config.pooling!r}, which is part of its graph: export the "
            f"model again with --pooling {pooling}"
        )
    if device is not None and str(device) != "cpu":
        raise ModelError(
            f"{folder} is {describe_export(config.exported)}, which runs on the CPU only: on {device} use the model "
            "that it was made of"
        )
