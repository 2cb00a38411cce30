"""What benchmarks share."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent

#: Said where the peer is missing.
NO_PEER = "the peer is not installed: pip install 'turnwise[compare]'"


def seconds_of(work: Callable[[], object]) -> float:
    """How long some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_seconds(
    works: Mapping[str, Callable[[], object]], repeats: int, progress: Progress = silent
) -> dict[str, float]:
    """How long each of several works takes: the best of some rounds, in turn, so that what else the machine does falls on all."""
    best = dict.fromkeys(works, math.inf)
    for repeat in range(repeats):
        progress("rounds", repeat, repeats)
        for name, work in works.items():
            best[name] = min(best[name], seconds_of(work))
    return best


def schema_guided(data: Path | None) -> Path:
    """The folder of Schema-Guided in a data folder.

    Raises:
        TurnwiseError: if it is not there.
    """
    folder = data / "schema_guided_dialogue" if data else None
    if folder is None or not folder.is_dir():
        where = f"{folder} is not there" if folder else "no data folder was named"
        raise TurnwiseError(
            f"{where}: fetch the corpus (turnwise corpus fetch schema_guided_dialogue --out DIR/schema_guided_dialogue),"
            " then name DIR by --data or the environment variable TURNWISE_DATA"
        )
    return folder
