"""Semantic compression (TaDSE, Eq. 5, Table 6, Figs. 5 and 8): vectors moved towards those of templates by a weight λ.

λ is chosen from the paper's three by the 1-NN accuracy on validation utterances; the test set is evaluated with the
chosen one only. With encoders that cache their vectors (`VectorCache`), each input is encoded once for all values of λ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.core.errors import ModelError
from turnwise.core.plots import line_chart, write_chart
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode, Vectors, normalise_vectors
from turnwise.corpus.slots.detectors import detector_from_json
from turnwise.corpus.storage.store import Store
from turnwise.evaluation.datasets.intents import IntentData, load_intents
from turnwise.evaluation.metrics import TEMPLATE_WEIGHT, Outcome
from turnwise.evaluation.tasks.geometry import geometry
from turnwise.evaluation.tasks.intents import nearest_intents, nearest_validation
from turnwise.models.backbone.source import COMPRESSION
from turnwise.models.compression import Compression, TemplateEncoder, TemplateSource, mix_vectors
from turnwise.models.encoder import Encoder
from turnwise.models.vector_cache import VectorCache

#: λ of the paper's experiments, and of the validation curve.
TEMPLATE_WEIGHTS = (0.1, 0.2, 0.5)
CURVE_WEIGHTS = tuple(number / 10 for number in range(11))

_CURVE_FILE = "curve.svg"  # the plot of the validation curve in the model's folder


@dataclass(frozen=True, slots=True)
class MixedEncoder:
    """An encoder whose vectors are mixtures of an utterance's and its template's (Eq. 5)."""

    utterances: SupportsEncode
    templates: SupportsEncode
    template_weight: float

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Return mixed vectors (inputs, size)."""
        own = self.utterances.encode(inputs, normalise=True, max_length=max_length)
        vectors = mix_vectors(own, self.templates.encode(inputs, max_length=max_length), self.template_weight)
        return normalise_vectors(vectors) if normalise else vectors


def validation_curve(
    utterances: SupportsEncode, templates: SupportsEncode, data: IntentData, weights: Sequence[float]
) -> dict[float, float]:
    """Return the 1-NN accuracy on validation utterances by λ."""
    return {weight: nearest_validation(MixedEncoder(utterances, templates, weight), data) for weight in weights}


def best_weight(curve: Mapping[float, float]) -> float:
    """Return the λ of the highest accuracy; the smallest of several."""
    return min(curve, key=lambda weight: (-curve[weight], weight))


def compressed_intents(
    utterances: SupportsEncode, template_encoders: Mapping[str, SupportsEncode], data: IntentData
) -> list[Outcome]:
    """Compute 1-NN accuracy with λ chosen on validation data, and that λ, for each source of templates."""
    outcomes = []
    for source, templates in _usable_encoders(template_encoders, data).items():
        weight = best_weight(validation_curve(utterances, templates, data, TEMPLATE_WEIGHTS))
        setting = f"1-NN, compressed, templates {source}"
        accuracy = nearest_intents(MixedEncoder(utterances, templates, weight), data)
        outcomes += [replace(outcome, setting=setting) for outcome in accuracy]
        outcomes.append(Outcome("intents", data.name, setting, TEMPLATE_WEIGHT, np.array([[weight]]), scale=1.0))
    return outcomes


def compressed_geometry(
    utterances: SupportsEncode, template_encoders: Mapping[str, SupportsEncode], data: IntentData
) -> list[Outcome]:
    """Compute uniformity and alignment at each of the paper's λ, with given templates, or else retrieved ones."""
    encoders = _usable_encoders(template_encoders, data)
    return [
        replace(outcome, setting=f"test utterances, λ = {weight}, templates {source}")
        for source in [source for source in ("given", "retrieved") if source in encoders][:1]
        for weight in TEMPLATE_WEIGHTS
        for outcome in geometry(MixedEncoder(utterances, encoders[source], weight), data)
    ]


def _usable_encoders(template_encoders: Mapping[str, SupportsEncode], data: IntentData) -> dict[str, SupportsEncode]:
    """Leave out given templates if the data set marks no slots."""
    has_slots = any(example.slots is not None for example in data.test)
    return {source: encoder for source, encoder in template_encoders.items() if has_slots or source != "given"}


def choose_template_weight(
    folder: Path | str,
    data: Path | str,
    datasets: Sequence[str],
    source: TemplateSource | None = None,
    detector: Path | str | None = None,
    progress: Progress = silent,
) -> tuple[Compression, dict[float, float]]:
    """Choose λ from the paper's three on validation utterances, write it into the model's folder, and plot the curve.

    The model was trained on templates; its folder is not changed if anything fails. Data sets without a validation
    split hold out a tenth of their training set. The source of templates is as the folder says if it is None; the
    detector is a store with detected slots (`turnwise corpus detect`), whose detector the model is to keep. Returns the
    mean 1-NN accuracy over the data sets in percent by λ (0: no compression), too.
    """
    compression_folder = Path(folder) / COMPRESSION
    compression = _load_compression(compression_folder, None, source, detector)
    source = compression.source
    loaded = [load_intents(name, Path(data)) for name in datasets]
    for each in loaded:
        if source == "given" and all(example.slots is None for example in each.test):
            raise ModelError(f"{each.name} marks no slots, so no templates are given: use detected or retrieved ones")
    encoder = Encoder.load(folder)
    compression.to(encoder.device)
    utterances = VectorCache(encoder, progress=progress)
    templates = VectorCache(TemplateEncoder(encoder, compression, source), progress=progress)
    weights = sorted({*CURVE_WEIGHTS, *TEMPLATE_WEIGHTS})
    curves = [validation_curve(utterances, templates, each, weights) for each in loaded]
    curve = {weight: 100 * float(np.mean([each[weight] for each in curves])) for weight in curves[0]}
    compression.set(template_weight=best_weight({weight: curve[weight] for weight in TEMPLATE_WEIGHTS}))
    compression.save(compression_folder)
    title = f"1-NN accuracy on validation utterances of {', '.join(datasets)}, templates {source}"
    write_chart(
        compression_folder / _CURVE_FILE,
        lambda: line_chart({"accuracy": list(curve.items())}, title, "λ", from_zero=False),
    )
    return compression, curve


def set_compression(
    folder: Path | str,
    template_weight: float | None = None,
    source: TemplateSource | None = None,
    detector: Path | str | None = None,
) -> Compression:
    """Change the compression settings in a model's folder without evaluating anything; arguments as for choosing λ."""
    compression_folder = Path(folder) / COMPRESSION
    compression = _load_compression(compression_folder, template_weight, source, detector)
    compression.save(compression_folder)
    return compression


def _load_compression(
    folder: Path, template_weight: float | None, source: TemplateSource | None, detector: Path | str | None
) -> Compression:
    """Load a model's compression and change its settings in memory."""
    compression = Compression.load(folder)
    if detector is not None:
        description = Store(detector).manifest.get("detector")
        if description is None:
            raise ModelError(f"{detector} was not made by `turnwise corpus detect`: it has no detector")
        compression.detector = detector_from_json(description).to_json()
    compression.set(template_weight=template_weight, source=source)
    return compression
