"""Tests the reader `messages` with chat data sets: Parquet files, ShareGPT's keys, and lists of texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.layouts import json_bytes, jsonl_bytes, lay_out, parquet_bytes
from tests.helpers.reading import utterances

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00001.parquet", "train"),
        ("data/validation-00000-of-00002.parquet", "valid"),
        ("test.parquet", "test"),
        ("default/train/0000.parquet", "train"),
        ("chats.parquet", None),
        ("TEST-0.PARQUET", "test"),
    ],
)
def test_split_comes_from_the_name_of_a_parquet_file(
    name: str, split: str | None, tmp_path: Path, try_import: Callable
):
    folder = lay_out(tmp_path / "in", {name: parquet_bytes({"messages": [CHAT]})})
    (dialogue,) = try_import("messages", folder / name if name.isupper() else folder).dialogues
    assert dialogue.split == split
    assert utterances(dialogue) == [("user", "Hi"), ("system", "Hello")]


def test_parquet_ids_are_columns_or_places(tmp_path: Path, try_import: Callable):
    files = {
        "a.parquet": parquet_bytes({"id": [7, None], "messages": [CHAT, CHAT]}),
        "b.parquet": parquet_bytes({"conversation_id": ["x"], "messages": [CHAT]}),
    }
    outcome = try_import("messages", lay_out(tmp_path / "in", files))
    assert [it.id for it in outcome.dialogues] == ["7", "a.parquet/2", "x"]
    assert [it["name"] for it in outcome.manifest["inputs"]] == ["a.parquet", "b.parquet"]


def test_rows_of_parquet_are_rejected_alone(tmp_path: Path, try_import: Callable):
    """Null instead of a list, of a message, of a text."""
    lists = [None, [None], [{"role": "user", "content": None}], [], CHAT]
    folder = lay_out(tmp_path / "in", {"a.parquet": parquet_bytes({"messages": lists})})
    outcome = try_import("messages", folder)
    assert [it.id for it in outcome.dialogues] == ["a.parquet/5"]
    assert {it["line"] for it in outcome.rejected} == {1, 2, 3, 4}


def test_missing_column_of_messages_is_an_error_that_lists_the_columns(tmp_path: Path, try_import: Callable):
    folder = lay_out(tmp_path / "in", {"a.parquet": parquet_bytes({"speaker": ["a"], "text": ["b"]})})
    error = try_import("messages", folder).error
    assert "a.parquet has no column 'messages' or 'conversations'" in error
    assert "it has 'speaker', 'text'" in error
    assert "--set messages=chat" in error
    assert "a.parquet has no column 'chat'; it has" in try_import("messages", folder, messages="chat").error


@pytest.mark.parametrize("key", ["messages", "conversations", "conversation", "dialog", "dialogue", "utterances"])
@pytest.mark.parametrize(
    ("messages", "speakers"),
    [
        (CHAT, ["user", "system"]),
        ([{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}], ["user", "system"]),
        (["Hi", "Hello"], ["speaker_1", "speaker_2"]),
    ],
)
def test_lists_of_messages(key: str, messages: list, speakers: list, tmp_path: Path, try_import: Callable):
    files = {
        "a.json": json_bytes([{"id": "json", key: messages}]),
        "b.jsonl": jsonl_bytes({"id": "lines", key: messages}),
        "c.parquet": parquet_bytes({"id": ["parquet"], key: [messages]}),
    }
    outcome = try_import("messages", lay_out(tmp_path / "in", files))
    assert [it.id for it in outcome.dialogues] == ["json", "lines", "parquet"]
    for dialogue in outcome.dialogues:
        assert utterances(dialogue) == list(zip(speakers, ["Hi", "Hello"], strict=True))


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ("Hi", "'messages' is a str, not a list"),
        ({"role": "user"}, "'messages' is a dict, not a list"),
        (["Hi", 5], "not the expected layout"),
        ([{"from": "human"}], "'value' is missing"),
        ([{"value": "Hi"}], "'role' is missing"),
        ([{"from": "ghost", "value": "Hi"}], "unknown speaker 'ghost'"),
        (["Hi", "", "Bye"], "the text is empty"),
    ],
)
def test_other_lists_are_rejected(messages: Any, reason: str, tmp_path: Path, try_import: Callable):
    fine = {"id": "fine", "messages": CHAT}
    folder = lay_out(tmp_path / "in", {"a.jsonl": jsonl_bytes({"id": "a", "messages": messages}, fine)})
    outcome = try_import("messages", folder)
    assert "fine" in {it.id for it in outcome.dialogues}
    assert reason in outcome.reasons[0]
