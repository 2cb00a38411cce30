"""Dialogue inference: does the last statement of a dialogue fit what was said before?"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Turn, peer
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.reading import SAMPLE_HOME, SAMPLE_LICENCE, SPLITS, among, dataset, strict, text_of

#: DiaEval keeps dialogues of fewer tokens than that; here words by white space are counted, since its tokens are not told.
WORDS = 256


@dataclass(frozen=True, slots=True)
class InferenceExample:
    """A dialogue, the statement in question last, and what is to be told of it."""

    turns: tuple[Turn, ...]
    label: str


@dataclass(frozen=True, slots=True)
class InferenceData:
    """A data set of such dialogues."""

    name: str
    licence: str
    train: tuple[InferenceExample, ...]
    valid: tuple[InferenceExample, ...]
    test: tuple[InferenceExample, ...]

    @property
    def labels(self) -> list[str]:
        """The labels of all splits, in alphabetical order."""
        return sorted({example.label for split in (self.train, self.valid, self.test) for example in split})


_Examples = tuple[InferenceExample, ...]
_SPEAKERS = {"driver": USER, "assistant": SYSTEM}


def _ci_tod(folder: Path, train: Iterable[str]) -> tuple[_Examples, ...]:
    """CI-ToD, which DiaEval calls IC-TOD: inconsistent is what conflicts with the user's query or the history.

    Conflicts with the knowledge base are ignored, as there.
    """
    domains = {"train": train, "dev": _DOMAINS, "test": _DOMAINS}
    intake = strict(folder)

    def read(split: str) -> Iterator[InferenceExample]:
        for domain in domains[split]:
            path = folder / f"{domain}_{split}.json"
            for line, record in intake.json_array(path):
                with intake.guard(path, line):
                    wrong = [among(record["scenario"][kind], "0", "1") == "1" for kind in ("qi", "hi")]
                    turns = tuple(
                        Turn(_SPEAKERS[turn["turn"]], text_of(turn["utterance"])) for turn in record["dialogue"]
                    )
                    yield _example(turns, "inconsistent" if any(wrong) else "consistent")

    return tuple(tuple(read(split)) for split in domains)


def _example(turns: tuple[Turn, ...], label: str) -> InferenceExample:
    if not turns:
        raise ValueError("the dialogue has no turns")
    return InferenceExample(turns, label)


def _decode(folder: Path) -> tuple[_Examples, ...]:
    """DECODE, in its authors' splits; dialogues of 256 words or more are left out, as DiaEval leaves out those of 256 tokens."""
    intake = strict(folder)

    def read(path: Path) -> Iterator[InferenceExample]:
        for line, record in intake.json_lines(path):
            with intake.guard(path, line):
                contradiction = record["is_contradiction"]
                if not isinstance(contradiction, bool):
                    raise ValueError(f"expected true or false, not {contradiction!r}")
                turns = tuple(Turn(peer(1 + int(turn["agent_id"])), text_of(turn["text"])) for turn in record["turns"])
                example = _example(turns, "contradiction" if contradiction else "non-contradiction")
                if sum(len(turn.text.split()) for turn in turns) < WORDS:
                    yield example

    return tuple(tuple(read(folder / f"{split}.jsonl")) for split in ("train", "dev", "test"))


_PAIR_LABELS = {"0": "contradiction", "1": "non-contradiction"}


def _decode_pairs(folder: Path) -> tuple[_Examples, ...]:
    """Pairs of turns by one speaker: 60% train, 20% valid, 20% test, by a hash of the first turn's text.

    By that, pairs with the same first turn stand in the same split, and the same files give the same splits everywhere.
    """
    splits: dict[str, list[InferenceExample]] = {split: [] for split in SPLITS}
    intake = strict(folder)
    path = folder / _PAIRS
    for line, row in intake.csv_rows(path, "\t"):
        with intake.guard(path, line):
            first, second = text_of(row["seg1"]), text_of(row["seg2"])
            example = InferenceExample(
                (Turn(peer(1), first), Turn(peer(1), second)), _PAIR_LABELS[among(row["label"], "0", "1")]
            )
            splits[_split(first)].append(example)
    return tuple(map(tuple, splits.values()))


def _split(text: str) -> str:
    fifth = int.from_bytes(sha256(f"turnwise:decode_pairs:{text}".encode()).digest()[:8], "big") % 5
    return ("test", "valid", "train", "train", "train")[fifth]


def _sample(folder: Path) -> tuple[_Examples, ...]:
    intake = strict(folder)

    def read(path: Path) -> Iterator[InferenceExample]:
        for line, record in intake.json_lines(path):
            with intake.guard(path, line):
                yield _example(
                    tuple(map(_turn, record["turns"])), "consistent" if record["consistent"] else "inconsistent"
                )

    return tuple(tuple(read(folder / f"{split}.jsonl")) for split in SPLITS)


def _turn(turn: dict[str, Any]) -> Turn:
    return Turn(turn["speaker"], text_of(turn["text"]))


_DOMAINS = ("calendar", "navigate", "weather_new")
_HELD_OUT = tuple(f"{domain}_{split}.json" for domain in _DOMAINS for split in ("dev", "test"))
_CI_TOD = ("ci_tod/data/KBRetriever_DC", "MIT", "https://github.com/yizhen20133868/CI-ToD")
_PAIRS = "decode_prosecco_size_df.tsv"


def _ci_tod_dataset(name: str, train: tuple[str, ...], digest: str, differs: str) -> Dataset[InferenceData]:
    folder, licence, home = _CI_TOD
    files = (*(f"{domain}_train.json" for domain in train), *_HELD_OUT)
    return dataset(InferenceData, name, folder, files, partial(_ci_tod, train=train), licence, home, digest, differs)


#: By their plain names.
INFERENCE_DATASETS: dict[str, Dataset[InferenceData]] = {
    known.name: known
    for known in (
        _ci_tod_dataset(
            "ci_tod",
            _DOMAINS[:2],
            "20756b4daaa6d6e3fdf1fb388fee1c7f508de121fb851ae6e752941bd964fcf0",
            "validation and test are the paper's, but of its 2,553 training dialogues the 848 about the weather are missing",
        ),
        _ci_tod_dataset("ci_tod_full", _DOMAINS, "", ""),
        dataset(
            InferenceData,
            "decode",
            "decode_v0.1",
            ("train.jsonl", "dev.jsonl", "test.jsonl"),
            _decode,
            "none stated",
            "https://parl.ai/projects/contradiction/",
            "",
            "its authors' splits: DiaEval's own (31,011/1,650/1,650) are not published, nor is how it counts tokens",
        ),
        dataset(
            InferenceData,
            "decode_pairs",
            "decode_pairs_partial/comparativeCorpusAnalysis/decode_parsed",
            (_PAIRS,),
            _decode_pairs,
            "CC BY-SA 4.0",
            "https://github.com/henrikebeyer/ProSeCCo",
            "3476997f34b17cb4a5bc749edd5974009865394c76ca239d2472e35459ea8c11",
            "1,325 pairs of turns out of DECODE in splits made here, not its dialogues: the turns between the two are missing",
        ),
        dataset(
            InferenceData,
            "sample",
            "inference",
            tuple(f"{split}.jsonl" for split in SPLITS),
            _sample,
            SAMPLE_LICENCE,
            SAMPLE_HOME,
        ),
    )
}
