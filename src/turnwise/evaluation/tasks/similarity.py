"""Textual similarity: does the cosine of two texts go with what people say of their closeness?

DialogueCSE measures D-STS so, with Spearman's correlation; the authors' code gives Pearson's beside it.
"""

import numpy as np

from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.similarity import SimilarityData
from turnwise.evaluation.metrics import Outcome
from turnwise.models.vector_cache import encode_unique

#: Tokens of a text: DialogueCSE's 100 for JDDC; it has 50 for ECD and MDC.
MAX_LENGTH = 100


def correlate(encoder: SupportsEncode, data: SimilarityData, *, max_length: int = MAX_LENGTH) -> list[Outcome]:
    """Spearman's and Pearson's correlation of cosine and gold score over the test pairs; equal values share their mean rank.

    Args:
        encoder: gives the vectors.
        data: pairs of texts with their scores.
        max_length: of texts, in tokens.
    """
    texts = [pair.first for pair in data.test] + [pair.second for pair in data.test]
    vectors, rows = encode_unique(encoder, texts, max_length)
    first, second = vectors[rows[: len(data.test)]], vectors[rows[len(data.test) :]]
    # not as a product of matrices, which may round equal pairs differently, and so break ties
    cosines = np.einsum("pd,pd->p", first, second)
    evidence = np.stack([cosines, np.array([pair.score for pair in data.test])], 1)[None]
    return [
        Outcome("sts", data.name, "cosine", "Spearman", evidence, "spearman"),
        Outcome("sts", data.name, "cosine", "Pearson", evidence, "pearson"),
    ]
