"""Speed of evaluating the DSE suite, compared with encoding the same inputs once with sentence-transformers.

`python benchmarks/evaluating.py DATA [--model minilm] [--dataset NAME]`
"""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import typer

from turnwise import evaluate
from turnwise.cli.benchmarks.common import require_peer, time_call
from turnwise.models.backbone.source import locate_model
from turnwise.models.encoder import Encoder
from turnwise.models.loading import SentenceTransformerEncoder, wrap_model
from turnwise.version import describe_environment


def evaluate_benchmark(data: Path, model: str = "minilm", datasets: Sequence[str] = ()) -> dict[str, Any]:
    """Time the DSE suite without fine-tuning, and encoding the same inputs once with sentence-transformers.

    Our time includes everything from reading the data to tables; the peer's is `encode` alone, with the same lengths.
    """
    require_peer()
    from sentence_transformers import SentenceTransformer

    encoder = Encoder.load(model)
    device = encoder.device
    peer = SentenceTransformerEncoder(SentenceTransformer(str(locate_model(model)), device=device))
    for each in (encoder, peer):
        each.encode(["Hello there.", "Is the table by the window still free tonight?"])
    recorder = _RecordingEncoder(encoder)
    under_test = replace(wrap_model(encoder, model), encoder=recorder)
    seconds = time_call(lambda: evaluate(under_test, data, suite="dse", datasets=datasets, fine_tuning=False))
    peer_seconds = time_call(
        lambda: [peer.encode(inputs, max_length=max_length) for max_length, inputs in recorder.inputs.items()]
    )
    return {
        "evaluate_seconds": seconds,
        "encoding_seconds": recorder.seconds,
        "sentence_transformers_seconds": peer_seconds,
        "ratio": peer_seconds / seconds,
        "texts": sum(map(len, recorder.inputs.values())),
        "model": model,
        "datasets": list(datasets),
        "device": device,
        "environment": describe_environment("sentence-transformers", "torch", "transformers"),
    }


class _RecordingEncoder:
    """An encoder that records its inputs by maximum length, and the time spent encoding."""

    def __init__(self, encoder: Encoder):
        self._encoder = encoder
        self.inputs: dict[int | None, list[Any]] = {}
        self.seconds = 0.0

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        self.inputs.setdefault(max_length, []).extend(inputs)
        start = time.perf_counter()
        vectors = self._encoder.encode(inputs, normalise=normalise, max_length=max_length)
        self.seconds += time.perf_counter() - start
        return vectors


def main(data: Path, model: str = "minilm", dataset: list[str] | None = None) -> None:
    """Print the result; `data` holds the data sets of the suite."""
    typer.echo(json.dumps(evaluate_benchmark(data, model, dataset or ()), indent=2))


if __name__ == "__main__":
    typer.run(main)
