"""Geometry of utterance vectors: uniformity and alignment.

Uniformity (TaDSE, Eq. 6) is the logarithm of the mean of exp(-2d²) over pairs of utterances at distance d; alignment
(Eq. 7) is the mean of d² over pairs of one intent. Lower is better for both. Vectors are normalised first, as both are
defined on the hypersphere (the authors' code leaves that out, and divides alignment by the number of uniformity's
pairs).
"""

import numpy as np
import numpy.typing as npt
from sklearn.metrics import pairwise_distances_chunked

from turnwise.core.errors import DatasetError
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.intents import encode_examples


def geometry(encoder: SupportsEncode, data: IntentData) -> list[Outcome]:
    """Compute uniformity and alignment of the test utterances, over all pairs."""
    intents = np.unique([example.intent for example in data.test], return_inverse=True)[1]
    if len(intents) == len(np.unique(intents)):
        raise DatasetError(f"{data.name} has no two test utterances of one intent: alignment needs pairs")
    vectors, rows = encode_examples(encoder, data.test)

    def sum_terms(squares: npt.NDArray[np.float32], start: int) -> npt.NDArray[np.float64]:
        """Return sums and counts of uniformity's and alignment's terms for each utterance of a chunk."""
        own = np.arange(start, start + len(squares))
        others = np.ones(squares.shape, bool)
        others[own - start, own] = False
        same_intent = others & (intents[own][:, None] == intents)
        terms = np.exp(-2 * squares.astype(np.float64))
        pairs = ((terms, others), (squares.astype(np.float64), same_intent))
        return np.stack([part for values, mask in pairs for part in (values.sum(1, where=mask), mask.sum(1))], 1)

    # in chunks that fit scikit-learn's working memory
    sums = np.concatenate(list(pairwise_distances_chunked(vectors[rows], reduce_func=sum_terms, squared=True)))[None]
    # both utterances of a pair are resampled in the bootstrap, while an utterance's sum over pairs stands for one:
    # doubling its deviation from the mean corrects for that and leaves the total as it is
    evidence = 2 * sums - sums.mean(1, keepdims=True)
    return [
        Outcome("geometry", data.name, "test utterances", "uniformity", evidence[..., :2], "log ratio", 1.0),
        Outcome("geometry", data.name, "test utterances", "alignment", evidence[..., 2:], "ratio", 1.0),
    ]
