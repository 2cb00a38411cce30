"""Turns are tokenised once and memory-mapped: everything is written as it is read, so memory does not grow with them.

Per turn there are its tokens, its speaker, a hash of its text and how often that text is a response in the corpus; per
dialogue and per store, its first turn. If an objective reads rewritten texts, there are the tokens of each distinct
one.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.corpus.storage.fingerprints import FingerprintBuckets, FingerprintIndex, text_fingerprint
from turnwise.models.backbone.inputs import AnyTokenizer, tokenise
from turnwise.objectives.objective import Rewriter, TokenisedTexts, TurnTable
from turnwise.training.disk_cache import TrainingCorpus, append, load_array, read_next

#: Tokens of a turn at most; objectives truncate to their own length later, at the right end.
LONGEST_TURN = 512


def tokenise_corpus(
    corpus: TrainingCorpus, tokenizer: AnyTokenizer, progress: Progress = silent, rewriter: Rewriter | None = None
) -> TurnTable:
    """Tokenise a corpus, unless its tokens are cached; with a rewriter, also its rewritten turns."""

    def write(folder: Path) -> None:
        speaker_numbers: dict[str, int] = {}
        turns = 0
        store_turns = np.zeros(len(corpus.dialogues.stores), np.int64)
        with FingerprintBuckets(folder) as buckets:
            with _TextWriter(folder, tokenizer) as writer:
                speakers, starts = writer.open("speakers"), writer.open("dialogues")
                append(starts, 0, np.int64)
                for store, batch in corpus.batches("tokenising", progress):
                    batch_turns = [turn for dialogue in batch for turn in dialogue.turns]
                    buckets.add(writer.write([turn.text for turn in batch_turns]))
                    numbers = [speaker_numbers.setdefault(turn.speaker, len(speaker_numbers)) for turn in batch_turns]
                    append(speakers, numbers, np.int16)
                    append(starts, turns + np.cumsum([len(dialogue.turns) for dialogue in batch]), np.int64)
                    turns += len(batch_turns)
                    store_turns[store] += len(batch_turns)
            _write_frequencies(folder, buckets)
        np.cumsum([0, *store_turns]).tofile(folder / "stores.bin")
        (folder / "speakers.json").write_text(json.dumps(list(speaker_numbers)))

    folder = corpus.derive("texts", ["arrays", *corpus.identity, tokenizer.backend_tokenizer.to_str()], write)
    table = TurnTable(
        *_load_texts(folder),
        speakers=load_array(folder / "speakers.bin", np.int16),
        speaker_names=json.loads((folder / "speakers.json").read_text()),
        frequencies=load_array(folder / "frequencies.bin", np.int32),
        dialogue_starts=load_array(folder / "dialogues.bin", np.int64),
        store_starts=load_array(folder / "stores.bin", np.int64),
    )
    if rewriter is not None:
        folder = _tokenise_rewritten(corpus, tokenizer, progress, rewriter)
        table.second_texts = TokenisedTexts(*_load_texts(folder))
        table.second_numbers = load_array(folder / "numbers.bin", np.int32)
    return table


def read_turns(texts: TurnTable, ranges: Sequence[tuple[int, int]]) -> None:
    """Read ranges of turns from disk ahead of their use, and free the memory of those read before."""
    for column in (texts.speakers, texts.identities, texts.frequencies, texts.ends):
        read_next(column, ranges)
    read_next(texts.flat, [(int(texts.ends[first]), int(texts.ends[last])) for first, last in ranges])


class _TextWriter(contextlib.ExitStack):
    """Tokenises texts and writes them."""

    def __init__(self, folder: Path, tokenizer: AnyTokenizer):
        super().__init__()
        self._folder = folder
        self._tokenizer = tokenizer
        self._length = 0
        self._tokens, self._ends, self._identities = map(self.open, ("tokens", "ends", "identities"))
        append(self._ends, 0, np.int64)

    def open(self, name: str) -> BinaryIO:
        """Create a file of numbers, which is closed with the others."""
        return self.enter_context((self._folder / f"{name}.bin").open("wb"))

    def write(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Write texts; return numbers that equal texts share, ignoring case and surrounding space."""
        distinct = list(dict.fromkeys(texts))
        tokenised = dict(zip(distinct, tokenise(self._tokenizer, distinct), strict=True))
        encoded = [tokenised[text][:LONGEST_TURN] for text in texts]
        append(self._tokens, np.concatenate(encoded) if encoded else [], np.int32)
        ends = self._length + np.cumsum([len(tokens) for tokens in encoded], dtype=np.int64)
        append(self._ends, ends, np.int64)
        self._length = int(ends[-1]) if len(ends) else self._length
        # signed, because prepared batches contain the numbers as int64
        identities = np.fromiter((text_fingerprint(normalise_text(text)) for text in texts), np.uint64, len(texts))
        append(self._identities, identities.view(np.int64), np.int64)
        return identities.view(np.int64)


def _load_texts(folder: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the fields of `TokenisedTexts`."""
    ends, identities = (load_array(folder / f"{name}.bin", np.int64) for name in ("ends", "identities"))
    return load_array(folder / "tokens.bin", np.int32), ends, identities


def _write_frequencies(folder: Path, buckets: FingerprintBuckets) -> None:
    """Write, for each turn, how many responses have its text; the first turn of a dialogue is no response."""
    starts = load_array(folder / "dialogues.bin", np.int64)
    frequencies = np.memmap(folder / "frequencies.bin", np.int32, "w+", shape=len(buckets))
    for identities, turns in buckets:
        responses = starts[np.searchsorted(starts, turns)] != turns
        _, number = np.unique(identities, return_inverse=True)
        frequencies[turns] = np.bincount(number[responses], minlength=len(turns))[number]
    frequencies.flush()


def _tokenise_rewritten(
    corpus: TrainingCorpus, tokenizer: AnyTokenizer, progress: Progress, rewriter: Rewriter
) -> Path:
    """Tokenise the rewritten texts of turns; of each distinct one, a fingerprint is held in memory."""

    def write(folder: Path) -> None:
        fingerprints = FingerprintIndex()
        with _TextWriter(folder, tokenizer) as writer:
            numbers = writer.open("numbers")
            for _, batch in corpus.batches("rewriting turns", progress):
                rewritten = [rewriter(turn) for dialogue in batch for turn in dialogue.turns]
                previous = len(fingerprints)
                indices = [-1 if text is None else fingerprints.index(text_fingerprint(text)) for text in rewritten]
                new = dict(zip(indices, rewritten, strict=True))
                writer.write([text for index, text in new.items() if text is not None and index >= previous])
                append(numbers, indices, np.int32)

    name = f"{rewriter.__module__}.{rewriter.__qualname__}"
    return corpus.derive("rewritten", ["arrays", name, *corpus.identity, tokenizer.backend_tokenizer.to_str()], write)
