"""Semantic compression measured (TaDSE, Eq. 5, Table 6, Figs. 5 and 8): vectors drawn towards those of templates by a share λ.

λ is chosen by the accuracy of the nearest neighbour on validation utterances, from the paper's three; test utterances
see the chosen one alone. Sides that remember what they have encoded (`VectorCache`) encode it once, whatever the number of shares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.types import SupportsEncode
from turnwise.corpus.slots.template import SlotMarks
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.metrics import TEMPLATE_SHARE, Outcome
from turnwise.evaluation.tasks.geometry import geometry
from turnwise.evaluation.tasks.intents import nearest_intents, nearest_validation
from turnwise.models.compression import TemplateSource, mix_vectors

#: λ of the paper's experiments.
SHARES = (0.1, 0.2, 0.5)

#: λ of a curve.
CURVE = tuple(number / 10 for number in range(11))


@dataclass(frozen=True, slots=True)
class Mixed:
    """An encoder whose vectors are mixtures of an utterance's and its template's."""

    utterances: SupportsEncode
    templates: SupportsEncode
    share: float

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Eq. 5 (inputs, size)."""
        own = self.utterances.encode(inputs, normalise=True, max_length=max_length)
        vectors = mix_vectors(own, self.templates.encode(inputs, max_length=max_length), self.share)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12) if normalise else vectors


def share_curve(
    utterances: SupportsEncode, templates: SupportsEncode, data: IntentData, shares: Sequence[float], marks: SlotMarks
) -> dict[float, float]:
    """The accuracy of the nearest neighbour on validation utterances, by λ."""
    return {share: nearest_validation(Mixed(utterances, templates, share), data, marks=marks) for share in shares}


def best_share(curve: Mapping[float, float]) -> float:
    """The λ of the highest accuracy, the smallest of several."""
    return min(curve, key=lambda share: (-curve[share], share))


def compressed_intents(
    utterances: SupportsEncode, sides: Mapping[TemplateSource, SupportsEncode], data: IntentData, *, marks: SlotMarks
) -> list[Outcome]:
    """1-NN accuracy with λ chosen on validation, an outcome for each place that templates come from, and the λ of each."""
    outcomes = []
    for source, templates in _sides(sides, data).items():
        share = best_share(share_curve(utterances, templates, data, SHARES, marks))
        setting = f"1-NN, compressed, templates {source}"
        found = nearest_intents(Mixed(utterances, templates, share), data, marks=marks)
        outcomes += [replace(outcome, setting=setting) for outcome in found]
        outcomes.append(Outcome("intents", data.name, setting, TEMPLATE_SHARE, np.array([[share]]), scale=1.0))
    return outcomes


def compressed_geometry(
    utterances: SupportsEncode, sides: Mapping[TemplateSource, SupportsEncode], data: IntentData
) -> list[Outcome]:
    """Uniformity and alignment at each of the paper's λ, with templates as given, else retrieved; none where there are neither."""
    found = _sides(sides, data)
    sources: tuple[TemplateSource, ...] = ("given", "retrieved")
    return [
        replace(outcome, setting=f"test utterances, λ = {share}, templates {source}")
        for source in [source for source in sources if source in found][:1]
        for share in SHARES
        for outcome in geometry(Mixed(utterances, found[source], share), data)
    ]


def _sides(sides: Mapping[TemplateSource, SupportsEncode], data: IntentData) -> dict[TemplateSource, SupportsEncode]:
    """What there is of a model's sides for a data set: nothing is given where it marks no slots."""
    marked = any(utterance.slots is not None for utterance in data.test)
    return {source: side for source, side in sides.items() if marked or source != "given"}
