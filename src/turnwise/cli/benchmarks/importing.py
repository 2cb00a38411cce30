"""Importing, beside `json.load` alone."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnwise.cli.benchmarks.shared import best_seconds, schema_guided
from turnwise.core.progress import Progress, silent
from turnwise.corpus.importing import import_corpus
from turnwise.version import describe_environment


def import_benchmark(data: Path | None, repeats: int, progress: Progress = silent) -> dict[str, Any]:
    """Importing Schema-Guided into a store, beside `json.load` alone over the same files; the best of several runs each."""
    folder = schema_guided(data)
    files = sorted(folder.rglob("dialogues_*.json"))

    def load() -> None:
        for path in files:
            with path.open(encoding="utf-8") as file:
                json.load(file)

    with tempfile.TemporaryDirectory() as temporary:
        store = Path(temporary) / "store"
        works: dict[str, Callable[[], object]] = {
            "load": load,
            "import": lambda: import_corpus(folder.name, folder, store),
        }
        best = best_seconds(works, repeats, progress)
    return {
        "json_load_seconds": best["load"],
        "import_seconds": best["import"],
        "ratio": best["import"] / best["load"],
        "repeats": repeats,
        "environment": describe_environment(),
    }
