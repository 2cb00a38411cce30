"""Ranking: responses by cosine (`responses`, DSE), re-ranking (`reranking`, UMS), and tasks on the cosine of two texts.

Among equal scores wrong candidates come first, and a candidate that repeats a correct one word for word is counted
once, as the correct one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import context_turns, response_turns
from turnwise.core.errors import DatasetError
from turnwise.core.types import SupportsEncode, SupportsScore, SupportsScoreAll
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.datasets.retrieval import RetrievalData
from turnwise.evaluation.datasets.sentence_pairs import SimilarityData, TripletData
from turnwise.evaluation.metrics import WITHOUT_ANSWER, Outcome
from turnwise.evaluation.tasks.scoring import (
    Ranks,
    average_precision,
    correct_ranks,
    recall_at,
    reciprocal_rank,
    single_correct_ranks,
)
from turnwise.models.vector_cache import encode_distinct, encode_unique

MAX_LENGTH = 128  # maximum tokens of a context, question or candidate in an encoder; a re-ranker has its own maximum
NLI_MAX_LENGTH = 64  # maximum tokens of a single utterance in DSE

#: k of Top-k accuracy, and of recall R_n@k.
TOP_CUTOFFS = (1, 3, 5, 10)
RECALL_CUTOFFS = (1, 2, 5)

CANDIDATES = 100  # candidates of a question
_BLOCK_SIZE = 256  # questions scored together

Context = Literal["history", "last"]
Pool = Literal["random", "chunks"]
Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.floating]


def rank_answers(
    encoder: SupportsEncode,
    pairs: Sequence[tuple[str, str]],
    dataset: str,
    *,
    candidates: int = CANDIDATES,
    pools: Sequence[Pool] = ("random",),
    seed: int = 0,
) -> list[Outcome]:
    """Compute the Top-k accuracy of each question's answer among answers to other questions, in each pool.

    In the pool 'random', the others are sampled for each question without replacement, none with the text of the
    correct answer, as in the paper. In 'chunks', consecutive pairs share their answers, and an incomplete last chunk is
    dropped, as in the authors' code; the result then depends on the order of the pairs.
    """
    questions, answers = [question for question, _ in pairs], [answer for _, answer in pairs]
    for pool in pools:
        most_common = max(Counter(answers).values(), default=0) if pool == "random" else 1
        if len(pairs) - most_common + 1 < candidates:
            raise DatasetError(
                f"{dataset} has too few answers for {candidates} candidates a question:"
                " give more pairs, or ask for fewer candidates"
            )
    inputs = [*questions, *map(response_turns, answers)]
    vectors, all_rows = encode_unique(encoder, inputs, normalise=True, max_length=MAX_LENGTH)
    question_rows, answer_rows = np.split(all_rows, 2)
    outcomes = []
    for pool in pools:
        blocks = _random_pools(answer_rows, candidates, seed) if pool == "random" else _chunks(len(pairs), candidates)
        ranks = []
        for block, candidate_pairs in blocks:
            rows = answer_rows[candidate_pairs]
            # not a matrix product, which may round equal vectors differently, and so break ties
            scores = np.einsum("qcd,qd->qc", vectors[rows], vectors[question_rows[block]])
            own = np.take_along_axis(scores, (candidate_pairs == block[:, None]).argmax(1)[:, None], 1)[:, 0]
            ranks.append(single_correct_ranks(own, scores, rows != answer_rows[block][:, None]))
        setting = "0-shot similarity" if pool == "random" else "0-shot similarity, chunks"
        outcomes += [
            Outcome(
                "responses", dataset, setting, f"Top-{cutoff}", (np.concatenate(ranks) <= cutoff)[None].astype(float)
            )
            for cutoff in TOP_CUTOFFS
        ]
    return outcomes


def _random_pools(answer_rows: Rows, candidates: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Yield blocks of pairs, and for each pair those whose answers are its candidates: its own, and others' texts."""
    random = np.random.default_rng(seed)
    pairs_of_row = np.split(np.argsort(answer_rows, kind="stable"), np.cumsum(np.bincount(answer_rows))[:-1])
    for first in range(0, len(answer_rows), _BLOCK_SIZE):
        block = np.arange(first, min(first + _BLOCK_SIZE, len(answer_rows)))
        pools = np.empty((len(block), candidates), np.int64)
        for pool, pair in zip(pools, block, strict=True):
            same = pairs_of_row[answer_rows[pair]]
            others = random.choice(len(answer_rows) - len(same), candidates - 1, replace=False, shuffle=False)
            pool[0] = pair
            # sampled from numbers that skip the pairs with the same answer: each of those before shifts a number by one
            pool[1:] = others + np.searchsorted(same - np.arange(len(same)), others, side="right")
        yield block, pools


def _chunks(pairs: int, candidates: int) -> Iterator[tuple[Rows, Rows]]:
    """Yield blocks of consecutive pairs that share their answers."""
    for first in range(0, pairs - pairs % candidates, candidates):
        block = np.arange(first, first + candidates)
        yield block, np.tile(block, (candidates, 1))


def rank_responses(
    encoder: SupportsEncode, examples: Sequence[Candidates], dataset: str, setting: str = "0-shot similarity, history"
) -> list[Outcome]:
    """Compute the Top-k accuracy of the correct responses among the candidates of a data set, by cosine.

    Examples without a correct response are left out. With several, the value is the proportion of them among the first
    k. The history is truncated from its head; the authors' code truncates from the end, and so loses the newest turns.
    """
    answerable = with_answers(examples, dataset)
    ranks = _rank_candidates(cosine_scores(encoder, answerable), answerable)
    return [
        Outcome("responses", dataset, setting, f"Top-{cutoff}", np.array([[recall_at(each, cutoff) for each in ranks]]))
        for cutoff in TOP_CUTOFFS
    ]


def rerank(
    model: SupportsEncode | SupportsScore, examples: Sequence[Candidates], dataset: str, context: Context = "history"
) -> list[Outcome]:
    """Compute R_n@1, R_n@2, R_n@5, MAP, MRR and P@1 as fractions, as UMS does.

    R_n@k is the proportion of a context's correct candidates among the first k of its n. Contexts without a correct
    candidate are left out, as in the papers, and their number is reported. An encoder ranks by cosine. The context is
    the whole history, newest turn last, or only the last turn.
    """
    answerable = with_answers(examples, dataset)
    scores, setting = _score_candidates(model, answerable, context)
    ranks = _rank_candidates(scores, answerable)
    size = max(len(example.responses) for example in examples)
    metrics: dict[str, Callable[[Ranks], float]] = {
        **{f"R{size}@{cutoff}": partial(recall_at, cutoff=cutoff) for cutoff in RECALL_CUTOFFS},
        "MAP": average_precision,
        "MRR": reciprocal_rank,
        "P@1": lambda ranks: float(ranks[0] == 1),
    }
    outcomes = [
        _reranking_outcome(dataset, setting, metric, [compute(each) for each in ranks])
        for metric, compute in metrics.items()
    ]
    if len(answerable) < len(examples):
        unanswerable = np.array([[not example.positives for example in examples]], np.float64)
        outcomes.append(Outcome("reranking", dataset, setting, WITHOUT_ANSWER, unanswerable, scale=len(examples)))
    return outcomes


def make_adversarial(examples: Sequence[Candidates], seed: int = 0) -> list[tuple[Candidates, int]]:
    """Replace a wrong candidate by an utterance of its context that is not correct; return examples and its index."""
    random = np.random.default_rng(seed)
    made = []
    for example in examples:
        wrong = [index for index, correct in enumerate(example.labels) if not correct]
        utterances = [utterance for utterance in example.context if utterance not in example.positives]
        if not example.positives or not wrong or not utterances:
            continue
        adversary = wrong[random.integers(len(wrong))]
        responses = list(example.responses)
        responses[adversary] = utterances[random.integers(len(utterances))]
        made.append((Candidates(example.context, tuple(responses), example.labels), adversary))
    return made


def rerank_adversarial(
    model: SupportsEncode | SupportsScore, examples: Sequence[Candidates], dataset: str
) -> list[Outcome]:
    """Compute R_n@1, MRR and how often the adversary is first (lower is better) on UMS's adversarial examples."""
    size = max((len(example.responses) for example in examples), default=0)
    adversarial = make_adversarial([merge_duplicates(example) for example in examples])
    if not adversarial:
        raise DatasetError(
            f"{dataset} has no context with a correct response, a wrong one and an utterance to put in its place"
        )
    changed = [example for example, _ in adversarial]
    scores, setting = _score_candidates(model, changed, "history")
    ranks = _rank_candidates(scores, changed)
    # if the adversary's score is not a number, nothing is above it
    first = [float(not (each > each[place]).any()) for each, (_, place) in zip(scores, adversarial, strict=True)]
    setting += ", adversarial"
    return [
        _reranking_outcome(dataset, setting, f"R{size}@1", [recall_at(each, 1) for each in ranks]),
        _reranking_outcome(dataset, setting, "MRR", [reciprocal_rank(each) for each in ranks]),
        _reranking_outcome(dataset, setting, "adversary first", first),
    ]


def cosine_scores(
    encoder: SupportsEncode, examples: Sequence[Candidates], context: Context = "history"
) -> list[Scores]:
    """Return the cosines of each example's candidates with its context; histories are truncated from the head."""
    contexts = [
        context_turns(example.context if context == "history" else example.context[-1:]) for example in examples
    ]
    responses = [response_turns(text) for example in examples for text in example.responses]
    vectors, rows = encode_unique(encoder, [*contexts, *responses], normalise=True, max_length=MAX_LENGTH)
    queries, rows = vectors[rows[: len(examples)]], rows[len(examples) :]
    ends = np.cumsum([len(example.responses) for example in examples])
    # not a matrix product, which may round equal vectors differently, and so break ties
    return [
        (vectors[each].astype(np.float64) * query).sum(1)
        for query, each in zip(queries, np.split(rows, ends[:-1]), strict=True)
    ]


def with_answers(examples: Sequence[Candidates], dataset: str) -> list[Candidates]:
    """Return the examples that have a correct candidate, each correct text once; raises DatasetError without any."""
    answerable = [merge_duplicates(example) for example in examples if example.positives]
    if not answerable:
        raise DatasetError(f"{dataset} has no context with a correct response: there is nothing to rank")
    return answerable


def merge_duplicates(example: Candidates) -> Candidates:
    """Remove candidates that repeat a correct one; the first correct one of a text stays in its place."""
    positives = set(example.positives)
    if len(positives) == sum(response in positives for response in example.responses):
        return example
    seen: set[str] = set()
    merged = []
    for response, correct in zip(example.responses, example.labels, strict=True):
        if response in positives and (not correct or response in seen):
            continue
        seen.add(response)
        merged.append((response, correct))
    responses, labels = zip(*merged, strict=True)
    return Candidates(example.context, responses, labels)


def _score_candidates(
    model: SupportsEncode | SupportsScore, examples: Sequence[Candidates], context: Context
) -> tuple[list[Scores], str]:
    """Return the scores of each example's candidates, and the name of the setting."""
    if not hasattr(model, "score"):
        scores = cosine_scores(model, examples, context)
        return scores, "cosine, history" if context == "history" else "cosine, last turn"
    reranker = cast(SupportsScore, model)
    setting = "re-ranker" if context == "history" else "re-ranker, last turn"
    inputs = [(each.context if context == "history" else each.context[-1:], each.responses) for each in examples]
    if isinstance(reranker, SupportsScoreAll):
        return [*reranker.score_all(inputs)], setting
    return [reranker.score(turns, responses) for turns, responses in inputs], setting


def _rank_candidates(scores: Sequence[Scores], examples: Sequence[Candidates]) -> list[Ranks]:
    return [correct_ranks(each, np.array(example.labels)) for each, example in zip(scores, examples, strict=True)]


def _reranking_outcome(dataset: str, setting: str, metric: str, values: list[float]) -> Outcome:
    return Outcome("reranking", dataset, setting, metric, np.array([values]), scale=1.0)


# ---- similarity of two texts: `retrieval`, `sts` and `nli`

# Cosines are computed with einsum: a matrix product may round equal vectors differently, and so break ties.


def _max_length(dataset: str) -> int:
    """Return the maximum tokens of a text in DialogueCSE: 50 in its corpora of short turns, else 100."""
    return 50 if dataset.endswith(("_ecd", "_mdc")) else 100


def evaluate_similarity(encoder: SupportsEncode, data: SimilarityData) -> list[Outcome]:
    """Compute Spearman's correlation of cosines with human scores, as DialogueCSE, and Pearson's, as its code."""
    texts = [pair.first for pair in data.test] + [pair.second for pair in data.test]
    vectors = encode_distinct(encoder, texts, normalise=True, max_length=_max_length(data.name))
    first, second = np.split(vectors, 2)
    cosines = np.einsum("pd,pd->p", first, second)
    evidence = np.stack([cosines, np.array([pair.score for pair in data.test])], 1)[None]
    return [
        Outcome("sts", data.name, "cosine", "Spearman", evidence, "spearman"),
        Outcome("sts", data.name, "cosine", "Pearson", evidence, "pearson"),
    ]


def evaluate_retrieval(encoder: SupportsEncode, data: RetrievalData) -> list[Outcome]:
    """Compute MAP and MRR of each test query's own positives, ranked by cosine, as DialogueCSE does."""
    texts = [text for query in data.test for text in (query.text, *query.positives, *query.negatives)]
    vectors, rows = encode_unique(encoder, texts, normalise=True, max_length=_max_length(data.name))
    precisions, reciprocals, start = [], [], 0
    for query in data.test:
        labels = np.arange(len(query.positives) + len(query.negatives)) < len(query.positives)
        candidates = vectors[rows[start + 1 : start + 1 + len(labels)]]
        ranks = correct_ranks(np.einsum("cd,d->c", candidates, vectors[rows[start]]), labels)
        start += 1 + len(labels)
        precisions.append(average_precision(ranks))
        reciprocals.append(reciprocal_rank(ranks))
    return [
        Outcome("retrieval", data.name, "cosine", "MAP", np.array([precisions])),
        Outcome("retrieval", data.name, "cosine", "MRR", np.array([reciprocals])),
    ]


def evaluate_nli(encoder: SupportsEncode, data: TripletData) -> list[Outcome]:
    """Compute how often the entailment is nearer to the anchor than the contradiction (DSE, 4.5); ties are wrong."""
    texts = [text for triplet in data.test for text in (triplet.anchor, triplet.entailment, triplet.contradiction)]
    vectors, rows = encode_unique(encoder, texts, normalise=True, max_length=NLI_MAX_LENGTH)
    anchors, entailments, contradictions = vectors[rows.reshape(-1, 3).T]
    correct = np.einsum("td,td->t", anchors, entailments) > np.einsum("td,td->t", anchors, contradictions)
    evidence = correct[None].astype(np.float64)
    return [Outcome("nli", data.name, "entailment nearer than contradiction", "accuracy", evidence)]
