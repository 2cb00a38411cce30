"""Semantic retrieval as DialogueCSE builds it, from corpora and stores whose turns have intents or acts."""

from pathlib import Path

from turnwise.corpus.registry import get_reader
from turnwise.corpus.store import is_store, read_corpus
from turnwise.evaluation.datasets.construction import Label, build_retrieval, labelled_turns
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.reading import corpus_dialogues, store_name
from turnwise.evaluation.datasets.retrieval import RETRIEVAL_DATASETS, RetrievalData

#: Queries of a constructed set: about as many as the paper keeps of a corpus.
QUERIES = 4_000


def retrieval_datasets(data: Path | None = None) -> dict[str, Dataset[RetrievalData]]:
    """The data sets for semantic retrieval: the authors' own, and those built from public corpora.

    A folder that is a store itself is one more: 'sample' if it is a sample world, else by its folder's name.
    """
    found = {**RETRIEVAL_DATASETS, **_CORPORA}
    if data is not None and is_store(data):
        store = _from_store(store_name(data))
        found[store.name] = store
    return found


def _from_store(name: str) -> Dataset[RetrievalData]:
    def read(folder: Path) -> RetrievalData:
        turns = labelled_turns(read_corpus(folder), "intent", speaker="user")
        return build_retrieval(turns, name, queries=QUERIES)

    return Dataset(name, ".", ("manifest.json",), read, "that of the store", "a store of yours", differs=_BUILT)


def _from_corpus(
    name: str,
    reader: str,
    files: tuple[str, ...],
    label: Label,
    speaker: str | None,
    split: str | None,
    digest: str = "",
    differs: str = "",
) -> Dataset[RetrievalData]:
    known = get_reader(reader)

    def read(folder: Path) -> RetrievalData:
        turns = labelled_turns(corpus_dialogues(known, folder), label, speaker=speaker, split=split)
        return build_retrieval(turns, name, queries=QUERIES, licence=known.licence)

    return Dataset(name, reader, files, read, known.licence, known.home, digest, differs or _BUILT)


_SCHEMA_GUIDED = "8d007451f9945fa5a3af3c60be303a0761c1c9fe1006a77896aedb323640dd99"
_STAR = "54a1dfd97a71e8496ca8f4798cf33fdd200507711e9c159d3d774b00b7a0e2df"
_GSIM = "e2750b163024a8b59fb7ac64ea25a190bece463aaeff515c604d3fb7b7d1e7d1"
_BUILT = "built by the paper's construction from another corpus' labels"
_MDC = (
    "built by the paper's construction from the corpus' own acts; the set that the authors annotated is not published"
)

_CORPORA = {
    dataset.name: dataset
    for dataset in (
        _from_corpus("retrieval_mdc", "msr_e2e", ("*_all.tsv",), "acts", "user", None, differs=_MDC),
        _from_corpus(
            "retrieval_schema_guided",
            "schema_guided_dialogue",
            ("test/dialogues_*.json",),
            "intent",
            "user",
            "test",
            _SCHEMA_GUIDED,
        ),
        _from_corpus("retrieval_star", "star", ("dialogues/*.json",), "acts", "system", None, _STAR),
        _from_corpus("retrieval_gsim", "gsim_m2m", ("**/*.json",), "acts", "user", "test", _GSIM),
    )
}
