"""Tests the detection of encodings, delimiters and quoting."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.corpus.source.encodings import SAMPLE_SIZE, detect_encoding
from turnwise.corpus.source.tables import TableDialect, detect_dialect

GERMAN = "Können Sie mir helfen?\nDie Rückgabe klappt nicht\nSchöne Grüße\n"
RUSSIAN = "Здравствуйте, где мой заказ?\nСейчас проверю, подождите минуту\n"
JAPANESE = "こんにちは、注文はどこですか\n確認いたします。少々お待ちください\n"


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        (GERMAN, "utf-8", "utf-8"),
        (GERMAN, "utf-8-sig", "utf-8"),
        (GERMAN, "utf-16", "utf-16"),
        (GERMAN, "utf-16-le", "utf-16-le"),
        (GERMAN, "utf-16-be", "utf-16-be"),
        (GERMAN, "cp1252", "cp1252"),
        (RUSSIAN, "cp1251", "cp1251"),
        (JAPANESE, "shift_jis", "shift_jis"),
        ("caf\u00e9 and nothing else", "cp1252", "cp1252"),
        ("plain", "ascii", "utf-8"),
        ("", "ascii", "utf-8"),
    ],
)
def test_encodings(text: str, encoding: str, expected: str):
    detected = detect_encoding(text.encode(encoding))
    assert detected == expected
    assert text.encode(encoding).decode(detected).removeprefix("\ufeff") == text


def test_a_few_damaged_lines_do_not_change_the_encoding():
    assert detect_encoding(GERMAN.encode() + "kaputt: Ü\n".encode("latin-1")) == "utf-8"


def test_sample_that_ends_within_a_character_is_utf8():
    content = ("x" * (SAMPLE_SIZE - 1) + "ü").encode()
    assert detect_encoding(content[:SAMPLE_SIZE]) == "utf-8"
    assert detect_encoding(GERMAN.encode() + content[: SAMPLE_SIZE - len(GERMAN.encode())]) == "utf-8"


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("a,b\n1,2\n", TableDialect(",")),
        ("a;b;c\n1;x, y;z\n2;q;r\n", TableDialect(";")),
        ("a|b\n1|x, y; z\n", TableDialect("|")),
        ("a\tb\n1\tx, y\n", TableDialect("\t")),
        ('a,b\n1,"he said \\"hi\\", ok"\n2,x\n', TableDialect(",", '"', backslash=True)),
        ("a,b\n1,'x, y'\n2,'z'\n", TableDialect(",", "'")),
        ('a\tb\n1\t"unclosed\n2\tx\n3\ty\n', TableDialect("\t", "")),
        ('"a","b"\n"1","x; y; z"\n', TableDialect(",")),
    ],
)
def test_dialects(table: str, expected: TableDialect):
    assert detect_dialect(table) == expected
    rows = [row for _, row in expected.rows(io.StringIO(table, newline=""))]
    assert {len(row) for row in rows} == {len(rows[0])}


def test_expected_columns_decide():
    assert detect_dialect("id;name, first\n1;x, y\n", columns=["name, first"]).delimiter == ";"
    assert detect_dialect("id;name, first\n1;x, y\n", columns=["id;name"]).delimiter == ","


cells = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r\n\\'|;\t"), min_size=1)


@given(st.lists(st.tuples(cells, cells, cells), min_size=1), st.sampled_from([",", ";", "\t"]))
def test_tables_that_python_writes_are_read_back(rows: list[tuple[str, str, str]], delimiter: str):
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("id", "who", "text"), *rows])
    dialect = detect_dialect(written.getvalue(), columns=["id", "who", "text"])
    assert dialect.delimiter == delimiter
    assert [tuple(row) for _, row in dialect.rows(io.StringIO(written.getvalue(), newline=""))][1:] == rows
