"""Long texts in results: shortened on a terminal with 80 columns, complete in JSON."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.stores import write_store
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.models.encoder import Encoder

LONG = "where is my parcel " * 105 + "END"

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(run_turnwise: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(Encoder, "load", lambda *given, **named: BagOfWords())
    monkeypatch.setattr(IntentClassifier, "load_encoder", lambda self: BagOfWords())
    return run_turnwise


def check(run: Run, *command: object) -> None:
    """Check that a command shortens the long text, and prints it completely as JSON."""
    assert len(LONG) > 1_900
    printed = run(*command)[0]
    assert "END" not in printed and "…" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert printed.count("where is my parcel") < 60
    assert LONG in json.dumps(json.loads(run(*command, "--json")[0]))


def test_long_texts_are_shortened(run: Run, tmp_path: Path) -> None:
    dialogues = [
        Dialogue(f"d{number}", (Turn("user", LONG if number == 0 else f"hello {number}"), Turn("system", answer)))
        for number, answer in enumerate([LONG, "One moment.", "In a minute."])
    ]
    store = write_store(tmp_path / "store", dialogues, reader="sample")
    run("responses", "index", store, "--out", tmp_path / "responses")
    check(run, "responses", "suggest", tmp_path / "responses", "where is my parcel", "--top", 1)
    run("conversations", "index", store, "--out", tmp_path / "conversations")
    check(run, "conversations", "similar", tmp_path / "conversations", "where is my parcel", "--top", 1)
    examples = tmp_path / "examples.csv"
    examples.write_text(
        f"text,intent\n{LONG},track\nwhere is my parcel,track\nmy parcel is late,track\n"
        "cancel it,cancel\nplease cancel it,cancel\nI want to cancel,cancel\n",
        encoding="utf-8",
    )
    run("intents", "fit", examples, "--out", tmp_path / "intents")
    check(run, "intents", "predict", tmp_path / "intents", LONG, "--neighbours", 3)


def test_titles_of_similar_conversations(run: Run, tmp_path: Path) -> None:
    turns = (Turn("user", "hi"), Turn("system", "Hello."), Turn("user", "my parcel is lost"))
    store = write_store(tmp_path / "store", [Dialogue("d", turns)], reader="sample")
    run("conversations", "index", store, "--out", tmp_path / "conversations")
    printed = run("conversations", "similar", tmp_path / "conversations", "parcel lost")[0].splitlines()
    assert printed[0].endswith("my parcel is lost") and printed[1].split() == ["d"]
