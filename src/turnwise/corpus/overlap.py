"""Overlaps of collections of texts: how many distinct texts and consecutive pairs of one are in another.

As in `turnwise.corpus.membership`, texts that differ in case, punctuation or white space only count as equal, and those
without words are ignored. Collections are compared by sets of 64-bit hashes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import TypeVar

import numpy as np

from turnwise.corpus.membership import Hashes, comparison_key, hash_blocks

Item = TypeVar("Item")


@dataclass(frozen=True)  # no slots: the hashes are cached in the instance
class TextCollection:
    """Dialogues as texts, of which a text on its own is one; they can be read any number of times."""

    name: str
    dialogues: Callable[[], Iterable[Sequence[str]]]

    @cached_property
    def hashes(self) -> tuple[Hashes, Hashes]:
        """The distinct hashes of the texts and of the consecutive pairs, sorted."""
        texts, pairs = [np.zeros(1, np.uint64)], [np.zeros(1, np.uint64)]
        for block in hash_blocks(self.dialogues()):
            texts.append(np.unique(block.text_hashes))
            pairs.append(np.unique(block.pair_hashes))
        # without 0, which stands for a text without words and for no pair
        return np.unique(np.concatenate(texts))[1:], np.unique(np.concatenate(pairs))[1:]


@dataclass(frozen=True, slots=True)
class TextOverlap:
    """How much of one collection is in another."""

    first: str
    second: str
    #: Distinct texts and distinct consecutive pairs of the first, and those of them that are in the second.
    texts: int
    shared_texts: int
    pairs: int
    shared_pairs: int
    #: Dialogues of the first, those with at least one text of the second, and those whose last two texts follow one
    #: another in the second too.
    dialogues: int
    sharing_dialogues: int
    shared_endings: int
    #: The longest shared texts and pairs, as the first has them.
    text_examples: tuple[str, ...]
    pair_examples: tuple[tuple[str, str], ...]


def find_overlaps(collections: Sequence[TextCollection], examples: int = 3) -> list[TextOverlap]:
    """Compare every collection with every other, in both directions, with so many examples each."""
    return [_find_overlap(first, second, examples) for first, second in permutations(collections, 2)]


def _find_overlap(first: TextCollection, second: TextCollection, examples: int) -> TextOverlap:
    (our_texts, our_pairs), (their_texts, their_pairs) = first.hashes, second.hashes
    dialogues = sharing = endings = 0
    texts: dict[str, str] = {}
    pairs: dict[str, tuple[str, str]] = {}
    for block in hash_blocks(first.dialogues()):
        shared_texts, shared_pairs = np.isin(block.text_hashes, their_texts), np.isin(block.pair_hashes, their_pairs)
        dialogues += len(block.starts)
        sharing += int(np.logical_or.reduceat(shared_texts, block.starts).sum())
        endings += int(np.isin(block.last_pairs, their_pairs).sum())
        for place in np.flatnonzero(shared_texts):
            texts.setdefault(comparison_key(block.texts[place]), block.texts[place])
        for place in np.flatnonzero(shared_pairs):
            pair = block.texts[place], block.texts[place + 1]
            pairs.setdefault(" ".join(map(comparison_key, pair)), pair)
        texts, pairs = _longest(texts, examples), _longest(pairs, examples)
    return TextOverlap(
        first=first.name,
        second=second.name,
        texts=len(our_texts),
        shared_texts=len(np.intersect1d(our_texts, their_texts, assume_unique=True)),
        pairs=len(our_pairs),
        shared_pairs=len(np.intersect1d(our_pairs, their_pairs, assume_unique=True)),
        dialogues=dialogues,
        sharing_dialogues=sharing,
        shared_endings=endings,
        text_examples=tuple(texts.values()),
        pair_examples=tuple(pairs.values()),
    )


def _longest(items: dict[str, Item], count: int) -> dict[str, Item]:
    """Return the items with the longest keys, longest first."""
    return dict(sorted(items.items(), key=lambda item: (-len(item[0]), item[0]))[:count])
