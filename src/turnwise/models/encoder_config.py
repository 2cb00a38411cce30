"""The settings of an encoder, as turnwise, model2vec, sentence-transformers or transformers write them in a folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from turnwise.core.errors import ModelError
from turnwise.core.files import read_json
from turnwise.models.backbone.inputs import TurnStyle
from turnwise.models.backbone.source import DESCRIPTION_FILE, RUNTIMES, Pooling, Runtime

#: The kinds of exported models.
ExportKind = Literal["onnx", "static"]


@dataclass(slots=True)
class EncoderConfig:
    """The settings of an encoder in a model's folder (see `Encoder`); the defaults are those of a plain backbone."""

    path: str = ""  # of the backbone, which older sentence-transformers folders keep in a subfolder
    pooling: Pooling = "mean"
    max_length: int | None = None
    normalise: bool = False
    style: TurnStyle = "separator"
    dense: str = ""  # path of the layer of the pooling 'cls-mlp'
    exported: ExportKind | None = None
    origin: str | None = None  # see `Encoder`
    runtime: Runtime = "onnxruntime"  # of an ONNX graph; not in the folder, but chosen when it is loaded

    @classmethod
    def read(cls, folder: Path) -> "EncoderConfig":
        """Read a folder of turnwise, model2vec, sentence-transformers or transformers."""
        config = cls()
        if (folder / DESCRIPTION_FILE).is_file():
            settings = read_json(folder / DESCRIPTION_FILE)
            kind = settings.get("kind")
            if kind == "reranker":
                raise ModelError(f"{folder} holds a re-ranker, not an encoder: load it with Reranker.load")
            config.style = settings["style"]
            if kind in get_args(ExportKind):
                config.exported, config.pooling = kind, settings["pooling"]
                config.max_length, config.normalise = settings["max_length"], settings["normalise"]
                config.origin = settings.get("origin")
                return config
        if (folder / "modules.json").is_file():
            for module in read_json(folder / "modules.json"):
                config._read_module(folder, module["type"], module["path"])
        return config

    def _read_module(self, folder: Path, module: str, path: str) -> None:
        kind = module.rpartition(".")[2]
        if kind == "Transformer":
            settings = folder / path / "sentence_bert_config.json"
            self.path = path
            self.max_length = read_json(settings).get("max_seq_length") if settings.is_file() else None
        elif kind == "Pooling":
            self.pooling = _read_pooling(folder, read_json(folder / path / "config.json"))
        elif kind == "Dense" and self.pooling == "cls" and _is_pooler(read_json(folder / path / "config.json")):
            self.pooling, self.dense = "cls-mlp", path
        elif kind == "StaticEmbedding":
            self.path, self.exported = path, "static"
        elif kind == "Normalize":
            self.normalise = True
        else:
            raise ModelError(f"{folder} has a module that turnwise does not support: {module}")


def _read_pooling(folder: Path, settings: dict[str, Any]) -> Pooling:
    """Return the pooling of a sentence-transformers folder, in its old or new format."""
    poolings: dict[str, Pooling] = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}
    poolings |= {"cls": "cls", "mean": "mean", "max": "max"}
    prefix = "pooling_mode_"
    names = [key.removeprefix(prefix) for key, value in settings.items() if key.startswith(prefix) and value]
    names = [settings["pooling_mode"]] if "pooling_mode" in settings else names
    if len(names) != 1 or names[0] not in poolings:
        raise ModelError(f"{folder} has a pooling that turnwise does not support: {settings}")
    return poolings[names[0]]


def _is_pooler(settings: dict[str, Any]) -> bool:
    square = settings["in_features"] == settings["out_features"]
    return bool(square and settings.get("bias", True)) and str(settings.get("activation_function", "")).endswith("Tanh")


def describe_export(kind: ExportKind | None) -> str:
    """Return the name of a kind of exported models, for messages."""
    return "a static model (a table of token vectors)" if kind == "static" else "an ONNX model"


def check_runtime(runtime: str, folder: Path, config: EncoderConfig) -> None:
    """Make sure that a runtime exists, and that the model in a folder is an ONNX graph."""
    if runtime not in RUNTIMES:
        raise ModelError(f"unknown runtime {runtime!r}: choose {' or '.join(map(repr, RUNTIMES))}")
    if config.exported == "static":
        raise ModelError(f"{folder} is {describe_export('static')}, which needs no runtime: leave {runtime!r} out")
    if config.exported is None:
        raise ModelError(
            f"{folder} is not an ONNX model, so {runtime} cannot run it: export it first (`turnwise export --format "
            "onnx-int8`), or leave the runtime out"
        )
