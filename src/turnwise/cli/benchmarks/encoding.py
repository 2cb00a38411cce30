"""Encoding, beside sentence-transformers: torch, and the tiers that `turnwise export` makes."""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.cli.benchmarks.shared import NO_PEER, best_seconds, schema_guided
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.registry import get_reader
from turnwise.corpus.source import CorpusSource
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.version import describe_environment

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from turnwise.models.encoder import Encoder
    from turnwise.models.export import ExportFormat

#: The tiers of a run, by what the figures call them.
PEER, TORCH = "sentence_transformers", "turnwise"
ONNX: "ExportFormat" = "onnx"
INT8: "ExportFormat" = "onnx-int8"
STATIC: "ExportFormat" = "static"

#: How often a round of the static tier goes over the texts: one pass is too short to be timed.
_PASSES = 20

#: Texts whose cosines to one another are compared at most: 523,776 pairs.
_COMPARED = 1024

#: What a tier needs besides.
_ONNX = ("onnx", "onnxscript", "onnxruntime")
_PACKAGES: dict["ExportFormat", tuple[str, ...]] = {ONNX: _ONNX, INT8: _ONNX, STATIC: ("model2vec", "skeletoken")}
_EXTRAS = {ONNX: "onnx", INT8: "onnx", STATIC: "static"}


@dataclass(frozen=True, slots=True)
class Tier:
    """What one way of encoding comes to.

    Attributes:
        tier: which one.
        texts_per_second: the best of the rounds.
        ratio: the same, to sentence-transformers'.
        cosine_mean: of its vectors to sentence-transformers'; None where they lie in another space.
        cosine_lowest: the least of them; None likewise.
        greatest_difference: of a number of vectors of length 1; None likewise.
        agreement: the rank correlation (Spearman) of the cosines between texts with sentence-transformers' cosines.
    """

    tier: str
    texts_per_second: float
    ratio: float
    cosine_mean: float | None
    cosine_lowest: float | None
    greatest_difference: float | None
    agreement: float


def encode_benchmark(
    data: Path | None, texts: int = 512, repeats: int = 3, model: str = "minilm", progress: Progress = silent
) -> dict[str, Any]:
    """Encoding the same texts by sentence-transformers, by torch here, by onnxruntime in 32 and eight bits, and by a static table.

    All with the same weights, in one run and in turn, the best of several rounds each; all are loaded and have encoded the texts
    once before. sentence-transformers runs by torch with its defaults. On a GPU the graphs, which run on the CPU alone, are left
    out.

    Args:
        data: a folder with Schema-Guided, whose first turns are encoded; None: the sample world's.
        texts: how many.
        repeats: rounds.
        model: 'minilm', a model folder or a Hugging Face id.
        progress: told of the exports and the rounds.

    Raises:
        TurnwiseError: if the peer is not installed, or there is no such model or corpus.
    """
    # imported here: they take seconds
    import torch

    from turnwise.models.backbone.exported import ExportedBackbone
    from turnwise.models.backbone.source import locate_model
    from turnwise.models.encoder import Encoder

    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise TurnwiseError(NO_PEER) from None
    dataset, said = _said(data, texts)
    ours = Encoder.load(model)
    if isinstance(ours.backbone, ExportedBackbone):
        raise TurnwiseError(
            f"{model} is exported already, and this exports the model itself: name the one that it was made of"
        )
    device = ours.backbone.device
    peer = SentenceTransformer(str(locate_model(model)), device=str(device))
    left_out = _left_out(device.type)
    with tempfile.TemporaryDirectory() as temporary:
        encoders = {TORCH: ours} | _exported(
            ours, [tier for tier in _PACKAGES if tier not in left_out], Path(temporary), progress
        )
        works: dict[str, Callable[[], Any]] = {PEER: lambda: peer.encode(said, show_progress_bar=False)}
        works |= {name: _work(encoder, said, name) for name, encoder in encoders.items()}
        vectors = {name: _unit(work()) for name, work in works.items()}  # once before anything is timed
        best = best_seconds(works, repeats, progress)
    rates = {name: len(said) * (_PASSES if name == STATIC else 1) / taken for name, taken in best.items()}
    packages = {"onnxruntime": ONNX, "model2vec": STATIC}
    return {
        "tiers": [asdict(_tier(name, rates, vectors)) for name in works],
        "ratio": rates[TORCH] / rates[PEER],
        "left_out": left_out,
        "dataset": dataset,
        "texts": len(said),
        "tokens_of_a_text": sum(map(len, ours.tokenise(said))) / len(said),
        "repeats": repeats,
        "model": model,
        "device": str(device),
        "threads": torch.get_num_threads(),
        "environment": describe_environment(
            "sentence-transformers", "torch", *(name for name, tier in packages.items() if tier not in left_out)
        ),
    }


def _said(data: Path | None, count: int) -> tuple[str, list[str]]:
    """The name of a corpus, and the texts of its first turns."""
    if data is None:
        name, dialogues = "sample", sample_dialogues(count, 1)
    else:
        folder = schema_guided(data)
        name, reader = folder.name, get_reader(folder.name)
        dialogues = reader.read(CorpusSource(folder, name, lambda _: None, reader.encoding))
    return name, list(
        islice(chain.from_iterable((turn.text for turn in dialogue.turns) for dialogue in dialogues), count)
    )


def _left_out(device: str) -> dict[str, str]:
    """The tiers that cannot be measured, and why."""
    found: dict[str, str] = {}
    for tier, packages in _PACKAGES.items():
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if missing:
            found[tier] = f"{missing[0]} is not installed: pip install 'turnwise[{_EXTRAS[tier]}]'"
        elif device != "cpu" and tier != STATIC:
            found[tier] = f"it runs on the CPU alone, and this is {device}"
    return found


def _exported(
    encoder: "Encoder", tiers: Sequence["ExportFormat"], place: Path, progress: Progress
) -> dict[str, "Encoder"]:
    from turnwise.models.encoder import Encoder
    from turnwise.models.export import export

    for tier in tiers:
        export(encoder, place / tier, tier, progress=progress)
    return {tier: Encoder.load(place / tier) for tier in tiers}


def _work(encoder: "Encoder", texts: list[str], tier: str) -> Callable[[], "npt.NDArray[np.float32]"]:
    def passes() -> "npt.NDArray[np.float32]":
        for _ in range(_PASSES if tier == STATIC else 1):
            vectors = encoder.encode(texts)
        return vectors

    return passes


def _unit(vectors: "npt.NDArray[np.float32]") -> "npt.NDArray[np.float64]":
    import numpy as np

    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float64).tiny))


def _tier(name: str, rates: dict[str, float], vectors: dict[str, "npt.NDArray[np.float64]"]) -> Tier:
    import numpy as np
    from scipy.stats import spearmanr

    ours, theirs = vectors[name], vectors[PEER]
    pairs = np.triu_indices(min(len(ours), _COMPARED), 1)
    agreement = spearmanr(*((each[:_COMPARED] @ each[:_COMPARED].T)[pairs] for each in (ours, theirs))).statistic
    speed = (rates[name], rates[name] / rates[PEER])
    if name == STATIC:
        return Tier(name, *speed, None, None, None, float(agreement))
    cosines = (ours * theirs).sum(1)
    return Tier(
        name, *speed, float(cosines.mean()), float(cosines.min()), float(np.abs(ours - theirs).max()), float(agreement)
    )
