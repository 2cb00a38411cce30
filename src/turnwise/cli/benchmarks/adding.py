"""Examples that are added to a served intent classifier one at a time, by several clients, while others predict."""

import http.client
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import IntentPair
from turnwise.assist.intents.heads import HeadChoice
from turnwise.assist.intents.storage import IntentFolder, read_examples
from turnwise.cli.benchmarks.common import time_call
from turnwise.cli.benchmarks.serving import running_server, serve_command
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.synthetic.sample import labelled_utterances
from turnwise.version import describe_environment

#: Additions that each recalibrate the classifier; the shortest time counts.
_SINGLE_ADDITIONS = 5

#: Seconds to wait for a response, and until predictions use all examples.
_TIMEOUT = 300


def examples_benchmark(
    model: str = "minilm",
    *,
    clients: int = 6,
    seconds: float = 10,
    head: HeadChoice = "auto",
    progress: Progress = silent,
) -> dict[str, Any]:
    """Measure additions per second, and the latency of one more client's predictions without and with them.

    The classifier is fitted on the sample world's requests. The ratio of additions is to one caller of
    `IntentFolder.add`, which recalibrates the classifier each time.
    """
    utterances = list(labelled_utterances(1))
    fitted = [(each.text, each.intent) for each in utterances if each.split == "train"]
    texts = [each.text for each in utterances if each.split == "test"]
    valid = [(each.text, each.intent) for each in utterances if each.split == "valid"]
    new = _new_examples(valid, "single")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "intents"
        progress("fitting", 0, 4)
        classifier = IntentClassifier(model, head=head).fit(*zip(*fitted, strict=True))
        classifier.save(folder)
        progress("single additions", 1, 4)
        with IntentFolder.open(folder, encoder=classifier.encoder_) as opened:
            single = min(time_call(lambda: opened.add([next(new)])) for _ in range(_SINGLE_ADDITIONS))
        command = [*serve_command(model), "--intents", str(folder)]
        with running_server(command, Path(temporary) / "log") as address:
            predictions = _predictions(texts)
            _run_clients(address, [predictions], 1)  # warm-up
            progress("predictions", 2, 4)
            [alone] = _run_clients(address, [predictions], seconds)
            progress("predictions and additions", 3, 4)
            acknowledged: list[IntentPair] = []
            adding = [_additions(_new_examples(valid, f"client {number}"), acknowledged) for number in range(clients)]
            start = time.monotonic()
            beside, *additions = _run_clients(address, [predictions, *adding], seconds)
            elapsed = time.monotonic() - start  # also of the last requests
            last = _wait_until_used(address)
        lost = len(set(acknowledged) - set(read_examples(folder)))
    added = np.concatenate(additions)
    return {
        "additions_per_second": len(acknowledged) / elapsed,
        "single_additions_per_second": 1 / single,
        "ratio": len(acknowledged) / elapsed * single,
        "addition_median_milliseconds": 1e3 * float(np.median(added)),
        "addition_p99_milliseconds": 1e3 * float(np.percentile(added, 99)),
        "prediction_alone_median_milliseconds": 1e3 * float(np.median(alone)),
        "prediction_median_milliseconds": 1e3 * float(np.median(beside)),
        "prediction_p99_milliseconds": 1e3 * float(np.percentile(beside, 99)),
        "prediction_ratio": float(np.median(beside) / np.median(alone)),
        "seconds_until_used": last,
        "lost": lost,
        "examples": len(fitted),
        "head": classifier.head_,
        "clients": clients,
        "seconds": seconds,
        "model": model,
        "environment": describe_environment("numpy", "fastapi", "uvicorn"),
    }


def _new_examples(pairs: Sequence[IntentPair], name: str) -> Iterator[IntentPair]:
    """Yield examples without end, all different; so are those with another name."""
    for number in itertools.count(1):
        yield from ((f"{text} ({name}, {number})", intent) for text, intent in pairs)


#: A request to repeat: the path, the body, and what to do once it is answered.
_Request = tuple[str, dict[str, Any], Callable[[], None]]


def _predictions(texts: Sequence[str]) -> Iterator[_Request]:
    for text in itertools.cycle(texts):
        yield "/intents/predict", {"texts": [text]}, lambda: None


def _additions(examples: Iterator[IntentPair], acknowledged: list[IntentPair]) -> Iterator[_Request]:
    for pair in examples:
        body = {"examples": [{"text": pair[0], "intent": pair[1]}]}
        yield "/intents/examples", body, partial(acknowledged.append, pair)


def _run_clients(address: str, requests: Sequence[Iterator[_Request]], seconds: float) -> list[list[float]]:
    """Send requests for some seconds, one client for each of the iterators; return the seconds of each request."""
    deadline = time.monotonic() + seconds

    def send_all(each: Iterator[_Request]) -> list[float]:
        times = []
        with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=_TIMEOUT)) as connection:
            while time.monotonic() < deadline:
                path, body, acknowledge = next(each)
                times.append(time_call(partial(_send, connection, path, body)))
                acknowledge()
        return times

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(send_all, requests))


def _send(connection: http.client.HTTPConnection, path: str, body: dict[str, Any] | None = None) -> Any:
    headers = {"content-type": "application/json"}
    connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    content = response.read()
    if response.status == 503:  # too many examples are pending
        time.sleep(float(response.headers["retry-after"]))
        return _send(connection, path, body)
    if response.status != 200:
        raise TurnwiseError(f"{path} was answered with {response.status}: {content.decode(errors='replace')[:500]}")
    return json.loads(content)


def _wait_until_used(address: str) -> float:
    """Return the seconds until predictions use all examples."""
    start = time.monotonic()
    with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=_TIMEOUT)) as connection:
        while _send(connection, "/intents").get("pending", 0):
            if time.monotonic() > start + _TIMEOUT:
                raise TurnwiseError(f"predictions do not use all examples after {_TIMEOUT} s")
            time.sleep(0.05)
    return time.monotonic() - start
