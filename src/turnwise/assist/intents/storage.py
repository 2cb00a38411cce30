"""A classifier of intents on disk: JSON for people, safetensors for numbers, and its encoder where that has no name.

```
FOLDER/intents.json                     settings, examples, calibration; which file has the vectors
FOLDER/vectors-….safetensors            vectors of the examples, and the weights of a logistic head
FOLDER/encoder/                         the encoder, where it was tuned or given as such
```

`intents.json` is written last and at once: whoever reads finds what was there before, or all that is there now.
"""

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from turnwise.assist.intents.calibration import Calibration, Reliability
from turnwise.assist.intents.examples import Examples, IntentError, checked_vectors
from turnwise.assist.intents.fitted import FittedIntents, Model, Settings
from turnwise.assist.intents.logistic import Logistic
from turnwise.core.files import read_json, sync, write_whole
from turnwise.core.types import SupportsEncode
from turnwise.version import __version__

if TYPE_CHECKING:
    from turnwise.assist.intents.tuning import Tuning

_DESCRIPTION = "intents.json"
_ENCODER = "encoder"

#: Examples that are encoded again to see whether an encoder is the one that encoded them, and the least cosine that says so: a
#: model of eight-bit numbers is the same one, another model is not.
_PROBES = 4
_SAME = 0.97


@dataclass(frozen=True, slots=True)
class Stored:
    """What is kept of a classifier.

    Attributes:
        encoder: the encoder, its name or its folder, as it was given.
        max_length: tokens of a text.
        tuning: how the encoder was tuned; None: it was not.
        fitted: what was learnt.
    """

    encoder: SupportsEncode | str | Path
    max_length: int
    tuning: "Tuning | None"
    fitted: FittedIntents


def is_classifier(folder: Path) -> bool:
    """Whether a folder holds a classifier."""
    return (folder / _DESCRIPTION).is_file()


def own_encoder(folder: Path) -> Path | None:
    """The folder of the encoder that a classifier brings with it; None: it names one that lies elsewhere."""
    return folder / _ENCODER if read_json(folder / _DESCRIPTION)["encoder"] is None else None


def write(stored: Stored, encoder: SupportsEncode, folder: Path) -> None:
    """Writes a fitted classifier; when this comes back, it is on disk.

    Args:
        stored: the classifier.
        encoder: what it encodes with, which is written too where it has no name.
        folder: where to.

    Raises:
        IntentError: if its encoder has no name and cannot be saved.
    """
    fitted = stored.fitted
    folder.mkdir(parents=True, exist_ok=True)
    named = _name(stored, folder)
    if named is None and not _lies_in(stored, folder):
        _write_encoder(encoder, folder / _ENCODER)
    tensors = {"vectors": fitted.examples.vectors}
    if fitted.model.logistic is not None:
        tensors |= {"weights": fitted.model.logistic.weights, "bias": fitted.model.logistic.bias}
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in tensors.values())).hexdigest()[
        :16
    ]
    numbers = folder / f"vectors-{digest}.safetensors"
    numbers.write_bytes(save({name: np.ascontiguousarray(each) for name, each in tensors.items()}))
    sync(numbers)
    described = {
        "turnwise": __version__,
        "encoder": named,
        "max_length": stored.max_length,
        "tuning": None if stored.tuning is None else asdict(stored.tuning),
        **asdict(fitted.settings),
        "vectors": numbers.name,
        "calibration": calibration_as_json(fitted.calibration),
        "examples": [{"text": text, "intent": intent} for text, intent in fitted.examples.pairs],
    }
    write_whole(folder / _DESCRIPTION, json.dumps(described, ensure_ascii=False, indent=1) + "\n")
    sync(folder / _DESCRIPTION)
    sync(folder)
    for other in folder.glob("vectors-*.safetensors"):
        if other != numbers:
            other.unlink()
    if named is not None:
        shutil.rmtree(folder / _ENCODER, ignore_errors=True)


def read(folder: Path) -> Stored:
    """Reads a classifier, but for its encoder.

    Raises:
        IntentError: if there is none, or it is damaged.
    """
    if not is_classifier(folder):
        raise IntentError(
            f"{folder} holds no classifier of intents: it has no {_DESCRIPTION}; make one by `turnwise intents fit`"
        )
    try:
        described = read_json(folder / _DESCRIPTION)
        tensors = load_file(folder / described["vectors"])
        examples = Examples(
            tuple((each["text"], each["intent"]) for each in described["examples"]),
            checked_vectors(tensors["vectors"], len(described["examples"])),
        )
        calibration = _calibration(described["calibration"])
        settings = Settings(**{field.name: described[field.name] for field in fields(Settings)})
        model = Model.of(examples, replace(settings, head="neighbours") if "weights" in tensors else settings)
        if "weights" in tensors:
            model = replace(model, logistic=Logistic(tensors["weights"], tensors["bias"]))
        named = described["encoder"]
        return Stored(
            str(folder / _ENCODER) if named is None else named,
            described["max_length"],
            _tuning(described["tuning"]),
            FittedIntents(settings, examples, model, calibration),
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise IntentError(f"{folder} is damaged ({type(error).__name__}: {error}): fit the classifier again") from error


def check_encoder(encoder: SupportsEncode, stored: Stored, folder: Path) -> None:
    """Makes sure that an encoder is the one that a classifier was fitted with: vectors of different models cannot be compared.

    Raises:
        IntentError: if it gives other vectors of the examples.
    """
    examples = stored.fitted.examples
    probes = [text for text, _ in examples.pairs[:_PROBES]]
    encoded = encoder.encode(probes, normalise=True, max_length=stored.max_length)
    known = examples.vectors[:_PROBES]
    if encoded.shape != known.shape or float((encoded * known).sum(1).min()) < _SAME:
        raise IntentError(
            f"the classifier in {folder} was fitted with another encoder, whose vectors of its examples are not this one's: load it"
            " with the one that it names, or fit it again"
        )


def _name(stored: Stored, folder: Path) -> str | None:
    """What the encoder is found by; None: it lies in the classifier's own folder."""
    if stored.tuning is not None or not isinstance(stored.encoder, str | Path) or _lies_in(stored, folder):
        return None
    place = Path(stored.encoder)
    return str(place.resolve()) if place.is_dir() else str(stored.encoder)


def _lies_in(stored: Stored, folder: Path) -> bool:
    """Whether the encoder is the one in this folder."""
    given = stored.encoder
    return isinstance(given, str | Path) and Path(given).resolve() == (folder / _ENCODER).resolve()


def _write_encoder(encoder: Any, folder: Path) -> None:
    if not hasattr(encoder, "save"):
        raise IntentError(
            f"{type(encoder).__name__} cannot be saved with the classifier: give the name or the folder of a model, or a turnwise"
            " Encoder"
        )
    encoder.save(folder)
    for each in folder.rglob("*"):
        sync(each)


def _tuning(described: dict[str, Any] | None) -> "Tuning | None":
    if described is None:
        return None
    from turnwise.assist.intents.tuning import Tuning

    return Tuning(**described)


def calibration_as_json(calibration: Calibration) -> dict[str, Any]:
    """A calibration as JSON has it."""
    curve = calibration.reliability
    points = {
        "confidence": curve.confidence.tolist(),
        "accuracy": curve.accuracy.tolist(),
        "count": curve.count.tolist(),
    }
    # JSON has no word for what is not a number
    return {**asdict(calibration), "reliability": {**points, "ece": curve.ece if len(curve.count) else None}}


def _calibration(described: dict[str, Any]) -> Calibration:
    points = described["reliability"]
    curve = Reliability(
        np.array(points["confidence"], np.float64),
        np.array(points["accuracy"], np.float64),
        np.array(points["count"], np.int64),
        float("nan") if points["ece"] is None else points["ece"],
    )
    return Calibration(**{**described, "offsets": tuple(described["offsets"]), "reliability": curve})
