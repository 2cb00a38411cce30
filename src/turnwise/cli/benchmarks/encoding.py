"""Encoding speed of PyTorch, ONNX (also with OpenVINO), int8 and static models beside sentence-transformers."""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import spearmanr

from turnwise.cli.benchmarks.common import PEER, best_times, require_peer, schema_guided_folder
from turnwise.core.errors import TurnwiseError
from turnwise.core.imports import EXTRAS
from turnwise.corpus.registry import get_reader
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.models.backbone.source import locate_model
from turnwise.models.backbone.static_table import StaticTable
from turnwise.models.encoder import Encoder
from turnwise.models.export import ExportFormat, export
from turnwise.models.exported_encoder import ExportedEncoder
from turnwise.version import describe_environment

TORCH = "turnwise"

#: Texts that the static model encodes per round at least, in several passes: fewer are too few to be timed.
_STATIC_TEXTS = 10_240

#: Texts whose pairwise cosines are compared: 523,776 pairs.
_COMPARED_TEXTS = 1024

#: Exported formats and the packages they need.
_ONNX_PACKAGES = ("onnx", "onnxscript")
_FORMATS: dict[ExportFormat, tuple[str, ...]] = {
    "onnx": _ONNX_PACKAGES,
    "onnx-int8": _ONNX_PACKAGES,
    "static": ("model2vec", "skeletoken"),
}

#: The graph of 'onnx-int8', run with OpenVINO.
_OPENVINO = "onnx-int8-openvino"


def encode_benchmark(
    data: Path | None, texts: int, repeats: int = 3, model: str = "minilm", also: Sequence[str] = ()
) -> dict[str, Any]:
    """Encode the same texts with sentence-transformers, PyTorch, ONNX (32 and 8 bits), a static table and `also`.

    All alternate in one run after a warm-up pass; the best of several rounds counts. On a GPU PyTorch also runs in half
    precision, and no exports are made, which run on the CPU only.
    """
    require_peer()
    from sentence_transformers import SentenceTransformer

    dataset, inputs = _read_texts(data, texts)
    encoder = Encoder.load(model)
    if isinstance(encoder, ExportedEncoder):
        raise TurnwiseError(f"{model} is an exported model: name the model that it was exported from")
    device = torch.device(encoder.device)
    peer = SentenceTransformer(str(locate_model(model)), device=str(device))
    skipped = skipped_tiers(device.type)
    with tempfile.TemporaryDirectory() as temporary:
        encoders = {TORCH: encoder}
        if device.type == "cuda":
            encoders[f"{TORCH}-float16"] = Encoder.load(model, precision="float16")
            encoders[f"{TORCH}-bfloat16"] = Encoder.load(model, precision="bfloat16")
        for tier in _FORMATS:
            if tier not in skipped:
                export(encoder, Path(temporary) / tier, tier)
                encoders[tier] = Encoder.load(Path(temporary) / tier)
            if tier == "onnx-int8" and _OPENVINO not in skipped:
                encoders[_OPENVINO] = Encoder.load(Path(temporary) / tier, runtime="openvino")
        encoders |= {f"also {name}": Encoder.load(name) for name in also}
        compared = inputs[:8_192]  # the peer's speed does not depend on their number
        functions: dict[str, Callable[[], Any]] = {PEER: lambda: peer.encode(compared, show_progress_bar=False)}
        counts = {PEER: len(compared)}
        for name, each in encoders.items():
            passes = -(-_STATIC_TEXTS // len(inputs)) if _is_static(each) else 1
            functions[name], counts[name] = partial(_encode, each, inputs, passes), passes * len(inputs)
        # also the warm-up
        vectors = {name: _normalise(function()[: len(compared)]) for name, function in functions.items()}
        best = best_times(functions, repeats)
    rates = {name: counts[name] / best[name] for name in functions}
    packages = {"onnxruntime": "onnx", "openvino": _OPENVINO, "model2vec": "static"}
    return {
        "tiers": [
            {
                "tier": name,
                "texts_per_second": rates[name],
                "ratio": rates[name] / rates[PEER],
                **_compare(vectors[name], vectors[PEER], same_space=not _is_static(encoders.get(name))),
            }
            for name in functions
        ],
        "ratio": rates[TORCH] / rates[PEER],
        "skipped": skipped,
        "dataset": dataset,
        "texts": len(inputs),
        "tokens_per_text": sum(map(len, encoder.tokenise(inputs))) / len(inputs),
        "repeats": repeats,
        "model": model,
        "device": str(device),
        "threads": torch.get_num_threads(),
        "environment": describe_environment(
            "sentence-transformers", "torch", *(name for name, tier in packages.items() if tier not in skipped)
        ),
    }


def _is_static(encoder: Encoder | None) -> bool:
    return isinstance(encoder, ExportedEncoder) and isinstance(encoder.model, StaticTable)


def _encode(encoder: Encoder, texts: list[str], passes: int) -> npt.NDArray[np.float32]:
    for _ in range(passes):
        vectors = encoder.encode(texts)
    return vectors


def _read_texts(data: Path | None, count: int) -> tuple[str, list[str]]:
    """Return the name of a corpus and the texts of its first turns."""
    if data is None:
        name, dialogues = "sample", sample_dialogues(count, 1)
    else:
        folder = schema_guided_folder(data)
        name, reader = folder.name, get_reader(folder.name)
        dialogues = reader.read(CorpusSource(folder, name, lambda _: None, encoding=reader.encoding))
    turns = chain.from_iterable(dialogue.turns for dialogue in dialogues)
    return name, [turn.text for turn in islice(turns, count)]


def skipped_tiers(device: str) -> dict[str, str]:
    """Return the tiers that cannot be measured on a device, with the reasons."""
    skipped: dict[str, str] = {}
    for tier, packages in (*_FORMATS.items(), (_OPENVINO, (*_ONNX_PACKAGES, "openvino"))):
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if missing:
            skipped[tier] = f"{missing[0]} is not installed: pip install 'turnwise[{EXTRAS[missing[0]]}]'"
        elif device != "cpu":
            skipped[tier] = f"runs on the CPU only, and the device is {device}"
    return skipped


def _normalise(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float64).tiny))


def _compare(
    vectors: npt.NDArray[np.float64], reference: npt.NDArray[np.float64], same_space: bool
) -> dict[str, float | None]:
    """Compare vectors directly if they share a space, and by the rank correlation of their pairwise cosines."""
    pairs = np.triu_indices(min(len(vectors), _COMPARED_TEXTS), 1)
    cosines_of_pairs = [(each[:_COMPARED_TEXTS] @ each[:_COMPARED_TEXTS].T)[pairs] for each in (vectors, reference)]
    correlation = float(spearmanr(*cosines_of_pairs).statistic)
    if not same_space:
        return {"cosine_mean": None, "cosine_lowest": None, "max_difference": None, "rank_correlation": correlation}
    cosines = (vectors * reference).sum(1)
    return {
        "cosine_mean": float(cosines.mean()),
        "cosine_lowest": float(cosines.min()),
        "max_difference": float(np.abs(vectors - reference).max()),
        "rank_correlation": correlation,
    }
