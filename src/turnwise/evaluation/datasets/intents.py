"""Labelled utterances: CLINC150, BANKING77, HWU64, SNIPS and the sample world, in their authors' splits."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from turnwise.errors import TurnwiseError

OUT_OF_SCOPE = "out_of_scope"


class DatasetError(TurnwiseError):
    """A data set is missing or not in the expected layout."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text and what it asks for."""

    text: str
    intent: str


@dataclass(frozen=True, slots=True)
class IntentData:
    """A data set of labelled utterances; `valid` is empty where its authors have none."""

    name: str
    licence: str
    train: tuple[Utterance, ...]
    valid: tuple[Utterance, ...]
    test: tuple[Utterance, ...]

    @property
    def intents(self) -> list[str]:
        """The intents, in alphabetical order."""
        return sorted({utterance.intent for utterance in self.train})


def load_intents(name: str, data: Path) -> IntentData:
    """Loads a data set by its plain name from a folder of data sets; 'sample': from a sample world's folder.

    Raises:
        DatasetError: if there is no such data set, or not in that folder.
    """
    if name not in INTENT_DATASETS:
        raise DatasetError(f"there is no intent data set {name!r}: choose from {', '.join(INTENT_DATASETS)}")
    folder, licence, read = INTENT_DATASETS[name]
    place = data / folder
    if not place.is_dir():
        raise DatasetError(f"{place} is not there: {name} is expected in its authors' layout")
    try:
        splits = read(place)
    except FileNotFoundError as error:
        raise DatasetError(f"{error.filename} is not there: {name} is expected in its authors' layout") from None
    except (KeyError, ValueError, TypeError) as error:
        raise DatasetError(f"{place} is not in {name}'s layout: {error!r}") from None
    return IntentData(name, licence, *splits)


_Splits = tuple[tuple[Utterance, ...], tuple[Utterance, ...], tuple[Utterance, ...]]


def _clinc150(folder: Path) -> _Splits:
    """Without the out-of-scope rows, as for intent classification."""
    content = json.loads((folder / "data" / "data_full.json").read_text(encoding="utf-8"))
    train, valid, test = (tuple(Utterance(text, label) for text, label in content[split]) for split in ("train", "val", "test"))
    return train, valid, test


def _banking77(folder: Path) -> _Splits:
    return _csv(folder / "banking_data" / "train.csv"), (), _csv(folder / "banking_data" / "test.csv")


def _hwu64(folder: Path) -> _Splits:
    train, valid, test = (_csv(folder / "dialoglue_csv" / f"{split}.csv") for split in ("train", "val", "test"))
    return train, valid, test


def _csv(path: Path) -> tuple[Utterance, ...]:
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(Utterance(row["text"], row["category"]) for row in csv.DictReader(file))


def _snips(folder: Path) -> _Splits:
    train, valid, test = (_slot_gated(folder / "data" / "snips" / split) for split in ("train", "valid", "test"))
    return train, valid, test


def _slot_gated(folder: Path) -> tuple[Utterance, ...]:
    texts, labels = ((folder / name).read_text(encoding="utf-8").splitlines() for name in ("seq.in", "label"))
    return tuple(Utterance(text.strip(), label.strip()) for text, label in zip(texts, labels, strict=True))


def _sample(folder: Path) -> _Splits:
    """Without the out-of-scope utterances."""

    def read(split: str) -> tuple[Utterance, ...]:
        lines = (folder / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        return tuple(Utterance(item["text"], item["intent"]) for item in records if item["intent"] != OUT_OF_SCOPE)

    return read("train"), read("valid"), read("test")


#: name → (folder, licence, how to read it)
INTENT_DATASETS: dict[str, tuple[str, str, Callable[[Path], _Splits]]] = {
    "clinc150": ("clinc150_oos", "CC BY 3.0", _clinc150),
    "banking77": ("banking77", "CC BY 4.0", _banking77),
    "hwu64": ("hwu64", "CC BY 4.0", _hwu64),
    "snips": ("snips_slotgated", "CC0 (source)", _snips),
    "sample": ("intents", "Apache-2.0", _sample),
}
