"""Response selection by similarity, as DSE measures it: candidates are ranked by the cosine of their vector with the query's.

At the level of utterances a question's answer stands among 99 answers to others; at the level of dialogues the data set brings the
candidates. Top-k accuracy: how often the right one is among the first k. Among equal scores wrong candidates come first, and a
candidate that repeats the right one word for word is counted once, as the right one.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import response_turns
from turnwise.core.types import SupportsEncode
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.ranking import Ranks, ranks, recall_at, truth_ranks
from turnwise.evaluation.tasks.reranking import Context, cosine_scores, with_answers
from turnwise.models.vector_cache import encode_unique

#: Tokens of a query or a candidate.
MAX_LENGTH = 128

#: Where the right answer has to be found: among the first so many.
CUTOFFS = (1, 3, 5, 10)

#: Candidates of a question.
CANDIDATES = 100

#: Questions that are scored together.
_BLOCK = 256

Pool = Literal["random", "chunks"]
Rows = npt.NDArray[np.int64]


def rank_answers(
    encoder: SupportsEncode,
    pairs: Sequence[tuple[str, str]],
    dataset: str,
    *,
    candidates: int = CANDIDATES,
    pool: Pool = "random",
    seed: int = 0,
    cutoffs: Sequence[int] = CUTOFFS,
) -> list[Outcome]:
    """Top-k accuracy of each question's answer among answers to other questions.

    Args:
        encoder: gives the vectors.
        pairs: questions and their answers.
        dataset: its name, for the results.
        candidates: of a question, the right one included.
        pool: where they come from. 'random': for each question the others are drawn anew, without replacement, and none is the
            right answer's text, as the paper says. 'chunks': consecutive pairs share their answers, and what does not fill the last
            chunk is dropped, as in the authors' code; figures then depend on the order of the pairs.
        seed: of the draws.
        cutoffs: k.

    Raises:
        DatasetError: if there are too few pairs.
    """
    questions, answers = [question for question, _ in pairs], [answer for _, answer in pairs]
    commonest = max(Counter(answers).values(), default=0) if pool == "random" else 1
    if len(pairs) - commonest + 1 < candidates:
        raise DatasetError(
            f"{dataset} has too few answers for {candidates} candidates a question: give more pairs, or ask for fewer candidates"
        )
    vectors, rows = encode_unique(encoder, [*questions, *map(response_turns, answers)], MAX_LENGTH)
    asked, given = rows[: len(pairs)], rows[len(pairs) :]
    drawn = _random_pools(given, candidates, seed) if pool == "random" else _chunks(len(pairs), candidates)
    found = np.concatenate([_answer_ranks(vectors, asked, given, block, pools) for block, pools in drawn])
    setting = "0-shot similarity" if pool == "random" else "0-shot similarity, chunks"
    return [
        Outcome("responses", dataset, setting, f"Top-{cutoff}", (found <= cutoff)[None].astype(np.float64))
        for cutoff in cutoffs
    ]


def rank_responses(
    encoder: SupportsEncode,
    examples: Sequence[Candidates],
    dataset: str,
    *,
    context: Context = "history",
    cutoffs: Sequence[int] = CUTOFFS,
    prefix: str = "Top-",
) -> list[Outcome]:
    """Top-k accuracy of the right responses among the candidates that a data set brings.

    Args:
        encoder: gives the vectors.
        examples: contexts with candidates; those without a right one are left out. Where there are several, the figure is the share
            of them among the first k.
        dataset: its name, for the results.
        context: the whole history, newest turn last, cut from its head (the authors' code cuts from the end, and so loses the
            newest turns), or the last turn alone.
        cutoffs: k.
        prefix: of the metrics' names.

    Raises:
        DatasetError: if no context has a right response.
    """
    answerable = with_answers(examples, dataset)
    scores = cosine_scores(encoder, answerable, context, MAX_LENGTH)
    found = [ranks(each, np.array(example.labels)) for each, example in zip(scores, answerable, strict=True)]
    setting = "0-shot similarity, history" if context == "history" else "0-shot similarity, last turn"
    return [
        Outcome(
            "responses", dataset, setting, f"{prefix}{cutoff}", np.array([[recall_at(each, cutoff) for each in found]])
        )
        for cutoff in cutoffs
    ]


# ---- pools: blocks of pairs, and the pairs whose answers are each one's candidates (questions, candidates)


def _random_pools(given: Rows, candidates: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """For each pair its own answer, and others' that do not say the same."""
    random = np.random.default_rng(seed)
    alike = np.split(np.argsort(given, kind="stable"), np.cumsum(np.bincount(given))[:-1])
    for first in range(0, len(given), _BLOCK):
        block = np.arange(first, min(first + _BLOCK, len(given)))
        pools = np.empty((len(block), candidates), np.int64)
        for pool, pair in zip(pools, block, strict=True):
            same = alike[given[pair]]
            others = random.choice(len(given) - len(same), candidates - 1, replace=False, shuffle=False)
            pool[0] = pair
            # drawn by numbers that pass over the pairs of the same answer: each of those that comes before shifts a number by one
            pool[1:] = others + np.searchsorted(same - np.arange(len(same)), others, side="right")
        yield block, pools


def _chunks(pairs: int, candidates: int) -> Iterator[tuple[Rows, Rows]]:
    """Consecutive pairs that share their answers."""
    for first in range(0, pairs - pairs % candidates, candidates):
        block = np.arange(first, first + candidates)
        yield block, np.tile(block, (candidates, 1))


def _answer_ranks(vectors: npt.NDArray[np.float32], asked: Rows, given: Rows, block: Rows, pools: Rows) -> Ranks:
    # not as a product of matrices, which may round equal vectors differently, and so break ties
    scores = np.einsum("qcd,qd->qc", vectors[given[pools]], vectors[asked[block]])
    truth = np.take_along_axis(scores, (pools == block[:, None]).argmax(1)[:, None], 1)[:, 0]
    return truth_ranks(truth, scores, given[pools] != given[block][:, None])
