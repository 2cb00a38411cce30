"""Intents that abstain: a few examples of each in, decisions with their reasons out."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from turnwise.assist.intents.calibration import Calibration, calibrate
from turnwise.assist.intents.decision import OUT_OF_SCOPE, Decision
from turnwise.assist.intents.examples import Examples, IntentError, Pair, checked_pairs, checked_vectors
from turnwise.assist.intents.fitted import FittedIntents, HeadName, Settings
from turnwise.assist.intents.likeness import Vectors
from turnwise.assist.intents.segments import best_cut, parts_of
from turnwise.assist.intents.storage import Stored, check_encoder, read, write
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode

if TYPE_CHECKING:
    from turnwise.assist.intents.tuning import Tuning

__all__ = ["IntentClassifier", "IntentError"]


class IntentClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Tells what texts ask for, or abstains; a classifier by scikit-learn's conventions.

    Attributes:
        encoder: gives the vectors: a model's name or folder, or anything that encodes.
        head: 'prototypes' compares a text with all examples of an intent, 'neighbours' with the nearest of them, 'logistic' fits a
            logistic regression.
        neighbours: how many of an intent's examples the head 'neighbours' looks at; where an intent has fewer, all. The head
            'logistic' abstains by them.
        false_rejection: the share of texts in scope that it may turn away; None: it never abstains.
        per_intent: whether each intent has a threshold of its own, drawn towards the common one where it has few examples.
        max_length: tokens of a text.
        tuning: fits the encoder to the examples first; None: it stays as it is.
        seed: of what is drawn.
        fitted_: examples and what was learnt from them; one value, which additions replace and never change.
        encoder_: gives the vectors: the encoder itself, loaded or tuned.
    """

    def __init__(
        self,
        encoder: "str | Path | SupportsEncode" = "minilm",
        *,
        head: HeadName = "neighbours",
        neighbours: int = 5,
        false_rejection: float | None = 0.05,
        per_intent: bool = False,
        max_length: int = 64,
        tuning: "Tuning | None" = None,
        seed: int = 0,
    ):
        self.encoder = encoder
        self.head = head
        self.neighbours = neighbours
        self.false_rejection = false_rejection
        self.per_intent = per_intent
        self.max_length = max_length
        self.tuning = tuning
        self.seed = seed

    def __sklearn_clone__(self) -> "IntentClassifier":
        # an encoder is never changed by fitting, and copying one for every fold would take its size in memory each time
        return type(self)(**self.get_params(deep=False))

    # ---- learning

    def fit(
        self,
        texts: Sequence[str],
        intents: Sequence[str],
        *,
        out_of_scope: Sequence[str] = (),
        vectors: Vectors | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learns intents from examples, and calibrates on these alone.

        Of equal texts of an intent one counts. A text whose intent is 'out_of_scope' is an example of what is out of scope.

        Args:
            texts: the examples.
            intents: what each asks for.
            out_of_scope: further texts that ask for none of the intents: with ten or more, more of such texts are turned away for
                the same rate of false rejection.
            vectors: of the texts, of length 1, where they are known; not where the encoder is tuned.
            progress: told how far tuning is.

        Raises:
            IntentError: if texts and intents do not go together, or they are too few to learn or to calibrate from.
        """
        pairs = [*checked_pairs(texts, intents), *checked_pairs(out_of_scope, [OUT_OF_SCOPE] * len(out_of_scope))]
        settings = self._settings()
        encoder = self._loaded()
        if self.tuning is not None:
            from turnwise.assist.intents.tuned import fit_tuned

            if vectors is not None:
                raise IntentError(
                    "vectors are those of an encoder that is to be tuned: leave them out, or tune it first"
                )
            self.encoder_: SupportsEncode
            self.encoder_, self.fitted_ = fit_tuned(encoder, pairs, settings, self.tuning, self.max_length, progress)
            return self
        self.encoder_ = encoder
        given = [] if vectors is None else [checked_vectors(vectors, len(texts))]
        rest = [text for text, _ in pairs[len(texts) if given else 0 :]]
        every = np.concatenate([*given, self._encoded(rest)]) if rest or not given else given[0]
        self.fitted_ = FittedIntents.of(Examples.of(pairs, every), settings)
        return self

    def calibrate(
        self,
        texts: Sequence[str],
        intents: Sequence[str],
        *,
        out_of_scope: Sequence[str] = (),
        false_rejection: float | None = None,
        vectors: Vectors | None = None,
    ) -> Calibration:
        """Calibrates thresholds and probabilities on texts that were not learnt from; they stay in force when examples are added.

        Texts that are examples themselves are left out: they say nothing of new ones.

        Args:
            texts: the texts.
            intents: what each asks for; 'out_of_scope' where it is none of the intents.
            out_of_scope: further texts that ask for none of the intents.
            false_rejection: another rate than the classifier's own, which becomes its own.
            vectors: of the texts, of length 1, where they are known.

        Raises:
            IntentError: if a text asks for an intent that is not known, or none in scope is left.
        """
        fitted = self._known()
        pairs = [*checked_pairs(texts, intents), *checked_pairs(out_of_scope, [OUT_OF_SCOPE] * len(out_of_scope))]
        unknown = sorted({intent for _, intent in pairs} - {*fitted.examples.classes, OUT_OF_SCOPE})
        if unknown:
            raise IntentError(
                f"there is no example of the intent {unknown[0]!r}: add examples of it first, or leave its texts out"
            )
        rate = self.false_rejection if false_rejection is None else false_rejection
        settings = replace(fitted.settings, false_rejection=rate)
        every = self._vectors([text for text, _ in pairs], vectors, len(texts))
        unseen = fitted.examples.missing(pairs)
        inside = [row for row in unseen if pairs[row][1] != OUT_OF_SCOPE]
        outside = [row for row in unseen if pairs[row][1] == OUT_OF_SCOPE]
        if not inside:
            raise IntentError(
                "none of the texts is in scope and no example itself: give other texts that ask for the intents"
            )
        asked = np.array([pairs[row][1] for row in inside])
        truth = np.searchsorted(np.array(fitted.examples.classes), asked).astype(np.int64)
        evidence = fitted.model.evidence(every[inside], truth, every[outside])
        calibration = calibrate(evidence, rate, per_intent=self.per_intent, held_out=True)
        self.false_rejection = rate
        self.fitted_ = replace(fitted, settings=settings, calibration=calibration)
        return calibration

    # ---- telling

    def predict(self, texts: Sequence[str]) -> npt.NDArray[np.str_]:
        """The intent of each text, or 'out_of_scope' where it abstains."""
        fitted = self._known()
        judged = fitted.judged(self._encoded(texts))
        return np.where(judged.abstained, OUT_OF_SCOPE, np.array(fitted.examples.classes)[judged.order[:, 0]])

    def predict_proba(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """The probability of each intent (texts, intents), in the order of `classes_`, if a text asks for one of them."""
        return self._known().probabilities(self._encoded(texts))

    def decide(
        self, texts: Sequence[str], *, neighbours: int = 3, several: bool = False, vectors: Vectors | None = None
    ) -> list[Decision]:
        """What is decided about each text, and why.

        Args:
            texts: what was said.
            neighbours: how many of the nearest examples to give.
            several: whether to look for several intents in a text.
            vectors: of the texts, of length 1, where they are known.

        Raises:
            IntentError: if the texts are a single one, or the vectors are not theirs.
        """
        fitted = self._known()
        found = fitted.decide(texts, self._vectors(texts, vectors, len(texts)), neighbours)
        return [*self._several(fitted, found, neighbours)] if several else found

    # ---- changing

    def add(self, intent: str, texts: Sequence[str], *, vectors: Vectors | None = None) -> int:
        """Adds examples of an intent, which may be new; how many of them are new. Nothing is trained but a logistic head.

        Args:
            intent: the intent, or 'out_of_scope'.
            texts: the examples.
            vectors: of the texts, of length 1, where they are known.
        """
        pairs = checked_pairs(texts, [intent] * len(texts))
        changed, count = self.with_more(pairs, vectors=vectors)
        self.fitted_ = changed
        return count

    def remove(self, intent: str, texts: Sequence[str] | None = None) -> int:
        """Removes examples of an intent; how many there were.

        Args:
            intent: the intent, or 'out_of_scope'.
            texts: the examples; None: all of the intent's, and with them the intent.

        Raises:
            IntentError: if no example of any intent would be left.
        """
        self.fitted_, count = self.without(
            self.pairs_of(intent) if texts is None else checked_pairs(texts, [intent] * len(texts))
        )
        return count

    def with_more(self, pairs: Sequence[Pair], *, vectors: Vectors | None = None) -> tuple[FittedIntents, int]:
        """What it would be with more examples, and how many of them are new; the classifier stays as it is."""
        fitted = self._known()
        new = fitted.examples.missing(pairs)
        added = [pairs[row] for row in new]
        known = None if vectors is None else checked_vectors(vectors, len(pairs))[new]
        if not added:
            return fitted, 0
        more = fitted.examples.with_more(added, self._encoded([text for text, _ in added]) if known is None else known)
        return fitted.with_examples(more), len(more.pairs) - len(fitted.examples.pairs)

    def without(self, pairs: Sequence[Pair]) -> tuple[FittedIntents, int]:
        """What it would be without some examples, and how many of them there are; the classifier stays as it is."""
        fitted = self._known()
        left = fitted.examples.without(pairs)
        count = len(fitted.examples.pairs) - len(left.pairs)
        return (fitted.with_examples(left) if count else fitted), count

    def pairs_of(self, intent: str) -> list[Pair]:
        """The examples of an intent with its name."""
        return [pair for pair in self._known().examples.pairs if pair[1] == intent]

    # ---- what was learnt

    @property
    def classes_(self) -> npt.NDArray[np.str_]:
        """The intents, sorted."""
        return np.array(self._known().examples.classes)

    @property
    def texts_(self) -> list[str]:
        """The examples in scope, intent by intent."""
        return self._known().examples.texts

    @property
    def labels_(self) -> list[str]:
        """The intent of each of `texts_`."""
        examples = self._known().examples
        return [intent for _, intent in examples.pairs[: len(examples.labels)]]

    @property
    def calibration_(self) -> Calibration:
        """What it is calibrated to."""
        return self._known().calibration

    @property
    def thresholds_(self) -> dict[str, float]:
        """The threshold of each intent; empty where it never abstains."""
        fitted = self._known()
        if fitted.calibration.threshold is None:
            return {}
        classes = fitted.examples.classes
        return dict(zip(classes, fitted.calibration.thresholds(len(classes)).tolist(), strict=True))

    def save(self, folder: Path | str) -> None:
        """Writes it to a folder: JSON and safetensors; an encoder that has no name goes with it.

        Raises:
            IntentError: if the encoder has no name and cannot be saved.
        """
        write(Stored(self.encoder, self.max_length, self.tuning, self._known()), self.encoder_, Path(folder))

    @classmethod
    def load(cls, folder: Path | str, *, encoder: SupportsEncode | None = None) -> "IntentClassifier":
        """Reads what `save` wrote.

        Args:
            folder: where from.
            encoder: in the place of the one that is named there; it has to give the same vectors.

        Raises:
            IntentError: if the folder holds no classifier, or the encoder gives other vectors.
        """
        stored = read(Path(folder))
        loaded = cls(
            stored.encoder, max_length=stored.max_length, tuning=stored.tuning, **asdict(stored.fitted.settings)
        )
        loaded.encoder_ = loaded._loaded() if encoder is None else encoder
        check_encoder(loaded.encoder_, stored, Path(folder))
        loaded.fitted_ = stored.fitted
        return loaded

    # ---- within

    def _settings(self) -> Settings:
        return Settings(self.head, self.neighbours, self.false_rejection, self.per_intent, self.seed)

    def _known(self) -> FittedIntents:
        if not hasattr(self, "fitted_"):
            raise NotFittedError("this classifier has no examples yet: call fit first, or load one")
        return self.fitted_

    def _loaded(self) -> SupportsEncode:
        if not isinstance(self.encoder, str | Path):
            return self.encoder
        from turnwise.models.encoder import Encoder

        return Encoder.load(self.encoder)

    def _encoded(self, texts: Sequence[str]) -> Vectors:
        if isinstance(texts, str):
            raise IntentError("texts are a list: give a single one as [text]")
        if not len(texts):
            return np.empty((0, self.fitted_.examples.vectors.shape[1] if hasattr(self, "fitted_") else 0), np.float32)
        given = [str(text) for text in texts]
        return checked_vectors(self.encoder_.encode(given, normalise=True, max_length=self.max_length), len(given))

    def _vectors(self, texts: Sequence[str], vectors: Vectors | None, known: int) -> Vectors:
        """Those that are given, for the first so many texts, and of the others the encoder's."""
        if vectors is None:
            return self._encoded(texts)
        given = checked_vectors(vectors, known)
        return np.concatenate([given, self._encoded(texts[known:])]) if len(texts) > known else given

    def _several(self, fitted: FittedIntents, found: Sequence[Decision], neighbours: int) -> list[Decision]:
        """Decisions on texts as a whole, or on their parts where these are more like the examples."""
        cuts = {row: parts for row, decision in enumerate(found) if len(parts := parts_of(decision.text)) > 1}
        texts = [text for parts in cuts.values() for text in parts.values()]
        decisions = iter(fitted.decide(texts, self._encoded(texts), neighbours))
        result = list(found)
        for row, parts in cuts.items():
            decided = [next(decisions) for _ in parts]
            chosen = [decided[place] for place in best_cut(parts, [each.score for each in decided])]
            result[row] = _together(found[row], [each for each in chosen if not each.abstained])
        return result


def _together(whole: Decision, parts: Sequence[Decision]) -> Decision:
    """The decision on a text of which parts ask for something: that on the part which is surest, with the intents of all."""
    intents = tuple(dict.fromkeys(cast(str, part.intent) for part in parts))
    if len(parts) < 2 and not (parts and whole.abstained):
        return whole
    best = max(parts, key=lambda part: part.score)
    said = " and ".join(f"{part.intent} in '{part.text}' ({part.score:.2f})" for part in parts)
    return replace(best, text=whole.text, intents=intents, reason=f"In parts it asks for {said}. {best.reason}")
