"""Folders of intent classifiers, with a journal that makes changes of examples durable before they are acknowledged.

Besides the files of the classifier (see `classifier_files`), a folder has `changes.jsonl`, the examples that were added
and removed since these were written. Entries state which examples exist, or do not exist, from then on. Replaying an
entry twice is therefore harmless, and a process that is killed between writing the files and clearing the journal loses
nothing. `added.json` has the examples that were added after fitting: a project's next classifier takes them over.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from filelock import FileLock

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.classifier_files import is_classifier, load_pairs, stored_encoder
from turnwise.assist.intents.context import Utterance
from turnwise.assist.intents.examples import (
    IntentPair,
    check_any_left,
    check_integers,
    example_key,
    sort_pairs,
    validate_pairs,
)
from turnwise.assist.intents.heads import check_logistic
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import IntentError
from turnwise.core.files import explaining_damage, read_json, replacing, write_atomic
from turnwise.core.journal import Journal, read_entries
from turnwise.core.project import Project
from turnwise.core.types import SupportsEncode

_JOURNAL, _ADDED = "changes.jsonl", "added.json"


@dataclass(frozen=True, slots=True)
class ExampleChange:
    """Examples to add or to remove."""

    pairs: list[IntentPair]
    is_addition: bool = True
    intent: str | None = None  # all examples of this intent are removed too

    @classmethod
    def addition(cls, examples: Sequence[tuple[Utterance, str]]) -> "ExampleChange":
        """Return a change that adds examples, also of new intents; raise IntentError if one is blank."""
        return cls(validate_pairs([text for text, _ in examples], [intent for _, intent in examples]))

    @classmethod
    def removal(cls, examples: Sequence[tuple[Utterance, str]] = (), intent: str | None = None) -> "ExampleChange":
        """Return a change that removes examples, and all of an intent; raise IntentError if one is blank."""
        return cls(cls.addition(examples).pairs, False, intent)


class IntentFolder:
    """A classifier on disk whose examples can be changed; thread-safe, open in one process at a time."""

    def __init__(self, folder: Path, classifier: IntentClassifier, journal: Journal):
        self.folder = folder
        self.classifier = classifier
        self._journal = journal
        # recorded, but not applied; neither this nor the examples are changed in place
        self._pending = _last_changes(journal.entries, journal.path)
        self._examples = _merge(classifier.model_.examples.pairs, self._pending)
        self._recording = threading.RLock()
        self._applying = threading.Lock()
        self._swapping = threading.Lock()  # held for a moment, while the attributes above are replaced

    @classmethod
    def open(cls, folder: Path | str, *, encoder: SupportsEncode | None = None, apply: bool = True) -> "IntentFolder":
        """Open the folder of a classifier; `encoder` replaces the stored one.

        The changes in its journal are applied and merged into its files, or with `apply=False` left pending.
        Raise IntentError if the folder holds no classifier, ProjectError if another process has it open.
        """
        folder = Path(folder)
        if not is_classifier(folder):  # before a journal is created in the wrong place
            IntentClassifier.load(folder)
        journal = Journal(folder / _JOURNAL)
        try:
            opened = cls(folder, IntentClassifier.load(folder, encoder=encoder), journal)
            if apply and journal.entries:
                opened.compact()
        except BaseException:
            journal.close()
            raise
        return opened

    @property
    def examples(self) -> list[IntentPair]:
        """All examples on disk, sorted by intent; those out of scope come last."""
        return sort_pairs(self._examples.values())

    @property
    def intents(self) -> int:
        """The number of intents that have examples on disk."""
        return len({intent for _, intent in self._examples} - {OUT_OF_SCOPE})

    @property
    def pending(self) -> int:
        """The number of examples that were added or removed on disk, but not applied to the classifier yet."""
        return len(self._pending)

    def add(self, examples: Sequence[IntentPair]) -> int:
        """Add examples durably, also of new intents; return how many are new."""
        return self._change(ExampleChange.addition(examples))

    def remove(self, examples: Sequence[IntentPair] = (), *, intent: str | None = None) -> int:
        """Remove examples, and all of `intent`, durably; return how many. One in scope must be left."""
        return self._change(ExampleChange.removal(examples, intent))

    def _change(self, change: ExampleChange) -> int:
        [count] = self.record([change])
        if isinstance(count, IntentError):
            raise count
        self.apply()
        return count

    def record(self, changes: Sequence[ExampleChange]) -> list[int | IntentError]:
        """Write changes to disk, with one sync for all; return how many examples each changes, or why it is refused.

        Raise ProjectError if the journal cannot be written; then nothing is changed.
        """
        with self._recording:
            examples = dict(self._examples)
            entries: list[dict[str, list[IntentPair]]] = []
            results: list[int | IntentError] = []
            for change in changes:
                try:
                    changed = _make_change(examples, change, self.classifier)
                except IntentError as error:
                    results.append(error)
                    continue
                results.append(len(changed))
                if changed:
                    entries.append({"add" if change.is_addition else "remove": changed})
            if entries:
                self._journal.append(*entries)
                with self._swapping:
                    self._examples = examples
                    self._pending = self._pending | _last_changes(entries, self._journal.path)
        return results

    def apply(self) -> None:
        """Apply all changes that are on disk by now; if that fails, they stay pending."""
        with self._applying:
            taken = self._pending
            if not taken:
                return
            _apply_changes(self.classifier, taken)
            with self._swapping:
                self._pending = {key: last for key, last in self._pending.items() if taken.get(key) is not last}

    def compact(self) -> None:
        """Write the classifier's current state, with all changes, and clear the journal."""
        with self._recording:
            self.apply()
            self.classifier.save(self.folder)
            write_atomic(self.folder / _ADDED, json.dumps(read_added(self.folder), ensure_ascii=False), durable=True)
            self._journal.clear()

    def take_over(self, earlier: Path) -> int:
        """Add the examples that were added to an earlier classifier, but no text twice; return how many are new."""
        texts = {text for text, _ in self._examples}
        added = [pair for pair in read_added(earlier) if example_key(pair)[0] not in texts]
        return self.add(added) if added else 0

    def close(self) -> None:
        """Allow another process to open the folder; the classifier remains usable."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_classifier(folder: Path) -> IntentClassifier:
    """Read a classifier and its journal for prediction only; another process may have the folder open."""
    classifier = IntentClassifier.load(folder)
    _apply_changes(classifier, _last_changes(read_entries(folder / _JOURNAL), folder / _JOURNAL))
    return classifier


def read_examples(folder: Path) -> list[IntentPair]:
    """Read the examples of a classifier and its journal, without its encoder; those out of scope come last."""
    journal = folder / _JOURNAL
    return sort_pairs(_merge(load_pairs(folder), _last_changes(read_entries(journal), journal)).values())


def read_added(folder: Path) -> list[IntentPair]:
    """Return the examples that were added to a classifier after it was fitted, and not removed since."""
    path, journal = folder / _ADDED, folder / _JOURNAL
    with explaining_damage(path, IntentError, "remove this file; the examples that it lists are still known"):
        added = [(text, intent) for text, intent in read_json(path)] if path.exists() else []
    return list(_merge(added, _last_changes(read_entries(journal), journal)).values())


def replace_classifier(classifier: IntentClassifier, folder: Path) -> None:
    """Write a fitted classifier to a folder, replacing a classifier and its journal that may be there."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing(folder, durable=True) as part:
            classifier.save(part)
        return
    with Journal(folder / _JOURNAL) as journal:
        classifier.save(folder)
        (folder / _ADDED).unlink(missing_ok=True)
        journal.clear()


def classifier_versions(folder: Path) -> list[int]:
    """Return the numbers of the classifiers in the folders `1`, `2`, … of a folder, oldest first."""
    return sorted(int(each.name) for each in folder.glob("[0-9]*") if each.name.isdecimal() and is_classifier(each))


def add_version(folder: Path, classifier: IntentClassifier, *, encoder_name: str | None = None) -> Path:
    """Write a classifier to the next numbered folder of a folder, and return that."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        taken = [int(each.name) for each in folder.iterdir() if each.name.isdecimal()]
        path = folder / str(max(taken, default=0) + 1)
        with replacing(path, durable=True) as part:
            classifier.save(part, encoder_name=encoder_name)
    return path


def add_classifier(project: Project, classifier: IntentClassifier, *, encoder_name: str | None = None) -> Path:
    """Make a classifier the one that a project uses, with the examples that were added to the one in use before."""
    folder = add_version(project.classifiers, classifier, encoder_name=encoder_name)
    with IntentFolder.open(folder, encoder=classifier.encoder_) as opened:
        opened.take_over(Project.load(project.folder).part("intents"))
    project.update(classifier=int(folder.name))
    return folder


def refit_classifier(project: Project) -> bool:
    """Fit a project's classifier again with the project's model; return whether there is one with a shared encoder."""
    folder = project.part("intents")
    if not is_classifier(folder) or stored_encoder(folder)[1]:
        return False
    earlier = read_classifier(folder)
    added = set(map(example_key, read_added(folder)))  # which it will take over
    pairs = [pair for pair in earlier.model_.examples.pairs if example_key(pair) not in added]
    texts, intents = [text for text, _ in pairs], [intent for _, intent in pairs]
    classifier = IntentClassifier(**earlier.get_params() | {"encoder": project.model})
    selection = earlier.support_selection_
    log = project.part("store") if selection is not None and selection.log_size else None
    add_classifier(project, classifier.fit(texts, intents, log=log, descriptions=earlier.descriptions_))
    return True


def _make_change(
    examples: dict[IntentPair, IntentPair], change: ExampleChange, classifier: IntentClassifier
) -> list[IntentPair]:
    """Make a change in a dictionary of examples, and return those that are added or removed."""
    pairs = classifier.known_pairs(change.pairs)
    if change.is_addition:
        if classifier.integer_labels_:
            check_integers(pairs)
        new: dict[IntentPair, IntentPair] = {}
        for pair in pairs:
            if example_key(pair) not in examples:
                new.setdefault(example_key(pair), pair)
        examples |= new
        return list(new.values())
    keys = {example_key(pair) for pair in pairs} & examples.keys()
    keys |= {key for key in examples if key[1] == change.intent}
    if keys:
        left = {key[1] for key in examples if key not in keys}
        check_any_left(left)
        if classifier.head_ == "logistic":
            check_logistic(len(left - {OUT_OF_SCOPE}))
    return [examples.pop(key) for key in keys]


#: By the key of an example, its text and intent, and whether the last change adds it: that decides whether it exists.
_LastChanges = dict[IntentPair, tuple[IntentPair, bool]]


def _merge(pairs: Sequence[IntentPair], changes: _LastChanges) -> dict[IntentPair, IntentPair]:
    """Return examples with changes, by their keys."""
    examples = {example_key(pair): pair for pair in pairs}
    for key, (pair, is_added) in changes.items():
        if is_added:
            examples.setdefault(key, pair)
        else:
            examples.pop(key, None)
    return examples


def _apply_changes(classifier: IntentClassifier, changes: _LastChanges) -> None:
    classifier.model_ = classifier.with_changes(
        added=[pair for pair, is_added in changes.values() if is_added],
        removed=[pair for pair, is_added in changes.values() if not is_added],
    )


def _last_changes(entries: Sequence[Mapping[str, Any]], path: Path) -> _LastChanges:
    """Return the last change of each example in entries of the journal."""
    last: _LastChanges = {}
    for number, entry in enumerate(entries, 1):
        try:
            if not entry or not set(entry) <= {"add", "remove"}:
                raise ValueError(f"{entry} neither adds nor removes")
            for action, pairs in entry.items():
                last |= {example_key((text, intent)): ((text, intent), action == "add") for text, intent in pairs}
        except (ValueError, TypeError, AttributeError) as error:
            raise IntentError(f"{path}, line {number} is no change of examples ({error}): remove that line") from error
    return last
