"""Export of an encoder: as an ONNX graph from token ids to vectors, or distilled into a table of token vectors."""

import copy
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from turnwise.core.errors import ModelError
from turnwise.core.files import read_json
from turnwise.core.imports import explain_missing_packages
from turnwise.core.progress import Progress, silent
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.models.backbone.bert import BertBackbone
from turnwise.models.backbone.onnx_graph import ONNX_FILE, ONNX_INPUTS, ONNX_UNNORMALISED, ONNX_VECTOR, OnnxGraph
from turnwise.models.backbone.source import DESCRIPTION_FILE, Pooling
from turnwise.models.backbone.static_table import STATIC_FILE
from turnwise.models.backbone.stream import Layers, PoolerLayer
from turnwise.models.backbone.tokenizer import FastTokenizer
from turnwise.models.distillation import DIMENSIONS, distil, silence_libraries
from turnwise.models.encoder import Encoder, EncoderConfig
from turnwise.models.exported_encoder import ExportedEncoder
from turnwise.models.trainable_encoder import TrainableEncoder

ExportFormat = Literal["onnx", "onnx-int8", "static"]

#: Texts on which ranges are measured for 8 bits.
CALIBRATION_TEXTS = 400

#: The largest difference of a graph's vectors of length 1 from the model's.
_TOLERANCE = 1e-4

#: Inputs of several lengths on which a graph is compared with the model.
_SAMPLES = (
    "Hello.",
    "I would like to book a table for two tonight, please.",
    "When does the next train leave, and is there a seat by the window?",
    ["Where is my parcel?", "It is on its way to you.", "Thank you very much!"],
    "It rained all day. " * 12,
)


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of an export; a graph's vectors of a few texts are compared with the model's."""

    folder: Path
    size: int  # bytes of the graph or the table
    difference: float | None = None  # the largest of a number of a vector of length 1; None for a table
    cosine: float | None = None  # the least of two vectors; None for a table
    tokens: int | None = None  # rows of a table


def export(
    encoder: Encoder,
    folder: Path | str,
    kind: ExportFormat = "onnx",
    *,
    dimensions: int = DIMENSIONS,
    words: Sequence[str] = (),
    texts: Sequence[str] = (),
    overwrite: bool = False,
    progress: Progress = silent,
) -> ExportResult:
    """Write an encoder as a folder that `Encoder.load` reads: a graph equal to the model up to rounding, or a table.

    Args:
        encoder: to export; it is not changed.
        folder: a new or empty one; with `overwrite`, also that of an earlier export of the same kind.
        kind: 'onnx' in 32 bits, 'onnx-int8' with weights in 8 bits, 'static' for a table of token vectors.
        dimensions: the size of a table's vectors, at most the encoder's own.
        words: become tokens of a table.
        texts: that a table is fitted to (none: it is not fitted), or on which the ranges of values in a graph with 8
            bits are measured (none: on texts of the sample corpus).
        overwrite: replace the export in the folder.
        progress: reports the steps.
    """
    folder = Path(folder)
    if not isinstance(encoder, TrainableEncoder):
        raise ModelError(f"{encoder.name or 'the model'} is already exported: export the model that it was made of")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        description = folder / DESCRIPTION_FILE
        if not description.is_file() or read_json(description).get("kind") != kind.partition("-")[0]:
            raise ModelError(f"{folder} holds something else: choose a new or empty folder")
        if not overwrite:
            raise ModelError(f"{folder} already holds an exported model: choose another folder, or use --force")
    if kind != "static":
        return _export_graph(encoder, folder, kind, texts, progress)
    table = distil(encoder, dimensions=dimensions, words=words, texts=texts, progress=progress)
    table.training_data = encoder.training_data
    table.save(folder)
    return ExportResult(folder, (folder / STATIC_FILE).stat().st_size, tokens=len(table.tokenizer))


def _export_graph(
    encoder: TrainableEncoder, folder: Path, kind: ExportFormat, texts: Sequence[str], progress: Progress
) -> ExportResult:
    size = sum(weight.numel() for weight in encoder.parameters()) * 4
    if size > 2**31 - 2**20:
        raise ModelError(f"the model has {size / 2**30:.1f} GiB of weights: one ONNX file holds at most 2")
    with explain_missing_packages():  # torch's exporter and the quantiser report less clearly that they are missing
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / ONNX_FILE
        progress(f"exporting: {kind}", 0, 3)
        with silence_libraries():
            _write_graph(encoder, path)
            if kind == "onnx-int8":
                progress(f"exporting: {kind}, quantising", 1, 3)
                from turnwise.models.quantisation import quantise  # here, because it needs onnx

                if not texts:
                    turns = chain.from_iterable(each.turns for each in sample_dialogues(CALIBRATION_TEXTS, 1))
                    texts = [turn.text for turn in islice(turns, CALIBRATION_TEXTS)]
                quantise(path, _graph_inputs(encoder, texts))
        progress(f"exporting: {kind}, comparing", 2, 3)
        encoder.backbone.save_configuration(Path(temporary))
        encoder.backbone.tokenizer.save_pretrained(Path(temporary))
        settings = EncoderConfig("", encoder.pooling, encoder.max_length, encoder.normalise, encoder.style)
        tokenizer, config = FastTokenizer.load(path.parent), read_json(path.with_name("config.json"))
        graph = ExportedEncoder(OnnxGraph(path.parent), tokenizer, settings, config)
        graph.training_data, graph.origin = encoder.training_data, encoder.weights_fingerprint()
        samples = [each if isinstance(each, str) or encoder.style == "separator" else each[0] for each in _SAMPLES]
        sequences = encoder.tokenise(samples)
        ours, theirs = (each.encode_sequences(sequences, normalise=True) for each in (graph, encoder))
        difference, cosine = float(np.abs(ours - theirs).max()), float((ours * theirs).sum(1).min())
        if kind == "onnx" and not difference <= _TOLERANCE:  # also if it is NaN
            raise ModelError(
                f"the graph's vectors differ by up to {difference:.2g} from the model's, more than {_TOLERANCE:g}: "
                f"this model ({encoder.backbone.config.model_type}) cannot be exported"
            )
        graph.save(folder)
        progress(f"exporting: {kind}", 3, 3)
        return ExportResult(folder, path.stat().st_size, difference, cosine)


class _PaddedEncoder(nn.Module):
    """An encoder as a function of padded rows, which becomes the graph."""

    def __init__(self, encoder: TrainableEncoder):
        super().__init__()
        self.backbone = copy.deepcopy(encoder.backbone).cpu().float()
        if not isinstance(self.backbone, BertBackbone):  # which computes padded rows by plain matrix products
            self.backbone.model.set_attn_implementation("eager")
        self.pooler: PoolerLayer | None = copy.deepcopy(encoder.pooler)
        self.pooling: Pooling = encoder.pooling
        self.normalise = encoder.normalise

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        layers: Layers = "first-last" if self.pooling == "first-last" else "last"
        states = self.backbone.padded_states(input_ids, attention_mask, token_type_ids, layers)
        mask = attention_mask[:, :, None].to(states.dtype)
        if self.pooling in ("cls", "cls-mlp"):
            vectors = states[:, 0]
        elif self.pooling == "max":
            vectors = states.masked_fill(mask == 0, torch.finfo(states.dtype).min).amax(1)
        else:
            vectors = (states * mask).sum(1) / mask.sum(1)
        if self.pooler is not None:
            vectors = self.pooler(vectors)
        return (normalize(vectors, dim=1), vectors) if self.normalise else (vectors,)


def _write_graph(encoder: TrainableEncoder, path: Path) -> None:
    module = _PaddedEncoder(encoder).eval()
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
        opset_version=20,  # the first with GELU
        dynamic_shapes=(axes,) * len(inputs),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.save(path, external_data=False)


def _graph_inputs(encoder: TrainableEncoder, texts: Sequence[str]) -> Iterator[dict[str, npt.NDArray[np.int64]]]:
    """Yield the inputs of a graph for each of several texts."""
    for sequence in encoder.tokenise(texts):
        ids = sequence.astype(np.int64)[None]
        values = (ids, np.ones_like(ids), np.zeros_like(ids))
        yield dict(zip(ONNX_INPUTS[: 2 + encoder.backbone.has_segments], values, strict=False))
