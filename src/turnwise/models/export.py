"""Exporting an encoder: as one ONNX graph from token ids to vectors, or distilled into a table of token vectors.

The graph has the pooling inside; onnxruntime runs it without torch's model code.

Eight-bit numbers (`onnx-int8`) are made in blocks of 64 of a weight's inputs, each with its own scale; what comes in is quantised
in the same blocks while the graph runs, row by row. So a vector does not depend on what else is in the batch, as it would with the
usual dynamic quantisation, whose scale is that of the whole batch.
"""

import copy
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from turnwise.core.errors import TurnwiseError
from turnwise.core.files import read_json
from turnwise.core.progress import Progress, silent
from turnwise.models.backbone.backbone import PoolerLayer, Pooling
from turnwise.models.backbone.exported import (
    ONNX_FILE,
    ONNX_INPUTS,
    ONNX_UNNORMALISED,
    ONNX_VECTOR,
    STATIC_FILE,
    ExportedBackbone,
    OnnxBackbone,
    OnnxGraph,
)
from turnwise.models.distillation import DIMENSIONS, distil
from turnwise.models.encoder import DESCRIPTION_FILE, Encoder

ExportFormat = Literal["onnx", "onnx-int8", "static"]
FORMATS: tuple[str, ...] = get_args(ExportFormat)

#: The operators that the graph is made of: 20 is the first that has GELU as one.
_OPSET = 20

#: Inputs of a weight that share a scale, where numbers have eight bits.
_BLOCK = 64

#: One ONNX file holds less than 2 GiB.
_LARGEST = 2**31 - 2**20

#: How far the vectors of a graph may be from the model's, of vectors whose largest number is 1.
_TOLERANCE = 1e-4

#: What a graph is tried on: inputs of several lengths, a conversation among them.
_TRIED = (
    "Hello.",
    "I would like to book a table for two tonight, please.",
    "When does the next train leave, and is there a seat by the window?",
    ["Where is my parcel?", "It is on its way to you.", "Thank you very much!"],
    "It rained all day. " * 12,
)


class ExportError(TurnwiseError):
    """A model cannot be exported; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export came to.

    Attributes:
        folder: where it lies.
        size: bytes of the graph or the table.
        difference: how far a number of a vector is from the model's at most, of vectors of length 1, on a few texts; None for a
            table, whose vectors lie in another space.
        cosine: the least cosine of a vector to the model's, on the same texts; None for a table.
        tokens: rows of a table; None for a graph.
    """

    folder: Path
    size: int
    difference: float | None
    cosine: float | None
    tokens: int | None = None


def export(
    encoder: Encoder,
    folder: Path | str,
    kind: ExportFormat = "onnx",
    *,
    dimensions: int = DIMENSIONS,
    words: Sequence[str] = (),
    texts: Sequence[str] = (),
    progress: Progress = silent,
) -> ExportResult:
    """Writes an encoder as a folder that `Encoder.load` reads: a graph equal to the model up to rounding, or a table.

    Args:
        encoder: what to export; it is left as it is.
        folder: a new or empty one, or that of an earlier export of the same kind.
        kind: 'onnx' for numbers of 32 bits, 'onnx-int8' for weights of eight, 'static' for a table of token vectors.
        dimensions: the size of a vector of a table, at most the encoder's own.
        words: to be tokens of their own in a table.
        texts: what a table is fitted to; none: it is not.
        progress: told of the steps.

    Raises:
        ExportError: if something else is in the folder, a package is missing, the model is exported already or too large, or the
            graph does not give the model's vectors.
    """
    folder = Path(folder)
    _expect_exportable(encoder, folder, kind)
    if kind == "static":
        if encoder.compression is not None:
            raise ExportError(
                "semantic compression is made for the model's own vectors, and a table has others: leave it out"
            )
        table = distil(encoder, dimensions=dimensions, words=words, texts=texts, progress=progress)
        table.save(folder)
        return ExportResult(folder, (folder / STATIC_FILE).stat().st_size, None, None, len(table.backbone.tokenizer))
    return _export_graph(encoder, folder, kind, progress)


def _export_graph(encoder: Encoder, folder: Path, kind: ExportFormat, progress: Progress) -> ExportResult:
    _expect_onnx(encoder)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) / ONNX_FILE
        progress(f"exporting: {kind}", 0, 3)
        with _quietly():
            _write_graph(encoder, place)
            if kind == "onnx-int8":
                progress(f"exporting: {kind}, quantising", 1, 3)
                _quantise(place)
        progress(f"exporting: {kind}, comparing", 2, 3)
        backbone = OnnxBackbone(encoder.backbone.config, encoder.backbone.tokenizer, OnnxGraph(place))
        settings = (encoder.pooling, encoder.max_length, encoder.normalise, encoder.style, encoder.marks)
        graph = Encoder(backbone, *settings).eval()
        difference, cosine = _compared(encoder, graph)
        if kind == "onnx" and not difference <= _TOLERANCE:  # nor is NaN
            raise ExportError(
                f"the graph's vectors are up to {difference:.2g} from the model's, more than {_TOLERANCE:g}: this model"
                f" ({encoder.backbone.config.model_type}) cannot be exported"
            )
        graph.compression = encoder.compression
        graph.save(folder)
        progress(f"exporting: {kind}", 3, 3)
        return ExportResult(folder, place.stat().st_size, difference, cosine)


def _expect_exportable(encoder: Encoder, folder: Path, kind: ExportFormat) -> None:
    if isinstance(encoder.backbone, ExportedBackbone):
        raise ExportError(f"{encoder.backbone.folder} is exported already: export the model that it was made of")
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not _holds(folder, kind))):
        raise ExportError(
            f"{folder} holds something else: choose a new or empty folder, or that of an earlier export of this kind"
        )


def _expect_onnx(encoder: Encoder) -> None:
    size = sum(weight.numel() for weight in encoder.parameters()) * 4
    if size > _LARGEST:
        raise ExportError(
            f"the model has {size / 2**30:.1f} GiB of weights, and one ONNX file holds 2: it cannot be exported"
        )
    try:
        import onnx  # noqa: F401 (torch's exporter and the quantisation say less clearly that they are missing)
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ExportError(f"{error.name} is not installed: pip install 'turnwise[onnx]'") from None


def _holds(folder: Path, kind: ExportFormat) -> bool:
    """Whether a folder holds a model that was exported in this way: files of another would be taken for this one's."""
    place = folder / DESCRIPTION_FILE
    return place.is_file() and read_json(place).get("kind") == kind.partition("-")[0]


class _Padded(nn.Module):
    """An encoder as a function of padded rows: what becomes the graph."""

    def __init__(self, encoder: Encoder):
        super().__init__()
        self.backbone = copy.deepcopy(encoder.backbone).cpu().float()
        self.backbone.model.set_attn_implementation("eager")  # plain matrix products, which every runtime has
        self.pooler: PoolerLayer | None = copy.deepcopy(encoder.pooler)
        self.pooling: Pooling = encoder.pooling
        self.normalise = encoder.normalise

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        layers: Literal["first-last", "last"] = "first-last" if self.pooling == "first-last" else "last"
        states = self.backbone.padded_states(input_ids, attention_mask, token_type_ids, layers)
        vectors = self._pooled(states, attention_mask[:, :, None].to(states.dtype))
        if self.pooler is not None:
            vectors = self.pooler(vectors)
        return (normalize(vectors, dim=1), vectors) if self.normalise else (vectors,)

    def _pooled(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self.pooling in ("cls", "cls-mlp"):
            return states[:, 0]
        if self.pooling == "max":
            return states.masked_fill(mask == 0, torch.finfo(states.dtype).min).amax(1)
        return (states * mask).sum(1) / mask.sum(1)


def _write_graph(encoder: Encoder, path: Path) -> None:
    module = _Padded(encoder).eval()
    ids = torch.full((2, 8), 5)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    inputs = (ids, mask, torch.zeros_like(ids)) if encoder.backbone.has_segments else (ids, mask)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    program = torch.onnx.export(
        module,
        inputs,
        input_names=ONNX_INPUTS[: len(inputs)],
        output_names=(ONNX_VECTOR, ONNX_UNNORMALISED) if encoder.normalise else (ONNX_VECTOR,),
        opset_version=_OPSET,
        dynamic_shapes=(axes,) * len(inputs),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.save(path, external_data=False)


def _quantise(path: Path) -> None:
    """Gives the weights of linear layers and the table of words eight bits each, in place."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    graph = ONNXModel(onnx.load(path))
    graph.replace_gemm_with_matmul()  # GPT-2's layers: the next step sees products alone
    linear = MatMulNBitsQuantizer(graph.model, bits=8, block_size=_BLOCK, is_symmetric=True, accuracy_level=4)
    linear.process()
    model = linear.model.model
    # of the tables that of words alone: those of positions, segments and distances are small, and every token goes through them
    words = _largest_table(model)
    quantize_dynamic(
        model, path, op_types_to_quantize=["Gather"], nodes_to_quantize=[words], weight_type=QuantType.QInt8
    )


def _largest_table(model: Any) -> str:
    """The name of the node that looks rows up in the largest table."""
    sizes = {each.name: int(np.prod(each.dims)) for each in model.graph.initializer}
    lookups = [node for node in model.graph.node if node.op_type == "Gather"]
    return str(max(lookups, key=lambda node: sizes.get(node.input[0], 0)).name)


def _compared(encoder: Encoder, graph: Encoder) -> tuple[float, float]:
    """How far the vectors of a graph are from a model's, as `ExportResult` has it."""
    tried = [text if isinstance(text, str) or encoder.style == "separator" else text[0] for text in _TRIED]
    sequences = encoder.tokenise(tried)
    ours, theirs = (each.encode_sequences(sequences, normalise=True) for each in (graph, encoder))
    return float(np.abs(ours - theirs).max()), float((ours * theirs).sum(1).min())


@contextmanager
def _quietly() -> Iterator[None]:
    """Keeps the exporter's and the quantiser's remarks on their own workings from users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
