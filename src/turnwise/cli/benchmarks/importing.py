"""Import speed compared with `json.load`."""

import json
import tempfile
from pathlib import Path
from typing import Any

from turnwise.cli.benchmarks.common import best_times, schema_guided_folder
from turnwise.core.progress import Progress, silent
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.version import describe_environment


def import_benchmark(data: Path | None, repeats: int, progress: Progress = silent) -> dict[str, Any]:
    """Import Schema-Guided into a store, and parse the same files with `json.load`; the best of several runs each."""
    folder = schema_guided_folder(data)
    files = sorted(folder.rglob("dialogues_*.json"))

    def parse() -> None:
        for path in files:
            with path.open(encoding="utf-8") as file:
                json.load(file)

    with tempfile.TemporaryDirectory() as temporary:
        store = Path(temporary) / "store"
        best = best_times(
            {"parse": parse, "import": lambda: import_corpus(folder.name, folder, store)}, repeats, progress
        )
    return {
        "json_load_seconds": best["parse"],
        "import_seconds": best["import"],
        "ratio": best["import"] / best["parse"],
        "repeats": repeats,
        "environment": describe_environment(),
    }
