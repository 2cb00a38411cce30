"""How long the service takes to start, compared with a plain FastAPI handler that calls sentence-transformers."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.cli.benchmarks.common import PEER, require_peer
from turnwise.cli.benchmarks.serving import peer_command, running_server, serve_commands
from turnwise.core.progress import Progress, silent
from turnwise.version import describe_environment


def startup_benchmark(
    model: str = "minilm", *, repeats: int = 3, also: Sequence[str] = (), progress: Progress = silent
) -> dict[str, Any]:
    """Measure the time from the start of a process to its first response, which includes loading and encoding.

    The servers start one after the other in each round; the shortest time counts. `also` names further models for
    `turnwise serve`, such as exports of the same model.
    """
    require_peer()
    servers = {PEER: peer_command(model, "sync"), **serve_commands(model, also)}
    seconds: dict[str, list[float]] = {name: [] for name in servers}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats):
            progress("rounds", number, repeats)
            for name, command in servers.items():
                seconds[name].append(_time_start(command, Path(folder) / "log"))
    best = {name: min(each) for name, each in seconds.items()}
    return {
        "servers": [{"server": name, "seconds": each, "ratio": best[PEER] / each} for name, each in best.items()],
        "repeats": repeats,
        "model": model,
        "environment": describe_environment("sentence-transformers", "torch", "fastapi", "uvicorn"),
    }


def _time_start(command: Sequence[str], log: Path) -> float:
    start = time.perf_counter()
    with running_server(command, log):
        return time.perf_counter() - start
