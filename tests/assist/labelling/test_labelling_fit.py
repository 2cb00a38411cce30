"""Fitting a classifier on the labels of a map, and the commands for labelling."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.topic_dialogues import TOPICS
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.labelling.labelling import Labelling
from turnwise.assist.map.clustering import describe_clusters
from turnwise.assist.map.utterance_map import MapUtterance, UtteranceMap
from turnwise.cli import app
from turnwise.core.errors import MapError, TurnwiseError

GROUPS = list(TOPICS)


def save_map(folder: Path, model: str = "") -> Path:
    """Save a map of texts about three topics and of unrelated ones."""
    random = np.random.default_rng(0)
    texts = [
        f"{random.choice(TOPICS[topic])} {random.choice(TOPICS[topic])} {number}"
        for topic in GROUPS
        for number in range(12)
    ]
    texts += [f"zebra quartz {number} violin" for number in range(12)]
    vectors = BagOfWords().encode(texts)
    labels = np.repeat([0, 1, 2, -1], 12).astype(np.int32)
    UtteranceMap(
        [MapUtterance(text, count=1) for text in texts],
        vectors,
        vectors[:, :2].copy(),
        labels,
        describe_clusters(texts, labels, vectors),
        model,
    ).save(folder)
    return folder


def test_classifier_is_fitted_on_labels(tmp_path: Path) -> None:
    encoder = BagOfWords()
    with Labelling.open(save_map(tmp_path / "map")) as labelling:
        for number, name in enumerate(GROUPS):
            labelling.name(number, name)
        classifier = labelling.fit(encoder)
        assert encoder.encoded == 8 + len(GROUPS)  # only the probes that identify the encoder, and the names
        assert list(classifier.classes_) == sorted(GROUPS) and len(classifier.model_.examples.labels) == 36
        assert list(classifier.predict(["mast and deck", "rose hedge"])) == ["boats", "gardens"]
        assert labelling.fit(encoder, head="neighbours").head == "neighbours"
        other = labelling.fit(BagOfWords("another"))
        assert list(other.predict(["pendulum chime dial"])) == ["clocks"]


def test_out_of_scope_utterances_are_not_an_intent(tmp_path: Path) -> None:
    with Labelling.open(save_map(tmp_path / "map")) as labelling:
        labelling.label(list(range(36, 48)), "out_of_scope")
        with pytest.raises(MapError, match="name a group first"):
            labelling.fit(BagOfWords())
        for number, name in enumerate(GROUPS):
            labelling.name(number, name)
        classifier = labelling.fit(BagOfWords())
        assert list(classifier.classes_) == sorted(GROUPS)
        assert list(classifier.predict(["zebra violin quartz"])) == ["out_of_scope"]


def test_map_without_a_model_needs_an_encoder(tmp_path: Path) -> None:
    with Labelling.open(save_map(tmp_path / "map")) as labelling:
        labelling.name(0, "boats")
        with pytest.raises(MapError, match="does not name its encoder"):
            labelling.fit()


# ---- commands


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_labelling_by_commands(tmp_path: Path) -> None:
    folder = save_map(tmp_path / "map")
    assert "36 of 48" not in run("labels", "status", folder) and not (folder / "labels.jsonl").exists()
    run("labels", "name", folder, 0, "boats")
    run("labels", "name", folder, 1, "gardens")
    run("labels", "split", folder, 2, "--parts", 2)
    status = json.loads(run("labels", "status", folder, "--json"))
    assert (status["texts"], status["labelled"], status["intents"], status["changes"]) == (48, 24, 2, 3)
    numbers = [group["number"] for group in status["groups"]]
    assert sorted(numbers) == [0, 1, 2, 3]
    run("labels", "merge", folder, 2, 3, "--name", "clocks")
    run("labels", "set", folder, 36, 37, "--name", "out_of_scope")
    run("labels", "set", folder, 0)
    run("labels", "undo", folder)
    run("labels", "undo", folder)
    run("labels", "redo", folder)
    questions = json.loads(run("labels", "next", folder, "--count", 3, "--json"))["questions"]
    assert len(questions) == 3 and not {36, 37} & {question["row"] for question in questions}
    assert "similar" in run("labels", "next", folder, "--count", 1)
    assert "38 of them labelled" in run("labels", "export", folder, "--out", tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open(encoding="utf-8-sig", newline="") as file:
        intents = [row["intent"] for row in csv.DictReader(file)]
    assert intents == ["boats"] * 12 + ["gardens"] * 12 + ["clocks"] * 12 + ["out_of_scope"] * 2 + [""] * 10
    shown = run("labels", "status", folder)
    assert "38 of 48 texts" in shown and "boats" in shown
    later = save_map(tmp_path / "later")
    assert "38 of 48 texts" in run("labels", "carry", later, "--from", folder)


def test_finish_writes_classifier_and_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnwise.models.encoder import Encoder

    monkeypatch.setattr(Encoder, "load", lambda *given, **named: BagOfWords())
    folder = save_map(tmp_path / "map", "made-up")
    for number, name in enumerate(GROUPS):
        run("labels", "name", folder, number, name)
    result = json.loads(run("labels", "finish", folder, "--out", tmp_path / "intents", "--json"))
    assert (result["intents"], result["labelled"]) == (3, 36)
    again = IntentClassifier.load(tmp_path / "intents")
    assert list(again.predict(["mast deck"])) == ["boats"] and again.encoder == "made-up"
    assert (tmp_path / "intents" / "labels.csv").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["name", "MAP", "7", "x"], "no group 7"),
        (["set", "MAP", "99", "--name", "x"], "numbered from 0 to 47"),
        (["status", "OUT"], "is not a map"),
        (["carry", "MAP", "--from", "OUT"], "is not a map"),
    ],
)
def test_invalid_commands_raise_errors(tmp_path: Path, arguments: list[str], message: str) -> None:
    places = {"MAP": str(save_map(tmp_path / "map")), "OUT": str(tmp_path / "out")}
    with pytest.raises(TurnwiseError, match=message):
        CliRunner().invoke(app, ["labels", *(places.get(each, each) for each in arguments)], catch_exceptions=False)
    assert not (tmp_path / "map" / "labels.jsonl").exists()


def test_labels_are_exported_to_rasa(tmp_path: Path) -> None:
    folder = save_map(tmp_path / "map")
    run("labels", "name", folder, 0, "boats")
    run("labels", "set", folder, 36, "--name", "out_of_scope")
    assert "13 dialogues, 13 utterances" in run("labels", "export", folder, "--out", tmp_path / "nlu.yml")
    sections = yaml.safe_load((tmp_path / "nlu.yml").read_text(encoding="utf-8"))["nlu"]
    assert [section["intent"] for section in sections] == ["boats", "out_of_scope"]
    assert sections[1]["examples"] == "- zebra quartz 0 violin\n"
