"""Examples found once: what an objective learns from, as numbers of turns, memory-mapped on disk."""

import contextlib
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.buckets import Buckets
from turnwise.corpus.store import Corpus
from turnwise.objectives.objective import Objective
from turnwise.training.cache import corpus_source, once
from turnwise.training.columns import GrowingArray, read_ahead, release
from turnwise.training.tokens import TokenTable

#: Dialogues looked at before what they gave is written.
DIALOGUES = 2_000

#: Examples copied at a time.
_COPIED = 1_000_000

#: Turns that four bytes can number.
_MOST_TURNS = np.iinfo(np.int32).max


class ExampleTable:
    """An objective's examples, memory-mapped: windows of turns and labels."""

    def __init__(self, folder: Path, name: str, columns: int):
        self._windows = np.load(folder / f"{name}.windows.npy", mmap_mode="r").reshape(-1, columns, 2)
        #: The labels of all examples.
        self.labels: npt.NDArray[np.int8] = np.load(folder / f"{name}.labels.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self.labels)

    def read_next(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Has ranges of examples read from disk, and gives back the memory of those read before; says which turns they speak of."""
        for column in (self._windows, self.labels):
            release(column)
            for first, last in ranges:
                read_ahead(column, first, last)
        ends = ((self._windows[first], self._windows[last - 1]) for first, last in ranges)
        return [(int(first.min()), int(last.max())) for first, last in ends]

    def rows(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Windows (rows, columns, 2) and labels (rows,) of some examples."""
        return np.asarray(self._windows[rows], np.int64), np.asarray(self.labels[rows], np.int64)


def find_examples(
    corpus: Corpus, texts: TokenTable, objectives: Mapping[str, Objective], folder: Path, progress: Progress = silent
) -> dict[str, ExampleTable]:
    """Every objective's examples in a corpus, unless they were found before.

    Raises:
        TurnwiseError: if an objective finds none.
    """
    made_of = [*corpus_source(corpus), *(f"{name}={objective!r}" for name, objective in objectives.items())]

    def write(place: Path) -> None:
        if len(texts) > _MOST_TURNS:
            raise TurnwiseError(
                f"{len(texts):,} turns: a run numbers up to {_MOST_TURNS:,}; train on fewer stores, or a share"
            )
        total = len(corpus)
        with contextlib.ExitStack() as stack:
            writers = [_ExampleWriter(place, name, objective, texts, stack) for name, objective in objectives.items()]
            for number, dialogue in enumerate(corpus, 1):
                for writer in writers:
                    writer.add(dialogue)
                if number % DIALOGUES == 0:
                    for writer in writers:
                        writer.flush()
                    progress("finding examples", number, total)
            for writer in writers:
                writer.finish()

    place = once(folder, "examples", made_of, write)
    return {name: ExampleTable(place, name, objective.columns) for name, objective in objectives.items()}


class _ExampleWriter:
    """The examples of one objective, written as they come: what is held is those since the last flush."""

    def __init__(self, place: Path, name: str, objective: Objective, texts: TokenTable, stack: contextlib.ExitStack):
        self._place = place
        self._name = name
        self._objective = objective
        self._texts = texts
        self._stack = stack.enter_context(contextlib.ExitStack())
        self._firsts = self._stack.enter_context(Buckets(place)) if objective.unique else None
        self._written_windows = self._stack.enter_context(GrowingArray(place / f"{name}.windows.npy", np.int32))
        self._written_labels = self._stack.enter_context(GrowingArray(place / f"{name}.labels.npy", np.int8))
        self._windows, self._labels = array("i"), array("b")
        self._counts, self._bases = array("i"), array("q")
        self._turns = 0

    def add(self, dialogue: Dialogue) -> None:
        """Takes what a dialogue gives."""
        found = list(self._objective.examples(dialogue))
        self._windows.extend(chain.from_iterable(chain.from_iterable(example.windows for example in found)))
        self._labels.extend(example.label for example in found)
        self._counts.append(len(found))
        self._bases.append(self._turns)
        self._turns += len(dialogue.turns)

    def flush(self) -> None:
        """Writes what was taken."""
        bases = np.repeat(np.array(self._bases), np.array(self._counts))
        windows = np.array(self._windows, np.int64).reshape(-1, 2 * self._objective.columns) + bases[:, None]
        if self._firsts is not None and len(windows):
            self._firsts.add(np.asarray(self._texts.identities[windows[:, 0]]))
        self._written_windows.extend(windows)
        self._written_labels.extend(self._labels)
        for taken in (self._windows, self._labels, self._counts, self._bases):
            del taken[:]

    def finish(self) -> None:
        """Writes the rest, and takes out examples whose first text was there before where the objective says so.

        Raises:
            TurnwiseError: if too few are left.
        """
        self.flush()
        kept = None if self._firsts is None else _first_places(self._firsts)
        left = len(self._written_labels) if kept is None else int(kept.sum())
        self._stack.close()
        if left < 2:
            raise TurnwiseError(
                f"objective {self._name} finds {left} examples in this corpus: it needs dialogues of a kind that this"
                f" one does not hold (see its page in the documentation); --set objectives.{self._name}=false leaves it out"
            )
        if kept is not None:
            _keep(self._place / f"{self._name}.windows.npy", kept)
            _keep(self._place / f"{self._name}.labels.npy", kept)


def _first_places(buckets: Buckets) -> npt.NDArray[np.bool_]:
    """For each of the fingerprints in the order in which they were added, whether it was the first of its kind."""
    first = np.zeros(len(buckets), np.bool_)
    for fingerprints, places in buckets:
        first[places[np.unique(fingerprints, return_index=True)[1]]] = True
    return first


def _keep(path: Path, kept: npt.NDArray[np.bool_]) -> None:
    """Leaves some of the rows in a file, of as many numbers each as there are for every row."""
    every = np.load(path, mmap_mode="r").reshape(len(kept), -1)
    fresh = path.with_suffix(".kept")
    with GrowingArray(fresh, every.dtype) as array:
        for first in range(0, len(every), _COPIED):
            array.extend(every[first : first + _COPIED][kept[first : first + _COPIED]])
    fresh.replace(path)
