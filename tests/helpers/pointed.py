"""Points whose models were never made, with figures that a test can know."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.evaluation.outcomes import Outcome
from turnwise.evaluation.results import Results
from turnwise.papers.sweeps.points import Point

#: What the diaeval suite is summed up by, and the data sets that these points have of it.
MEMBERS = (
    ("actions", "gsim", "frozen encoder, MLP", "Micro F1"),
    ("actions", "dstc2", "frozen encoder, MLP", "Micro F1"),
    ("responses", "irc_ubuntu_100", "0-shot similarity, history", "Top-3"),
)

_EXAMPLES = {"gsim": 150, "dstc2": 220, "irc_ubuntu_100": 400}


def outcomes(right: float, seed: int = 0, members: Sequence[tuple[str, str, str, str]] = MEMBERS) -> list[Outcome]:
    """Figures of a model that is right on so large a share of examples, the easy ones first, whichever model it is."""
    found = []
    for number, (task, dataset, setting, metric) in enumerate(members):
        hard = np.random.default_rng(number).random((2, _EXAMPLES.get(dataset, 100)))
        noise = np.random.default_rng([seed, number]).normal(scale=0.02, size=hard.shape)
        found.append(Outcome(task, dataset, setting, metric, (hard + noise < right).astype(np.float64)))
    return found


def results(right: float, seed: int = 0, suite: str = "diaeval") -> Results:
    found = Results(f"model {seed}", suite)
    found.add(outcomes(right, seed))
    return found


def point(name: str, place: dict[str, Any], right: float | None, seed: int = 0, failure: str = "") -> Point:
    """A point; one that is never right at all was not measured."""
    measured = () if right is None else (results(right, seed),)
    return Point(name, place, Path("models") / name, measured, failure)
