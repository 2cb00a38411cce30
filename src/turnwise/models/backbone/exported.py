"""Exported backbones, which return one vector per text and cannot be trained: ONNX graphs and static tables.

- **ONNX**: a graph with the pooling inside, run by onnxruntime on the CPU. It accepts padded rows, for other programs;
  here it is given rows of one length from a stream, so nothing is padded and no vector depends on what else is in the
  batch.
- **Static**: a table with one vector per token; a text's vector is the mean of its tokens'. The folder is model2vec's,
  and also readable by sentence-transformers. Loading and running it needs only safetensors and tokenizers.
"""

import hashlib
import shutil
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import embedding_bag
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from turnwise.core.files import write_json, write_tensors
from turnwise.core.types import Vectors
from turnwise.models.backbone.backbone import Backbone, Layers
from turnwise.models.backbone.source import STATIC, BackboneError, write_modules
from turnwise.models.backbone.stream import TokenStream

#: The file of an ONNX model and of a static one, in a model's folder.
ONNX_FILE = "model.onnx"
STATIC_FILE = "model.safetensors"

#: The inputs of an ONNX graph, the last one only for families with segments.
ONNX_INPUTS = ("input_ids", "attention_mask", "token_type_ids")

#: Its outputs: the vector, and in graphs that normalise also the vector before normalisation.
ONNX_VECTOR = "sentence_embedding"
ONNX_UNNORMALISED = "pooled"

_TOKENIZER_FILE = "tokenizer.json"

#: The maximum length of a text in a static model: no limit.
_UNLIMITED = 1_000_000


class ExportedBackbone(Backbone):
    """An exported model: `vectors` instead of token states, and no weights to train."""

    kind: ClassVar[str]  # its name in `turnwise.json`
    description: ClassVar[str]  # its name in messages, beside the folder that it was loaded from

    def __init__(self, config: Any, tokenizer: PreTrainedTokenizerBase, folder: Path):
        torch.nn.Module.__init__(self)  # not Backbone's own, which needs a transformers model
        self.tokenizer = tokenizer
        self.folder = folder
        self._config = config

    @abstractmethod
    def vectors(self, stream: TokenStream) -> Tensor:
        """Return pooled vectors (sequences, hidden), not normalised, in input order."""

    @abstractmethod
    def save(self, folder: Path, normalise: bool) -> None:
        """Write everything except `turnwise.json` into an existing folder."""

    @property
    def config(self) -> Any:
        """A transformers configuration."""
        return self._config

    @property
    def layers(self) -> int:
        """The number of transformer layers."""
        return int(self.config.num_hidden_layers)

    @property
    def model(self) -> Any:  # type: ignore[override]
        """Raise an error: there is no model that could be trained or changed."""
        raise self._unsupported("runs but cannot be trained or changed")

    def forward(self, stream: TokenStream, layers: Layers = "last") -> Tensor:
        """Raise an error: there are no token states."""
        raise self._unsupported("gives one vector per text and no token states")

    def _unsupported(self, reason: str) -> BackboneError:
        origin = "use the model that it was exported from"
        return BackboneError(f"{self.folder} is {self.description}, which {reason}: {origin}")


# ---- ONNX


class OnnxBackbone(ExportedBackbone):
    """An ONNX graph that computes vectors."""

    kind = "onnx"
    description = "an ONNX model"

    def __init__(self, config: Any, tokenizer: PreTrainedTokenizerBase, graph: "OnnxGraph"):
        super().__init__(config, tokenizer, graph.path.parent)
        self.graph = graph
        # in the state, so that two graphs have two fingerprints
        self.register_buffer("digest", torch.frombuffer(bytearray(graph.digest), dtype=torch.uint8))

    @classmethod
    def load(cls, name: str | Path, *_: Any, **__: Any) -> "OnnxBackbone":
        """Load a folder that `turnwise export` wrote."""
        folder = Path(name)
        graph = OnnxGraph(folder / ONNX_FILE)
        try:
            return cls(AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), graph)
        except (OSError, ValueError) as error:
            raise BackboneError(f"cannot load the model {folder}: {str(error).strip().splitlines()[0]}") from error

    def save(self, folder: Path, normalise: bool) -> None:
        """Write the graph (which normalises by itself), the configuration and the tokenizer."""
        unfinished = folder / f".writing-{ONNX_FILE}"
        shutil.copyfile(self.graph.path, unfinished)
        unfinished.replace(folder / ONNX_FILE)
        self.config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def vectors(self, stream: TokenStream) -> Tensor:
        """Return pooled vectors (sequences, hidden), not normalised, in input order."""
        rows = [stream.ids[group.start : group.end].view(group.count, group.length) for group in stream.groups]
        return stream.restore(torch.cat([torch.from_numpy(self.graph.run(ids.numpy())) for ids in rows]))


class OnnxGraph:
    """An ONNX file as a function; copies share it, because it never changes."""

    def __init__(self, path: Path):
        self.path = path.absolute()
        if not path.is_file():
            raise BackboneError(f"{path} is missing: export the model again")
        with path.open("rb") as file:
            self.digest = hashlib.file_digest(file, "sha256").digest()
        self._session = _open_session(self.path)
        self._inputs = {each.name for each in self._session.get_inputs()}
        outputs = {each.name for each in self._session.get_outputs()}
        self._output = ONNX_UNNORMALISED if ONNX_UNNORMALISED in outputs else ONNX_VECTOR

    def run(self, ids: npt.NDArray[np.int64]) -> Vectors:
        """Return vectors (rows, hidden) of rows of token ids without padding."""
        values = dict(zip(ONNX_INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))
        (vectors,) = self._session.run([self._output], {name: values[name] for name in self._inputs})
        return np.asarray(vectors, np.float32)

    def __deepcopy__(self, _: Any) -> "OnnxGraph":
        return self

    def __reduce__(self) -> tuple[type["OnnxGraph"], tuple[Path]]:
        return OnnxGraph, (self.path,)


def _open_session(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise BackboneError(f"{path} needs onnxruntime, which is not installed: pip install 'turnwise[onnx]'") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.enable_mem_pattern = False  # a plan would be kept for every input shape, of which there are many
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads would keep a core busy
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common class
        reason = str(error).strip().splitlines()[0]
        raise BackboneError(f"{path} cannot be run ({reason}): export the model again") from error


# ---- static


class StaticConfig(PreTrainedConfig):
    """The configuration of a static model, under the names of transformers."""

    model_type = STATIC
    hidden_size: int = 0
    vocab_size: int = 0
    num_hidden_layers: int = 0


class StaticBackbone(ExportedBackbone):
    """A table of token vectors; the unknown token does not count."""

    kind = "static"
    description = "a static model (a table of token vectors)"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, table: Vectors, folder: Path):
        """Combine a tokenizer with a table (tokens, size), whose rows are its ids; `folder` is for messages."""
        rows, size = table.shape
        if rows != len(tokenizer):
            raise BackboneError(
                f"{folder} has {rows} token vectors, but its tokenizer {len(tokenizer)} tokens: export it again"
            )
        super().__init__(StaticConfig(hidden_size=size, vocab_size=rows, num_hidden_layers=0), tokenizer, folder)
        counted = np.ones((rows, 1), np.float32)
        if tokenizer.unk_token_id is not None:
            counted[tokenizer.unk_token_id] = 0
        # the last column counts tokens, so that one pass computes their sum and their number
        self.register_buffer("table", torch.from_numpy(np.hstack([table * counted, counted])))
        self.table: Tensor

    @classmethod
    def load(cls, name: str | Path, *_: Any, **__: Any) -> "StaticBackbone":
        """Load a folder that `turnwise export --format static`, model2vec or sentence-transformers wrote."""
        folder = Path(name)
        for file in (STATIC_FILE, _TOKENIZER_FILE):
            if not (folder / file).is_file():
                raise BackboneError(f"{folder / file} is missing: export the model again")
        try:
            tensors = load_file(folder / STATIC_FILE)
            tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER_FILE))
        except Exception as error:  # the errors of tokenizers have no other class
            if isinstance(error, SafetensorError | OSError) or type(error) is Exception:
                raise BackboneError(f"cannot load the model {folder}: {str(error).strip().splitlines()[0]}") from error
            raise
        return cls(wrap_tokenizer(tokenizer), _read_table(folder, tensors), folder)

    def save(self, folder: Path, normalise: bool) -> None:
        """Write the table, the tokenizer, and the files that model2vec and sentence-transformers need."""
        unfinished = folder / f".writing-{STATIC_FILE}"
        write_tensors(unfinished, {"embeddings": np.ascontiguousarray(self.table[:, :-1].cpu().numpy())})
        unfinished.replace(folder / STATIC_FILE)
        self.tokenizer.backend_tokenizer.save(str(folder / _TOKENIZER_FILE))
        settings = {
            "model_type": STATIC,
            "architectures": ["StaticModel"],
            "hidden_dim": self.hidden,
            "normalize": normalise,
            "embedding_dtype": "float32",
            "seq_length": _UNLIMITED,
        }
        write_json(folder / "config.json", settings)
        write_modules(folder, ["models.StaticEmbedding"] + ["models.Normalize"] * normalise)
        write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})

    @property
    def max_length(self) -> int:
        """The number of tokens that a sequence may have."""
        return _UNLIMITED

    @property
    def device(self) -> torch.device:
        """The device of the table."""
        return self.table.device

    def vectors(self, stream: TokenStream) -> Tensor:
        """Return pooled vectors (sequences, hidden), not normalised, in input order."""
        stream = stream.to(self.device)
        sums = embedding_bag(stream.ids, self.table, stream.starts()[:-1].to(self.device), mode="sum")
        return stream.restore(sums[:, :-1] / sums[:, -1:].clamp(min=1))


def wrap_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Return a transformers tokenizer that knows its unknown token."""
    unknown = getattr(tokenizer.model, "unk_token", None)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **({} if unknown is None else {"unk_token": unknown}))


def _read_table(folder: Path, tensors: dict[str, npt.NDArray[Any]]) -> Vectors:
    """Return the table that model2vec (which may share rows and weight them) or sentence-transformers wrote."""
    embeddings = tensors.get("embeddings", tensors.get("embedding.weight"))
    if embeddings is None or embeddings.ndim != 2:
        raise BackboneError(
            f"{folder / STATIC_FILE} holds no table of token vectors ('embeddings'): export the model again"
        )
    table = embeddings.astype(np.float32)
    if "mapping" in tensors:
        table = table[tensors["mapping"]]
    if "weights" in tensors:
        table = table * tensors["weights"].astype(np.float32)[:, None]
    return table
