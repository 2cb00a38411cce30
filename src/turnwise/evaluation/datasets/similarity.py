"""Pairs of texts with a human judgement of how alike they are.

The SemEval sets of a year are read as one ('all': the pairs of its files one after another, one correlation over them), pairs
without a judgement left out, as the organisers do.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.reading import SAMPLE_HOME, SAMPLE_LICENCE, dataset, strict, tab_separated, text_of


@dataclass(frozen=True, slots=True)
class TextPair:
    """Two texts and how alike they are."""

    first: str
    second: str
    score: float


@dataclass(frozen=True, slots=True)
class SimilarityData:
    """A data set of such pairs; `valid` is empty where its authors have none."""

    name: str
    licence: str
    valid: tuple[TextPair, ...]
    test: tuple[TextPair, ...]


_Splits = tuple[tuple[TextPair, ...], tuple[TextPair, ...]]


def _tab_separated(path: Path, columns: tuple[int, int, int], header: bool = False) -> Iterator[TextPair]:
    """The pairs of a file whose score, first and second text stand in these columns; a score may be empty: not judged."""
    intake = strict(path)
    score, first, second = columns
    for number, fields in tab_separated(intake, path, max(columns) + 1):
        if fields[score] == "" or (header and number == 1):
            continue
        with intake.guard(path, number):
            yield TextPair(text_of(fields[first]), text_of(fields[second]), float(fields[score]))


def _stsb(folder: Path) -> _Splits:
    valid, test = (tuple(_tab_separated(folder / f"sts-{split}.csv", (4, 5, 6))) for split in ("dev", "test"))
    return valid, test


def _sick(folder: Path) -> _Splits:
    names = ("SICK_trial.txt", "SICK_test_annotated.txt")
    valid, test = (tuple(_tab_separated(folder / name, (3, 1, 2), header=True)) for name in names)
    return valid, test


def _semeval(folder: Path) -> _Splits:
    return (), tuple(pair for path in sorted(folder.glob(_SEMEVAL)) for pair in _tab_separated(path, (0, 1, 2)))


def _dsts(folder: Path) -> _Splits:
    valid, test = (tuple(_tab_separated(folder / split / "sts.txt", (0, 1, 2))) for split in ("dev", "test"))
    return valid, test


def _sample(folder: Path) -> _Splits:
    intake = strict(folder)

    def read(path: Path) -> Iterator[TextPair]:
        for line, record in intake.json_lines(path):
            with intake.guard(path, line):
                yield TextPair(text_of(record["first"]), text_of(record["second"]), float(record["score"]))

    return tuple(read(folder / "valid.jsonl")), tuple(read(folder / "test.jsonl"))


_SEMEVAL = "*.test.tsv"
_BRMSON = "sts_nli/brmson_dataset-sts/data/sts"
_NO_MSRVID = "without MSRvid's 750 of 3,108 pairs, whose licence forbids passing them on"

_known = partial(dataset, SimilarityData)

#: By their plain names.
SIMILARITY_DATASETS: dict[str, Dataset[SimilarityData]] = {
    known.name: known
    for known in (
        _known(
            "stsb",
            "sts_nli/stsbenchmark/data/stsbenchmark",
            ("sts-dev.csv", "sts-test.csv"),
            _stsb,
            "several (LICENSE.txt)",
            "https://ixa2.si.ehu.eus/stswiki/index.php/STSbenchmark",
            "0580102816cfb0bdbe9c64703b0596b0a62303f326f9d4c720cf4f3eff288a11",
        ),
        _known(
            "sick",
            f"{_BRMSON}/sick2014",
            ("SICK_trial.txt", "SICK_test_annotated.txt"),
            _sick,
            "CC BY-NC-SA 3.0",
            "https://marcobaroni.org/composes/sick.html",
            "7d9fc7e6652b4202e64d03a8aab3305be0fb8276a0164ccc067f4c7780c5ec80",
        ),
        *(
            _known(
                f"sts{year % 100}",
                f"{_BRMSON}/semeval-sts/{year}",
                (_SEMEVAL,),
                _semeval,
                "several (SemEval)",
                "https://github.com/brmson/dataset-sts",
                digest,
                differs,
            )
            for year, digest, differs in (
                (2012, "26fccf3e9864522ee4dd1b65b342c4942f6527d3d6db83e4c66c48cca9f0b0c6", _NO_MSRVID),
                (2013, "05764f8e636750d96d7fd25a8bb800c756a647dae32ea79b2164c4476f1e3bf8", ""),
                (2014, "ef7d92ace8b9f25d40c6e05fa20e64ef8501e56558ef90d5c561af7e942f5814", ""),
                (2015, "8eae9b4181aa8f54f25159747b8e9a59d107de58ba6b6327f92bdb6154e43d2b", ""),
                (2016, "e9777f155df29bc197aa62c44c101925097c974b5579936a5827b64099de5df5", ""),
            )
        ),
        *(
            _known(
                f"dsts_{name}",
                f"dialoguecse/datasets/{folder}",
                ("dev/sts.txt", "test/sts.txt"),
                _dsts,
                licence,
                "https://github.com/wangruicn/DialogueCSE",
                digest,
            )
            for name, folder, licence, digest in (
                ("ecd", "edc", "none stated", "2a8e531f42cafd90dd7548ec099bace1a025a16a2aeead4e236770f2b40d6b8d"),
                ("jddc", "jddc", "Apache-2.0", "f3b39ad1e4c124e1eca549d8fb50a3bbd312c2ccaedd212efc34c9493be595be"),
            )
        ),
        _known("sample", "pairs", ("valid.jsonl", "test.jsonl"), _sample, SAMPLE_LICENCE, SAMPLE_HOME),
    )
}
