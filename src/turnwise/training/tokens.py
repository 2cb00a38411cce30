"""Tokenised turns, memory-mapped on disk.

Per turn there are its tokens, its speaker, a hash of its text and how often that text is a response in the corpus; per
dialogue and per store, its first turn. If an objective reads rewritten texts, there are the tokens of each distinct
one; if one reads hard negatives, these as turn numbers. Everything is written as it is read, so memory does not grow
with the corpus.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.corpus.storage.fingerprints import FingerprintBuckets, FingerprintIndex, text_fingerprint
from turnwise.models.backbone.inputs import AnyTokenizer, tokenise
from turnwise.models.backbone.ragged import RaggedTokens, Tokens, span_indices
from turnwise.objectives.objective import Rewriter
from turnwise.training.disk_cache import ArrayWriter, TrainingCorpus, read_ahead, release

#: Tokens of a turn at most; objectives truncate to their own length later, at the right end.
LONGEST_TURN = 512


class _TokenisedTexts:
    """Tokenised texts, as `_TextWriter` writes them."""

    def __init__(self, folder: Path):
        path = folder / "tokens.bin"
        self._tokens = np.memmap(path, np.int32, "r") if path.stat().st_size else np.empty(0, np.int32)
        self._ends = np.load(folder / "ends.npy", mmap_mode="r")
        #: For each text, a number that equal texts share, ignoring case and surrounding space.
        self.identities: npt.NDArray[np.int64] = np.load(folder / "identities.npy", mmap_mode="r")

    def tokens(self, number: int) -> Tokens:
        """Return the tokens of a text, without special tokens."""
        return self._tokens[self._ends[number] : self._ends[number + 1]]

    def identity(self, number: int) -> int:
        """Return a number that equal texts share, ignoring case and surrounding space."""
        return int(self.identities[number])


class TokenTable(_TokenisedTexts):
    """The tokenised turns of a corpus, and their rewritten texts and hard negatives if an objective reads them."""

    def __init__(self, folder: Path, rewritten: "RewrittenTokens | None" = None):
        super().__init__(folder)
        self._rewritten = rewritten
        #: Turn → turns that an encoder would answer with instead, nearest first and padded with -1 (turns, negatives).
        self.hard_negative_table: npt.NDArray[np.int32] | None = None
        self._speakers = np.load(folder / "speakers.npy", mmap_mode="r")
        self._frequencies = np.load(folder / "frequencies.npy", mmap_mode="r")
        #: The first turn of each dialogue, then the number of all turns (dialogues + 1,).
        self.dialogue_starts: npt.NDArray[np.int64] = np.load(folder / "dialogues.npy", mmap_mode="r")
        #: The first turn of each store, then the number of all turns (stores + 1,).
        self.store_starts: npt.NDArray[np.int64] = np.load(folder / "stores.npy")
        self._speaker_names: list[str] = json.loads((folder / "speakers.json").read_text())

    def __len__(self) -> int:
        return len(self._speakers)

    def gather(self, turns: npt.NDArray[np.int64]) -> RaggedTokens:
        """Return the tokens of several turns, without special tokens."""
        starts = np.asarray(self._ends[turns])
        lengths = np.asarray(self._ends[turns + 1]) - starts
        return RaggedTokens(np.asarray(self._tokens[span_indices(starts, lengths)]), lengths)

    def speaker(self, turn: int) -> str:
        """Return the speaker of a turn."""
        return self._speaker_names[int(self._speakers[turn])]

    def frequency(self, turn: int) -> int:
        """Return how often the turn's text is a response in the corpus; the first turn of a dialogue is no response."""
        return int(self._frequencies[turn])

    def rewritten(self, turn: int) -> Tokens:
        """Return the tokens of a turn as the objective's `rewriter` gives it, without special tokens."""
        assert self._rewritten is not None, "an objective that reads rewritten texts must have a rewriter"
        number = self._rewritten.number(turn)
        return self.tokens(turn) if number is None else self._rewritten.tokens(number)

    def rewritten_identity(self, turn: int) -> int:
        """Return a number that turns of equal rewritten texts share."""
        assert self._rewritten is not None, "an objective that reads rewritten texts must have a rewriter"
        number = self._rewritten.number(turn)
        return self.identity(turn) if number is None else self._rewritten.identity(number)

    def hard_negatives(self, turn: int) -> npt.NDArray[np.int64]:
        """Return turns that an encoder would answer with instead of this one, nearest first."""
        assert self.hard_negative_table is not None, "an objective that reads hard negatives must set miner"
        row = np.asarray(self.hard_negative_table[turn], np.int64)
        return row[row >= 0]

    def read_next(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read ranges of turns from disk ahead of their use, and free the memory of those read before."""
        columns = (self._ends, self._speakers, self.identities, self._frequencies)
        for column in (self._tokens, *columns):
            release(column)
        for first, last in ranges:
            for column in columns:
                read_ahead(column, first, last)
            read_ahead(self._tokens, int(self._ends[first]), int(self._ends[last]))


class RewrittenTokens(_TokenisedTexts):
    """The distinct rewritten texts of a corpus, tokenised."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._numbers = np.load(folder / "numbers.npy", mmap_mode="r")

    def number(self, turn: int) -> int | None:
        """Return the number of a turn's rewritten text; None if it keeps its own."""
        number = int(self._numbers[turn])
        return None if number < 0 else number


def tokenise_corpus(
    corpus: TrainingCorpus,
    tokenizer: AnyTokenizer,
    progress: Progress = silent,
    rewriter: Rewriter | None = None,
) -> TokenTable:
    """Tokenise a corpus, unless its tokens are cached; with a rewriter, also its rewritten turns."""
    inputs = ["with frequencies, dialogues and stores", *corpus.identity, tokenizer.backend_tokenizer.to_str()]

    def write(folder: Path) -> None:
        speaker_numbers: dict[str, int] = {}
        turns = 0
        store_turns = np.zeros(len(corpus.dialogues.stores), np.int64)
        with FingerprintBuckets(folder) as buckets:
            with contextlib.ExitStack() as stack:
                writer = _TextWriter(folder, tokenizer, stack)
                speakers = stack.enter_context(ArrayWriter(folder / "speakers.npy", np.int16))
                starts = stack.enter_context(ArrayWriter(folder / "dialogues.npy", np.int64))
                starts.extend([0])
                for store, batch in corpus.batches("tokenising", progress):
                    batch_turns = [turn for dialogue in batch for turn in dialogue.turns]
                    buckets.add(writer.write([turn.text for turn in batch_turns]))
                    names = (turn.speaker for turn in batch_turns)
                    speakers.extend([speaker_numbers.setdefault(name, len(speaker_numbers)) for name in names])
                    starts.extend(turns + np.cumsum([len(dialogue.turns) for dialogue in batch]))
                    turns += len(batch_turns)
                    store_turns[store] += len(batch_turns)
            _write_frequencies(folder, buckets)
        np.save(folder / "stores.npy", np.cumsum([0, *store_turns]))
        (folder / "speakers.json").write_text(json.dumps(list(speaker_numbers)))

    rewritten = None if rewriter is None else _tokenise_rewritten(corpus, tokenizer, progress, rewriter)
    return TokenTable(corpus.derive("texts", inputs, write), rewritten)


class _TextWriter:
    """Tokenises texts and writes them."""

    def __init__(self, folder: Path, tokenizer: AnyTokenizer, stack: contextlib.ExitStack):
        self._tokenizer = tokenizer
        self._length = 0
        self._file = stack.enter_context((folder / "tokens.bin").open("wb"))
        self._ends = stack.enter_context(ArrayWriter(folder / "ends.npy", np.int64))
        self._identities = stack.enter_context(ArrayWriter(folder / "identities.npy", np.int64))
        self._ends.extend([0])

    def write(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Write texts; return numbers that equal texts share, ignoring case and surrounding space."""
        distinct = list(dict.fromkeys(texts))
        tokenised = dict(zip(distinct, tokenise(self._tokenizer, distinct), strict=True))
        encoded = [tokenised[text][:LONGEST_TURN] for text in texts]
        if encoded:
            np.concatenate(encoded).tofile(self._file)
            ends = self._length + np.cumsum([len(tokens) for tokens in encoded])
            self._ends.extend(ends)
            self._length = int(ends[-1])
        # signed, because prepared batches contain the numbers as int64
        unsigned = np.fromiter((text_fingerprint(normalise_text(text)) for text in texts), np.uint64, len(texts))
        self._identities.extend(unsigned.view(np.int64))
        return unsigned.view(np.int64)


def _write_frequencies(folder: Path, buckets: FingerprintBuckets) -> None:
    """Write, for each turn, how many responses have its text."""
    starts = np.load(folder / "dialogues.npy", mmap_mode="r")
    frequencies = np.lib.format.open_memmap(folder / "frequencies.npy", "w+", np.int32, (len(buckets),))
    for identities, turns in buckets:
        responses = starts[np.searchsorted(starts, turns)] != turns
        _, number = np.unique(identities, return_inverse=True)
        frequencies[turns] = np.bincount(number[responses], minlength=len(turns))[number]
    frequencies.flush()


def _tokenise_rewritten(
    corpus: TrainingCorpus, tokenizer: AnyTokenizer, progress: Progress, rewriter: Rewriter
) -> RewrittenTokens:
    """Tokenise the rewritten texts of turns; of each distinct one, a fingerprint is held in memory."""
    name = f"{rewriter.__module__}.{rewriter.__qualname__}"
    inputs = ["rewritten", name, *corpus.identity, tokenizer.backend_tokenizer.to_str()]

    def write(folder: Path) -> None:
        fingerprints = FingerprintIndex()
        with contextlib.ExitStack() as stack:
            writer = _TextWriter(folder, tokenizer, stack)
            numbers = stack.enter_context(ArrayWriter(folder / "numbers.npy", np.int32))
            for _, batch in corpus.batches("rewriting turns", progress):
                rewritten = [rewriter(turn) for dialogue in batch for turn in dialogue.turns]
                previous = len(fingerprints)
                indices = [-1 if text is None else fingerprints.index(text_fingerprint(text)) for text in rewritten]
                new = dict(zip(indices, rewritten, strict=True))
                writer.write([text for index, text in new.items() if text is not None and index >= previous])
                numbers.extend(indices)

    return RewrittenTokens(corpus.derive("rewritten", inputs, write))
