"""Response-selection files: contexts with candidate responses, some of which are right.

There are two common layouts. Ubuntu V1's, shared by Douban and E-commerce: a candidate per line,
`label<TAB>turn…<TAB>response`, with the candidates of one context on consecutive lines. Ubuntu V2's: CSV with `Context`
and either `Utterance, Label` or `Ground Truth Utterance, Distractor_0, …`; utterances end in `__eou__`, turns in
`__eot__`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from turnwise.core.dialogue import RIGHT_RESPONSE, WRONG_RESPONSE, peer
from turnwise.corpus.readers.shared.annotations import split_of
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_PATTERNS = ("*.txt", "*.csv", "test", "train", "valid")


@dataclass(frozen=True, slots=True)
class Candidates:
    """A context, its candidate responses, and which of them are right."""

    context: tuple[str, ...]
    responses: tuple[str, ...]
    labels: tuple[bool, ...]

    @property
    def positives(self) -> tuple[str, ...]:
        """The right responses."""
        return tuple(response for response, right in zip(self.responses, self.labels, strict=True) if right)


def read(source: CorpusSource) -> Dialogues:
    """Read each context with its first right response, if it has one, as a dialogue of two alternating speakers.

    Wrong responses are left out.
    """
    for path in source.files(*_PATTERNS):
        for line, candidates in read_candidates(source, path):
            source.skipped["negative responses"] += len(candidates.responses) - len(candidates.positives)
            source.skipped["further right responses"] += max(0, len(candidates.positives) - 1)
            source.skipped["contexts without a right response (their turns are kept)"] += not candidates.positives
            with source.dialogue(path, line, split_of(path.stem)) as builder:
                builder.id = f"{source.relative_name(path)}/{line}"
                for position, text in enumerate((*candidates.context, *candidates.positives[:1])):
                    builder.add_turn(peer(1 + position % 2), text)
            yield from builder.result()


def read_labelled(source: CorpusSource) -> Dialogues:
    """Read every candidate, right or wrong, as a dialogue, for training re-rankers on a corpus' own negatives.

    A dialogue is the context, with two alternating speakers, and the candidate, whose intent is 'right response' or
    'wrong response'. Other methods would learn from the wrong responses: for them use the reader `responses`.
    """
    for path in source.files(*_PATTERNS):
        for line, candidates in read_candidates(source, path):
            for number, (response, right) in enumerate(zip(candidates.responses, candidates.labels, strict=True), 1):
                with source.dialogue(path, line, split_of(path.stem)) as builder:
                    builder.id = f"{source.relative_name(path)}/{line}/{number}"
                    for position, text in enumerate(candidates.context):
                        builder.add_turn(peer(1 + position % 2), text)
                    context_turns = len(builder.turns)
                    intent = RIGHT_RESPONSE if right else WRONG_RESPONSE
                    builder.add_turn(peer(1 + len(candidates.context) % 2), response, intent)
                    if not 0 < context_turns < len(builder.turns):
                        raise ValueError("a non-blank context and response are expected")
                yield from builder.result()


def read_candidates(source: CorpusSource, path: Path) -> Iterator[tuple[int, Candidates]]:
    """Yield the contexts of a file (.csv: Ubuntu V2's layout), each with the line of its first candidate."""
    rows = _csv_candidates(source, path) if path.suffix == ".csv" else _text_candidates(source, path)
    for context, group in groupby(rows, key=lambda row: row[1]):
        lines, _, responses, labels = zip(*group, strict=True)
        yield lines[0], Candidates(context, responses, labels)


_LabelledResponse = tuple[int, tuple[str, ...], str, bool]  # line, context, response, and whether it is right


def _text_candidates(source: CorpusSource, path: Path) -> Iterator[_LabelledResponse]:
    for number, line in source.lines(path):
        if not line:
            continue
        label, *turns = line.split("\t")
        if label not in ("0", "1") or len(turns) < 2:
            reason = "expected 0 or 1, at least one turn, and a response, separated by tabs"
            source.reject(path, number, "dialogue", reason, text=line)
            continue
        yield number, tuple(turns[:-1]), turns[-1], label == "1"


def _csv_candidates(source: CorpusSource, path: Path) -> Iterator[_LabelledResponse]:
    for number, row in source.csv_rows(path):
        with source.guard(path, number):
            context = tuple(_join_utterances(turn) for turn in (row["Context"] or "").split("__eot__") if turn.strip())
            if "Label" in row:
                yield number, context, _join_utterances(row["Utterance"] or ""), float(row["Label"] or 0) == 1
                continue
            yield number, context, _join_utterances(row["Ground Truth Utterance"] or ""), True
            for column, response in row.items():
                if column.startswith("Distractor_"):
                    yield number, context, _join_utterances(response or ""), False


def _join_utterances(turn: str) -> str:
    return " ".join(piece.strip() for piece in turn.split("__eou__") if piece.strip())
