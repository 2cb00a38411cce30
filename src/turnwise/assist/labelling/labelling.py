"""From a map to labels: groups are named, merged, split and corrected, every change on disk before it is acknowledged.

A map's clusters are the groups at first. An utterance is in one group or in none, and its label is the name that a person gave to
its group; groups without a name give none. Labelling an utterance by itself moves it to the group of that name. So there is one
state, which the map shows, and two groups of one name are one label. The journal of changes lies in the map's folder.
"""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.labelling import changes
from turnwise.assist.labelling.asking import Asker, Question
from turnwise.assist.labelling.grouping import Change, Grouping, LabellingError
from turnwise.assist.labelling.groups import Group, Groups
from turnwise.assist.labelling.labelled import as_csv, fitted
from turnwise.assist.map.utterance_map import JOURNAL, UtteranceMap
from turnwise.core.files import write_atomic
from turnwise.core.journal import Journal
from turnwise.core.text import normalise_text

__all__ = ["Group", "Labelling", "LabellingError", "Question"]

_UNDO, _REDO = "undo", "redo"


class Labelling:
    """Labels over a map; one process at a time has them open, and any of its threads may call.

    Attributes:
        folder: the map's.
        map: what is labelled; a row is an utterance of it.
    """

    @classmethod
    def open(cls, folder: Path | str) -> "Labelling":
        """Opens the labels of a map, and starts them where nothing has been labelled yet.

        Args:
            folder: the map's.

        Raises:
            MapError: if the folder holds no map.
            JournalError: if another process has them open.
            LabellingError: if they are of another map.
        """
        folder = Path(folder)
        labelled = UtteranceMap.load(folder)
        journal = Journal(folder / JOURNAL)
        try:
            return cls(folder, labelled, journal)
        except BaseException:
            journal.close()
            raise

    def __init__(self, folder: Path, labelled: UtteranceMap, journal: Journal):
        """Replays a journal over a map; `open` is what you want."""
        self.folder = folder
        self.map = labelled
        self._journal = journal
        self._lock = threading.RLock()
        self._state = Grouping(labelled.labels)
        self._groups = Groups(labelled)
        self._asker: Asker | None = None
        self._is_open = True
        for number, entry in enumerate(journal.entries, 1):
            try:
                self._replay(entry, is_first=number == 1)
            except (ValueError, IndexError) as error:
                raise LabellingError(
                    f"{journal.path}, line {number}: {error}; if the file is of another map, move it there, else remove the line"
                ) from error

    # ---- what there is

    @property
    def groups(self) -> list[Group]:
        """The groups that hold an utterance, the largest first."""
        with self._lock:
            return self._groups.of(self._state)

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """The number of every row's group; −1: it is in none."""
        with self._lock:
            return self._state.groups.copy()

    @property
    def confirmed(self) -> npt.NDArray[np.bool_]:
        """Which rows a person has labelled by themselves: these are not asked about again."""
        with self._lock:
            return self._state.confirmed.copy()

    @property
    def changes(self) -> int:
        """How many changes stand."""
        return len(self._state.done)

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to undo."""
        return bool(self._state.done)

    @property
    def can_redo(self) -> bool:
        """Whether there is a change to do again."""
        return bool(self._state.undone)

    def group_of(self, row: int) -> int:
        """The number of a row's group; −1: it is in none.

        Raises:
            LabellingError: if there is no such row.
        """
        return int(self._state.groups[changes.checked_rows(self._state, [row])[0]])

    def labels(self) -> list[str | None]:
        """The label of every row: the name of its group, None where that has none."""
        with self._lock:
            names = self._state.names
            return [names.get(group) for group in self._state.groups.tolist()]

    # ---- changes

    def name(self, group: int, name: str) -> None:
        """Names a group: that is the label of all of its utterances. Another group may have the same name.

        Args:
            group: which.
            name: what to call it; space around it is dropped.

        Raises:
            LabellingError: if there is no such group, or the name is empty, too long, or more than a line.
            JournalError: if the change cannot be written; nothing has changed then.
        """
        with self._lock:
            self._make(changes.named(self._state, group, name))

    def merge(self, groups: Sequence[int], name: str | None = None) -> int:
        """Makes one group of several.

        Args:
            groups: which; the first of them takes the others in.
            name: what to call it; None: as the first of them that has a name.

        Returns:
            The number of the group that they are now: the first.

        Raises:
            LabellingError: if fewer than two groups are given, or one of them does not exist.
            JournalError: as in `name`.
        """
        with self._lock:
            self._make(changes.merged(self._state, groups, name))
            return int(groups[0])

    def split(self, group: int, parts: int = 2) -> list[int]:
        """Splits a group by k-means on its vectors.

        Args:
            group: which.
            parts: into how many.

        Returns:
            The numbers of the parts, the largest first: that one keeps the number and the name, the others have no name.

        Raises:
            LabellingError: if there is no such group, or it cannot be split into so many.
            JournalError: as in `name`.
        """
        with self._lock:
            change = changes.split(self._state, group, parts, self.map.vectors)
            self._make(change)
            return [int(group), *change.moved]

    def label(self, rows: Sequence[int], name: str | None) -> int | None:
        """Labels utterances by themselves: they move to the group of that name, which is made if there is none.

        Where several groups have the name, utterances in one of them stay there, and others go to the largest.

        Args:
            rows: which utterances.
            name: their label; None: they belong to no group, and have no label.

        Returns:
            The number of the group that the first of them is in now; None: in none.

        Raises:
            LabellingError: if there is no such row, or the name cannot be used.
            JournalError: as in `name`.
        """
        with self._lock:
            self._make(changes.labelled(self._state, rows, name))
            return None if name is None else int(self._state.groups[rows[0]])

    def carry(self, older: "Labelling") -> int:
        """Takes the labels of an earlier map over for utterances that are in both, as one change.

        Args:
            older: the labels of that map.

        Returns:
            How many utterances have their label from there now.

        Raises:
            LabellingError: if none of its labelled utterances is in this map.
            JournalError: as in `name`.
        """
        known = {
            normalise_text(text): (label, bool(sure))
            for text, label, sure in zip(older.map.texts, older.labels(), older.confirmed, strict=True)
            if label is not None
        }
        shared = [
            (row, *known[same]) for row, text in enumerate(self.map.texts) if (same := normalise_text(text)) in known
        ]
        if not shared:
            raise LabellingError(
                f"no utterance that is labelled in {older.folder} is in {self.folder}: there is nothing to take over"
            )
        with self._lock:
            self._make(changes.carried(self._state, shared))
        return len(shared)

    def undo(self) -> None:
        """Takes the newest change back.

        Raises:
            LabellingError: if there is none.
            JournalError: as in `name`.
        """
        with self._lock:
            if not self.can_undo:
                raise LabellingError("there is no change that could be undone")
            self._journal.append({"do": _UNDO})
            self._state.undo()

    def redo(self) -> None:
        """Makes the change again that was undone last.

        Raises:
            LabellingError: if there is none, or something was changed since.
            JournalError: as in `name`.
        """
        with self._lock:
            if not self.can_redo:
                raise LabellingError("there is no change that could be done again")
            self._journal.append({"do": _REDO})
            self._state.redo()

    # ---- what to ask, and what comes of it

    def ask(self, count: int = 10) -> list[Question]:
        """The utterances whose label helps most, the most helpful first; those that a person has labelled are not among them.

        Args:
            count: how many at most.

        Raises:
            LabellingError: if it is not positive.
        """
        if count < 1:
            raise LabellingError(f"{count} questions cannot be asked: ask for one at least")
        with self._lock:
            if self._asker is None:
                self._asker = Asker(self.map.vectors, self.map.counts)
            return self._asker.ask(self.map.texts, self._state, count)

    def csv(self) -> str:
        """The labels as a table that spreadsheets and `turnwise intents fit` read, a line an utterance."""
        with self._lock:
            return as_csv(self.map, self.labels(), self._state.groups, self._state.confirmed)

    def export(self, path: Path | str) -> int:
        """Writes the labels to a CSV file.

        Args:
            path: where to.

        Returns:
            How many utterances have a label.

        Raises:
            LabellingError: if it cannot be written.
        """
        try:
            write_atomic(Path(path), self.csv())
        except OSError as error:
            raise LabellingError(f"{path} cannot be written: {error}") from error
        return sum(label is not None for label in self.labels())

    def fit(self, encoder: Any = None, **settings: Any) -> IntentClassifier:
        """A classifier of intents, fitted on the utterances that have a label.

        Those labelled 'out_of_scope' are no intent: they show the classifier what to abstain from.

        Args:
            encoder: as `IntentClassifier` takes it; None: the model that the map was made with.
            settings: any other of `IntentClassifier`'s.

        Raises:
            LabellingError: if nothing is labelled.
            IntentError: if the labels are too few to fit on.
        """
        return fitted(self.map, self.labels(), encoder, settings)

    def close(self) -> None:
        """Lets another process open the labels; a journal without a change leaves no file."""
        if self._is_open and not self._journal.entries:
            self._journal.path.unlink()
        self._is_open = False
        self._journal.close()

    def __enter__(self) -> "Labelling":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- the journal

    def _make(self, change: Change | None) -> None:
        """Writes a change down, then makes it; None: there is nothing to change."""
        if change is None:
            return
        if not self._journal.entries:
            self._journal.append({"map": _fingerprint(self.map)})
        self._journal.append(change.as_json())
        self._state.apply(change)

    def _replay(self, entry: Mapping[str, Any], is_first: bool) -> None:
        if not isinstance(entry, Mapping):
            raise ValueError("it is no change")
        if is_first:
            if entry.get("map") != _fingerprint(self.map):
                raise ValueError("the labels are of another map")
        elif entry.get("do") == _UNDO:
            self._state.undo()
        elif entry.get("do") == _REDO:
            self._state.redo()
        else:
            self._state.apply(Change.of_json(entry, len(self.map)))


def _fingerprint(labelled: UtteranceMap) -> str:
    """Tells maps apart: labels are of one alone."""
    digest = hashlib.sha256(labelled.labels.astype("<i4").tobytes())
    for text in labelled.texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()
