"""Triplets of natural language inference: is a text nearer to what follows from it than to what contradicts it?

A premise with both an entailment and a contradiction gives one triplet, of the first of each in the order of the files; premises
without both, neutral pairs and pairs without a gold label ('-') give none.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.reading import SAMPLE_HOME, SAMPLE_LICENCE, among, dataset, strict, text_of

ENTAILMENT, NEUTRAL, CONTRADICTION = "entailment", "neutral", "contradiction"


@dataclass(frozen=True, slots=True)
class Triplet:
    """A text, one that follows from it, and one that contradicts it."""

    anchor: str
    entailment: str
    contradiction: str


@dataclass(frozen=True, slots=True)
class TripletData:
    """A data set of triplets."""

    name: str
    licence: str
    test: tuple[Triplet, ...]


def _triplets(pairs: Iterable[tuple[str, str, str]]) -> tuple[tuple[Triplet, ...]]:
    """Triplets of (premise, hypothesis, relation), in the order of the premises."""
    found: dict[str, dict[str, str]] = {}
    for premise, hypothesis, relation in pairs:
        found.setdefault(premise, {}).setdefault(relation, hypothesis)
    return (
        tuple(
            Triplet(premise, by_relation[ENTAILMENT], by_relation[CONTRADICTION])
            for premise, by_relation in found.items()
            if ENTAILMENT in by_relation and CONTRADICTION in by_relation
        ),
    )


_NUMBERS: Mapping[str, str] = {"0": ENTAILMENT, "1": NEUTRAL, "2": CONTRADICTION}


def _snli(folder: Path) -> tuple[tuple[Triplet, ...]]:
    """SNLI's validation and test set as TSV with `premise, hypothesis, label`."""
    intake = strict(folder)

    def read() -> Iterator[tuple[str, str, str]]:
        for path in (folder / "validation.tsv", folder / "test.tsv"):
            for line, row in intake.csv_rows(path, "\t"):
                with intake.guard(path, line):
                    relation = _NUMBERS[among(row["label"], *_NUMBERS)]
                    yield text_of(row["premise"]), text_of(row["hypothesis"]), relation

    return _triplets(read())


def _mnli(folder: Path) -> tuple[tuple[Triplet, ...]]:
    """MNLI's matched and mismatched validation sets, as JSON Lines with `sentence1, sentence2, gold_label`."""
    intake = strict(folder)

    def read() -> Iterator[tuple[str, str, str]]:
        for path in (folder / name for name in _MNLI):
            for line, record in intake.json_lines(path):
                with intake.guard(path, line):
                    relation = among(record["gold_label"], ENTAILMENT, NEUTRAL, CONTRADICTION, "-")
                    yield text_of(record["sentence1"]), text_of(record["sentence2"]), relation

    return _triplets(read())


def _sample(folder: Path) -> tuple[tuple[Triplet, ...]]:
    intake = strict(folder)
    path = folder / "test.jsonl"

    def triplet(record: Mapping[str, Any]) -> Triplet:
        return Triplet(*(text_of(record[field]) for field in ("anchor", "entailment", "contradiction")))

    def read() -> Iterator[Triplet]:
        for line, record in intake.json_lines(path):
            with intake.guard(path, line):
                yield triplet(record)

    return (tuple(read()),)


_MNLI = ("multinli_1.0_dev_matched.jsonl", "multinli_1.0_dev_mismatched.jsonl")

#: By their plain names.
TRIPLET_DATASETS: dict[str, Dataset[TripletData]] = {
    known.name: known
    for known in (
        dataset(
            TripletData,
            "snli",
            "sts_nli/BECEL_snli/data/snli",
            ("validation.tsv", "test.tsv"),
            _snli,
            "CC BY-SA 4.0",
            "https://nlp.stanford.edu/projects/snli/",
            "b618b527f8284d41478272d87e749246acb212a0227f25381c4c65aa92aeece9",
        ),
        dataset(
            TripletData,
            "mnli",
            "multinli_1.0",
            _MNLI,
            _mnli,
            "several (OANC, CC BY 3.0, CC BY-SA 3.0)",
            "https://cims.nyu.edu/~sbowman/multinli/",
        ),
        dataset(TripletData, "sample", "triplets", ("test.jsonl",), _sample, SAMPLE_LICENCE, SAMPLE_HOME),
    )
}
