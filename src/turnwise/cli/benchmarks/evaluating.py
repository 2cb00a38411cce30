"""Evaluating, beside encoding the same inputs with sentence-transformers."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.cli.benchmarks.shared import NO_PEER, seconds_of
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.version import describe_environment

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from turnwise.models.encoder import Encoder


def evaluate_benchmark(
    data: Path, model: str = "minilm", datasets: Sequence[str] = (), progress: Progress = silent
) -> dict[str, Any]:
    """The DSE suite without fine-tuning, beside encoding the very same inputs once with sentence-transformers.

    Both with the same weights, on the same device, in one run. Ours is timed with all it does: reading the data, encoding, figures,
    intervals, tables and pictures; theirs are the calls of `encode` alone, with its defaults but for the tokens of an input, which
    are cut where ours are: a call for each such length. Both models are loaded and have encoded something before. Ours comes first,
    because what it encodes is what theirs is given; what the machine does slowly for the first time falls on ours.

    Args:
        data: a folder of data sets, or a sample world.
        model: 'minilm', a model folder or a Hugging Face id.
        datasets: these alone; none: all that are there.
        progress: told which of the two is at work.

    Raises:
        TurnwiseError: if there is nothing to measure on, or the peer is not installed.
    """
    # imported here: they take seconds
    from turnwise import evaluate
    from turnwise.models.backbone.source import locate_model
    from turnwise.models.encoder import Encoder
    from turnwise.models.loading import SentenceTransformerEncoder, wrap_model

    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise TurnwiseError(NO_PEER) from None
    encoder = Encoder.load(model)
    device = str(encoder.backbone.device)
    peer = SentenceTransformerEncoder(SentenceTransformer(str(locate_model(model)), device=device))
    for each in (encoder, peer):
        each.encode(["Hello there.", "Is the table by the window still free tonight?"])
    recorder = _Recorder(encoder)
    progress("turnwise", 0, 2)
    ours = seconds_of(
        lambda: evaluate(
            replace(wrap_model(encoder, model), encoder=recorder),
            data,
            suite="dse",
            datasets=datasets,
            fine_tuning=False,
        )
    )
    progress("sentence-transformers", 1, 2)
    theirs = seconds_of(
        lambda: [peer.encode(inputs, max_length=longest) for longest, inputs in recorder.inputs.items()]
    )
    return {
        "evaluate_seconds": ours,
        "encoding_seconds": recorder.seconds,
        "sentence_transformers_seconds": theirs,
        "ratio": theirs / ours,
        "texts": sum(map(len, recorder.inputs.values())),
        "model": model,
        "datasets": list(datasets),
        "device": device,
        "environment": describe_environment("sentence-transformers", "torch", "transformers"),
    }


class _Recorder:
    """An encoder that remembers what it encoded, by the length that inputs were cut to, and how long that took."""

    def __init__(self, encoder: "Encoder"):
        self._encoder = encoder
        self.inputs: dict[int | None, list[Any]] = {}
        self.seconds = 0.0

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> "npt.NDArray[np.float32]":
        """Vectors (inputs, size)."""
        self.inputs.setdefault(max_length, []).extend(inputs)
        start = time.perf_counter()
        vectors = self._encoder.encode(inputs, normalise=normalise, max_length=max_length)
        self.seconds += time.perf_counter() - start
        return vectors
