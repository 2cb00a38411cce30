"""The time from the start of `turnwise serve` to its first response, compared with a plain FastAPI handler.

`python benchmarks/starting.py [--model turnwise-small] [--also MODEL] [--repeats 3]`
"""

import json
import tempfile
import time
from pathlib import Path

import typer

from turnwise.cli.benchmarks.common import PEER, require_peer
from turnwise.cli.benchmarks.serving import peer_command, running_server, serve_commands
from turnwise.version import describe_environment


def main(model: str = "minilm", also: list[str] | None = None, repeats: int = 3) -> None:
    """Print the shortest of several times per server; `also` names further models to serve."""
    require_peer()
    servers = {PEER: peer_command(model, "sync"), **serve_commands(model, also or ())}
    seconds: dict[str, list[float]] = {name: [] for name in servers}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            for name, command in servers.items():
                start = time.perf_counter()
                with running_server(command, Path(folder) / "log"):
                    seconds[name].append(time.perf_counter() - start)
    best = {name: min(each) for name, each in seconds.items()}
    result = {
        "seconds": best,
        "ratios": {name: best[PEER] / each for name, each in best.items()},
        "environment": describe_environment("sentence-transformers", "torch", "fastapi", "uvicorn"),
    }
    typer.echo(json.dumps(result, indent=2))


if __name__ == "__main__":
    typer.run(main)
