"""Texts to encode, from the turns of a store, the lines of a file, or the rows of a table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.core.files import sha256
from turnwise.corpus.texts.table_files import TEXT_FILE_SUFFIXES, check_suffix, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

#: What an encoder takes: a text, or a turn, whose speaker it may use.
EncoderInput = str | tuple[Turn]

#: An input, and the columns that identify it, the text last.
TextRow = tuple[EncoderInput, tuple[Any, ...]]

#: The columns that identify a turn of a store.
TURN_COLUMNS = ("dialogue", "turn", "speaker", "text")


@dataclass(frozen=True, slots=True)
class TextSource:
    """Texts that can be read any number of times, always in the same order."""

    #: The names of the identifying columns.
    columns: tuple[str, ...]
    #: Equal for equal texts.
    identity: str
    rows: Callable[[], Iterator[TextRow]]

    def schema(self) -> "pa.Schema":
        """Return the columns with their types."""
        return columns_schema(self.columns)


def open_text_source(
    path: Path, column: str = "text", splits: Sequence[str] = (), speakers: Sequence[str] = ()
) -> TextSource:
    """Open a store or a file of texts, without reading the texts yet.

    Args:
        path: a store; a .txt file with a text per line; a .csv, .tsv, .jsonl or .parquet file.
        column: the column of the texts; JSON lines may also be strings.
        splits: for a store, the splits to read; empty: all.
        speakers: for a store, the speakers whose turns to read; empty: all.
    """
    if path.is_dir():
        return _open_store(path, splits, speakers)
    if not path.is_file():
        raise CorpusError(f"{path} does not exist")
    check_suffix(path, TEXT_FILE_SUFFIXES)
    if splits or speakers:
        raise CorpusError(f"{path} is not a store: only a store has splits and speakers to select")

    def rows() -> Iterator[TextRow]:
        for row in read_rows(path, [column], suffixes=TEXT_FILE_SUFFIXES, hint="Name the right one by --column"):
            text = row.text(column)
            yield text, (text,)

    return TextSource(("text",), f"{sha256(path)} {column}", rows)


def columns_schema(columns: Sequence[str]) -> "pa.Schema":
    """Return identifying columns with their types: the number of a turn is an integer, the others are strings."""
    import pyarrow as pa

    return pa.schema([(name, pa.int32() if name == "turn" else pa.string()) for name in columns])


def _open_store(folder: Path, splits: Sequence[str], speakers: Sequence[str]) -> TextSource:
    from turnwise.corpus.storage.corpus import read_corpus
    from turnwise.corpus.storage.store import Store, is_store, require_speakers

    if not is_store(folder):
        raise CorpusError(f"{folder} is a folder but not a store: import a log first, by `turnwise corpus import`")
    store = Store(folder)
    require_speakers([store], speakers)

    def rows() -> Iterator[TextRow]:
        for row in turn_rows(read_corpus(folder, splits=splits or None)):
            if not speakers or row[0][0].speaker in speakers:
                yield row

    return TextSource(TURN_COLUMNS, f"{store.manifest['generation']} {sorted(splits)} {sorted(speakers)}", rows)


def turn_rows(dialogues: Iterable[Dialogue]) -> Iterator[tuple[tuple[Turn], tuple[str, int, str, str]]]:
    """Yield the turns of dialogues, each with the columns of `TURN_COLUMNS`."""
    for dialogue in dialogues:
        for number, turn in enumerate(dialogue.turns):
            yield (turn,), (dialogue.id, number, turn.speaker, turn.text)
