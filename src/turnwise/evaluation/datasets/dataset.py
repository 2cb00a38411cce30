"""Data sets: where they are, what is known of them (`datasets.yaml`), and strict reading of their files.

Metrics on part of a test set are not comparable, so a line that does not fit the layout is an error and never skipped.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import DatasetError
from turnwise.core.files import sha256
from turnwise.corpus.registry import get_reader
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.rejections import Rejection
from turnwise.corpus.storage.store import Store, is_store

Data = TypeVar("Data")
Example = TypeVar("Example")

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)  # no slots: with them, Python 3.11 cannot call an alias such as SplitData[Candidates]
class SplitData(Generic[Example]):
    """The examples of a data set in its authors' splits; a split that they do not have is empty."""

    name: str
    train: tuple[Example, ...] = ()
    valid: tuple[Example, ...] = ()
    test: tuple[Example, ...] = ()

    @property
    def examples(self) -> tuple[Example, ...]:
        """Return the examples of all splits."""
        return self.train + self.valid + self.test


@dataclass(frozen=True, slots=True)
class Dataset(Generic[Data]):
    """A data set that can be loaded."""

    name: str
    folder: str  # where it is in a folder of data sets
    files: tuple[str, ...]  # patterns below its folder; the data set is present if each of them matches a file
    read: Callable[[Path], Data]  # from its folder to its contents
    licence: str
    home: str  # where to get it
    digest: str = ""  # hash of its files when it was added; empty if everybody has different files
    differs: str = ""  # how it differs from the data of the papers; empty if it does not

    def find_files(self, data: Path) -> list[Path]:
        """Return its files in a folder of data sets, sorted; none if one is missing."""
        matches = [sorted((data / self.folder).glob(pattern)) for pattern in self.files]
        return sorted({path for paths in matches for path in paths}) if all(matches) else []

    def is_present(self, data: Path) -> bool:
        """Return whether a folder of data sets holds it."""
        return bool(self.find_files(data))

    def load(self, data: Path) -> Data:
        """Return its contents; raises DatasetError if it is missing or not in its authors' layout."""
        folder = data / self.folder
        if not self.is_present(data):
            missing = next(pattern for pattern in self.files if not any(folder.glob(pattern)))
            raise DatasetError(
                f"{folder / missing} does not exist: {self.name} must have its authors' layout; get it from {self.home}"
            )
        try:
            return self.read(folder)
        except (KeyError, ValueError, TypeError, IndexError, SyntaxError) as error:
            raise DatasetError(f"{folder} is not in {self.name}'s layout: {error!r}") from None

    def hash_files(self, data: Path) -> str:
        """Return the SHA-256 of its files' names and contents."""
        digest = hashlib.sha256()
        for path in self.find_files(data):
            digest.update(f"{path.relative_to(data / self.folder)}\0{sha256(path)}\n".encode())
        return digest.hexdigest()


@cache
def dataset_descriptions() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the contents of `datasets.yaml`: descriptions by kind and name."""
    text = files("turnwise.evaluation.datasets").joinpath("datasets.yaml").read_text(encoding="utf-8")
    descriptions: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(text)
    return descriptions


def known_datasets(
    kind: str, make: Callable[..., Data], readers: Mapping[str, Callable[[Path], Iterable[Any]]]
) -> dict[str, Dataset[Data]]:
    """Return the data sets of a kind; the contents of each are `make(name, *reader(folder))`."""
    descriptions = dataset_descriptions()[kind]
    return {name: describe_dataset(name, descriptions[name], make, read) for name, read in readers.items()}


def describe_dataset(
    name: str, description: Mapping[str, Any], make: Callable[..., Data], read: Callable[[Path], Iterable[Any]]
) -> Dataset[Data]:
    """Return a data set with the description that `datasets.yaml` has of it."""
    if "reader" in description:
        reader = get_reader(description["reader"])
        licence, home = description.get("licence", reader.licence), reader.home
    else:
        licence = description.get("licence", "Apache-2.0")
        home = description.get("home", "turnwise corpus sample --out FOLDER")
    return Dataset(
        name,
        description["folder"],
        tuple(description.get("files") or [file for file, _ in description["splits"].values()]),
        lambda folder: make(name, *read(folder)),
        licence,
        home,
        description.get("sha256", ""),
        description.get("differs", ""),
    )


def with_store(
    datasets: dict[str, Dataset[Data]], data: Path | None, read: Callable[[Path, str], Data], differs: str
) -> dict[str, Dataset[Data]]:
    """Add the folder of data sets itself if it is a store: as 'sample' if it holds sample data, else by its name."""
    if data is None or not is_store(data):
        return datasets
    name = "sample" if (data / "intents").is_dir() else data.resolve().name
    return {**datasets, name: store_dataset(name, ("manifest.json",), lambda folder: read(folder, name), differs)}


def store_dataset(
    name: str, files: tuple[str, ...], read: Callable[[Path], Data], differs: str, licence: str = "that of the store"
) -> Dataset[Data]:
    """Return a data set that is made of the dialogues of a store."""
    return Dataset(name, ".", files, read, licence, "a store of yours", differs=differs)


def read_held_out(store: Path) -> Corpus:
    """Open the dialogues of a store outside its training split, or all if it has no other split."""
    return read_corpus(store, splits=sorted(Store(store).splits() - {"train"}) or None)


def open_strict(root: Path) -> CorpusSource:
    """Return a source whose rejections raise a DatasetError with file and line."""

    def refuse(rejection: Rejection) -> None:
        path = root if root.is_file() else root / rejection.file
        line = "" if rejection.line is None else f", line {rejection.line}"
        raise DatasetError(f"{path}{line}: {rejection.reason}; download the file again, or correct it")

    return CorpusSource(root, root.name, refuse)


def read_dialogues(reader_name: str, folder: Path) -> Iterator[Dialogue]:
    """Yield the dialogues of a corpus, without those that an import would reject."""
    reader = get_reader(reader_name)
    return reader.read(CorpusSource(folder, reader.name, lambda rejection: None, encoding=reader.encoding))


def read_json_lines(folder: Path, name: str, make: Callable[[Any], Data]) -> Iterator[Data]:
    """Yield `make(record)` for every line of a JSON Lines file."""
    source, path = open_strict(folder), folder / name
    for line, record in source.json_lines(path):
        with source.guard(path, line):
            yield make(record)


def read_tsv(source: CorpusSource, path: Path, count: int) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and at least `count` fields; quotes are ordinary characters, empty lines are skipped."""
    for number, line in source.lines(path):
        if not line:
            continue
        fields = line.split("\t")
        if len(fields) < count:
            source.reject(path, number, "dialogue", f"expected {count} fields by tabs, not {len(fields)}", text=line)
        yield number, fields


def parse_text(value: Any) -> str:
    """Return a text without surrounding white space; raises ValueError if it is empty or not a string."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text, not {value!r}")
    return value.strip()


def parse_texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list; raises ValueError if it is empty or a string."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"expected a list of texts, not {value!r}")
    return tuple(map(parse_text, value))


def parse_choice(value: Any, *choices: str) -> str:
    """Return the value if it is one of the choices; raises ValueError otherwise."""
    if value not in choices:
        raise ValueError(f"expected {' or '.join(map(repr, choices))}, not {value!r}")
    return str(value)
