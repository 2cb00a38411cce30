"""Intent classifiers on disk, and a journal that makes every change of examples durable before it is acknowledged.

```
FOLDER/intents.json                     settings, examples, calibration; the name of the file with the vectors
FOLDER/vectors-….safetensors            vectors of the examples, and the weights of a logistic head
FOLDER/encoder/                         the encoder, if it was tuned or not given by name
FOLDER/changes.jsonl                    examples added and removed since intents.json was written
```

`intents.json` is replaced atomically after everything else is written, so readers find either the previous or the new
state. Journal entries state which examples exist, or do not exist, from then on. Replaying an entry twice is therefore
harmless, and a process that is killed between writing the files and clearing the journal loses nothing.
"""

import hashlib
import json
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from turnwise.assist.intents.calibration import Calibration
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import (
    IntentExamples,
    IntentPair,
    check_any_left,
    example_key,
    sort_pairs,
    validate_pairs,
    validate_vectors,
)
from turnwise.assist.intents.head_selection import HeadSelection
from turnwise.assist.intents.model import IntentModel, IntentSettings, LogisticHead, check_logistic
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import IntentError
from turnwise.core.files import read_json, replacing, sync_to_disk, write_atomic
from turnwise.core.journal import Journal, read_entries
from turnwise.core.model_names import is_packaged
from turnwise.core.types import SupportsEncode
from turnwise.models.identity import EncoderId, EncoderIdentity
from turnwise.version import __version__

_DESCRIPTION = "intents.json"
_ENCODER = "encoder"
_JOURNAL = "changes.jsonl"


def is_classifier(folder: Path) -> bool:
    """Return whether a folder holds an intent classifier."""
    return (folder / _DESCRIPTION).is_file()


def bundled_encoder(folder: Path) -> Path | None:
    """Return the folder of the encoder that is stored with a classifier; None if it is given by name."""
    return folder / _ENCODER if read_json(folder / _DESCRIPTION)["encoder"] is None else None


def save_classifier(classifier: IntentClassifier, folder: Path) -> None:
    """Write a fitted classifier and sync the files to disk; raise IntentError if its encoder cannot be saved."""
    model, tuning, selection = classifier.model_, classifier.tuning, classifier.head_selection_
    folder.mkdir(parents=True, exist_ok=True)
    name = classifier.encoder if isinstance(classifier.encoder, str | Path) else None
    is_bundled = name is not None and Path(name).resolve() == (folder / _ENCODER).resolve()
    encoder_name = None
    if name is not None and tuning is None and not is_bundled:
        is_folder = Path(name).is_dir() and not is_packaged(name)
        encoder_name = str(Path(name).resolve()) if is_folder else str(name)
    elif not is_bundled:
        _save_encoder(classifier.encoder_, folder / _ENCODER)
    tensors = {"vectors": model.examples.vectors}
    if model.logistic is not None:
        tensors |= {"weights": model.logistic.weights, "bias": model.logistic.bias}
    tensors = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    digest = hashlib.sha256(b"".join(values.tobytes() for values in tensors.values())).hexdigest()[:16]
    vector_file = folder / f"vectors-{digest}.safetensors"
    with replacing(vector_file, durable=True) as part:
        part.write_bytes(save(tensors))
    encoder_id = EncoderId.of(classifier.encoder_, classifier.max_length)
    description = {
        "turnwise": __version__,
        "encoder": encoder_name,
        "encoder_id": None if encoder_id is None else asdict(encoder_id),
        "max_length": classifier.max_length,
        "tuning": None if tuning is None else asdict(tuning),
        **asdict(model.settings),
        "head_selection": None if selection is None else selection.to_json(),
        "vectors": vector_file.name,
        "calibration": model.calibration.to_json(),
        "examples": [{"text": text, "intent": intent} for text, intent in model.examples.pairs],
    }
    write_atomic(folder / _DESCRIPTION, json.dumps(description, ensure_ascii=False, indent=1) + "\n", durable=True)
    for other in folder.glob("vectors-*.safetensors"):
        if other != vector_file:
            other.unlink()
    if encoder_name is not None:
        shutil.rmtree(folder / _ENCODER, ignore_errors=True)


def _save_encoder(encoder: Any, folder: Path) -> None:
    if not hasattr(encoder, "save"):
        raise IntentError(
            f"{type(encoder).__name__} cannot be saved with the classifier: use the name or folder of a model, or a"
            " turnwise Encoder"
        )
    encoder.save(folder)
    for path in folder.rglob("*"):
        sync_to_disk(path)


def load_classifier(folder: Path, encoder: SupportsEncode | None = None) -> IntentClassifier:
    """Read a classifier; `encoder` replaces the stored one.

    Raise IntentError if there is no classifier or it is damaged, EncoderMismatchError if the encoder is another one.
    """
    description = _read_description(folder)
    try:
        tensors = load_file(folder / description["vectors"])
        pairs = tuple((example["text"], example["intent"]) for example in description["examples"])
        examples = IntentExamples(pairs, validate_vectors(tensors["vectors"], len(pairs)))
        settings = IntentSettings(**{field.name: description[field.name] for field in fields(IntentSettings)})
        calibration = Calibration.from_json(description["calibration"])
        selection = HeadSelection.from_json(description.get("head_selection"))
        logistic = LogisticHead(tensors["weights"], tensors["bias"]) if "weights" in tensors else None
        # a logistic head is restored, not fitted again
        model = IntentModel.uncalibrated(examples, replace(settings, head="neighbours") if logistic else settings)
        model = replace(model, settings=settings, logistic=logistic, calibration=calibration)
        tuning = description["tuning"]
        if tuning is not None:
            from turnwise.assist.intents.tuning import TuningSettings

            tuning = TuningSettings(**tuning)
        name = str(folder / _ENCODER) if description["encoder"] is None else description["encoder"]
        classifier = IntentClassifier(name, max_length=description["max_length"], tuning=tuning, **asdict(settings))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise _damaged(folder, error) from error
    classifier.encoder_ = classifier.load_encoder() if encoder is None else encoder
    texts = [text for text, _ in examples.pairs]
    encoder_id = EncoderId.from_json(description.get("encoder_id"))
    identity = EncoderIdentity.from_stored(texts, examples.vectors, classifier.max_length, encoder_id)
    identity.check(classifier.encoder_, f"the classifier in {folder}", f"turnwise intents fit FILE --out {folder}")
    classifier.model_, classifier.head_selection_ = model, selection
    return classifier


def _read_description(folder: Path) -> Any:
    if not is_classifier(folder):
        raise IntentError(
            f"{folder} holds no intent classifier (no {_DESCRIPTION}): create one with `turnwise intents fit`"
        )
    try:
        return read_json(folder / _DESCRIPTION)
    except (OSError, ValueError) as error:
        raise _damaged(folder, error) from error


def _damaged(folder: Path, error: Exception) -> IntentError:
    return IntentError(f"{folder} is damaged ({type(error).__name__}: {error}): fit the classifier again")


# ---- folders that change


@dataclass(frozen=True, slots=True)
class ExampleChange:
    """Examples to add or to remove."""

    pairs: list[IntentPair]
    is_addition: bool = True
    intent: str | None = None  # all examples of this intent are removed too

    @classmethod
    def addition(cls, examples: Sequence[IntentPair]) -> "ExampleChange":
        """Return a change that adds examples, also of new intents; raise IntentError if one is blank."""
        return cls(_validate(examples))

    @classmethod
    def removal(cls, examples: Sequence[IntentPair] = (), intent: str | None = None) -> "ExampleChange":
        """Return a change that removes examples, and all of an intent; raise IntentError if one is blank."""
        return cls(_validate(examples), False, intent)


class IntentFolder:
    """A classifier on disk whose examples can be changed; thread-safe, open in one process at a time.

    `add` and `remove` write a change to disk and recalibrate the classifier. To do so separately, `record` writes
    changes to disk, and `apply` recalibrates the classifier once for all that were recorded before. `classifier` has
    the changes that were applied, `examples` all that were recorded.
    """

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
            load_classifier(folder)
        journal = Journal(folder / _JOURNAL)
        try:
            opened = cls(folder, load_classifier(folder, encoder), journal)
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
        """Add examples durably, also of new intents; return how many are new.

        Nothing is added if an example is blank (IntentError), or the journal cannot be written (ProjectError).
        """
        return self._change(ExampleChange.addition(examples))

    def remove(self, examples: Sequence[IntentPair] = (), *, intent: str | None = None) -> int:
        """Remove examples, and all examples of `intent`, durably; return how many were removed.

        Nothing is removed if no example of any intent would be left (IntentError), or the journal cannot be written.
        """
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
            examples, head = dict(self._examples), self.classifier.head_
            entries: list[dict[str, list[IntentPair]]] = []
            results: list[int | IntentError] = []
            for change in changes:
                try:
                    changed = _make_change(examples, change, head)
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
            save_classifier(self.classifier, self.folder)
            self._journal.clear()

    def close(self) -> None:
        """Allow another process to open the folder; the classifier remains usable."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_classifier(folder: Path) -> IntentClassifier:
    """Read a classifier and its journal for prediction only; another process may have the folder open."""
    classifier = load_classifier(folder)
    _apply_changes(classifier, _last_changes(read_entries(folder / _JOURNAL), folder / _JOURNAL))
    return classifier


def read_examples(folder: Path) -> list[IntentPair]:
    """Read the examples of a classifier and its journal, without its encoder; those out of scope come last."""
    description = _read_description(folder)
    try:
        pairs = [(example["text"], example["intent"]) for example in description["examples"]]
    except (KeyError, TypeError) as error:
        raise _damaged(folder, error) from error
    journal = folder / _JOURNAL
    return sort_pairs(_merge(pairs, _last_changes(read_entries(journal), journal)).values())


def replace_classifier(classifier: IntentClassifier, folder: Path) -> None:
    """Write a fitted classifier to a folder, replacing a classifier and its journal that may be there."""
    with Journal(folder / _JOURNAL) as journal:
        save_classifier(classifier, folder)
        journal.clear()


def _validate(examples: Sequence[IntentPair]) -> list[IntentPair]:
    return validate_pairs([text for text, _ in examples], [intent for _, intent in examples])


def _make_change(examples: dict[IntentPair, IntentPair], change: ExampleChange, head: str) -> list[IntentPair]:
    """Make a change in a dictionary of examples, and return those that are added or removed.

    Raise IntentError if too few would be left; then nothing is changed.
    """
    if change.is_addition:
        new: dict[IntentPair, IntentPair] = {}
        for pair in change.pairs:
            key = example_key(pair)
            if key not in examples:
                new.setdefault(key, pair)
        examples |= new
        return list(new.values())
    keys = {key for pair in change.pairs if (key := example_key(pair)) in examples}
    if change.intent is not None:
        keys |= {key for key in examples if key[1] == change.intent}
    if keys:
        left = {key[1] for key in examples if key not in keys}
        check_any_left(left)
        if head == "logistic":
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
    """Apply all changes at once."""
    classifier.model_ = classifier.with_changes(
        added=[pair for pair, is_added in changes.values() if is_added],
        removed=[pair for pair, is_added in changes.values() if not is_added],
    )


def _last_changes(entries: Sequence[Mapping[str, Any]], path: Path) -> _LastChanges:
    """Return the last change of each example in entries of the journal."""
    last: _LastChanges = {}
    for entry in entries:
        action = next((name for name in ("add", "remove") if name in entry), None)
        if action is None:
            raise IntentError(f"{path} contains an entry that neither adds nor removes ({entry}): remove that line")
        for text, intent in entry[action]:
            last[example_key((text, intent))] = (text, intent), action == "add"
    return last
