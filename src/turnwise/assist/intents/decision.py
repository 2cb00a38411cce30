"""What a classifier of intents says of a text, and why."""

from collections.abc import Sequence
from dataclasses import dataclass

#: What `predict` says of a text that asks for none of the intents, and what examples of such texts are labelled with.
OUT_OF_SCOPE = "out_of_scope"

#: Intents that a decision ranks at most.
RANKED = 5


@dataclass(frozen=True, slots=True)
class Ranked:
    """An intent of which a text may be.

    Attributes:
        intent: its name.
        score: how like its examples the text is, on the scale of the threshold: 1 at most, below 0 where nothing is alike.
        probability: that it is this one, if it is any.
    """

    intent: str
    score: float
    probability: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An example that is like a text, and the cosine of their vectors."""

    text: str
    intent: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What is decided about a text.

    Attributes:
        text: what was said.
        intent: what it asks for; None where the classifier abstains.
        score: the best intent's, whether it is taken or not.
        threshold: what it takes to be taken; None where the classifier never abstains.
        abstained: whether the score is below the threshold.
        reason: the decision in a sentence for people.
        intents: all that is asked for, in the order of the text where several were looked for; empty where it abstains.
        runner_up: the second best; None where there is one intent alone.
        ranked: the best five, best first: by their probabilities, those that reach their threshold before those that do not; where
            it abstains, the one that the text is most like comes first.
        nearest: the examples nearest to the text, nearest first.
    """

    text: str
    intent: str | None
    score: float
    threshold: float | None
    abstained: bool
    reason: str
    intents: tuple[str, ...]
    runner_up: Ranked | None
    ranked: tuple[Ranked, ...]
    nearest: tuple[Neighbour, ...]


def decided(
    text: str, ranked: Sequence[Ranked], threshold: float | None, abstained: bool, nearest: Sequence[Neighbour]
) -> Decision:
    """A decision, and its reason in words.

    Args:
        text: what was said.
        ranked: the best intents, best first.
        threshold: of the best; None: there is none.
        abstained: whether the text is turned away.
        nearest: examples, nearest first.
    """
    best, runner_up = ranked[0], ranked[1] if len(ranked) > 1 else None
    return Decision(
        text=text,
        intent=None if abstained else best.intent,
        score=best.score,
        threshold=threshold,
        abstained=abstained,
        reason=_reason(best, runner_up, threshold, abstained, nearest),
        intents=() if abstained else (best.intent,),
        runner_up=runner_up,
        ranked=tuple(ranked),
        nearest=tuple(nearest),
    )


def _reason(
    best: Ranked, runner_up: Ranked | None, threshold: float | None, abstained: bool, nearest: Sequence[Neighbour]
) -> str:
    if abstained:
        said = [f"The best guess, {best.intent}, scores {best.score:.2f}, below the {threshold:.2f} it takes"]
    else:
        enough = "" if threshold is None else f", and {threshold:.2f} is enough"
        said = [f"{best.intent} scores {best.score:.2f} (probability {best.probability:.0%}){enough}"]
        if runner_up is not None:
            said.append(f"next is {runner_up.intent} with {runner_up.score:.2f} ({runner_up.probability:.0%})")
    if nearest:
        said.append(
            f"the nearest example is '{nearest[0].text}', of {nearest[0].intent} (cosine {nearest[0].similarity:.2f})"
        )
    return "; ".join(said) + "."
