"""Semantic retrieval, as DialogueCSE measures it: a query's candidates are ranked by the cosine of their vectors with the query's.

Each query brings its own positives (same intent) and negatives. Among equal cosines negatives come first.
"""

import numpy as np

from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.retrieval import RetrievalData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.ranking import average_precision, ranks, reciprocal_rank
from turnwise.models.vector_cache import encode_unique

#: Tokens of a text: the paper's 100 for JDDC; it has 50 for ECD and MDC.
MAX_LENGTH = 100


def retrieve(encoder: SupportsEncode, data: RetrievalData, *, max_length: int = MAX_LENGTH) -> list[Outcome]:
    """Mean average precision and mean reciprocal rank of the test queries' positives.

    Args:
        encoder: gives the vectors.
        data: queries with their candidates.
        max_length: of texts, in tokens.
    """
    texts = [text for query in data.test for text in (query.text, *query.positives, *query.negatives)]
    vectors, rows = encode_unique(encoder, texts, max_length)
    precisions, reciprocals, start = [], [], 0
    for query in data.test:
        labels = np.arange(len(query.positives) + len(query.negatives)) < len(query.positives)
        asked, candidates = rows[start], rows[start + 1 : start + 1 + len(labels)]
        start += 1 + len(labels)
        # not as a product of matrices, which may round equal vectors differently, and so break ties
        found = ranks(np.einsum("cd,d->c", vectors[candidates], vectors[asked]), labels)
        precisions.append(average_precision(found))
        reciprocals.append(reciprocal_rank(found))
    return [
        Outcome("retrieval", data.name, "cosine", "MAP", np.array([precisions])),
        Outcome("retrieval", data.name, "cosine", "MRR", np.array([reciprocals])),
    ]
