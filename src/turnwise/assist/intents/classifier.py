"""The intent classifier: fitted on a few examples per intent, it returns decisions with reasons, or abstains."""

import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.calibration import Calibration
from turnwise.assist.intents.classifier_files import StoredClassifier, load_stored, write_classifier
from turnwise.assist.intents.context import Utterance, encoder_input, has_context, join_turns, last_turn
from turnwise.assist.intents.decision import Decision, best_segmentation, combine_decisions, split_texts
from turnwise.assist.intents.examples import (
    IntentExamples,
    IntentNames,
    IntentPair,
    are_integers,
    check_integers,
    describe_intent,
    validate_pairs,
    validate_vectors,
)
from turnwise.assist.intents.heads import HeadChoice
from turnwise.assist.intents.log_texts import Log, sample_log
from turnwise.assist.intents.model import IntentModel, IntentSettings
from turnwise.assist.intents.parameters import Parameters
from turnwise.assist.intents.selection import (
    ContextSelection,
    HeadSelection,
    select_context,
    select_head,
    select_support,
)
from turnwise.core.dialogue import OUT_OF_SCOPE, EncoderInput
from turnwise.core.errors import IntentError
from turnwise.core.model_names import DEFAULT_ENCODER
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode, Vectors

if TYPE_CHECKING:
    from turnwise.assist.intents.tuning import TuningSettings

__all__ = ["IntentClassifier", "IntentError"]


class IntentClassifier(Parameters):
    """Predicts the intent of texts, or abstains; follows scikit-learn's conventions, but does not need scikit-learn.

    Args:
        encoder: the name or folder of a model, or any object that encodes.
        head: 'prototypes' compares a text with all examples of an intent, 'neighbours' with the most similar of them,
            'logistic' fits a logistic regression. 'auto' chooses 'neighbours' or 'logistic' by cross-validation on the
            examples; it is 'neighbours' if there are fewer than three per intent on average.
        neighbours: the number of examples per intent that the head 'neighbours' averages; all, if an intent has fewer.
            The head 'logistic' abstains by them.
        false_rejection: the fraction of in-scope texts that may be rejected; None: the classifier never abstains.
        per_intent: whether each intent has its own threshold, shrunk towards the common one if it has few examples.
        use_names: whether the name of each intent, in words, counts as one more example of it; meaningless names,
            such as `intent_17`, do not. Not used with `tuning`.
        max_length: tokens per text; twice as many for a text with the turns before it.
        tuning: fine-tunes a copy of the encoder on the examples first; None: the encoder is used as it is.
        seed: of random samples and folds.

    Attributes:
        model_: the fitted model; immutable, replaced whenever examples change.
        head_selection_: how `head="auto"` was decided; None if the head was given.
        support_selection_: whether names and a log are used, and why; None without both.
        context_selection_: whether the turns before a text are used, and why; None if no example has any.
        descriptions_: the descriptions of intents that were given.
        encoder_: the encoder in use, loaded or tuned.
        integer_labels_: whether it was fitted on integers, so that it predicts integers.
    """

    context_selection_: ContextSelection | None = None

    def __init__(
        self,
        encoder: "str | Path | SupportsEncode" = DEFAULT_ENCODER,
        *,
        head: HeadChoice = "auto",
        neighbours: int = 5,
        false_rejection: float | None = 0.05,
        per_intent: bool = False,
        use_names: bool = True,
        max_length: int = 64,
        tuning: "TuningSettings | None" = None,
        seed: int = 0,
    ):
        self.encoder = encoder
        self.head = head
        self.neighbours = neighbours
        self.false_rejection = false_rejection
        self.per_intent = per_intent
        self.use_names = use_names
        self.max_length = max_length
        self.tuning = tuning
        self.seed = seed

    @property
    def settings(self) -> IntentSettings:
        """The settings of the model; raises IntentError if a parameter is out of range."""
        return IntentSettings(self.head, self.neighbours, self.false_rejection, self.per_intent, self.seed)

    def load_encoder(self) -> SupportsEncode:
        """Return the encoder, loaded if it is given by name."""
        if not isinstance(self.encoder, str | Path):
            return self.encoder
        from turnwise.models.encoder import Encoder

        return Encoder.load(self.encoder)

    # ---- fitting

    def fit(
        self,
        texts: Sequence[Utterance],
        intents: Sequence[str] | Sequence[int],
        *,
        log: Log | None = None,
        descriptions: Mapping[str, str] | None = None,
        out_of_scope: Sequence[str] = (),
        vectors: Vectors | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Fit on examples, names of intents and a log; names with a log, or examples alone, are enough.

        A text may be a conversation: a `Dialogue` or a list of turns, whose last turn is the text, and up to five turns
        before it are its context. Names, the log and the context of examples are left out if examples are clearly
        predicted better without them. Duplicate texts of an intent count once. A text with the intent 'out_of_scope' is
        an out-of-scope example; among integer labels that is -1.
        Raise IntentError if texts and intents do not match, or there are too few to fit or calibrate on.

        Args:
            texts: the examples.
            intents: the intent of each text.
            log: unlabelled texts, dialogues, the folder of a store, or normalised vectors of texts, also about other
                things. Of more than 5,000 distinct texts a sample is used. Not supported with `tuning`.
            descriptions: what intents are about, in words or a sentence, instead of their names. An intent with a
                description needs no examples.
            out_of_scope: further texts that have none of the intents; with ten or more, more out-of-scope texts are
                rejected at the same false rejection rate.
            vectors: normalised vectors of `texts`, if known; not supported with `tuning` and conversations.
            progress: called while the encoder is tuned, and while the log is encoded.
        """
        if isinstance(intents, str):
            raise IntentError("intents must be a list, got a single string: pass [intent]")
        if descriptions and not self.use_names:
            raise IntentError("descriptions are given, but use_names is False: leave one of them out")
        pairs = [*validate_pairs(texts, intents), *validate_pairs(out_of_scope, [OUT_OF_SCOPE] * len(out_of_scope))]
        settings = self.settings
        encoder = self.load_encoder()
        self.integer_labels_ = are_integers(intents)
        self.context_selection_ = None
        if self.tuning is not None:
            from turnwise.assist.intents.tuning import fit_with_tuning

            if vectors is not None or log is not None or descriptions:
                raise IntentError("vectors, a log and descriptions cannot be used with tuning: leave one of them out")
            self.encoder_: SupportsEncode
            self.head_selection_: HeadSelection | None
            fitted = fit_with_tuning(encoder, self.known_pairs(pairs), settings, self.tuning, self.max_length, progress)
            self.encoder_, self.model_, self.head_selection_ = fitted
            self.support_selection_, self.descriptions_ = None, {}
            return self
        self.encoder_ = encoder
        self.descriptions_ = dict(descriptions or {})
        with_examples = {intent for _, intent in pairs}
        names = self._encode_names((with_examples | set(self.descriptions_)) - {OUT_OF_SCOPE})
        if unknown := sorted(set(self.descriptions_) - with_examples - set(names.intents if names else ())):
            raise IntentError(f"{unknown[0]!r} is no meaningful name, and its intent has no examples: describe it")
        pairs, every = self._encode_pairs(pairs, vectors, len(texts))
        if not pairs and names is not None:
            every = names.vectors[:0]
        log_vectors, log_size = None, 0
        if log is not None:
            progress("reading and encoding the log", 0)
            log_vectors, log_size = sample_log(log, self._encode, self.seed, with_context=self.uses_context)
        examples = IntentExamples.from_pairs(pairs, every, names)
        support = select_support(examples, log_vectors, log_size, self.seed)
        self.head_selection_, self.support_selection_ = None, support.selection
        if settings.head == "auto":
            has_log = support.log is not None
            self.head_selection_ = select_head(support.examples, settings.neighbours, settings.seed, has_log=has_log)
            settings = replace(settings, head=self.head_selection_.head)
        self.model_ = IntentModel.fit(support.examples, settings, support.log, support.left_out)
        return self

    def _encode_pairs(
        self, pairs: list[IntentPair], vectors: Vectors | None, count: int
    ) -> tuple[list[IntentPair], Vectors]:
        """Return examples with their vectors, given those of the first `count`; choose whether context is used."""
        texts = [text for text, _ in pairs]
        alone = self._encode_missing(texts, vectors, count)  # context is not in use yet
        if not has_context(pairs):
            return pairs, alone
        if vectors is not None:
            raise IntentError("vectors cannot be given for texts with context: leave them out")
        self.context_selection_ = ContextSelection(True, "", {}, 0)
        in_context = self._encode(texts)
        examples = IntentExamples.from_pairs(pairs, alone), IntentExamples.from_pairs(pairs, in_context)
        self.context_selection_ = select_context(*examples, self.seed)
        return self.known_pairs(pairs), in_context if self.uses_context else alone

    def known_pairs(self, pairs: Sequence[IntentPair]) -> list[IntentPair]:
        """Return examples as the classifier uses them: without context, if that is not used."""
        return list(pairs) if self.uses_context else [(last_turn(text), intent) for text, intent in pairs]

    def _encode_names(self, intents: Collection[str]) -> IntentNames | None:
        """Return the names of intents with their vectors; None if names are not used, or none says anything."""
        words = {intent: self.descriptions_.get(intent) or describe_intent(intent) for intent in sorted(intents)}
        meaningful = {intent: text for intent, text in words.items() if text and self.use_names}
        if not meaningful:
            return None
        return IntentNames(tuple(meaningful), tuple(meaningful.values()), self._encode(list(meaningful.values())))

    def calibrate(
        self,
        texts: Sequence[Utterance],
        intents: Sequence[str] | Sequence[int],
        *,
        out_of_scope: Sequence[str] = (),
        false_rejection: float | None = None,
    ) -> Calibration:
        """Calibrate on held-out texts; this calibration is kept when examples are added.

        Texts that are examples themselves are ignored. `out_of_scope` are further texts, and `false_rejection` replaces
        the classifier's rate.
        """
        model = self._fitted_model()
        pairs = [*validate_pairs(texts, intents), *validate_pairs(out_of_scope, [OUT_OF_SCOPE] * len(out_of_scope))]
        unknown = sorted({intent for _, intent in pairs} - {*model.examples.classes, OUT_OF_SCOPE})
        if unknown:
            raise IntentError(f"the intent {unknown[0]!r} has no examples: add some first, or leave its texts out")
        rate = self.false_rejection if false_rejection is None else false_rejection
        settings = replace(model.settings, false_rejection=rate, per_intent=self.per_intent)
        pairs = self.known_pairs(pairs)
        every = self._encode([text for text, _ in pairs])
        unseen = model.examples.rows_not_included(pairs)
        inside = [row for row in unseen if pairs[row][1] != OUT_OF_SCOPE]
        outside = [row for row in unseen if pairs[row][1] == OUT_OF_SCOPE]
        if not inside:
            raise IntentError("no text is in scope and not an example itself: provide other texts of the intents")
        names = np.array([pairs[row][1] for row in inside])
        labels = np.searchsorted(np.array(model.examples.classes), names).astype(np.int64)
        data = model.calibration_data(every[inside], labels, every[outside])
        self.model_ = replace(model, settings=settings).calibrated(data, held_out=True)
        self.false_rejection = rate
        return self.model_.calibration

    # ---- prediction

    def predict(self, texts: Sequence[Utterance]) -> npt.NDArray[np.str_ | np.int64]:
        """Return the intent of each text; if the classifier abstains 'out_of_scope', or -1 among integer labels."""
        model = self._fitted_model()
        result = model.score(self._encode(texts))
        return np.where(
            result.abstained, -1 if self.integer_labels_ else OUT_OF_SCOPE, self._labels()[result.order[:, 0]]
        )

    def score(self, texts: Sequence[Utterance], intents: Sequence[str] | Sequence[int]) -> float:
        """Return the fraction of correct predictions; 'out_of_scope' or -1 is correct where the classifier abstains."""
        return float((self.predict(texts) == np.asarray(intents)).mean())

    def predict_proba(self, texts: Sequence[Utterance]) -> npt.NDArray[np.float64]:
        """Return the probability of each intent (texts, intents), assuming texts in scope; the order is `classes_`."""
        model = self._fitted_model()
        return model.calibration.probabilities(model.logits(self._encode(texts)))[:, np.argsort(self._labels())]

    def inputs(self, texts: Sequence[Utterance], *, several: bool = False) -> list[EncoderInput]:
        """Return what `decide` encodes: the texts, and with `several` their parts, for callers that encode in batches.

        A text has up to 36 parts.
        """
        strings = [join_turns(text) for text in texts]
        parts = [part for parts in split_texts(strings, several).values() for part in parts.values()]
        return [*map(self._encoder_input, strings), *parts]

    def decide(
        self, texts: Sequence[Utterance], *, neighbours: int = 3, several: bool = False, vectors: Vectors | None = None
    ) -> list[Decision]:
        """Return the decision about each text, with its reason and its most similar examples (`neighbours` of them).

        `several` searches for several intents in a text; `vectors` are unit vectors of the `inputs`, if known.
        """
        model, strings = self._fitted_model(), [join_turns(text) for text in texts]
        split = split_texts(strings, several)
        every_text = [*strings, *(part for parts in split.values() for part in parts.values())]
        every_vector = self._encode_missing(every_text, vectors, len(every_text))
        every = model.decide([last_turn(text) for text in every_text], every_vector, neighbours)
        decisions, remaining = every[: len(texts)], iter(every[len(texts) :])
        for row, parts in split.items():
            candidates = [next(remaining) for _ in parts]
            chosen = best_segmentation(parts, [candidate.score for candidate in candidates])
            decisions[row] = combine_decisions(decisions[row], [candidates[index] for index in chosen])
        return decisions

    # ---- changing examples

    def add(self, intent: str | int, texts: Sequence[Utterance]) -> int:
        """Add examples of an intent, which may be new or 'out_of_scope'; return how many are new."""
        before = len(self._fitted_model().examples.pairs)
        self.model_ = self.with_changes(added=validate_pairs(texts, [intent] * len(texts)))
        return len(self.model_.examples.pairs) - before

    def remove(self, intent: str | int, texts: Sequence[Utterance] | None = None) -> int:
        """Remove examples of an intent, or with None the whole intent; return how many were removed."""
        pairs = self.examples_of(intent) if texts is None else validate_pairs(texts, [intent] * len(texts))
        before = len(self._fitted_model().examples.pairs)
        self.model_ = self.with_changes(removed=pairs)
        return before - len(self.model_.examples.pairs)

    def with_changes(self, *, added: Sequence[IntentPair] = (), removed: Sequence[IntentPair] = ()) -> IntentModel:
        """Return the model with some examples and without others, recalibrated once; the classifier is not changed."""
        model = self._fitted_model()
        if self.integer_labels_:
            check_integers(added)
        examples, added, removed = model.examples, self.known_pairs(added), self.known_pairs(removed)
        new = [added[row] for row in examples.rows_not_included(added)]
        if new:
            both = np.concatenate([examples.vectors, self._encode([text for text, _ in new])])
            examples = IntentExamples.from_pairs([*examples.pairs, *new], both)
        if len(examples.rows_not_included(removed)) < len(removed):
            examples = examples.without(removed)
        if examples is model.examples:
            return model
        return model.with_examples(replace(examples, names=self._changed_names(model.examples, examples)))

    def _changed_names(self, before: IntentExamples, after: IntentExamples) -> IntentNames | None:
        """Return the names after a change: those of new intents are added, of intents without examples removed."""
        if before.names is None:
            return None
        with_examples = [{intent for _, intent in each.pairs} - {OUT_OF_SCOPE} for each in (before, after)]
        kept = before.names.of(with_examples[1] | (set(before.names.intents) - with_examples[0]))
        added = self._encode_names(with_examples[1] - with_examples[0] - set(kept.intents))
        return kept if added is None else kept.merge(added)

    def examples_of(self, intent: str | int) -> list[IntentPair]:
        """Return the examples of an intent, or of 'out_of_scope', each with its intent."""
        return [pair for pair in self._fitted_model().examples.pairs if pair[1] == str(intent)]

    # ---- fitted attributes

    @property
    def uses_context(self) -> bool:
        """Whether the turns before a text are used."""
        return self.context_selection_ is not None and self.context_selection_.used

    @property
    def input_length(self) -> int:
        """The maximum number of tokens of the `inputs`."""
        return self.max_length * (2 if self.uses_context else 1)

    @property
    def classes_(self) -> npt.NDArray[np.str_ | np.int64]:
        """The intents, sorted."""
        return np.sort(self._labels())

    @property
    def head_(self) -> str:
        """The head in use; it does not change when examples are added or removed."""
        return self._fitted_model().settings.head

    @property
    def calibration_(self) -> Calibration:
        """The calibration in force."""
        return self._fitted_model().calibration

    # ---- storage

    def save(self, folder: Path | str, *, encoder_name: str | None = None) -> None:
        """Write the classifier to a folder as JSON and safetensors.

        Its encoder is written too, unless that is given by name, or is known to be the model `encoder_name`.
        """
        model, tuning = self._fitted_model(), None if self.tuning is None else asdict(self.tuning)
        name = encoder_name or (str(self.encoder) if isinstance(self.encoder, str | Path) else "")
        stored = StoredClassifier(
            name,
            self.max_length,
            tuning,
            self.head_selection_,
            model,
            self.integer_labels_,
            self.use_names,
            self.support_selection_,
            self.descriptions_,
            self.context_selection_,
        )
        write_classifier(stored, self.encoder_, Path(folder))

    @classmethod
    def load(cls, folder: Path | str, *, encoder: SupportsEncode | None = None) -> "IntentClassifier":
        """Read a classifier that `save` wrote; `encoder` is used instead of the stored one.

        Raise IntentError if the folder holds no classifier, EncoderMismatchError if the encoder is another one.
        """
        stored, identity = load_stored(Path(folder))
        tuning = None
        if stored.tuning is not None:
            from turnwise.assist.intents.tuning import TuningSettings

            tuning = TuningSettings(**stored.tuning)
        parameters = {"max_length": stored.max_length, "use_names": stored.use_names} | asdict(stored.model.settings)
        classifier = cls(stored.encoder, tuning=tuning, **parameters)
        classifier.context_selection_ = stored.context_selection
        classifier.encoder_ = classifier.load_encoder() if encoder is None else encoder
        identity.check(classifier.encoder_, f"the classifier in {folder}", f"turnwise intents fit FILE --out {folder}")
        classifier.model_, classifier.head_selection_ = stored.model, stored.head_selection
        classifier.integer_labels_ = stored.integer_labels
        classifier.support_selection_, classifier.descriptions_ = stored.support_selection, dict(stored.descriptions)
        return classifier

    # ---- helpers

    def _labels(self) -> npt.NDArray[np.str_ | np.int64]:
        """Return the intents in the order of the model, which sorts integers as names."""
        return np.array(self._fitted_model().examples.classes).astype(np.int64 if self.integer_labels_ else np.str_)

    def _fitted_model(self) -> IntentModel:
        if not hasattr(self, "model_"):
            raise IntentError("this IntentClassifier is not fitted yet: call fit or load first")
        return self.model_

    def _encoder_input(self, text: str) -> EncoderInput:
        return encoder_input(text) if self.uses_context else last_turn(text)

    def _encode(self, utterances: Sequence[Utterance]) -> Vectors:
        if isinstance(utterances, str):
            raise IntentError("texts must be a list, got a single string: pass [text]")
        texts = [join_turns(utterance) for utterance in utterances]
        for place, text in enumerate(texts):
            if not (isinstance(text, str) and last_turn(text).strip()):
                given = reprlib.repr(utterances[place])
                raise IntentError(f"texts[{place}] is {given}: every text must be a string, not blank")
        if not len(texts):
            return np.empty((0, self.model_.examples.vectors.shape[1] if hasattr(self, "model_") else 0), np.float32)
        inputs = [self._encoder_input(str(text)) for text in texts]
        return validate_vectors(self.encoder_.encode(inputs, normalise=True, max_length=self.input_length), len(inputs))

    def _encode_missing(self, texts: Sequence[str], vectors: Vectors | None, count: int) -> Vectors:
        """Return the given vectors of the first `count` texts, and encode the others; all, if none are given."""
        if vectors is None:
            return self._encode(texts)
        vectors = validate_vectors(vectors, count)
        return np.concatenate([vectors, self._encode(texts[count:])]) if len(texts) > count else vectors
