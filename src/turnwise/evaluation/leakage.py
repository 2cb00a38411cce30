"""Leakage: which examples of a test set a model has seen in training.

Trained models carry filters of their training texts and consecutive pairs (`turnwise.corpus.membership`). An example of
a dialogue task counts as seen if its response followed the last turn of its context in training; an example of a task
on single texts counts as seen if all its texts were there.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.corpus.membership import TrainingData, hash_pairs, hash_texts
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.datasets.candidates import QuestionData
from turnwise.evaluation.datasets.dataset import SplitData
from turnwise.evaluation.datasets.dialogue_labels import ActionExample, InferenceExample
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance
from turnwise.evaluation.datasets.retrieval import RetrievalQuery
from turnwise.evaluation.datasets.sentence_pairs import SimilarityPair, Triplet

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Leakage:
    """How many texts and (context, response) pairs of a test set a model has seen in training."""

    texts: int
    seen_texts: int
    pairs: int  # 0: a task on single texts
    seen_pairs: int

    @property
    def found(self) -> bool:
        """Return whether anything was seen."""
        return bool(self.seen_texts or self.seen_pairs)


@dataclass(frozen=True, slots=True)
class _ExampleTexts:
    """The texts of an example; those of a dialogue in order, with the response last."""

    texts: tuple[str, ...]
    is_dialogue: bool


def _example_texts(example: Any) -> list[_ExampleTexts]:
    """Return the texts of an example; several for a context with several correct responses."""
    match example:
        case IntentUtterance(text=text) | RetrievalQuery(text=text):
            return [_ExampleTexts((text,), False)]
        case ActionExample(turns=turns):
            return [_ExampleTexts(tuple(turn.text for turn in turns), False)]
        case InferenceExample(turns=turns):
            return [_ExampleTexts(tuple(turn.text for turn in turns), True)]
        case SimilarityPair(first=first, second=second):
            return [_ExampleTexts((first, second), False)]
        case Triplet(anchor=anchor, entailment=entailment, contradiction=contradiction):
            return [_ExampleTexts((anchor, entailment, contradiction), False)]
        case Candidates(context=context):
            return [_ExampleTexts((*context, response), True) for response in example.positives]
        case (str() as question, str() as answer):
            return [_ExampleTexts((question, answer), True)]
        case str():
            return [_ExampleTexts((example,), False)]
    raise TypeError(f"no texts are known of {type(example).__name__}")


def find_leakage(data: Any, training: TrainingData) -> Leakage:
    """Count the distinct texts, and the examples by their pairs, of a data set's test split that a model has seen."""
    items = [item for example in _test_examples(data) for item in _example_texts(example)]
    texts = list(dict.fromkeys(text for item in items for text in item.texts))
    dialogues = [item.texts[-2:] for item in items if item.is_dialogue and len(item.texts) > 1]
    return Leakage(
        texts=len(texts),
        seen_texts=int(training.has_texts(hash_texts(texts)).sum()),
        pairs=len(dialogues),
        seen_pairs=int(_seen_pairs(dialogues, training).sum()),
    )


def exclude_seen(data: Any, training: TrainingData) -> Any:
    """Return a data set whose test split has only examples that the model has not seen."""

    def unseen(examples: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(example for example in examples if not _is_seen(example, training))

    match data:
        case IntentData():
            outside = replace(data.out_of_scope, test=unseen(data.out_of_scope.test))
            return replace(data, test=unseen(data.test), out_of_scope=outside)
        case SplitData():
            return replace(data, test=unseen(data.test))
        case QuestionData():
            return replace(data, pairs=unseen(data.pairs))
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


def _is_seen(example: Any, training: TrainingData) -> bool:
    """Return whether all texts of an example, or one of its pairs of context and response, were in training."""
    items = _example_texts(example)
    if any(item.is_dialogue and len(item.texts) > 1 for item in items):
        return bool(_seen_pairs([item.texts[-2:] for item in items], training).any())
    return all(training.has_texts(hash_texts(item.texts)).all() for item in items)


def _seen_pairs(pairs: list[tuple[str, ...]], training: TrainingData) -> Mask:
    first, second = (hash_texts(pair[place] for pair in pairs) for place in (0, 1))
    return training.has_pairs(hash_pairs(first, second))
