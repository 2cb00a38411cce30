"""Speed of adding examples to a served intent classifier, one at a time by several clients, while another one predicts.

    python benchmarks/adding_examples.py [--model …] [--clients 6] [--seconds 10] [--log 5000] [--json]

fits a classifier on the sample corpus's requests, with `--log` on a tenth of them and user turns of its dialogues, and
prints the measurements. `ratio` compares the additions per second with calls of `IntentFolder.add`, which recalibrates
each time. An addition is acknowledged when it is on disk.
"""

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.storage import IntentFolder, read_examples
from turnwise.cli.benchmarks.common import time_call
from turnwise.cli.benchmarks.serving import TURNWISE, running_server, serve_commands
from turnwise.core.dialogue import USER
from turnwise.corpus.synthetic.sample import labelled_utterances, sample_dialogues
from turnwise.version import describe_environment


def measure(model: str, clients: int, seconds: float, log_texts: int) -> dict[str, Any]:
    """Return the measurements."""
    splits: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for each in labelled_utterances(1):
        splits[each.split].append((each.text, each.intent))
    valid, texts = splits["valid"], cycle({"texts": [text]} for text, _ in splits["test"])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "intents"
        turns = (
            turn.text for dialogue in sample_dialogues(log_texts, 1) for turn in dialogue.turns if turn.speaker == USER
        )
        log = list(islice(turns, log_texts)) or None
        examples = splits["train"][:: 10 if log else 1]  # with many examples, a log may not be used
        classifier = IntentClassifier(model).fit(*zip(*examples, strict=True), log=log)
        classifier.save(folder)
        with IntentFolder.open(folder, encoder=classifier.encoder_) as opened:
            call = min(time_call(partial(opened.add, [pair])) for pair in valid[:5])
        command = [*serve_commands(model, ())[TURNWISE], "--intents", str(folder)]
        with running_server(command, Path(temporary) / "log") as address, ThreadPoolExecutor(clients) as threads:
            predict = partial(run_client, address, "/intents/predict", texts)
            add = partial(run_client, address, "/intents/examples")
            predict(1)  # warm-up
            alone = predict(seconds)
            start = time.perf_counter()
            running = [threads.submit(add, additions(valid, client), seconds) for client in range(clients)]
            beside = predict(seconds)
            added = [client.result() for client in running]
            rate = sum(map(len, added)) / (time.perf_counter() - start)
            [until_used] = add(iter([{**next(additions(valid, clients)), "wait": True}]), 0)
        stored = set(read_examples(folder))
    acknowledged = [
        body["examples"][0] for n, each in enumerate(added) for body in islice(additions(valid, n), len(each))
    ]
    times = {"addition": np.concatenate(added), "prediction_alone": np.array(alone), "prediction": np.array(beside)}
    return {
        "additions_per_second": rate,
        "single_additions_per_second": 1 / call,
        "ratio": rate * call,
        **{f"{name}_median_milliseconds": 1e3 * float(np.median(each)) for name, each in times.items()},
        **{f"{name}_p99_milliseconds": 1e3 * float(np.percentile(each, 99)) for name, each in times.items()},
        "seconds_until_used": until_used,
        "lost": sum((example["text"], example["intent"]) not in stored for example in acknowledged),
        "examples": len(classifier.model_.examples.pairs),
        "log_texts": 0 if classifier.model_.log is None else len(classifier.model_.log.vectors),
        "environment": describe_environment("numpy", "fastapi", "uvicorn"),
    }


def additions(pairs: list[tuple[str, str]], client: int) -> Iterator[dict[str, Any]]:
    """Yield requests without end that each add an example; all are different, also from those of other clients."""
    for number, (text, intent) in enumerate(cycle(pairs)):
        yield {"examples": [{"text": f"{text} ({client}, {number})", "intent": intent}]}


def run_client(address: str, path: str, bodies: Iterator[dict[str, Any]], seconds: float) -> list[float]:
    """Send one request after another for some seconds, at least one; return the seconds of each."""
    times, deadline = list[float](), time.perf_counter() + seconds
    with closing(http.client.HTTPConnection(urlsplit(address).netloc)) as connection:
        while not times or time.perf_counter() < deadline:
            times.append(time_call(partial(send, connection, path, json.dumps(next(bodies)))))
    return times


def send(connection: http.client.HTTPConnection, path: str, body: str) -> None:
    """Send a request, again while too many examples are pending."""
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    if response.status == 503:
        time.sleep(float(response.headers["retry-after"]))
        send(connection, path, body)
    elif response.status != 200:
        raise RuntimeError(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="turnwise-small-int8")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--log", type=int, default=0, metavar="TEXTS", help="texts of a log to fit on as well")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.model, options.clients, options.seconds, options.log)
    lines = (f"{name}: {value}" for name, value in result.items())
    sys.stdout.write((json.dumps(result, indent=2) if options.json else "\n".join(lines)) + "\n")
