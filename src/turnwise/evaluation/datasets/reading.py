"""Reading other people's files strictly: a figure on part of a test set is another figure, so what does not fit is refused."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.registry import Reader
from turnwise.corpus.source import CorpusSource, Rejection
from turnwise.evaluation.datasets.dataset import Data, Dataset, DatasetError

SPLITS = ("train", "valid", "test")

#: The files of a sample world's store, which is a data set's folder itself.
STORE_FILES = ("manifest.json", "dialogues-*.parquet")

#: Whose world the sample is.
SAMPLE_LICENCE = "Apache-2.0"
SAMPLE_HOME = "turnwise corpus sample --out FOLDER"


def dataset(
    kind: Callable[..., Data],
    name: str,
    folder: str,
    files: tuple[str, ...],
    read: Callable[[Path], Iterable[Any]],
    licence: str,
    home: str,
    digest: str = "",
    differs: str = "",
) -> Dataset[Data]:
    """A data set whose contents are `kind(name, licence, *read(folder))`."""
    return Dataset(name, folder, files, lambda place: kind(name, licence, *read(place)), licence, home, digest, differs)


def strict(root: Path) -> CorpusSource:
    """An intake under a file or folder that leaves nothing out: what it would reject raises a DatasetError with file and line."""

    def refuse(rejection: Rejection) -> None:
        place = root if root.is_file() else root / rejection.file
        line = "" if rejection.line is None else f", line {rejection.line}"
        raise DatasetError(f"{place}{line}: {rejection.reason}; get the file anew, or correct it")

    return CorpusSource(root, root.name, refuse)


def corpus_dialogues(reader: Reader, folder: Path) -> Iterator[Dialogue]:
    """The dialogues of a corpus in its authors' layout, in a stream; what its reader leaves out of a store is left out here too."""
    return reader.read(CorpusSource(folder, reader.name, lambda rejection: None, reader.encoding))


def store_name(folder: Path) -> str:
    """What a store is called as a data set: 'sample' if it is a sample world, else by its folder's name."""
    return "sample" if (folder / "intents").is_dir() else folder.resolve().name


def text_of(value: Any) -> str:
    """The text that a field holds, without the space around it.

    Raises:
        ValueError: if it holds none.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text, not {value!r}")
    return value.strip()


def texts_of(value: Any) -> tuple[str, ...]:
    """The texts that a field lists; the letters of a string are no list."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"expected a list of texts, not {value!r}")
    return tuple(map(text_of, value))


def tab_separated(intake: CorpusSource, path: Path, count: int) -> Iterator[tuple[int, list[str]]]:
    """The fields of each line, `count` or more; quotes are ordinary characters, blank lines are passed over."""
    for number, line in intake.lines(path):
        if not line:
            continue
        fields = line.split("\t")
        if len(fields) < count:
            intake.reject(path, number, "dialogue", f"expected {count} fields by tabs, not {len(fields)}", text=line)
        yield number, fields


def among(value: Any, *expected: str) -> str:
    """The value, as one of those that a field may hold.

    Raises:
        ValueError: if it is another.
    """
    if value not in expected:
        raise ValueError(f"expected {' or '.join(map(repr, expected))}, not {value!r}")
    return str(value)
