"""Changes to the examples of a served classifier: on disk at once, applied together in the background."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import HANG_SECONDS
from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.intent_examples import EXAMPLES, pairs
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.storage import ExampleChange, IntentFolder, read_examples
from turnwise.core.errors import IntentError, ProjectError
from turnwise.core.journal import Journal
from turnwise.serve.example_changes import ExampleChanges, RecordedChange


class PausedEncoder(BagOfWords):
    """An encoder that waits, or fails, while it encodes new examples."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_continue = threading.Event(), threading.Event()
        self.may_continue.set()
        self.error: Exception | None = None

    def encode(self, inputs: Sequence[Any], **options: Any) -> Any:
        if any("opening hours" in text for text in inputs):
            self.has_begun.set()
            assert self.may_continue.wait(HANG_SECONDS)
            if self.error is not None:
                raise self.error
        return super().encode(inputs, **options)


@pytest.fixture
def encoder() -> PausedEncoder:
    return PausedEncoder()


@pytest.fixture
def outcomes() -> list[bool]:
    """Whether each recalibration succeeded."""
    return []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: PausedEncoder) -> Path:
    monkeypatch.setattr(IntentClassifier, "load_encoder", lambda self: encoder)
    IntentClassifier("named", head="prototypes").fit(*pairs()).save(tmp_path / "intents")
    return tmp_path / "intents"


@pytest.fixture
def changes(folder: Path, encoder: PausedEncoder, outcomes: list[bool]) -> Iterator[ExampleChanges]:
    changes = ExampleChanges(IntentFolder.open(folder), outcomes.append)
    yield changes
    encoder.may_continue.set()
    changes.close()


def hours(number: int) -> tuple[str, str]:
    """Return a new example."""
    return f"your opening hours {number}", "hours"


def add(changes: ExampleChanges, *numbers: int) -> "Future[RecordedChange]":
    return changes.submit(ExampleChange.addition([hours(number) for number in numbers]))


def result(future: "Future[Any]") -> Any:
    return future.result(HANG_SECONDS)


def intent_of(changes: ExampleChanges, text: str) -> str | None:
    [decision] = changes.folder.classifier.decide([text])
    return decision.intent


def test_additions_during_a_recalibration_are_applied_together_by_the_next(
    changes: ExampleChanges, folder: Path, encoder: PausedEncoder, outcomes: list[bool]
) -> None:
    encoder.may_continue.clear()
    first = result(add(changes, 0))
    assert encoder.has_begun.wait(HANG_SECONDS)
    added = [result(future) for future in [add(changes, number) for number in range(1, 21)]]
    # all are on disk and listed, and predictions use the previous classifier
    assert [each.count for each in (first, *added)] == [1] * 21
    assert {hours(number) for number in range(21)} <= set(read_examples(folder)) & set(changes.folder.examples)
    assert (changes.folder.pending, changes.folder.intents) == (21, len(EXAMPLES) + 1)
    assert "hours" not in changes.folder.classifier.classes_
    assert intent_of(changes, "where is my parcel") == "track_order"
    encoder.may_continue.set()
    for each in (first, *added):
        result(each.applied)
    assert changes.folder.pending == 0
    assert intent_of(changes, "opening hours") == "hours"
    assert outcomes == [True, True]


class PausedJournal:
    """Makes journals wait before they write, and counts the entries of each write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.has_begun, self.may_continue = threading.Event(), threading.Event()
        append = Journal.append

        def append_later(journal: Journal, *entries: Any) -> None:
            self.sizes.append(len(entries))
            self.has_begun.set()
            assert self.may_continue.wait(HANG_SECONDS)
            append(journal, *entries)

        monkeypatch.setattr(Journal, "append", append_later)


def test_changes_that_arrive_during_a_sync_share_the_next(
    changes: ExampleChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = PausedJournal(monkeypatch)
    futures = [add(changes, 0)]
    assert journal.has_begun.wait(HANG_SECONDS)
    futures += [add(changes, number) for number in range(1, 6)]
    assert not any(future.done() for future in futures)
    journal.may_continue.set()
    assert [result(future).count for future in futures] == [1] * 6
    assert journal.sizes == [1, 5]


def test_each_client_gets_its_own_result(changes: ExampleChanges, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = PausedJournal(monkeypatch)
    first = add(changes, 0)
    assert journal.has_begun.wait(HANG_SECONDS)
    everything = [*changes.folder.examples, *(hours(number) for number in range(3))]
    added = add(changes, 1, 2)
    refused = changes.submit(ExampleChange.removal(everything))
    partly_new = add(changes, 2, 3, 3)
    duplicate = add(changes, 1)
    removed = changes.submit(ExampleChange.removal([hours(1), hours(9)]))
    abandoned = add(changes, 4)
    assert abandoned.cancel()
    journal.may_continue.set()
    with pytest.raises(IntentError, match="would be left"):
        result(refused)
    assert [result(each).count for each in (first, added, partly_new, duplicate, removed)] == [1, 2, 1, 0, 1]
    assert journal.sizes == [1, 3]
    result(result(removed).applied)
    stored = {pair for pair in changes.folder.examples if pair[1] == "hours"}
    assert stored == set(changes.folder.classifier.examples_of("hours")) == {hours(number) for number in (0, 2, 3)}


def test_a_logistic_head_keeps_two_intents(folder: Path, encoder: PausedEncoder) -> None:
    IntentClassifier("named", head="logistic").fit(["a b", "a c", "d e", "d f"], ["one", "one", "two", "two"]).save(
        folder
    )
    with IntentFolder.open(folder) as opened:
        with pytest.raises(IntentError, match="at least two intents"):
            opened.remove(intent="one")
        assert opened.pending == 0
        assert (folder / "changes.jsonl").read_bytes() == b""


def test_a_failed_recalibration_is_reported_and_tried_again(
    changes: ExampleChanges,
    folder: Path,
    encoder: PausedEncoder,
    outcomes: list[bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    encoder.error = FloatingPointError("a text of a client")
    failed = result(add(changes, 1))
    with pytest.raises(FloatingPointError):
        result(failed.applied)
    assert changes.failure == "FloatingPointError: a text of a client"
    assert (changes.folder.pending, outcomes) == (1, [False])
    assert hours(1) in read_examples(folder)
    assert intent_of(changes, "where is my parcel") == "track_order"
    [record] = [record for record in caplog.records if record.getMessage() == "not_recalibrated"]
    assert record.fields["failure"] == "FloatingPointError"  # type: ignore[attr-defined]
    assert "a text of a client" not in str(record.fields)  # type: ignore[attr-defined]
    encoder.error = None
    result(result(add(changes, 2)).applied)
    assert (changes.failure, changes.folder.pending, outcomes) == (None, 0, [False, True])
    assert set(changes.folder.classifier.examples_of("hours")) == {hours(1), hours(2)}


def test_an_example_that_cannot_be_applied_does_not_keep_a_service_from_starting(
    folder: Path, encoder: PausedEncoder, outcomes: list[bool]
) -> None:
    with IntentFolder.open(folder) as opened:
        opened.record([ExampleChange.addition([hours(1), ("I like the cinema", "films")])])
    encoder.error = FloatingPointError("not finite")
    changes = ExampleChanges(IntentFolder.open(folder, apply=False), outcomes.append)
    assert (changes.failure, changes.folder.pending) == ("FloatingPointError: not finite", 2)
    assert hours(1) in changes.folder.examples
    assert intent_of(changes, "where is my parcel") == "track_order"
    # it can be removed, and then the others are applied
    result(result(changes.submit(ExampleChange.removal([hours(1)]))).applied)
    assert (changes.failure, changes.folder.pending, outcomes) == (None, 0, [False, True])
    assert {"films", "hours"} & set(changes.folder.classifier.classes_) == {"films"}
    changes.close()
    with IntentFolder.open(folder, apply=False) as opened:
        assert opened.pending == 2  # the journal keeps the last change of each example
    encoder.error = None
    changes = ExampleChanges(IntentFolder.open(folder, apply=False), outcomes.append)
    assert (changes.failure, changes.folder.pending, outcomes[2:]) == (None, 0, [True])
    assert (folder / "changes.jsonl").read_bytes() == b""
    assert "films" in changes.folder.classifier.classes_
    changes.close()


def test_a_journal_that_cannot_be_written_is_reported_to_all_who_wait(
    changes: ExampleChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Journal, *entries: Any) -> None:
        raise ProjectError("full")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", refuse)
        futures = [add(changes, number) for number in range(3)]
        for future in futures:
            with pytest.raises(ProjectError, match="full"):
                result(future)
    assert changes.folder.pending == 0
    assert result(add(changes, 0)).count == 1


@pytest.mark.parametrize("is_applied", [True, False])
def test_closing_finishes_what_was_submitted(folder: Path, encoder: PausedEncoder, is_applied: bool) -> None:
    changes = ExampleChanges(IntentFolder.open(folder))
    encoder.error = None if is_applied else RuntimeError("broken")
    futures = [add(changes, number) for number in range(10)]
    changes.close()
    assert [result(future).count for future in futures] == [1] * 10
    assert changes.folder.pending == (0 if is_applied else 10)
    encoder.error = None
    with IntentFolder.open(folder) as opened:  # the journal has what was not applied
        assert set(opened.classifier.examples_of("hours")) == {hours(number) for number in range(10)}
