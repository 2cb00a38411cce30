"""Labels for a map: groups are named, merged, split and corrected; every change is durable before it is acknowledged.

The initial groups are the map's clusters. An utterance belongs to one group or to none, and its label is the name of
its group, if that has one. Labelling an utterance individually moves it to the group with that name. Groups with the
same name are one label. The journal of changes is stored in the map's folder.
"""

import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.labelling import changes
from turnwise.assist.labelling.active_learning import Question, QuestionSelector
from turnwise.assist.map.clustering import describe_clusters
from turnwise.assist.map.utterance_map import JOURNAL, UtteranceMap
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import MapError
from turnwise.core.files import csv_text, read_json, write_atomic
from turnwise.core.journal import Journal, read_entries
from turnwise.core.text import normalise_text

__all__ = ["LabelGroup", "Labelling", "MapError", "Question"]

#: The columns of the CSV file; `turnwise intents fit` reads the first two.
COLUMNS = ("text", "intent", "group", "confirmed", "count", "dialogue", "turn", "speaker")

#: Names the map whose labels this one takes over, relative to its folder, and how many changes it had.
_REPLACES = "replaces.json"

#: Words in a suggested name.
_NAME_WORDS = 3

#: Tokens per text: more than any encoder reads, as maps are made of whole texts.
_UNLIMITED_LENGTH = 1_000_000


@dataclass(frozen=True, slots=True)
class LabelGroup:
    """A group of utterances."""

    number: int
    """The number of the group, which does not change when other groups do."""
    name: str | None
    """The name that a person has given it, which is the label of its utterances."""
    suggested: str
    """A name made of its characteristic words."""
    size: int
    """The number of distinct utterances."""
    utterances: int
    """The number of occurrences of its utterances."""
    words: tuple[str, ...]
    """Its characteristic words."""
    representatives: tuple[int, ...]
    """The rows of representative utterances."""


class Labelling:
    """Labels for a map, whose utterances are the rows; thread-safe, open in one process at a time.

    Methods raise MapError for invalid arguments, and ProjectError if a change cannot be written; nothing is changed
    then.
    """

    @classmethod
    def open(cls, folder: Path | str, *, read_only: bool = False) -> "Labelling":
        """Open the labels of the map in a folder; raise ProjectError if another process has it open.

        With `read_only`, another process may have it open, and nothing can be changed.
        """
        folder = Path(folder)
        utterance_map = UtteranceMap.load(folder)
        journal = Journal(folder / JOURNAL, read_only=read_only)
        try:
            return cls(folder, utterance_map, journal)
        except BaseException:
            journal.close()
            raise

    def __init__(self, folder: Path, utterance_map: UtteranceMap, journal: Journal):
        """Replay a journal; use `open` instead."""
        self.folder = folder
        self.map = utterance_map
        self._journal = journal
        self._lock = threading.RLock()
        self._state = changes.GroupAssignment(utterance_map.labels)
        self._small_talk = {cluster.number for cluster in utterance_map.clusters if cluster.small_talk}
        # suggested name, words and representatives by the members of a group, which determine them
        self._descriptions: dict[bytes, tuple[str, tuple[str, ...], tuple[int, ...]]] = {}
        for cluster in utterance_map.clusters:
            members = _digest(np.flatnonzero(utterance_map.labels == cluster.number))
            self._descriptions[members] = cluster.name, cluster.words, cluster.representatives
        self._selector: QuestionSelector | None = None
        self._is_open = True
        for number, entry in enumerate(journal.entries, 1):
            try:
                self._replay(entry, is_first=number == 1)
            except (ValueError, IndexError) as error:
                raise MapError(
                    f"{journal.path}, line {number}: {error}; move the file to its map, or remove the line"
                ) from error
        self._take_over_labels()

    # ---- state

    @property
    def groups(self) -> list[LabelGroup]:
        """The groups that are not empty, the largest first, but small talk last."""
        with self._lock:
            state, counts = self._state, self.map.counts
            numbers = np.unique(state.groups[state.groups != changes.NO_GROUP]).tolist()
            members = {number: np.flatnonzero(state.groups == number) for number in numbers}
            self._describe(members)
            groups = []
            for number, rows in members.items():
                suggested, words, representatives = self._descriptions[_digest(rows)]
                name, occurrences = state.names.get(number), int(counts[rows].sum())
                groups.append(LabelGroup(number, name, suggested, len(rows), occurrences, words, representatives))
            return sorted(groups, key=lambda each: (each.number in self._small_talk, -each.utterances, each.number))

    def _describe(self, members: Mapping[int, npt.NDArray[np.int64]]) -> None:
        """Describe groups whose members are new."""
        unknown = [number for number, rows in members.items() if _digest(rows) not in self._descriptions]
        if not unknown:
            return
        texts, groups = self.map.texts, self._state.groups
        labels = np.where(np.isin(groups, unknown), groups, changes.NO_GROUP)
        for cluster in describe_clusters(texts, labels, self.map.vectors, self.map.counts):
            # not the cluster's name, which depends on the other clusters
            name = ", ".join(cluster.words[:_NAME_WORDS]) or texts[cluster.representatives[0]]
            self._descriptions[_digest(members[cluster.number])] = name, cluster.words, cluster.representatives

    @property
    def row_groups(self) -> npt.NDArray[np.int32]:
        """The group of every row; -1 for none."""
        with self._lock:
            return self._state.groups.copy()

    @property
    def confirmed(self) -> npt.NDArray[np.bool_]:
        """Whether a person has labelled a row individually; such rows are not asked about again."""
        with self._lock:
            return self._state.confirmed.copy()

    @property
    def history(self) -> dict[str, int | bool]:
        """The number of changes in force, and whether there is one to undo or to redo."""
        applied = len(self._state.applied)
        return {"changes": applied, "can_undo": applied > 0, "can_redo": bool(self._state.undone)}

    def labels(self) -> list[str | None]:
        """Return the label of every row: the name of its group; None if that has none."""
        with self._lock:
            names = self._state.names
            return [names.get(group) for group in self._state.groups.tolist()]

    # ---- changes

    def name(self, group: int, name: str) -> None:
        """Name a group, which labels all of its utterances. Several groups may have the same name."""
        with self._lock:
            self._change(changes.name_group(self._state, group, name))

    def merge(self, groups: Sequence[int], name: str | None = None) -> int:
        """Merge groups into the first and return its number; it gets `name`, or the first name among the groups."""
        with self._lock:
            self._change(changes.merge_groups(self._state, groups, name))
            return int(groups[0])

    def split(self, group: int, parts: int = 2) -> list[int]:
        """Split a group by k-means; return the numbers of its parts. The largest keeps number and name."""
        with self._lock:
            change = changes.split_group(self._state, group, parts, self.map.vectors)
            self._change(change)
            return [int(group), *change.moved]

    def label(self, rows: Sequence[int], name: str | None) -> int | None:
        """Move utterances to the group with a name, or with None to none; return the first row's group."""
        with self._lock:
            self._change(changes.label_rows(self._state, rows, name))
            return None if name is None else int(self._state.groups[rows[0]])

    def copy_labels(self, earlier: "Labelling") -> int:
        """Copy the labels of an earlier map for utterances in both maps, as one change; return their number."""
        shared = self._shared_labels(earlier)
        if not shared:
            raise MapError(f"no labelled utterance of {earlier.folder} is in {self.folder}: nothing to copy")
        with self._lock:
            self._change(changes.copy_labels(self._state, shared))
        return len(shared)

    def _shared_labels(self, earlier: "Labelling") -> list[tuple[int, str, bool]]:
        """Return the row, label and confirmation of each utterance that is labelled in an earlier map."""
        label_of = {
            normalise_text(text): (label, bool(confirmed))
            for text, label, confirmed in zip(earlier.map.texts, earlier.labels(), earlier.confirmed, strict=True)
            if label is not None
        }
        keys = enumerate(map(normalise_text, self.map.texts))
        return [(row, *label_of[key]) for row, key in keys if key in label_of]

    def _take_over_labels(self) -> None:
        """Copy the labels of the map that this one replaces, if it has changes that were not copied yet.

        They are not copied before this map is opened, since the earlier one can be labelled until then.
        """
        path = self.folder / _REPLACES
        if not path.exists():
            return
        replaces = read_json(path)
        folder = self.folder / replaces["map"]
        count = _count_changes(folder)
        if count <= replaces["changes"]:
            return
        shared = self._shared_labels(Labelling.open(folder, read_only=True))
        change = changes.copy_labels(self._state, shared) if shared else None
        if self._journal.read_only:
            if change is not None:
                self._state.apply(change)
            return
        self._change(change)
        write_atomic(path, json.dumps(replaces | {"changes": count}), durable=True)

    def undo(self) -> None:
        """Revert the latest change."""
        with self._lock:
            if not self._state.applied:
                raise MapError("there is no change to undo")
            self._journal.append({"do": "undo"})
            self._state.undo()

    def redo(self) -> None:
        """Apply the change again that was undone last."""
        with self._lock:
            if not self._state.undone:
                raise MapError("there is no change to redo")
            self._journal.append({"do": "redo"})
            self._state.redo()

    # ---- questions and results

    def select_questions(self, count: int = 10) -> list[Question]:
        """Return up to `count` questions whose answers help most, the best first; see `active_learning`."""
        if count < 1:
            raise MapError(f"count must be at least 1, got {count}")
        with self._lock:
            if self._selector is None:
                self._selector = QuestionSelector(self.map.vectors, self.map.counts)
            return self._selector.select(self.map.texts, self._state, count)

    def to_csv(self) -> str:
        """Return the labels as CSV, one line per utterance, for spreadsheets and `turnwise intents fit`."""
        with self._lock:
            state = zip(self.labels(), self._state.groups.tolist(), self._state.confirmed, strict=True)
            labels = [
                (label, None if group == changes.NO_GROUP else group, "yes" if is_confirmed else "no")
                for label, group, is_confirmed in state
            ]
        rows = zip(self.map.utterances, labels, strict=True)
        return csv_text(
            COLUMNS, ([each.text, *own, each.count, each.dialogue, each.turn, each.speaker] for each, own in rows)
        )

    def export(self, path: Path | str) -> int:
        """Write the labels to a CSV file; return the number of labelled utterances."""
        try:
            write_atomic(Path(path), self.to_csv())
        except OSError as error:
            raise MapError(f"{path} cannot be written: {error}") from error
        return sum(label is not None for label in self.labels())

    def fit(self, encoder: Any = None, **settings: Any) -> IntentClassifier:
        """Fit an intent classifier on the labelled utterances; those labelled 'out_of_scope' are out-of-scope examples.

        The names of the labels, and the other utterances as the log, are used as well. Arguments are those of
        `IntentClassifier`. If the encoder is the one of the map (also None), its vectors are reused and nothing but
        names is encoded. Raise MapError if no utterance is labelled with an intent, or the encoder is unknown;
        IntentError if there are too few labels to fit on.
        """
        labels = self.labels()
        rows = [row for row, label in enumerate(labels) if label is not None]
        if all(labels[row] == OUT_OF_SCOPE for row in rows):
            raise MapError("no utterance of the map is labelled with an intent yet: name a group first")
        encoder = encoder or self.map.model
        if not encoder:
            raise MapError("the map does not name its encoder: pass the encoder it was made with")
        texts, intents = [self.map.utterances[row].text for row in rows], [str(labels[row]) for row in rows]
        if settings.get("tuning") is None and settings.get("max_length") is None and self._is_encoder(encoder):
            classifier = IntentClassifier(encoder, **settings | {"max_length": _UNLIMITED_LENGTH})
            others = np.delete(self.map.vectors, rows, axis=0)
            classifier.fit(texts, intents, vectors=self.map.vectors[rows], log=others if len(others) else None)
            # a model that was trained again has the name of the map's encoder, but other vectors
            if self.map.encoder is None or self._is_encoder(classifier.encoder_):
                return classifier
        log = [each.text for each, label in zip(self.map.utterances, labels, strict=True) if label is None]
        use_log = bool(log) and settings.get("tuning") is None
        return IntentClassifier(encoder, **settings).fit(texts, intents, log=log if use_log else None)

    def _is_encoder(self, encoder: Any) -> bool:
        """Return whether an encoder is the one that the map was made with."""
        if isinstance(encoder, str | Path):
            return str(encoder) == self.map.model
        return self.map.identity().matches(encoder)

    def close(self) -> None:
        """Allow another process to open the labels; an empty journal is removed."""
        if self._is_open and not self._journal.entries and not self._journal.read_only:
            self._journal.path.unlink()
        self._is_open = False
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---- journal

    def _change(self, change: changes.LabelChange | None) -> None:
        """Write a change to the journal, then apply it; None changes nothing."""
        if change is None:
            return
        if not self._journal.entries:
            self._journal.append({"map": _map_fingerprint(self.map)})
        self._journal.append(change.to_json())
        self._state.apply(change)

    def _replay(self, entry: Mapping[str, Any], is_first: bool) -> None:
        if not isinstance(entry, Mapping):
            raise ValueError("the entry is not a change")
        if is_first:
            if entry.get("map") != _map_fingerprint(self.map):
                raise ValueError("the labels belong to another map")
        elif entry.get("do") == "undo":
            self._state.undo()
        elif entry.get("do") == "redo":
            self._state.redo()
        else:
            self._state.apply(changes.LabelChange.from_json(entry, len(self.map)))


def replace_labelled_map(folder: Path, earlier: Path) -> None:
    """Let a new map take over the labels of an earlier one when it is opened for the first time."""
    write_atomic(folder / _REPLACES, json.dumps({"map": os.path.relpath(earlier, folder), "changes": 0}))


def _count_changes(folder: Path) -> int:
    """Return the number of changes to the labels of a map, and of the earlier ones that it replaces."""
    changes, path = len(read_entries(folder / JOURNAL)), folder / _REPLACES
    return changes + (_count_changes(folder / read_json(path)["map"]) if path.exists() else 0)


def _map_fingerprint(utterance_map: UtteranceMap) -> str:
    """Return a hash that identifies a map: labels belong to one map."""
    digest = hashlib.sha256(utterance_map.labels.astype("<i4").tobytes())
    for text in utterance_map.texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def _digest(rows: npt.NDArray[np.int64]) -> bytes:
    return hashlib.blake2b(rows.tobytes(), digest_size=16).digest()
