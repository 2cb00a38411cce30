"""Conversations as they were held, for measures that need no labels: of public corpora, or of a store."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.corpus.registry import get_reader
from turnwise.corpus.store import is_store, read_corpus
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.reading import corpus_dialogues, store_name

#: Dialogues of a corpus: enough for its frequent answers to be known, few enough to be encoded without a GPU.
DIALOGUES = 2_000


@dataclass(frozen=True, slots=True)
class ConversationData:
    """Dialogues of a corpus: speakers and texts, without labels."""

    name: str
    licence: str
    dialogues: tuple[tuple[Turn, ...], ...]


def conversation_datasets(data: Path | None = None) -> dict[str, Dataset[ConversationData]]:
    """The data sets of conversations: public corpora.

    A folder that is a store itself is one more: 'sample' if it is a sample world, else by its folder's name.
    """
    if data is None or not is_store(data):
        return _CORPORA
    store = _from_store(store_name(data))
    return {**_CORPORA, store.name: store}


def drawn_dialogues(
    dialogues: Iterable[Dialogue], count: int = DIALOGUES, seed: int = 0
) -> tuple[tuple[Turn, ...], ...]:
    """The turns of so many dialogues, drawn at random, in the order of the corpus, without their labels; all where there are fewer.

    Corpora are sorted by topic, so that the first ones would not do. Dialogues are read in a stream: memory holds those drawn.
    """
    random = Random(seed)
    drawn: list[tuple[int, Dialogue]] = []
    for number, dialogue in enumerate(dialogues):
        if number < count:
            drawn.append((number, dialogue))
        elif (place := random.randrange(number + 1)) < count:
            # the n-th is taken with probability count / n, in place of one drawn at random (reservoir sampling)
            drawn[place] = number, dialogue
    drawn.sort(key=lambda each: each[0])
    return tuple(tuple(Turn(turn.speaker, turn.text) for turn in dialogue.turns) for _, dialogue in drawn)


def _from_store(name: str) -> Dataset[ConversationData]:
    licence = "that of the store"

    def read(folder: Path) -> ConversationData:
        return ConversationData(name, licence, drawn_dialogues(read_corpus(folder)))

    return Dataset(name, ".", ("manifest.json",), read, licence, "a store of yours", differs=_DRAWN)


def _from_corpus(
    name: str, reader: str, folder: str, files: tuple[str, ...], digest: str, split: str | None = None
) -> Dataset[ConversationData]:
    known = get_reader(reader)

    def read(place: Path) -> ConversationData:
        dialogues = (
            dialogue for dialogue in corpus_dialogues(known, place) if split is None or dialogue.split == split
        )
        return ConversationData(name, known.licence, drawn_dialogues(dialogues))

    return Dataset(name, folder, files, read, known.licence, known.home, digest, _DRAWN)


_SCHEMA_GUIDED = "7d5068e8bf47c3320ae4cf59b89fa98c67e303aa30476fe5680732b516ef6204"
_MULTIWOZ = "1a27689f6fc7126fee675f6e95aa9a20890cd700bbd75e58611e02f9fc1b6239"
_STAR = "54a1dfd97a71e8496ca8f4798cf33fdd200507711e9c159d3d774b00b7a0e2df"
_TASKMASTER = "93e942666c54247bef27f2b476b67c6c10192597fb8a9ee7e5c106118cc3f0e6"
_DRAWN = f"no paper measures on it; at most {DIALOGUES:,} of its dialogues, drawn at random"

_CORPORA = {
    dataset.name: dataset
    for dataset in (
        _from_corpus(
            "conversations_schema_guided",
            "schema_guided_dialogue",
            "schema_guided_dialogue/test",
            ("dialogues_*.json",),
            _SCHEMA_GUIDED,
        ),
        _from_corpus("conversations_multiwoz", "multiwoz", "multiwoz", ("**/test_dialogues_*.txt",), _MULTIWOZ, "test"),
        _from_corpus("conversations_star", "star", "star", ("dialogues/*.json",), _STAR),
        _from_corpus("conversations_taskmaster4", "taskmaster", "taskmaster4", ("**/data/*.json",), _TASKMASTER),
    )
}
