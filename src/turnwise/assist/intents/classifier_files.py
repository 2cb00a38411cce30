"""The files of an intent classifier.

```
FOLDER/intents.json                     settings, examples, calibration; the name of the file with the vectors
FOLDER/vectors-….safetensors            vectors of the examples, and the weights of a logistic head
FOLDER/encoder/                         the encoder, if it was tuned or not given by name
```

`intents.json` is replaced atomically after everything else is written, so readers find either the previous or the new
state.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save

from turnwise.assist.intents.calibration import Calibration
from turnwise.assist.intents.context import encoder_input
from turnwise.assist.intents.examples import (
    IntentExamples,
    IntentNames,
    IntentPair,
    check_integers,
    validate_vectors,
)
from turnwise.assist.intents.heads import LogisticHead
from turnwise.assist.intents.log_texts import LabelledLog
from turnwise.assist.intents.model import IntentModel, IntentSettings
from turnwise.assist.intents.selection import ContextSelection, HeadSelection, SupportSelection
from turnwise.core.errors import IntentError
from turnwise.core.files import explaining_damage, read_json, replacing, sync_to_disk, write_atomic
from turnwise.core.model_names import is_packaged
from turnwise.core.types import SupportsEncode
from turnwise.models.identity import EncoderId, EncoderIdentity
from turnwise.version import __version__

_DESCRIPTION = "intents.json"
_ENCODER = "encoder"


@dataclass(frozen=True, slots=True)
class StoredClassifier:
    """What the files hold besides the encoder's weights."""

    encoder: str  # the name or folder of the encoder
    max_length: int
    tuning: Mapping[str, Any] | None
    head_selection: HeadSelection | None
    model: IntentModel
    integer_labels: bool  # whether the classifier was fitted on integers
    use_names: bool
    support_selection: SupportSelection | None
    descriptions: Mapping[str, str]
    context_selection: ContextSelection | None

    @property
    def input_length(self) -> int:
        """The maximum number of tokens that the encoder reads."""
        return self.max_length * (2 if self.context_selection is not None and self.context_selection.used else 1)


def is_classifier(folder: Path) -> bool:
    """Return whether a folder holds an intent classifier."""
    return (folder / _DESCRIPTION).is_file()


def stored_encoder(folder: Path) -> tuple[str, bool]:
    """Return the name or folder of a classifier's encoder, and whether the encoder is in the classifier's folder."""
    name = _read_description(folder).get("encoder")
    return (str(folder / _ENCODER), True) if name is None else (name, False)


def write_classifier(stored: StoredClassifier, encoder: SupportsEncode, folder: Path) -> None:
    """Write a classifier and sync it to disk; an encoder that was tuned or has no name is written as well."""
    model, name = stored.model, stored.encoder
    folder.mkdir(parents=True, exist_ok=True)
    is_bundled = bool(name) and Path(name).resolve() == (folder / _ENCODER).resolve()
    encoder_name = None
    if name and stored.tuning is None and not is_bundled:
        encoder_name = str(Path(name).resolve()) if Path(name).is_dir() and not is_packaged(name) else name
    elif not is_bundled:
        save_encoder = getattr(encoder, "save", None)
        if save_encoder is None:
            raise IntentError(
                f"{type(encoder).__name__} cannot be saved with the classifier: use the name or folder of a model, or a"
                " turnwise Encoder"
            )
        save_encoder(folder / _ENCODER)
        for path in (folder / _ENCODER).rglob("*"):
            sync_to_disk(path)
    tensors: dict[str, npt.NDArray[np.floating[Any]]] = {"vectors": model.examples.vectors}
    if model.logistic is not None:
        tensors |= {"weights": model.logistic.weights, "bias": model.logistic.bias}
    names = model.examples.names
    if names is not None:
        tensors |= {"names": names.vectors}
    if model.log is not None:
        # these have no more digits than half precision holds
        halves = (model.log.vectors.astype(np.float16), model.log.labels.astype(np.float16))
        tensors |= {"log_vectors": halves[0], "log_labels": halves[1], "log_in_scope": model.log.in_scope}
    tensors = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    vector_file = folder / _vector_file_name(tensors)
    with replacing(vector_file, durable=True) as part:
        part.write_bytes(save(tensors))
    encoder_id = EncoderId.of(encoder, stored.input_length)
    description = {
        "turnwise": __version__,
        "encoder": encoder_name,
        "encoder_id": None if encoder_id is None else asdict(encoder_id),
        "max_length": stored.max_length,
        "tuning": stored.tuning,
        "integer_labels": stored.integer_labels,
        **asdict(model.settings),
        "head_selection": None if stored.head_selection is None else asdict(stored.head_selection),
        "use_names": stored.use_names,
        "names": None if names is None else dict(zip(names.intents, names.words, strict=True)),
        "descriptions": stored.descriptions,
        "support_selection": None if stored.support_selection is None else asdict(stored.support_selection),
        "context_selection": None if stored.context_selection is None else asdict(stored.context_selection),
        "vectors": vector_file.name,
        "calibration": asdict(model.calibration),
        "examples": [{"text": text, "intent": intent} for text, intent in model.examples.pairs],
    }
    write_atomic(folder / _DESCRIPTION, json.dumps(description, ensure_ascii=False, indent=1) + "\n", durable=True)
    for other in folder.glob("vectors-*.safetensors"):
        if other != vector_file:
            other.unlink()
    if encoder_name is not None:
        shutil.rmtree(folder / _ENCODER, ignore_errors=True)


def load_stored(folder: Path) -> tuple[StoredClassifier, EncoderIdentity]:
    """Read a classifier, and the identity of its encoder; raise IntentError if there is none or it is damaged."""
    description = _read_description(folder)
    with _explaining_damage(folder):
        tensors = load_file(folder / description["vectors"])
        if _vector_file_name(tensors) != description["vectors"]:
            raise ValueError(f"the contents of {description['vectors']} are not those that were written")
        pairs = tuple((example["text"], example["intent"]) for example in description["examples"])
        names, log = description["names"], None
        if names is not None:
            vectors = validate_vectors(tensors["names"], len(names))
            names = IntentNames(tuple(names), tuple(names.values()), vectors)
        examples = IntentExamples(pairs, validate_vectors(tensors["vectors"], len(pairs)), names)
        if "log_vectors" in tensors:
            vectors, labels = (tensors[name].astype(np.float32) for name in ("log_vectors", "log_labels"))
            log = LabelledLog(vectors, labels, tensors["log_in_scope"])
        settings = IntentSettings(**{field.name: description[field.name] for field in fields(IntentSettings)})
        logistic = LogisticHead(tensors["weights"], tensors["bias"]) if "weights" in tensors else None
        # a logistic head is restored, not fitted again
        model = IntentModel.uncalibrated(examples, replace(settings, head="neighbours") if logistic else settings, log)
        calibration = Calibration.from_json(description["calibration"])
        model = replace(model, settings=settings, logistic=logistic, calibration=calibration)
        max_length, selection = description["max_length"], description.get("head_selection")
        selection = None if selection is None else HeadSelection(**selection)
        encoder, integers = stored_encoder(folder)[0], description["integer_labels"]
        if integers:
            check_integers(pairs)
        support, context = description["support_selection"], description.get("context_selection")
        stored = StoredClassifier(
            encoder,
            max_length,
            description["tuning"],
            selection,
            model,
            integers,
            description["use_names"],
            None if support is None else SupportSelection(**support),
            description["descriptions"],
            None if context is None else ContextSelection(**context),
        )
        encoder_id = EncoderId.from_json(description.get("encoder_id"))
    inputs, vectors = [encoder_input(text) for text, _ in pairs], examples.vectors
    if not inputs and names is not None:
        inputs, vectors = list(names.words), names.vectors
    identity = EncoderIdentity.from_stored(inputs, vectors, stored.input_length, encoder_id)
    return stored, identity


def load_pairs(folder: Path) -> list[IntentPair]:
    """Read only the examples of a classifier; raise IntentError as `load_stored` does."""
    with _explaining_damage(folder):
        return [(example["text"], example["intent"]) for example in _read_description(folder)["examples"]]


def _read_description(folder: Path) -> Any:
    if not is_classifier(folder):
        raise IntentError(
            f"{folder} holds no intent classifier (no {_DESCRIPTION}): create one with `turnwise intents fit`"
        )
    with _explaining_damage(folder):
        return read_json(folder / _DESCRIPTION)


def _explaining_damage(folder: Path) -> AbstractContextManager[None]:
    return explaining_damage(folder, IntentError, "fit the classifier again, or use an earlier one")


def _vector_file_name(tensors: Mapping[str, npt.NDArray[np.generic]]) -> str:
    """Return the name of the file with tensors, which has a digest of them."""
    contents = b"".join(tensors[name].tobytes() for name in sorted(tensors))
    return f"vectors-{hashlib.sha256(contents).hexdigest()[:16]}.safetensors"
