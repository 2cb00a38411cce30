"""Exported models, which return one vector per text and cannot be trained: ONNX graphs and static tables.

They run on the CPU without torch and transformers, with NumPy, the tokenizers library, and onnxruntime or OpenVINO for
graphs.

- **ONNX**: a graph with the pooling inside. It accepts padded rows, for other programs; here it is given rows of one
  length, so nothing is padded and no vector depends on what else is in the batch.
- **Static**: a table with one vector per token; a text's vector is the mean of its tokens'. The folder is model2vec's,
  and also readable by sentence-transformers. A table that was fitted to texts has two layers over the mean, and is
  readable by sentence-transformers only.
"""

import hashlib
import json
import math
import os
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from turnwise.core.files import read_json, write_json, write_tensors
from turnwise.core.imports import explain_missing_packages
from turnwise.core.types import Vectors
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import STATIC, BackboneError, Runtime, write_dense, write_modules

#: The file of an ONNX model and of a static one, in a model's folder.
ONNX_FILE = "model.onnx"
STATIC_FILE = "model.safetensors"

#: The inputs of an ONNX graph, the last one only for families with segments.
ONNX_INPUTS = ("input_ids", "attention_mask", "token_type_ids")

#: Its outputs: the vector, and in graphs that normalise also the vector before normalisation.
ONNX_VECTOR = "sentence_embedding"
ONNX_UNNORMALISED = "pooled"

#: Tokens of one run of a graph.
_RUN_TOKENS = 512

_TOKENIZER_FILE = "tokenizer.json"
_TOKENIZER_SETTINGS = "tokenizer_config.json"

#: The folders of a static model with layers; sentence-transformers names those of the layers so.
_TABLE_FOLDER = "table"
_LAYER_FOLDERS = ("1_Dense", "2_Dense")

#: Rows of a static table that are hashed at a time.
_DIGEST_ROWS = 4_096

#: The maximum length of a text in a static model: no limit.
UNLIMITED = 1_000_000


class ExportedTokenizer:
    """A tokenizer of the tokenizers library, with that part of the interface of transformers that inputs need."""

    def __init__(self, backend: Tokenizer, settings: dict[str, Any]):
        """Wrap a tokenizer; `settings` has its special tokens, under the names of transformers."""
        backend.no_truncation()
        backend.no_padding()
        self.backend_tokenizer = backend
        self._settings = settings

    @classmethod
    def load(cls, folder: Path, *, special_tokens: bool = True) -> "ExportedTokenizer":
        """Load the tokenizer of a folder; without `special_tokens` it knows only its unknown token."""
        for name in (_TOKENIZER_FILE, _TOKENIZER_SETTINGS)[: 1 + special_tokens]:
            if not (folder / name).is_file():
                raise BackboneError(f"{folder / name} is missing: export the model again")
        try:
            backend = Tokenizer.from_file(str(folder / _TOKENIZER_FILE))
        except Exception as error:
            if type(error) is not Exception:  # the errors of tokenizers have no other class
                raise
            raise BackboneError(f"cannot load the model {folder}: {_first_line(error)}") from error
        return cls(backend, read_json(folder / _TOKENIZER_SETTINGS)) if special_tokens else cls.plain(backend)

    @classmethod
    def plain(cls, backend: Tokenizer) -> "ExportedTokenizer":
        """Wrap a tokenizer that has no special tokens except the unknown token of its model."""
        unknown = getattr(backend.model, "unk_token", None)
        return cls(backend, {} if unknown is None else {"unk_token": unknown})

    def save(self, folder: Path) -> None:
        """Write the tokenizer into an existing folder, where transformers can load it too."""
        self.backend_tokenizer.save(str(folder / _TOKENIZER_FILE))
        write_json(folder / _TOKENIZER_SETTINGS, self._settings)

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def __call__(self, text: str, pair: str | None = None, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        """Return the token ids of a text, or of a pair of texts, under the name 'input_ids'."""
        encoding = self.backend_tokenizer.encode(text, pair, add_special_tokens=add_special_tokens)
        return {"input_ids": encoding.ids}

    def get_vocab(self) -> dict[str, int]:
        """Return the ids of all tokens."""
        return dict(self.backend_tokenizer.get_vocab())

    def get_added_vocab(self) -> dict[str, int]:
        """Return the ids of the tokens that were added to the vocabulary of the model."""
        added = self.backend_tokenizer.get_added_tokens_decoder()
        return {token.content: number for number, token in sorted(added.items())}

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """Return the id of a token, or that of the unknown token."""
        number: int | None = self.backend_tokenizer.token_to_id(token)
        return self.unk_token_id if number is None else number

    @property
    def sep_token_id(self) -> int | None:
        """The id of the token between two texts; None if there is none."""
        return self._special("sep_token")

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token after a text; None if there is none."""
        return self._special("eos_token")

    @property
    def mask_token_id(self) -> int | None:
        """The id of the mask token; None if there is none."""
        return self._special("mask_token")

    @property
    def unk_token_id(self) -> int | None:
        """The id of the unknown token; None if there is none."""
        return self._special("unk_token")

    @property
    def model_max_length(self) -> float:
        """The number of tokens that a sequence may have; infinite if the settings name none."""
        limit = self._settings.get("model_max_length")
        return math.inf if limit is None else float(limit)

    def _special(self, name: str) -> int | None:
        token = self._settings.get(name)
        if isinstance(token, dict):  # with its settings, as transformers writes some tokens
            token = token["content"]
        return None if token is None else self.backend_tokenizer.token_to_id(token)


class ExportedModel(ABC):
    """A function from token ids to vectors; copies may share it, because it never changes."""

    kind: ClassVar[str]  # its name in `turnwise.json`
    hidden: int  # the size of a vector
    digest: str  # equal for equal models
    subfolder: str = ""  # of a model's folder: where its tokenizer and `config.json` are

    @property
    def configuration(self) -> str:
        """What determines vectors besides the digest."""
        return self.kind

    @abstractmethod
    def run(self, sequences: RaggedTokens) -> Vectors:
        """Return vectors (sequences, hidden), not normalised, of sequences that have at least one token each."""

    @abstractmethod
    def save(self, folder: Path, normalise: bool) -> dict[str, Any]:
        """Write the model after `config.json` and the tokenizer; return further settings for `turnwise.json`."""


# ---- ONNX


class OnnxGraph(ExportedModel):
    """An ONNX file, and the library that runs it."""

    kind = "onnx"

    def __init__(self, path: Path, runtime: Runtime = "onnxruntime"):
        """Open a file in a model's folder."""
        self.path = path.absolute()
        self.runtime: Runtime = runtime
        if not path.is_file():
            raise BackboneError(f"{path} is missing: export the model again")
        with path.open("rb") as file:
            self.digest = hashlib.file_digest(file, "sha256").hexdigest()
        threads = count_threads()
        self._session = _open_session(self.path, runtime, threads)
        self._threads = ThreadPoolExecutor(threads, "onnx")
        self._output = ONNX_UNNORMALISED if ONNX_UNNORMALISED in self._session.sizes else ONNX_VECTOR
        self.hidden = self._session.sizes[ONNX_VECTOR]

    @classmethod
    def load(cls, folder: Path, runtime: Runtime = "onnxruntime") -> "OnnxGraph":
        """Load the graph of a folder that `turnwise export` wrote."""
        return cls(folder / ONNX_FILE, runtime)

    @property
    def configuration(self) -> str:
        """The kind, and the runtime unless it is the default: with 8 bits, vectors differ a little between runtimes."""
        return self.kind if self.runtime == "onnxruntime" else f"{self.kind} {self.runtime}"

    def run(self, sequences: RaggedTokens) -> Vectors:
        """Return vectors (sequences, hidden), not normalised; threads run rows of one length each."""
        vectors = np.empty((len(sequences), self.hidden), np.float32)

        def run_rows(rows: npt.NDArray[np.int64]) -> None:
            ids = sequences.take(rows).tokens.astype(np.int64).reshape(len(rows), -1)
            values = dict(zip(ONNX_INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))
            vectors[rows] = self._session.run(self._output, {name: values[name] for name in self._session.inputs})

        list(self._threads.map(run_rows, _rows_of_one_length(sequences.lengths)))
        return vectors

    def save(self, folder: Path, normalise: bool) -> dict[str, Any]:
        """Write the graph, which normalises by itself."""
        unfinished = folder / f".writing-{ONNX_FILE}"
        shutil.copyfile(self.path, unfinished)
        unfinished.replace(folder / ONNX_FILE)
        return {}

    def __deepcopy__(self, _: Any) -> "OnnxGraph":
        return self

    def __reduce__(self) -> tuple[type["OnnxGraph"], tuple[Path, Runtime]]:
        return OnnxGraph, (self.path, self.runtime)


def _rows_of_one_length(lengths: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the indices of sequences of one length, longest first, with at most `_RUN_TOKENS` tokens together."""
    for length in np.unique(lengths)[::-1]:
        rows = np.flatnonzero(lengths == length)
        yield from np.split(rows, range(step := max(1, _RUN_TOKENS // int(length)), len(rows), step))


class _OnnxRuntimeSession:
    """A graph in onnxruntime."""

    def __init__(self, path: Path, threads: int):
        """Open a file; `threads` is not used, because every thread that calls `run` computes by itself."""
        import onnxruntime  # here, because static models do not need it

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # `OnnxGraph.run` has threads, which is faster than several for one product
        options.enable_mem_pattern = False  # a plan would be kept for every input shape, of which there are many
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [each.name for each in self._session.get_inputs()]
        self.sizes = {each.name: int(each.shape[1]) for each in self._session.get_outputs()}

    def run(self, output: str, values: dict[str, npt.NDArray[np.int64]]) -> Vectors:
        """Return an output for values of all inputs; can be called from several threads."""
        (vectors,) = self._session.run([output], values)
        return np.asarray(vectors)


class _OpenVinoSession:
    """A graph in OpenVINO."""

    def __init__(self, path: Path, threads: int):
        """Compile a file; at most `threads` runs are computed at the same time, with one thread each."""
        with explain_missing_packages():
            import openvino

        options = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": threads,
            "INFERENCE_PRECISION_HINT": "f32",  # the default is bf16 on processors that have it
            "ENABLE_CPU_PINNING": False,  # several processes may share the cores
        }
        self._model = openvino.Core().compile_model(path, "CPU", options)
        self._local = threading.local()  # requests can be used by one thread at a time
        self.inputs = [each.any_name for each in self._model.inputs]
        self.sizes = {each.any_name: each.partial_shape[1].get_length() for each in self._model.outputs}

    def run(self, output: str, values: dict[str, npt.NDArray[np.int64]]) -> Vectors:
        """Return an output for values of all inputs; can be called from several threads."""
        if not hasattr(self._local, "request"):
            self._local.request = self._model.create_infer_request()
        return np.asarray(self._local.request.infer(values)[output])


def _open_session(path: Path, runtime: Runtime, threads: int) -> _OnnxRuntimeSession | _OpenVinoSession:
    try:
        return (_OpenVinoSession if runtime == "openvino" else _OnnxRuntimeSession)(path, threads)
    except ImportError:
        raise
    except Exception as error:  # the errors of onnxruntime have no common class
        raise BackboneError(f"{path} cannot be run ({_first_line(error)}): export the model again") from error


def count_threads() -> int:
    """Return `OMP_NUM_THREADS`, which torch honours too, or the number of cores that this process may use."""
    requested = os.environ.get("OMP_NUM_THREADS", "")
    if requested.isdecimal() and int(requested):
        return int(requested)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- static


@dataclass(frozen=True, slots=True)
class MeanLayers:
    """Two layers without biases: a matrix product, ReLU, and another one. A vector of zeros stays as it is."""

    inner: Vectors  # (units, size)
    outer: Vectors  # (size, units)

    def __call__(self, vectors: Vectors) -> Vectors:
        """(texts, size) → the same shape."""
        changed: Vectors = np.maximum(vectors @ self.inner.T, 0) @ self.outer.T
        return changed

    @classmethod
    def load(cls, folder: Path) -> "MeanLayers":
        """Load the layers of a model's folder."""
        inner, outer = (
            _load_tensors(folder / name / STATIC_FILE).get("linear.weight", np.empty(0)) for name in _LAYER_FOLDERS
        )
        if inner.ndim != 2 or inner.shape != outer.T.shape:
            raise BackboneError(f"{folder} has layers of the shapes {inner.shape} and {outer.shape}: export it again")
        return cls(inner, outer)

    def save(self, folder: Path) -> None:
        """Write the layers as modules of sentence-transformers."""
        for name, weight, activation in zip(
            _LAYER_FOLDERS, (self.inner, self.outer), ("activation.ReLU", "linear.Identity"), strict=True
        ):
            write_dense(folder / name, {"weight": weight}, activation)


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
        raise BackboneError(f"cannot load the model {path.parent}: {_first_line(error)}") from error
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


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
