"""DialogueCSE's semantic retrieval, built from any store whose turns are labelled with intents or acts.

The paper's steps (section 5.1.2): sentences with intent labels are gathered and inconsistent ones thrown out; for each sentence
BM25 retrieves 100 others; those of the same intent are its positives, at most 30 of them; a model then has to rank these first.

Where the paper's annotators judge whether a sentence and its label are consistent, a text that a store labels in different ways is
taken to be inconsistent and left out.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import TurnwiseError
from turnwise.evaluation.datasets.retrieval import RetrievalData, RetrievalQuery

CANDIDATES = 100
POSITIVES = 30

Label = Literal["intent", "acts"]

# Chinese and Japanese are written without spaces: each character counts as a word
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+")


class ConstructionError(TurnwiseError):
    """Nothing to measure on can be built from what a store holds."""


@dataclass(frozen=True, slots=True)
class LabelledTurn:
    """What somebody said, and the one label that it has wherever it is said."""

    text: str
    label: str


def words(text: str) -> list[str]:
    """The words of a text, without regard to case; Chinese and Japanese characters one by one."""
    return _WORD.findall(text.casefold())


def labelled_turns(
    corpus: Iterable[Dialogue], label: Label = "intent", *, speaker: str | None = None, split: str | None = None
) -> list[LabelledTurn]:
    """The distinct labelled turns of a corpus, in the order in which they first occur.

    Texts are equal whatever their case and white space; the form that occurs first is kept. A text that has several labels is
    left out. Dialogues are read in a stream: memory holds the distinct texts.

    Args:
        corpus: the dialogues, such as a `Corpus`.
        label: a turn's intent, or the names of its acts together: 'inform(city)' and 'request(date)' make 'inform+request'.
        speaker: whose turns, such as 'user'; None: everybody's.
        split: which dialogues, such as 'test'; None: all.

    Raises:
        ConstructionError: if no turn is labelled, or none with one label only.
    """
    found: dict[str, LabelledTurn | None] = {}
    for dialogue in corpus:
        if split is not None and dialogue.split != split:
            continue
        for turn in dialogue.turns:
            name = _label(turn, label)
            if name is None or (speaker is not None and turn.speaker != speaker):
                continue
            text = " ".join(turn.text.casefold().split())
            seen = found.setdefault(text, LabelledTurn(turn.text, name))
            if seen is not None and seen.label != name:
                found[text] = None
    turns = [turn for turn in found.values() if turn is not None]
    if not turns:
        where = f"{'' if speaker is None else f' of {speaker!r}'}{'' if split is None else f' in split {split!r}'}"
        raise ConstructionError(
            f"no turn{where} has {label} of its own: choose another label ('intent', 'acts'), speaker or split"
        )
    return turns


def _label(turn: Turn, label: Label) -> str | None:
    if label == "intent":
        return turn.intent or None
    return "+".join(sorted({act.partition("(")[0] for act in turn.acts})) or None


def build_retrieval(
    turns: Sequence[LabelledTurn],
    name: str,
    *,
    candidates: int = CANDIDATES,
    positives: int = POSITIVES,
    queries: int | None = None,
    seed: int = 0,
    licence: str = "that of its source",
) -> RetrievalData:
    """Semantic retrieval as DialogueCSE builds it: all of it is for testing, nothing for validation.

    A candidate shares at least one word with its query, so a query may have fewer than it could; among equal scores of BM25
    (Lucene's form, k1 = 1.5, b = 0.75) the turn that comes first is taken. Of more than `positives` turns with the query's label
    the best-ranked are kept and the others dropped. A query without a positive or without a negative is left out.

    Args:
        turns: distinct texts with their labels.
        name: of the data set.
        candidates: how many BM25 retrieves for a query.
        positives: how many of them may be positives.
        queries: how many queries, drawn at random of those that can be asked; None: all.
        seed: of the drawing.
        licence: of the texts.

    Raises:
        ConstructionError: if no turn can be a query.
    """
    turns = [turn for turn in turns if words(turn.text)]
    if len({turn.label for turn in turns}) < 2:
        raise ConstructionError(
            f"{name}: {len(turns)} turns with fewer than two labels: retrieval cannot be built of them"
        )
    texts = [words(turn.text) for turn in turns]
    index = _index(texts)
    order = np.arange(len(turns)) if queries is None else np.random.default_rng(seed).permutation(len(turns))
    made: dict[int, RetrievalQuery] = {}
    for number in order.tolist():
        if len(made) == queries:
            break
        scores = index.get_scores(texts[number])
        scores[number] = 0.0
        query = _query(turns, number, _best(scores, candidates), positives)
        if query is not None:
            made[number] = query
    if not made:
        raise ConstructionError(
            f"{name}: none of {len(turns)} turns shares a word both with another of its own label and with one of another label:"
            " retrieval cannot be built; choose another label or more dialogues"
        )
    return RetrievalData(name, licence, (), tuple(made[number] for number in sorted(made)))


def _index(texts: list[list[str]]) -> Any:
    try:
        import bm25s
    except ImportError:
        raise ConstructionError("bm25s is not installed: pip install 'turnwise[evaluation]'") from None
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(texts, show_progress=False)
    return index


def _best(scores: npt.NDArray[np.float32], count: int) -> list[int]:
    """The places of the highest scores above zero, best first, equal ones in their order."""
    least = np.partition(scores, -count)[-count] if count < len(scores) else 0.0
    near = np.flatnonzero((scores >= least) & (scores > 0))
    best: list[int] = near[np.argsort(-scores[near], kind="stable")][:count].tolist()
    return best


def _query(
    turns: Sequence[LabelledTurn], number: int, retrieved: Sequence[int], positives: int
) -> RetrievalQuery | None:
    """A query with its candidates; None if one kind of them is missing."""
    asked = turns[number]
    right = [turns[other].text for other in retrieved if turns[other].label == asked.label][:positives]
    wrong = [turns[other].text for other in retrieved if turns[other].label != asked.label]
    return RetrievalQuery(asked.text, tuple(right), tuple(wrong)) if right and wrong else None
