"""Load files with limits on memory and time: `python -m tests.helpers.loading_trial KIND=PATH …`.

Each file is loaded in a process of its own. It may use 2 GB more than a process that has loaded nothing, and 20 seconds
of CPU time. A JSON object with the error of each is printed: its class, its message, and the peak of memory in MB.
"""

import importlib
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import turnwise
from tests.helpers.bag_of_words import BagOfWords
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.storage import IntentFolder
from turnwise.assist.map.utterance_map import UtteranceMap
from turnwise.assist.search.table import VectorTable
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.storage.store import Store

EXTRA = 2_000_000_000


def load_table(path: Path) -> None:
    import pyarrow as pa

    table = VectorTable.open(path, "vectors", size=4, columns=pa.schema([("text", pa.string())]))
    list(table.search(np.eye(4, dtype=np.float32)[:1], 3))


def load_log(path: Path) -> None:
    from tests.helpers.reading import read_directly

    dialogues, rejections, _ = read_directly("table", path)
    assert not dialogues
    if rejections:
        raise TurnwiseError(rejections[0].reason)


LOADERS: dict[str, Callable[[Path], Any]] = {
    "model": lambda path: turnwise.Encoder.load(path).encode(["where is my parcel"]),
    "store": lambda path: list(Store(path)),
    "log": load_log,
    "map": UtteranceMap.load,
    "classifier": lambda path: IntentClassifier.load(path, encoder=BagOfWords()),
    "journal": lambda path: IntentFolder.open(path, encoder=BagOfWords()),
    "table": load_table,
}


def load(kind: str, path: Path) -> dict[str, Any]:
    """Return the outcome of loading a file in this process."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + EXTRA, used + EXTRA))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error, message = "", ""
    try:
        LOADERS[kind](path)
    except BaseException as reason:
        error = "TurnwiseError" if isinstance(reason, TurnwiseError) else type(reason).__name__
        message = str(reason)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"error": error, "message": message, "megabytes": grown // 1024}


def main(arguments: list[str]) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in ("turnwise.models.trainable_encoder", "turnwise.models.exported_encoder", "onnxruntime"):
        importlib.import_module(module)
    results = {}
    for argument in arguments:
        kind, _, path = argument.partition("=")
        read, write = os.pipe()
        if not (child := os.fork()):
            os.write(write, json.dumps(load(kind, Path(path))).encode()[:60_000])
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            outcome = pipe.read()
        _, status = os.waitpid(child, 0)
        results[argument] = (
            json.loads(outcome) if outcome else {"error": f"status {status}", "message": "", "megabytes": 0}
        )
    sys.stdout.write("\n" + json.dumps(results) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
