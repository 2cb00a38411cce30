"""One or several stores read as one corpus: splits, samples and views."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pyarrow as pa

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.storage.store import Store


def merge_speakers(dialogue: Dialogue) -> Dialogue:
    """Merge consecutive turns of one speaker, and their labels."""
    merged: list[Turn] = []
    for turn in dialogue.turns:
        if merged and merged[-1].speaker == turn.speaker:
            merged[-1] = _join(merged[-1], turn)
        else:
            merged.append(turn)
    return dialogue if len(merged) == len(dialogue.turns) else replace(dialogue, turns=tuple(merged))


def _join(first: Turn, second: Turn) -> Turn:
    shift = len(first.text) + 1
    moved = (replace(slot, start=slot.start + shift, end=slot.end + shift) for slot in second.slots)
    acts = tuple(dict.fromkeys(first.acts + second.acts))
    text, slots = f"{first.text} {second.text}", (*first.slots, *moved)
    return Turn(first.speaker, text, first.intent or second.intent, acts, slots)


@dataclass(eq=False)
class Corpus:
    """One or several stores, read as one, in the given order; ids are unique within a store.

    Stores without splits are read completely if another one has the splits to read. A fraction is selected by a hash of
    the ids: a smaller one is a subset of a larger one.
    """

    stores: Sequence[Store]
    splits: Sequence[str] | None = None  # None: all dialogues
    fraction: float = 1.0  # of those dialogues
    combine_turns: bool = False  # whether consecutive turns of one speaker are read as one turn
    min_turns: int = 1  # dialogues of fewer turns are left out; counted after turns are combined

    def __post_init__(self) -> None:
        if not self.stores:
            raise CorpusError("name at least one store")
        self._unsplit: set[Path] = set()
        if self.splits is not None:
            self.splits = tuple(self.splits)
            found = {store.folder: store.splits() for store in self.stores}
            names = sorted(set().union(*found.values()))
            if not set(names) & set(self.splits):
                known = f"choose from {', '.join(names)}" if names else "the stores have no splits; leave the split out"
                raise CorpusError(f"no dialogue is in split {' or '.join(self.splits)}: {known}")
            self._unsplit = {folder for folder, known_splits in found.items() if not known_splits}

    def __len__(self) -> int:
        if self.splits is None and self.fraction == 1 and self.min_turns == 1:
            return sum(len(store) for store in self.stores)
        columns = ["id", "split"] if self.min_turns == 1 else ["id", "split", "speakers"]
        return sum(self._count(store, batch) for store in self.stores for batch in store.batches(columns))

    def _count(self, store: Store, batch: pa.RecordBatch) -> int:
        """Return how many dialogues of a batch are read."""
        ids, splits = (batch.column(name).to_pylist() for name in ("id", "split"))
        selected = map(self._selects, repeat(store), ids, splits)
        if self.min_turns == 1:
            return sum(selected)
        speakers = batch.column("speakers")
        starts = speakers.offsets.to_numpy()[:-1]
        counted = np.ones(len(speakers.values), np.int64)  # 0 for a turn that is combined with the one before
        if self.combine_turns:
            codes = speakers.values.indices.to_numpy()
            counted[1:] = codes[1:] != codes[:-1]
            counted[starts] = 1
        long_enough = np.add.reduceat(counted, starts) >= self.min_turns
        return sum(is_long and is_selected for is_long, is_selected in zip(long_enough.tolist(), selected, strict=True))

    def __iter__(self) -> Iterator[Dialogue]:
        return chain.from_iterable(map(self.read, self.stores))

    def read(self, store: Store) -> Iterator[Dialogue]:
        """Iterate over the dialogues of one of the stores."""
        return (combined for _, combined in self._read(store))

    def read_originals(self, store: Store) -> Iterator[Dialogue]:
        """Iterate over those dialogues of one of the stores whose turns are combined, as they are stored."""
        return (dialogue for dialogue, combined in self._read(store) if combined is not dialogue)

    def _read(self, store: Store) -> Iterator[tuple[Dialogue, Dialogue]]:
        """Iterate over dialogues as they are stored and as they are read."""
        for dialogue in store:
            if self._selects(store, dialogue.id, dialogue.split):
                combined = merge_speakers(dialogue) if self.combine_turns else dialogue
                if len(combined.turns) >= self.min_turns:
                    yield dialogue, combined

    def _selects(self, store: Store, dialogue_id: str, split: str | None) -> bool:
        if self.splits is not None and split not in self.splits and store.folder not in self._unsplit:
            return False
        if self.fraction == 1:
            return True
        return int.from_bytes(hashlib.blake2b(dialogue_id.encode(), digest_size=8).digest()) < self.fraction * (1 << 64)

    def sample(self, fraction: float) -> "Corpus":
        """Return a view of a fraction of the dialogues; raise a CorpusError if none is left."""
        if fraction == 1:
            return self
        view = replace(self, fraction=self.fraction * fraction)
        if not len(view):
            raise CorpusError(f"a fraction of {fraction:g} of {len(self)} dialogues is none: use a larger one")
        return view

    def prepare(self, combine_turns: bool = False, min_turns: int = 1) -> "Corpus":
        """Return a view with consecutive turns of one speaker combined, and then without dialogues of few turns."""
        if combine_turns <= self.combine_turns and min_turns <= self.min_turns:
            return self
        view = replace(
            self, combine_turns=self.combine_turns or combine_turns, min_turns=max(self.min_turns, min_turns)
        )
        if not len(view):
            combined = ", once consecutive turns of one speaker are combined" if view.combine_turns else ""
            raise CorpusError(
                f"none of {len(self)} dialogues has {view.min_turns} turns or more{combined}: require fewer"
            )
        return view


def read_corpus(*stores: Path | str, splits: Sequence[str] | None = None) -> Corpus:
    """Open one or several stores as one corpus of dialogues, all of them or those of some splits.

    Example:
        >>> corpus = read_corpus("stores/multiwoz", "stores/our-logs")  # doctest: +SKIP
        >>> for dialogue in corpus:  # doctest: +SKIP
        ...     ...
    """
    return Corpus([Store(store) for store in stores], splits)
