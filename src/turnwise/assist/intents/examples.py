"""Labelled examples of intents with their vectors, and how they are validated and read from files."""

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.context import Utterance, join_turns, last_turn, read_utterance, turns_in_context
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import CorpusError, IntentError
from turnwise.core.text import normalise_text
from turnwise.core.types import Vectors
from turnwise.corpus.readers.shared.files import require_columns
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.storage.rejections import Rejection
from turnwise.corpus.texts import TEXT_FILE_SUFFIXES, TableRow, read_rows

Indices = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

#: A text and its intent.
IntentPair = tuple[str, str]

#: Words that make no meaningful name: general ones, single letters and hexadecimal digits.
_ARBITRARY = re.compile("intents?|class|label|category|cluster|group|topic|type|[a-z]|[a-f]{8,}")

#: Readers of the files of assistants, which have examples of intents, and suffixes of these files.
_EXPORT_READERS = ("rasa", "dialogflow", "lex", "luis")
_EXPORT_SUFFIXES = (".yml", ".yaml", ".json", ".zip")

#: Tolerance for the length of a normalised vector.
_LENGTH_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class IntentNames:
    """What intents are called or described as, sorted by intent; an intent without a meaningful name is left out."""

    intents: tuple[str, ...]
    words: tuple[str, ...]  # one text per intent
    vectors: Vectors  # normalised, one row per intent

    @classmethod
    def sort(cls, intents: Sequence[str], words: Sequence[str], vectors: Vectors) -> "IntentNames":
        """Return names sorted by intent."""
        rows = sorted(range(len(intents)), key=lambda row: intents[row])
        return cls(tuple(intents[row] for row in rows), tuple(words[row] for row in rows), vectors[rows])

    def of(self, intents: Collection[str]) -> "IntentNames":
        """Return the names of some intents only."""
        rows = [row for row, intent in enumerate(self.intents) if intent in intents]
        return IntentNames.sort(
            [self.intents[row] for row in rows], [self.words[row] for row in rows], self.vectors[rows]
        )

    def merge(self, others: "IntentNames") -> "IntentNames":
        """Return these names and others."""
        vectors = np.concatenate([self.vectors, others.vectors])
        return IntentNames.sort(self.intents + others.intents, self.words + others.words, vectors)


@dataclass(frozen=True, slots=True)
class IntentExamples:
    """Distinct examples, sorted by intent and then by insertion order; out-of-scope examples come last.

    The name of an intent counts as one more example, unless `names` is None; with a name, it needs no other.
    """

    pairs: tuple[IntentPair, ...]
    vectors: Vectors  # normalised, one row per pair
    names: IntentNames | None = None
    classes: tuple[str, ...] = field(init=False)  # the intents, sorted, without 'out_of_scope'
    labels: Indices = field(init=False)  # for each in-scope example the index of its intent

    def __post_init__(self) -> None:
        intents = [intent for _, intent in self.pairs if intent != OUT_OF_SCOPE]
        classes = tuple(sorted({*intents, *(self.names.intents if self.names else ())}))
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "labels", self._indices(intents))

    def _indices(self, intents: Sequence[str]) -> Indices:
        return np.searchsorted(np.array(self.classes), np.array(intents, str)).astype(np.int64)

    @classmethod
    def from_pairs(
        cls, pairs: Sequence[IntentPair], vectors: Vectors, names: IntentNames | None = None
    ) -> "IntentExamples":
        """Sort examples and drop duplicates: texts of one intent that differ only in case and surrounding space."""
        first = {example_key(pair): row for row, pair in reversed(list(enumerate(pairs)))}
        rows = sorted(first.values(), key=lambda row: (pairs[row][1] == OUT_OF_SCOPE, pairs[row][1], row))
        examples = cls(tuple(pairs[row] for row in rows), np.ascontiguousarray(vectors[rows]), names)
        if not examples.classes:
            raise IntentError("there is no example of any intent: provide at least one text with its intent")
        return examples

    @property
    def support(self) -> tuple[Vectors, Indices]:
        """What intents are fitted on, sorted by intent: the vectors of examples and names, and the index of each."""
        order, labels = self._support_order()
        names = self.vectors[:0] if self.names is None else self.names.vectors
        return np.concatenate([self.in_scope_vectors, names])[order] if len(names) else self.in_scope_vectors, labels

    @property
    def support_rows(self) -> Indices:
        """The row of each in-scope example in the support."""
        return np.argsort(self._support_order()[0])[: len(self.labels)]

    def _support_order(self) -> tuple[Indices, Indices]:
        every = np.concatenate([self.labels, self._indices(self.names.intents if self.names else ())])
        order = np.argsort(every, kind="stable")
        return order, every[order]

    def without_names(self) -> "IntentExamples":
        """Return the examples alone."""
        return IntentExamples(self.pairs, self.vectors)

    def select(self, rows: Iterable[int]) -> "IntentExamples":
        """Return some of the examples, with all names."""
        rows = list(rows)
        return IntentExamples(tuple(self.pairs[row] for row in rows), self.vectors[rows], self.names)

    @property
    def in_scope_vectors(self) -> Vectors:
        """The vectors of the in-scope examples."""
        return self.vectors[: len(self.labels)]

    @property
    def out_of_scope_vectors(self) -> Vectors:
        """The vectors of the out-of-scope examples."""
        return self.vectors[len(self.labels) :]

    def rows_not_included(self, pairs: Sequence[IntentPair]) -> list[int]:
        """Return the indices of those pairs that are not among the examples."""
        keys = {example_key(pair) for pair in self.pairs}
        return [row for row, pair in enumerate(pairs) if example_key(pair) not in keys]

    def without(self, pairs: Sequence[IntentPair]) -> "IntentExamples":
        """Return these examples without some; raise IntentError if no in-scope example would be left."""
        removed = {example_key(pair) for pair in pairs}
        rows = [row for row, pair in enumerate(self.pairs) if example_key(pair) not in removed]
        check_any_left(self.pairs[row][1] for row in rows)
        return self.select(rows)


def example_key(pair: IntentPair) -> IntentPair:
    """Return what duplicates have in common: the normalised text and the intent."""
    return normalise_text(pair[0]), pair[1]


def check_any_left(intents: Iterable[str]) -> None:
    """Raise IntentError unless examples of one of these intents are in scope."""
    if all(intent == OUT_OF_SCOPE for intent in intents):
        raise IntentError("no example of any intent would be left: add others first, or fit a new classifier")


def describe_intent(intent: str) -> str:
    """Return the words in the name of an intent, or '' if it is meaningless, such as `intent_17`."""
    words = re.sub(r"[\W_]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", intent)).split()
    meaningful = [word for word in words if not (_ARBITRARY.fullmatch(word.lower()) or any(map(str.isdigit, word)))]
    return " ".join(words).lower() if meaningful else ""


def sort_pairs(pairs: Iterable[IntentPair]) -> list[IntentPair]:
    """Return examples sorted by intent; those out of scope come last."""
    return sorted(pairs, key=lambda pair: (pair[1] == OUT_OF_SCOPE, pair[1]))


def are_integers(intents: Sequence[str | int]) -> TypeGuard[Sequence[int]]:
    """Return whether the labels are integers, and not names."""
    return bool(len(intents)) and all(isinstance(each, Integral) and not isinstance(each, bool) for each in intents)


def check_integers(pairs: Iterable[IntentPair]) -> None:
    """Raise IntentError if an intent is not written as an integer, or is -1, which stands for 'out_of_scope'."""
    for _, intent in pairs:
        if intent != OUT_OF_SCOPE and (
            intent == "-1" or not (intent.lstrip("-").isdecimal() and f"{int(intent)}" == intent)
        ):
            raise IntentError(
                f"the labels of this classifier are integers, got {intent!r}: fit it on names to use names"
            )


def validate_pairs(texts: Sequence[Utterance], intents: Sequence[str | int]) -> list[IntentPair]:
    """Return texts with the names of their intents: integers as digits, and -1 as 'out_of_scope'.

    A conversation becomes one string. Raise IntentError if the lengths differ, or a value is blank or of another type.
    """
    if isinstance(texts, str) or isinstance(intents, str):
        raise IntentError("texts and intents must be lists, got a single string: pass [text] and [intent]")
    if len(texts) != len(intents):
        raise IntentError(f"got {len(texts):,} texts and {len(intents):,} intents: pass one intent per text")
    if are_integers(intents):
        intents = [OUT_OF_SCOPE if label == -1 else str(int(label)) for label in intents]
    joined = [join_turns(text) for text in texts]
    for number, (text, intent) in enumerate(zip(joined, intents, strict=True), 1):
        for name, value in (("text", text), ("intent", intent)):
            if not isinstance(value, str) or not last_turn(value).strip():
                raise IntentError(f"the {name} of example {number:,} must be a non-blank string, got {value!r}")
    return [(str(text), str(intent).strip()) for text, intent in zip(joined, intents, strict=True)]


def validate_vectors(vectors: Vectors, count: int) -> Vectors:
    """Return vectors as float32; raise IntentError unless there are `count` finite rows of length 1."""
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or len(vectors) != count:
        raise IntentError(f"vectors have shape {vectors.shape} for {count:,} texts: pass one row per text")
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(lengths).all():
        raise IntentError("vectors contain values that are not finite numbers: check the encoder")
    if count and np.abs(lengths - 1).max() > _LENGTH_TOLERANCE:
        raise IntentError("vectors must have length 1: normalise them")
    return vectors


# ---- files


def read_labelled(
    path: Path, text: str = "text", intent: str = "intent", speakers: Sequence[str] = ("user",)
) -> list[IntentPair]:
    """Read texts and intents from columns of a file, or turns of a store; rows without an intent are skipped.

    The turns before a text, in a store or in a column 'context', are its context.
    """
    if _is_export(path):
        pairs = [pair for pair, _ in _read_export(path, speakers)[0]]
    elif path.is_dir():
        from turnwise.corpus.storage.corpus import read_corpus

        turns = (each for dialogue in read_corpus(path) for each in turns_in_context(dialogue.turns))
        pairs = [(text, turn.intent) for turn, text in turns if turn.intent and turn.speaker in speakers]
    else:
        rows = read_rows(path, (text, intent), hint="name the columns with --text and --intent")
        values = ((_row_utterance(row, text), row.optional_text(intent)) for row in rows)
        pairs = [pair for pair in values if pair[0].strip() and pair[1].strip()]
    if not pairs:
        raise IntentError(f"{path} has no text with an intent: nothing to fit on")
    return pairs


def read_with_names(path: Path, text: str = "text", intent: str = "intent") -> tuple[list[IntentPair], dict[str, str]]:
    """Read the examples of intents, which may be missing, and the descriptions of intents that have some.

    A row without a text names an intent; a column 'description' says what an intent is about. A file that has other
    columns must have one of texts. Of an assistant's files, utterances for tests are left out.
    """
    if _is_export(path):
        labelled, descriptions = _read_export(path)
        pairs = [pair for pair, split in labelled if split != "test"]
        if not pairs and not descriptions:
            raise IntentError(f"{path} has no text with an intent: nothing to fit on")
        return pairs, descriptions
    if path.is_dir():
        return read_labelled(path, text, intent), {}
    pairs, descriptions = [], {}
    for row in read_rows(path, (intent,), hint="name the columns with --text and --intent"):
        if text not in row.values and set(row.values) - {intent, "description"}:
            require_columns(path, (text,), list(row.values), "name the columns with --text and --intent")
        name, words = (row.optional_text(column).strip() for column in (intent, "description"))
        example = _row_utterance(row, text).strip()
        if name and example:
            pairs.append((example, name))
        if name not in ("", OUT_OF_SCOPE) and (words or not example):
            descriptions[name] = words or descriptions.get(name, "")
    if not pairs and not descriptions:
        raise IntentError(f"{path} has no intent: nothing to fit on")
    return pairs, descriptions


def _is_export(path: Path) -> bool:
    """Return whether a path is a file or a folder of an assistant, and neither a table nor a store."""
    if not path.is_dir():
        return path.is_file() and path.suffix.lower() in _EXPORT_SUFFIXES
    from turnwise.corpus.importing.formats import holds_dialogues

    return not holds_dialogues(path)


def _read_export(
    path: Path, speakers: Sequence[str] = ("user",)
) -> tuple[list[tuple[IntentPair, str | None]], dict[str, str]]:
    """Read examples with their splits, and descriptions of intents, from the files of an assistant."""
    from turnwise.corpus.importing.formats import LogGroup, detect_groups
    from turnwise.corpus.registry import get_reader

    def refuse(rejection: Rejection) -> None:
        if rejection.kind != "slot":
            line = "" if rejection.line is None else f", line {rejection.line:,}"
            raise CorpusError(f"{path}: {rejection.file}{line}: {rejection.reason}")

    pairs: list[tuple[IntentPair, str | None]] = []
    descriptions: dict[str, str] = {}
    groups: list[LogGroup] = []
    with suppress(CorpusError) if path.is_dir() else nullcontext():  # no format fits a folder
        groups = [group for group in detect_groups(path)[0] if group.detection.reader in _EXPORT_READERS]
    if not groups:
        raise CorpusError(
            f"{path} is not a store, and has no readable files of Rasa, Dialogflow, Amazon Lex, LUIS or CLU: import it"
            " with `turnwise corpus import`, or give a table with the columns text and intent"
        )
    for group in groups:
        files = None if group.root in group.files else frozenset(group.files)  # an archive has other files
        reader = get_reader(group.detection.reader)
        source = CorpusSource(group.root, reader.name, refuse, selected=files, intent_descriptions=descriptions)
        try:
            for dialogue in reader.read(source):
                turns = (turn for turn in dialogue.turns if turn.speaker in speakers)
                pairs += [((turn.text, turn.intent), dialogue.split) for turn in turns if turn.intent]
        except CorpusError as error:
            advice = f"correct it, or import it with `turnwise corpus import {reader.name}` and fit on the store"
            raise CorpusError(f"{error} ({advice})") from None
    return pairs, descriptions


def _row_utterance(row: TableRow, text: str) -> str:
    row.optional_text(text)  # raises an error if it is no valid text
    return read_utterance(row.values, text, row.where)


def read_texts(path: Path, text: str = "text") -> list[str]:
    """Read the non-blank texts of a .txt file (one per line) or of a column of a table file, with their context."""
    rows = read_rows(path, [text], suffixes=TEXT_FILE_SUFFIXES, hint="name the column with --text")
    return [value for row in rows if (value := _row_utterance(row, text)).strip()]
