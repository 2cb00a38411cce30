"""Adding a newer import to a store: conversations are recognised by their ids."""

import json
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.corpus.storage.rejections import Rejection
from turnwise.corpus.storage.store import REJECTED, Store
from turnwise.corpus.storage.writing import StoreWriter, provenance


@dataclass(slots=True)
class MergePlan:
    """What a newer import changes in a store, as ids of conversations."""

    new: set[str] = field(default_factory=set)
    updated: set[str] = field(default_factory=set)  # in both, with other turns
    replaced: set[str] = field(default_factory=set)  # dialogues of those, in the store and in the newer import
    unchanged: set[str] = field(default_factory=set)
    #: In both, with fewer turns in the newer import; the store's stay, because a log may begin within a conversation.
    shorter: set[str] = field(default_factory=set)
    utterances: int = 0  # more than before, in new and updated conversations


def plan_merge(store: Store, newer: Store) -> MergePlan:
    """Compare a newer import with a store; raise a CorpusError if conversations share their id but no turn.

    The parts of a conversation that was split, `id`, `id#2`, …, are compared as one.
    """
    known, ids = _read_ids(store), _read_ids(newer)
    before: dict[str, dict[str, array[int]]] = {}
    after: dict[str, dict[str, array[int]]] = {}
    plan = MergePlan()
    for dialogue in newer:
        conversation = _conversation_of(dialogue.id, ids)
        if conversation in known:
            after.setdefault(conversation, {})[dialogue.id] = _hash_turns(dialogue)
        else:
            plan.new.add(dialogue.id)
            plan.utterances += len(dialogue.turns)
    for dialogue in store:
        conversation = _conversation_of(dialogue.id, known)
        if conversation in after:
            before.setdefault(conversation, {})[dialogue.id] = _hash_turns(dialogue)
    for conversation, parts in after.items():
        old_turns, turns = (list(chain(*each.values())) for each in (before[conversation], parts))
        if old_turns == turns and len(parts) >= len(before[conversation]):
            plan.unchanged.add(conversation)
        elif set(old_turns).isdisjoint(turns):
            raise CorpusError(
                f"the conversation {conversation!r} of the new log and that of {store.folder} have no turn in common:"
                " if the log has ids of conversations, name the field (--set …); if not, rename the log's file"
            )
        elif len(turns) < len(old_turns):
            plan.shorter.add(conversation)
        else:
            plan.updated.add(conversation)
            plan.utterances += len(turns) - len(old_turns)
            plan.replaced |= before[conversation].keys() | parts.keys()
    return plan


def _read_ids(store: Store) -> set[str]:
    return {name for batch in store.batches(["id"]) for name in batch.column("id").to_pylist()}


def _conversation_of(name: str, names: Collection[str]) -> str:
    """Return the id of the conversation that a dialogue is a part of, or its own."""
    first, separator, number = name.rpartition("#")
    return first if separator and number.isdecimal() and first in names else name


def merge_stores(store: Store, newer: Store, plan: MergePlan, folder: Path) -> Store:
    """Write a store with the conversations of both, and return it; it may replace the earlier one."""
    with StoreWriter(folder) as writer:
        for dialogue in store:
            if dialogue.id not in plan.replaced:
                writer.write(dialogue)
        for dialogue in newer:
            if dialogue.id in plan.new or dialogue.id in plan.replaced:
                writer.write(dialogue)
        for rejection in dict.fromkeys([*_rejections(store), *_rejections(newer)]):
            writer.reject(rejection)
        writer.commit(_merged_provenance(store.manifest, newer.manifest))
    return Store(folder)


def _hash_turns(dialogue: Dialogue) -> "array[int]":
    return array("q", map(hash, dialogue.turns))


def _rejections(store: Store) -> Iterator[Rejection]:
    path = store.folder / REJECTED
    if path.exists():
        with path.open(encoding="utf-8") as file:
            yield from (Rejection(**json.loads(line)) for line in file)


def _merged_provenance(store: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance of a merged store: how the newer import was made, and the inputs of both."""
    names = ("licence", "home", "left_out", "left_out_by_design", "reasons", "lost", "holes", "facts", "steps")
    inputs = [*store.get("inputs", ()), *newer.get("inputs", ())]
    kept = {name: newer[name] for name in (*names, "masking") if name in newer}
    distinct = [each for number, each in enumerate(inputs) if each not in inputs[:number]]
    return provenance(newer["reader"], newer["options"], newer["read"], **kept, inputs=distinct)
