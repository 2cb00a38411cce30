"""Pairs of turns for people to judge, and what comes of their judgements: D-STS, as DialogueCSE builds it.

The paper (section 5.1.2) draws pairs in three ways, so that enough of them are alike: neighbours by their words, neighbours by
their vectors, and two turns of one intent at random. People say on a scale from 1 to 5 how close in meaning the two are; the median
of what they say is the gold score.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.neighbors import NearestNeighbors

from turnwise.core.errors import TurnwiseError
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.construction import LabelledTurn, words
from turnwise.evaluation.datasets.similarity import TextPair

Source = Literal["words", "vectors", "label"]

COLUMNS = ("id", "first", "second", "source", "score")

#: A turn is paired with one of so many nearest others, so that not every pair is as close as can be.
NEIGHBOURS = 10

#: Turns whose neighbours are looked up at once.
_BLOCK = 256


class AnnotationError(TurnwiseError):
    """Pairs cannot be made, or what annotators gave back does not fit together."""


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two texts to be judged.

    Attributes:
        id: unique among the pairs.
        first: a text on one line.
        second: another.
        source: why they are a pair: near by their 'words', near by their 'vectors', or of the same 'label'.
    """

    id: str
    first: str
    second: str
    source: Source


def candidate_pairs(
    turns: Sequence[LabelledTurn],
    encoder: SupportsEncode | None,
    count: int,
    seed: int = 0,
    *,
    max_length: int | None = None,
) -> list[CandidatePair]:
    """Pairs to be judged, in random order, each with its two texts in random order; no pair occurs twice.

    A third each are neighbours by their words (cosine of sets of words), neighbours by their vectors (cosine) and two turns of one
    label; without an encoder, a half each by words and by label. Where `count` does not divide evenly, the earlier ways give one
    pair more. Every turn starts a pair before any turn starts a second one of the same way.

    Args:
        turns: distinct texts with their labels, as `labelled_turns` gives them.
        encoder: gives the vectors.
        count: how many pairs.
        seed: of everything that is drawn.
        max_length: of texts, in tokens; None: the encoder's own.

    Raises:
        AnnotationError: if the turns do not give so many pairs.
    """
    random = np.random.default_rng(seed)
    texts = [" ".join(turn.text.split()) for turn in turns]
    if len(set(texts)) < len(texts):
        raise AnnotationError("a text is there twice: give distinct texts, as `labelled_turns` does")
    ways: dict[Source, Iterator[tuple[int, int]]] = {"words": _near(_bags(texts), random)}
    if encoder is not None:
        ways["vectors"] = _near(encoder.encode(texts, normalise=True, max_length=max_length), random)
    ways["label"] = _same_label([turn.label for turn in turns], random)
    drawn: dict[tuple[int, int], Source] = {}
    for number, (source, pairs) in enumerate(ways.items()):
        _draw(drawn, source, pairs, (count + len(ways) - 1 - number) // len(ways))
    chosen = list(drawn.items())
    made = []
    for number, place in enumerate(random.permutation(len(chosen)).tolist(), start=1):
        pair, source = chosen[place]
        first, second = random.permutation(pair).tolist()
        made.append(CandidatePair(str(number), texts[first], texts[second], source))
    return made


def write_pairs(path: Path, pairs: Sequence[CandidatePair]) -> None:
    """Writes pairs as CSV with an empty column for the scores, one file for every annotator to fill in a copy of."""
    # with a byte order mark, without which spreadsheets take the texts for some other encoding
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows((pair.id, pair.first, pair.second, pair.source, "") for pair in pairs)


def collect(files: Sequence[Path]) -> list[TextPair]:
    """The pairs with the median of their scores, in the order of the first file; of an even number, the mean of the middle two.

    Args:
        files: one an annotator: what `write_pairs` wrote, with scores from 1 to 5.

    Raises:
        AnnotationError: if a file is not such a file, a score is missing or out of range, or two files differ in their pairs.
    """
    if not files:
        raise AnnotationError("name at least one file of judged pairs")
    judged = [_read(path) for path in files]
    for path, pairs in zip(files[1:], judged[1:], strict=True):
        _compare(files[0], judged[0], path, pairs)
    return [
        TextPair(pair.first, pair.second, float(median(pairs[identity].score for pairs in judged)))
        for identity, pair in judged[0].items()
    ]


def write_gold(path: Path, pairs: Sequence[TextPair]) -> None:
    """Writes judged pairs in D-STS's layout: score, first and second text, tab-separated; white space in texts becomes a space."""
    lines = [f"{pair.score:g}\t{' '.join(pair.first.split())}\t{' '.join(pair.second.split())}\n" for pair in pairs]
    path.write_text("".join(lines), encoding="utf-8", newline="")


# ---- how pairs come about: each way gives (place, place), best spread first; pairs may recur


def _bags(texts: Sequence[str]) -> Any:
    """Which words a text holds (texts, words), sparse."""
    try:
        return CountVectorizer(analyzer=words, binary=True, dtype=np.float32).fit_transform(texts)
    except ValueError:
        raise AnnotationError(f"none of {len(texts)} texts holds a word: there is nothing to pair") from None


def _near(vectors: Any, random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Every turn with its neighbours of a cosine above 0, in random order: one for each turn, then a second for each, …."""
    count = vectors.shape[0]
    nearest = NearestNeighbors(n_neighbors=min(NEIGHBOURS + 1, count), metric="cosine").fit(vectors)
    order = random.permutation(count)
    found: list[npt.NDArray[np.int64]] = []
    for start in range(0, count, _BLOCK):
        block = order[start : start + _BLOCK]
        distances, places = nearest.kneighbors(vectors[block])
        for anchor, far, others in zip(block, distances, places, strict=True):
            found.append(random.permutation(others[(others != anchor) & (far < 1 - 1e-6)][:NEIGHBOURS]))
            if len(found[-1]):
                yield int(anchor), int(found[-1][0])
    for turn in range(1, NEIGHBOURS):
        yield from (
            (int(anchor), int(others[turn])) for anchor, others in zip(order, found, strict=True) if len(others) > turn
        )


def _same_label(labels: Sequence[str], random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """All pairs of one label: the turns of a label stand in a circle in random order; first next ones, then every other one, …."""
    circles: dict[str, list[int]] = defaultdict(list)
    for place in random.permutation(len(labels)).tolist():
        circles[labels[place]].append(place)
    for step in range(1, max(map(len, circles.values()), default=0) // 2 + 1):
        for circle in circles.values():
            if step <= len(circle) // 2:
                yield from ((place, circle[(number + step) % len(circle)]) for number, place in enumerate(circle))


def _draw(drawn: dict[tuple[int, int], Source], source: Source, pairs: Iterator[tuple[int, int]], wanted: int) -> None:
    before = len(drawn)
    for first, second in pairs:
        if len(drawn) == before + wanted:
            return
        drawn.setdefault((min(first, second), max(first, second)), source)
    if len(drawn) < before + wanted:
        raise AnnotationError(
            f"the turns give {len(drawn) - before} new pairs by {source}, {wanted} are wanted: ask for fewer, or take more turns"
        )


# ---- what annotators gave back


@dataclass(frozen=True, slots=True)
class _Judged:
    """A line of a file."""

    line: int
    first: str
    second: str
    score: int


def _read(path: Path) -> dict[str, _Judged]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            if not set(COLUMNS) <= set(reader.fieldnames or ()):
                raise AnnotationError(
                    f"{path}, line 1: the columns are not {','.join(COLUMNS)}: give a file that was exported for judging"
                )
            pairs: dict[str, _Judged] = {}
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                if row["id"] in pairs:
                    raise AnnotationError(
                        f"{where}: pair {row['id']} is there for the second time: leave one of the two"
                    )
                pairs[row["id"]] = _Judged(reader.line_num, row["first"], row["second"], _score(row["score"], where))
            return pairs
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AnnotationError(f"{path} cannot be read as CSV in UTF-8: {error}") from None


def _score(text: str | None, where: str) -> int:
    # a spreadsheet may write 4 as 4.0
    found = {"1": 1, "2": 2, "3": 3, "4": 4, "5": 5}.get((text or "").strip().removesuffix(".0"))
    if found is None:
        raise AnnotationError(f"{where}: the score is {text!r}, not 1, 2, 3, 4 or 5: have the pair judged")
    return found


def _compare(path: Path, pairs: dict[str, _Judged], other_path: Path, others: dict[str, _Judged]) -> None:
    for one, mine, two, theirs in ((path, pairs, other_path, others), (other_path, others, path, pairs)):
        missing = next((identity for identity in mine if identity not in theirs), None)
        if missing is not None:
            raise AnnotationError(
                f"{two} has no pair {missing}, which {one}, line {mine[missing].line} has: every file needs every pair"
            )
    for identity, pair in pairs.items():
        other = others[identity]
        if (pair.first, pair.second) != (other.first, other.second):
            raise AnnotationError(
                f"{other_path}, line {other.line}: the texts of pair {identity} are not those of {path}, line {pair.line}:"
                " annotators fill in the score and leave the rest as it is"
            )
