"""Texts tokenised once, and examples found once: what training reads lies memory-mapped on disk.

A folder `tokens/` in the run's folder holds the turns' tokens end to end, where each turn begins, who speaks it and what it says
(as a hash), and each objective's examples as numbers of turns. It is named by what it was made of, so a resumed run finds it and a
changed corpus or tokenizer does not.
"""

import hashlib
import json
import shutil
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from turnwise.backbone.compose import tokenise
from turnwise.backbone.stream import Tokens
from turnwise.corpus.store import Corpus
from turnwise.errors import TurnwiseError
from turnwise.objectives.objective import Objective
from turnwise.progress import Progress, silent

#: Dialogues tokenised at a time.
DIALOGUES = 2_000

#: No turn needs more tokens than this: what a model sees is cut to its own length later, at the right end.
LONGEST_TURN = 512


class TokenTable:
    """Tokenised turns, memory-mapped."""

    def __init__(self, folder: Path):
        self._tokens = np.memmap(folder / "tokens.bin", np.int32, "r") if (folder / "tokens.bin").stat().st_size else _none()
        self._ends = np.load(folder / "ends.npy", mmap_mode="r")
        self._speakers = np.load(folder / "speakers.npy", mmap_mode="r")
        self._identities = np.load(folder / "identities.npy", mmap_mode="r")
        self._names: list[str] = json.loads((folder / "speakers.json").read_text())

    def __len__(self) -> int:
        return len(self._speakers)

    def tokens(self, turn: int) -> Tokens:
        """The tokens of a turn, without special ones."""
        return self._tokens[self._ends[turn] : self._ends[turn + 1]]

    def speaker(self, turn: int) -> str:
        """Who speaks it."""
        return self._names[int(self._speakers[turn])]

    def identity(self, turn: int) -> int:
        """A number that turns of equal text share; case and surrounding space do not count."""
        return int(self._identities[turn])


class ExampleTable:
    """An objective's examples, memory-mapped: windows of turns and labels."""

    def __init__(self, folder: Path, name: str, columns: int):
        self._windows = np.load(folder / f"{name}.windows.npy", mmap_mode="r").reshape(-1, columns, 2)
        self._labels = np.load(folder / f"{name}.labels.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self._labels)

    def rows(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Windows (rows, columns, 2) and labels (rows,) of some examples."""
        return np.asarray(self._windows[rows], np.int64), np.asarray(self._labels[rows], np.int64)


def tokenise_corpus(
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    objectives: Mapping[str, Objective],
    folder: Path,
    progress: Progress = silent,
) -> tuple[TokenTable, dict[str, ExampleTable]]:
    """Tokenises a corpus and finds every objective's examples, unless that was done before.

    Raises:
        TurnwiseError: if an objective finds no example in the corpus.
    """
    place = folder / _name(corpus, tokenizer, objectives)
    if not place.is_dir():
        unfinished = folder / ".writing"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _write(corpus, tokenizer, objectives, unfinished, progress)
        unfinished.rename(place)
    return TokenTable(place), {name: ExampleTable(place, name, objective.columns) for name, objective in objectives.items()}


def _name(corpus: Corpus, tokenizer: PreTrainedTokenizerBase, objectives: Mapping[str, Objective]) -> str:
    """What the tables are made of, in twelve characters."""
    made_of = [
        *(store.manifest["generation"] for store in corpus.stores),
        *(corpus.splits or ("all splits",)),
        tokenizer.backend_tokenizer.to_str(),
        *(f"{name}={objective!r}" for name, objective in objectives.items()),
    ]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:12]


def _write(
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    objectives: Mapping[str, Objective],
    folder: Path,
    progress: Progress,
) -> None:
    # arrays of numbers, not lists: tens of millions of turns fit
    lengths, identities, speakers = array("i"), array("q"), array("h")
    names: dict[str, int] = {}
    windows = {name: array("i") for name in objectives}
    labels = {name: array("b") for name in objectives}
    seen: dict[str, set[int]] = {name: set() for name in objectives}
    texts: list[str] = []
    with (folder / "tokens.bin").open("wb") as file:

        def flush() -> None:
            encoded = [tokens[:LONGEST_TURN] for tokens in tokenise(tokenizer, texts)]
            lengths.extend(len(tokens) for tokens in encoded)
            if encoded:
                np.concatenate(encoded).astype(np.int32).tofile(file)
            texts.clear()

        total = len(corpus)
        for number, dialogue in enumerate(corpus, 1):
            base = len(speakers)
            for turn in dialogue.turns:
                texts.append(turn.text)
                identities.append(_identity(turn.text))
                speakers.append(names.setdefault(turn.speaker, len(names)))
            for name, objective in objectives.items():
                for example in objective.examples(dialogue):
                    if objective.unique:
                        first = identities[base + example.windows[0][0]]
                        if first in seen[name]:
                            continue
                        seen[name].add(first)
                    windows[name].extend(base + turn for window in example.windows for turn in window)
                    labels[name].append(example.label)
            if number % DIALOGUES == 0:
                flush()
                progress("tokenising", number, total)
        flush()
    np.save(folder / "ends.npy", np.concatenate([[0], np.cumsum(np.frombuffer(lengths, np.int32), dtype=np.int64)]))
    np.save(folder / "identities.npy", np.frombuffer(identities, np.int64))
    np.save(folder / "speakers.npy", np.frombuffer(speakers, np.int16))
    (folder / "speakers.json").write_text(json.dumps(list(names)))
    for name in objectives:
        if len(labels[name]) < 2:
            raise TurnwiseError(
                f"objective {name} finds {len(labels[name])} examples in this corpus: it needs dialogues of a kind that this one"
                " does not hold (see its page in the documentation)"
            )
        np.save(folder / f"{name}.windows.npy", np.frombuffer(windows[name], np.int32))
        np.save(folder / f"{name}.labels.npy", np.frombuffer(labels[name], np.int8))


def _identity(text: str) -> int:
    digest = hashlib.blake2b(text.strip().lower().encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _none() -> Any:
    return np.empty(0, np.int32)
