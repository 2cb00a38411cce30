"""A classifier of intents on disk that changes: every addition and removal is on disk before it is acknowledged.

Changes go to a journal beside the classifier, and are taken into the classifier's own files when the folder is opened. Each says
which examples are there, or are not there, from then on, so that doing them twice comes to the same: whoever is killed between
writing the files and clearing the journal loses nothing.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import IntentError, Pair, checked_pairs
from turnwise.assist.intents.likeness import Vectors
from turnwise.assist.intents.storage import is_classifier
from turnwise.core.dialogue import same_text
from turnwise.core.journal import Journal, read_entries
from turnwise.core.types import SupportsEncode

_JOURNAL = "changes.jsonl"


class IntentFolder:
    """A classifier and the journal of its changes; several threads may use one, and one process at a time.

    Attributes:
        folder: where it lies.
        classifier: decides; always by all changes that were acknowledged.
    """

    def __init__(self, folder: Path, classifier: IntentClassifier, journal: Journal):
        self.folder = folder
        self.classifier = classifier
        self._journal = journal
        self._lock = threading.Lock()

    @classmethod
    def open(cls, folder: Path | str, *, encoder: SupportsEncode | None = None) -> "IntentFolder":
        """Opens the folder of a classifier, and takes in what its journal holds.

        Args:
            folder: as `IntentClassifier.save` wrote it.
            encoder: in the place of the one that is named there; it has to give the same vectors.

        Raises:
            IntentError: if the folder holds no classifier.
            JournalError: if another process has it open.
        """
        folder = Path(folder)
        if not is_classifier(folder):  # before a journal is made where none belongs
            IntentClassifier.load(folder)
        journal = Journal(folder / _JOURNAL)
        try:
            opened = cls(folder, IntentClassifier.load(folder, encoder=encoder), journal)
            if journal.entries:
                _take_in(opened.classifier, journal.entries, journal.path)
                opened.compact()
        except BaseException:
            journal.close()
            raise
        return opened

    def add(self, examples: Sequence[Pair], *, vectors: Vectors | None = None) -> int:
        """Adds examples, of new intents too; how many of them are new. They are on disk when this comes back.

        Args:
            examples: each a text and its intent.
            vectors: of the texts, of length 1, where they are known.

        Raises:
            IntentError: if an example is blank.
            JournalError: if the disk does not take them; nothing is added then.
        """
        pairs = _checked(examples)
        with self._lock:
            changed, count = self.classifier.with_more(pairs, vectors=vectors)
            if count:
                self._journal.append({"add": pairs})
                self.classifier.fitted_ = changed
        return count

    def remove(self, examples: Sequence[Pair] = (), *, intent: str | None = None) -> int:
        """Removes examples, or an intent with all of its examples; how many there were. That is on disk when this comes back.

        Args:
            examples: each a text and its intent.
            intent: the intent; its examples are removed beside those that are named.

        Raises:
            IntentError: if no example of any intent would be left.
            JournalError: if the disk does not take it; nothing is removed then.
        """
        pairs = _checked(examples)
        with self._lock:
            gone = pairs + ([] if intent is None else self.classifier.pairs_of(intent))
            changed, count = self.classifier.without(gone)
            if count:
                self._journal.append({"remove": gone})
                self.classifier.fitted_ = changed
        return count

    def compact(self) -> None:
        """Writes the classifier as it is now, and clears the journal."""
        with self._lock:
            self.classifier.save(self.folder)
            self._journal.clear()

    def close(self) -> None:
        """Lets another process open the folder; the classifier can still be asked."""
        self._journal.close()

    def __enter__(self) -> "IntentFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_classifier(folder: Path) -> IntentClassifier:
    """The classifier of a folder with all changes in its journal, to be asked only: another process may have the folder open.

    Raises:
        IntentError: if the folder holds no classifier.
    """
    classifier = IntentClassifier.load(folder)
    _take_in(classifier, read_entries(folder / _JOURNAL), folder / _JOURNAL)
    return classifier


def replace_classifier(classifier: IntentClassifier, folder: Path) -> None:
    """Writes a fitted classifier to a folder, in the place of one that may be there with its journal.

    Raises:
        IntentError: if its encoder cannot be saved.
        JournalError: if another process has the folder open.
    """
    with Journal(folder / _JOURNAL) as journal:
        classifier.save(folder)
        journal.clear()


def _checked(examples: Sequence[Pair]) -> list[Pair]:
    return checked_pairs([text for text, _ in examples], [intent for _, intent in examples])


def _take_in(classifier: IntentClassifier, entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Makes all changes at once: what counts is whether an example was added or removed last."""
    last = {
        (same_text(pair[0]), pair[1]): (pair, is_added) for entry in entries for pair, is_added in _changes(entry, path)
    }
    classifier.fitted_, _ = classifier.with_more([pair for pair, is_added in last.values() if is_added])
    classifier.fitted_, _ = classifier.without([pair for pair, is_added in last.values() if not is_added])


def _changes(entry: dict[str, Any], path: Path) -> list[tuple[Pair, bool]]:
    for word, is_added in (("add", True), ("remove", False)):
        if word in entry:
            return [((text, intent), is_added) for text, intent in entry[word]]
    raise IntentError(f"{path} holds an entry that neither adds nor removes ({entry}): remove that line")
