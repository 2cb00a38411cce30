"""What a model's folder says of an encoder besides its weights."""

from pathlib import Path
from typing import Any, Literal, get_args

from turnwise.core.files import read_json
from turnwise.corpus.slots.template import ONE_MARK, SlotMarks
from turnwise.models.backbone.compose import TurnStyle
from turnwise.models.backbone.pooling import Pooling
from turnwise.models.backbone.source import BackboneError

#: The file of it that is turnwise's own.
DESCRIPTION = "turnwise.json"

#: What that, or the way in which the folder is made, says of a model that was exported: an ONNX graph, a table of token vectors.
Exported = Literal["onnx", "static"]
EXPORTED: tuple[str, ...] = get_args(Exported)


class Saved:
    """What a folder says of an encoder besides its weights; the defaults are for a plain backbone."""

    def __init__(self) -> None:
        self.path = ""
        self.pooling: Pooling = "mean"
        self.max_length: int | None = None
        self.normalise = False
        self.style: TurnStyle = "separator"
        self.marks = ONE_MARK
        self.dense = ""
        self.exported: Exported | None = None


def read_saved(folder: Path) -> Saved:
    """What a folder says, whether `Encoder.save`, `turnwise export`, model2vec, sentence-transformers or transformers wrote it.

    Raises:
        BackboneError: if it is a re-ranker's, or has parts that turnwise does not know.
    """
    saved = Saved()
    if (folder / DESCRIPTION).is_file():
        description = read_json(folder / DESCRIPTION)
        if description.get("kind") == "reranker":
            raise BackboneError(f"{folder} is a re-ranker, and this takes an encoder; Reranker.load reads it")
        saved.style, saved.marks = description["style"], SlotMarks(tuple(description.get("slots", ())))
        if description.get("kind") in EXPORTED:
            saved.exported, saved.pooling = description["kind"], description["pooling"]
            saved.max_length, saved.normalise = description["max_length"], description["normalise"]
            return saved
    if not (folder / "modules.json").is_file():
        return saved
    for module in read_json(folder / "modules.json"):
        kind, path = module["type"].rpartition(".")[2], module["path"]
        if kind == "Transformer":
            saved.path = path
            settings = folder / path / "sentence_bert_config.json"
            saved.max_length = read_json(settings).get("max_seq_length") if settings.is_file() else None
        elif kind == "Pooling":
            saved.pooling = _pooling(folder, read_json(folder / path / "config.json"))
        elif kind == "Dense" and saved.pooling == "cls" and _is_pooler(folder / path):
            saved.pooling, saved.dense = "cls-mlp", path
        elif kind == "StaticEmbedding":
            saved.path, saved.exported = path, "static"
        elif kind == "Normalize":
            saved.normalise = True
        else:
            raise BackboneError(f"{folder} has a module that turnwise does not know: {module['type']}")
    return saved


def _pooling(folder: Path, config: dict[str, Any]) -> Pooling:
    """The pooling that a sentence-transformers folder names, in the old way or the new."""
    old = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
    asked = [old.get(key, key) for key, value in config.items() if key.startswith("pooling_mode_") and value]
    named = [config["pooling_mode"]] if "pooling_mode" in config else asked
    if named == ["cls"]:
        return "cls"
    if named == ["mean"]:
        return "mean"
    if named == ["max"]:
        return "max"
    raise BackboneError(f"{folder} pools in a way that turnwise does not know: {config}")


def _is_pooler(folder: Path) -> bool:
    config = read_json(folder / "config.json")
    square = config["in_features"] == config["out_features"]
    return bool(square and config.get("bias", True)) and str(config.get("activation_function", "")).endswith("Tanh")
