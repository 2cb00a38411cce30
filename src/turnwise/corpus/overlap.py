"""Overlaps of collections of texts, which are compared as in `training_data.py`, and removing them from a store."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, compress, islice, permutations
from pathlib import Path
from typing import TypeVar

import numpy as np

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.comparison_key import comparison_key
from turnwise.corpus.near_duplicates import TEXTS_PER_INDEX, NearDuplicateIndex
from turnwise.corpus.storage.store import Store
from turnwise.corpus.storage.writing import StoreWriter, derived_provenance, open_for_copy
from turnwise.corpus.training_data import (
    DIALOGUES_PER_BLOCK,
    HashedDialogues,
    Hashes,
    Mask,
    hash_blocks,
    hash_dialogues,
    hash_texts,
)

Item = TypeVar("Item")

#: Texts by their keys, each with one that it is near to.
Near = dict[str, tuple[str, str]]


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

    @property
    def has_single_texts(self) -> bool:
        """Whether it has no consecutive pairs, such as a data set of intents."""
        return not len(self.hashes[1])


@dataclass(frozen=True, slots=True)
class TextOverlap:
    """How much of one collection is in another."""

    first: str
    second: str
    texts: int  # distinct ones of the first
    shared_texts: int  # those of them that are in the second
    near_texts: (
        int | None
    )  # those of the others that share four fifths of their words with a text of the second; None: not counted
    pairs: int  # distinct consecutive ones of the first
    shared_pairs: int
    dialogues: int  # of the first
    sharing_dialogues: int  # with at least one text of the second
    shared_endings: int  # whose last two texts follow one another in the second too
    text_examples: tuple[str, ...]  # the longest shared ones, as the first has them
    pair_examples: tuple[tuple[str, str], ...]
    near_examples: tuple[tuple[str, str], ...]  # texts of the first and of the second


def find_overlaps(collections: Sequence[TextCollection], examples: int = 3, *, near: bool = True) -> list[TextOverlap]:
    """Compare every collection with every other, in both directions, with so many examples each.

    Without `near`, near-duplicates are not looked for, which takes minutes for two collections of 100,000s of texts.
    """
    found: dict[tuple[str, str], Near] = {}
    for first, second in combinations(collections, 2) if near else ():
        found[first.name, second.name], found[second.name, first.name] = _find_near(first, second)
    return [
        _find_overlap(first, second, found.get((first.name, second.name)), examples)
        for first, second in permutations(collections, 2)
    ]


def decontaminate_store(
    store: Path | str,
    collections: Sequence[TextCollection],
    out: Path | str,
    progress: Progress = silent,
    *,
    by_turn: bool | None = None,
) -> Store:
    """Copy a store without what overlaps with collections, such as test sets.

    By dialogue, one is dropped if a collection has one of its consecutive pairs; a dialogue of one turn, if it has its
    text. By turn, every turn whose text a collection has is dropped, and what comes before and after it become separate
    dialogues, so that no new consecutive pairs arise. A previous store at `out` is replaced once all is done; the
    manifest's `facts` count the dialogues or turns that each collection dropped.

    Args:
        store: the store to copy.
        collections: what it must not overlap with.
        out: the folder of the new store.
        progress: called with the number of dialogues read.
        by_turn: whether to drop turns; None: for collections of single texts, whose texts would stay in dialogues of
            several turns otherwise.
    """
    opened = open_for_copy(store, out)
    turns_of = {each.name: each.has_single_texts if by_turn is None else by_turn for each in collections}
    dropped = dict.fromkeys(turns_of, 0)
    read = {"dialogues": 0, "utterances": 0}
    with StoreWriter(Path(out)) as writer:
        dialogues = iter(opened)
        while block := list(islice(dialogues, DIALOGUES_PER_BLOCK)):
            hashed = hash_dialogues([[turn.text for turn in dialogue.turns] for dialogue in block])
            kept = np.ones(len(hashed.texts), np.bool_)
            for collection in collections:
                shared = _find_shared(hashed, collection, turns_of[collection.name])
                lost = kept & shared
                single = turns_of[collection.name]
                dropped[collection.name] += int((lost if single else np.logical_or.reduceat(lost, hashed.starts)).sum())
                kept &= ~shared
            for dialogue, flags in zip(block, np.split(kept, hashed.starts[1:]), strict=True):
                for piece in _split_dialogue(dialogue, flags):
                    writer.write(piece)
            read["dialogues"] += len(block)
            read["utterances"] += len(hashed.texts)
            progress("reading dialogues", read["dialogues"], len(opened))
        if not writer.counts.dialogues:
            unit = "turn" if all(turns_of.values()) else "dialogue"
            raise CorpusError(f"every {unit} of {opened.folder} is in {', '.join(dropped)}; {out} is not written")
        options = {"against": list(dropped), "by_turn": turns_of}
        return writer.commit(derived_provenance(opened, "decontaminate", options, read, {"dropped": dropped}))


def _find_shared(hashed: HashedDialogues, collection: TextCollection, by_turn: bool) -> Mask:
    """Return which texts a collection has, or else which are in dialogues whose pair or only text it has."""
    texts, pairs = collection.hashes
    shared_texts = np.isin(hashed.text_hashes, texts)
    if by_turn:
        return shared_texts
    shared_pairs = np.logical_or.reduceat(np.isin(hashed.pair_hashes, pairs), hashed.starts)
    shared = np.where(hashed.starts == hashed.ends, shared_texts[hashed.starts], shared_pairs)
    return np.repeat(shared, hashed.ends - hashed.starts + 1)


def _split_dialogue(dialogue: Dialogue, kept: Mask) -> list[Dialogue]:
    """Return a dialogue as it is if all of its turns are kept, else its runs of kept turns, with numbered ids."""
    if kept.all():
        return [dialogue]
    places = np.flatnonzero(kept)
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if len(places) else []
    return [
        replace(dialogue, id=f"{dialogue.id}/{number}", turns=dialogue.turns[run[0] : run[-1] + 1])
        for number, run in enumerate(runs, 1)
    ]


def _find_near(first: TextCollection, second: TextCollection) -> tuple[Near, Near]:
    """Return the texts of each collection that are near to one of the other, but equal to none, by their keys."""
    near: tuple[Near, Near] = {}, {}
    indexed, other = sorted((0, 1), key=lambda number: len((first, second)[number].hashes[0]))
    collections = first, second
    texts = _distinct_texts(collections[indexed])
    while block := dict(islice(texts, TEXTS_PER_INDEX)):
        index = NearDuplicateIndex(block)
        for key, text in _distinct_texts(collections[other]):
            for place in index.find(key):
                match = index.keys[place]
                near[other].setdefault(key, (text, block[match]))
                near[indexed].setdefault(match, (block[match], text))
    for number, each in enumerate(near):
        shared = np.isin(hash_texts(text for text, _ in each.values()), collections[1 - number].hashes[0])
        for key in list(compress(each, shared)):
            del each[key]
    return near


def _distinct_texts(collection: TextCollection) -> Iterator[tuple[str, str]]:
    """Yield keys and texts, each once in a block of dialogues."""
    for block in hash_blocks(collection.dialogues()):
        _, places = np.unique(block.text_hashes, return_index=True)
        for place in np.sort(places[block.text_hashes[places] != 0]):
            yield comparison_key(block.texts[place]), block.texts[place]


def _find_overlap(first: TextCollection, second: TextCollection, near: Near | None, examples: int) -> TextOverlap:
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
        near_texts=None if near is None else len(near),
        pairs=len(our_pairs),
        shared_pairs=len(np.intersect1d(our_pairs, their_pairs, assume_unique=True)),
        dialogues=dialogues,
        sharing_dialogues=sharing,
        shared_endings=endings,
        text_examples=tuple(texts.values()),
        pair_examples=tuple(pairs.values()),
        near_examples=tuple(_longest(near or {}, examples).values()),
    )


def _longest(items: dict[str, Item], count: int) -> dict[str, Item]:
    """Return the items with the longest keys, longest first."""
    return dict(sorted(items.items(), key=lambda item: (-len(item[0]), item[0]))[:count])
