"""A backbone that was exported: an ONNX graph with the pooling inside, run by onnxruntime on the CPU.

The graph takes padded rows, as other programs that run it have them. Here it is given what lies side by side in a stream, rows of
one length, so that nothing is padded and no vector depends on what else is encoded with it.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from turnwise.models.backbone.pooled import PooledBackbone
from turnwise.models.backbone.source import BackboneError
from turnwise.models.backbone.stream import TokenStream

#: The graph's file, in a model's folder.
GRAPH = "model.onnx"

#: The graph's outputs: what the model gives, and the same before it is scaled to length 1, in graphs that scale.
VECTOR = "sentence_embedding"
POOLED = "pooled"

#: Its inputs, the last one where the family has segments.
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class OnnxBackbone(PooledBackbone):
    """A graph that computes vectors.

    Attributes:
        graph: what computes the vectors.
    """

    kind = "onnx"
    described = "an ONNX model"

    def __init__(self, config: Any, tokenizer: PreTrainedTokenizerBase, graph: "Graph"):
        super().__init__(config, tokenizer)
        self.graph = graph
        # in the state, so that two graphs have two fingerprints
        self.register_buffer("digest", torch.frombuffer(bytearray(graph.digest), dtype=torch.uint8))

    @classmethod
    def load(cls, name: str | Path, *_: Any, **__: Any) -> "OnnxBackbone":
        """Loads a folder that `turnwise export` wrote.

        Raises:
            BackboneError: if onnxruntime is not installed, or a file is missing or damaged.
        """
        folder = Path(name)
        graph = Graph(folder / GRAPH)
        try:
            return cls(AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), graph)
        except (OSError, ValueError) as error:
            raise BackboneError(f"cannot load the model {folder}: {str(error).strip().splitlines()[0]}") from error

    def save(self, folder: Path, normalise: bool) -> None:
        """Writes the graph, which scales by itself, the configuration and the tokenizer into a folder that is there."""
        unfinished = folder / f".writing-{GRAPH}"
        shutil.copyfile(self.graph.path, unfinished)
        unfinished.replace(folder / GRAPH)
        self.config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    @property
    def place(self) -> Path:
        """The folder of its graph."""
        return self.graph.path.parent

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return torch.device("cpu")

    def vectors(self, stream: TokenStream) -> torch.Tensor:
        """Pooled vectors (sequences, hidden), not scaled, in the order in which the sequences were given."""
        pieces = []
        for group in stream.groups:
            rows = stream.ids[group.start : group.end].view(group.count, group.length).numpy()
            pieces.append(torch.from_numpy(self.graph.pooled(rows)))
        return stream.restore(torch.cat(pieces))


class Graph:
    """An ONNX file as a function; copies share it, for it never changes.

    Attributes:
        path: the file.
        digest: its SHA-256.
    """

    def __init__(self, path: Path):
        self.path = path.absolute()
        if not path.is_file():
            raise BackboneError(f"{path} is missing: export the model again")
        with path.open("rb") as file:
            self.digest = hashlib.file_digest(file, "sha256").digest()
        self._session = _session(self.path)
        self._inputs = {each.name for each in self._session.get_inputs()}
        outputs = {each.name for each in self._session.get_outputs()}
        self._output = POOLED if POOLED in outputs else VECTOR

    def pooled(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Vectors (rows, hidden) of rows of token ids, none of them padded."""
        fed = {INPUTS[0]: ids, INPUTS[1]: np.ones_like(ids), INPUTS[2]: np.zeros_like(ids)}
        (found,) = self._session.run([self._output], {name: fed[name] for name in self._inputs})
        return np.asarray(found, np.float32)

    def __deepcopy__(self, _: Any) -> "Graph":
        return self

    def __reduce__(self) -> tuple[type["Graph"], tuple[Path]]:
        return Graph, (self.path,)


def _session(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise BackboneError(
            f"{path} is run by onnxruntime, which is not installed: pip install 'turnwise[onnx]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # plans are kept for every shape of input that was ever seen, and here there is no end of them
    options.enable_mem_pattern = False
    # threads that wait for the next pass would keep a core busy that others could use
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors have no common class
        raise BackboneError(
            f"{path} cannot be run ({str(error).strip().splitlines()[0]}): export the model again"
        ) from error
