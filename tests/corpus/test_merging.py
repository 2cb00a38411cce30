"""Adding a newer import to a store."""

import json
from pathlib import Path

import pytest

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.merging import merge_stores, plan_merge
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.storage.store import Store
from turnwise.corpus.storage.writing import write_store


def _dialogue(name: str, *texts: str) -> Dialogue:
    return Dialogue(name, tuple(Turn("user" if place % 2 == 0 else "system", text) for place, text in enumerate(texts)))


def test_conversations_are_added_updated_and_kept(tmp_path: Path) -> None:
    before = [
        _dialogue("same", "a", "b"),
        _dialogue("grows", "c"),
        _dialogue("cut", "d", "e", "f"),
        _dialogue("old", "g"),
    ]
    after = [_dialogue("grows", "c", "more"), _dialogue("same", "a", "b"), _dialogue("cut", "f"), _dialogue("new", "h")]
    store, newer = write_store(before, tmp_path / "store"), write_store(after, tmp_path / "newer")
    plan = plan_merge(store, newer)
    assert (plan.new, plan.updated, plan.unchanged, plan.shorter) == ({"new"}, {"grows"}, {"same"}, {"cut"})
    merged = merge_stores(store, newer, plan, store.folder)
    assert list(merged) == [before[0], before[2], before[3], after[0], after[3]]
    again = plan_merge(merged, newer)
    assert not again.new | again.replaced


def test_the_parts_of_a_split_conversation_are_compared_and_replaced_as_one(tmp_path: Path) -> None:
    parts = [_dialogue("a", "1", "2"), _dialogue("a#2", "5"), _dialogue("b", "6", "7"), _dialogue("b#2", "8")]
    whole = [_dialogue("a", "1", "2", "3", "4", "5"), _dialogue("b", "6", "7", "8"), _dialogue("c#2", "9")]
    parts.append(whole[2])  # not a part: there is no conversation of that name
    store, newer = write_store(parts, tmp_path / "store"), write_store(whole, tmp_path / "newer")
    plan = plan_merge(store, newer)
    assert (plan.new, plan.updated, plan.unchanged) == (set(), {"a", "b"}, {"c#2"})
    merged = merge_stores(store, newer, plan, tmp_path / "merged")
    assert sorted(merged, key=lambda each: each.id) == whole
    again = plan_merge(merged, store)  # the parts of an older export change nothing
    assert (again.new, again.updated, again.shorter) == (set(), set(), {"a"})


def test_another_conversation_with_the_same_id_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    store = write_store([_dialogue("1", "a", "b")], tmp_path / "store")
    with pytest.raises(CorpusError, match=r"'1' of the new log.*no turn in common.*rename"):
        plan_merge(store, write_store([_dialogue("1", "x", "y")], tmp_path / "newer"))
    assert list(Store(tmp_path / "store")) == [_dialogue("1", "a", "b")]


def test_rejections_and_inputs_of_both_imports_are_kept_once(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = [{"id": name, "turns": [{"speaker": "user", "text": name}]} for name in "ab"]
    bad = {"id": "bad", "turns": [{"speaker": "nobody", "text": "x"}]}
    log.write_text("\n".join(map(json.dumps, [rows[0], bad])) + "\n")
    store = import_corpus("jsonl", log, tmp_path / "store")
    log.write_text("\n".join(map(json.dumps, [rows[0], bad, rows[1], bad])) + "\n")
    newer = import_corpus("jsonl", log, tmp_path / "newer")
    merged = merge_stores(store, newer, plan_merge(store, newer), store.folder)
    assert [dialogue.id for dialogue in merged] == ["a", "b"]
    rejected, newer_only = (
        (tmp_path / name / "rejected.jsonl").read_text().splitlines() for name in ("store", "newer")
    )
    assert rejected == newer_only  # which repeats those of the first import
    assert merged.manifest["rejected"] == len(rejected) > 2
    assert len({each["sha256"] for each in merged.manifest["inputs"]}) == 2
