"""Two stages end to end: an encoder retrieves k of all responses, a re-ranker puts those in order; how good, how fast, for which k?

The pool is every different right response of a data set's test contexts, and each context is to find its own: those of others are
wrong for it, but for one that says the same word for word. The largest k is retrieved and re-ranked once; a smaller one is made of
its first k.

Top-1 is how often the first is right; MRR is one over the rank of the best right one, nothing where none was retrieved; 'retrieved'
is how often a right one is among the k, which no re-ranker can surpass. All are percentages. Times are those of contexts in blocks,
on the machine that the results name; retrieving includes encoding the contexts, but not the pool, which is encoded once.
"""

from collections.abc import Sequence
from time import perf_counter

import numpy as np
import numpy.typing as npt

from turnwise.assist.responses.selector import Selector
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode, SupportsScore
from turnwise.corpus.responses import Candidates
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.outcomes import MILLISECONDS, Outcome
from turnwise.evaluation.tasks.ranking import ranks, reciprocal_rank
from turnwise.evaluation.tasks.reranking import MAX_LENGTH, with_answers

#: How many are retrieved; what exceeds the pool is cut to it.
DEPTHS = (1, 5, 10, 20, 50, 100)

#: Contexts that are asked, drawn with a seed where there are more; the pool is that of all.
CONTEXTS = 1_000

#: Contexts that are timed together.
BLOCK = 32

Flags = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.floating]


def select(
    encoder: SupportsEncode,
    reranker: SupportsScore,
    examples: Sequence[Candidates],
    dataset: str,
    *,
    depths: Sequence[int] = DEPTHS,
    contexts: int = CONTEXTS,
    max_length: int = MAX_LENGTH,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Outcome]:
    """Top-1, MRR and 'retrieved' for each k; Top-1 and MRR by similarity alone; milliseconds a context of both stages.

    Args:
        encoder: retrieves.
        reranker: puts what was retrieved in order.
        examples: contexts with labelled candidates, of which the right ones are taken.
        dataset: its name, for the results.
        depths: k.
        contexts: how many are asked at most.
        max_length: tokens of a context or a response in the encoder; a re-ranker has its own length.
        seed: of drawing the contexts.
        progress: told how many contexts are done.

    Raises:
        DatasetError: if no context has a right response, or all share the same one.
    """
    answerable = with_answers(examples, dataset)
    selector = Selector(encoder, reranker, max_length=max_length)
    selector.index([text for example in answerable for text in example.positives], progress=progress)
    if len(selector) < 2:
        raise DatasetError(f"{dataset} has one right response for all contexts: there is nothing to select from")
    if len(answerable) > contexts:
        chosen = np.sort(np.random.default_rng(seed).choice(len(answerable), contexts, replace=False))
        answerable = [answerable[place] for place in chosen]
    depths = sorted({min(depth, len(selector)) for depth in depths})
    return _Measured(selector, answerable, depths[-1], progress).outcomes(dataset, depths)


class _Measured:
    """What both stages make of contexts, at the largest k, and how long they take.

    Attributes:
        pool: how many responses there are.
        depth: the largest k.
        right: of each context which of those retrieved are right, nearest first; among equal ones wrong ones come first.
        scores: what the re-ranker makes of them.
        times: of each block of contexts: seconds of retrieving, seconds of re-ranking, contexts.
    """

    def __init__(self, selector: Selector, examples: Sequence[Candidates], depth: int, progress: Progress):
        self.pool = len(selector)
        self.depth = depth
        self.right: list[Flags] = []
        self.scores: list[Scores] = []
        self.times: list[tuple[float, float, float]] = []
        # what a device does once, before it has ever scored, is no part of the time
        selector.score_all([examples[0].context], np.zeros((1, 1), np.int64))
        for first in range(0, len(examples), BLOCK):
            self._measure(selector, examples[first : first + BLOCK])
            progress("selecting", len(self.right), len(examples))

    def _measure(self, selector: Selector, block: Sequence[Candidates]) -> None:
        contexts = [example.context for example in block]
        begun = perf_counter()
        # one more than wanted: whether the last of them ties with what comes behind decides whether it counts
        found = selector.retrieve_all(contexts, self.depth + 1)
        retrieved = perf_counter()
        own = [set(example.positives) for example in block]
        right = np.array(
            [[selector.responses[row] in texts for row in rows] for rows, texts in zip(found.rows, own, strict=True)]
        )
        order = np.lexsort((right, -found.similarities))[:, : self.depth]
        rows = np.take_along_axis(found.rows, order, 1)
        self.right += [*np.take_along_axis(right, order, 1)]
        asked = perf_counter()
        self.scores += selector.score_all(contexts, rows)
        self.times.append((retrieved - begun, perf_counter() - asked, len(block)))

    def outcomes(self, dataset: str, depths: Sequence[int]) -> list[Outcome]:
        """The figures of each k, then those without a re-ranker, then the times."""
        found = []
        for depth in depths:
            setting = f"the first {depth:,} of {self.pool:,} re-ranked"
            right = [each[:depth] for each in self.right]
            found += _quality(dataset, setting, right, [each[:depth] for each in self.scores])
            found.append(
                Outcome(
                    "selection", dataset, setting, "retrieved", np.array([[each.any() for each in right]], np.float64)
                )
            )
        # the order in which they were retrieved, as scores
        nearness = [-np.arange(self.depth, dtype=np.float64)] * len(self.right)
        found += _quality(dataset, f"the first {self.depth:,} of {self.pool:,} by similarity", self.right, nearness)
        times = np.array(self.times)
        for place, stage in enumerate(("retrieving", "re-ranking")):
            evidence = times[None][..., [place, 2]]
            found.append(
                Outcome(
                    "selection",
                    dataset,
                    f"{stage} {self.depth:,} of {self.pool:,}",
                    MILLISECONDS,
                    evidence,
                    "ratio",
                    1000.0,
                )
            )
        return found


def _quality(dataset: str, setting: str, right: Sequence[Flags], scores: Sequence[Scores]) -> list[Outcome]:
    """Top-1 and MRR of what was retrieved, put in order by scores."""
    found = [ranks(each, flags) for each, flags in zip(scores, right, strict=True)]
    reciprocal = np.array([[reciprocal_rank(each) if len(each) else 0.0 for each in found]])
    first = (reciprocal == 1).astype(np.float64)
    return [
        Outcome("selection", dataset, setting, metric, values)
        for metric, values in (("Top-1", first), ("MRR", reciprocal))
    ]
