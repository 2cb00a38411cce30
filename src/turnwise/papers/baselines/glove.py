"""Averaged word vectors, such as GloVe's (Pennington et al. 2014): the baseline of sentence encoders."""

import hashlib
import re
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from turnwise.core.dialogue import Turn
from turnwise.core.errors import ModelError
from turnwise.core.text import UNSPACED, tokenise_words
from turnwise.core.types import Vectors, normalise_vectors
from turnwise.papers.baselines.postprocessing import hash_arrays

_HEADER = re.compile(r"([0-9]+) ([0-9]+)")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_SPACED = re.compile(f"[^{UNSPACED}]+")
_NUMBER = re.compile(r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


class GloVe:
    """An encoder that averages the vectors of an input's words; of a conversation, the words of all its turns.

    Words are runs of letters, digits and underscores; every punctuation mark is a word. Words without a vector are
    ignored, and an input without any known word has a zero vector, whose cosine with any other is 0. Chinese and
    Japanese may be segmented by spaces or not: an unknown run is divided into the longest known words, from the left.
    """

    def __init__(self, path: Path | str):
        """Read a file of word vectors, line by line.

        A line is `word v1 … vd`, separated by single spaces; a first line of two integers, as word2vec writes it, is
        the number of words and d. A word may contain spaces, as some of GloVe's do, though no tokenised word equals it.
        The first of several lines with the same word, after case folding, counts: files start with the most frequent
        words. Raises ModelError if the file is missing, or a line is malformed.
        """
        self.path = Path(path)
        #: The row of every word in `vectors` (words, size).
        self.words: dict[str, int] = {}
        self.vectors: Vectors = self._read()

    @cached_property
    def description(self) -> str:
        """Everything that determines the vectors."""
        words = hashlib.sha256("\0".join(self.words).encode()).hexdigest()
        size, vectors = self.vectors.shape[1], hash_arrays(self.vectors)
        return f"averaged word vectors, case folded, runs divided, {size} dimensions, words {words}, vectors {vectors}"

    def encode(
        self, inputs: str | Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> Vectors:
        """Return vectors (inputs, size) of texts or conversations, of length 1 (or 0) only if `normalise` is true.

        `max_length` is the number of words used, known or not: the first of a text, the last of a conversation.
        """
        items = [inputs] if isinstance(inputs, str) else inputs
        rows, ends = array("q"), [0]
        for item in items:
            rows.extend(self.words[word] for word in self._tokenise(item, max_length) if word in self.words)
            ends.append(len(rows))
        shape = (len(items), len(self.words))
        counts = csr_array((np.ones(len(rows), np.float32), np.frombuffer(rows, np.int64), np.array(ends)), shape=shape)
        means: Vectors = (counts @ self.vectors) / np.maximum(np.diff(ends), 1)[:, None].astype(np.float32)
        return normalise_vectors(means) if normalise else means

    def _tokenise(self, item: Any, max_length: int | None) -> list[str]:
        turns = [item] if isinstance(item, str) else [turn.text if isinstance(turn, Turn) else turn for turn in item]
        words = [word for text in turns for run in tokenise_words(text) for word in self._divide(run)]
        if max_length is None or len(words) <= max_length:
            return words
        return words[:max_length] if len(turns) == 1 else words[len(words) - max_length :]

    def _divide(self, run: str) -> Iterator[str]:
        """Divide an unknown run with Chinese or Japanese into the longest known words and single characters."""
        if run in self.words or not _UNSPACED.search(run):
            yield run
            return
        start = 0
        while start < len(run):
            if spaced := _SPACED.match(run, start):
                end = spaced.end()
            else:
                ends = range(min(len(run), start + self._longest), start, -1)
                end = next((end for end in ends if run[start:end] in self.words), start + 1)
            yield run[start:end]
            start = end

    @cached_property
    def _longest(self) -> int:
        """The length of the longest known word of Chinese or Japanese."""
        return max((len(word) for word in self.words if _UNSPACED.search(word)), default=1)

    def _read(self) -> Vectors:
        """Fill `words` and return their vectors (words, size)."""
        values = array("f")
        size: int | None = None
        announced: int | None = None
        count = 0
        for number, line in _read_lines(self.path):
            if number == 1 and (header := _HEADER.fullmatch(line)):
                announced, size = int(header[1]), int(header[2])
                continue
            if size is None:
                size = line.count(" ")
            count += 1
            where = f"{self.path}, line {number}"
            word, rest = _split_line(line, size, where)
            word = word.casefold()
            if word not in self.words:
                self.words[word] = len(self.words)
                values.frombytes(_parse_values(rest, where).tobytes())
        if size is None or not count:
            raise ModelError(f"{self.path} contains no word vectors: expected lines of a word and its values")
        if announced not in (None, count):
            raise ModelError(
                f"{self.path} has {count} words, but {announced} by its first line: it is truncated or damaged"
            )
        return np.frombuffer(values, np.float32).reshape(len(self.words), size)


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers."""
    try:
        with path.open("rb") as file:
            # in text mode, lines would also end at carriage returns
            for number, line in enumerate(file, 1):
                yield number, line.decode().rstrip(" \r\n")
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}): expected a file of word vectors") from None
    except UnicodeDecodeError:
        raise ModelError(f"{path}, line {number}: not UTF-8; expected word vectors as text, not binary") from None


def _split_line(line: str, size: int, where: str) -> tuple[str, str]:
    """Split a line into word and values; a word may contain spaces, but must not end with a further value."""
    surplus = line.count(" ") - size
    word = line.rsplit(" ", size)[0] if surplus > 0 else line.partition(" ")[0]
    last = word.rpartition(" ")[2]
    if not size or surplus < 0 or not last or (surplus and _NUMBER.fullmatch(last)):
        raise ModelError(f"{where}: expected a word and {size or 'its'} values, separated by single spaces")
    return word, line[len(word) + 1 :]


def _parse_values(text: str, where: str) -> Vectors:
    try:
        with np.errstate(over="ignore"):  # overflow of float32 is rejected below
            values = np.array(text.split(" "), np.float32)
    except ValueError as error:
        raise ModelError(f"{where}: {error}") from None
    if not np.isfinite(values).all():
        raise ModelError(f"{where}: a value is not finite")
    return values
