"""A classifier of intents whose encoder is fitted to the examples, and calibrated on examples that its encoder has not seen.

An encoder that was fitted to an example puts it nearer to its intent than it would put a new text, so that leaving examples out one
by one is not enough: the encoder is fitted anew for every fold, without the fold's examples.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from turnwise.assist.intents.calibration import calibrate, joined
from turnwise.assist.intents.decision import OUT_OF_SCOPE
from turnwise.assist.intents.examples import Examples, IntentError, Pair, checked_vectors
from turnwise.assist.intents.fitted import FOLDS, FittedIntents, Model, Settings
from turnwise.assist.intents.likeness import Vectors
from turnwise.assist.intents.logistic import folds_of
from turnwise.assist.intents.tuning import Tuning, tune
from turnwise.core.progress import Progress
from turnwise.core.types import SupportsEncode
from turnwise.models.encoder import Encoder

if TYPE_CHECKING:
    from turnwise.assist.intents.calibration import Evidence


def fit_tuned(
    encoder: SupportsEncode,
    pairs: Sequence[Pair],
    settings: Settings,
    tuning: Tuning,
    max_length: int,
    progress: Progress,
) -> tuple[Encoder, FittedIntents]:
    """An encoder fitted to examples, and the classifier that it makes.

    Args:
        encoder: where to start.
        pairs: the examples; those out of scope are not fitted to.
        settings: how intents are told.
        tuning: how the encoder is fitted.
        max_length: tokens of a text.
        progress: told how many steps are done.

    Raises:
        IntentError: if the encoder cannot be fitted, or there are too few examples to calibrate on.
    """
    if not isinstance(encoder, Encoder):
        raise IntentError(
            f"{type(encoder).__name__} cannot be tuned: give a turnwise Encoder, or its name, or leave tuning out"
        )
    # a row of nothing each: which texts there are, and in which order, comes before their vectors
    laid_out = Examples.of(pairs, np.empty((len(pairs), 0), np.float32))
    tuned, examples = _tuned(encoder, laid_out, np.ones(len(laid_out.labels), np.bool_), tuning, max_length, progress)
    fold_of = folds_of(laid_out.labels, FOLDS, settings.seed)
    parts: list[Evidence] = []
    for fold in np.unique(fold_of[fold_of >= 0]):
        seen = fold_of != fold
        _, judged = _tuned(encoder, laid_out, seen, tuning, max_length, progress)
        rows = np.r_[np.flatnonzero(seen), np.arange(len(seen), len(judged.pairs))]
        model = Model.of(Examples(tuple(judged.pairs[row] for row in rows), judged.vectors[rows]), settings)
        evidence = model.evidence(judged.inside[~seen], judged.labels[~seen], judged.outside)
        if model.foreign is not None and len(judged.outside) > 1:
            # an out-of-scope example is no stranger to itself
            foreign = model.foreign.left_out(np.arange(len(judged.outside)))[:, 0]
            evidence = replace(evidence, outside_foreign=foreign)
        parts.append(evidence)
    if not parts:
        # says what is wrong, unless it is never to abstain
        return tuned, FittedIntents.of(examples, settings)
    calibration = calibrate(joined(parts), settings.false_rejection, per_intent=settings.per_intent, held_out=True)
    return tuned, FittedIntents(settings, examples, Model.of(examples, settings), calibration)


def _tuned(
    encoder: Encoder,
    laid_out: Examples,
    seen: np.typing.NDArray[np.bool_],
    tuning: Tuning,
    max_length: int,
    progress: Progress,
) -> tuple[Encoder, Examples]:
    """The encoder fitted to the examples that it may see, and all examples with its vectors."""
    fitted_to = [
        pair for pair, is_seen in zip(laid_out.pairs, seen, strict=False) if is_seen and pair[1] != OUT_OF_SCOPE
    ]
    tuned = tune(
        encoder, [text for text, _ in fitted_to], [intent for _, intent in fitted_to], tuning, progress=progress
    )
    vectors: Vectors = tuned.encode([text for text, _ in laid_out.pairs], normalise=True, max_length=max_length)
    return tuned, Examples(laid_out.pairs, checked_vectors(vectors, len(laid_out.pairs)))
