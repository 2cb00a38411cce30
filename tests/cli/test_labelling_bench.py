"""The benchmark of labelling effort: how actions are counted, and that an interrupted run continues."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.small_map import texts_and_vectors
from turnwise.cli.benchmarks import labelling
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance

INTENTS = ("boat trip", "garden work", "clock repair", "bread order")


class FakeEncoder:
    """Encodes known texts; intents have the mean vector of their texts."""

    def __init__(self, texts: list[str], vectors: np.ndarray, topics: np.ndarray):
        means = [vectors[topics == topic].mean(0) for topic in range(len(INTENTS))]
        self.vectors = dict(zip(texts, vectors, strict=True)) | dict(zip(INTENTS, means, strict=True))

    def encode(self, texts: list[str], **_: Any) -> np.ndarray:
        vectors = np.array([self.vectors[text] for text in texts], np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def world() -> tuple[IntentData, FakeEncoder]:
    texts, vectors, topics = texts_and_vectors(160, spread=0.3)
    texts = [f"{text} {row}" for row, text in enumerate(texts)]
    utterances = tuple(IntentUtterance(text, INTENTS[topic]) for text, topic in zip(texts, topics, strict=True))
    return IntentData("banking77", train=utterances[:120], test=utterances[120:]), FakeEncoder(texts, vectors, topics)


def test_answers_label_each_text_once_with_its_intent(world: tuple[IntentData, FakeEncoder]) -> None:
    data, encoder = world
    texts, intents = [each.text for each in data.train], [each.intent for each in data.train]
    answers = list(labelling.answer_questions(encoder.encode(texts), intents, 1_000, 0))
    assert sorted(row for rows in answers for row in rows) == list(range(120))
    assert all(len({intents[row] for row in rows}) == 1 for rows in answers)
    assert 12 <= len(answers) < 100 and max(map(len, answers)) == 10
    # all of this is a prefix of what a more patient person answers
    assert list(labelling.answer_questions(encoder.encode(texts), intents, 5, 0))[:5] == answers[:5]


def test_missing_names_are_actions(world: tuple[IntentData, FakeEncoder]) -> None:
    data, encoder = world
    intents = [each.intent for each in data.train]
    fitted = dict(labelling._fitted("questions", encoder, data.train, [4, 5, 6, 30], 0))
    answers = list(labelling.answer_questions(encoder.encode([each.text for each in data.train]), intents, 30, 0))
    for step, classifier in fitted.items():
        assert sorted(classifier.classes_) == sorted(INTENTS)
        texts = {text for text, _ in classifier.model_.examples.pairs}
        used = next(used for used in range(31) if sum(map(len, answers[:used])) == len(texts))
        assert texts == {data.train[row].text for rows in answers[:used] for row in rows}
        named = {intents[row] for rows in answers[:used] for row in rows}
        assert used + len(INTENTS) - len(named) <= step
    assert len(fitted[30].model_.examples.pairs) > 30  # groups label more texts than there are actions


def test_results_are_kept(world: tuple[IntentData, FakeEncoder], tmp_path: Path, monkeypatch: Any) -> None:
    data, encoder = world
    monkeypatch.setattr(labelling, "load_intents", lambda name, folder: data)
    arguments = ("valid", 1, ["banking77"], lambda *_: None)
    first = labelling.labelling_benchmark(tmp_path, tmp_path, encoder, *arguments)
    lines = (tmp_path / "valid.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 3 * 7 and (tmp_path / "banking77-valid.svg").read_text().startswith("<")
    assert first["banking77"]["intents"] == 4 and first["banking77"]["reference"] > 90
    assert {method: [step for step, _ in curve] for method, curve in first["banking77"]["accuracy"].items()} == {
        method: [4, 5, 6, 8, 12, 16, 20] for method in labelling.METHODS
    }
    assert {tuple(json.loads(line)) for line in lines} == {("key", "accuracy")}
    (tmp_path / "valid.jsonl").write_text("\n".join(lines[:-3]) + "\n")
    assert labelling.labelling_benchmark(tmp_path, tmp_path, encoder, *arguments) == first
    assert sorted((tmp_path / "valid.jsonl").read_text().splitlines()) == sorted(lines)
    assert labelling.labelling_benchmark(tmp_path, tmp_path, None, *arguments) == first  # nothing is computed
