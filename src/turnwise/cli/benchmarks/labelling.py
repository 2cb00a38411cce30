"""Labelling effort: accuracy on held-out texts by the number of actions of a simulated person who knows the labels.

An action is a text labelled, a group of a question confirmed or named, a text of a group corrected, or a name typed for
an intent that no answer has named. Texts are labelled

- 'random': in random order, for a logistic regression on them;
- 'uncertain': by the lowest margin of that regression, after one random text per intent;
- 'questions': by answering what the map page asks, for the default classifier, which also learns from names and from
  the texts without a label.

A result is one line of a file; results that are there are not computed again.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import describe_intent
from turnwise.assist.labelling.active_learning import QuestionSelector
from turnwise.assist.labelling.changes import GroupAssignment, LabelChange, label_rows
from turnwise.core.plots import line_chart, write_chart
from turnwise.core.progress import Progress
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance, load_intents

DATASETS = ("banking77", "clinc150", "hwu64")
METHODS = ("random", "uncertain", "questions")

#: Actions per intent after which classifiers are evaluated, in thirds.
_CHECKPOINTS = (3, 4, 5, 6, 9, 12, 15)

#: Questions that are asked at once, as by the page, and examples per intent of the reference.
_QUESTIONS, _SHOTS = 5, 5


class CachedEncoder:
    """Encodes each text once."""

    def __init__(self, encoder: SupportsEncode):
        self._encoder = encoder
        self._known: dict[str, Vectors] = {}

    def encode(self, texts: Sequence[str], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Return normalised vectors."""
        new = sorted({text for text in texts if text not in self._known})
        if new:
            self._known.update(zip(new, self._encoder.encode(new, normalise=True, max_length=max_length), strict=True))
        return np.array([self._known[text] for text in texts], np.float32)


def split_data(data: IntentData, split: str) -> tuple[list[IntentUtterance], list[IntentUtterance]]:
    """Return training utterances and those to evaluate on, with intents of the training split only."""
    train, test = list(data.train), list(data.test if split == "test" else data.valid)
    if not test:  # BANKING77 has no validation split: a fifth of the training split is held out
        order = np.random.default_rng(5).permutation(len(train))
        test, train = [train[row] for row in order[: len(train) // 5]], [train[row] for row in order[len(train) // 5 :]]
    known = {each.intent for each in train}
    return train, [each for each in test if each.intent in known]


def sample_examples(intents: Sequence[str], shots: int, seed: int) -> list[int]:
    """Return rows of `shots` examples of each intent."""
    random, names = np.random.default_rng(seed), np.array(intents)
    return [
        int(row) for name in sorted(set(intents)) for row in random.permutation(np.flatnonzero(names == name))[:shots]
    ]


def labelling_benchmark(
    data: Path,
    out: Path,
    encoder: SupportsEncode,
    split: str,
    seeds: int,
    datasets: Sequence[str],
    progress: Progress,
) -> dict[str, Any]:
    """Compute missing results, draw a plot of each data set, and return means over seeds in percent."""
    path, cached = out / f"{split}.jsonl", CachedEncoder(encoder)
    done = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    known = {tuple(line["key"]): float(line["accuracy"]) for line in done}
    results: dict[str, Any] = {}
    for name in datasets:
        pool, test = split_data(load_intents(name, data), split)
        intents = sorted({each.intent for each in pool})
        checkpoints = [len(intents) * thirds // 3 for thirds in _CHECKPOINTS]
        for seed in range(seeds):
            for method in ("reference", *METHODS):
                steps = [_SHOTS * len(intents)] if method == "reference" else checkpoints
                missing = [step for step in steps if (name, seed, method, step) not in known]
                if not missing:
                    continue
                progress(f"{name}, {method}, seed {seed}", 0)
                # each selection of uncertain texts depends on the ones before
                for step, classifier in _fitted(
                    method, cached, pool, steps if method == "uncertain" else missing, seed
                ):
                    if step not in missing:
                        continue
                    probabilities = classifier.predict_proba([each.text for each in test])
                    predicted = classifier.classes_[probabilities.argmax(1)]
                    known[name, seed, method, step] = float((predicted == [each.intent for each in test]).mean())
                    line = {"key": [name, seed, method, step], "accuracy": known[name, seed, method, step]}
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")

        def mean(method: str, step: int, name: str = name) -> float:
            return 100 * float(np.mean([known[name, seed, method, step] for seed in range(seeds)]))

        reference = mean("reference", _SHOTS * len(intents))
        curves = {method: [(step, mean(method, step)) for step in checkpoints] for method in METHODS}
        results[name] = {"intents": len(intents), "reference": reference, "accuracy": curves}
        levels = {f"{_SHOTS} random per intent": reference}
        draw = partial(line_chart, curves, f"Labelling effort: {name}", "actions", levels=levels, from_zero=False)
        write_chart(out / f"{name}-{split}.svg", draw)
    return results


def _fitted(
    method: str, encoder: SupportsEncode, pool: Sequence[IntentUtterance], steps: Sequence[int], seed: int
) -> Iterator[tuple[int, IntentClassifier]]:
    """Yield the classifier after each number of actions."""
    texts, intents = [each.text for each in pool], [each.intent for each in pool]
    if method == "questions":
        names = set(intents)
        answers = list(answer_questions(encoder.encode(texts, normalise=True), intents, steps[-1], seed))
        for step in steps:
            rows: list[int] = []
            actions, missing = 0, names
            for answer in answers:
                left = missing - {intents[row] for row in answer}
                if actions + 1 + len(left) > step:
                    break
                rows, actions, missing = [*rows, *answer], actions + 1, left
            others = sorted(set(range(len(texts))) - set(rows))
            classifier = IntentClassifier(encoder, false_rejection=None, seed=seed)
            classifier.fit(
                [texts[row] for row in rows],
                [intents[row] for row in rows],
                log=[texts[row] for row in others],
                descriptions=dict.fromkeys(sorted(filter(describe_intent, names)), ""),  # others need an example
            )
            yield step, classifier
        return
    order = np.random.default_rng(seed).permutation(len(texts)).tolist()
    if method == "reference":
        order = sample_examples(intents, _SHOTS, seed)
    for step, following in zip(steps, [*steps[1:], 0], strict=True):
        rows = order[:step]
        settings: dict[str, Any] = {"head": "logistic", "use_names": False, "false_rejection": None, "seed": seed}
        classifier = IntentClassifier(encoder, **settings)
        classifier.fit([texts[row] for row in rows], [intents[row] for row in rows])
        yield step, classifier
        if method == "uncertain" and following:
            others = order[step:]
            highest = -np.partition(-classifier.predict_proba([texts[row] for row in others]), 1, axis=1)[:, :2]
            by_margin = np.argsort(highest[:, 0] - highest[:, 1], kind="stable")
            order = rows + [others[place] for place in by_margin]


def answer_questions(vectors: Vectors, intents: Sequence[str], count: int, seed: int) -> Iterator[list[int]]:
    """Yield the rows that each action labels: of a group those with its most frequent intent, then the others."""
    selector = QuestionSelector(vectors, np.ones(len(vectors), np.int64), seed)
    state = GroupAssignment(np.full(len(vectors), -1, np.int32))
    while count > 0 and (questions := selector.select([""] * len(vectors), state, _QUESTIONS)):
        for question in questions:
            ranked = Counter(intents[row] for row in question.rows).most_common()
            # the intent that is offered, if it is one of the most frequent ones
            common = [intent for intent, occurrences in ranked if occurrences == ranked[0][1]]
            main = question.guess if question.guess in common else common[0]
            same = [row for row in question.rows if intents[row] == main]
            for rows in [same, *([row] for row in question.rows if row not in same)]:
                change = label_rows(state, rows, intents[rows[0]])
                assert isinstance(change, LabelChange)
                state.apply(change)
                count -= 1
                yield rows
