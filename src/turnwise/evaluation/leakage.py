"""Leakage: which examples of a test set a model has seen in training, and the texts of data sets to compare.

Trained models carry filters of their training texts and consecutive pairs (`turnwise.corpus.training_data`).
An example counts as seen

- if its response followed the last turn of its context in training: candidates, questions and answers;
- if the whole context of the statement in question was in training, or if the statement followed the turn before it:
  inference. Its inconsistent examples are made by changing the last turn of a dialogue, so that the last turn alone
  would only find the consistent ones;
- if all consecutive pairs of its turns were in training: actions, whose examples are dialogues so far;
- if all its texts were in training: tasks on single texts.

Texts of dialogues do not count on their own, since every corpus has "yes" and "thank you": a dialogue of one turn is
never seen.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.core.errors import DatasetError
from turnwise.corpus.overlap import TextCollection
from turnwise.corpus.readers.responses import Candidates
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.store import is_store
from turnwise.corpus.training_data import Hashes, Mask, SeenTexts, TrainingData
from turnwise.evaluation.datasets.candidates import QuestionData
from turnwise.evaluation.datasets.dataset import SPLITS, SplitData
from turnwise.evaluation.datasets.dialogues import ActionExample, ConversationData, InferenceExample
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance
from turnwise.evaluation.datasets.retrieval import RetrievalQuery
from turnwise.evaluation.datasets.sentence_pairs import SimilarityPair, Triplet
from turnwise.evaluation.evaluation_protocols import all_protocols

#: Excluding examples is refused if chance explains the change of the label distribution with a lower probability, and a
#: label's fraction changes by more. Of many examples even a small change is significant.
MIN_LABEL_SHIFT_P, MAX_LABEL_CHANGE = 0.01, 0.05

#: A model counts as trained on a labelled training split if this fraction of it was in training with labels. Unrelated
#: public data sets share less than 1% of their training texts; related ones, such as HWU64 and MASSIVE, over a third.
MIN_POOL_FRACTION = 0.1

_MOST_LABELS = 4  # that a description of a changed distribution names

_MIN_EXPECTED = 5  # labels with fewer expected examples are counted together, as usual in a chi-square test


@dataclass(frozen=True, slots=True)
class Leakage:
    """How many examples, distinct texts and distinct (context, response) pairs of a test set a model has seen."""

    examples: int
    seen_examples: int
    texts: int
    seen_texts: int
    pairs: int  # 0: a task on single texts
    seen_pairs: int
    false_positive_rate: float  # the probability that one that was not seen is counted as seen
    digest: str = ""  # equal if the same examples were seen; empty if none was
    seen_by_label: dict[str, tuple[int, int]] = field(default_factory=dict)  # seen and all examples, if they have one
    label_p: float = 1.0  # see `label_shift`
    verdict: str = ""  # that the model was trained on the labelled training split, which no exclusion can mend

    @property
    def affected(self) -> bool:
        """Return whether the training split, or more examples than false positives explain, were seen.

        False positives explain their expected number plus three standard deviations.
        """
        if self.verdict:
            return True
        expected = self.examples * self.false_positive_rate
        return self.seen_examples > expected + 3 * math.sqrt(expected)

    def summary(self) -> str:
        """Return the counts in words."""
        parts = [("examples", self.seen_examples, self.examples), ("texts", self.seen_texts, self.texts)]
        parts += [("pairs", self.seen_pairs, self.pairs)] if self.pairs else []
        text = ", ".join(f"{seen:,} of {total:,} {name}" for name, seen, total in parts)
        text = f"{self.verdict}; {text}" if self.verdict else text
        labels = ", ".join(f"{label} {seen:,} of {total:,}" for label, (seen, total) in self.seen_by_label.items())
        return f"{text} ({labels})" if len(self.seen_by_label) == 2 else text  # intents are too many

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of a data set in `results.json`."""
        changes = _describe_changes(self.seen_by_label) if self.seen_examples else ""
        return {**asdict(self), "affected": self.affected, "summary": self.summary(), "label_changes": changes}


def describe_training_data(training: TrainingData | None) -> str:
    """Return what is known of a model's training data, in a sentence."""
    statements = "; ".join(training.statements) if training is not None else ""
    if training is None or not training.stages:
        return f"no fingerprint: leakage cannot be found. {statements or 'Nothing is known of the training data'}"
    stages = f"{len(training.stages)} training stage{'s' if len(training.stages) > 1 else ''}"
    known = f"fingerprints of {stages} (false-positive rate {training.false_positive_rate:.0e})"
    return f"{known}. Without fingerprint: {statements}" if statements else known


def example_dialogues(example: Any) -> list[tuple[str, ...]]:
    """Return an example's texts as dialogues (one for each correct response), of which a text on its own is one."""
    match example:
        case IntentUtterance(text=text) | RetrievalQuery(text=text):
            return [(text,)]
        case ActionExample(turns=turns) | InferenceExample(turns=turns):
            return [tuple(turn.text for turn in turns)]
        case SimilarityPair(first=first, second=second):
            return [(first,), (second,)]
        case Triplet(anchor=anchor, entailment=entailment, contradiction=contradiction):
            return [(anchor,), (entailment,), (contradiction,)]
        case Candidates(context=context):
            return [(*context, response) for response in example.positives]
        case (str() as question, str() as answer):
            return [(question, answer)]
        case str():
            return [(example,)]
    raise TypeError(f"no texts are known of {type(example).__name__}")


def find_leakage(data: Any, training: TrainingData) -> Leakage | None:
    """Count the test examples, texts and pairs that a model has seen; None for data without test examples."""
    examples = _test_examples(data)
    if not examples:
        return None
    seen, found = find_seen(examples, training)
    # of inference and responses only the last pairs count
    places = slice(None) if isinstance(examples[0], ActionExample) else found.hashed.ends - 1
    texts, seen_texts = _count_distinct(found.hashed.text_hashes, found.texts)
    pairs, seen_pairs = _count_distinct(found.hashed.pair_hashes[places], found.pairs[places])
    by_label = _count_by_label(examples, seen)
    return Leakage(
        examples=len(examples),
        seen_examples=int(seen.sum()),
        texts=texts,
        seen_texts=seen_texts,
        pairs=pairs,
        seen_pairs=seen_pairs,
        false_positive_rate=training.false_positive_rate,
        digest=hashlib.sha256(np.packbits(seen).tobytes()).hexdigest()[:16] if seen.any() else "",
        seen_by_label=by_label,
        label_p=label_shift(by_label),
        verdict=find_labelled_training(data, training),
    )


def find_seen(examples: Sequence[Any], training: TrainingData) -> tuple[Mask, SeenTexts]:
    """Return which examples a model has seen in training, and which of their texts and pairs."""
    dialogues = [example_dialogues(example) for example in examples]
    seen = training.find([dialogue for part in dialogues for dialogue in part])
    starts, ends = seen.hashed.starts, seen.hashed.ends
    if not len(starts):
        return np.zeros(len(examples), np.bool_), seen
    last_pairs = (starts < ends) & seen.pairs[ends - 1]
    match examples[0]:
        case ActionExample():
            pairs = seen.pairs.copy()
            pairs[ends] = starts < ends  # the last turn makes no pair
            flags = np.logical_and.reduceat(pairs, starts)
        case InferenceExample():
            flags = last_pairs | _find_contexts(seen)
        case Candidates() | tuple():
            flags = last_pairs
        case _:
            flags = np.logical_and.reduceat(seen.texts, starts)
    # one of several correct responses is enough; of several texts all count
    combine = any if isinstance(examples[0], Candidates) else all
    found = iter(flags.tolist())
    return np.array([bool(part) and combine([next(found) for _ in part]) for part in dialogues], np.bool_), seen


def _find_contexts(seen: SeenTexts) -> Mask:
    """Return the dialogues whose texts before the last were all in training: as consecutive pairs, or the only one."""
    starts, ends = seen.hashed.starts, seen.hashed.ends
    known = seen.pairs.copy()
    known[ends] = known[np.maximum(ends - 1, 0)] = True  # the last text and its pair are no part of the context
    short = ends - starts < 2
    known[starts[short]] = (seen.texts[starts] & (starts < ends))[short]
    found: Mask = np.logical_and.reduceat(known, starts)
    return found


def find_labelled_training(data: Any, training: TrainingData) -> str:
    """Return that a model was trained on the labelled training split of an intent data set; empty if it was not.

    The examples of few-shot and nearest-neighbour protocols are drawn from this split: a model that learnt its labels
    knows the answers, whichever test examples are left. A stage of which nothing is known may have used labels.
    """
    texts = list(dict.fromkeys(example.text for example in data.train)) if isinstance(data, IntentData) else []
    found, known = training.find_labelled(texts)
    if not texts or found.sum() < MIN_POOL_FRACTION * len(texts):
        return ""
    kind = "labelled" if known else "(perhaps labelled)"
    return f"trained on this data set's {kind} training split ({found.sum():,} of {len(texts):,} texts)"


def label_shift(seen_by_label: Mapping[str, tuple[int, int]]) -> float:
    """Return the p-value of a chi-square test of whether seen and other examples have the same labels.

    A model that ignores its input can score well on what is left if one label was seen more often than the others.
    """
    table = np.array([(seen, total - seen) for seen, total in seen_by_label.values()]).reshape(-1, 2)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / max(1, table.sum())
    rare = (expected < _MIN_EXPECTED).any(axis=1)
    table = np.vstack([table[~rare], table[rare].sum(axis=0)])
    table = table[table.any(axis=1)]
    if len(table) < 2 or not table.any(axis=0).all():
        return 1.0
    from scipy.stats import chi2_contingency  # here, because most evaluations do not need SciPy

    return float(chi2_contingency(table).pvalue)


def without_seen(data: Any, training: TrainingData) -> Any:
    """Return a data set without test examples that were seen.

    Raises:
        DatasetError: if none or only one class is left, if the labels of what is left are distributed differently, or
            if the model was trained on the labelled training split.
    """
    if verdict := find_labelled_training(data, training):
        raise DatasetError(
            f"{data.name}: the model was {verdict}, so that it knows the answers also to test examples that it has not "
            "seen. Evaluate on all examples, which marks the results, or with a model that was not trained on them"
        )

    def unseen(examples: tuple[Any, ...], kind: str) -> tuple[Any, ...]:
        mask, _ = find_seen(examples, training)
        left = tuple(example for example, is_seen in zip(examples, mask, strict=True) if not is_seen)
        if examples and not left:
            raise DatasetError(f"the model has seen all {len(examples):,} {kind} of {data.name} in training")
        if len(_classes(left)) == 1 < len(_classes(examples)):
            raise DatasetError(f"all {kind} of {data.name} that the model has not seen are {_classes(left).pop()!r}")
        by_label = _count_by_label(examples, mask)
        _check_labels(data.name, by_label)
        return left

    match data:
        case IntentData():
            outside = replace(data.out_of_scope, test=unseen(data.out_of_scope.test, "out-of-scope test examples"))
            return replace(data, test=unseen(data.test, "test examples"), out_of_scope=outside)
        case SplitData():
            return replace(data, test=unseen(data.test, "test examples"))
        case QuestionData():
            return replace(data, pairs=unseen(data.pairs, "test examples"))
    return data


def _test_examples(data: Any) -> tuple[Any, ...]:
    match data:
        case IntentData():
            return (*data.test, *data.out_of_scope.test)
        case SplitData():
            return data.test
        case QuestionData():
            return data.pairs
    return ()  # the geometry of whole corpora has no test examples


def _count_distinct(hashes: Hashes, seen: Mask) -> tuple[int, int]:
    """Return how many distinct items there are, and how many of them were seen; 0 is none."""
    exists = hashes != 0
    return len(np.unique(hashes[exists])), len(np.unique(hashes[exists & seen]))


def _label(example: Any) -> str:
    """Return the intent or label of an example; empty if it has none."""
    return getattr(example, "intent", "") or getattr(example, "label", "")


def _classes(examples: Sequence[Any]) -> set[str]:
    return set(map(_label, examples))


def _count_by_label(examples: Sequence[Any], seen: Mask) -> dict[str, tuple[int, int]]:
    """Return how many examples of each label were seen, and how many there are; without those that have no label."""
    totals = Counter(map(_label, examples))
    counts = Counter(_label(example) for example, is_seen in zip(examples, seen, strict=True) if is_seen)
    return {label: (counts[label], total) for label, total in sorted(totals.items()) if label}


def _label_changes(by_label: Mapping[str, tuple[int, int]]) -> dict[str, tuple[float, float]]:
    """Return the fraction of each label before and after seen examples are excluded, largest changes first."""
    before = sum(total for _, total in by_label.values())
    after = before - sum(seen for seen, _ in by_label.values())
    changes = {label: (total / before, (total - seen) / max(1, after)) for label, (seen, total) in by_label.items()}
    return dict(sorted(changes.items(), key=lambda item: -abs(item[1][1] - item[1][0])))


def _describe_changes(by_label: Mapping[str, tuple[int, int]]) -> str:
    changes = list(_label_changes(by_label).items())
    text = ", ".join(f"{label} {before:.1%} → {after:.1%}" for label, (before, after) in changes[:_MOST_LABELS])
    return f"{text}, and smaller changes" if len(changes) > _MOST_LABELS else text


def _check_labels(name: str, by_label: Mapping[str, tuple[int, int]]) -> None:
    """Raise a DatasetError if excluding what was seen changes the label distribution clearly."""
    largest = max((abs(after - before) for before, after in _label_changes(by_label).values()), default=0.0)
    if largest > MAX_LABEL_CHANGE and (p_value := label_shift(by_label)) < MIN_LABEL_SHIFT_P:
        raise DatasetError(
            f"excluding the examples of {name} that the model has seen would change the label distribution "
            f"(chi-square test: p = {p_value:.0e}), so that the label alone gives a better or worse score: "
            f"{_describe_changes(by_label)}. Evaluate on all examples, or with a model that was not trained on them"
        )


# ---- texts of stores and data sets by name


def open_text_collection(name: str, data: Path | None = None) -> TextCollection:
    """Open the texts of a store or of an evaluation data set.

    Args:
        name: the folder of a store, or the name of a data set in `data`; with ':train', ':valid' or ':test' only that
            split. A data set of several tasks has the texts of all of them.
        data: a folder of data sets.
    """
    base, _, split = name.rpartition(":")
    if split not in SPLITS or not base:
        base, split = name, ""
    if is_store(Path(base)):
        corpus = read_corpus(base, splits=[split] if split else None)
        return TextCollection(name, lambda: ([turn.text for turn in dialogue.turns] for dialogue in corpus))
    if data is None:
        raise DatasetError(f"{base} is not a store, and no --data is given to look for a data set: import a corpus")
    catalogues = dict.fromkeys(protocol.datasets for protocol in all_protocols().values())
    datasets = [catalogue(data).get(base) for catalogue in catalogues]
    present = [dataset for dataset in datasets if dataset is not None and dataset.is_present(data)]
    if not present:
        raise DatasetError(f"{base} is not a store, and no data set in {data}: import a corpus, or name a data set")
    # several tasks have the same data set
    distinct = {(dataset.folder, dataset.files, dataset.differs): dataset for dataset in present}
    contents = [dataset.load(data) for dataset in distinct.values()]
    return TextCollection(name, partial(_read_texts, contents, split))


def _read_texts(contents: Sequence[Any], split: str) -> Iterator[tuple[str, ...]]:
    for data in contents:
        if split and isinstance(data, QuestionData | ConversationData):
            raise DatasetError(f"{data.name} has no splits: name it without :{split}")
        match data:
            case ConversationData():
                yield from (tuple(turn.text for turn in turns) for turns in data.dialogues)
            case QuestionData():
                yield from data.pairs
            case _:
                for each in (split,) if split else SPLITS:
                    examples = getattr(data, each)
                    if isinstance(data, IntentData):
                        examples = (*examples, *getattr(data.out_of_scope, each))
                    for example in examples:
                        yield from example_dialogues(example)
