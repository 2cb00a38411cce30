"""Tests exports: what the readers read back, what is left out, and what is refused."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.command_line import run
from tests.helpers.layouts import turn
from tests.helpers.stores import write_store
from tests.helpers.strategies import NAMES, TEXTS
from turnwise.assist.intents.examples import read_labelled
from turnwise.core.dialogue import Dialogue, Slot, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.exporting import CorpusFormat, ExportCounts, export_dialogues, labelled_dialogues
from turnwise.corpus.importing.pipeline import import_corpus

CHATS = (
    Dialogue(
        "chat/1",
        (
            turn("user", "a table in Köln, please\nfor two", "book", ["inform(city)"], [("city", "Köln")]),
            turn("system", 'Which "day"?', acts=["request(day)"]),
            turn("user", "- the 5th: at noon 🐐", "inform"),
        ),
        "shop",
        "train",
    ),
    Dialogue("chat/2", (turn("user", "hello"), turn("user", "anybody?")), "shop"),
)
PEERS = Dialogue("peers", (turn("speaker_1", "Hi!"), turn("speaker_2", "Hello."), turn("speaker_1", "Bye.")))

FORMATS: tuple[CorpusFormat, ...] = ("jsonl", "messages", "convokit", "rasa", "csv", "intents-jsonl")

#: Texts that a careless writer of YAML would break.
AWKWARD = (
    *("- a dash first", "--- dashes", "colon: in the text", 'double "quotes"', "single 'quotes'", "#hash"),
    *("a # comment?", "| pipe", "> fold", "& anchor * alias ! tag % directive @ at ` backtick", "{curly} braces"),
    *("yes", "null", "5", "trailing colon:", "back\\slash", "tab\tinside", "grüße 東京 🐐"),
    *("non-breaking\u00a0space", "[brackets] alone", "bell\x07"),
)


def reimport(reader: str, path: Path, folder: Path) -> list[Dialogue]:
    """Import without accepting a single rejection."""
    return list(import_corpus(reader, path, folder, strict=True))


def without_labels(dialogue: Dialogue) -> Dialogue:
    return Dialogue(dialogue.id, tuple(Turn(each.speaker, each.text) for each in dialogue.turns))


def one_turn(text: str, intent: str = "go", *slots: tuple[str, int, int]) -> Dialogue:
    located = tuple(Slot.from_text(text, name, start, end) for name, start, end in slots)
    return Dialogue(text, (Turn("user", text, intent, (), located),))


# ---- whole dialogues


def test_jsonl_round_trip(tmp_path: Path):
    counts = export_dialogues([*CHATS, PEERS], tmp_path / "out.jsonl")
    assert counts == ExportCounts(3, 8)
    again = reimport("jsonl", tmp_path / "out.jsonl", tmp_path / "store")
    assert again[:2] == list(CHATS)
    assert again[2].turns == PEERS.turns


def test_messages_round_trip(tmp_path: Path):
    assert export_dialogues(CHATS, tmp_path / "out.jsonl", "messages") == ExportCounts(2, 5)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [message["role"] for message in lines[0]["messages"]] == ["user", "assistant", "user"]
    again = reimport("messages", tmp_path / "out.jsonl", tmp_path / "store")
    assert list(map(without_labels, again)) == list(map(without_labels, CHATS))


def test_messages_need_roles(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"'peers' has the speaker 'speaker_1'.*or export to convokit"):
        export_dialogues([*CHATS, PEERS], tmp_path / "out.jsonl", "messages")
    assert list(tmp_path.iterdir()) == []


def test_convokit_round_trip(tmp_path: Path):
    """Also of conversations between peers; the reader sorts by id."""
    assert export_dialogues([*CHATS, PEERS], tmp_path / "corpus", "convokit") == ExportCounts(3, 8)
    again = reimport("convokit", tmp_path / "corpus", tmp_path / "store")
    assert list(map(without_labels, again)) == list(map(without_labels, [*CHATS, PEERS]))


def test_convokit_files(tmp_path: Path):
    export_dialogues([*CHATS, PEERS], tmp_path / "corpus", "convokit")
    folder = tmp_path / "corpus"
    assert {path.name for path in folder.iterdir()} == {
        "utterances.jsonl",
        "conversations.json",
        "speakers.json",
        "corpus.json",
        "index.json",
    }
    utterances = [json.loads(line) for line in (folder / "utterances.jsonl").read_text().splitlines()]
    first, second, third = utterances[:3]
    assert first.keys() == {"id", "conversation_id", "speaker", "text", "reply-to", "timestamp", "meta", "vectors"}
    assert first["id"] == first["conversation_id"] == second["conversation_id"] == "chat/1"
    assert [each["reply-to"] for each in (first, second, third)] == [None, first["id"], second["id"]]
    assert [each["timestamp"] for each in (first, second, third)] == [0, 1, 2]
    assert first["meta"] == {
        "intent": "book",
        "acts": ["inform(city)"],
        "slots": [{"name": "city", "value": "Köln", "start": 11, "end": 15}],
    }
    assert len({each["id"] for each in utterances}) == len(utterances)
    files = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("conversations", "speakers", "index")}
    assert files["conversations"]["chat/1"] == {"meta": {"source": "shop", "split": "train"}, "vectors": []}
    assert set(files["conversations"]) == {"chat/1", "chat/2", "peers"}
    assert set(files["speakers"]) == {"user", "system", "speaker_1", "speaker_2"}
    assert files["index"]["utterances-index"] == {
        "acts": ["<class 'list'>"],
        "intent": ["<class 'str'>"],
        "slots": ["<class 'list'>"],
    }
    assert files["index"]["conversations-index"] == {"source": ["<class 'str'>"], "split": ["<class 'str'>"]}


def test_convokit_ids_must_be_unique(tmp_path: Path):
    for clash in ("chat/1", "chat/1#1"):
        with pytest.raises(CorpusError, match=f"the id '{clash}': export the stores one by one"):
            export_dialogues([CHATS[0], Dialogue(clash, PEERS.turns)], tmp_path / "corpus", "convokit")
    assert list(tmp_path.iterdir()) == []


# ---- labelled utterances


def test_rasa_file(tmp_path: Path):
    dialogues = [
        one_turn("to Oslo", "go", ("city", 3, 7)),
        one_turn("hello", "greet"),
        one_turn("from Rome to Oslo", "go", ("city.from", 5, 9), ("a:b", 13, 17)),
    ]
    assert export_dialogues(dialogues, tmp_path / "nlu.yml", "rasa") == ExportCounts(3, 3)
    assert (tmp_path / "nlu.yml").read_text() == (
        "version: '3.1'\n"
        "nlu:\n"
        "- intent: go\n"
        "  examples: |\n"
        "    - to [Oslo](city)\n"
        '    - from [Rome](city.from) to [Oslo]{"entity": "a:b"}\n'
        "- intent: greet\n"
        "  examples: |\n"
        "    - hello\n"
    )
    again = reimport("rasa", tmp_path / "nlu.yml", tmp_path / "store")
    assert [each.turns for each in again] == [dialogues[0].turns, dialogues[2].turns, dialogues[1].turns]


def test_rasa_awkward_texts_and_intents(tmp_path: Path):
    dialogues = [*map(one_turn, AWKWARD), *(one_turn(f"{n}", text) for text in AWKWARD for n in range(2))]
    export_dialogues(dialogues, tmp_path / "nlu.yml", "rasa")
    again = reimport("rasa", tmp_path / "nlu.yml", tmp_path / "store")
    assert [each.turns for each in again] == [each.turns for each in dialogues]
    document = yaml.safe_load((tmp_path / "nlu.yml").read_text(encoding="utf-8"))
    assert [section["intent"] for section in document["nlu"]] == ["go", *AWKWARD]


@pytest.mark.parametrize("text", ["two\nlines", "carriage\rreturn", "a\u2028b", "a\x85b", "a\x1cb", "[Oslo]\n- x"])
def test_rasa_texts_of_several_lines_are_a_list(text: str, tmp_path: Path):
    dialogues = [one_turn("one line"), one_turn(text)]
    export_dialogues(dialogues, tmp_path / "nlu.yml", "rasa")
    assert yaml.safe_load((tmp_path / "nlu.yml").read_text(encoding="utf-8"))["nlu"][0]["examples"] == [
        {"text": "one line"},
        {"text": text},
    ]
    again = reimport("rasa", tmp_path / "nlu.yml", tmp_path / "store")
    assert [each.turns for each in again] == [each.turns for each in dialogues]


def test_rasa_leaves_out_what_it_cannot_represent(tmp_path: Path):
    dialogues = [
        one_turn("look at [this](city)"),
        one_turn('and [that]{"entity": "city"}'),
        one_turn("[sic] to Oslo", "go", ("city", 9, 13)),
        one_turn("old goat", "go", ("pet", 0, 8), ("kind", 4, 8)),
        one_turn("a goat", "go", ("pet[0]", 2, 6)),
        Dialogue("chat", (turn("user", "hm"), turn("system", "Yes?", "ask"), turn("user", "no", "deny"))),
    ]
    counts = export_dialogues(dialogues, tmp_path / "nlu.yml", "rasa")
    assert (counts.dialogues, counts.utterances) == (4, 4)
    assert counts.left_out == {
        "texts that Rasa would read as annotated": 2,
        "slots that Rasa cannot annotate": 3,
        "turns without an intent": 1,
        "turns of other speakers than the user": 1,
    }
    again = reimport("rasa", tmp_path / "nlu.yml", tmp_path / "store")
    assert [(each.turns[0].text, each.turns[0].intent) for each in again] == [
        ("[sic] to Oslo", "go"),
        ("old goat", "go"),
        ("a goat", "go"),
        ("no", "deny"),
    ]
    assert [slot.name for each in again for slot in each.turns[0].slots] == ["pet"]


@given(pairs=st.lists(st.tuples(TEXTS, NAMES), min_size=1, max_size=8))
def test_rasa_round_trip_of_any_text(pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("rasa")
    written = [pair for pair in pairs if "](" not in pair[0] and "]{" not in pair[0]]
    if written:
        export_dialogues(labelled_dialogues(pairs), folder / "nlu.yml", "rasa")
        again = reimport("rasa", folder / "nlu.yml", folder / "store")
        assert Counter((each.turns[0].text, each.turns[0].intent) for each in again) == Counter(written)


@pytest.mark.parametrize(("form", "name"), [("csv", "out.csv"), ("intents-jsonl", "out.jsonl")])
def test_intent_files_are_read_by_intents_fit(form: CorpusFormat, name: str, tmp_path: Path):
    pairs = [(text, intent) for text in (*AWKWARD, "two\nlines, with a comma") for intent in ("go", "it's: odd")]
    counts = export_dialogues(labelled_dialogues(pairs), tmp_path / name, form)
    assert counts == ExportCounts(len(pairs), len(pairs))
    assert read_labelled(tmp_path / name) == pairs


def test_intent_files_have_the_split(tmp_path: Path):
    counts = export_dialogues(CHATS, tmp_path / "out.csv", "csv")
    assert (counts.dialogues, counts.utterances) == (1, 2)
    assert counts.left_out == {"turns of other speakers than the user": 1, "turns without an intent": 2}
    with (tmp_path / "out.csv").open(encoding="utf-8-sig", newline="") as file:
        assert list(csv.reader(file)) == [
            ["text", "intent", "split"],
            ["a table in Köln, please\nfor two", "book", "train"],
            ["'- the 5th: at noon 🐐", "inform", "train"],
        ]
    unsplit = Dialogue("a", (turn("user", "hi", "greet"),))
    export_dialogues([CHATS[0], unsplit], tmp_path / "out.jsonl", "intents-jsonl")
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()] == [
        {"text": "a table in Köln, please\nfor two", "intent": "book", "split": "train"},
        {"text": "- the 5th: at noon 🐐", "intent": "inform", "split": "train"},
        {"text": "hi", "intent": "greet"},
    ]


# ---- files


@pytest.mark.parametrize("form", FORMATS)
def test_only_an_earlier_export_can_be_replaced(form: CorpusFormat, tmp_path: Path):
    out, folder = tmp_path / "out", tmp_path / "folder"

    def written() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    export_dialogues(CHATS, out, form)
    before = written()
    with pytest.raises(CorpusError, match="out exists: choose another --out, or use --force"):
        export_dialogues(CHATS, out, form)
    with pytest.raises(CorpusError, match="nothing to export"):
        export_dialogues([], out, form, overwrite=True)
    if form in ("rasa", "csv", "intents-jsonl"):
        with pytest.raises(CorpusError, match="nothing to export: 2 turns without an intent"):
            export_dialogues([CHATS[1]], out, form, overwrite=True)
    assert written() == before  # a failed export leaves the earlier one
    export_dialogues([replace(CHATS[0], turns=CHATS[0].turns[:1])], out, form, overwrite=True)
    assert written().keys() == before.keys() and written() != before
    folder.mkdir()
    (folder / "notes.txt").write_text("precious")
    with pytest.raises(CorpusError, match=r"folder is (a folder|not a ConvoKit corpus): choose another --out"):
        export_dialogues(CHATS, folder, form, overwrite=True)
    assert (folder / "notes.txt").read_text() == "precious"
    with pytest.raises(CorpusError, match="does not exist: create it"):
        export_dialogues(CHATS, tmp_path / "nowhere" / "out", form)


def test_convokit_may_fill_an_empty_folder_but_replaces_no_file(tmp_path: Path):
    (tmp_path / "corpus").mkdir()
    export_dialogues(CHATS, tmp_path / "corpus", "convokit")
    assert (tmp_path / "corpus" / "utterances.jsonl").is_file()
    with pytest.raises(CorpusError, match="is not a ConvoKit corpus"):
        export_dialogues(CHATS, tmp_path / "corpus" / "utterances.jsonl", "convokit", overwrite=True)


# ---- commands


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(tmp_path / "store", CHATS)


@pytest.mark.parametrize("form", FORMATS)
def test_export_command(form: CorpusFormat, store: Path, tmp_path: Path):
    out = tmp_path / "out"
    printed = json.loads(run("corpus", "export", store, "--format", form, "--out", out, "--json").stdout)
    assert printed["utterances"] == (2 if form in ("rasa", "csv", "intents-jsonl") else 5)
    assert "exists" in run("corpus", "export", store, "--format", form, "--out", out, code=1).stderr


def test_export_command_reports_and_selects_splits(tmp_path: Path):
    first = Dialogue("a", (turn("user", "one", "x"), turn("system", "Yes.")), split="train")
    second = Dialogue("b", (turn("user", "two", "x"),), split="test")
    store = write_store(tmp_path / "store", [first, second])
    text = run("corpus", "export", store, "--format", "csv", "--split", "train", "--out", tmp_path / "train.csv").stdout
    assert "1 dialogues, 1 utterances" in text
    assert "1 turns of other speakers than the user" in text
    assert read_labelled(tmp_path / "train.csv") == [("one", "x")]
    run("corpus", "export", store, "--format", "xml", "--out", tmp_path / "out.xml", code=2)


def test_examples_of_a_classifier_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from tests.helpers.bag_of_words import BagOfWords
    from tests.helpers.intent_examples import OUTSIDE, pairs
    from turnwise.assist.intents.classifier import IntentClassifier
    from turnwise.assist.intents.storage import IntentFolder
    from turnwise.models.encoder import Encoder

    monkeypatch.setattr(Encoder, "load", lambda *given, **named: BagOfWords())
    texts, intents = pairs()
    folder = tmp_path / "intents"
    IntentClassifier("made-up").fit([*texts, OUTSIDE[0]], [*intents, "out_of_scope"]).save(folder)
    with IntentFolder.open(folder) as opened:
        opened.add([("deliver it: now", "shipping")])
        opened.remove(intent="refund")

    def fail(*given: Any, **named: Any) -> Callable:
        raise AssertionError("the encoder is not needed")

    monkeypatch.setattr(Encoder, "load", fail)
    expected = Counter(pair for pair in zip(texts, intents, strict=True) if pair[1] != "refund")
    expected += Counter([("deliver it: now", "shipping"), (OUTSIDE[0], "out_of_scope")])
    for name in ("nlu.yml", "examples.csv", "examples.jsonl"):
        printed = run("intents", "examples", "export", folder, "--out", tmp_path / name, "--json").stdout
        assert json.loads(printed)["utterances"] == expected.total()
    again = reimport("rasa", tmp_path / "nlu.yml", tmp_path / "store")
    assert Counter((each.turns[0].text, each.turns[0].intent) for each in again) == expected
    assert Counter(read_labelled(tmp_path / "examples.csv")) == expected
    assert Counter(read_labelled(tmp_path / "examples.jsonl")) == expected
    assert again[-1].turns[0].intent == "out_of_scope"
    run("intents", "examples", "export", folder, "--out", tmp_path / "nlu.yml", code=1)
    run("intents", "examples", "export", tmp_path, "--out", tmp_path / "other.yml", code=1)
    run("intents", "examples", "export", folder, "--out", tmp_path / "examples.xlsx", code=2)
