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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from turnwise.assist.intents.calibration import Calibration, Reliability
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import Examples, IntentError, checked_vectors
from turnwise.assist.intents.fitted import FittedIntents, Model
from turnwise.assist.intents.logistic import Logistic
from turnwise.files import read_json, sync, write_whole
from turnwise.supports import SupportsEncode
from turnwise.version import __version__

_DESCRIPTION = "intents.json"
_ENCODER = "encoder"

#: Examples that are encoded again to see whether an encoder is the one that encoded them, and the least cosine that says so: a
#: model of eight-bit numbers is the same one, another model is not.
_PROBES = 4
_SAME = 0.97


def is_classifier(folder: Path) -> bool:
    """Whether a folder holds a classifier."""
    return (folder / _DESCRIPTION).is_file()


def own_encoder(folder: Path) -> Path | None:
    """The folder of the encoder that a classifier brings with it; None: it names one that lies elsewhere."""
    return folder / _ENCODER if read_json(folder / _DESCRIPTION)["encoder"] is None else None


def write(classifier: IntentClassifier, folder: Path) -> None:
    """Writes a fitted classifier; when this comes back, it is on disk.

    Raises:
        IntentError: if its encoder has no name and cannot be saved.
    """
    fitted = classifier.fitted_
    folder.mkdir(parents=True, exist_ok=True)
    named = _name(classifier, folder)
    if named is None and not _lies_in(classifier, folder):
        _write_encoder(classifier.encoder_, folder / _ENCODER)
    tensors = {"vectors": fitted.examples.vectors}
    if fitted.model.logistic is not None:
        tensors |= {"weights": fitted.model.logistic.weights, "bias": fitted.model.logistic.bias}
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in tensors.values())).hexdigest()[:16]
    numbers = folder / f"vectors-{digest}.safetensors"
    numbers.write_bytes(save({name: np.ascontiguousarray(each) for name, each in tensors.items()}))
    sync(numbers)
    described = {
        "turnwise": __version__,
        "encoder": named,
        "max_length": classifier.max_length,
        "tuning": None if classifier.tuning is None else asdict(classifier.tuning),
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


def read(folder: Path, encoder: SupportsEncode | None) -> IntentClassifier:
    """Reads a classifier.

    Raises:
        IntentError: if there is none, it is damaged, or the encoder gives other vectors than the one it was fitted with.
    """
    if not is_classifier(folder):
        raise IntentError(f"{folder} holds no classifier of intents: it has no {_DESCRIPTION}; make one by `turnwise intents fit`")
    try:
        described = read_json(folder / _DESCRIPTION)
        tensors = load_file(folder / described["vectors"])
        classifier = _classifier(described, folder)
        examples = Examples(
            tuple((each["text"], each["intent"]) for each in described["examples"]),
            checked_vectors(tensors["vectors"], len(described["examples"])),
        )
        calibration = _calibration(described["calibration"])
        settings = classifier._settings()
        model = Model.of(examples, replace(settings, head="neighbours") if "weights" in tensors else settings)
        if "weights" in tensors:
            model = replace(model, logistic=Logistic(tensors["weights"], tensors["bias"]))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise IntentError(f"{folder} is damaged ({type(error).__name__}: {error}): fit the classifier again") from error
    classifier.encoder_ = classifier._loaded() if encoder is None else encoder
    classifier.fitted_ = FittedIntents(settings, examples, model, calibration)
    _check_encoder(classifier, examples, folder)
    return classifier


def _name(classifier: IntentClassifier, folder: Path) -> str | None:
    """What the encoder is found by; None: it lies in the classifier's own folder."""
    if classifier.tuning is not None or not isinstance(classifier.encoder, str | Path) or _lies_in(classifier, folder):
        return None
    place = Path(classifier.encoder)
    return str(place.resolve()) if place.is_dir() else str(classifier.encoder)


def _lies_in(classifier: IntentClassifier, folder: Path) -> bool:
    """Whether the encoder is the one in this folder."""
    given = classifier.encoder
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


def _classifier(described: dict[str, Any], folder: Path) -> IntentClassifier:
    encoder = described["encoder"]
    tuning = None
    if described["tuning"] is not None:
        from turnwise.assist.intents.tuning import Tuning

        tuning = Tuning(**described["tuning"])
    names = ("head", "neighbours", "false_rejection", "per_intent", "max_length", "seed")
    return IntentClassifier(
        str(folder / _ENCODER) if encoder is None else encoder, **{name: described[name] for name in names}, tuning=tuning
    )


def _check_encoder(classifier: IntentClassifier, examples: Examples, folder: Path) -> None:
    """Vectors of different models cannot be compared."""
    probes = [text for text, _ in examples.pairs[:_PROBES]]
    encoded = classifier.encoder_.encode(probes, normalise=True, max_length=classifier.max_length)
    known = examples.vectors[:_PROBES]
    if encoded.shape != known.shape or float((encoded * known).sum(1).min()) < _SAME:
        raise IntentError(
            f"the classifier in {folder} was fitted with another encoder, whose vectors of its examples are not this one's: load it"
            " with the one that it names, or fit it again"
        )


def calibration_as_json(calibration: Calibration) -> dict[str, Any]:
    """A calibration as JSON has it."""
    curve = calibration.reliability
    points = {"confidence": curve.confidence.tolist(), "accuracy": curve.accuracy.tolist(), "count": curve.count.tolist()}
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
