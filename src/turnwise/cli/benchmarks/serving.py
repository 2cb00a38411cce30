"""The service under load, beside a plain FastAPI handler that calls sentence-transformers: both in one run, driven by wrk."""

import contextlib
import importlib.util
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

from turnwise.cli.benchmarks.shared import NO_PEER
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.version import describe_environment

#: Clients at once.
CLIENTS = (1, 8, 64)

#: The servers of a run, by what the figures call them.
TURNWISE, SYNC, ASYNC = "turnwise", "sentence_transformers_def", "sentence_transformers_async_def"

#: Different texts that are asked about, over and over.
_TEXTS = 2_000

#: Seconds until a server has to answer.
_PATIENCE = 300

#: Each request is one text; the answer to everything comes as a line of JSON at the end.
_SCRIPT = """
local requests, place = {}, 0

init = function(arguments)
  for body in io.lines(arguments[1]) do
    requests[#requests + 1] = wrk.format("POST", "/embed", {["Content-Type"] = "application/json"}, body)
  end
end

request = function()
  place = place % #requests + 1
  return requests[place]
end

done = function(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '\\n{"answers": %d, "microseconds": %d, "median": %d, "p99": %d, "failed": %d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What a server did under a load.

    Attributes:
        server: which one.
        clients: that each waited for an answer before they asked again.
        requests_per_second: that were answered with vectors; a request is one text.
        median_milliseconds: of an answer.
        p99_milliseconds: that 99 of 100 answers took at most.
        failed: requests that were not answered with vectors.
    """

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
    """Throughput and latency of `turnwise serve`, and of sentence-transformers behind a handler that is `def` or `async def`.

    The same model and the same texts, one text a request, one process each. All servers run from the beginning and are asked in
    turn, so that what else the machine does falls on all; of each the round with the greatest throughput counts. The ratio is to
    the better of the two handlers.

    Args:
        model: 'minilm', a model folder or a Hugging Face id.
        clients: how many at once, one load after the other.
        seconds: that a load takes.
        repeats: rounds.
        also: models that `turnwise serve` is measured with besides, such as exports of the same model.
        progress: told of the loads.

    Raises:
        TurnwiseError: if wrk, the service or the peer is not installed, or a server does not answer.
    """
    _check_installed()
    from turnwise.models.backbone.source import locate_model

    texts = _texts()
    peer = [sys.executable, "-m", "turnwise.cli.benchmarks.serving_peer", str(locate_model(model))]
    commands = {SYNC: [*peer, "sync"], ASYNC: [*peer, "async"], TURNWISE: _serve(model)}
    commands |= {f"{TURNWISE} {Path(each).name}": _serve(each) for each in also}
    loads: dict[tuple[str, int], list[Load]] = {}
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as running:
        place = Path(temporary)
        (place / "load.lua").write_text(_SCRIPT, encoding="utf-8")
        (place / "bodies").write_text(
            "".join(json.dumps({"inputs": [text]}) + "\n" for text in texts), encoding="utf-8"
        )
        total = 1 + repeats * len(clients)
        progress("starting", 0, total)
        addresses = {name: running.enter_context(_started(command, place / name)) for name, command in commands.items()}
        some = texts[:: len(texts) // 64]
        difference = _greatest_difference(addresses[TURNWISE], addresses[SYNC], some)
        tokens = _ask(f"{addresses[TURNWISE]}v1/embeddings", {"input": some})["usage"]["prompt_tokens"] / len(some)
        for address in addresses.values():  # what is slow for the first time alone
            _loaded("", address, max(clients), 2, place)
        for number in range(repeats * len(clients)):
            at_once = clients[number % len(clients)]
            progress(f"loads: {at_once} clients", number, total)
            for name, address in addresses.items():
                loads.setdefault((name, at_once), []).append(_loaded(name, address, at_once, seconds, place))
                _ask(
                    f"{address}embed", {"inputs": texts[:1]}
                )  # what clients left behind is done before the next one's turn
    best = {key: max(each, key=lambda load: load.requests_per_second) for key, each in loads.items()}
    return {
        "loads": [asdict(load) for load in best.values()],
        "ratios": {str(each): _ratio(best, each) for each in clients},
        "greatest_difference": difference,
        "texts": len(texts),
        "tokens_of_a_text": tokens,
        "seconds": seconds,
        "repeats": repeats,
        "model": model,
        "environment": describe_environment("sentence-transformers", "torch", "fastapi", "uvicorn"),
    }


def _ratio(best: dict[tuple[str, int], Load], clients: int) -> float:
    theirs = max(best[name, clients].requests_per_second for name in (SYNC, ASYNC))
    return best[TURNWISE, clients].requests_per_second / theirs if theirs else float("inf")


def _check_installed() -> None:
    from turnwise.serve.settings import check_installed

    check_installed()
    if shutil.which("wrk") is None:
        raise TurnwiseError(
            "wrk is not installed, by which both are driven: install it, for instance by `apt install wrk`"
        )
    if importlib.util.find_spec("sentence_transformers") is None:
        raise TurnwiseError(NO_PEER)


def _texts() -> list[str]:
    """What people and systems of the sample world say, each once."""
    texts: dict[str, None] = {}
    for dialogue in sample_dialogues(_TEXTS, 1):
        texts |= dict.fromkeys(turn.text for turn in dialogue.turns)
    return list(texts)[:_TEXTS]


# ---- servers


def _serve(model: str) -> list[str]:
    return [sys.executable, "-c", "from turnwise.cli import main; main()", "serve", "--model", model, "--port", "0"]


@contextlib.contextmanager
def _started(command: Sequence[str], log: Path) -> Iterator[str]:
    """The address of a server that answers, as long as it is needed."""
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors)
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            with contextlib.suppress(OSError, ValueError, StopIteration):
                address = str(json.loads(_address_line(log))["address"])
                _ask(f"{address}embed", {"inputs": ["Hello there."]})
                break
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(encoding="utf-8")[-2_000:]
                raise TurnwiseError(f"`{' '.join(command)}` does not answer; it said: {said}")
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address_line(log: Path) -> str:
    """The first line that a server says where it is; libraries may warn before."""
    return next(line for line in log.read_text(encoding="utf-8").splitlines() if '"address"' in line)


def _ask(address: str, body: object) -> Any:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        return json.load(answer)


def _greatest_difference(ours: str, theirs: str, texts: Sequence[str]) -> float:
    import numpy as np

    first, second = (np.array(_ask(f"{each}embed", {"inputs": texts})["vectors"]) for each in (ours, theirs))
    return float(np.abs(first - second).max())


# ---- loads


def _loaded(name: str, address: str, clients: int, seconds: int, place: Path) -> Load:
    """Drives a server for some seconds."""
    how = ["--threads", "1", "--connections", str(clients), "--duration", f"{seconds}s", "--timeout", f"{_PATIENCE}s"]
    command = ["wrk", *how, "--script", str(place / "load.lua"), address, "--", str(place / "bodies")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TurnwiseError(f"wrk failed: {done.stderr.strip() or done.stdout.strip()}")
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return Load(
        name,
        clients,
        (told["answers"] - told["failed"]) / told["microseconds"] * 1e6,
        told["median"] / 1e3,
        told["p99"] / 1e3,
        told["failed"],
    )
