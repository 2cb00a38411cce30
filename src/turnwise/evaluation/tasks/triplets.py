"""Natural language inference by closeness, as DSE measures it: what a sentence entails should be nearer than what contradicts it.

The paper (section 4.5) takes, for each anchor, one sentence that it entails and one that contradicts it; the one with the higher
cosine is said to be the entailment.
"""

import numpy as np

from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.triplets import TripletData
from turnwise.evaluation.metrics import Outcome
from turnwise.models.vector_cache import encode_unique

#: Tokens of a text; the paper's for single utterances.
MAX_LENGTH = 64


def nearer(encoder: SupportsEncode, data: TripletData, *, max_length: int = MAX_LENGTH) -> list[Outcome]:
    """The share of test triplets whose entailment is nearer to the anchor than the contradiction; a tie counts as wrong.

    Args:
        encoder: gives the vectors.
        data: anchors, each with an entailment and a contradiction.
        max_length: of texts, in tokens.
    """
    texts = [text for triplet in data.test for text in (triplet.anchor, triplet.entailment, triplet.contradiction)]
    vectors, rows = encode_unique(encoder, texts, max_length)
    anchors, entailed, contradicting = vectors[rows.reshape(-1, 3).T]
    # not as a product of matrices, which may round equal vectors differently, and so break ties
    right = np.einsum("td,td->t", anchors, entailed) > np.einsum("td,td->t", anchors, contradicting)
    return [
        Outcome("nli", data.name, "entailment nearer than contradiction", "accuracy", right[None].astype(np.float64))
    ]
