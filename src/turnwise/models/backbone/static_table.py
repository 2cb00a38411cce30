"""Static tables: one vector per token; a text's vector is the mean of its tokens'.

The folder is model2vec's, and also readable by sentence-transformers. A table that was fitted to texts has two layers
over the mean, and is readable by sentence-transformers only.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from turnwise.core.files import write_json, write_tensors
from turnwise.core.types import Vectors
from turnwise.models.backbone.exported import ExportedModel, ExportedTokenizer, first_line
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import STATIC, BackboneError, write_dense, write_modules

#: The file of a table in a model's folder.
STATIC_FILE = "model.safetensors"

#: The folders of a static model with layers; sentence-transformers names those of the layers so.
_TABLE_FOLDER = "table"
_LAYER_FOLDERS = ("1_Dense", "2_Dense")

#: Rows of a table that are hashed at a time.
_DIGEST_ROWS = 4_096

#: The maximum length of a text in a static model: no limit.
UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class MeanLayers:
    """Two layers without biases, whose output is added to the mean. A vector of zeros stays as it is."""

    inner: Vectors  # (units, size)
    outer: Vectors  # (size, units)

    def __call__(self, means: Vectors) -> Vectors:
        """(texts, size) → the same shape."""
        hidden = means @ self.inner.T
        changed: Vectors = np.maximum(hidden, 0, out=hidden) @ self.outer.T
        changed += means
        return changed

    @classmethod
    def load(cls, folder: Path) -> "MeanLayers":
        """Load the layers of a model's folder."""
        inner, outer = (
            _load_tensors(folder / name / STATIC_FILE).get("linear.weight", np.empty((0, 0))) for name in _LAYER_FOLDERS
        )
        size = len(outer)
        identity = _identity(size)
        parts = (inner[: 2 * size], outer.T[: 2 * size])
        if inner.shape != outer.T.shape or not all(np.array_equal(part, identity) for part in parts):
            raise BackboneError(f"{folder} has layers that turnwise did not write: export it again")
        return cls(inner[2 * size :], np.ascontiguousarray(outer[:, 2 * size :]))

    def save(self, folder: Path) -> None:
        """Write the layers as modules of sentence-transformers.

        They cannot be added to their input there. So the mean also passes through the layers: x = relu(x) - relu(-x).
        """
        identity = _identity(len(self.outer))
        write_dense(folder / _LAYER_FOLDERS[0], {"weight": np.vstack([identity, self.inner])}, "activation.ReLU")
        write_dense(folder / _LAYER_FOLDERS[1], {"weight": np.hstack([identity.T, self.outer])}, "linear.Identity")


def _identity(size: int) -> Vectors:
    """Return the weights (2 * size, size) of units for each dimension and its negative."""
    return np.vstack([np.eye(size, dtype=np.float32), -np.eye(size, dtype=np.float32)])


class StaticTable(ExportedModel):
    """A table of token vectors, possibly with layers over the mean; the unknown token does not count."""

    kind = "static"

    def __init__(self, table: Vectors, tokenizer: ExportedTokenizer, folder: Path, layers: MeanLayers | None = None):
        """Use a table (tokens, size), whose rows are the ids of a tokenizer; `folder` is for messages."""
        rows, self.hidden = table.shape
        if rows != len(tokenizer):
            raise BackboneError(
                f"{folder} has {rows} token vectors, but its tokenizer {len(tokenizer)} tokens: export it again"
            )
        self._table = table
        self._layers = layers
        self._unknown = tokenizer.unk_token_id
        # where model2vec does not look for a table, because it would leave the layers out
        self.subfolder = "" if layers is None else _TABLE_FOLDER

    @cached_property
    def digest(self) -> str:  # type: ignore[override]
        """A hash of table and layers.

        The table is hashed as if it had zeros for the unknown token and a last column of 0 for it, 1 for others.
        """
        digest = hashlib.sha256()
        for first in range(0, len(self._table), _DIGEST_ROWS):
            rows = self._table[first : first + _DIGEST_ROWS]
            rows = np.hstack([rows, np.ones((len(rows), 1), np.float32)])
            if self._unknown is not None and first <= self._unknown < first + len(rows):
                rows[self._unknown - first] *= 0
            digest.update(rows.tobytes())
        if self._layers is not None:
            digest.update(self._layers.inner.tobytes() + self._layers.outer.tobytes())
        return digest.hexdigest()

    @classmethod
    def load(cls, folder: Path, tokenizer: ExportedTokenizer, layers: MeanLayers | None = None) -> "StaticTable":
        """Load the table of a folder that turnwise, model2vec or sentence-transformers wrote."""
        return cls(_read_table(folder, _load_tensors(folder / STATIC_FILE)), tokenizer, folder, layers)

    def run(self, sequences: RaggedTokens) -> Vectors:
        """Return vectors (sequences, hidden), not normalised."""
        known = sequences.without(self._unknown)
        # add the first tokens of all sequences, then the second ones, and so on: the sums stay in the processor's cache
        order = np.argsort(-known.lengths, kind="stable")
        starts, lengths = known.starts[order], known.lengths[order]
        sums = np.zeros((len(known), self.hidden), np.float32)
        for position in range(int(lengths[0])):
            longer = int(np.searchsorted(-lengths, -position))
            sums[:longer] += self._table[known.tokens[starts[:longer] + position]]
        vectors = np.empty_like(sums)
        vectors[order] = sums / np.maximum(lengths, 1)[:, None].astype(np.float32)
        return vectors if self._layers is None else self._layers(vectors)

    def save(self, folder: Path, normalise: bool) -> dict[str, Any]:
        """Write the table, and the files that model2vec and sentence-transformers need."""
        path = folder / self.subfolder
        unfinished = path / f".writing-{STATIC_FILE}"
        table = self._table.copy()
        if self._unknown is not None:
            table[self._unknown] *= 0
        write_tensors(unfinished, {"embeddings": table})
        unfinished.replace(path / STATIC_FILE)
        settings = {
            "model_type": STATIC,
            "architectures": ["StaticModel"],
            "hidden_dim": self.hidden,
            "normalize": normalise,
            "embedding_dtype": "float32",
            "seq_length": UNLIMITED,
        }
        write_json(path / "config.json", settings)
        modules = ["StaticEmbedding"] + ["Dense"] * 2 * (self._layers is not None) + ["Normalize"] * normalise
        write_modules(folder, [f"models.{name}" for name in modules], self.subfolder)
        write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
        # remove what an earlier export left
        if self._layers is None:
            shutil.rmtree(folder / _TABLE_FOLDER, ignore_errors=True)
        else:
            (folder / STATIC_FILE).unlink(missing_ok=True)
            self._layers.save(folder)
        return {"layers": self._layers is not None}


def _load_tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a safetensors file; those of float32 are views of the mapped file, not copies."""
    if not path.is_file():
        raise BackboneError(f"{path} is missing: export the model again")
    try:
        with safe_open(path, "np") as file:  # checks the whole header
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names if file.get_slice(name).get_dtype() != "F32"}
    except (SafetensorError, OSError) as error:
        raise BackboneError(f"cannot load the model {path.parent}: {first_line(error)}") from error
    with path.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        data = np.asarray(np.memmap(path, np.uint8, "r"))[stream.tell() :]
    for name in set(names) - set(tensors):
        start, end = header[name]["data_offsets"]
        tensors[name] = data[start:end].view("<f4").reshape(header[name]["shape"])
    return tensors


def _read_table(folder: Path, tensors: dict[str, npt.NDArray[Any]]) -> Vectors:
    """Return the table that model2vec (which may share rows and weight them) or sentence-transformers wrote."""
    embeddings = tensors.get("embeddings", tensors.get("embedding.weight"))
    if embeddings is None or embeddings.ndim != 2:
        raise BackboneError(
            f"{folder / STATIC_FILE} holds no table of token vectors ('embeddings'): export the model again"
        )
    table = embeddings.astype(np.float32, copy=False)
    if "mapping" in tensors:
        table = table[tensors["mapping"]]
    if "weights" in tensors:
        table = table * tensors["weights"].astype(np.float32)[:, None]
    return table
