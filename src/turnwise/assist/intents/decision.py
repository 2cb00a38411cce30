"""Decisions about texts, with reasons; and splitting texts that state several intents.

"Cancel my order and tell me the weather" is similar to the examples of neither intent as a whole, but each part is
similar to those of one. "Do you have it in black and white" is most similar to its intent as a whole. So among all
segmentations at clause boundaries the one with the highest mean score of its segments, weighted by their words, is
chosen; each split costs a little.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from turnwise.assist.intents.context import last_turn
from turnwise.core.text import shorten_text

#: The number of intents that a decision ranks at most.
MAX_RANKED = 5

#: Where a text may be split: at the end of a sentence, at a comma, and at words that join clauses. The bounds keep the
#: time linear in the length of a text.
_BOUNDARY = re.compile(
    r"(?:[.?!;,:\n]{1,8}\s{1,8}|\s{1,8})(?:and also|and then|as well as|and|also|then|plus|but),?\s+"
    r"|[.?!;,\n]{1,8}\s+",
    re.IGNORECASE,
)

#: The maximum number of clauses; the last one holds the rest of the text.
_MAX_CLAUSES = 8

#: How much the mean score has to rise for each split.
SPLIT_PENALTY = 0.03

#: Characters of a text that a reason quotes.
_QUOTED_LENGTH = 120

#: Segments of a text by their first clause and the one after their last.
Segments = dict[tuple[int, int], str]


@dataclass(frozen=True, slots=True)
class RankedIntent:
    """A candidate intent of a text."""

    intent: str
    """The name of the intent."""
    score: float
    """The similarity to its examples, on the scale of the threshold: at most 1, negative for dissimilar texts."""
    probability: float
    """The probability of this intent, given that the text has one of the intents."""


@dataclass(frozen=True, slots=True)
class SimilarExample:
    """An example and the cosine similarity of its vector with that of a text."""

    text: str
    """The text of the example."""
    intent: str
    """Its intent."""
    similarity: float
    """The cosine similarity."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a text."""

    text: str
    """The text."""
    intent: str | None
    """The best intent, or None if the classifier abstains: if its score is below the threshold."""
    score: float
    """The score of the best intent."""
    threshold: float | None
    """The threshold of the best intent; None: the classifier never abstains."""
    abstained: bool
    """Whether the classifier abstains."""
    reason: str
    """The reason, in one sentence."""
    intents: tuple[str, ...]
    """All intents in the order of the text, if several were searched for; empty if the classifier abstains."""
    runner_up: RankedIntent | None
    """The second of the ranked intents."""
    ranked: tuple[RankedIntent, ...]
    """The best five intents by probability, those that reach their threshold first; of an abstention, the most similar
    one first."""
    nearest: tuple[SimilarExample, ...]
    """The most similar examples, most similar first."""


def make_decision(
    text: str,
    ranked: Sequence[RankedIntent],
    threshold: float | None,
    abstained: bool,
    nearest: Sequence[SimilarExample],
) -> Decision:
    """Return a decision with its reason, given the ranked intents and the threshold of the best one."""
    best, runner_up = ranked[0], ranked[1] if len(ranked) > 1 else None
    if abstained:
        reason = f"The best candidate, {best.intent}, scores {best.score:.2f}, below the threshold of {threshold:.2f}"
    else:
        minimum = "" if threshold is None else f", threshold {threshold:.2f}"
        reason = f"{best.intent} scores {best.score:.2f} (probability {best.probability:.0%}{minimum})"
        if runner_up is not None:
            reason += f"; next is {runner_up.intent} with {runner_up.score:.2f} ({runner_up.probability:.0%})"
    if nearest:
        quoted, example = shorten_text(nearest[0].text, _QUOTED_LENGTH), nearest[0]
        reason += f"; the most similar example is '{quoted}' of {example.intent} (cosine {example.similarity:.2f})"
    intent, intents = (None, ()) if abstained else (best.intent, (best.intent,))
    return Decision(
        text, intent, best.score, threshold, abstained, f"{reason}.", intents, runner_up, tuple(ranked), tuple(nearest)
    )


# ---- several intents in one text


def split_text(text: str) -> Segments:
    """Return every run of consecutive clauses of a text, including the whole text."""
    cuts = [match.span() for match in islice(_BOUNDARY.finditer(text), _MAX_CLAUSES - 1)]
    ends = [(0, 0), *cuts, (len(text), len(text))]
    clauses = [(before[1], after[0]) for before, after in pairwise(ends) if text[before[1] : after[0]].strip()]
    spans = [(first, last) for first in range(len(clauses)) for last in range(first + 1, len(clauses) + 1)]
    segments = {(first, last): text[clauses[first][0] : clauses[last - 1][1]].strip() for first, last in spans}
    # the whole text is kept unchanged, with what surrounds its clauses
    return {**segments, (0, max(1, len(clauses))): text}


def split_texts(texts: Sequence[str], several: bool) -> dict[int, Segments]:
    """Return the segments of texts that have more than one, by their rows; none unless `several`."""
    if not several:
        return {}
    return {row: parts for row, text in enumerate(texts) if len(parts := split_text(last_turn(text))) > 1}


def best_segmentation(segments: Segments, scores: Sequence[float]) -> list[int]:
    """Return the indices of the segments that cover the text with the highest weighted mean score, in text order."""
    index_of = {span: index for index, span in enumerate(segments)}
    count = max(last for _, last in segments)
    words = [len(segments[first, first + 1].split()) for first in range(count)]
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for last in range(1, count + 1):
        candidates = []
        for first in range(last):
            index = index_of[first, last]
            score, before = best[first]
            penalty = SPLIT_PENALTY * sum(words) if first else 0.0
            candidates.append((score + scores[index] * sum(words[first:last]) - penalty, [*before, index]))
        best.append(max(candidates, key=lambda candidate: candidate[0]))
    return best[count][1]


def combine_decisions(whole: Decision, segments: Sequence[Decision]) -> Decision:
    """Return the decision about a text given those about its segments: that of the best segment, with all intents."""
    accepted = [(decision, decision.intent) for decision in segments if decision.intent is not None]
    if len(accepted) < 2 and not (accepted and whole.abstained):
        return whole
    best = max((decision for decision, _ in accepted), key=lambda decision: decision.score)
    statements = " and ".join(
        f"{intent} in '{shorten_text(decision.text, _QUOTED_LENGTH)}' ({decision.score:.2f})"
        for decision, intent in accepted
    )
    intents = tuple(dict.fromkeys(intent for _, intent in accepted))
    return replace(best, text=whole.text, intents=intents, reason=f"The text states {statements}. {best.reason}")
