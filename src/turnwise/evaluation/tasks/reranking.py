"""Re-ranking of labelled candidates, as UMS measures response selection.

A re-ranker scores a context's candidates; so does any encoder, by the cosine of their vectors with the context's. R_n@k is the
share of a context's right candidates among the first k of its n; MAP, MRR and P@1 are for contexts with several right ones.
Contexts without a right candidate are left out, as the papers do, and how many there are is stated. A candidate that repeats a
right one word for word is counted once, as that right one; wrong ones that repeat each other stay. Figures are fractions, as UMS
prints them.

UMS's adversarial set asks whether a model has learnt what comes next, or only what is alike: one wrong candidate is replaced by an
utterance of the context itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import context_turns, response_turns
from turnwise.core.types import SupportsEncode, SupportsScore, SupportsScoreAll
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.metrics import WITHOUT_ANSWER, Outcome
from turnwise.evaluation.tasks.ranking import (
    Ranks,
    average_precision,
    precision_at_one,
    ranks,
    recall_at,
    reciprocal_rank,
)
from turnwise.models.vector_cache import encode_unique

#: Tokens of a context or a candidate in an encoder, as in DSE's dialogue-level task; a re-ranker has its own length.
MAX_LENGTH = 128

#: Where the right candidates have to be found: among the first so many.
CUTOFFS = (1, 2, 5)

Context = Literal["history", "last"]
Scores = npt.NDArray[np.floating]


def rerank(
    model: SupportsEncode | SupportsScore,
    examples: Sequence[Candidates],
    dataset: str,
    *,
    context: Context = "history",
    max_length: int = MAX_LENGTH,
) -> list[Outcome]:
    """R_n@1, R_n@2, R_n@5, MAP, MRR and P@1; and the number of contexts without a right candidate, where there are such.

    Args:
        model: a re-ranker, or an encoder, whose cosine is taken.
        examples: contexts with labelled candidates.
        dataset: its name, for the results.
        context: the whole history, newest turn last, or the last turn alone.
        max_length: tokens of a context or a candidate, for an encoder.

    Raises:
        DatasetError: if no context has a right candidate.
    """
    answerable = with_answers(examples, dataset)
    scores, setting = _scored(model, answerable, context, max_length)
    found = [ranks(each, np.array(example.labels)) for each, example in zip(scores, answerable, strict=True)]
    size = max(len(example.responses) for example in examples)
    metrics: dict[str, Callable[[Ranks], float]] = {
        **{f"R{size}@{cutoff}": _recall(cutoff) for cutoff in CUTOFFS},
        "MAP": average_precision,
        "MRR": reciprocal_rank,
        "P@1": precision_at_one,
    }
    outcomes = [
        _outcome(dataset, setting, metric, [measure(each) for each in found]) for metric, measure in metrics.items()
    ]
    if len(answerable) < len(examples):
        unanswerable = np.array([[not example.positives for example in examples]], np.float64)
        outcomes.append(Outcome("reranking", dataset, setting, WITHOUT_ANSWER, unanswerable, scale=len(examples)))
    return outcomes


# ---- UMS's adversarial set


@dataclass(frozen=True, slots=True)
class Adversarial:
    """An example with an utterance of its own context among its candidates, and where it stands there."""

    example: Candidates
    adversary: int


def adversarial(examples: Sequence[Candidates], seed: int = 0) -> list[Adversarial]:
    """Replaces, in each example, one wrong candidate, drawn at random, by an utterance drawn at random from its context.

    The utterance stays in the context and is never one that a right candidate repeats. Examples without a right candidate, a wrong
    one or such an utterance are left out.
    """
    random = np.random.default_rng(seed)
    made = []
    for example in examples:
        wrong = [index for index, right in enumerate(example.labels) if not right]
        utterances = [utterance for utterance in example.context if utterance not in example.positives]
        if not example.positives or not wrong or not utterances:
            continue
        place = wrong[random.integers(len(wrong))]
        responses = list(example.responses)
        responses[place] = utterances[random.integers(len(utterances))]
        made.append(Adversarial(Candidates(example.context, tuple(responses), example.labels), place))
    return made


def rerank_adversarial(
    model: SupportsEncode | SupportsScore,
    examples: Sequence[Candidates],
    dataset: str,
    *,
    context: Context = "history",
    max_length: int = MAX_LENGTH,
    seed: int = 0,
) -> list[Outcome]:
    """R_n@1, MRR and the share of adversaries ranked first (lower is better; ties count against the model) on the adversarial set.

    Args:
        model: a re-ranker, or an encoder, whose cosine is taken.
        examples: contexts with labelled candidates, as they are without adversaries.
        dataset: its name, for the results.
        context: the whole history, newest turn last, or the last turn alone.
        max_length: tokens of a context or a candidate, for an encoder.
        seed: of the adversaries.

    Raises:
        DatasetError: if no example can be given an adversary.
    """
    size = max((len(example.responses) for example in examples), default=0)
    made = adversarial([merged(example) for example in examples], seed)
    if not made:
        raise DatasetError(
            f"{dataset} has no context with a right response, a wrong one and an utterance to put in its place"
        )
    changed = [each.example for each in made]
    scores, setting = _scored(model, changed, context, max_length)
    found = [ranks(each, np.array(example.labels)) for each, example in zip(scores, changed, strict=True)]
    first = [_first(each, item.adversary) for each, item in zip(scores, made, strict=True)]
    setting += ", adversarial"
    return [
        _outcome(dataset, setting, f"R{size}@1", [recall_at(each, 1) for each in found]),
        _outcome(dataset, setting, "MRR", [reciprocal_rank(each) for each in found]),
        _outcome(dataset, setting, "adversary first", first),
    ]


# ---- scores


def cosine_scores(
    encoder: SupportsEncode, examples: Sequence[Candidates], context: Context = "history", max_length: int = MAX_LENGTH
) -> list[Scores]:
    """The cosine of each candidate's vector with its context's; a history that is too long loses its head, in the encoder."""
    asked = [context_turns(example.context if context == "history" else example.context[-1:]) for example in examples]
    given = [response_turns(text) for example in examples for text in example.responses]
    vectors, rows = encode_unique(encoder, [*asked, *given], max_length)
    queries, rows = vectors[rows[: len(examples)]], rows[len(examples) :]
    ends = np.cumsum([len(example.responses) for example in examples])
    # row by row: a product of matrices may round equal vectors differently, and so break ties
    return [
        (vectors[each].astype(np.float64) * query).sum(1)
        for query, each in zip(queries, np.split(rows, ends[:-1]), strict=True)
    ]


def reranker_scores(
    reranker: SupportsScore, examples: Sequence[Candidates], context: Context = "history"
) -> list[Scores]:
    """What a re-ranker makes of each candidate."""
    asked = [
        (example.context if context == "history" else example.context[-1:], example.responses) for example in examples
    ]
    if isinstance(reranker, SupportsScoreAll):
        return [*reranker.score_all(asked)]
    return [reranker.score(turns, responses) for turns, responses in asked]


# ---- examples


def with_answers(examples: Sequence[Candidates], dataset: str) -> list[Candidates]:
    """The examples that have a right candidate, each right text once.

    Raises:
        DatasetError: if there are none.
    """
    answerable = [merged(example) for example in examples if example.positives]
    if not answerable:
        raise DatasetError(f"{dataset} has no context with a right response: there is nothing to rank")
    return answerable


def merged(example: Candidates) -> Candidates:
    """An example in which no candidate repeats a right one: the first right one of a text stays, in its place."""
    positives = set(example.positives)
    if len(positives) == sum(response in positives for response in example.responses):
        return example
    seen: set[str] = set()
    kept = []
    for response, right in zip(example.responses, example.labels, strict=True):
        if response in positives and (not right or response in seen):
            continue
        seen.add(response)
        kept.append((response, right))
    responses, labels = zip(*kept, strict=True)
    return Candidates(example.context, responses, labels)


def _scored(
    model: SupportsEncode | SupportsScore, examples: Sequence[Candidates], context: Context, max_length: int
) -> tuple[list[Scores], str]:
    if hasattr(model, "score"):
        return reranker_scores(
            cast(SupportsScore, model), examples, context
        ), "re-ranker" if context == "history" else "re-ranker, last turn"
    scores = cosine_scores(model, examples, context, max_length)
    return scores, "cosine, history" if context == "history" else "cosine, last turn"


def _recall(cutoff: int) -> Callable[[Ranks], float]:
    return lambda found: recall_at(found, cutoff)


def _first(scores: Scores, adversary: int) -> float:
    """Whether nothing scores more than the adversary; where it does not score a number, nothing does."""
    return float(not (scores > scores[adversary]).any())


def _outcome(dataset: str, setting: str, metric: str, values: list[float]) -> Outcome:
    return Outcome("reranking", dataset, setting, metric, np.array([values]), scale=1.0)
