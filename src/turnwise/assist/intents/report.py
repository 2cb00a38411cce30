"""What is wrong with examples of intents, and with a classifier of them: confusions, wrong labels, overlaps, how sure it may be.

Everything comes of cross-validation: each example is judged by a classifier that has not seen it. An intent with a single text
cannot be judged so; it is among what the others are told apart from, and the report names it. A text that an intent has twice (but
for case and surrounding space) is one example.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.assist.intents.calibration import Reliability, reliability
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.decision import OUT_OF_SCOPE
from turnwise.assist.intents.examples import Examples, IntentError, checked_pairs
from turnwise.assist.intents.findings import (
    MOST,
    Confusion,
    IntentRow,
    Overlap,
    Suspect,
    TurnedAway,
    confusions,
    intent_rows,
    overlaps,
    suspects,
    turned_away,
)
from turnwise.assist.intents.validation import Kept, cross_validate
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode
from turnwise.models.encoder import Encoder


@dataclass(frozen=True, slots=True)
class Report:
    """What cross-validation says; lists have `MOST` entries at most, the worst first.

    Attributes:
        settings: how the classifier is made.
        examples: how many different ones.
        judged: of how many figures are.
        folds: of the cross-validation.
        accuracy: share of the judged examples whose own intent is the best guess, abstention aside.
        false_rejection: share on which the classifier abstains; to be held against what `settings` names.
        answered_right: share of right guesses where it does not abstain.
        out_of_scope: how many different out-of-scope texts there are.
        out_of_scope_recall: share of them on which it abstains; None where there are none.
        reliability: how often it is right when it is so sure.
        intents: each of them, in alphabetical order.
        confusions: pairs that are taken for each other.
        suspects: examples likely mislabelled.
        suspected: how many there are in all.
        overlaps: intents that lie in each other.
        turned_away: examples on which it abstains, the lowest scores first.
        alone: intents with a single text, which were not judged.
    """

    settings: Mapping[str, Any]
    examples: int
    judged: int
    folds: int
    accuracy: float
    false_rejection: float
    answered_right: float
    out_of_scope: int
    out_of_scope_recall: float | None
    reliability: Reliability
    intents: tuple[IntentRow, ...]
    confusions: tuple[Confusion, ...]
    suspects: tuple[Suspect, ...]
    suspected: int
    overlaps: tuple[Overlap, ...]
    turned_away: tuple[TurnedAway, ...]
    alone: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The same for programs: nothing but dictionaries, lists, texts and numbers."""
        curve = {name: np.asarray(value).tolist() for name, value in asdict(self.reliability).items()}
        return {**asdict(self), "settings": dict(self.settings), "reliability": curve}


def report(
    texts: Sequence[str],
    intents: Sequence[str],
    classifier: IntentClassifier | None = None,
    *,
    out_of_scope: Sequence[str] = (),
    folds: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> Report:
    """Cross-validates a classifier on examples, and says what it finds.

    Texts are encoded once, whatever the number of folds, unless the classifier tunes its encoder: that is then tuned in every fold.

    Args:
        texts: the examples.
        intents: of each text.
        classifier: how intents are told; its settings are taken, and it is not fitted itself. None: as `IntentClassifier` has them.
        out_of_scope: texts that ask for none of the intents, where there are any.
        folds: two at least; each leaves its share of every intent's examples out.
        seed: of the folds.
        progress: told how far it is.

    Raises:
        IntentError: if the examples do not fit together, or there are too few.
    """
    classifier = IntentClassifier() if classifier is None else classifier
    if folds < 2:
        raise IntentError(f"there are {folds} folds: cross-validation takes two at least")
    classifier._settings()  # says what is out of range before anything is encoded
    pairs = [*checked_pairs(texts, intents), *((text, OUT_OF_SCOPE) for text in out_of_scope)]
    encoder = encoder_of(classifier)
    every = list(dict.fromkeys(text for text, _ in pairs))
    progress("encoding examples", 0, len(every))
    kept = Kept(every, encoder.encode(every, normalise=True, max_length=classifier.max_length))
    examples = Examples.of(pairs, kept.encode([text for text, _ in pairs]))
    _check(examples, folds)
    judging = encoder if classifier.tuning is not None else kept
    judged = cross_validate(classifier, judging, examples, folds=folds, seed=seed, progress=progress)
    truth = examples.labels[judged.rows]
    right, answered = judged.probabilities.argmax(1) == truth, ~judged.rejected
    first = {pair: row for row, pair in reversed(list(enumerate(pairs)))}
    places = [first[pair] for pair in examples.pairs]
    suspected = suspects(examples, judged, places)
    return Report(
        settings=_settings(classifier),
        examples=len(examples.labels),
        judged=len(truth),
        folds=folds,
        accuracy=float(right.mean()),
        false_rejection=float(judged.rejected.mean()),
        answered_right=float(right[answered].mean()) if answered.any() else float("nan"),
        out_of_scope=len(judged.outside),
        out_of_scope_recall=float(judged.outside.mean()) if len(judged.outside) else None,
        reliability=reliability(judged.probabilities.max(1), right),
        intents=intent_rows(examples, judged),
        confusions=confusions(examples, judged),
        suspects=suspected[:MOST],
        suspected=len(suspected),
        overlaps=overlaps(examples),
        turned_away=turned_away(examples, judged, places),
        alone=tuple(name for number, name in enumerate(examples.classes) if number not in truth),
    )


def encoder_of(classifier: IntentClassifier) -> SupportsEncode:
    """The encoder that a classifier has, or would load."""
    found = classifier.encoder
    return Encoder.load(found) if isinstance(found, str | Path) else found


def _settings(classifier: IntentClassifier) -> dict[str, Any]:
    known = classifier.get_params(deep=False)
    tuning, encoder = known.pop("tuning"), known.pop("encoder")
    name = str(encoder) if isinstance(encoder, str | Path) else type(encoder).__name__
    return {"encoder": name, **known, "tuning": None if tuning is None else asdict(tuning)}


def _check(examples: Examples, folds: int) -> None:
    if len(examples.classes) < 2:
        raise IntentError(
            "there is but one intent: a report is about telling intents apart, give examples of two at least"
        )
    counts = np.bincount(examples.labels)
    if (counts > 1).sum() < 2:
        raise IntentError(
            "fewer than two intents have a second example: what was not seen cannot be judged then, give more examples"
        )
    if counts.max() - math.ceil(counts.max() / folds) < 2:
        raise IntentError(
            f"no intent has more than {counts.max()} examples: without a fold of {folds} no two are left of any, which is what"
            " calibration takes; give more examples, or ask for more folds"
        )
