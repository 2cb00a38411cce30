"""Tests that all table formats give the same rows, one at a time, and that errors name the place."""

import csv
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import Workbook

from turnwise.core.errors import CorpusError
from turnwise.core.files import csv_text, escape_formula, unescape_formula
from turnwise.corpus.readers.shared import files
from turnwise.corpus.texts import TABLE_SUFFIXES, TEXT_FILE_SUFFIXES, read_rows

#: Texts that each kind can hold, line ends and delimiters among them.
some_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def table(path: Path, rows: Sequence[Sequence[str]], columns: Sequence[str], encoding: str = "utf-8") -> Path:
    match path.suffix.lower():
        case ".csv" | ".tsv":
            with path.open("w", encoding=encoding, newline="") as file:
                delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
                writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL)
                writer.writerows([columns, *(map(escape_formula, row) for row in rows)])
        case ".jsonl":
            objects = [json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows]
            path.write_text("".join(line + "\n" for line in objects), encoding=encoding)
        case ".xlsx":
            workbook = Workbook()
            for row in [columns, *(map(escape_formula, row) for row in rows)]:
                workbook.active.append(list(row))
            workbook.save(path)
        case ".parquet":
            schema = pa.schema([(column, pa.string()) for column in columns])
            pq.write_table(pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema), path)
    return path


def texts(path: Path, column: str = "text", suffixes: Sequence[str] = TEXT_FILE_SUFFIXES) -> list[str]:
    return [row.text(column) for row in read_rows(path, [column], suffixes=suffixes)]


@given(rows=st.lists(st.tuples(some_text, some_text), max_size=8))
def test_every_format_round_trips(rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("kinds")
    for kind in set(TABLE_SUFFIXES) - {".xlsx"}:  # which cannot hold control characters and blank rows
        read = list(read_rows(table(place / f"in{kind}", rows, ["text", "intent"]), ["text", "intent"]))
        assert [(row.text("text"), row.optional_text("intent")) for row in read] == rows


@pytest.mark.parametrize("kind", [".csv", ".TSV", ".jsonl"])
def test_byte_order_mark_and_upper_case_suffix_are_ignored(kind: str, tmp_path: Path) -> None:
    assert texts(table(tmp_path / f"in{kind}", [["größe"], ["b"]], ["text"], "utf-8-sig")) == ["größe", "b"]


def test_line_ends(tmp_path: Path) -> None:
    # not at U+2028 or a form feed, which str.splitlines takes for ends as well
    (tmp_path / "in.txt").write_bytes("\ufeffone\u2028still one\r\n\ntwo\f2\nthree".encode())
    rows = list(read_rows(tmp_path / "in.txt", ["text"], suffixes=TEXT_FILE_SUFFIXES))
    assert [(row.line, row.text("text")) for row in rows] == [
        (1, "one\u2028still one"),
        (2, ""),
        (3, "two\f2"),
        (4, "three"),
    ]


def test_rows_have_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('text\n"two\nlines"\n\none\n')
    (tmp_path / "in.jsonl").write_text('\n{"text": "a"}\n \n"b"\n')
    table(tmp_path / "in.parquet", [["a"], ["b"]], ["text"])
    wheres = {
        kind: [row.where for row in read_rows(tmp_path / f"in{kind}", ["text"])]
        for kind in (".csv", ".jsonl", ".parquet")
    }
    assert wheres[".csv"] == [f"{tmp_path}/in.csv, line 2", f"{tmp_path}/in.csv, line 5"]
    assert wheres[".jsonl"] == [f"{tmp_path}/in.jsonl, line 2", f"{tmp_path}/in.jsonl, line 4"]
    assert wheres[".parquet"] == [f"{tmp_path}/in.parquet, row 1", f"{tmp_path}/in.parquet, row 2"]


def test_rows_are_numbered_through_the_parts_of_a_parquet_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [str(number) for number in range(10)]}), tmp_path / "in.parquet", row_group_size=3)
    assert [(row.line, row.text("text")) for row in read_rows(tmp_path / "in.parquet", ["text"])] == [
        (number + 1, str(number)) for number in range(10)
    ]


@pytest.mark.parametrize("kind", TABLE_SUFFIXES)
def test_columns_that_may_be_missing(kind: str, tmp_path: Path) -> None:
    path = table(tmp_path / f"in{kind}", [["a", "b"]], ["text", "after"])
    (row,) = read_rows(path, ["text"])
    assert (row.values["after"], row.values.get("source"), row.optional_text("source")) == ("b", None, "")


def test_other_columns_of_a_parquet_file_can_be_left_unread(tmp_path: Path) -> None:
    path = table(tmp_path / "in.parquet", [["a", "b"]], ["text", "after"])
    (row,) = read_rows(path, ["text"], all_columns=False)
    assert row.values == {"text": "a"}


def test_rows_come_one_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "good"}\n{broken\n')
    rows = read_rows(tmp_path / "in.jsonl", ["text"])
    assert next(rows).text("text") == "good"
    with pytest.raises(CorpusError, match="line 2: not valid JSON"):
        next(rows)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.jsonl", b'{"text": "a"}\n{"text": 5}\n', "line 2: 'text' must be a text, got 5: add one"),
        ("in.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: not valid JSON"),
        ("in.jsonl", b'{"body": "a"}\n', "has no column 'text'; it has 'body'. Give the right one that name"),
        ("in.jsonl", b"[1]\n", "line 1 is neither an object nor a string"),
        ("in.jsonl", b'"\\ud83d"\n', "line 1: 'text' contains a lone surrogate"),
        ("in.jsonl", b"[" * 100_000, "line 1: the JSON is nested too deeply"),
        ("in.jsonl", b'"a"\n' * 70_000 + b'"\xe4"\n', "line 70,001: byte 0xe4 is not utf-8: save the file as UTF-8"),
        ("in.csv", b"id,text\n1,a\n2\n", "line 3: 'text' must be a text, got nothing"),
        ("in.csv", b"id,body\n1,a\n", "in.csv has no column 'text'; it has 'id', 'body'."),
        ("in.csv", b"id,body\n", "in.csv has no column 'text'; it has 'id', 'body'."),
        ("in.csv", b"text,text\n1,a\n", "in.csv has several columns 'text': rename all but one"),
        ("in.csv", b"text,n\nwell, well,1\n", "line 2: 3 cells under 2 columns: is a delimiter or a quote missing?"),
        ("in.csv", b'text,n\na,1\n"b,2\n\nc,"3"\n', "line 3: not a valid row"),
        ("in.tsv", b'text\n"so" he said\n', "line 2: not a valid row"),
        ("in.xlsx", b"PK no more", "in.xlsx: not a complete Excel file (.xlsx): File is not a zip file"),
        ("in.parquet", b"no parquet", "in.parquet: not a complete Parquet file"),
        ("in.docx", b"", "in.docx has none of the suffixes .txt, .csv, .tsv, .xlsx, .jsonl, .parquet: use a file"),
    ],
)
def test_errors_name_the_place(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError) as caught:
        texts(tmp_path / name)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / name))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": pa.array([1]), "body": pa.array(["a"])}, "has no column 'text'; it has 'id', 'body'."),
        ({"text": pa.array(["a", None])}, "row 2: 'text' must be a text, got nothing"),
        ({"text": pa.array([7])}, "row 1: 'text' must be a text, got 7"),
        ({"text": pa.array([b"\xff"]).view(pa.string())}, "not a complete Parquet file"),
    ],
)
def test_parquet_without_texts(columns: dict[str, pa.Array], message: str, tmp_path: Path) -> None:
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    with pytest.raises(CorpusError) as caught:
        texts(tmp_path / "in.parquet")
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", TEXT_FILE_SUFFIXES)
def test_missing_files(kind: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be read: there is no such file"):
        texts(tmp_path / f"missing{kind}")


def test_hint_of_the_caller_is_shown(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"it has 'body'\. Name it by --column$"):
        list(read_rows(table(tmp_path / "in.csv", [["a"]], ["body"]), ["text"], hint="Name it by --column"))


@pytest.mark.parametrize("cell", ["=1+2", "+x", "-x", "@x", "\tx", "\rx", "'=x", "''@x"])
def test_formulas_in_csv_files_are_escaped(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text(csv_text(["text", cell], [[cell, -1.5]]), encoding="utf-8", newline="")
    with path.open(encoding="utf-8-sig", newline="") as file:
        assert list(csv.reader(file)) == [["text", f"'{cell}"], [f"'{cell}", "-1.5"]]
    assert texts(path) == [cell]


@given(cell=st.text("'=+-@\t\r1.a", max_size=4))
def test_every_text_survives_a_csv_file(cell: str) -> None:
    assert unescape_formula(escape_formula(cell)) == cell
    assert cell.strip("+-.1") == "" or escape_formula(cell)[:1] not in (*"=+-@\t\r",)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16"])
def test_delimiter_and_encoding_are_detected(delimiter: str, encoding: str, tmp_path: Path) -> None:
    rows = [(f"Größe, Länge: {number}?", "maße") for number in range(5)] + [("'=1+2, wirklich", "formel")]
    content = "".join(f"{delimiter.join(row)}\n" for row in [("text", "intent"), *rows])
    (tmp_path / "in.csv").write_text(content, encoding=encoding)
    read = [(row.text("text"), row.text("intent")) for row in read_rows(tmp_path / "in.csv", ["text", "intent"])]
    assert read == [*rows[:5], ("=1+2, wirklich", "formel")]


def test_excel_cells_are_texts_and_sheets_without_the_columns_are_left_out(tmp_path: Path) -> None:
    workbook = Workbook()
    workbook.active.append(["read me"])
    first, second = workbook.create_sheet(), workbook.create_sheet()
    first.append([])
    for row in (["text", None, "when"], [7, "x", datetime.fromisoformat("2024-05-01T10:00")], [], ["'=x", None, None]):
        first.append(row)
    for row in (["intent", "text"], ["a", "b"]):
        second.append(row)
    workbook.save(tmp_path / "in.xlsx")
    rows = list(read_rows(tmp_path / "in.xlsx", ["text"]))
    assert [(row.line, row.text("text"), row.optional_text("when")) for row in rows] == [
        (3, "7", "2024-05-01 10:00:00"),
        (5, "=x", ""),
        (2, "b", ""),
    ]
    assert rows[0].where == f"{tmp_path}/in.xlsx, row 3"
    with pytest.raises(CorpusError, match="has no column 'body'; it has 'read me'"):
        texts(tmp_path / "in.xlsx", "body")


def test_an_excel_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_HARMLESS", 1)
    monkeypatch.setattr(files, "_MAX_RATIO", 1)
    with pytest.raises(CorpusError, match="times its size"):
        texts(table(tmp_path / "in.xlsx", [["a" * 9_999]], ["text"]))
