"""Pairs of texts with a human similarity score (`similarity`), and triplets of natural language inference (`triplets`).

The SemEval sets of a year are read as one ('all': the pairs of its files one after another, one correlation over them),
pairs without a score left out, as the organisers do.

A premise with both an entailment and a contradiction gives one triplet, of the first of each in the order of the files;
premises without both, neutral pairs and pairs without a gold label ('-') give none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.evaluation.datasets.dataset import (
    Dataset,
    SplitData,
    known_datasets,
    open_strict,
    parse_choice,
    parse_text,
    read_json_lines,
    read_tsv,
)

# ---- similarity


@dataclass(frozen=True, slots=True)
class SimilarityPair:
    """Two texts and the human score of their similarity."""

    first: str
    second: str
    score: float


SimilarityData = SplitData[SimilarityPair]


def _read_pairs(path: Path, columns: tuple[int, int, int], header: bool = False) -> tuple[SimilarityPair, ...]:
    """Return the pairs of a TSV file with score, first and second text in these columns; a score may be empty."""
    source = open_strict(path)
    score, first, second = columns
    pairs = []
    for number, fields in read_tsv(source, path, max(columns) + 1):
        if fields[score] and not (header and number == 1):
            with source.guard(path, number):
                texts = parse_text(fields[first]), parse_text(fields[second])
                pairs.append(SimilarityPair(*texts, float(fields[score])))
    return tuple(pairs)


def _read_valid_and_test(
    folder: Path, names: tuple[str, str], columns: tuple[int, int, int], header: bool = False
) -> list[tuple[SimilarityPair, ...]]:
    return [(), *(_read_pairs(folder / name, columns, header) for name in names)]


def _read_semeval(folder: Path) -> list[tuple[SimilarityPair, ...]]:
    return [(), (), tuple(pair for path in sorted(folder.glob("*.test.tsv")) for pair in _read_pairs(path, (0, 1, 2)))]


def _read_sample_pairs(folder: Path) -> list[tuple[SimilarityPair, ...]]:
    def pair(record: Any) -> SimilarityPair:
        return SimilarityPair(parse_text(record["first"]), parse_text(record["second"]), float(record["score"]))

    return [(), *(tuple(read_json_lines(folder, f"{split}.jsonl", pair)) for split in ("valid", "test"))]


_read_dsts = partial(_read_valid_and_test, names=("dev/sts.txt", "test/sts.txt"), columns=(0, 1, 2))

SIMILARITY_DATASETS: dict[str, Dataset[SimilarityData]] = known_datasets(
    "similarity",
    SimilarityData,
    {
        "stsb": partial(_read_valid_and_test, names=("sts-dev.csv", "sts-test.csv"), columns=(4, 5, 6)),
        "sick": partial(
            _read_valid_and_test, names=("SICK_trial.txt", "SICK_test_annotated.txt"), columns=(3, 1, 2), header=True
        ),
        **{f"sts{year}": _read_semeval for year in range(12, 17)},
        "dsts_ecd": _read_dsts,
        "dsts_jddc": _read_dsts,
        "sample": _read_sample_pairs,
    },
)


# ---- triplets

ENTAILMENT, NEUTRAL, CONTRADICTION = "entailment", "neutral", "contradiction"
_RELATIONS = {"0": ENTAILMENT, "1": NEUTRAL, "2": CONTRADICTION}


@dataclass(frozen=True, slots=True)
class Triplet:
    """A text, one that follows from it, and one that contradicts it."""

    anchor: str
    entailment: str
    contradiction: str


TripletData = SplitData[Triplet]


def _make_triplets(pairs: Iterable[tuple[str, str, str]]) -> Iterator[Triplet]:
    """Yield the triplets of (premise, hypothesis, relation), in the order of the premises."""
    premises: dict[str, dict[str, str]] = {}
    for premise, hypothesis, relation in pairs:
        premises.setdefault(premise, {}).setdefault(relation, hypothesis)
    for premise, hypotheses in premises.items():
        if ENTAILMENT in hypotheses and CONTRADICTION in hypotheses:
            yield Triplet(premise, hypotheses[ENTAILMENT], hypotheses[CONTRADICTION])


def _read_snli(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Read SNLI's validation and test set as TSV with `premise, hypothesis, label`."""
    source = open_strict(folder)
    for path in (folder / "validation.tsv", folder / "test.tsv"):
        for line, row in source.csv_rows(path, "\t"):
            with source.guard(path, line):
                relation = _RELATIONS[parse_choice(row["label"], *_RELATIONS)]
                yield parse_text(row["premise"]), parse_text(row["hypothesis"]), relation


def _read_mnli(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Read MNLI's matched and mismatched validation sets, as JSON Lines with `sentence1, sentence2, gold_label`."""

    def parse_pair(record: Any) -> tuple[str, str, str]:
        relation = parse_choice(record["gold_label"], ENTAILMENT, NEUTRAL, CONTRADICTION, "-")
        return parse_text(record["sentence1"]), parse_text(record["sentence2"]), relation

    for name in ("multinli_1.0_dev_matched.jsonl", "multinli_1.0_dev_mismatched.jsonl"):
        yield from read_json_lines(folder, name, parse_pair)


TRIPLET_DATASETS: dict[str, Dataset[TripletData]] = known_datasets(
    "triplets",
    lambda name, *triplets: TripletData(name, test=triplets),
    {
        "snli": lambda folder: _make_triplets(_read_snli(folder)),
        "mnli": lambda folder: _make_triplets(_read_mnli(folder)),
        "sample": lambda folder: read_json_lines(
            folder,
            "test.jsonl",
            lambda record: Triplet(*(parse_text(record[key]) for key in ("anchor", "entailment", "contradiction"))),
        ),
    },
)
