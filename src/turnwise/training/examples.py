"""Training examples, extracted once and memory-mapped on disk as turn numbers."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.files import replacing
from turnwise.core.progress import Progress, silent
from turnwise.corpus.storage.fingerprints import FingerprintBuckets
from turnwise.objectives.objective import Objective, TurnTable
from turnwise.training.disk_cache import TrainingCorpus, append, load_array, read_next

#: Examples copied at a time.
_COPY_ROWS = 1_000_000

#: Turn numbers are stored in four bytes.
_MAX_TURNS = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class ExampleTable:
    """An objective's examples, memory-mapped."""

    windows: npt.NDArray[np.integer]  # turns [first, last) (examples, columns, 2)
    labels: npt.NDArray[np.signedinteger]  # (examples,)

    def __len__(self) -> int:
        return len(self.labels)

    def read_next(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Read ranges of examples ahead of their use, and free those read before; return the ranges of turns."""
        for column in (self.windows, self.labels):
            read_next(column, ranges)
        ends = ((self.windows[first], self.windows[last - 1]) for first, last in ranges)
        return [(int(first.min()), int(last.max())) for first, last in ends]

    def rows(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the windows (rows, columns, 2) and labels (rows,) of some examples."""
        return np.asarray(self.windows[rows], np.int64), np.asarray(self.labels[rows], np.int64)


def extract_examples(
    corpus: TrainingCorpus,
    texts: TurnTable,
    objectives: Mapping[str, Objective],
    progress: Progress = silent,
    selected: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, ExampleTable]:
    """Extract every objective's examples from a corpus, unless they are cached.

    `selected` are the numbers of the stores that an objective reads; one that is not in it reads all.
    """
    selected = selected or {}
    inputs = ["arrays", *corpus.identity, *(f"{name}={objective!r}" for name, objective in objectives.items())]
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
    return {
        name: ExampleTable(
            load_array(folder / f"{name}.windows.bin", np.int32).reshape(-1, objective.traits.columns, 2),
            load_array(folder / f"{name}.labels.bin", _label_type(objective)),
        )
        for name, objective in objectives.items()
    }


def _label_type(objective: Objective) -> type[np.signedinteger[Any]]:
    """Return the type in which labels are stored: intents are hashes, other labels are small."""
    return np.int8 if objective.traits.label_sampling is None else np.int64


class _ExampleWriter:
    """Writes the examples of one objective."""

    def __init__(self, folder: Path, name: str, objective: Objective, texts: TurnTable, stack: contextlib.ExitStack):
        self.name = name
        self._objective = objective
        self._texts = texts
        self._paths = folder / f"{name}.windows.bin", folder / f"{name}.labels.bin"
        self._windows, self._labels = (stack.enter_context(path.open("wb")) for path in self._paths)
        unique = objective.traits.unique
        self._first_texts = stack.enter_context(FingerprintBuckets(folder)) if unique else None
        self._turns = self._examples = 0

    def add(self, dialogues: Sequence[Dialogue], use: bool) -> None:
        """Add the examples of some dialogues, or only count their turns."""
        examples = [list(self._objective.examples(dialogue)) if use else [] for dialogue in dialogues]
        flat = list(chain.from_iterable(examples))
        ends = self._turns + np.cumsum([len(dialogue.turns) for dialogue in dialogues])
        bases = np.repeat([self._turns, *ends[:-1]], [len(each) for each in examples])
        turns = chain.from_iterable(chain.from_iterable(example.windows for example in flat))
        windows = np.fromiter(turns, np.int64).reshape(-1, 2 * self._objective.traits.columns) + bases[:, None]
        if self._first_texts is not None and len(windows):
            self._first_texts.add(np.asarray(self._texts.identities[windows[:, 0]]))
        append(self._windows, windows, np.int32)
        append(self._labels, [example.label for example in flat], _label_type(self._objective))
        self._turns = int(ends[-1])
        self._examples += len(flat)

    def finish(self) -> None:
        """Close the files; if the objective asks for unique examples, remove those whose first text occurred before."""
        self._windows.close()
        self._labels.close()
        kept = np.full(self._examples, self._first_texts is None)
        for fingerprints, places in self._first_texts or ():
            kept[places[np.unique(fingerprints, return_index=True)[1]]] = True
        count = int(kept.sum())
        if count < 2:
            raise TurnwiseError(
                f"objective {self.name} finds {count} examples in this corpus: it needs another kind of dialogues (see"
                f" its page in the documentation); --set objectives.{self.name}=false removes it"
            )
        if self._first_texts is not None:
            for path in self._paths:
                _filter_rows(path, kept)


def _filter_rows(path: Path, kept: npt.NDArray[np.bool_]) -> None:
    """Remove rows of equal size from a file."""
    rows = np.memmap(path, np.uint8, "r").reshape(len(kept), -1)
    with replacing(path) as filtered, filtered.open("wb") as file:
        for first in range(0, len(rows), _COPY_ROWS):
            rows[first : first + _COPY_ROWS][kept[first : first + _COPY_ROWS]].tofile(file)
