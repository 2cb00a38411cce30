"""Dialogue inputs with marked places, as UMS has them (Whang et al., 2021): what a re-ranker reads, and where its heads look.

Every utterance ends in [EOT]. Response selection looks at the backbone's first token; the other three put a mark of their own
before utterances and look there:

    selection   [CLS] u₁ [EOT] … uₙ [EOT] [SEP] r [EOT] [SEP]
    insertion   [CLS] [INS] u₁ [EOT] [INS] … uₙ [EOT] [INS] [SEP] target [EOT] [SEP]
    deletion    [CLS] [DEL] u₁ [EOT] [DEL] … uₙ [EOT] [SEP]
    search      [CLS] [SRCH] u₁ [EOT] [SRCH] … uₙ [EOT] [SEP] target [EOT] [SEP]

What is too long is cut: of a context its head; where there are marks, the ends of the longest utterances, so that no mark is lost
and the n-th mark stays that of the n-th utterance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from turnwise.models.backbone.compose import Composer
from turnwise.models.backbone.ragged import Tokens
from turnwise.models.backbone.source import BackboneError

#: What a re-ranker's heads are asked.
Task = Literal["selection", "insertion", "deletion", "search"]

#: Utterances that insertion, deletion and search look at together (k).
WINDOW = 5

END_OF_TURN = "[EOT]"
INSERT = "[INS]"
DELETE = "[DEL]"
SEARCH = "[SRCH]"


@dataclass(frozen=True, slots=True)
class Marked:
    """A token sequence, its segments, and the places at which heads look, in order."""

    tokens: Tokens
    segments: Tokens
    places: npt.NDArray[np.int64]


def selection(composer: Composer, context: Sequence[Tokens], response: Tokens, longest: int) -> Marked:
    """A context and a response, which is to be told whether it goes on from it; looked at is the first token.

    The context loses its head while it is longer than the response; only then does the response lose its end, before its [EOT].

    Raises:
        BackboneError: if the backbone puts no token before a text, or there is no room for a response.
    """
    if not len(composer.prefix):
        raise BackboneError(
            "this backbone puts no token such as [CLS] before a text, whose state a re-ranker's score is made of"
        )
    if longest <= len(composer.prefix) + len(composer.middle) + len(composer.suffix):
        raise BackboneError(f"a response does not fit a sequence of {longest} tokens: allow for more")
    end = _mark(composer, END_OF_TURN)
    first = np.concatenate([piece for turn in context for piece in (turn, end)] or [_NOTHING])
    tokens, segments = composer.pair(first, np.concatenate([response, end]), longest)
    tokens[len(tokens) - len(composer.suffix) - 1] = end[0]  # which a response that was cut has lost
    return Marked(tokens, segments, np.zeros(1, np.int64))


def insertion(composer: Composer, turns: Sequence[Tokens], target: Tokens, longest: int) -> Marked:
    """Utterances with a mark before each and behind the last: the target belongs at one of them."""
    return _marked(composer, INSERT, turns, target, longest, behind=True)


def deletion(composer: Composer, turns: Sequence[Tokens], longest: int) -> Marked:
    """Utterances with a mark before each: one of them does not belong."""
    return _marked(composer, DELETE, turns, None, longest)


def search(composer: Composer, turns: Sequence[Tokens], target: Tokens, longest: int) -> Marked:
    """Utterances in any order with a mark before each: one of them was said right before the target."""
    return _marked(composer, SEARCH, turns, target, longest)


_NOTHING: Tokens = np.empty(0, np.int32)


def _marked(
    composer: Composer, mark: str, turns: Sequence[Tokens], target: Tokens | None, longest: int, behind: bool = False
) -> Marked:
    sign, end = _mark(composer, mark), _mark(composer, END_OF_TURN)
    texts = [*turns] if target is None else [*turns, target]
    around = len(composer.prefix) + len(composer.suffix) + (len(composer.middle) if target is not None else 0)
    texts = _cut(texts, longest - around - len(texts) - len(turns) - behind)
    first = [piece for turn in texts[: len(turns)] for piece in (sign, turn, end)] + ([sign] if behind else [])
    second = [] if target is None else [composer.middle, texts[-1], end]
    tokens = np.concatenate([composer.prefix, *first, *second, composer.suffix])
    segments = np.zeros(len(tokens), np.int32)
    if target is not None:
        segments[len(tokens) - len(composer.suffix) - len(texts[-1]) - 1 :] = 1
    lengths = [len(turn) + 2 for turn in texts[: len(turns)]]
    starts = np.cumsum([len(composer.prefix), *lengths])
    return Marked(tokens, segments, starts if behind else starts[:-1])


def _cut(texts: Sequence[Tokens], room: int) -> list[Tokens]:
    """Texts without the ends of the longest, so that together they fit: all keep at most the same number of tokens."""
    if room < 0:
        raise BackboneError(
            f"{len(texts)} utterances with their marks do not fit a sequence: take fewer, or a longer one"
        )
    lengths = np.sort([len(text) for text in texts])
    total = 0
    for shorter, length in enumerate(lengths):
        most = (room - total) // (len(lengths) - shorter)
        if length > most:
            return [text[:most] for text in texts]
        total += int(length)
    return list(texts)


def _mark(composer: Composer, token: str) -> Tokens:
    if token not in composer.special:
        what = {INSERT: "insertion", DELETE: "deletion", SEARCH: "search"}.get(token, "response-selection")
        raise BackboneError(
            f"this model was trained without {what}, so that {token} says nothing to it: train one whose recipe has that objective,"
            " such as `turnwise train ums`"
        )
    return np.array([composer.special[token]], np.int32)
