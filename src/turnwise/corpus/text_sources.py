"""Texts to be encoded, out of whatever holds them: the turns of a store, the lines of a file, the rows of a table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import TurnwiseError
from turnwise.core.files import sha256
from turnwise.corpus.store import Store, is_store, read_corpus
from turnwise.corpus.table_files import KINDS, check_kind, read_rows

#: What an encoder is given: a text, or a turn of which it may want to know the speaker.
Item = str | tuple[Turn]

#: An item, and what tells where it is from, the text last.
Row = tuple[Item, tuple[Any, ...]]


#: What goes with each turn of a store.
TURNS = pa.schema([("dialogue", pa.string()), ("turn", pa.int32()), ("speaker", pa.string()), ("text", pa.string())])


class TextsError(TurnwiseError):
    """There are no such texts; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that can be read as often as one likes, always in the same order.

    Attributes:
        schema: of what goes with each.
        identity: the same for the same texts.
        rows: reads them.
    """

    schema: pa.Schema
    identity: str
    rows: Callable[[], Iterator[Row]]


def read_texts(source: Path, column: str = "text", splits: Sequence[str] = (), speakers: Sequence[str] = ()) -> Texts:
    """The texts of a store or a file; nothing is read but what is needed to know that it can be.

    Args:
        source: a store; a .txt file, a text a line; a .csv, .tsv, .jsonl or .parquet file.
        column: the column of texts; in JSON Lines a key, or lines that are texts themselves.
        splits: of a store, dialogues of these splits alone; none: all.
        speakers: of a store, turns by these speakers alone; none: all.

    Raises:
        TextsError: if there is no such file, or splits and speakers are asked of it.
        TableFileError: if it is of another kind; what is wrong with a row is told when its turn comes.
    """
    if source.is_dir() and is_store(source):
        return _turns(source, splits, speakers)
    if source.is_dir():
        raise TextsError(f"{source} is a folder but not a store: import a log first, by `turnwise corpus import`")
    if not source.is_file():
        raise TextsError(f"{source} does not exist")
    check_kind(source, KINDS)
    if splits or speakers:
        raise TextsError(f"{source} has no splits and no speakers to choose by: only a store has")

    def rows() -> Iterator[Row]:
        for row in read_rows(source, [column], kinds=KINDS, advice="Name the right one by --column"):
            text = row.text(column)
            yield text, (text,)

    return Texts(pa.schema([("text", pa.string())]), f"{sha256(source)} {column}", rows)


def _turns(folder: Path, splits: Sequence[str], speakers: Sequence[str]) -> Texts:
    store = Store(folder)

    def rows() -> Iterator[Row]:
        for row in turn_rows(read_corpus(folder, splits=splits or None)):
            if not speakers or row[0][0].speaker in speakers:
                yield row

    return Texts(TURNS, f"{store.manifest['generation']} {sorted(splits)} {sorted(speakers)}", rows)


def turn_rows(dialogues: Iterable[Dialogue]) -> Iterator[tuple[tuple[Turn], tuple[str, int, str, str]]]:
    """The turns of dialogues, each with what `TURNS` names."""
    for dialogue in dialogues:
        for number, turn in enumerate(dialogue.turns):
            yield (turn,), (dialogue.id, number, turn.speaker, turn.text)
