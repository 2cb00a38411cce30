"""A classifier on disk whose examples change: acknowledged changes survive a kill, exactly once."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.intent_examples import EXAMPLES, pairs
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.storage import IntentFolder, read_classifier, replace_classifier
from turnwise.core.errors import IntentError, ProjectError
from turnwise.core.journal import Journal

NEW = [("when do you open", "hours"), ("are you open on sunday", "hours"), ("your opening times", "hours")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(IntentClassifier, "load_encoder", lambda self: BagOfWords())
    IntentClassifier("named").fit(*pairs()).save(tmp_path / "intents")
    return tmp_path / "intents"


def _pairs(folder):
    with IntentFolder.open(folder) as opened:
        return set(opened.classifier.model_.examples.pairs)


def test_changes_are_durable_before_they_are_acknowledged(folder):
    opened = IntentFolder.open(folder)
    assert opened.add(NEW) == 3
    assert opened.add([(NEW[0][0].upper(), "hours")]) == 0
    assert opened.remove([NEW[2], ("not an example", "hours")]) == 1
    assert opened.remove(intent="refund") == len(EXAMPLES["refund"])
    assert opened.remove(intent="never") == 0
    expected = set(opened.classifier.model_.examples.pairs)
    queries = ["do you open on sunday", "my money back", "where is my parcel"]
    decisions = opened.classifier.decide(queries)
    # visible to readers without a lock, and applied by the next process that opens it
    assert [each.intent for each in read_classifier(folder).decide(queries)] == [each.intent for each in decisions]
    opened.close()
    assert _pairs(folder) == expected
    assert (folder / "changes.jsonl").read_bytes() == b""
    again = read_classifier(folder).decide(queries)
    assert [(each.intent, each.score, each.threshold) for each in again] == [
        (each.intent, pytest.approx(each.score), pytest.approx(each.threshold)) for each in decisions
    ]


def test_last_change_of_an_example_wins(folder):
    opened = IntentFolder.open(folder)
    text, intent = NEW[0]
    opened.add([NEW[0], NEW[1]])
    opened.remove([(text.upper(), intent), NEW[1]])
    opened.add([(f" {text.upper()}", intent)])
    opened.close()
    pairs_ = {pair for pair in _pairs(folder) if pair[1] == intent}
    assert {(added.strip().lower(), own) for added, own in pairs_} == {NEW[0]}


def test_replaying_applied_changes_is_harmless(folder):
    opened = IntentFolder.open(folder)
    opened.add(NEW)
    opened.remove([NEW[0]])
    expected = set(opened.classifier.model_.examples.pairs)
    opened.close()
    journal = (folder / "changes.jsonl").read_bytes()
    assert _pairs(folder) == expected
    # as after a kill between writing the classifier and clearing the journal
    (folder / "changes.jsonl").write_bytes(journal)
    assert _pairs(folder) == expected


def test_failed_writes_change_nothing(folder, monkeypatch):
    opened = IntentFolder.open(folder)
    before = opened.classifier.model_

    def refuse(self, entry):
        raise ProjectError("full")

    monkeypatch.setattr(Journal, "append", refuse)
    with pytest.raises(ProjectError):
        opened.add(NEW)
    with pytest.raises(ProjectError):
        opened.remove(intent="refund")
    assert opened.classifier.model_ is before


def test_only_one_process_can_open_it(folder):
    with IntentFolder.open(folder) as opened:
        with pytest.raises(ProjectError, match="open in another process"):
            IntentFolder.open(folder)
        with pytest.raises(ProjectError, match="open in another process"):
            replace_classifier(opened.classifier, folder)
    with IntentFolder.open(folder) as opened:
        opened.add(NEW)
        classifier = opened.classifier
        classifier.fit(*pairs())
    replace_classifier(classifier, folder)
    assert not [pair for pair in _pairs(folder) if pair[1] == "hours"]


def test_invalid_changes_leave_nothing_behind(folder, tmp_path):
    with pytest.raises(IntentError, match="holds no intent classifier"):
        IntentFolder.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with IntentFolder.open(folder) as opened:
        with pytest.raises(IntentError, match="non-blank"):
            opened.add([("hello", "greeting"), (" ", "greeting")])
        with pytest.raises(IntentError, match="would be left"):
            opened.remove(opened.classifier.model_.examples.pairs)
    assert (folder / "changes.jsonl").read_bytes() == b""
    (folder / "changes.jsonl").write_text('{"rename": []}\n')
    with pytest.raises(IntentError, match="neither adds nor removes"):
        IntentFolder.open(folder)


def test_predictions_are_not_affected_by_concurrent_additions(folder):
    opened = IntentFolder.open(folder)
    failed: list[BaseException] = []

    def decide():
        try:
            for _ in range(60):
                assert opened.classifier.decide(["where is my parcel"])[0].intent == "track_order"
        except BaseException as error:
            failed.append(error)

    def add(number):
        for place in range(5):
            opened.add([(f"something {number} {place}", f"intent {number}")])

    threads = [threading.Thread(target=decide), *(threading.Thread(target=add, args=(number,)) for number in range(3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    opened.close()
    assert sum(pair[1].startswith("intent ") for pair in _pairs(folder)) == 15


@pytest.mark.full
def test_acknowledged_changes_survive_a_kill(folder):
    script = textwrap.dedent(
        """
        import sys
        from tests.helpers.bag_of_words import BagOfWords
        from turnwise.assist.intents.storage import IntentFolder
        with IntentFolder.open(sys.argv[1], encoder=BagOfWords()) as opened:
            for number in range(10**6):
                opened.add([(f"thing {sys.argv[2]} {number}", "things")])
                print(number, flush=True)
        """
    )
    for turn, acknowledged in enumerate((1, 20)):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(folder), str(turn)],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        last = [int(process.stdout.readline()) for _ in range(acknowledged)][-1]
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        last = max([last, *map(int, rest)])
        stored = [text for text, intent in _pairs(folder) if intent == "things" and text.startswith(f"thing {turn} ")]
        assert {f"thing {turn} {number}" for number in range(last + 1)} <= set(stored)
        assert len(stored) == len(set(stored)) <= last + 2
