"""The service under load (driven by wrk) and its start, compared with a FastAPI handler for sentence-transformers."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.cli.benchmarks.common import PEER, require_peer
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.models.backbone.source import locate_model
from turnwise.version import describe_environment

#: Numbers of concurrent clients.
CLIENTS = (1, 8, 64)

#: Names of the servers in the results.
TURNWISE, SYNC, ASYNC = "turnwise", "sentence_transformers_def", "sentence_transformers_async_def"

#: Number of distinct texts that the clients send in rotation.
_TEXTS = 2_000

#: Seconds to wait for a server.
_TIMEOUT = 300

#: The script for wrk.
_SCRIPT = Path(__file__).with_name("load.lua")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Throughput and latency of a server with some number of clients, each waiting for its answer."""

    server: str
    clients: int
    requests_per_second: float
    median_milliseconds: float
    p99_milliseconds: float
    failed: int


def serve_benchmark(
    model: str = "minilm",
    *,
    clients: Sequence[int] = CLIENTS,
    seconds: int = 10,
    repeats: int = 3,
    also: Sequence[str] = (),
    progress: Progress = silent,
) -> dict[str, Any]:
    """Measure `turnwise serve`, and sentence-transformers behind a handler that is `def` or `async def`.

    All servers use the same model and texts, run in one process each from the beginning, and alternate, so that other
    load on the machine affects all; the round with the highest throughput counts. The ratio is to the better handler.
    `also` names further models for `turnwise serve`, such as exports of the same model.
    """
    require_peer()
    if shutil.which("wrk") is None:
        raise TurnwiseError(
            "wrk, which generates the load, is not installed: install it, for example `apt install wrk`"
        )
    texts = sample_texts()
    commands = {SYNC: peer_command(model, "sync"), ASYNC: peer_command(model, "async"), **serve_commands(model, also)}
    results: dict[tuple[str, int], list[LoadResult]] = {}
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        work = Path(temporary)
        requests = work / "bodies"
        requests.write_text("".join(json.dumps({"inputs": [text]}) + "\n" for text in texts), encoding="utf-8")
        total = 1 + repeats * len(clients)
        progress("starting", 0, total)
        addresses = {
            name: stack.enter_context(running_server(command, work / name)) for name, command in commands.items()
        }
        compared = texts[:: len(texts) // 64]
        difference = _max_difference(addresses[TURNWISE], addresses[SYNC], compared)
        usage = _post(f"{addresses[TURNWISE]}v1/embeddings", {"input": compared})["usage"]
        for address in addresses.values():  # warm-up
            _drive("", address, max(clients), 2, requests)
        for number in range(repeats * len(clients)):
            count = clients[number % len(clients)]
            progress(f"loads: {count} clients", number, total)
            for name, address in addresses.items():
                results.setdefault((name, count), []).append(_drive(name, address, count, seconds, requests))
                _post(f"{address}embed", {"inputs": texts[:1]})  # wait until leftover requests are finished
    best = {key: max(each, key=lambda result: result.requests_per_second) for key, each in results.items()}
    return {
        "loads": [asdict(result) for result in best.values()],
        "ratios": {str(count): compute_ratio(best, count) for count in clients},
        "max_difference": difference,
        "texts": len(texts),
        "tokens_per_text": usage["prompt_tokens"] / len(compared),
        "seconds": seconds,
        "repeats": repeats,
        "model": model,
        "environment": describe_environment("sentence-transformers", "torch", "fastapi", "uvicorn"),
    }


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


def compute_ratio(best: dict[tuple[str, int], LoadResult], clients: int) -> float:
    """Return our throughput relative to the better of the peer's two handlers."""
    peer = max(best[name, clients].requests_per_second for name in (SYNC, ASYNC))
    return best[TURNWISE, clients].requests_per_second / peer if peer else float("inf")


def sample_texts() -> list[str]:
    """Return distinct texts of the sample corpus."""
    texts = dict.fromkeys(turn.text for dialogue in sample_dialogues(_TEXTS, 1) for turn in dialogue.turns)
    return list(texts)[:_TEXTS]


def peer_command(model: str, kind: str) -> list[str]:
    """Return the command that starts the peer on a free port; `kind` is sync or async."""
    return [sys.executable, "-m", "turnwise.cli.benchmarks.serving_peer", str(locate_model(model)), kind]


def serve_command(model: str) -> list[str]:
    """Return the command that starts the service on a free port."""
    return [sys.executable, "-c", "from turnwise.cli import main; main()", "serve", "--model", model, "--port", "0"]


def serve_commands(model: str, also: Sequence[str]) -> dict[str, list[str]]:
    """Return the commands that start the service with a model and with each further one, by server name."""
    return {TURNWISE: serve_command(model)} | {f"{TURNWISE} {Path(each).name}": serve_command(each) for each in also}


@contextlib.contextmanager
def running_server(command: Sequence[str], log: Path) -> Iterator[str]:
    """Run a server and yield its address once it answers."""
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors)
    try:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            with contextlib.suppress(OSError, ValueError, StopIteration):
                log_lines = log.read_text(encoding="utf-8").splitlines()  # libraries may print warnings first
                address = str(json.loads(next(line for line in log_lines if '"address"' in line))["address"])
                _post(f"{address}embed", {"inputs": ["Hello there."]})
                break
            if process.poll() is not None or time.monotonic() > deadline:
                output = log.read_text(encoding="utf-8")[-2_000:]
                raise TurnwiseError(f"`{' '.join(command)}` does not answer; its output: {output}")
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _post(address: str, body: object) -> Any:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
        return json.load(response)


def _max_difference(first: str, second: str, texts: Sequence[str]) -> float:
    ours, theirs = (np.array(_post(f"{address}embed", {"inputs": texts})["vectors"]) for address in (first, second))
    return float(np.abs(ours - theirs).max())


def _drive(name: str, address: str, clients: int, seconds: int, requests: Path) -> LoadResult:
    """Put a server under load for some seconds, with a file of request bodies."""
    options = f"--threads 1 --connections {clients} --duration {seconds}s --timeout {_TIMEOUT}s".split()
    command = ["wrk", *options, "--script", str(_SCRIPT), address, "--", str(requests)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise TurnwiseError(f"wrk failed: {process.stderr.strip() or process.stdout.strip()}")
    summary = json.loads(process.stdout.strip().splitlines()[-1])
    return LoadResult(
        name,
        clients,
        (summary["answers"] - summary["failed"]) / summary["microseconds"] * 1e6,
        summary["median"] / 1e3,
        summary["p99"] / 1e3,
        summary["failed"],
    )
