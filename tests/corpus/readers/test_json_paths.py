"""Tests the reader of JSON with any layout."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.layouts import jsonl_bytes, lay_out
from tests.helpers.reading import utterances
from turnwise.corpus.readers.json_paths import select

TICKET = {
    "ticket": {
        "no": 7,
        "comments": [
            {"author": {"role": "agent"}, "body": "How can I help?", "at": 20},
            {"author": {"role": "requester"}, "body": "Hello", "at": 10, "topic": "greeting"},
        ],
    }
}
OPTIONS = {"id": "ticket.no", "messages": "ticket.comments[]", "speaker": "author.role", "text": "body"}


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("log.jsonl", jsonl_bytes(TICKET), {}),
        ("log.json", json.dumps([TICKET]).encode(), {}),
        ("log.json", json.dumps(TICKET).encode(), {}),
        ("log.json", json.dumps({"data": {"tickets": [TICKET]}}).encode(), {"conversations": "data.tickets[]"}),
        ("log.json", json.dumps([{"batch": [TICKET]}]).encode(), {"conversations": "[].batch[]"}),
    ],
)
def test_conversations_with_messages(name: str, content: bytes, options: dict, tmp_path: Path, try_import: Callable):
    folder = lay_out(tmp_path / "in", {name: content})
    (dialogue,) = try_import("json", folder, **OPTIONS, **options, time="at", intent="topic").dialogues
    assert dialogue.id == "7"
    assert utterances(dialogue) == [("user", "Hello"), ("system", "How can I help?")]
    assert [turn.intent for turn in dialogue.turns] == ["greeting", None]


def test_single_messages_with_the_id_of_their_conversation(tmp_path: Path, try_import: Callable):
    rows = [
        {"thread": "b", "who": "user", "say": "b1", "part": "test"},
        {"thread": "a", "who": "user", "say": "a1"},
        {"thread": "b", "who": "bot", "say": "b2"},
    ]
    folder = lay_out(tmp_path / "in", {"log.jsonl": jsonl_bytes(*rows)})
    options = {"messages": "", "id": "thread", "speaker": "who", "text": "say", "split": "part"}
    first_dialogue, second = try_import("json", folder, **options).dialogues
    assert (first_dialogue.id, utterances(first_dialogue)) == ("a", [("user", "a1")])
    assert (second.id, utterances(second), second.split) == ("b", [("user", "b1"), ("system", "b2")], "test")


def test_where_selects_messages(tmp_path: Path, try_import: Callable):
    rows = [
        {"type": "message", "meta": {"draft": False}, "speaker": "user", "text": "Hi"},
        {"type": "join", "meta": {"draft": False}, "speaker": "user", "text": "Anna has joined"},
        {"type": "message", "meta": {"draft": True}, "speaker": "user", "text": "Hi th"},
        {"speaker": "bot", "text": "typing"},
    ]
    folder = lay_out(tmp_path / "in", {"log.jsonl": jsonl_bytes(*rows)})
    outcome = try_import("json", folder, messages="", id="", where=("type=message", "meta.draft=False"))
    assert [(it.id, utterances(it)) for it in outcome.dialogues] == [("log.jsonl", [("user", "Hi")])]
    assert outcome.manifest["left_out"] == {"messages that `where` excludes": 3}
    assert "as in --set where=type=message" in try_import("json", folder, where="type").error


def test_conversations_without_an_id_are_named_by_file_and_number(tmp_path: Path, try_import: Callable):
    record = {"messages": [{"speaker": "user", "text": "Hi"}]}
    folder = lay_out(tmp_path / "in", {"a.jsonl": jsonl_bytes(record, record)})
    assert [it.id for it in try_import("json", folder).dialogues] == ["a.jsonl/1", "a.jsonl/2"]


def test_message_without_text_is_rejected_and_splits_the_conversation(tmp_path: Path, try_import: Callable):
    messages = [
        {"speaker": "user", "text": "one", "time": 1},
        {"speaker": "bot", "time": 2, "image": "x.png"},
        {"speaker": "user", "text": "three", "time": 3},
        {"speaker": "bot", "text": "four", "time": "teatime"},
        {"speaker": "user", "text": 5, "time": 5},
    ]
    folder = lay_out(tmp_path / "in", {"log.json": json.dumps([{"id": "c", "messages": messages}]).encode()})
    outcome = try_import("json", folder, time="time")
    assert [(it.id, utterances(it)) for it in outcome.dialogues] == [
        ("c", [("user", "one")]),
        ("c#2", [("user", "three")]),
    ]
    reasons = [rejection["reason"] for rejection in outcome.rejected]
    assert reasons[0] == "a message has no 'text'; it has speaker, time, image"
    assert reasons[1].startswith("cannot parse the time 'teatime'")
    assert reasons[2] == "the text is a int, not a string"


def test_conversations_without_messages_and_copies_are_rejected(tmp_path: Path, try_import: Callable):
    record = {"id": "a", "messages": [{"speaker": "user", "text": "Hi"}]}
    folder = lay_out(
        tmp_path / "in", {"a.jsonl": jsonl_bytes(record, {"id": "b", "messages": []}, {"id": "c"}, record)}
    )
    outcome = try_import("json", folder)
    assert [it.id for it in outcome.dialogues] == ["a"]
    assert [(it["line"], it["reason"]) for it in outcome.rejected] == [
        (2, "nothing is at 'messages[]'"),
        (3, "nothing is at 'messages[]'"),
        (4, "the id 'a' was there before"),
    ]


def test_path_that_matches_nothing_names_the_keys(tmp_path: Path, try_import: Callable):
    folder = lay_out(tmp_path / "in", {"log.json": json.dumps(TICKET).encode()})
    error = try_import("json", folder).error
    assert "nothing is at 'messages[]'" in error
    assert "the first record has ticket." in error
    assert "--set messages=" in error
    empty = lay_out(tmp_path / "empty", {"log.json": b"{\n}"})
    assert "the first record has no keys." in try_import("json", empty).error


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)


@given(values, st.sampled_from(["a", "a[]", "a.b[]", "[].a", "a[].b.c[]"]))
def test_paths_never_fail(value: Any, path: str):
    assert isinstance(select(value, path), list)
