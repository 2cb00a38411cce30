"""Pairs of turns for human similarity judgements, and gold scores from them: D-STS, as DialogueCSE builds it.

The paper (section 5.1.2) samples pairs in three ways, so that enough of them are similar: neighbours by their
words, neighbours by their vectors, and two random turns of one intent. Annotators rate the similarity in meaning
from 1 to 5; the median of the ratings is the gold score.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.neighbors import NearestNeighbors

from turnwise.core.errors import CorpusError
from turnwise.core.files import csv_text, unescape_formula
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.retrieval import LabelledTurn, split_words
from turnwise.evaluation.datasets.sentence_pairs import SimilarityPair

PairSource = Literal["words", "vectors", "label"]

COLUMNS = ("id", "first", "second", "source", "score")

#: A turn is paired with one of this many nearest neighbours, so that not every pair is as similar as possible.
NEIGHBOURS = 10

_QUERY_SIZE = 256  # number of turns in one query for neighbours


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two texts, each on one line, to be rated."""

    id: str
    first: str
    second: str
    source: PairSource  # why they are a pair: neighbours by their 'words' or 'vectors', or of the same 'label'


def sample_pairs(
    turns: Sequence[LabelledTurn], encoder: SupportsEncode | None, count: int, seed: int = 0
) -> list[CandidatePair]:
    """Sample distinct pairs, in random order and with their texts in random order.

    A third each are neighbours by words (cosine of their sets of words), neighbours by vectors (cosine) and turns of
    one label; without an encoder, half each by words and by label. If `count` is not divisible, the earlier sources
    have one pair more. Every turn starts a pair before any turn starts a second one from the same source. Raises
    CorpusError if the turns, distinct texts as `labelled_turns` returns them, do not give enough pairs.
    """
    random = np.random.default_rng(seed)
    texts = [" ".join(turn.text.split()) for turn in turns]
    try:
        words = CountVectorizer(analyzer=split_words, binary=True, dtype=np.float32).fit_transform(texts)
    except ValueError:
        raise CorpusError(f"none of {len(texts)} texts contains a word") from None
    sources: dict[PairSource, Iterator[tuple[int, int]]] = {"words": _neighbour_pairs(words, random)}
    if encoder is not None:
        sources["vectors"] = _neighbour_pairs(encoder.encode(texts, normalise=True), random)
    sources["label"] = _same_label_pairs([turn.label for turn in turns], random)
    sampled: dict[tuple[int, int], PairSource] = {}
    for number, (source, pairs) in enumerate(sources.items()):
        before, share = len(sampled), (count + len(sources) - 1 - number) // len(sources)
        for pair in pairs:
            if len(sampled) == before + share:
                break
            sampled.setdefault((min(pair), max(pair)), source)
        if len(sampled) < before + share:
            raise CorpusError(
                f"the turns give {len(sampled) - before} new pairs by {source}, but {share} are needed: ask for fewer,"
                " or use more turns"
            )
    items = list(sampled.items())
    candidates = []
    for number, index in enumerate(random.permutation(len(items)).tolist(), start=1):
        pair, source = items[index]
        first, second = random.permutation(pair).tolist()
        candidates.append(CandidatePair(str(number), texts[first], texts[second], source))
    return candidates


def write_pairs(path: Path, pairs: Sequence[CandidatePair]) -> None:
    """Write pairs as CSV with an empty column for the scores; every annotator fills in a copy."""
    text = csv_text(COLUMNS, ((pair.id, pair.first, pair.second, pair.source, "") for pair in pairs))
    path.write_text(text, encoding="utf-8", newline="")


def read_gold_pairs(paths: Sequence[Path]) -> list[SimilarityPair]:
    """Return the pairs of annotated files with the medians of their scores, in the order of the first file.

    There is one file per annotator, as written by `write_pairs`, with scores from 1 to 5. Raises CorpusError if a
    file is malformed, a score is missing or out of range, or files differ in their pairs.
    """
    annotations = [_read_scores(path) for path in paths]
    for path, pairs in zip(paths[1:], annotations[1:], strict=True):
        _check_same_pairs(paths[0], annotations[0], path, pairs)
    return [
        SimilarityPair(pair.first, pair.second, float(median(pairs[identity].score for pairs in annotations)))
        for identity, pair in annotations[0].items()
    ]


def write_gold(path: Path, pairs: Sequence[SimilarityPair]) -> None:
    """Write pairs in D-STS's layout: score, first and second text, separated by tabs; white space becomes one space."""
    lines = [f"{pair.score:g}\t{' '.join(pair.first.split())}\t{' '.join(pair.second.split())}\n" for pair in pairs]
    path.write_text("".join(lines), encoding="utf-8", newline="")


# ---- sampling: every source yields pairs of indices, spread over all turns first; pairs may repeat


def _neighbour_pairs(vectors: Any, random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Yield every turn with a random neighbour of positive cosine, then every turn with a second one, …."""
    count = vectors.shape[0]
    index = NearestNeighbors(n_neighbors=min(NEIGHBOURS + 1, count), metric="cosine").fit(vectors)
    order = random.permutation(count)
    neighbours: list[npt.NDArray[np.int64]] = []
    for start in range(0, count, _QUERY_SIZE):
        anchors = order[start : start + _QUERY_SIZE]
        distances, nearest = index.kneighbors(vectors[anchors])
        for anchor, distance, others in zip(anchors, distances, nearest, strict=True):
            neighbours.append(random.permutation(others[(others != anchor) & (distance < 1 - 1e-6)][:NEIGHBOURS]))
            if len(neighbours[-1]):
                yield int(anchor), int(neighbours[-1][0])
    for rank in range(1, NEIGHBOURS):
        for anchor, others in zip(order, neighbours, strict=True):
            if len(others) > rank:
                yield int(anchor), int(others[rank])


def _same_label_pairs(labels: Sequence[str], random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Yield all pairs of one label: with its turns in a random circle, first adjacent ones, then at distance 2, …."""
    circles: dict[str, list[int]] = defaultdict(list)
    for index in random.permutation(len(labels)).tolist():
        circles[labels[index]].append(index)
    for distance in range(1, max(map(len, circles.values()), default=0) // 2 + 1):
        for circle in circles.values():
            if distance <= len(circle) // 2:
                yield from ((index, circle[(i + distance) % len(circle)]) for i, index in enumerate(circle))


class _ScoredPair(NamedTuple):
    line: int
    first: str
    second: str
    score: int


_Pairs = dict[str, _ScoredPair]


def _read_scores(path: Path) -> _Pairs:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            if not set(COLUMNS) <= set(reader.fieldnames or ()):
                raise CorpusError(f"{path}, line 1: the columns are not {','.join(COLUMNS)}: give an exported file")
            pairs: _Pairs = {}
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                if row["id"] in pairs:
                    raise CorpusError(f"{where}: pair {row['id']} occurs a second time: remove one of the two")
                # a spreadsheet may write 4 as 4.0
                score = (row["score"] or "").strip().removesuffix(".0")
                if score not in ("1", "2", "3", "4", "5"):
                    raise CorpusError(f"{where}: the score must be 1, 2, 3, 4 or 5, got {row['score']!r}")
                first, second = unescape_formula(row["first"]), unescape_formula(row["second"])
                pairs[row["id"]] = _ScoredPair(reader.line_num, first, second, int(score))
            return pairs
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{path} cannot be read as CSV in UTF-8: {error}") from None


def _check_same_pairs(path: Path, pairs: _Pairs, other_path: Path, other_pairs: _Pairs) -> None:
    for one, ours, other, theirs in ((path, pairs, other_path, other_pairs), (other_path, other_pairs, path, pairs)):
        missing = next((identity for identity in ours if identity not in theirs), None)
        if missing is not None:
            raise CorpusError(
                f"{other} has no pair {missing}, which is in {one}, line {ours[missing].line}: all files need all pairs"
            )
    for identity, pair in pairs.items():
        other_pair = other_pairs[identity]
        if (pair.first, pair.second) != (other_pair.first, other_pair.second):
            raise CorpusError(
                f"{other_path}, line {other_pair.line}: the texts of pair {identity} differ from {path}, line"
                f" {pair.line}: annotators must change only the scores"
            )
