"""Texts tokenised once, and examples found once: what training reads lies memory-mapped on disk.

A folder `tokens/` in the run's folder holds the turns' tokens end to end, where each turn begins, who speaks it, what it says (as a
hash) and how often that is an answer, where each dialogue begins, and each objective's examples as numbers of turns; where an
objective reads templates, the tokens of these as well, each template once; where one reads rivals, these as numbers of turns. All
are named by what they were made of, so a resumed run finds them and a changed corpus, tokenizer or objective does not.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from turnwise.backbone.compose import tokenise
from turnwise.backbone.stream import Tokens
from turnwise.corpus.store import Corpus
from turnwise.dialogue import same_text
from turnwise.errors import TurnwiseError
from turnwise.objectives.objective import Objective
from turnwise.progress import Progress, silent
from turnwise.template import SlotMarks, Template

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
        self._tokens = np.memmap(folder / "tokens.bin", np.int32, "r") if (folder / "tokens.bin").stat().st_size else _none()
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

    def take_rivals(self, rivals: RivalTable) -> None:
        """Lets the turns' rivals be read."""
        self._rivals = rivals

    def rivals(self, turn: int) -> npt.NDArray[np.int64]:
        """Turns that an encoder would answer with in place of this one, nearest first."""
        assert self._rivals is not None, "an objective that reads rivals says so, by miner"
        return self._rivals.of(turn)


class ExampleTable:
    """An objective's examples, memory-mapped: windows of turns and labels."""

    def __init__(self, folder: Path, name: str, columns: int):
        self._windows = np.load(folder / f"{name}.windows.npy", mmap_mode="r").reshape(-1, columns, 2)
        self._labels = np.load(folder / f"{name}.labels.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self._labels)

    def by_label(self) -> dict[int, npt.NDArray[np.int64]]:
        """The numbers of the examples of each label, smallest label first."""
        return {int(label): np.flatnonzero(self._labels == label) for label in np.unique(self._labels)}

    def rows(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Windows (rows, columns, 2) and labels (rows,) of some examples."""
        return np.asarray(self._windows[rows], np.int64), np.asarray(self._labels[rows], np.int64)


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
        # arrays of numbers, not lists: tens of millions of turns fit
        lengths, identities, speakers, answers = array("i"), array("q"), array("h"), array("b")
        dialogues = array("q", [0])
        names: dict[str, int] = {}
        texts: list[str] = []
        total = len(corpus)
        with (place / "tokens.bin").open("wb") as file:

            def flush() -> None:
                encoded = [tokens[:LONGEST_TURN] for tokens in tokenise(tokenizer, texts)]
                lengths.extend(len(tokens) for tokens in encoded)
                if encoded:
                    np.concatenate(encoded).tofile(file)
                texts.clear()

            for number, dialogue in enumerate(corpus, 1):
                for before, turn in enumerate(dialogue.turns):
                    answers.append(before > 0)
                    texts.append(turn.text)
                    identities.append(_identity(turn.text))
                    speakers.append(names.setdefault(turn.speaker, len(names)))
                dialogues.append(len(speakers))
                if number % DIALOGUES == 0:
                    flush()
                    progress("tokenising", number, total)
            flush()
        np.save(place / "ends.npy", np.concatenate([[0], np.cumsum(np.frombuffer(lengths, np.int32), dtype=np.int64)]))
        known = np.frombuffer(identities, np.int64)
        np.save(place / "identities.npy", known)
        np.save(place / "frequencies.npy", _frequencies(known, np.frombuffer(answers, np.bool_)))
        np.save(place / "dialogues.npy", np.frombuffer(dialogues, np.int64))
        np.save(place / "speakers.npy", np.frombuffer(speakers, np.int16))
        (place / "speakers.json").write_text(json.dumps(list(names)))

    templates = None if marks is None else _tokenise_templates(corpus, tokenizer, folder, progress, marks)
    return TokenTable(once(folder, "texts", made_of, write), templates)


def _tokenise_templates(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, folder: Path, progress: Progress, marks: SlotMarks
) -> TemplateTokens:
    """The templates of turns with slots; memory grows with the distinct ones."""
    made_of = ["templates", *marks.tokens, *corpus_source(corpus), tokenizer.backend_tokenizer.to_str()]

    def write(place: Path) -> None:
        numbers = array("i")
        known: dict[str, int] = {}
        for done, dialogue in enumerate(corpus, 1):
            for turn in dialogue.turns:
                numbers.append(known.setdefault(marks.text(Template.of(turn)), len(known)) if turn.slots else -1)
            if done % DIALOGUES == 0:
                progress("taking slots out", done, len(corpus))
        if not known:
            raise TurnwiseError(
                "no turn of this corpus has a slot, so there are no templates: take a corpus that marks slots (turnwise corpus"
                " stats counts them), have them found by turnwise corpus detect, or leave the objective out (--set"
                " objectives.tadse=false)"
            )
        encoded = [tokens[:LONGEST_TURN] for tokens in tokenise(tokenizer, list(known))]
        np.concatenate(encoded).tofile(place / "tokens.bin")
        np.save(place / "ends.npy", np.concatenate([[0], np.cumsum([len(tokens) for tokens in encoded], dtype=np.int64)]))
        np.save(place / "identities.npy", np.array([_identity(text) for text in known], np.int64))
        np.save(place / "numbers.npy", np.frombuffer(numbers, np.int32))

    return TemplateTokens(once(folder, "templates", made_of, write))


def find_examples(
    corpus: Corpus, texts: TokenTable, objectives: Mapping[str, Objective], folder: Path, progress: Progress = silent
) -> dict[str, ExampleTable]:
    """Every objective's examples in a corpus, unless they were found before.

    Raises:
        TurnwiseError: if an objective finds none.
    """
    made_of = [*corpus_source(corpus), *(f"{name}={objective!r}" for name, objective in objectives.items())]

    def write(place: Path) -> None:
        windows = {name: array("i") for name in objectives}
        labels = {name: array("b") for name in objectives}
        seen: dict[str, set[int]] = {name: set() for name in objectives}
        base, total = 0, len(corpus)
        for number, dialogue in enumerate(corpus, 1):
            for name, objective in objectives.items():
                for example in objective.examples(dialogue):
                    if objective.unique:
                        first = texts.identity(base + example.windows[0][0])
                        if first in seen[name]:
                            continue
                        seen[name].add(first)
                    windows[name].extend(base + turn for window in example.windows for turn in window)
                    labels[name].append(example.label)
            base += len(dialogue.turns)
            if number % DIALOGUES == 0:
                progress("finding examples", number, total)
        for name in objectives:
            if len(labels[name]) < 2:
                raise TurnwiseError(
                    f"objective {name} finds {len(labels[name])} examples in this corpus: it needs dialogues of a kind that this"
                    f" one does not hold (see its page in the documentation); --set objectives.{name}=false leaves it out"
                )
            np.save(place / f"{name}.windows.npy", np.frombuffer(windows[name], np.int32))
            np.save(place / f"{name}.labels.npy", np.frombuffer(labels[name], np.int8))

    place = once(folder, "examples", made_of, write)
    return {name: ExampleTable(place, name, objective.columns) for name, objective in objectives.items()}


def corpus_source(corpus: Corpus) -> list[str]:
    """What tells a corpus from others: its stores' contents, and which of their dialogues and turns are read, and how."""
    share = () if corpus.share == 1 else (f"share {corpus.share!r}",)
    combined = ("combined turns",) if corpus.combine_turns else ()
    least = () if corpus.least_turns == 1 else (f"least turns {corpus.least_turns}",)
    generations = (store.manifest["generation"] for store in corpus.stores)
    return [*generations, *(corpus.splits or ("all splits",)), *share, *combined, *least]


def once(folder: Path, kind: str, made_of: list[str], write: Callable[[Path], None]) -> Path:
    """The folder for something made of certain things: written under another name and renamed, unless it is there.

    Runs that share a folder wait for the one that writes and take what it has finished; what a killed one left is written over.
    """
    place = folder / f"{kind}-{hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:12]}"
    unfinished = folder / f".writing-{place.name}"
    while not place.is_dir():
        unfinished.mkdir(parents=True, exist_ok=True)
        with _alone(unfinished) as held:
            if held and not place.is_dir():
                for leftover in unfinished.iterdir():
                    leftover.unlink()
                try:
                    write(unfinished)
                except BaseException:
                    shutil.rmtree(unfinished)
                    raise
                unfinished.rename(place)
    with contextlib.suppress(OSError):  # made by one that came too late; another such may have removed it already
        unfinished.rmdir()
    return place


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Waits until nobody else holds a folder, and holds it; false if it has been renamed or removed meanwhile."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)  # which the system lets go of even when this process is killed
        except OSError as error:
            raise TurnwiseError(f"{folder.parent} cannot be locked ({error}): keep the cache on a local disk") from error
        yield folder.is_dir() and os.path.samestat(os.fstat(handle), folder.stat())
    finally:
        os.close(handle)


def _identity(text: str) -> int:
    digest = hashlib.blake2b(same_text(text).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _frequencies(identities: npt.NDArray[np.int64], answers: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """For each turn, how many turns that answer another have its text: eight bytes a turn are held, and no text."""
    _, number = np.unique(identities, return_inverse=True)
    return np.bincount(number[answers], minlength=len(identities))[number].astype(np.int32)


def _none() -> Any:
    return np.empty(0, np.int32)
