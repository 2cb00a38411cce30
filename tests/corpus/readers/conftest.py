"""What the readers' tests share: an import that checks the promises that hold for every import, whatever comes of it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from turnwise.corpus.importing import import_corpus
from turnwise.corpus.intake import CorpusError
from turnwise.corpus.store import Store
from turnwise.dialogue import Dialogue


@dataclass(frozen=True)
class Outcome:
    """What came of an import: a store with its dialogues and rejections, or an error."""

    dialogues: tuple[Dialogue, ...] = ()
    rejected: tuple[dict[str, Any], ...] = ()
    manifest: dict[str, Any] | None = None
    error: str = ""

    @property
    def reasons(self) -> list[str]:
        return [rejection["reason"] for rejection in self.rejected]


def outcome_of(store: Store) -> Outcome:
    """Reads a store whole, and checks that it is one."""
    lines = (store.folder / "rejected.jsonl").read_text(encoding="utf-8").split("\n")
    rejected = tuple(json.loads(line) for line in lines if line)
    dialogues = tuple(store)
    manifest = store.manifest
    assert manifest["dialogues"] == len(dialogues) > 0
    assert manifest["utterances"] == sum(len(dialogue.turns) for dialogue in dialogues)
    assert manifest["rejected"] == len(rejected)
    assert len({dialogue.id for dialogue in dialogues}) == len(dialogues)
    names = {file["name"] for file in manifest["inputs"]}
    for rejection in rejected:
        assert rejection["file"] in names
        assert rejection["reason"]
        assert rejection["line"] is None or rejection["line"] >= 1
    there = {path.name for path in store.folder.iterdir()}
    assert there == {"manifest.json", "rejected.jsonl", *(file["name"] for file in manifest["files"])}
    return Outcome(dialogues, rejected, manifest)


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[..., Outcome]:
    """Imports twice, once strictly: `attempt(reader, path, **options)`.

    Either way the out folder is a whole store or not there; strict stops exactly where the other would have rejected.
    """
    count = 0

    def run(reader: str, path: Path, **options: Any) -> Outcome:
        nonlocal count
        count += 1
        out, strict = tmp_path / f"out-{count}", tmp_path / f"strict-{count}"
        try:
            outcome = outcome_of(import_corpus(reader, path, out, **options))
        except CorpusError as error:
            assert not out.exists()
            assert str(error)
            outcome = Outcome(error=str(error))
        try:
            strictly = outcome_of(import_corpus(reader, path, strict, strict=True, **options))
        except CorpusError as error:
            assert not strict.exists()
            assert outcome.rejected or outcome.error
            if outcome.rejected:
                first = outcome.rejected[0]
                assert first["file"] in str(error)
                assert first["reason"] in str(error)
        else:
            assert not outcome.rejected
            assert strictly.dialogues == outcome.dialogues
        return outcome

    return run
