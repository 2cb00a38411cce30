"""Several intents in one utterance: it is cut where clauses may end, and the parts are decided by themselves.

"Cancel my order and tell me the weather" is like the examples of neither intent as a whole, and its parts are like those of one
each. "Do you have it in black and white" is as like its intent as a whole as it gets. So among all ways to cut an utterance where
it may be cut, the one is taken whose parts score highest on average, weighted by their words; each cut has to earn something.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

#: Where an utterance may be cut: at the end of a sentence, at a comma, and at words that join clauses.
_BOUNDARY = re.compile(
    r"(?:[.?!;,:\n]+\s+|\s+)(?:and also|and then|as well as|and|also|then|plus|but),?\s+|[.?!;,\n]+\s+", re.IGNORECASE
)

#: Pieces of an utterance at most: what is left stays in one.
_PIECES = 8

#: What the mean score has to rise by for each cut.
_CUT = 0.03


def parts_of(text: str) -> dict[tuple[int, int], str]:
    """Every run of an utterance's pieces, by the first piece and the one after the last; the whole is among them."""
    cuts = [match.span() for match in _BOUNDARY.finditer(text)][: _PIECES - 1]
    ends = [(0, 0), *cuts, (len(text), len(text))]
    pieces = [(before[1], after[0]) for before, after in pairwise(ends) if text[before[1] : after[0]].strip()]
    spans = [(first, last) for first in range(len(pieces)) for last in range(first + 1, len(pieces) + 1)]
    found = {(first, last): text[pieces[first][0] : pieces[last - 1][1]].strip() for first, last in spans}
    # the whole is taken as it is, with what stands around its pieces
    return {**found, (0, max(1, len(pieces))): text}


def best_cut(parts: dict[tuple[int, int], str], scores: Sequence[float]) -> list[int]:
    """The places, among the parts, of those that score highest together and make up the utterance, in its order.

    Args:
        parts: every run of pieces.
        scores: of each part.
    """
    places = {span: place for place, span in enumerate(parts)}
    count = max(last for _, last in parts)
    words = [len(parts[first, first + 1].split()) for first in range(count)]
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for last in range(1, count + 1):
        ways = []
        for first in range(last):
            place = places[first, last]
            earned, before = best[first]
            price = _CUT * sum(words) if first else 0.0
            ways.append((earned + scores[place] * sum(words[first:last]) - price, [*before, place]))
        best.append(max(ways, key=lambda way: way[0]))
    return best[count][1]
