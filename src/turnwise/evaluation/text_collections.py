"""The texts of stores and of evaluation data sets by name, to be compared with one another."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.core.errors import DatasetError
from turnwise.corpus.overlap.overlap import TextCollection
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.store import is_store
from turnwise.evaluation.datasets.candidates import QuestionData
from turnwise.evaluation.datasets.conversations import ConversationData
from turnwise.evaluation.datasets.dataset import SPLITS, Dataset
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.evaluation_protocols import all_protocols
from turnwise.evaluation.leakage import example_dialogues


def open_text_collection(name: str, data: Path | None = None) -> TextCollection:
    """Open the texts of a store or of an evaluation data set.

    Args:
        name: the folder of a store, or the name of a data set in `data`; with ':train', ':valid' or ':test' only that
            split. A data set of several tasks has the texts of all of them.
        data: a folder of data sets.
    """
    base, _, split = name.rpartition(":")
    if split not in SPLITS or not base:
        base, split = name, ""
    if is_store(Path(base)):
        corpus = read_corpus(base, splits=[split] if split else None)
        return TextCollection(name, lambda: ([turn.text for turn in dialogue.turns] for dialogue in corpus))
    datasets = _find_datasets(base, data) if data is not None else []
    if data is None or not datasets:
        where = f"no data set in {data}" if data is not None else "no --data is given to look for a data set"
        raise DatasetError(f"{base} is not a store, and {where}: import a corpus, or name a data set")
    contents = [dataset.load(data) for dataset in datasets]
    return TextCollection(name, partial(_read_texts, contents, split))


def _find_datasets(name: str, data: Path) -> list[Dataset[Any]]:
    catalogues = dict.fromkeys(protocol.datasets for protocol in all_protocols().values())
    datasets = (catalogue(data).get(name) for catalogue in catalogues)
    present = [dataset for dataset in datasets if dataset is not None and dataset.is_present(data)]
    # several tasks have the same data set
    return list({(dataset.folder, dataset.files, dataset.differs): dataset for dataset in present}.values())


def _read_texts(contents: Sequence[Any], split: str) -> Iterator[tuple[str, ...]]:
    for data in contents:
        if split and isinstance(data, QuestionData | ConversationData):
            raise DatasetError(f"{data.name} has no splits: name it without :{split}")
        match data:
            case ConversationData():
                yield from (tuple(turn.text for turn in turns) for turns in data.dialogues)
            case QuestionData():
                yield from data.pairs
            case _:
                for each in (split,) if split else SPLITS:
                    examples = getattr(data, each)
                    if isinstance(data, IntentData):
                        examples = (*examples, *getattr(data.out_of_scope, each))
                    for example in examples:
                        yield from example_dialogues(example)
