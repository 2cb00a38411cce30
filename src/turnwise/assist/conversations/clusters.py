"""Clusters of the conversations in a table, named by what users say in them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.assist.map.clustering import cluster, describe
from turnwise.assist.map.reduction import Method
from turnwise.assist.search.schema import KEY, VECTOR, matrix
from turnwise.assist.search.table import VectorTable
from turnwise.core.dialogue import USER
from turnwise.core.progress import Progress


@dataclass(frozen=True, slots=True)
class ConversationCluster:
    """Conversations that are about the same.

    Attributes:
        number: its number; the largest cluster has 0.
        name: its most characteristic words.
        words: more of these.
        size: how many conversations it holds.
        examples: ids of dialogues that stand for it, the most central first.
    """

    number: int
    name: str
    words: tuple[str, ...]
    size: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A conversation and its cluster.

    Attributes:
        dialogue: its id.
        source: where it comes from, if that is known.
        cluster: the cluster's number; −1: it is in none.
    """

    dialogue: str
    source: str | None
    cluster: int


@dataclass(frozen=True, slots=True)
class Clustered:
    """Clusters, the largest first, and where every conversation is."""

    clusters: list[ConversationCluster]
    placed: list[Placed]


def clustered(table: VectorTable, least: int | None, method: Method, seed: int, progress: Progress) -> Clustered:
    """Finds the clusters of a table of conversations.

    Args:
        table: has their ids, sources, speakers and texts.
        least: conversations of the smallest cluster; None: by their number.
        method: how dimensions are reduced.
        seed: of all that is drawn at random.
        progress: told how far it is.

    Raises:
        ClusteringError: if `least` is below 2.
        ReductionError: if the method is not installed.
    """
    rows = table.read([KEY, VECTOR, "dialogue", "source", "speakers", "texts"])
    # in one order, however the rows lie in their files
    rows = rows.take(np.argsort(np.array(rows[KEY].to_pylist()), kind="stable"))
    vectors = matrix(rows[VECTOR])
    labels = cluster(vectors, least=least, method=method, seed=seed, progress=progress)
    texts = [_asked(*each) for each in zip(rows["speakers"].to_pylist(), rows["texts"].to_pylist(), strict=True)]
    names = rows["dialogue"].to_pylist()
    found = [
        ConversationCluster(
            each.number, each.name, each.words, each.size, tuple(names[row] for row in each.representatives)
        )
        for each in describe(texts, labels, vectors)
    ]
    placed = [Placed(*each) for each in zip(names, rows["source"].to_pylist(), labels.tolist(), strict=True)]
    return Clustered(found, placed)


def _asked(speakers: Sequence[str], texts: Sequence[str]) -> str:
    """What the user says, or everybody where there is no user: it tells what a conversation is about."""
    users = [text for speaker, text in zip(speakers, texts, strict=True) if speaker == USER]
    return "\n".join(users or texts)
