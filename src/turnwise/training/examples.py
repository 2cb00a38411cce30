"""Training examples, extracted once and memory-mapped on disk as turn numbers."""

import contextlib
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.files import replacing
from turnwise.core.progress import Progress, silent
from turnwise.corpus.storage.fingerprints import FingerprintBuckets
from turnwise.objectives.objective import Objective
from turnwise.training.disk_cache import ArrayWriter, TrainingCorpus, read_ahead, release
from turnwise.training.tokens import TokenTable

#: Examples copied at a time.
_COPY_ROWS = 1_000_000

#: Turn numbers are stored in four bytes.
_MAX_TURNS = np.iinfo(np.int32).max


class ExampleTable:
    """An objective's examples, memory-mapped: windows of turns and labels."""

    def __init__(self, folder: Path, name: str, columns: int):
        self._windows = np.load(folder / f"{name}.windows.npy", mmap_mode="r").reshape(-1, columns, 2)
        #: The label of each example.
        self.labels: npt.NDArray[np.signedinteger] = np.load(folder / f"{name}.labels.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self.labels)

    def read_next(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Read ranges of examples ahead of their use, and free those read before; return the ranges of turns."""
        for column in (self._windows, self.labels):
            release(column)
            for first, last in ranges:
                read_ahead(column, first, last)
        ends = ((self._windows[first], self._windows[last - 1]) for first, last in ranges)
        return [(int(first.min()), int(last.max())) for first, last in ends]

    def rows(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the windows (rows, columns, 2) and labels (rows,) of some examples."""
        return np.asarray(self._windows[rows], np.int64), np.asarray(self.labels[rows], np.int64)


def extract_examples(
    corpus: TrainingCorpus,
    texts: TokenTable,
    objectives: Mapping[str, Objective],
    progress: Progress = silent,
    selected: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, ExampleTable]:
    """Extract every objective's examples from a corpus, unless they are cached.

    `selected` are the numbers of the stores that an objective reads; one that is not in it reads all.
    """
    selected = selected or {}
    inputs = [*corpus.identity, *(f"{name}={objective!r}" for name, objective in objectives.items())]
    inputs += [f"{name} from {list(stores)}" for name, stores in selected.items()]

    def write(folder: Path) -> None:
        if len(texts) > _MAX_TURNS:
            raise TurnwiseError(
                f"the corpus has {len(texts):,} turns, and a run supports {_MAX_TURNS:,}: use fewer stores or a smaller"
                " corpus_fraction"
            )
        with contextlib.ExitStack() as stack:
            writers = [_ExampleWriter(folder, name, objective, texts, stack) for name, objective in objectives.items()]
            for store, batch in corpus.batches("extracting examples", progress):
                for writer in writers:
                    writer.add(batch, use=store in selected.get(writer.name, [store]))
            for writer in writers:
                writer.finish()

    folder = corpus.derive("examples", inputs, write)
    return {name: ExampleTable(folder, name, objective.columns) for name, objective in objectives.items()}


class _ExampleWriter:
    """Writes the examples of one objective."""

    def __init__(self, folder: Path, name: str, objective: Objective, texts: TokenTable, stack: contextlib.ExitStack):
        self._folder = folder
        self.name = name
        self._objective = objective
        self._texts = texts
        self._stack = stack.enter_context(contextlib.ExitStack())
        self._first_texts = self._stack.enter_context(FingerprintBuckets(folder)) if objective.unique else None
        self._windows = self._stack.enter_context(ArrayWriter(folder / f"{name}.windows.npy", np.int32))
        self._labels = self._stack.enter_context(ArrayWriter(folder / f"{name}.labels.npy", objective.label_type))
        self._turns = 0

    def add(self, dialogues: Sequence[Dialogue], use: bool) -> None:
        """Add the examples of some dialogues, or only count their turns."""
        examples = [list(self._objective.examples(dialogue)) if use else [] for dialogue in dialogues]
        flat = list(chain.from_iterable(examples))
        ends = self._turns + np.cumsum([len(dialogue.turns) for dialogue in dialogues])
        bases = np.repeat([self._turns, *ends[:-1]], [len(each) for each in examples])
        turns = chain.from_iterable(chain.from_iterable(example.windows for example in flat))
        windows = np.fromiter(turns, np.int64).reshape(-1, 2 * self._objective.columns) + bases[:, None]
        if self._first_texts is not None and len(windows):
            self._first_texts.add(np.asarray(self._texts.identities[windows[:, 0]]))
        self._windows.extend(windows)
        self._labels.extend([example.label for example in flat])
        self._turns = int(ends[-1])

    def finish(self) -> None:
        """Close the files; if the objective asks for unique examples, remove those whose first text occurred before."""
        kept = None if self._first_texts is None else _first_occurrences(self._first_texts)
        count = len(self._labels) if kept is None else int(kept.sum())
        self._stack.close()
        if count < 2:
            raise TurnwiseError(
                f"objective {self.name} finds {count} examples in this corpus: it needs another kind of dialogues (see"
                f" its page in the documentation); --set objectives.{self.name}=false removes it"
            )
        if kept is not None:
            _filter_rows(self._folder / f"{self.name}.windows.npy", kept)
            _filter_rows(self._folder / f"{self.name}.labels.npy", kept)


def _first_occurrences(buckets: FingerprintBuckets) -> npt.NDArray[np.bool_]:
    """Return, for each fingerprint in the order of addition, whether it is the first of its kind."""
    first = np.zeros(len(buckets), np.bool_)
    for fingerprints, places in buckets:
        first[places[np.unique(fingerprints, return_index=True)[1]]] = True
    return first


def _filter_rows(path: Path, kept: npt.NDArray[np.bool_]) -> None:
    """Remove rows from a file of an array, of which all rows have the same number of values."""
    rows = np.load(path, mmap_mode="r").reshape(len(kept), -1)
    with replacing(path) as filtered, ArrayWriter(filtered, rows.dtype) as writer:
        for first in range(0, len(rows), _COPY_ROWS):
            writer.extend(rows[first : first + _COPY_ROWS][kept[first : first + _COPY_ROWS]])
