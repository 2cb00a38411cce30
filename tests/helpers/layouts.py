"""A tiny input for every layout that turnwise reads, with the dialogues that it contains; all sentences are invented.

`tests/corpus/readers/layouts/READER/` has a folder per layout with the files as they are on disk, and `expected.yaml`
with what a reader returns for each of them. A turn is written as `speaker: text`, a slot as name, value and start.
Files of layouts with `gzip: true` are compressed, and `NAME.parquet.json` holds the columns of `NAME.parquet`.

Several tests damage the first layout of each reader. So it has two dialogues or more, and its `main` file, by default
the first one, is the one worth damaging.
"""

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from turnwise.core.dialogue import Dialogue, Slot, Turn

FOLDER = Path(__file__).parents[1] / "corpus" / "readers" / "layouts"


@dataclass(frozen=True)
class Layout:
    """Files by path under the folder that is imported, and the dialogues, `left_out` and `facts` to expect."""

    reader: str
    name: str
    files: Mapping[str, bytes]
    expected: tuple[Dialogue, ...]
    main: str
    options: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.files[self.main]

    def write(self, folder: Path, content: bytes | None = None) -> Path:
        """Write the files under `folder`, the main one with other content if given; return the folder."""
        return lay_out(folder, {**self.files, self.main: self.content if content is None else content})


def lay_out(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write files by their paths under a folder; return the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def turn(
    speaker: str, text: str, intent: str | None = None, acts: Sequence[str] = (), slots: Sequence[tuple[str, str]] = ()
) -> Turn:
    """Return a turn whose slots (name, value) are at the first occurrence of the value."""
    located = [Slot(name, value, text.index(value), text.index(value) + len(value)) for name, value in slots]
    return Turn(speaker, text, intent, tuple(acts), tuple(located))


def json_bytes(value: Any, indent: int | None = None) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=indent).encode()


def lines_bytes(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def jsonl_bytes(*records: Any) -> bytes:
    return lines_bytes(*(json.dumps(record, ensure_ascii=False) for record in records))


def csv_bytes(header: Sequence[str], *rows: Sequence[object], delimiter: str = ",") -> bytes:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows([header, *rows])
    return file.getvalue().encode()


def parquet_bytes(columns: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), file)
    return file.getvalue()


def _load_layouts() -> tuple[Layout, ...]:
    tables = {path.parent: yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*/expected.yaml"))}
    return tuple(_load(folder, name, entry) for folder, table in tables.items() for name, entry in table.items())


def _load(folder: Path, name: str, entry: dict[str, Any]) -> Layout:
    files = {}
    is_compressed = entry.pop("gzip", False)
    for path in sorted(path for path in (folder / name).rglob("*") if path.is_file()):
        file, content = path.relative_to(folder / name).as_posix(), path.read_bytes()
        if file.endswith(".parquet.json"):
            file, content = file.removesuffix(".json"), parquet_bytes(json.loads(content))
        if is_compressed:
            file, content = f"{file}.gz", gzip.compress(content, mtime=0)
        files[file] = content
    expected = tuple(_dialogue(dialogue, folder.name) for dialogue in entry.pop("dialogues"))
    entry.setdefault("main", next(iter(files)))
    return Layout(folder.name, f"{folder.name} {name}", files, expected, **entry)


def _dialogue(entry: dict[str, Any], reader: str) -> Dialogue:
    turns = []
    for fields in entry["turns"]:
        speaker, text = next(iter(fields.items()))
        slots = tuple(Slot(name, value, start, start + len(value)) for name, value, start in fields.get("slots", ()))
        turns.append(Turn(speaker, text, fields.get("intent"), tuple(fields.get("acts", ())), slots))
    return Dialogue(entry["id"], tuple(turns), entry.get("source", reader), entry.get("split"))


LAYOUTS = _load_layouts()

#: The first layout of each reader.
BASES = {layout.reader: layout for layout in reversed(LAYOUTS)}


def layout_named(name: str) -> Layout:
    return next(layout for layout in LAYOUTS if layout.name == name)
