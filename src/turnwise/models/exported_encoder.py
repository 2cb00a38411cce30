"""Exported encoders, which give one vector per text, run on the CPU without torch, and cannot be trained."""

from functools import cached_property
from pathlib import Path
from typing import Any

from turnwise.core.errors import ModelError
from turnwise.core.files import read_json, write_json
from turnwise.core.types import Vectors
from turnwise.models.backbone.inputs import Composer
from turnwise.models.backbone.onnx_graph import OnnxGraph
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import Pooling
from turnwise.models.backbone.static_table import UNLIMITED, StaticTable
from turnwise.models.backbone.tokenizer import FastTokenizer
from turnwise.models.backbone.universal import UniversalModel, UniversalTokenizer
from turnwise.models.encoder import Architecture, Encoder, EncoderConfig
from turnwise.models.identity import digest_model, vocabulary_text

#: Names of the number of transformer layers in configurations.
_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")


class ExportedEncoder(Encoder):
    """An ONNX graph, a static table or `use-multilingual`, with its tokenizer.

    `backbone` configures the model that it was exported from.
    """

    device = "cpu"
    _batch_tokens = 16_384

    def __init__(
        self,
        model: OnnxGraph | StaticTable | UniversalModel,
        tokenizer: FastTokenizer,
        settings: EncoderConfig,
        backbone: dict[str, Any],
    ):
        super().__init__(tokenizer, model.hidden, settings.max_length or UNLIMITED, settings)
        self.model = model
        self._backbone = backbone

    @cached_property
    def composer(self) -> Composer:
        """Composes the token sequences of this encoder; made once, because its tokenizer never changes."""
        return super().composer

    @property
    def architecture(self) -> Architecture:
        """The type, layers and hidden units of the model that it was exported from; a table has no layers."""
        layers = next((int(self._backbone[name]) for name in _LAYERS if name in self._backbone), 0)
        return str(self._backbone.get("model_type")), layers, self.hidden

    def digest(self, settings: str, *texts: str) -> str:
        """Return a hash of the model, of settings, what runs it, and texts."""
        return digest_model(None, self.model.digest, settings, self.model.configuration, *texts)

    def weights_fingerprint(self) -> str:
        """Return a hash of the model and its vocabulary; see `Encoder`."""
        return digest_model(None, self.model.digest, vocabulary_text(self.tokenizer))

    def _encode_batch(self, batch: RaggedTokens) -> Vectors:
        return self.model.run(batch)

    @classmethod
    def from_folder(
        cls, folder: Path, config: EncoderConfig, device: Any, pooling: Pooling | None
    ) -> "ExportedEncoder":
        """Load a folder of `turnwise export`, a static model of another tool, or that of `use-multilingual`."""
        if pooling not in (None, config.pooling):
            raise ModelError(f"{folder} has the pooling {config.pooling!r}: export the model again with {pooling!r}")
        if device is not None and str(device) != "cpu":
            raise ModelError(f"{folder} is exported and runs on the CPU only: use the model that it was made of")
        if config.exported == "universal":
            universal: Any = UniversalTokenizer(folder)
            return cls(UniversalModel(folder), universal, config, {"model_type": "universal"})
        path = folder / config.path
        backbone = read_json(path / "config.json") if (path / "config.json").is_file() else {}
        if config.exported == "static":
            tokenizer = FastTokenizer.plain(path)
            return cls(StaticTable.load(path, tokenizer), tokenizer, config, backbone)
        return cls(OnnxGraph(path, config.runtime), FastTokenizer.load(path), config, backbone)

    def _save_model(self, folder: Path) -> dict[str, Any]:
        if isinstance(self.model, UniversalModel):
            raise ModelError(f"{self.name} cannot be saved: load it by its name where it is needed")
        write_json(folder / "config.json", self._backbone)
        self.tokenizer.save_pretrained(folder)
        self.model.save(folder, self.normalise)
        settings = {"kind": self.model.kind, "pooling": self.pooling, "max_length": self.max_length}
        return {**settings, "normalise": self.normalise, "origin": self.origin}
