"""Making a map of a corpus: its texts, each once; their vectors, clusters and places; and what is new since an earlier map."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from turnwise.assist.map.clustering import NONE, Labels, Outliers, cluster_reduced, describe
from turnwise.assist.map.map import Map, MapError, Since, Utterance
from turnwise.assist.map.novelty import Novelty, novelty
from turnwise.assist.map.reduction import Method, Reduction, Vectors
from turnwise.assist.search.neighbours import nearest_neighbours
from turnwise.core.dialogue import Dialogue, same_text
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode

#: Texts that are encoded between two reports of progress.
_PORTION = 1_024

#: Texts of an earlier map that are encoded once more, and how alike their vectors have to be: up to rounding.
_PROBED, _ALIKE = 8, 0.999


def utterances_of(
    corpus: Iterable[Dialogue],
    speakers: Collection[str] | None = None,
    *,
    total: int | None = None,
    progress: Progress = silent,
) -> list[Utterance]:
    """The different texts of a corpus, in the order in which they were first said, each with its count.

    Args:
        corpus: the dialogues.
        speakers: whose turns; None: everybody's.
        total: how many dialogues there are, where that is known.
        progress: told how many dialogues are read.
    """
    first: dict[str, tuple[str, str, int, str]] = {}
    counts: dict[str, int] = {}
    done = 0
    for done, dialogue in enumerate(corpus, 1):
        for place, turn in enumerate(dialogue.turns):
            if speakers is None or turn.speaker in speakers:
                key = same_text(turn.text)
                first.setdefault(key, (turn.text.strip(), dialogue.id, place, turn.speaker))
                counts[key] = counts.get(key, 0) + 1
        if done % _PORTION == 0:
            progress("reading", done, total)
    progress("reading", done, total)
    return [Utterance(*said, counts[key]) for key, said in first.items()]


def make_map(
    encoder: SupportsEncode,
    texts: Sequence[Utterance | str],
    *,
    model: str = "",
    method: Method = "umap",
    least: int | None = None,
    outliers: Outliers = "near",
    since: Map | None = None,
    max_length: int | None = None,
    seed: int = 0,
    vectors: Vectors | None = None,
    progress: Progress = silent,
) -> Map:
    """Makes a map: encodes, finds clusters, lays out, and says what is new since an earlier map.

    Texts that are the same but for case and surrounding space become one, with the sum of their counts. Where there is an earlier
    map, texts start where that one has them, or what is nearest to them, so that the two maps resemble each other.

    Args:
        encoder: makes the vectors.
        texts: what to map.
        model: the encoder's name, to be kept with the map.
        method: UMAP or t-SNE.
        least: texts of the smallest cluster; None: by their number.
        outliers: what becomes of texts that are in no cluster at first.
        since: an earlier map of the same encoder.
        max_length: tokens of a text in the encoder; None: its own.
        seed: of all that is drawn at random.
        vectors: of length 1 (texts, size), where they are there already; the texts must then be different ones.
        progress: told how far it is.

    Raises:
        MapError: if there is no text, or the earlier map is of another encoder.
        ClusteringError: if `least` is below 2.
        ReductionError: if the method is not installed.
    """
    utterances = distinct(texts)
    if not utterances:
        raise MapError(
            "there is no text to map: look whether the store, the splits and the speakers are the right ones"
        )
    if since is not None:
        _check_same_encoder(encoder, since, max_length)
    if vectors is None:
        vectors = _encoded(encoder, [utterance.text for utterance in utterances], max_length, progress)
    elif len(vectors) != len(utterances):
        raise MapError(
            f"there are {len(vectors)} vectors for {len(utterances)} different texts: give one a text, and no text twice"
        )
    reduction = Reduction(vectors, method, seed=seed, progress=progress)
    labels = cluster_reduced(reduction, least=least, outliers=outliers, progress=progress)
    compared = None if since is None else novelty(vectors, since.vectors, progress=progress)
    start = None if since is None or compared is None else since.points[compared.nearest]
    points = reduction.for_map(start)
    progress("naming clusters", 0)
    counts = np.array([utterance.count for utterance in utterances], np.int64)
    clusters = describe([utterance.text for utterance in utterances], labels, vectors, counts)
    progress("naming clusters", 1, 1)
    return Map(
        utterances,
        vectors,
        points,
        labels,
        clusters,
        model,
        method,
        seed,
        None if compared is None else compared.new,
        None if since is None or compared is None else _since(since, compared, vectors, labels, len(clusters)),
    )


def distinct(texts: Sequence[Utterance | str]) -> list[Utterance]:
    """The texts, those that are the same as one, with the sum of their counts.

    Raises:
        MapError: if it is a single text, or one is empty.
    """
    if isinstance(texts, str):
        raise MapError("a map is of a list of texts: give a single one as [text]")
    found: dict[str, Utterance] = {}
    for number, text in enumerate(texts):
        utterance = Utterance(text) if isinstance(text, str) else text
        key = same_text(utterance.text)
        if not key:
            raise MapError(f"text {number} is empty: leave it out")
        before = found.get(key)
        found[key] = utterance if before is None else replace(before, count=before.count + utterance.count)
    return list(found.values())


def drawn_at_random(utterances: Sequence[Utterance], count: int, seed: int = 0) -> list[Utterance]:
    """So many of the utterances, or all where there are fewer, in the order in which they stand."""
    if count >= len(utterances):
        return list(utterances)
    rows = np.random.default_rng(seed).choice(len(utterances), count, replace=False)
    return [utterances[row] for row in np.sort(rows)]


def _encoded(encoder: SupportsEncode, texts: Sequence[str], max_length: int | None, progress: Progress) -> Vectors:
    # texts of a length in one portion, so that a pass pads little
    order = np.argsort([len(text) for text in texts], kind="stable")
    portions = []
    for first in range(0, len(texts), _PORTION):
        portion = order[first : first + _PORTION]
        portions.append(encoder.encode([texts[row] for row in portion], normalise=True, max_length=max_length))
        progress("encoding", first + len(portion), len(texts))
    encoded = np.concatenate(portions)
    vectors = np.empty_like(encoded)
    vectors[order] = encoded
    return vectors


def _check_same_encoder(encoder: SupportsEncode, since: Map, max_length: int | None) -> None:
    if len(since) < 2:
        raise MapError("the earlier map has a single text: there is nothing to tell what is new by")
    rows = np.unique(np.linspace(0, len(since) - 1, _PROBED).astype(int))
    anew = encoder.encode([since.utterances[row].text for row in rows], normalise=True, max_length=max_length)
    if anew.shape[1] != since.vectors.shape[1] or ((anew * since.vectors[rows]).sum(1) < _ALIKE).any():
        raise MapError(
            f"the earlier map was made by another encoder{f' ({since.model})' if since.model else ''}: its vectors cannot be"
            " compared with these, take the same model or map the earlier texts anew"
        )


def _since(since: Map, compared: Novelty, vectors: Vectors, labels: Labels, clusters: int) -> Since:
    """What each cluster was before: an earlier utterance counts for the cluster of the text nearest to it, if that is near."""
    back = nearest_neighbours(since.vectors, vectors, 1)
    fell = np.where(back.similarities[:, 0] >= compared.threshold, labels[back.rows[:, 0]], NONE)
    before = np.zeros(clusters, np.int64)
    np.add.at(before, fell[fell != NONE], since.counts[fell != NONE])
    return Since(len(since), int(since.counts.sum()), compared.threshold, tuple(int(count) for count in before))
