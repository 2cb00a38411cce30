"""Semantic retrieval: for a query, texts of the same intent are to be ranked before others, as DialogueCSE measures it."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.reading import dataset, strict, tab_separated, text_of


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """A text, texts that belong before others when ranked by likeness to it, and those others."""

    text: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetrievalData:
    """A data set of such queries."""

    name: str
    licence: str
    valid: tuple[RetrievalQuery, ...]
    test: tuple[RetrievalQuery, ...]


def _select(path: Path) -> tuple[RetrievalQuery, ...]:
    """The queries of a file `id, text, topic, ids of positives, ids of negatives`; a text without either is a candidate only."""
    intake = strict(path)
    rows: dict[str, tuple[int, list[str]]] = {}
    for number, fields in tab_separated(intake, path, 5):
        if fields[0] in rows:
            intake.reject(path, number, "dialogue", f"the id {fields[0]!r} was there before")
        rows[fields[0]] = number, fields
    queries = []
    for number, (_, text, _, *listed) in rows.values():
        with intake.guard(path, number):
            positives, negatives = (
                tuple(text_of(rows[key][1][1]) for key in keys.split(",") if key) for keys in listed[:2]
            )
            if positives and negatives:
                queries.append(RetrievalQuery(text_of(text), positives, negatives))
    return tuple(queries)


def _read(folder: Path) -> tuple[tuple[RetrievalQuery, ...], tuple[RetrievalQuery, ...]]:
    return _select(folder / "dev" / "select.txt"), _select(folder / "test" / "select.txt")


_known = partial(
    dataset,
    RetrievalData,
    files=("dev/select.txt", "test/select.txt"),
    read=_read,
    home="https://github.com/wangruicn/DialogueCSE",
)

#: By their plain names.
RETRIEVAL_DATASETS: dict[str, Dataset[RetrievalData]] = {
    known.name: known
    for known in (
        _known(
            name="retrieval_ecd",
            folder="dialoguecse/datasets/edc",
            licence="none stated",
            digest="6c42f26760cd7bb3896522d27768de956db5c3b65441308ff11c351e37011cd5",
        ),
        _known(
            name="retrieval_jddc",
            folder="dialoguecse/datasets/jddc",
            licence="Apache-2.0",
            digest="223938160ee4dd23419fb576844c63725ff0a1dfc64098ec56ceeac171414ce9",
        ),
    )
}
