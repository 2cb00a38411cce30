"""Timing and data shared by the benchmarks."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from turnwise.core.errors import TurnwiseError
from turnwise.core.imports import require

#: The name of the peer in the results of most benchmarks.
PEER = "sentence_transformers"


def require_peer(*packages: str) -> None:
    """Raise an error if sentence-transformers, the peer of most benchmarks, or another package of it is missing."""
    require(PEER, *packages, extra="compare")


def time_call(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def best_times(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the shortest time of each function; rounds alternate, so that other load on the machine affects all."""
    best = dict.fromkeys(functions, math.inf)
    for _ in range(repeats):
        for name, function in functions.items():
            best[name] = min(best[name], time_call(function))
    return best


def schema_guided_folder(data: Path | None) -> Path:
    """Return the folder of Schema-Guided within a data folder, or raise an error that says how to get it."""
    folder = data / "schema_guided_dialogue" if data else None
    if folder is None or not folder.is_dir():
        problem = f"{folder} does not exist" if folder else "no data folder was given"
        raise TurnwiseError(
            f"{problem}: fetch it (turnwise corpus fetch schema_guided_dialogue --out DIR/schema_guided_dialogue) and"
            " name DIR with --data or the environment variable TURNWISE_DATA"
        )
    return folder
