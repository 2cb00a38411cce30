"""Choosing λ of semantic compression for a model, on validation utterances, and writing it into the model's folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turnwise.core.plots import line_chart, write_chart
from turnwise.core.progress import Progress, silent
from turnwise.corpus.slots.detectors import detector_from_json
from turnwise.corpus.store import Store
from turnwise.evaluation.datasets.intents import IntentData, load_intents
from turnwise.evaluation.tasks.compressed import CURVE, SHARES, best_share, share_curve
from turnwise.models.compression import Compression, CompressionError, TemplateSource
from turnwise.models.encoder import COMPRESSION, Encoder
from turnwise.models.loading import TemplateEncoder
from turnwise.models.vector_cache import VectorCache

#: Beside what it was chosen for.
_CURVE = "curve.svg"


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen λ.

    Attributes:
        template_weight: λ, of the paper's three the best on validation.
        source: where templates come from.
        curve: accuracy of the nearest neighbour on validation utterances, in percent, by λ: a data set's own where it is one, the
            mean of several. λ = 0 is the model without compression.
    """

    template_weight: float
    source: TemplateSource
    curve: dict[float, float]


def choose_share(
    folder: Path | str,
    data: Path | str,
    datasets: Sequence[str],
    source: TemplateSource | None = None,
    detector: Path | str | None = None,
    progress: Progress = silent,
) -> Choice:
    """Chooses λ from the paper's three by validation utterances, writes it into the model's folder, and draws the curve.

    The folder stays as it is unless all goes well.

    Args:
        folder: a model that was trained on templates.
        data: a folder of data sets, or a sample world.
        datasets: whose validation utterances count; of one without such, a tenth of its training set is held out.
        source: where templates come from; None: as the folder says.
        detector: a store with detected slots (`turnwise corpus detect`), whose detector the model is to keep.
        progress: told what is under way.

    Raises:
        CompressionError: if the model has learnt no templates, has nothing to take them from, or no data set is named.
    """
    if not datasets:
        raise CompressionError("λ is chosen on the validation utterances of a data set: name one, or say which λ")
    place = Path(folder) / COMPRESSION
    compression = _changed(place, None, source, detector)
    source = compression.source
    found = [load_intents(name, Path(data)) for name in datasets]
    for each in found:
        _expect_slots(each, source)
    encoder = Encoder.load(folder)
    compression.to(encoder.backbone.device)
    utterances = VectorCache(encoder, progress=progress)
    templates = VectorCache(TemplateEncoder(encoder, compression, source), progress=progress)
    curves = [share_curve(utterances, templates, each, sorted({*CURVE, *SHARES}), encoder.marks) for each in found]
    curve = {share: 100 * float(np.mean([each[share] for each in curves])) for share in curves[0]}
    choice = Choice(best_share({share: curve[share] for share in SHARES}), source, curve)
    compression.set(template_weight=choice.template_weight)
    compression.save(place)
    title = f"1-NN accuracy on validation utterances of {', '.join(datasets)}, templates {source}"
    write_chart(place / _CURVE, lambda: line_chart({"accuracy": list(curve.items())}, title, "λ", from_zero=False))
    return choice


def set_compression(
    folder: Path | str,
    *,
    template_weight: float | None = None,
    source: TemplateSource | None = None,
    detector: Path | str | None = None,
) -> Compression:
    """Changes what a model's folder says of its compression, without measuring anything.

    Args:
        folder: a model that was trained on templates.
        template_weight: λ.
        source: where templates come from.
        detector: a store with detected slots (`turnwise corpus detect`), whose detector the model is to keep.

    Raises:
        CompressionError: if there is no compression, or it cannot be as asked.
    """
    place = Path(folder) / COMPRESSION
    compression = _changed(place, template_weight, source, detector)
    compression.save(place)
    (place / _CURVE).unlink(missing_ok=True)  # it told of another choice
    return compression


def _changed(
    place: Path, template_weight: float | None, source: TemplateSource | None, detector: Path | str | None
) -> Compression:
    """A model's compression, other than its folder says."""
    compression = Compression.load(place)
    if detector is not None:
        made_by = Store(detector).manifest.get("detector")
        if made_by is None:
            raise CompressionError(f"{detector} was not made by `turnwise corpus detect`: it has no detector")
        compression.detector = detector_from_json(made_by)
    compression.set(template_weight=template_weight, source=source)
    return compression


def _expect_slots(data: IntentData, source: TemplateSource) -> None:
    if source == "given" and all(utterance.slots is None for utterance in data.test):
        raise CompressionError(
            f"{data.name} marks no slots, so no templates are given: take detected or retrieved ones"
        )
