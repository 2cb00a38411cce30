"""Tasks on the cosine of two texts: `sts`, `retrieval` and `nli`."""

import numpy as np

from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.retrieval import RetrievalData
from turnwise.evaluation.datasets.sentence_pairs import SimilarityData, TripletData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.scoring import average_precision, correct_ranks, reciprocal_rank
from turnwise.models.vector_cache import encode_distinct, encode_unique

#: Maximum tokens of a single utterance in DSE.
NLI_MAX_LENGTH = 64

# Cosines are computed with einsum: a matrix product may round equal vectors differently, and so break ties.


def _max_length(dataset: str) -> int:
    """Return the maximum tokens of a text in DialogueCSE: 50 in its corpora of short turns, else 100."""
    return 50 if dataset.endswith(("_ecd", "_mdc")) else 100


def evaluate_similarity(encoder: SupportsEncode, data: SimilarityData) -> list[Outcome]:
    """Compute Spearman's and Pearson's correlation of cosines with human scores over the test pairs.

    DialogueCSE evaluates D-STS with Spearman's correlation; the authors' code also has Pearson's.
    """
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
    """Compute MAP and MRR of the test queries' positives, ranked by cosine, as DialogueCSE does.

    Each query has its own positives (same intent) and negatives; among equal cosines negatives come first.
    """
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
    """Compute how often the entailment is nearer to the anchor than the contradiction (DSE, section 4.5).

    Ties are wrong.
    """
    texts = [text for triplet in data.test for text in (triplet.anchor, triplet.entailment, triplet.contradiction)]
    vectors, rows = encode_unique(encoder, texts, normalise=True, max_length=NLI_MAX_LENGTH)
    anchors, entailments, contradictions = vectors[rows.reshape(-1, 3).T]
    correct = np.einsum("td,td->t", anchors, entailments) > np.einsum("td,td->t", anchors, contradictions)
    evidence = correct[None].astype(np.float64)
    return [Outcome("nli", data.name, "entailment nearer than contradiction", "accuracy", evidence)]
