"""The result of an import, read completely and checked."""

import json
from dataclasses import dataclass
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.storage.store import Store


@dataclass(frozen=True)
class Outcome:
    """The result of an import: a store with its dialogues and rejections, or an error."""

    dialogues: tuple[Dialogue, ...] = ()
    rejected: tuple[dict[str, Any], ...] = ()
    manifest: dict[str, Any] | None = None
    error: str = ""

    @property
    def reasons(self) -> list[str]:
        return [rejection["reason"] for rejection in self.rejected]


def outcome_of(store: Store) -> Outcome:
    """Read a store completely, and check that it is consistent."""
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
