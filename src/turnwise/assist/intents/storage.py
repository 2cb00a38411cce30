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
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from turnwise.assist.intents.calibration import Calibration
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import IntentError, IntentExamples, IntentPair, validate_pairs, validate_vectors
from turnwise.assist.intents.head_selection import HeadSelection
from turnwise.assist.intents.model import IntentModel, IntentSettings, LogisticHead
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.files import read_json, sync_to_disk, write_atomic
from turnwise.core.journal import Journal, read_entries
from turnwise.core.model_names import is_packaged
from turnwise.core.text import normalise_text
from turnwise.core.types import SupportsEncode, Vectors
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
    vector_file.write_bytes(save(tensors))
    sync_to_disk(vector_file)
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
    write_atomic(folder / _DESCRIPTION, json.dumps(description, ensure_ascii=False, indent=1) + "\n")
    sync_to_disk(folder / _DESCRIPTION)
    sync_to_disk(folder)
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


class IntentFolder:
    """A classifier on disk whose examples can be changed; thread-safe, open in one process at a time.

    `classifier` includes all acknowledged changes.
    """

    def __init__(self, folder: Path, classifier: IntentClassifier, journal: Journal):
        self.folder = folder
        self.classifier = classifier
        self._journal = journal
        self._lock = threading.Lock()

    @classmethod
    def open(cls, folder: Path | str, *, encoder: SupportsEncode | None = None) -> "IntentFolder":
        """Open the folder of a classifier and apply its journal; `encoder` replaces the stored one.

        Raise IntentError if the folder holds no classifier, JournalError if another process has it open.
        """
        folder = Path(folder)
        if not is_classifier(folder):  # before a journal is created in the wrong place
            load_classifier(folder)
        journal = Journal(folder / _JOURNAL)
        try:
            opened = cls(folder, load_classifier(folder, encoder), journal)
            if journal.entries:
                _apply_journal(opened.classifier, journal.entries, journal.path)
                opened.compact()
        except BaseException:
            journal.close()
            raise
        return opened

    def add(self, examples: Sequence[IntentPair], *, vectors: Vectors | None = None) -> int:
        """Add examples durably, also of new intents; return how many are new.

        Nothing is added if an example is blank (IntentError), or the journal cannot be written (JournalError).
        """
        pairs = _validate(examples)
        with self._lock:
            model, count = self.classifier.with_added(pairs, vectors=vectors)
            if count:
                self._journal.append({"add": pairs})
                self.classifier.model_ = model
        return count

    def remove(self, examples: Sequence[IntentPair] = (), *, intent: str | None = None) -> int:
        """Remove examples, and all examples of `intent`, durably; return how many were removed.

        Nothing is removed if no example of any intent would be left (IntentError), or the journal cannot be written.
        """
        pairs = _validate(examples)
        with self._lock:
            removed = pairs + ([] if intent is None else self.classifier.examples_of(intent))
            model, count = self.classifier.with_removed(removed)
            if count:
                self._journal.append({"remove": removed})
                self.classifier.model_ = model
        return count

    def compact(self) -> None:
        """Write the classifier's current state and clear the journal."""
        with self._lock:
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
    _apply_journal(classifier, read_entries(folder / _JOURNAL), folder / _JOURNAL)
    return classifier


def read_examples(folder: Path) -> list[IntentPair]:
    """Read the examples of a classifier and its journal, without its encoder; those out of scope come last."""
    description = _read_description(folder)
    try:
        pairs = [(example["text"], example["intent"]) for example in description["examples"]]
    except (KeyError, TypeError) as error:
        raise _damaged(folder, error) from error
    examples = {(normalise_text(text), intent): (text, intent) for text, intent in pairs}
    journal = folder / _JOURNAL
    for key, (pair, is_added) in _last_changes(read_entries(journal), journal).items():
        if is_added:
            examples.setdefault(key, pair)
        else:
            examples.pop(key, None)
    return sorted(examples.values(), key=lambda pair: (pair[1] == OUT_OF_SCOPE, pair[1]))


def replace_classifier(classifier: IntentClassifier, folder: Path) -> None:
    """Write a fitted classifier to a folder, replacing a classifier and its journal that may be there."""
    with Journal(folder / _JOURNAL) as journal:
        save_classifier(classifier, folder)
        journal.clear()


def _validate(examples: Sequence[IntentPair]) -> list[IntentPair]:
    return validate_pairs([text for text, _ in examples], [intent for _, intent in examples])


def _apply_journal(classifier: IntentClassifier, entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Apply all changes at once."""
    last = _last_changes(entries, path)
    classifier.model_, _ = classifier.with_added([pair for pair, is_added in last.values() if is_added])
    classifier.model_, _ = classifier.with_removed([pair for pair, is_added in last.values() if not is_added])


def _last_changes(entries: Sequence[dict[str, Any]], path: Path) -> dict[IntentPair, tuple[IntentPair, bool]]:
    """Return by example whether its last change adds it: that decides whether it exists."""
    last: dict[IntentPair, tuple[IntentPair, bool]] = {}
    for entry in entries:
        action = next((name for name in ("add", "remove") if name in entry), None)
        if action is None:
            raise IntentError(f"{path} contains an entry that neither adds nor removes ({entry}): remove that line")
        for text, intent in entry[action]:
            last[normalise_text(text), intent] = (text, intent), action == "add"
    return last
