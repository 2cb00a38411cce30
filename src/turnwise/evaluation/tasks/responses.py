"""Response selection by similarity: candidates are ranked by the cosine of their vector with the context's."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from turnwise.corpus.responses import Candidates
from turnwise.evaluation.results import Outcome
from turnwise.evaluation.tasks.encoding import SupportsEncode

#: Where the right answer has to be found: among the first so many.
CUTOFFS = (1, 2, 5)


def ranks(scores: npt.NDArray[np.float64], labels: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The rank (from 1) of each right candidate; among equal scores wrong ones come first, so ties never favour the model."""
    right = scores[labels]
    better = (scores[~labels][None, :] >= right[:, None]).sum(1)
    return np.asarray(better + 1 + (right[None, :] > right[:, None]).sum(1), np.int64)


def rank_responses(
    encoder: SupportsEncode,
    examples: Sequence[Candidates],
    dataset: str,
    context: Literal["last", "history"] = "last",
) -> list[Outcome]:
    """Recall at 1, 2 and 5, and the mean reciprocal rank, of the right responses.

    Args:
        encoder: gives the vectors.
        examples: contexts with candidates; those without a right one are passed over.
        dataset: its name, for the results.
        context: the last turn alone, or the whole history, newest turn last.
    """
    examples = [example for example in examples if example.positives]
    queries = [example.context[-1] if context == "last" else list(example.context) for example in examples]
    texts = sorted({response for example in examples for response in example.responses})
    place = {text: index for index, text in enumerate(texts)}
    asked, answers = encoder.encode(queries, normalise=True), encoder.encode(texts, normalise=True)
    first: list[int] = []
    recalls: dict[int, list[float]] = {cutoff: [] for cutoff in CUTOFFS}
    for query, example in zip(asked, examples, strict=True):
        scores = answers[[place[response] for response in example.responses]].astype(np.float64) @ query
        found = ranks(scores, np.array(example.labels))
        first.append(int(found.min()))
        for cutoff in CUTOFFS:
            recalls[cutoff].append(float((found <= cutoff).mean()))
    count = max(len(example.responses) for example in examples)
    setting = f"similarity, {'last turn' if context == 'last' else 'history'}"
    outcomes = [
        Outcome("responses", dataset, setting, f"R{count}@{cutoff}", np.array([values])) for cutoff, values in recalls.items()
    ]
    return [*outcomes, Outcome("responses", dataset, setting, "MRR", 1 / np.array([first], np.float64))]
