"""Unlabelled conversations of public corpora or of a store, for metrics that need no labels."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.evaluation.datasets.dataset import (
    Dataset,
    dataset_descriptions,
    known_datasets,
    read_dialogues,
    with_store,
)

#: Dialogues per corpus: enough to find its frequent answers, few enough to encode without a GPU.
MAX_DIALOGUES = 2_000


@dataclass(frozen=True, slots=True)
class ConversationData:
    """Dialogues of a corpus: speakers and texts, without labels."""

    name: str
    dialogues: tuple[tuple[Turn, ...], ...]


def sample_dialogues(
    dialogues: Iterable[Dialogue], count: int = MAX_DIALOGUES, seed: int = 0
) -> tuple[tuple[Turn, ...], ...]:
    """Sample dialogues (all if there are fewer) and return their turns without labels, in the order of the corpus.

    Corpora are often sorted by topic, so the first ones would not do. Memory holds the sampled dialogues only.
    """
    random = Random(seed)
    sample: list[tuple[int, Dialogue]] = []
    for number, dialogue in enumerate(dialogues):
        if number < count:
            sample.append((number, dialogue))
        elif (place := random.randrange(number + 1)) < count:
            # reservoir sampling: the n-th is taken with probability count / n and replaces a random one
            sample[place] = number, dialogue
    sample.sort(key=lambda each: each[0])
    return tuple(tuple(Turn(turn.speaker, turn.text) for turn in dialogue.turns) for _, dialogue in sample)


def _read_corpus(folder: Path, name: str) -> tuple[tuple[tuple[Turn, ...], ...]]:
    description = dataset_descriptions()["conversations"][name]
    split = description.get("split")
    dialogues = read_dialogues(description["reader"], folder)
    return (sample_dialogues(dialogue for dialogue in dialogues if split in (None, dialogue.split)),)


_CORPORA: dict[str, Dataset[ConversationData]] = known_datasets(
    "conversations",
    ConversationData,
    {name: partial(_read_corpus, name=name) for name in dataset_descriptions()["conversations"]},
)


def conversation_datasets(data: Path | None = None) -> dict[str, Dataset[ConversationData]]:
    """Return the data sets of conversations: public corpora, and the folder itself if it is a store."""

    def read_store(folder: Path, name: str) -> ConversationData:
        return ConversationData(name, sample_dialogues(read_corpus(folder)))

    return with_store(_CORPORA, data, read_store, next(iter(_CORPORA.values())).differs)
