"""Benchmarks: turnwise beside what people use today, in one run, as ratios."""

import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnwise import __version__
from turnwise.corpus.importing import import_corpus
from turnwise.errors import TurnwiseError
from turnwise.progress import Progress, silent


def environment() -> dict[str, str]:
    """What the figures were taken on."""
    return {"turnwise": __version__, "python": platform.python_version(), "machine": platform.machine()}


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def import_benchmark(data: Path | None, repeats: int, progress: Progress = silent) -> dict[str, Any]:
    """Importing Schema-Guided into a store, beside `json.load` alone over the same files; the best of several runs each."""
    folder = data / "schema_guided_dialogue" if data else None
    if folder is None or not folder.is_dir():
        where = f"{folder} is not there" if folder else "no data folder was named"
        raise TurnwiseError(
            f"{where}: fetch the corpus (turnwise corpus fetch schema_guided_dialogue --out DIR/schema_guided_dialogue),"
            " then name DIR by --data or the environment variable TURNWISE_DATA"
        )
    files = sorted(folder.rglob("dialogues_*.json"))

    def load() -> None:
        for path in files:
            with path.open(encoding="utf-8") as file:
                json.load(file)

    loads, imports = [], []
    with tempfile.TemporaryDirectory() as temporary:
        for repeat in range(repeats):  # in turn, so that what else the machine does falls on both
            progress("rounds", repeat, repeats)
            loads.append(_seconds(load))
            imports.append(_seconds(lambda: import_corpus(folder.name, folder, Path(temporary) / "store")))
    return {
        "json_load_seconds": min(loads),
        "import_seconds": min(imports),
        "ratio": min(imports) / min(loads),
        "repeats": repeats,
        "environment": environment(),
    }
