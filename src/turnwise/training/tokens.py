"""Texts tokenised once: what training reads of them lies memory-mapped on disk.

A folder `tokens/` in the run's folder holds the turns' tokens end to end, where each turn begins, who speaks it, what it says (as a
hash) and how often that is an answer, and where each dialogue begins; where an objective reads templates, the tokens of these as
well, each template once; where one reads rivals, these as numbers of turns. All of it is written as it comes: memory does not grow
with the texts.
"""

import contextlib
import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from turnwise.core.dialogue import Dialogue, same_text
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.buckets import Buckets
from turnwise.corpus.fingerprints import NumberedFingerprints, fingerprint
from turnwise.corpus.slots.template import SlotMarks, Template
from turnwise.corpus.store import Corpus
from turnwise.models.backbone.compose import tokenise
from turnwise.models.backbone.ragged import Ragged, Tokens, spans
from turnwise.training.cache import corpus_source, once
from turnwise.training.columns import GrowingArray, read_ahead, release

#: Dialogues tokenised at a time.
DIALOGUES = 2_000

#: No turn needs more tokens than this: what a model sees is cut to its own length later, at the right end.
LONGEST_TURN = 512


class TemplateTokens:
    """Tokenised templates, memory-mapped."""

    def __init__(self, folder: Path):
        self._tokens = np.memmap(folder / "tokens.bin", np.int32, "r")
        self._ends = np.load(folder / "ends.npy", mmap_mode="r")
        self._identities = np.load(folder / "identities.npy", mmap_mode="r")
        self._numbers = np.load(folder / "numbers.npy", mmap_mode="r")

    def number(self, turn: int) -> int | None:
        """Which template a turn has; None where it has no slots, and so is its own."""
        number = int(self._numbers[turn])
        return None if number < 0 else number

    def tokens(self, number: int) -> Tokens:
        """The tokens of a template, without special ones."""
        return self._tokens[self._ends[number] : self._ends[number + 1]]

    def identity(self, number: int) -> int:
        """A number that templates share with equal texts; case and surrounding space do not count."""
        return int(self._identities[number])


class RivalTable:
    """For every turn that answers another, the turns that an encoder would have answered with instead, memory-mapped."""

    def __init__(self, folder: Path):
        self._rivals = np.load(folder / "rivals.npy", mmap_mode="r")

    def of(self, turn: int) -> npt.NDArray[np.int64]:
        """A turn's rivals, nearest first; none where it opens a dialogue."""
        row = np.asarray(self._rivals[turn], np.int64)
        return row[row >= 0]


class TokenTable:
    """Tokenised turns, memory-mapped, and their templates and rivals where they are read."""

    def __init__(self, folder: Path, templates: TemplateTokens | None = None):
        self._templates = templates
        self._rivals: RivalTable | None = None
        self._tokens = (
            np.memmap(folder / "tokens.bin", np.int32, "r") if (folder / "tokens.bin").stat().st_size else _none()
        )
        self._ends = np.load(folder / "ends.npy", mmap_mode="r")
        self._speakers = np.load(folder / "speakers.npy", mmap_mode="r")
        #: For each turn, a number that turns of equal text share; case and surrounding space do not count.
        self.identities: npt.NDArray[np.int64] = np.load(folder / "identities.npy", mmap_mode="r")
        self._frequencies = np.load(folder / "frequencies.npy", mmap_mode="r")
        #: The first turn of each dialogue, and behind the last one the number of all turns (dialogues + 1,).
        self.dialogue_starts: npt.NDArray[np.int64] = np.load(folder / "dialogues.npy", mmap_mode="r")
        self._names: list[str] = json.loads((folder / "speakers.json").read_text())

    def __len__(self) -> int:
        return len(self._speakers)

    def tokens(self, turn: int) -> Tokens:
        """The tokens of a turn, without special ones."""
        return self._tokens[self._ends[turn] : self._ends[turn + 1]]

    def gather(self, turns: npt.NDArray[np.int64]) -> Ragged:
        """The tokens of some turns, without special ones."""
        starts = np.asarray(self._ends[turns])
        lengths = np.asarray(self._ends[turns + 1]) - starts
        return Ragged(np.asarray(self._tokens[spans(starts, lengths)]), lengths)

    def speaker(self, turn: int) -> str:
        """Who speaks it."""
        return self._names[int(self._speakers[turn])]

    def identity(self, turn: int) -> int:
        """A number that turns of equal text share; case and surrounding space do not count."""
        return int(self.identities[turn])

    def frequency(self, turn: int) -> int:
        """How often the corpus answers with its text: turns that open a dialogue answer nothing."""
        return int(self._frequencies[turn])

    def template(self, turn: int) -> Tokens:
        """The tokens of a turn's template, without special ones; those of the turn where it has no slots."""
        assert self._templates is not None, "an objective that reads templates says so, by slot_names"
        number = self._templates.number(turn)
        return self.tokens(turn) if number is None else self._templates.tokens(number)

    def template_identity(self, turn: int) -> int:
        """A number that turns of equal templates share."""
        assert self._templates is not None, "an objective that reads templates says so, by slot_names"
        number = self._templates.number(turn)
        return self.identity(turn) if number is None else self._templates.identity(number)

    def read_next(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Has ranges of turns read from disk ahead of whoever needs them, and gives back the memory of those read before."""
        columns = (self._ends, self._speakers, self.identities, self._frequencies)
        for column in (self._tokens, *columns):
            release(column)
        for first, last in ranges:
            for column in columns:
                read_ahead(column, first, last)
            read_ahead(self._tokens, int(self._ends[first]), int(self._ends[last]))

    def take_rivals(self, rivals: RivalTable) -> None:
        """Lets the turns' rivals be read."""
        self._rivals = rivals

    def rivals(self, turn: int) -> npt.NDArray[np.int64]:
        """Turns that an encoder would answer with in place of this one, nearest first."""
        assert self._rivals is not None, "an objective that reads rivals says so, by miner"
        return self._rivals.of(turn)


def tokenise_corpus(
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    progress: Progress = silent,
    marks: SlotMarks | None = None,
) -> TokenTable:
    """Tokenises a corpus, unless that was done before.

    Args:
        corpus: its turns.
        tokenizer: of the backbone, with whatever tokens were added to it.
        folder: where the tokens are kept.
        progress: told how many dialogues are done.
        marks: what stands for slots in the templates, where they are wanted, too.

    Raises:
        TurnwiseError: if templates are wanted and no turn has a slot.
    """
    made_of = ["with frequencies and dialogues", *corpus_source(corpus), tokenizer.backend_tokenizer.to_str()]

    def write(place: Path) -> None:
        total = len(corpus)
        with Buckets(place) as buckets:
            with contextlib.ExitStack() as stack:
                turns = _TurnWriter(place, tokenizer, stack, buckets)
                for number, dialogue in enumerate(corpus, 1):
                    turns.add(dialogue)
                    if number % DIALOGUES == 0:
                        turns.flush()
                        progress("tokenising", number, total)
                turns.flush()
            _write_frequencies(place, buckets)
        (place / "speakers.json").write_text(json.dumps(list(turns.names)))

    templates = None if marks is None else _tokenise_templates(corpus, tokenizer, folder, progress, marks)
    return TokenTable(once(folder, "texts", made_of, write), templates)


class _TextWriter:
    """Tokenised texts, written as they come."""

    def __init__(self, place: Path, tokenizer: PreTrainedTokenizerBase, stack: contextlib.ExitStack):
        self._tokenizer = tokenizer
        self._length = 0
        self._file = stack.enter_context((place / "tokens.bin").open("wb"))
        self._ends = stack.enter_context(GrowingArray(place / "ends.npy", np.int64))
        self._identities = stack.enter_context(GrowingArray(place / "identities.npy", np.int64))
        self._ends.extend([0])

    def write(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Tokenises texts; gives numbers that equal ones share, case and surrounding space aside."""
        distinct = list(dict.fromkeys(texts))  # people repeat themselves
        tokenised = dict(zip(distinct, tokenise(self._tokenizer, distinct), strict=True))
        encoded = [tokenised[text][:LONGEST_TURN] for text in texts]
        if encoded:
            np.concatenate(encoded).tofile(self._file)
            ends = self._length + np.cumsum([len(tokens) for tokens in encoded])
            self._ends.extend(ends)
            self._length = int(ends[-1])
        # signed, as they always were: the numbers are part of what is prepared
        unsigned = np.fromiter((fingerprint(same_text(text)) for text in texts), np.uint64, len(texts))
        self._identities.extend(unsigned.view(np.int64))
        return unsigned.view(np.int64)


class _TurnWriter:
    """The turns of a corpus, written as they come: what is held is those since the last flush."""

    def __init__(self, place: Path, tokenizer: PreTrainedTokenizerBase, stack: contextlib.ExitStack, buckets: Buckets):
        self.names: dict[str, int] = {}
        self._writer = _TextWriter(place, tokenizer, stack)
        self._buckets = buckets
        self._speakers = stack.enter_context(GrowingArray(place / "speakers.npy", np.int16))
        self._dialogues = stack.enter_context(GrowingArray(place / "dialogues.npy", np.int64))
        self._dialogues.extend([0])
        self._texts: list[str] = []
        self._said_by: list[int] = []
        self._dialogue_ends: list[int] = []
        self._turns = 0

    def add(self, dialogue: Dialogue) -> None:
        """Takes the turns of a dialogue."""
        for turn in dialogue.turns:
            self._texts.append(turn.text)
            self._said_by.append(self.names.setdefault(turn.speaker, len(self.names)))
        self._turns += len(dialogue.turns)
        self._dialogue_ends.append(self._turns)

    def flush(self) -> None:
        """Writes what was taken."""
        self._buckets.add(self._writer.write(self._texts))
        self._speakers.extend(self._said_by)
        self._dialogues.extend(self._dialogue_ends)
        for taken in (self._texts, self._said_by, self._dialogue_ends):
            taken.clear()


def _write_frequencies(place: Path, buckets: Buckets) -> None:
    """For each turn, how many turns that answer another have its text."""
    starts = np.load(place / "dialogues.npy", mmap_mode="r")
    frequencies = np.lib.format.open_memmap(place / "frequencies.npy", "w+", np.int32, (len(buckets),))
    for identities, turns in buckets:
        answers = starts[np.searchsorted(starts, turns)] != turns
        _, number = np.unique(identities, return_inverse=True)
        frequencies[turns] = np.bincount(number[answers], minlength=len(turns))[number]
    frequencies.flush()


def _tokenise_templates(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, folder: Path, progress: Progress, marks: SlotMarks
) -> TemplateTokens:
    """The templates of turns with slots; of each distinct one a fingerprint is held."""
    made_of = ["templates", *marks.tokens, *corpus_source(corpus), tokenizer.backend_tokenizer.to_str()]

    def write(place: Path) -> None:
        total = len(corpus)
        known = NumberedFingerprints()
        found, fresh = array("i"), list[str]()  # since the last flush: templates by number, and those that are new
        with contextlib.ExitStack() as stack:
            writer = _TextWriter(place, tokenizer, stack)
            numbers = stack.enter_context(GrowingArray(place / "numbers.npy", np.int32))

            def flush() -> None:
                writer.write(fresh)
                numbers.extend(found)
                fresh.clear()
                del found[:]

            for done, dialogue in enumerate(corpus, 1):
                for turn in dialogue.turns:
                    found.append(_number(marks.text(Template.of(turn)), known, fresh) if turn.slots else -1)
                if done % DIALOGUES == 0:
                    flush()
                    progress("taking slots out", done, total)
            flush()
        if not known:
            raise TurnwiseError(
                "no turn of this corpus has a slot, so there are no templates: take a corpus that marks slots (turnwise corpus"
                " stats counts them), have them found by turnwise corpus detect, or leave the objective out (--set"
                " objectives.tadse=false)"
            )

    return TemplateTokens(once(folder, "templates", made_of, write))


def _number(text: str, known: NumberedFingerprints, fresh: list[str]) -> int:
    """The number of a text; one that is new is noted."""
    before = len(known)
    number = known.number(fingerprint(text))
    if number == before:
        fresh.append(text)
    return number


def _none() -> Any:
    return np.empty(0, np.int32)
