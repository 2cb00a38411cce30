"""Averaged word vectors, such as GloVe's (Pennington et al. 2014): what sentence encoders have to beat."""

import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from turnwise.core.dialogue import Turn
from turnwise.core.text import tokenise_words
from turnwise.papers.baselines.vectors import PostprocessingError, Vectors, digest, unit

_HEADER = re.compile(r"([0-9]+) ([0-9]+)")


class GloVe:
    """An encoder that averages the vectors of an input's words; of a conversation, the words of all its turns.

    Words are runs of letters, digits and underscores; every punctuation mark is a word of its own. Words without a vector are
    left out, and an input without a word that has one gets zeros: its cosine with anything is 0. Languages written without
    spaces have to come segmented into words.

    Attributes:
        path: the file of word vectors.
        lower: whether case is folded, in texts and file alike.
        words: the words that have a vector, and its row.
        vectors: (words, size).
    """

    def __init__(self, path: Path | str, *, lower: bool = True, vocabulary: Iterable[Any] | None = None):
        """Reads a file of word vectors, a line at a time.

        A line is `word v1 … vd`, separated by single spaces; a first line of two whole numbers, as word2vec writes it, is the
        number of words and d. A word may hold spaces, as some of GloVe's do, though no text's word is ever equal to it. Of a word
        that stands there twice, once case is folded, the first line counts: files have the more frequent one first. The numbers
        of words that are not kept are not looked at.

        Args:
            path: the file.
            lower: fold the case of texts and of the file's words.
            vocabulary: texts and conversations; of the file, their words alone are kept, and nothing else can be encoded. None: all
                words of the file.

        Raises:
            PostprocessingError: if the file is missing, or a line is malformed; the message has its number.
        """
        self.path = Path(path)
        self.lower = lower
        self._wanted = None if vocabulary is None else {word for item in vocabulary for word in self._words(item, None)}
        self.words: dict[str, int] = {}
        self.vectors: Vectors = self._read()

    @cached_property
    def description(self) -> str:
        """All that determines the vectors."""
        words = hashlib.sha256("\0".join(self.words).encode()).hexdigest()
        rule = "case folded" if self.lower else "cased"
        return f"averaged word vectors, {rule}, {self.vectors.shape[1]} dimensions, words {words}, vectors {digest(self.vectors)}"

    def encode(
        self, inputs: str | Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> Vectors:
        """Vectors (inputs, size), of length 1 (or zeros) only where `normalise` is true.

        Args:
            inputs: texts, or conversations so far as lists of strings or `Turn`s; a single text counts as a list of one.
            normalise: scale vectors to length 1.
            max_length: how many words of an input count, with a vector or without: the first of a text, the last of a conversation.

        Raises:
            PostprocessingError: if a word is not of the vocabulary that the file was read for.
        """
        items = [inputs] if isinstance(inputs, str) else inputs
        rows, ends = array("q"), [0]
        for item in items:
            found = self._words(item, max_length)
            self._check(found)
            rows.extend(self.words[word] for word in found if word in self.words)
            ends.append(len(rows))
        shape = (len(items), len(self.words))
        counts = csr_array((np.ones(len(rows), np.float32), np.frombuffer(rows, np.int64), np.array(ends)), shape=shape)
        means: Vectors = (counts @ self.vectors) / np.maximum(np.diff(ends), 1)[:, None].astype(np.float32)
        return unit(means) if normalise else means

    def _check(self, found: list[str]) -> None:
        if self._wanted is not None and not self._wanted.issuperset(found):
            word = next(word for word in found if word not in self._wanted)
            raise PostprocessingError(
                f"{word!r} is not of the vocabulary that {self.path} was read for: give it all texts, or none to keep every word"
            )

    def _words(self, item: Any, most: int | None) -> list[str]:
        """The words of an input, cut."""
        turns = [item] if isinstance(item, str) else [turn.text if isinstance(turn, Turn) else turn for turn in item]
        words = [word for text in turns for word in tokenise_words(text, lower=self.lower)]
        if most is None or len(words) <= most:
            return words
        return words[:most] if len(turns) == 1 else words[len(words) - most :]

    def _fold(self, word: str) -> str:
        return word.casefold() if self.lower else word

    # ---- reading

    def _read(self) -> Vectors:
        """Takes the words to keep, each once, and gives their vectors (words, size)."""
        numbers = array("f")
        size: int | None = None
        said: int | None = None
        count = 0
        for number, line in _lines(self.path):
            if number == 1 and (header := _HEADER.fullmatch(line)):
                said, size = int(header[1]), int(header[2])
                continue
            if size is None:
                size = line.count(" ")
            count += 1
            word, rest = _split(line, size, f"{self.path}, line {number}")
            word = self._fold(word)
            if word not in self.words and (self._wanted is None or word in self._wanted):
                self.words[word] = len(self.words)
                numbers.frombytes(_numbers(rest, f"{self.path}, line {number}").tobytes())
        if size is None or not count:
            raise PostprocessingError(f"{self.path} holds no word vectors: expected lines of a word and its numbers")
        if said not in (None, count):
            raise PostprocessingError(
                f"{self.path} has {count} words, but {said} by its first line: it is cut short or damaged"
            )
        return np.frombuffer(numbers, np.float32).reshape(len(self.words), size)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file, numbered from 1."""
    try:
        with path.open("rb") as file:
            # not as text, whose lines would end at carriage returns too
            for number, line in enumerate(file, 1):
                yield number, line.decode().rstrip(" \r\n")
    except OSError as error:
        raise PostprocessingError(
            f"{path} cannot be read ({error.strerror}): a file of word vectors is expected"
        ) from None
    except UnicodeDecodeError:
        raise PostprocessingError(
            f"{path}, line {number}: not UTF-8; is this word vectors as text, and not a binary file?"
        ) from None


def _split(line: str, size: int, place: str) -> tuple[str, str]:
    """A line's word and its numbers; a word may hold spaces, but what stands before the numbers may not be one more of them."""
    surplus = line.count(" ") - size
    word = line.rsplit(" ", size)[0] if surplus > 0 else line.partition(" ")[0]
    last = word.rpartition(" ")[2]
    if not size or surplus < 0 or not last or (surplus and _is_number(last)):
        raise PostprocessingError(f"{place}: expected a word and {size or 'its'} numbers, separated by single spaces")
    return word, line[len(word) + 1 :]


def _numbers(text: str, place: str) -> Vectors:
    try:
        with np.errstate(over="ignore"):  # what is too large for a float32 is refused below
            numbers = np.array(text.split(" "), np.float32)
    except ValueError as error:
        raise PostprocessingError(f"{place}: {error}") from None
    if not np.isfinite(numbers).all():
        raise PostprocessingError(f"{place}: a number is not finite")
    return numbers


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
