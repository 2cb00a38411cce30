"""Does a re-ranker improve suggestions? Measured on held-out turns, whose actual answers are known."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from turnwise.assist.responses.responder import Responder
from turnwise.core.dialogue import SYSTEM, Dialogue
from turnwise.core.errors import SearchError
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsScore
from turnwise.evaluation.metrics import Outcome, bootstrap_outcomes, confidence_interval

#: Turns to answer: a re-ranker reads 50 candidates for each.
TURNS = 100

_HELD_OUT = ("valid", "test")
_OTHERS = [None, "train"]  # the splits of the answers to suggest; canned answers have none


@dataclass(frozen=True, slots=True)
class RerankingGain:
    """How similar the first suggestion is to the actual answer (mean cosine of the encoder's vectors)."""

    turns: int
    without: float
    reranked: float
    difference: float
    low: float  # bounds of the 95% interval of the difference
    high: float

    @property
    def is_better(self) -> bool:
        """Whether the re-ranker's suggestions are more similar, beyond chance."""
        return self.low > 0


def measure_reranking(
    responder: Responder,
    reranker: SupportsScore,
    dialogues: Iterable[Dialogue],
    *,
    speaker: str = SYSTEM,
    turns: int = TURNS,
    progress: Progress = silent,
) -> RerankingGain:
    """Suggest an answer for turns of held-out dialogues from the others, by similarity and re-ranked.

    Held-out dialogues have the split 'valid' or 'test'; more than `turns` of their answers are sampled. Raise
    SearchError if there are fewer than ten.
    """
    cases = [
        (dialogue.turns[:position], turn.text)
        for dialogue in dialogues
        if dialogue.split in _HELD_OUT
        for position, turn in enumerate(dialogue.turns)
        if position and turn.speaker == speaker
    ]
    if len(cases) < 10:
        raise SearchError(
            f"the splits valid and test have {len(cases)} answers of {speaker}, at least 10 are needed: divide the"
            " conversations (`turnwise corpus import … --split 80/10/10`) or add a longer log"
        )
    rows = np.sort(np.random.default_rng(0).permutation(len(cases))[:turns])
    by_similarity, reranking = replace(responder, reranker=None), replace(responder, reranker=reranker)
    texts: list[tuple[str, str, str]] = []
    for row in rows.tolist():
        context, answer = cases[row]
        first, second = (each.suggest(context, top=1, where={"split": _OTHERS}) for each in (by_similarity, reranking))
        if not first:
            raise SearchError("no answer is in the split train or canned: there is nothing to suggest")
        texts.append((answer, first[0].text, second[0].text))
        progress("answering held-out turns", len(texts), len(rows))
    vectors = responder.encoder.encode([text for each in texts for text in each], normalise=True)
    actual, *suggested = vectors.reshape(len(texts), 3, -1).transpose(1, 0, 2)
    without, reranked = ((actual * each).sum(1) for each in suggested)
    outcome = Outcome("responses", "log", "re-ranking", "difference", (reranked - without)[None], scale=1.0)
    low, high = confidence_interval(bootstrap_outcomes([outcome])[0])
    return RerankingGain(len(texts), float(without.mean()), float(reranked.mean()), outcome.value, low, high)
