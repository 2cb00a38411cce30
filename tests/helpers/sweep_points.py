"""Sweep points with synthetic results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.results import Results
from turnwise.papers.sweeps.experiment import SweepPoint

#: The results that the summaries of the diaeval suite average.
RESULT_KEYS = (
    ("actions", "gsim", "frozen encoder, MLP", "Micro F1"),
    ("actions", "dstc2", "frozen encoder, MLP", "Micro F1"),
    ("responses", "irc_ubuntu_100", "0-shot similarity, history", "Top-3"),
)

_TEST_SET_SIZES = {"gsim": 150, "dstc2": 220, "irc_ubuntu_100": 400}


def outcomes(accuracy: float, seed: int = 0, keys: Sequence[tuple[str, str, str, str]] = RESULT_KEYS) -> list[Outcome]:
    """Return outcomes with about this accuracy; the difficulty of the examples is the same for all models."""
    sampled = []
    for number, (task, dataset, setting, metric) in enumerate(keys):
        difficulty = np.random.default_rng(number).random((2, _TEST_SET_SIZES.get(dataset, 100)))
        noise = np.random.default_rng([seed, number]).normal(scale=0.02, size=difficulty.shape)
        sampled.append(Outcome(task, dataset, setting, metric, (difficulty + noise < accuracy).astype(np.float64)))
    return sampled


def results(accuracy: float, seed: int = 0, suite: str = "diaeval") -> Results:
    results = Results(f"model {seed}", suite)
    results.add(outcomes(accuracy, seed))
    return results


def point(
    name: str, parameters: dict[str, Any], accuracy: float | None, seed: int = 0, failure: str = ""
) -> SweepPoint:
    """Return a point; without an accuracy it has no results."""
    evaluated = () if accuracy is None else (results(accuracy, seed),)
    return SweepPoint(name, parameters, Path("models") / name, evaluated, failure)
