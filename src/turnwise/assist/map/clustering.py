"""Clusters of texts by their vectors, with names made of characteristic words, and representatives.

HDBSCAN finds groups of any size and shape in few dimensions, and leaves outliers. Real logs have many of those.
Outliers that are as close to the centroid of a cluster as most of its members become members too.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from turnwise.assist.map.reduction import DimensionReduction
from turnwise.core.text import UNSPACED
from turnwise.core.types import Vectors, normalise_vectors

#: The label of a text in no cluster.
NO_CLUSTER = -1

Labels = npt.NDArray[np.int32]

#: An outlier is near a cluster if it is closer to the centroid than this fraction of the members.
_NEAR_QUANTILE = 0.1

#: Neighbours that vote for the cluster of an outlier, and the upper bound of HDBSCAN's min_samples.
_NEIGHBOURS, _MAX_MIN_SAMPLES = 10, 5

#: Numbers of representatives, of words that describe a cluster, of words in its name, and of members among which
#: representatives are chosen.
_REPRESENTATIVES, _WORDS, _NAME_WORDS, _CANDIDATES = 5, 10, 3, 1_000

#: Not part of a name: masked personal data such as [PHONE] or [NAME_3], HTML tags and entities, and web addresses.
_NOT_WORDS = re.compile(r"\[[A-Z][A-Z0-9_-]*\]|</?[A-Za-z][^<>]*>|&#?\w+;|\bhttps?://\S+|\bwww\.\S+")

#: Small talk ends conversations: its rate of last turns is at least the first number, and the second number times that
#: of all texts. Or it repeats itself: its texts are shorter than others and occur the third number times as often.
_LAST_TURNS, _MORE_LAST_TURNS, _REPETITION = 0.6, 2.5, 3

#: A word starts with a letter and may contain apostrophes and hyphens. Runs of Chinese or Japanese stand alone.
_WORD = re.compile(rf"[{UNSPACED}]+|(?<![^\W{UNSPACED}])[^\W\d_{UNSPACED}][^\W{UNSPACED}]*(?:['’-][^\W{UNSPACED}]+)*")
_UNSPACED_RUN = re.compile(f"[{UNSPACED}]+")
_LONGEST_UNSPACED = 3  # letters of a word; longer runs are several words


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of texts."""

    number: int  # its label; the largest has 0
    name: str  # its most characteristic words; unique among the clusters
    words: tuple[str, ...]  # words and word pairs more frequent in it than elsewhere, the most characteristic first
    size: int  # the number of distinct texts
    utterances: int  # the number of their occurrences
    representatives: tuple[int, ...]  # rows of texts that cover the cluster, the most central first
    small_talk: bool = False  # whether it has all small talk; such a cluster is the last


def find_clusters(reduction: DimensionReduction) -> Labels:
    """Return the cluster of each vector, numbered by decreasing size from 0; -1 for none."""
    vectors, settings, progress = reduction.vectors, reduction.settings, reduction.progress
    minimum = settings.min_cluster_size or default_min_cluster_size(len(vectors))
    if len(vectors) < 2 * minimum:  # too few for two clusters
        return np.full(len(vectors), NO_CLUSTER, np.int32)
    from sklearn.cluster import HDBSCAN

    points = reduction.reduce_for_clustering()
    progress("finding clusters", 0)
    model = HDBSCAN(min_cluster_size=minimum, min_samples=min(minimum, _MAX_MIN_SAMPLES), copy=True, n_jobs=-1)
    labels = model.fit_predict(points).astype(np.int32)
    if settings.outliers != "none":
        labels = _assign_outliers(vectors, points, labels, assign_all=settings.outliers == "all")
    progress("finding clusters", 1, 1)
    return _renumber_by_size(labels)


def default_min_cluster_size(count: int) -> int:
    """Return a quarter of the square root of the number of texts, at least 5."""
    return max(5, round(math.sqrt(count) / 4))


def _assign_outliers(vectors: Vectors, points: Vectors, labels: Labels, assign_all: bool) -> Labels:
    """Assign outliers to the cluster of most of their neighbours, if they are near it or all are to be assigned."""
    outside, inside = np.flatnonzero(labels == NO_CLUSTER), np.flatnonzero(labels != NO_CLUSTER)
    if not len(outside) or not len(inside):
        return labels
    from sklearn.neighbors import KNeighborsClassifier

    neighbours = KNeighborsClassifier(min(_NEIGHBOURS, len(inside)), weights="distance")
    nearest = neighbours.fit(points[inside], labels[inside]).predict(points[outside]).astype(np.int32)
    centroids = compute_centroids(vectors, labels)
    cosines = (vectors[inside] * centroids[labels[inside]]).sum(1)
    by_cluster = (cosines[labels[inside] == number] for number in range(len(centroids)))
    limits = np.array([np.quantile(members, _NEAR_QUANTILE) for members in by_cluster])
    is_near = assign_all | ((vectors[outside] * centroids[nearest]).sum(1) >= limits[nearest])
    assigned = labels.copy()
    assigned[outside[is_near]] = nearest[is_near]
    return assigned


def _renumber_by_size(labels: Labels) -> Labels:
    """Renumber clusters by decreasing size; ties by their first row."""
    numbers, first, sizes = np.unique(labels[labels != NO_CLUSTER], return_index=True, return_counts=True)
    order = numbers[np.lexsort((first, -sizes))]
    renumbered = np.full(len(order) + 1, NO_CLUSTER, np.int32)
    renumbered[order] = np.arange(len(order))
    return renumbered[labels]


def separate_small_talk(
    texts: Sequence[str], labels: Labels, counts: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
) -> tuple[Labels, bool]:
    """Merge clusters of small talk, such as thanks and goodbyes, into the last one; return whether there is any.

    It is recognised in any language, without labels: `counts` are the occurrences of each text, `last` those that are
    their speaker's last turn of several in a conversation.
    """
    inside = labels != NO_CLUSTER
    if not inside.any():
        return labels, False
    groups, weights = labels[inside], counts[inside]
    sizes = np.bincount(groups)
    totals = np.bincount(groups, weights)
    lengths = np.bincount(groups, weights * np.array([len(text) for text in texts])[inside]) / totals
    endings = np.bincount(groups, last[inside]) / totals
    ends = (endings >= _LAST_TURNS) & (endings >= _MORE_LAST_TURNS * last.sum() / counts.sum())
    repeats = totals / sizes >= _REPETITION * totals.sum() / sizes.sum()
    small_talk = ends | (repeats & (lengths < np.average(lengths, weights=totals)))
    if not small_talk.any():
        return labels, False
    renumbered = np.append(np.cumsum(~small_talk) - 1, NO_CLUSTER)  # the last for NO_CLUSTER
    renumbered[:-1][small_talk] = len(sizes) - small_talk.sum()
    return renumbered[labels].astype(np.int32), True


def compute_centroids(vectors: Vectors, labels: npt.NDArray[np.integer], count: int | None = None) -> Vectors:
    """Return the normalised mean vector of each cluster (clusters, dimensions); `count` are the clusters, if known."""
    from scipy.sparse import csr_matrix

    count = int(labels.max(initial=NO_CLUSTER)) + 1 if count is None else count
    rows = np.flatnonzero(labels != NO_CLUSTER)
    members = csr_matrix((np.ones(len(rows)), (labels[rows], rows)), shape=(count, len(vectors)))
    sums = np.asarray(members @ vectors)
    return normalise_vectors(sums)


# ---- descriptions


def describe_clusters(
    texts: Sequence[str],
    labels: npt.NDArray[np.integer],
    vectors: Vectors,
    counts: Sequence[int] | npt.NDArray[np.integer] | None = None,
) -> list[Cluster]:
    """Return names, characteristic words, sizes and representatives of clusters, sorted by number.

    `labels` has the cluster of each text, -1 for none, and numbers may have gaps; vectors are normalised (texts,
    dimensions); `counts` are the occurrences of each text, None: one each.
    """
    occurrences = np.ones(len(texts), np.int64) if counts is None else np.asarray(counts, np.int64)
    numbers = np.unique(labels[labels != NO_CLUSTER])
    words = _characteristic_words(texts, labels, numbers, occurrences)
    clusters = []
    for number, name, terms in zip(numbers, _unique_names(words, numbers), words, strict=True):
        rows = np.flatnonzero(labels == number)
        representatives = tuple(rows[_choose_representatives(vectors[rows], occurrences[rows])].tolist())
        clusters.append(Cluster(int(number), name, terms, len(rows), int(occurrences[rows].sum()), representatives))
    return clusters


def _characteristic_words(
    texts: Sequence[str],
    labels: npt.NDArray[np.integer],
    numbers: npt.NDArray[np.integer],
    occurrences: npt.NDArray[np.int64],
) -> list[tuple[str, ...]]:
    """Return the words and word pairs of each cluster by a c-TF-IDF over utterances.

    The weight of a term is p·log(p/q)·log(1/r): p is the fraction of the cluster's utterances that contain it, q that
    of all utterances, r that of its more frequent word. A text counts as often as it occurs. Common words ("I", "the",
    in any language) have a low weight, alone and in pairs. Masks, markup and web addresses are left out.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(analyzer=_list_terms, binary=True, dtype=np.int64)
    try:
        contains = counter.fit_transform(_NOT_WORDS.sub(" ", text) for text in texts).tocsr()
    except ValueError:  # no text contains a word
        return [()] * len(numbers)
    terms = counter.get_feature_names_out()
    overall = contains.T @ occurrences / occurrences.sum()
    columns = counter.vocabulary_
    word_frequency = np.array([max(overall[columns[word]] for word in term.split(" ")) for term in terms])
    words = []
    for number in numbers:
        rows = np.flatnonzero(labels == number)
        total = int(occurrences[rows].sum())
        frequency = contains[rows].T @ occurrences[rows]
        # a term of a single utterance does not describe the others
        present = np.flatnonzero(frequency >= min(2, total))
        fraction = frequency[present] / total
        weights = fraction * np.log(fraction / overall[present]) * -np.log(word_frequency[present])
        order = np.lexsort((terms[present], -weights))
        words.append(_without_overlap(terms[present[place]] for place in order if weights[place] > 0))
    return words


def _list_terms(text: str) -> list[str]:
    """Return words and pairs of consecutive words; of longer Chinese or Japanese runs, pairs of consecutive letters."""
    terms: list[str] = []
    previous = ""
    for word in _WORD.findall(text.lower()):
        if len(word) > _LONGEST_UNSPACED and _UNSPACED_RUN.fullmatch(word):
            terms += [first + second for first, second in pairwise(word)]
            previous = ""
            continue
        terms.append(word)
        if previous:
            terms.append(f"{previous} {word}")
        previous = word
    return terms


def _without_overlap(terms: Iterable[str]) -> tuple[str, ...]:
    """Return the first terms that share no word with a term before them; of Chinese or Japanese, no letter."""
    chosen: list[str] = []
    seen: set[str] = set()
    for term in terms:
        parts = term if _UNSPACED_RUN.fullmatch(term) else term.split()
        if len(chosen) < _WORDS and seen.isdisjoint(parts):
            chosen.append(term)
            seen.update(parts)
    return tuple(chosen)


def _unique_names(words: Sequence[tuple[str, ...]], numbers: npt.NDArray[np.integer]) -> list[str]:
    """Return the first words of each cluster; more words, or its number, if an earlier cluster has the same name."""
    names: list[str] = []
    for terms, number in zip(words, numbers, strict=True):
        longer = (", ".join(terms[:count]) for count in range(min(_NAME_WORDS, len(terms)), len(terms) + 1))
        names.append(next((name for name in longer if name and name not in names), f"cluster {number}"))
    return names


def _choose_representatives(vectors: Vectors, counts: npt.NDArray[np.int64]) -> list[int]:
    """Return the members that together are closest to all, by greedy facility location weighted by occurrences."""
    rows = np.arange(0, len(vectors), -(-len(vectors) // _CANDIDATES))
    cosines = vectors[rows] @ vectors[rows].T
    covered = np.full(len(rows), -1.0, np.float32)
    chosen: list[int] = []
    for _ in range(min(_REPRESENTATIVES, len(rows))):
        gains = (np.maximum(cosines - covered[:, None], 0) * counts[rows, None]).sum(0)
        gains[chosen] = -1
        best = int(gains.argmax())
        chosen.append(best)
        covered = np.maximum(covered, cosines[:, best])
    return [int(rows[place]) for place in chosen]
