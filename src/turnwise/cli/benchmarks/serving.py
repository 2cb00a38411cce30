"""The service under load (driven by wrk), compared with a FastAPI handler for sentence-transformers."""

import contextlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.cli.benchmarks.common import require_peer
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.models.backbone.source import locate_model
from turnwise.version import describe_environment

#: Names of the servers in the results.
TURNWISE, SYNC, ASYNC = "turnwise", "sentence_transformers_def", "sentence_transformers_async_def"

#: Seconds to wait for a server.
_TIMEOUT = 300


def serve_benchmark(
    model: str, clients: Sequence[int] = (1, 8, 64), seconds: int = 10, repeats: int = 3, also: Sequence[str] = ()
) -> dict[str, Any]:
    """Measure `turnwise serve`, and sentence-transformers behind a handler that is `def` or `async def`.

    All servers run from the beginning and take turns; the round with the highest throughput counts.
    """
    require_peer()
    if shutil.which("wrk") is None:
        raise TurnwiseError("wrk is not installed: install it, for example `apt install wrk`")
    all_texts = dict.fromkeys(turn.text for dialogue in sample_dialogues(2_000, 1) for turn in dialogue.turns)
    texts = list(all_texts)[:2_000]  # which the clients send in rotation
    commands = {SYNC: peer_command(model, "sync"), ASYNC: peer_command(model, "async"), **serve_commands(model, also)}
    best: dict[tuple[str, int], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        work = Path(temporary)
        requests = work / "bodies"
        requests.write_text("".join(json.dumps({"inputs": [text]}) + "\n" for text in texts), encoding="utf-8")
        addresses = {
            name: stack.enter_context(running_server(command, work / name)) for name, command in commands.items()
        }
        compared = texts[:: len(texts) // 64]
        ours, theirs = (
            np.array(_post(f"{addresses[name]}embed", {"inputs": compared})["vectors"]) for name in (TURNWISE, SYNC)
        )
        usage = _post(f"{addresses[TURNWISE]}v1/embeddings", {"input": compared})["usage"]
        for address in addresses.values():  # warm-up
            _drive(address, max(clients), 2, requests)
        for count in [*clients] * repeats:
            for name, address in addresses.items():
                load = {"server": name, "clients": count, **_drive(address, count, seconds, requests)}
                best[name, count] = max(best.get((name, count), load), load, key=_rate)
                _post(f"{address}embed", {"inputs": texts[:1]})  # wait until leftover requests are finished
    peers = {count: max(_rate(best[name, count]) for name in (SYNC, ASYNC)) for count in clients}
    return {
        "loads": list(best.values()),
        "ratios": {str(count): _rate(best[TURNWISE, count]) / (rate or math.nan) for count, rate in peers.items()},
        "max_difference": float(np.abs(ours - theirs).max()),
        "texts": len(texts),
        "tokens_per_text": usage["prompt_tokens"] / len(compared),
        "seconds": seconds,
        "repeats": repeats,
        "model": model,
        "environment": describe_environment("sentence-transformers", "torch", "fastapi", "uvicorn"),
    }


def _rate(load: dict[str, Any]) -> float:
    return float(load["requests_per_second"])


def peer_command(model: str, kind: str) -> list[str]:
    """Return the command that starts the peer on a free port; `kind` is sync or async."""
    return [sys.executable, "-m", "turnwise.cli.benchmarks.serving_peer", str(locate_model(model)), kind]


def serve_commands(model: str, also: Sequence[str]) -> dict[str, list[str]]:
    """Return the commands that start the service with a model and with each further one, by server name."""
    names = {TURNWISE: model} | {f"{TURNWISE} {Path(each).name}": each for each in also}
    command = [sys.executable, "-c", "from turnwise.cli import main; main()", "serve", "--port", "0", "--model"]
    return {server: [*command, name] for server, name in names.items()}


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


def _drive(address: str, clients: int, seconds: int, requests: Path) -> dict[str, Any]:
    """Put a server under load with a file of request bodies; return throughput and latency."""
    options = f"--threads 1 --connections {clients} --duration {seconds}s --timeout {_TIMEOUT}s".split()
    script = Path(__file__).with_name("load.lua")
    command = ["wrk", *options, "--script", str(script), address, "--", str(requests)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise TurnwiseError(f"wrk failed: {process.stderr.strip() or process.stdout.strip()}")
    summary = json.loads(process.stdout.strip().splitlines()[-1])
    return {
        "requests_per_second": (summary["answers"] - summary["failed"]) / summary["microseconds"] * 1e6,
        "median_milliseconds": summary["median"] / 1e3,
        "p99_milliseconds": summary["p99"] / 1e3,
        "failed": summary["failed"],
    }
