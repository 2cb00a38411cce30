"""Intents with almost no labels: accuracy and rejection by examples, names of intents, and logs of four kinds.

python benchmarks/intents_from_names.py DATA OUT [--split test] [--seeds 3]      writes OUT/SPLIT.jsonl
python benchmarks/intents_from_names.py DATA OUT --report [--split test]         prints its tables
"""

import argparse
import json
import multiprocessing
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich import print as show

from turnwise import Encoder, IntentClassifier
from turnwise.assist.intents.examples import describe_intent
from turnwise.cli.benchmarks.labelling import CachedEncoder, sample_examples, split_data
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.evaluation.datasets.intents import load_intents

SETS = ("clinc150", "banking77", "hwu64", "snips", "atis", "massive")
SHOTS = (0, 1, 2, 5, 10)
METHODS = ("prototypes", "today", "names", "full", "500", "long-tailed", "half foreign")

#: Sets whose training texts stand for the other half of a log: they share no domain with the first.
FOREIGN = {
    "clinc150": ("banking77", "atis"),
    "banking77": ("clinc150", "hwu64", "snips", "atis"),
    "hwu64": ("banking77", "atis"),
    "snips": ("banking77", "atis"),
    "massive": ("banking77", "atis"),
    "atis": ("banking77", "clinc150"),
}


def make_log(kind: str, texts: list[str], intents: list[str], foreign: list[str], seed: int) -> list[str]:
    """Return a log of a kind, made of training texts without their labels."""
    random = np.random.default_rng(seed + 100)
    if kind == "500":
        return [texts[row] for row in random.permutation(len(texts))[:500]]
    if kind == "long-tailed":  # the frequency of an intent is inverse to its rank
        names, counts = np.unique(intents, return_counts=True)
        ranks, most = 1 + random.permutation(len(names)), 4 * np.median(counts)
        sizes = [int(min(count, max(1, most / rank))) for count, rank in zip(counts, ranks, strict=True)]
        members = [random.permutation(np.flatnonzero(np.array(intents) == name)) for name in names]
        rows = np.concatenate([own[:size] for own, size in zip(members, sizes, strict=True)])
        return [texts[row] for row in rows]
    if kind == "half foreign":
        size = min(len(texts), len(foreign))
        return [each[row] for each in (texts, foreign) for row in random.permutation(len(each))[:size]]
    return texts


def evaluate(classifier: IntentClassifier, test: list[Any], outside: list[str]) -> dict[str, float]:
    """Return the accuracy without abstention, false rejection, out-of-scope recall and AUROC, in percent."""
    texts, truth = [each.text for each in test], np.array([each.intent for each in test])
    probabilities = classifier.predict_proba(texts)
    correct = classifier.classes_[probabilities.argmax(1)] == truth
    values = {
        "accuracy": correct.mean(),
        "false rejection": (classifier.predict(texts) == OUT_OF_SCOPE).mean(),
        "calibration error": abs(probabilities.max(1).mean() - correct.mean()),
    }
    if outside:
        from sklearn.metrics import roc_auc_score

        inside, others = ([each.score for each in classifier.decide(part, neighbours=0)] for part in (texts, outside))
        labels = np.repeat([1, 0], [len(inside), len(others)])
        values["AUROC"] = roc_auc_score(labels, [*inside, *others])
        values["out-of-scope recall"] = (classifier.predict(outside) == OUT_OF_SCOPE).mean()
    return {name: 100 * float(value) for name, value in values.items()}


def run_sample(data_folder: Path, path: Path, split: str, methods: list[str], name: str, seed: int) -> None:
    """Evaluate methods on one sample of a data set, and append the results to a file."""
    done = {tuple(json.loads(line)["key"]) for line in path.read_text().splitlines()} if path.exists() else set()
    encoder = CachedEncoder(Encoder.load("turnwise-small"))
    data = load_intents(name, data_folder)
    train, test = split_data(data, split)
    others = data.out_of_scope
    outside = list(others.test if split == "test" else others.valid + others.train)
    texts, intents = [each.text for each in train], [each.intent for each in train]
    foreign = [each.text for other in FOREIGN[name] for each in load_intents(other, data_folder).train]
    descriptions = {intent: describe_intent(intent) or intent for intent in sorted(set(intents))}
    for shots in SHOTS:
        chosen = sample_examples(intents, shots, seed)
        examples = [texts[row] for row in chosen], [intents[row] for row in chosen]
        for method in methods:
            key = (name, shots, seed, method)
            if key in done or (shots == 0 and method in ("prototypes", "today")):
                continue
            log = None
            if method not in ("prototypes", "today", "names"):
                log = make_log(method, texts, intents, foreign, seed)
            uses_names = method not in ("prototypes", "today")
            rate = None if (log is None and shots == 0) or (not uses_names and shots == 1) else 0.05
            classifier = IntentClassifier(
                encoder,
                head="prototypes" if method == "prototypes" else "auto",
                use_names=uses_names,
                false_rejection=rate,
                seed=seed,
            )
            classifier.fit(*examples, log=log, descriptions=descriptions if uses_names else None)
            row = {"key": key, **evaluate(classifier, test, outside)}
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
    show(name, seed, flush=True)


def report(path: Path) -> None:
    """Print a table of means over seeds for every measure."""
    values: dict[Any, list[float]] = defaultdict(list)
    for line in path.read_text().splitlines():
        row = json.loads(line)
        name, shots, _, method = row.pop("key")
        for measure, value in row.items():
            values[measure, method, name, shots].append(value)
            if name in SETS[:4]:
                values[measure, method, "mean of four", shots].append(value)
    for measure in ("accuracy", "false rejection", "AUROC", "out-of-scope recall", "calibration error"):
        for name in ("mean of four", *SETS):
            cells = {key: np.mean(each) for key, each in values.items() if key[0] == measure and key[2] == name}
            if cells:
                show(f"\n{measure}, {name}\n\n| | {' | '.join(map(str, SHOTS))} |\n|---|{'--:|' * len(SHOTS)}")
            for method in dict.fromkeys(key[1] for key in cells):
                each = [cells.get((measure, method, name, shots)) for shots in SHOTS]
                show(f"| {method} | {' | '.join('–' if value is None else f'{value:.1f}' for value in each)} |")


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--split", choices=("valid", "test"), default="test")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.report:
        report(arguments.out / f"{arguments.split}.jsonl")
    else:
        path = arguments.out / f"{arguments.split}.jsonl"
        with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as pool:
            samples = [(name, seed) for seed in range(arguments.seeds) for name in arguments.sets]
            jobs = [
                pool.submit(run_sample, arguments.data, path, arguments.split, arguments.methods, *sample)
                for sample in samples
            ]
            for job in jobs:
                job.result()


if __name__ == "__main__":
    main()
