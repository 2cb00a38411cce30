"""Clusters of texts by their vectors, with names from the words that are characteristic of them, and representatives.

HDBSCAN finds groups of any size and shape in few dimensions, and says which texts belong to none. Those are many in real logs, so
that the ones that are as near to the middle of a cluster as its own members mostly are get to be members too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from turnwise.assist.map.reduction import Method, Reduction, Vectors
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent

#: The label of a text that is in no cluster.
NONE = -1

#: What becomes of texts that are in no cluster at first: the near ones get the nearest, all do, or they stay out.
Outliers = Literal["near", "all", "none"]

Labels = npt.NDArray[np.int32]

#: A text counts as near where it is nearer to a cluster's middle than this share of its members.
_FARTHEST = 0.1

#: Neighbours in the reduced dimensions that say which cluster is the nearest, and HDBSCAN's measure of density.
_NEIGHBOURS, _DENSITY = 10, 5

#: Representatives of a cluster, words that describe it, words in its name, and members that representatives are chosen among.
_REPRESENTATIVES, _WORDS, _NAMED, _CANDIDATES = 5, 10, 3, 1_000

#: A word begins with a letter; an apostrophe or a hyphen may stand within.
_WORD = r"\b[^\W\d_]\w*(?:['’-]\w+)*"


class ClusteringError(TurnwiseError):
    """Texts cannot be clustered as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Texts that belong together.

    Attributes:
        number: its label; the largest cluster has 0.
        name: its most characteristic words; no two clusters have one name.
        words: words and pairs of words that are more frequent in it than elsewhere, the most characteristic first.
        size: how many texts it holds.
        utterances: how often these were said.
        representatives: rows of texts that together stand for all of it, the most central first.
    """

    number: int
    name: str
    words: tuple[str, ...]
    size: int
    utterances: int
    representatives: tuple[int, ...]


def cluster(
    vectors: Vectors,
    *,
    least: int | None = None,
    outliers: Outliers = "near",
    method: Method = "umap",
    seed: int = 0,
    progress: Progress = silent,
) -> Labels:
    """The cluster of each vector, from 0, the largest first; −1: none.

    Args:
        vectors: of length 1 (texts, size).
        least: texts of the smallest cluster; None: see `least_for`.
        outliers: what becomes of texts in no cluster.
        method: how dimensions are reduced.
        seed: of all that is drawn at random.
        progress: told how far it is.

    Raises:
        ClusteringError: if `least` is below 2.
        ReductionError: if the vectors cannot be used, or the method is not installed.
    """
    return cluster_reduced(
        Reduction(vectors, method, seed=seed, progress=progress), least=least, outliers=outliers, progress=progress
    )


def cluster_reduced(
    reduction: Reduction, *, least: int | None = None, outliers: Outliers = "near", progress: Progress = silent
) -> Labels:
    """What `cluster` gives, for dimensions that are reduced already or will be needed again."""
    vectors = reduction.vectors
    least = least_for(len(vectors)) if least is None else least
    if least < 2:
        raise ClusteringError(f"the smallest cluster is to hold {least} texts: give 2 or more")
    if len(vectors) < 2 * least:  # too few for two clusters, and one would say nothing
        return np.full(len(vectors), NONE, np.int32)
    from sklearn.cluster import HDBSCAN

    points = reduction.for_clusters()
    progress("finding clusters", 0)
    labels = HDBSCAN(min_cluster_size=least, min_samples=min(least, _DENSITY), copy=True, n_jobs=-1).fit_predict(points)
    labels = labels.astype(np.int32)
    if outliers != "none":
        labels = _taken_in(vectors, points, labels, everything=outliers == "all")
    progress("finding clusters", 1, 1)
    return _by_size(labels)


def least_for(count: int) -> int:
    """Texts of the smallest cluster among `count` texts: a quarter of the square root, and 5 at least."""
    return max(5, round(math.sqrt(count) / 4))


def _taken_in(vectors: Vectors, points: Vectors, labels: Labels, everything: bool) -> Labels:
    """Gives texts in no cluster the one that most of their neighbours are in, where they are near to it or all are wanted."""
    outside, inside = np.flatnonzero(labels == NONE), np.flatnonzero(labels != NONE)
    if not len(outside) or not len(inside):
        return labels
    from sklearn.neighbors import KNeighborsClassifier

    neighbours = KNeighborsClassifier(min(_NEIGHBOURS, len(inside)), weights="distance").fit(
        points[inside], labels[inside]
    )
    nearest = neighbours.predict(points[outside]).astype(np.int32)
    if everything:
        near = np.ones(len(outside), bool)
    else:
        middles = centroids(vectors, labels)
        members = (vectors[inside] * middles[labels[inside]]).sum(1)
        limits = np.array([np.quantile(members[labels[inside] == number], _FARTHEST) for number in range(len(middles))])
        near = (vectors[outside] * middles[nearest]).sum(1) >= limits[nearest]
    taken = labels.copy()
    taken[outside[near]] = nearest[near]
    return taken


def _by_size(labels: Labels) -> Labels:
    """The same clusters, numbered from the largest; of equal ones the one that comes first has the lower number."""
    numbers, first, sizes = np.unique(labels[labels != NONE], return_index=True, return_counts=True)
    order = numbers[np.lexsort((first, -sizes))]
    renamed = np.full(len(order) + 1, NONE, np.int32)
    renamed[order] = np.arange(len(order))
    return renamed[labels]


def centroids(vectors: Vectors, labels: Labels) -> Vectors:
    """The mean of each cluster's vectors, scaled to length 1 (clusters, size); labels are 0, 1, …, and −1 for none."""
    count = int(labels.max(initial=NONE)) + 1
    sums = np.zeros((count, vectors.shape[1]))
    inside = labels != NONE
    np.add.at(sums, labels[inside], vectors[inside])
    scaled: Vectors = (sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    return scaled


# ---- what a cluster is about


def describe(
    texts: Sequence[str],
    labels: npt.NDArray[np.integer],
    vectors: Vectors,
    counts: Sequence[int] | npt.NDArray[np.integer] | None = None,
) -> list[Cluster]:
    """Names, characteristic words, sizes and representatives of clusters, in the order of their numbers.

    Args:
        texts: what was clustered.
        labels: the cluster of each; −1: none. Any numbers will do, also with gaps.
        vectors: of length 1 (texts, size).
        counts: how often each text was said; None: once.

    Raises:
        ClusteringError: if there are not as many labels, vectors or counts as texts.
    """
    said = np.ones(len(texts), np.int64) if counts is None else np.asarray(counts, np.int64)
    if not len(texts) == len(labels) == len(vectors) == len(said):
        raise ClusteringError(
            f"there are {len(texts)} texts, {len(labels)} labels, {len(vectors)} vectors and {len(said)} counts: give each text one"
        )
    numbers = np.unique(labels[labels != NONE])
    words = _characteristic(texts, labels, numbers)
    names = _names(words, numbers)
    clusters = []
    for number, name, terms in zip(numbers, names, words, strict=True):
        rows = np.flatnonzero(labels == number)
        representatives = rows[_central(vectors[rows], said[rows])]
        clusters.append(
            Cluster(
                int(number), name, terms, len(rows), int(said[rows].sum()), tuple(int(row) for row in representatives)
            )
        )
    return clusters


def _characteristic(
    texts: Sequence[str], labels: npt.NDArray[np.integer], numbers: npt.NDArray[np.integer]
) -> list[tuple[str, ...]]:
    """For each cluster its words and pairs of words by a c-TF-IDF that is taken over texts.

    A term's weight is p·log(p/q)·log(1/r): p is the share of the cluster's texts that hold it, q the share of all texts, r that of
    its more frequent word. So it counts how frequent a term is there and how rare elsewhere; what is said everywhere ("I", "the",
    in any language) counts for little, alone and in pairs.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(token_pattern=_WORD, ngram_range=(1, 2), binary=True, dtype=np.int32)
    try:
        held = counter.fit_transform(texts).tocsr()
    except ValueError:  # not a word in any text
        return [()] * len(numbers)
    terms = counter.get_feature_names_out()
    overall = np.asarray(held.sum(0)).ravel() / len(texts)
    places = counter.vocabulary_
    commonest = np.array([max(overall[places[word]] for word in term.split(" ")) for term in terms])
    found = []
    for number in numbers:
        rows = np.flatnonzero(labels == number)
        frequency = np.asarray(held[rows].sum(0)).ravel()
        # a term of a single text says nothing of the others
        present = np.flatnonzero(frequency >= min(2, len(rows)))
        share = frequency[present] / len(rows)
        weights = share * np.log(share / overall[present]) * -np.log(commonest[present])
        order = np.lexsort((terms[present], -weights))
        found.append(_unlike([terms[present[place]] for place in order if weights[place] > 0]))
    return found


def _unlike(terms: Sequence[str]) -> tuple[str, ...]:
    """The first terms, without those whose words all stand in terms before them, or that only add to one of them."""
    chosen: list[str] = []
    seen: set[str] = set()
    for term in terms:
        words = set(term.split())
        if not words & seen:
            chosen.append(term)
            seen |= words
            if len(chosen) == _WORDS:
                break
    return tuple(chosen)


def _names(words: Sequence[tuple[str, ...]], numbers: npt.NDArray[np.integer]) -> list[str]:
    """The first words of each; where two clusters share a name, the later one says more, or its number."""
    names: list[str] = []
    for terms, number in zip(words, numbers, strict=True):
        longer = (", ".join(terms[:count]) for count in range(min(_NAMED, len(terms)), len(terms) + 1))
        names.append(next((name for name in longer if name and name not in names), f"cluster {number}"))
    return names


def _central(vectors: Vectors, counts: npt.NDArray[np.int64]) -> list[int]:
    """The members that together lie nearest to all, by greedy facility location, weighted by how often each was said.

    Of a large cluster every second, third, … member is looked at, so that it costs no more than one of a thousand.
    """
    looked = np.arange(0, len(vectors), -(-len(vectors) // _CANDIDATES))
    cosines = vectors[looked] @ vectors[looked].T
    covered = np.full(len(looked), -1.0, np.float32)
    chosen: list[int] = []
    for _ in range(min(_REPRESENTATIVES, len(looked))):
        gains = (np.maximum(cosines - covered[:, None], 0) * counts[looked, None]).sum(0)
        gains[chosen] = -1
        best = int(gains.argmax())
        chosen.append(best)
        covered = np.maximum(covered, cosines[:, best])
    return [int(looked[place]) for place in chosen]
