"""Semantic retrieval as DialogueCSE builds it, from corpora and stores whose turns have intents or acts."""

from collections.abc import Iterator
from pathlib import Path

from turnwise.corpus.intake import Intake
from turnwise.corpus.registry import get_reader
from turnwise.corpus.store import is_store, read_corpus
from turnwise.dialogue import Dialogue
from turnwise.evaluation.construction import Label, build_retrieval, labelled_turns
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.retrieval import RETRIEVAL_DATASETS, RetrievalData

#: Queries of a constructed set: about as many as the paper keeps of a corpus.
QUERIES = 4_000


def retrieval_datasets(data: Path | None = None) -> dict[str, Dataset[RetrievalData]]:
    """The data sets for semantic retrieval: the authors' own, and those built from public corpora.

    A folder that is a store itself is one more: 'sample' if it is a sample world, else by its folder's name.
    """
    found = {**RETRIEVAL_DATASETS, **_CORPORA}
    if data is not None and is_store(data):
        store = _from_store("sample" if (data / "intents").is_dir() else data.resolve().name)
        found[store.name] = store
    return found


def _from_store(name: str) -> Dataset[RetrievalData]:
    def read(folder: Path) -> RetrievalData:
        turns = labelled_turns(read_corpus(folder), "intent", speaker="user")
        return build_retrieval(turns, name, queries=QUERIES)

    return Dataset(name, ".", ("manifest.json",), read, "that of the store", "a store of yours", stand_in=_BUILT)


def _from_corpus(
    name: str, reader: str, files: tuple[str, ...], label: Label, speaker: str | None, split: str | None, digest: str = ""
) -> Dataset[RetrievalData]:
    known = get_reader(reader)

    def dialogues(folder: Path) -> Iterator[Dialogue]:
        return known.read(Intake(folder, known.name, lambda rejection: None, known.encoding))

    def read(folder: Path) -> RetrievalData:
        turns = labelled_turns(dialogues(folder), label, speaker=speaker, split=split)
        return build_retrieval(turns, name, queries=QUERIES, licence=known.licence)

    return Dataset(name, reader, files, read, known.licence, known.home, digest, _BUILT)


_BUILT = "built by the paper's construction from another corpus' labels"

_CORPORA = {
    dataset.name: dataset
    for dataset in (
        _from_corpus("retrieval_mdc", "msr_e2e", ("*_all.tsv",), "acts", "user", None),
        _from_corpus("retrieval_schema_guided", "schema_guided_dialogue", ("test/dialogues_*.json",), "intent", "user", "test"),
        _from_corpus("retrieval_star", "star", ("dialogues/*.json",), "acts", "system", None),
        _from_corpus("retrieval_gsim", "gsim_m2m", ("**/*.json",), "acts", "user", "test"),
    )
}
