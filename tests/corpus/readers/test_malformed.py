"""Pins what every reader does with a broken file: whatever is wrong, an import keeps what is whole and lists the rest.

For each reader of the registry a valid tiny corpus (`layouts.py`) is damaged. `attempt` (in `conftest.py`) checks what holds
whatever comes of it: a whole store with every fault listed by file and reason, or a `CorpusError` and no out folder; never
another exception; and strict imports stop exactly at the first fault.
"""

import contextlib
import datetime
import decimal
import gzip
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.layouts import BASES, LAYOUTS, Layout, csv_bytes, jsonl_bytes, lay_out, parquet_bytes
from turnwise.corpus.importing import import_corpus
from turnwise.corpus.registry import READERS
from turnwise.corpus.source import CorpusError
from turnwise.corpus.store import Store

MEGABYTE = 1_000_000
DEEP = 100_000

each_reader = pytest.mark.parametrize("reader", READERS)


def _kind(layout: Layout) -> str:
    """'json' (a file is one document), 'jsonl' (a line is one), or 'lines'."""
    text = layout.content.decode("latin-1").removeprefix("\xef\xbb\xbf")
    for kind, pieces in (("json", [text]), ("jsonl", text.splitlines())):
        try:
            for piece in pieces:
                json.loads(piece)
        except ValueError:
            continue
        return kind
    return "lines"


KINDS = {reader: _kind(layout) for reader, layout in BASES.items()}
JSON_FILES = [reader for reader in READERS if KINDS[reader] == "json"]
JSON_LINES = [reader for reader in READERS if KINDS[reader] == "jsonl"]
#: A file is one dialogue, so that there are no elements after a fault.
ONE_DIALOGUE_A_FILE = {"star"}
#: Words and their labels are in several files, line by line, so that neither a line nor a word may be added to one of them alone.
LABELS_IN_OTHER_FILES = {"snips", "atis"}


def _texts(layout: Layout) -> Iterator[str]:
    return (turn.text for dialogue in layout.expected for turn in dialogue.turns)


def _text_in(layout: Layout) -> tuple[str, bytes]:
    """A file and a text that stands in it as it is, in the bytes that it has there; in the main file if there is one."""
    encoding = READERS[layout.reader].encoding
    for name in sorted(layout.files, key=lambda name: name != layout.main_file):
        for text in _texts(layout):
            if text.encode(encoding) in layout.files[name]:
                return name, text.encode(encoding)
    raise AssertionError(layout)


def _with_text(layout: Layout, folder: Path, change: Callable[[bytes], bytes], *, quoted: bool = False) -> Path:
    """The layout under `folder`, one of its texts changed; `quoted`: with the quotes around it, where there are any."""
    name, text = _text_in(layout)
    if quoted and _is_quoted(layout):
        text = b'"' + text + b'"'
    return lay_out(layout.write(folder), {name: layout.files[name].replace(text, change(text))})


def _is_quoted(layout: Layout) -> bool:
    """Whether the text is a JSON string, so that something else can be put in its place."""
    name, text = _text_in(layout)
    return b'"' + text + b'"' in layout.files[name]


# ---- whole files


@each_reader
def test_a_path_that_does_not_exist_is_named(reader: str, tmp_path: Path, attempt: Callable):
    assert "nowhere does not exist" in attempt(reader, tmp_path / "nowhere").error


@each_reader
def test_a_folder_without_such_files_is_named_with_what_was_expected(reader: str, tmp_path: Path, attempt: Callable):
    folder = lay_out(tmp_path / "in", {"photos/cat.jpg": b"\xff\xd8"})
    error = attempt(reader, folder).error
    assert str(folder) in error
    assert "expected" in error


@each_reader
@pytest.mark.parametrize("content", [b"", b" \n\n\t\n", b"\xef\xbb\xbf", b"[]", b"{}", b"null"])
def test_a_file_without_dialogues_is_named(reader: str, content: bytes, tmp_path: Path, attempt: Callable):
    layout = BASES[reader]
    if reader == "multiwoz" and content.isascii() and content.strip():
        pytest.skip("any line is an utterance there")
    path = lay_out(tmp_path / "in", {layout.main_file: content}) / layout.main_file
    error = attempt(reader, path, **layout.options).error
    assert "no dialogue of" in error or "has no column" in error
    assert path.name in error


@each_reader
@pytest.mark.parametrize(
    "content",
    [bytes(range(256)) * 20, b"\x00" * 5000, b"\xff\xfe" + "[1]".encode("utf-16-le"), b"PK\x03\x04" + bytes(300)],
    ids=["every byte", "zeros", "UTF-16", "zip"],
)
def test_binary_data_gives_an_error(reader: str, content: bytes, tmp_path: Path, attempt: Callable):
    layout = BASES[reader]
    path = lay_out(tmp_path / "in", {layout.main_file: content}) / layout.main_file
    assert path.name in attempt(reader, path, **layout.options).error


@each_reader
def test_a_truncated_file_keeps_what_is_whole(reader: str, tmp_path: Path, attempt: Callable):
    """Cut anywhere: no dialogue is invented, and where the layout lets it be seen, the cut is listed."""
    layout = BASES[reader]
    whole = {dialogue.id: dialogue for dialogue in layout.expected}
    content = layout.content.rstrip()
    for cut in sorted({*range(1, len(content), max(1, len(content) // 25)), len(content) - 1}):
        outcome = attempt(reader, layout.write(tmp_path / f"in-{cut}", content[:cut]), **layout.options)
        if KINDS[reader] == "json":
            assert outcome.rejected or outcome.error
            assert all(dialogue == whole[dialogue.id] for dialogue in outcome.dialogues)
            assert all(rejection["line"] or reader in ONE_DIALOGUE_A_FILE for rejection in outcome.rejected)
        elif KINDS[reader] == "jsonl":
            cut_line = content[:cut].split(b"\n")[-1]
            try:
                json.loads(cut_line or b"{}")
            except ValueError:
                assert outcome.rejected or outcome.error


@pytest.mark.parametrize(
    ("reader", "other"),
    [
        ("schema_guided_dialogue", "train/dialogues_002.json"),
        ("star", "dialogues/9.json"),
        ("kvret", "kvret_test_public.json"),
        ("topical_chat", "conversations/test_freq.json"),
        ("metalwoz", "dialogues/ALARM.txt"),
        ("taskmaster", "TM-4-2024/data/data_02.json"),
        ("casino", "split/casino_test.json"),
        ("messages", "zz.jsonl"),
        ("jsonl", "zz.jsonl"),
    ],
)
def test_a_truncated_file_beside_a_whole_one_does_no_harm(reader: str, other: str, tmp_path: Path, attempt: Callable):
    """One broken file of many: the others are read, and the broken one is named."""
    layout = BASES[reader]
    folder = lay_out(layout.write(tmp_path / "in"), {other: layout.content[:40]})
    outcome = attempt(reader, folder, **layout.options)
    assert sorted(dialogue.id for dialogue in outcome.dialogues) == sorted(dialogue.id for dialogue in layout.expected)
    assert [rejection["file"] for rejection in outcome.rejected] == [other]


@pytest.mark.parametrize("reader", JSON_FILES)
@pytest.mark.parametrize("junk", ["garbage", "[]", ', {"more": 1}', "\x00"])
def test_what_follows_a_json_document_is_listed(reader: str, junk: str, tmp_path: Path, attempt: Callable):
    """Two documents in one file, as of a careless `cat`: the second is not lost in silence."""
    layout = BASES[reader]
    outcome = attempt(reader, layout.write(tmp_path / "in", layout.content + junk.encode()), **layout.options)
    assert outcome.rejected or outcome.error


@pytest.mark.parametrize(
    "layout", [layout for layout in LAYOUTS if layout.main_file.endswith(".gz")], ids=lambda it: it.name
)
@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip", "empty", "trailing"])
def test_a_damaged_gzip_file_is_listed(layout: Layout, damage: str, tmp_path: Path, attempt: Callable):
    content = layout.content
    middle = len(content) // 2
    damaged = {
        "cut": content[:middle],
        "flipped": content[:middle] + bytes([content[middle] ^ 0xFF]) * 3 + content[middle + 3 :],
        "not gzip": gzip.decompress(content),
        "empty": b"",
        "trailing": content + b"junk",
    }[damage]
    outcome = attempt(layout.reader, layout.write(tmp_path / "in", damaged), **layout.options)
    assert outcome.rejected or outcome.error


def test_a_gzip_file_broken_anywhere_gives_an_error_or_a_store(tmp_path: Path, attempt: Callable):
    """A wrong byte in a gzip file can show up as several kinds of error; none of them escapes."""
    for name in ("abcd gz", "messages jsonl.gz"):
        layout = next(layout for layout in LAYOUTS if layout.name == name)
        for position in range(0, len(layout.content), 5):
            damaged = bytearray(layout.content)
            damaged[position] ^= 0x55
            attempt(layout.reader, layout.write(tmp_path / f"{name}-{position}", bytes(damaged)), **layout.options)


def test_a_parquet_file_broken_anywhere_gives_an_error_or_a_store(tmp_path: Path, attempt: Callable):
    layout = next(layout for layout in LAYOUTS if layout.main_file.endswith(".parquet"))
    size = len(layout.content)
    for cut in (0, 3, 4, 12, size // 2, size - 8, size - 1):
        outcome = attempt("table", layout.write(tmp_path / f"cut-{cut}", layout.content[:cut]), **layout.options)
        assert "log.parquet" in outcome.error or "not a complete Parquet file" in outcome.error
    for position in range(4, size, 31):
        damaged = bytearray(layout.content)
        damaged[position] ^= 0x55
        with contextlib.suppress(CorpusError):
            import_corpus(
                "table", layout.write(tmp_path / f"flip-{position}", bytes(damaged)), tmp_path / "out", **layout.options
            )


# ---- bytes


@each_reader
def test_a_nul_byte_in_a_text_is_listed(reader: str, tmp_path: Path, attempt: Callable):
    layout = BASES[reader]
    folder = _with_text(layout, tmp_path / "in", lambda text: text[:1] + b"\x00" + text[1:])
    outcome = attempt(reader, folder, **layout.options)
    assert outcome.rejected or outcome.error
    assert not any("\x00" in turn.text for dialogue in outcome.dialogues for turn in dialogue.turns)


@pytest.mark.parametrize("reader", [name for name, known in READERS.items() if known.encoding == "utf-8"])
def test_a_byte_of_another_encoding_is_listed_with_its_line_and_a_way_out(
    reader: str, tmp_path: Path, attempt: Callable
):
    layout = BASES[reader]
    name, text = _text_in(layout)
    outcome = attempt(reader, _with_text(layout, tmp_path / "in", lambda text: text + b"\xe9"), **layout.options)
    if outcome.rejected:
        rejection = outcome.rejected[0]
        assert rejection["file"] == name
        assert rejection["line"] == layout.files[name].count(b"\n", 0, layout.files[name].index(text)) + 1
    reason = outcome.rejected[0]["reason"] if outcome.rejected else outcome.error
    assert "byte 0xe9 is not utf-8" in reason
    assert "--encoding latin-1" in reason


@pytest.mark.parametrize("reader", [name for name, known in READERS.items() if known.encoding == "utf-8"])
def test_naming_the_encoding_reads_it(reader: str, tmp_path: Path, attempt: Callable):
    layout = BASES[reader]
    name, text = _text_in(layout)
    folder = layout.write(tmp_path / "in")
    content = layout.files[name].removeprefix(b"\xef\xbb\xbf").decode().encode("cp1252")
    lay_out(folder, {name: content.replace(text, text + b"\xe9")})
    outcome = attempt(reader, folder, encoding="cp1252", **layout.options)
    assert text.decode() + "é" in {turn.text for dialogue in outcome.dialogues for turn in dialogue.turns}


@each_reader
def test_an_unknown_encoding_is_an_error_that_names_it(reader: str, tmp_path: Path, attempt: Callable):
    layout = BASES[reader]
    assert "utf-nine" in attempt(reader, layout.write(tmp_path / "in"), encoding="utf-nine", **layout.options).error


@pytest.mark.parametrize("reader", ["table", "text", "jsonl", "messages"])
@pytest.mark.parametrize("cut", [0, 1])
def test_utf_16_is_read_and_half_a_character_is_no_crash(reader: str, cut: int, tmp_path: Path, attempt: Callable):
    """Spreadsheets export 'Unicode text' as UTF-16; a cut file ends in the middle of a character."""
    layout = BASES[reader]
    content = layout.content.decode().encode("utf-16")
    outcome = attempt(
        reader, layout.write(tmp_path / "in", content[: len(content) - cut]), encoding="utf-16", **layout.options
    )
    if cut:
        assert outcome.rejected or outcome.error
    else:
        assert outcome.dialogues == layout.expected


# ---- size and depth


@each_reader
@pytest.mark.parametrize(("filler", "megabytes"), [("x", 10), (" ", 1), ("\t", 1), (": ", 1), ('"', 1), ("0", 1)])
def test_a_line_of_megabytes_is_taken_in_seconds(
    reader: str, filler: str, megabytes: int, tmp_path: Path, attempt: Callable
):
    """Junk of any kind at the end: the dialogues before it are kept, and what is quoted of it is short.

    A pattern that backtracks would need hours for one of these.
    """
    layout = BASES[reader]
    junk = (filler * (megabytes * MEGABYTE // len(filler)) + "!").encode()
    outcome = attempt(reader, layout.write(tmp_path / "in", layout.content.rstrip() + b"\n\n" + junk), **layout.options)
    assert {dialogue.id for dialogue in outcome.dialogues} >= {
        dialogue.id for dialogue in layout.expected[:1] if reader not in ONE_DIALOGUE_A_FILE and not outcome.error
    }
    assert all(len(rejection["text"] or "") <= 200 for rejection in outcome.rejected)
    assert all(len(rejection["reason"]) < 1000 for rejection in outcome.rejected)


@each_reader
def test_a_text_of_ten_megabytes_is_kept(reader: str, tmp_path: Path, attempt: Callable):
    if reader in LABELS_IN_OTHER_FILES:
        pytest.skip("a tag would be missing for each word")
    layout = BASES[reader]
    long = _text_in(layout)[1] + b" and so on" * MEGABYTE
    outcome = attempt(reader, _with_text(layout, tmp_path / "in", lambda _: long), **layout.options)
    assert not outcome.rejected
    assert long.decode() in {turn.text for dialogue in outcome.dialogues for turn in dialogue.turns}


@each_reader
@pytest.mark.parametrize("bracket", ["[", '{"a":', "-"])
def test_a_hundred_thousand_brackets_are_no_crash(reader: str, bracket: str, tmp_path: Path, attempt: Callable):
    """Alone, in place of the file; in place of a text; and on a line of their own."""
    layout = BASES[reader]
    deep = (bracket * (DEEP // len(bracket) + 1)).encode()
    alone = lay_out(tmp_path / "alone", {layout.main_file: deep}) / layout.main_file
    outcome = attempt(reader, alone, **layout.options)
    assert outcome.error or KINDS[reader] == "lines"
    inside = _with_text(layout, tmp_path / "inside", lambda _: deep, quoted=True)
    outcome = attempt(reader, inside, **layout.options)
    assert outcome.rejected or outcome.error or not _is_quoted(layout)
    after = layout.content.rstrip() + b"\n" + deep + b"\n"
    attempt(reader, layout.write(tmp_path / "after", after), **layout.options)


@pytest.mark.parametrize("depth", [50, 200, 300, 330, 400, 480, 500, 900, 960, 980])
def test_nesting_that_json_can_just_hold_is_refused_too(depth: int, tmp_path: Path, attempt: Callable):
    """Some depths pass `json.loads` and fail later: in repr, in a copy, in a second `json.dumps`."""
    nested = "[" * depth + "]" * depth
    good = '{"id": "good", "turns": [{"speaker": "user", "text": "Fine"}]}'
    folder = tmp_path / "in"
    records = [
        f'{{"id": {nested}, "turns": [{{"speaker": "user", "text": ""}}]}}',
        f'{{"id": "t", "turns": [{{"speaker": "user", "text": {nested}}}]}}',
        f'{{"id": "s", "turns": [{{"speaker": {nested}, "text": "Hm"}}]}}',
        f'{{"id": "i", "turns": [{{"speaker": "user", "text": "Hm", "intent": {nested}}}]}}',
        f'{{"id": "a", "turns": [{{"speaker": "user", "text": "Hm", "acts": [{nested}]}}]}}',
    ]
    lay_out(folder, {"own.jsonl": "\n".join([*records, good])})
    outcome = attempt("jsonl", folder)
    assert [dialogue.id for dialogue in outcome.dialogues] == ["good"]
    lay_out(
        tmp_path / "forum",
        {
            "utterances.jsonl": "\n".join(
                [
                    f'{{"id": "1", "conversation_id": "c", "speaker": "a", "text": {nested}, "timestamp": 1}}',
                    f'{{"id": {nested}, "conversation_id": "d", "speaker": {nested}, "text": "Hm", "timestamp": 1}}',
                    '{"id": "3", "conversation_id": "c", "speaker": "a", "text": "Fine", "timestamp": 1}',
                ]
            )
        },
    )
    assert "c" in {dialogue.id for dialogue in attempt("convokit", tmp_path / "forum").dialogues}


@each_reader
def test_a_number_of_ten_thousand_digits_is_no_crash(reader: str, tmp_path: Path, attempt: Callable):
    """Python refuses to convert such a number, with an error that is not the JSON decoder's."""
    layout = BASES[reader]
    folder = _with_text(layout, tmp_path / "in", lambda _: b"1" * 10_000, quoted=True)
    outcome = attempt(reader, folder, **layout.options)
    assert outcome.rejected or outcome.error or not _is_quoted(layout)


# ---- ids


def _twice(layout: Layout) -> bytes:
    content = layout.content.strip()
    if KINDS[layout.reader] == "json":
        return content[:-1] + b"," + content[1:]
    return content + b"\n" + content + b"\n"


@pytest.mark.parametrize(
    "reader", [*sorted(set(JSON_FILES) - ONE_DIALOGUE_A_FILE), "metalwoz", "jsonl", "msr_e2e", "self_dialogue"]
)
def test_an_id_that_was_there_before_is_listed_and_the_first_is_kept(reader: str, tmp_path: Path, attempt: Callable):
    layout = BASES[reader]
    folder = layout.write(tmp_path / "in", _twice(layout))
    outcome = attempt(reader, folder, **layout.options)
    assert outcome.dialogues[: len(layout.expected)] == layout.expected
    assert len([reason for reason in outcome.reasons if "was there before" in reason]) >= 2


@each_reader
def test_ids_in_a_store_are_unique_even_if_the_file_repeats_itself(reader: str, tmp_path: Path, attempt: Callable):
    """`attempt` looks at the ids; where they tell the place in the file, the copies are dialogues of their own."""
    layout = BASES[reader]
    outcome = attempt(reader, layout.write(tmp_path / "in", _twice(layout)), **layout.options)
    if reader in LABELS_IN_OTHER_FILES:
        assert outcome.rejected
        return
    assert {dialogue.id for dialogue in layout.expected} <= {
        dialogue.id for dialogue in outcome.dialogues
    } or outcome.error


@pytest.mark.parametrize("turns", ['"abc"', '{"a": 1}', "5", "null"])
def test_metalwoz_turns_that_are_no_list_are_refused(turns: str, tmp_path: Path, attempt: Callable):
    """The letters of a string and the keys of an object would pass for turns."""
    layout = BASES["metalwoz"]
    outcome = attempt(
        "metalwoz", layout.write(tmp_path / "in", layout.content + b'{"id": "m3", "turns": %s}' % turns.encode())
    )
    assert outcome.dialogues == layout.expected
    assert [rejection["line"] for rejection in outcome.rejected] == [3]


def test_dstc2_acts_that_are_no_list_are_refused(tmp_path: Path, attempt: Callable):
    layout = BASES["dstc2"]
    wrong = {"original_id": "voip-2", "system_turns": [{"utt_idx": 1, "acts": "bye()"}]}
    name = "DERIVED_system_acts.jsonl"
    folder = lay_out(layout.write(tmp_path / "in"), {name: layout.files[name] + jsonl_bytes(wrong)})
    outcome = attempt("dstc2", folder)
    assert outcome.dialogues == layout.expected
    assert [(rejection["file"], rejection["line"]) for rejection in outcome.rejected] == [(name, 3)]


def test_nli_texts_that_are_missing_are_refused(tmp_path: Path, attempt: Callable):
    """A short row has no text; 'None' is none."""
    content = csv_bytes(("sent0", "sent1", "hard_neg"), ("Ann bakes", "Someone bakes", "Ann swims"), ("Bob sings",))
    outcome = attempt("nli", lay_out(tmp_path / "in", {"nli.csv": content}), form="triplets")
    assert [turn.text for dialogue in outcome.dialogues for turn in dialogue.turns if turn.text == "None"] == []
    assert [rejection["line"] for rejection in outcome.rejected] == [3, 3]


def test_star_files_of_one_id_are_listed(tmp_path: Path, attempt: Callable):
    layout = BASES["star"]
    folder = lay_out(layout.write(tmp_path / "in"), {"dialogues/3.json": layout.content})
    outcome = attempt("star", folder)
    assert outcome.dialogues == layout.expected
    (rejection,) = outcome.rejected
    assert rejection["file"] == "dialogues/3.json"
    assert "was there before" in rejection["reason"]


# ---- shapes

#: What a place in somebody's JSON may hold instead of what is expected.
WRONG = (None, 5, 1.5, "\ud800", [], [1], {"a": 1}, 10**400)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*place, key))


def _changed(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    if not place:
        return other
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _changed(value[place[0]], place[1:], other)
    return copy


def _documents(layout: Layout) -> Iterator[tuple[str, Any, bytes]]:
    """The layout's main file with each of its places changed into each wrong thing: what changed, into what, the file."""
    whole = KINDS[layout.reader] == "json"
    text = layout.content.decode()
    document = json.loads(text) if whole else [json.loads(line) for line in text.splitlines()]

    def written(changed: Any) -> bytes:
        return json.dumps(changed).encode() if whole else "\n".join(map(json.dumps, changed)).encode()

    for place in _places(document):
        if not whole and not place:
            continue
        for wrong in WRONG:
            yield f"{place} = {wrong!r:.30}", wrong, written(_changed(document, place, wrong))


@pytest.mark.parametrize("reader", [*JSON_FILES, *JSON_LINES])
def test_a_wrong_type_anywhere_is_listed(reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every place of the file, changed into everything that JSON can hold: no dialogue is lost without a word."""
    monkeypatch.setattr(
        os, "fsync", lambda handle: None
    )  # thousands of stores; that they reach the disk is not the point
    layout = BASES[reader]
    turns = sum(len(dialogue.turns) for dialogue in layout.expected)
    faults = []
    for number, (change, wrong, content) in enumerate(_documents(layout)):
        folder, out = layout.write(tmp_path / "in", content), tmp_path / f"out-{number}"
        try:
            store = import_corpus(reader, folder, out, **layout.options)
            kept = list(store)
            manifest = store.manifest
            lost = len(kept) < len(layout.expected) or sum(len(dialogue.turns) for dialogue in kept) < turns
            if lost and wrong != [] and not manifest["rejected"] and manifest["left_out"] == layout.left_out:
                faults.append(f"{change}: lost without a word")
        except CorpusError as error:
            if out.exists() or not str(error):
                faults.append(f"{change}: {error}")
        except Exception as error:  # all of them are collected: one look shows what is wrong
            faults.append(f"{change}: {type(error).__name__}: {error!s:.100}")
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:40])


@pytest.mark.parametrize("reader", [*JSON_FILES, *JSON_LINES])
def test_a_missing_key_anywhere_is_listed(reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Keys may be optional; but no dialogue is lost without a word, and no other exception comes out."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    layout = BASES[reader]
    whole = KINDS[reader] == "json"
    text = layout.content.decode()
    document = json.loads(text) if whole else [json.loads(line) for line in text.splitlines()]
    for number, place in enumerate(place for place in _places(document) if place and isinstance(place[-1], str)):
        holder: Any = document
        for key in place[:-1]:
            holder = holder[key]
        changed = _changed(document, place[:-1], {key: value for key, value in holder.items() if key != place[-1]})
        content = json.dumps(changed) if whole else "\n".join(map(json.dumps, changed))
        try:
            store = import_corpus(reader, layout.write(tmp_path / "in", content.encode()), tmp_path / f"out-{number}")
        except CorpusError:
            continue
        is_a_dialogue = len(place) == 1  # of a file that is an object of dialogues, or of splits
        assert len(store) >= len(layout.expected) or store.manifest["rejected"] or is_a_dialogue, place


@each_reader
@pytest.mark.parametrize("seed", range(8))
def test_random_damage_is_no_crash(reader: str, seed: int, tmp_path: Path, attempt: Callable):
    """Bytes replaced, lines swapped, pieces doubled and dropped, by chance but the same each time."""
    chance = random.Random(f"{reader} {seed}")
    layout = BASES[reader]
    content = bytearray(layout.content)
    for _ in range(chance.randint(1, 6)):
        start = chance.randrange(len(content))
        end = min(len(content), start + chance.randint(1, 30))
        match chance.randrange(4):
            case 0:
                content[start:end] = chance.randbytes(end - start)
            case 1:
                del content[start:end]
            case 2:
                content[start:start] = content[start:end]
            case 3:
                content[start:end] = chance.choice(
                    [b'"', b"\n", b"\t", b"\\", b"\\ud800", b"\r", b"null", b"[", b",", b"{}"]
                )
        content = content or bytearray(b"x")
    attempt(reader, layout.write(tmp_path / "in", bytes(content)), **layout.options)


def _massive(**changes: Any) -> bytes:
    """A line of MASSIVE's, something in it changed."""
    record = {"id": "9", "locale": "en-US", "partition": "train", "intent": "pets_feed", "utt": "feed cows"}
    return jsonl_bytes(record | {"annot_utt": "feed [pet : cows]"} | changes)


@pytest.mark.parametrize(
    ("reader", "content", "reason"),
    [
        ("cornell_movie_dialogs", b"u0 +++$+++ u2 +++$+++ m0 +++$+++ ['L1', 'L2'\n", "expected a list of lines"),
        ("cornell_movie_dialogs", b"u0 +++$+++ u2 +++$+++ m0 +++$+++ print(1)\n", "expected a list of lines"),
        ("cornell_movie_dialogs", b"u0 +++$+++ u2 +++$+++ m0 +++$+++ 'L1'\n", "expected a list of lines"),
        ("cornell_movie_dialogs", b"u0 +++$+++ u2 +++$+++ m0 +++$+++ ['L99']\n", "'L99' is missing"),
        ("cornell_movie_dialogs", b"u0 +++$+++ u2\n", "not enough values"),
        ("msr_e2e", b"1\t2\n", "expected at least 5 cells, got 2"),
        ("msr_e2e", b"3\t1\tt\tghost\tBoo\n", "unknown speaker 'ghost'"),
        ("personachat", b"no number\n", "expected a number, a space and a text"),
        ("responses", b"2\ta\tb\n", "expected 0 or 1, at least one turn, and a response, separated by tabs"),
        ("responses", b"1\tonly a turn\n", "expected 0 or 1, at least one turn, and a response, separated by tabs"),
        ("labelled_responses", b"2\ta\tb\n", "expected 0 or 1, at least one turn, and a response, separated by tabs"),
        ("labelled_responses", b"1\ta\t \n", "a context and a response with words are expected"),
        ("labelled_responses", b"1\ta\tb\0\n", "a context and a response with words are expected"),
        ("labelled_responses", b"1\t \t \tb\n", "a context and a response with words are expected"),
        ("question_answers", b"__import__('os').getcwd()\n", "nor is it a Python literal"),
        ("question_answers", b'{"question": "Only this?"}\n', "'answer' is missing"),
        ("taskmaster3_partial", b"a\tb\n", "expected context, target and id; got 2 cells"),
        ("self_dialogue", b"h,A9,W1,,,\n", "the dialogue has no turns"),
        ("self_dialogue", b"h,,W1,Hm,,\n", "a dialogue needs an id"),
        ("self_dialogue", b"h,A9,W1,a,b,c,d,e\n", "8 cells under 6 columns"),
        ("table", b"c,customer,,\n", "the text is empty"),
        ("table", b"c,,Hm,\n", "unknown speaker ''"),
        ("table", b",agent,Hm,\n", "no conversation in column 'conversation'"),
        ("table", b'c,agent,"open\n', "not a valid row"),
        ("text", b"\n\nwords without a speaker\n", "names no speaker"),
        ("reddit", b'{"context": "a", "response": "b", "context/1": "c"}\n', "'context/0' is missing"),
        ("metalwoz", b'{"id": "m3", "turns": []}\n', "the dialogue has no turns"),
        ("nli", b'{"sentence1": "Only one", "gold_label": "neutral"}\n', "'sentence2' is missing"),
        ("nli", b'{"one": "a", "other": "b"}\n', "'premise' is missing"),
        ("massive", b'{"id": "9", "locale": "en-US"}\n', "'partition' is missing"),
        ("massive", b'{"id": "9", "locale": "fr-FR"}\n', "say locale=fr-FR to read it"),
        ("massive", _massive(id="1"), "the id 'en-US/1' was there before"),
        ("massive", _massive(id=9), "'id' must be a non-blank string"),
        ("massive", _massive(intent=" "), "'intent' must be a non-blank string"),
        ("massive", _massive(partition="extra"), "the partition must be train, dev or test, got 'extra'"),
        (
            "massive",
            _massive(annot_utt="feed [pet : cats]"),
            "the annotation and the text 'feed cows' have different words",
        ),
        ("massive", _massive(annot_utt="feed [pet cows]"), "slots must be marked as '[name : value]'"),
        ("massive", _massive(annot_utt="feed [ : cows]"), "a slot has no name"),
        ("massive", _massive(annot_utt="feed [pet : ] cows"), "the slot 'pet' has no value"),
        (
            "hwu64_kfold",
            b"9;pets;feed;feed [pet : cows];feed cats;\n",
            "the annotation and the text 'feed cats' have different words",
        ),
        ("hwu64_kfold", b"9;;feed;feed cows;feed cows;\n", "'scenario' must be a non-blank string"),
        ("hwu64_kfold", b"9;pets;feed\n", "'answer_annotation' must be a non-blank string"),
    ],
)
def test_a_fault_is_listed_with_its_line_and_reason(
    reader: str, content: bytes, reason: str, tmp_path: Path, attempt: Callable
):
    layout = BASES[reader]
    outcome = attempt(reader, layout.write(tmp_path / "in", layout.content + content), **layout.options)
    assert outcome.dialogues == layout.expected
    listed = [rejection for rejection in outcome.rejected if reason in rejection["reason"]]
    assert listed, outcome.rejected
    assert listed[0]["file"] == layout.main_file
    lines = (layout.content + content).splitlines()
    assert listed[0]["line"] == max(number for number, line in enumerate(lines, 1) if line)


def test_a_personachat_line_without_an_answer_keeps_what_was_said(tmp_path: Path, attempt: Callable):
    layout = BASES["personachat"]
    outcome = attempt("personachat", layout.write(tmp_path / "in", layout.content + b"2 hello ?\n"))
    assert [turn.text for turn in outcome.dialogues[-1].turns] == ["anyone ?", "hello ?"]
    assert [(it["line"], it["reason"]) for it in outcome.rejected] == [(4, "the text is empty")]


def test_multiwoz_lists_that_are_broken_are_listed(tmp_path: Path, attempt: Callable):
    """The dialogues are kept; that their split is not known is told."""
    layout = next(layout for layout in LAYOUTS if layout.name == "multiwoz data.json with its lists")
    for number, broken in enumerate([b'["C.json"', b"[" * DEEP, b"\xff", b'[["C.json"]]', b"[1" + b"1" * 9000 + b"]"]):
        folder = lay_out(layout.write(tmp_path / str(number)), {"testListFile.json": broken})
        outcome = attempt("multiwoz", folder, form="json")
        assert [dialogue.id for dialogue in outcome.dialogues] == ["A.json", "B.json", "C.json"]
        assert [rejection["file"] for rejection in outcome.rejected] == ["testListFile.json"]


@pytest.mark.parametrize("reader", sorted(LABELS_IN_OTHER_FILES))
@pytest.mark.parametrize(
    ("file", "content", "line", "reason"),
    [
        ("seq.in", "feed the goat\nis it fed\n", 1, "3 words have 6 slot tags"),
        ("seq.in", "\nis it fed\n", 1, "an utterance and, in the same line of label, its intent are expected"),
        ("seq.out", "O O X-pet O O O\nO O O\n", 1, "the slot tag must be O, B-NAME or I-NAME, got 'X-pet'"),
        ("seq.out", "O O B-pet I-pet O I-time\n\n", 2, "3 words have 0 slot tags"),
        ("label", "Feed\n \n", 2, "an utterance and, in the same line of label, its intent are expected"),
    ],
)
def test_a_line_of_a_slot_gated_file_that_does_not_fit_is_listed(
    reader: str, file: str, content: str, line: int, reason: str, tmp_path: Path, attempt: Callable
):
    """By its line, and the other lines are kept."""
    layout = BASES[reader]
    outcome = attempt(reader, lay_out(layout.write(tmp_path / "in"), {f"data/{reader}/test/{file}": content}))
    assert [(it["file"], it["line"], it["kind"]) for it in outcome.rejected] == [
        (f"data/{reader}/test/seq.in", line, "dialogue")
    ]
    assert reason in outcome.rejected[0]["reason"]
    assert outcome.dialogues == tuple(dialogue for dialogue in layout.expected if dialogue.id != f"test/{line}")


@pytest.mark.parametrize("reader", sorted(LABELS_IN_OTHER_FILES))
@pytest.mark.parametrize("file", ["seq.in", "seq.out", "label"])
def test_slot_gated_files_of_unequal_length_are_listed_and_no_label_strays(
    reader: str, file: str, tmp_path: Path, attempt: Callable
):
    """With a line lost in one of them nobody knows whose label is whose; the other splits are read."""
    layout = BASES[reader]
    name = f"data/{reader}/test/{file}"
    for number, content in enumerate([layout.files[name].split(b"\n", 1)[1], b"one more\n" + layout.files[name]]):
        outcome = attempt(reader, lay_out(layout.write(tmp_path / str(number)), {name: content}))
        assert outcome.dialogues == layout.expected[2:]
        assert [(it["file"], it["kind"]) for it in outcome.rejected] == [(f"data/{reader}/test/seq.in", "file")]
        assert "they need the same number of lines" in outcome.rejected[0]["reason"]
    folder = layout.write(tmp_path / "missing")
    (folder / name).unlink()
    outcome = attempt(reader, folder)
    assert outcome.dialogues == layout.expected[2:]
    assert len(outcome.rejected) == (file != "seq.in")  # without its utterances a split is not there


def test_a_slot_tag_that_cannot_be_decoded_costs_its_utterance_alone(tmp_path: Path, attempt: Callable):
    layout = BASES["snips"]
    name = "data/snips/test/seq.out"
    outcome = attempt(
        "snips", lay_out(layout.write(tmp_path / "in"), {name: b"O \xe9\n" + layout.files[name].split(b"\n", 1)[1]})
    )
    assert outcome.dialogues == layout.expected[1:]
    assert [(it["file"], it["line"]) for it in outcome.rejected] == [(name, 1), ("data/snips/test/seq.in", 1)]


@pytest.mark.parametrize(
    "row", [["only a text"], ["a text", 5], ["a text", " "], ["", "feed_pet"], "ab", None, {"text": "intent"}]
)
def test_a_clinc150_entry_that_is_no_pair_is_listed(row: Any, tmp_path: Path, attempt: Callable):
    content = json.dumps({"val": [["feed the goat", "feed_pet"], row], "train": [["is it fed", "pet_status"]]})
    outcome = attempt("clinc150", lay_out(tmp_path / "in", {"data_full.json": content}))
    assert [dialogue.id for dialogue in outcome.dialogues] == ["val/1", "train/1"]
    assert [(it["line"], it["dialogue"]) for it in outcome.rejected] == [(1, "val/2")]
    assert "[text, intent] is expected" in outcome.rejected[0]["reason"]


@pytest.mark.parametrize("other", [{"extra": []}, {"train": {"a text": "intent"}}])
def test_a_clinc150_list_that_is_none_of_its_splits_is_listed(other: dict, tmp_path: Path, attempt: Callable):
    content = json.dumps({"val": [["feed the goat", "feed_pet"]], **other})
    outcome = attempt("clinc150", lay_out(tmp_path / "in", {"data_full.json": content}))
    assert [dialogue.id for dialogue in outcome.dialogues] == ["val/1"]
    assert [it["kind"] for it in outcome.rejected] == ["file"]


IRC_LOG, IRC_LINKS = "data/train/2004-12-25.ascii.txt", "data/train/2004-12-25.annotation.txt"


@pytest.mark.parametrize("line", [b"[10:04] <dora> it is \xe9\n", b"[10:04] <dora> it is \0\n"], ids=["byte", "NUL"])
def test_a_message_that_cannot_be_kept_moves_no_link(line: bytes, tmp_path: Path, attempt: Callable):
    """Links count lines: the threads are those of the whole log, without what that message says."""
    layout = BASES["irc_disentanglement"]
    lines = layout.content.splitlines(keepends=True)
    outcome = attempt("irc_disentanglement", layout.write(tmp_path / "in", b"".join([*lines[:8], line, *lines[9:]])))
    assert [(it["file"], it["line"]) for it in outcome.rejected] == [(IRC_LOG, 9)]
    dev, screen, awake = layout.expected
    assert (outcome.dialogues[0], outcome.dialogues[2]) == (dev, awake)
    # what stood on either side of it is one turn now
    assert [turn.text for turn in outcome.dialogues[1].turns[:3]] == [turn.text for turn in screen.turns[:3]]
    assert outcome.dialogues[1].turns[3].text == "waits for the answer thanks"
    assert [turn.speaker for turn in outcome.dialogues[1].turns] == ["speaker_1", "speaker_2", "speaker_1", "system"]


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("0 16 -", "the log has 16 lines, there is none to link from 0 to 16"),
        ("-1 3 -", "there is none to link from -1 to 3"),
        ("one 3 -", "invalid literal"),
        ("3", "not enough values"),
        ("", "not enough values"),
    ],
)
def test_a_link_that_is_none_is_listed(link: str, reason: str, tmp_path: Path, attempt: Callable):
    layout = BASES["irc_disentanglement"]
    folder = lay_out(layout.write(tmp_path / "in"), {IRC_LINKS: layout.files[IRC_LINKS] + f"{link}\n".encode()})
    outcome = attempt("irc_disentanglement", folder)
    assert outcome.dialogues == layout.expected
    assert [(it["file"], it["line"]) for it in outcome.rejected] == [(IRC_LINKS, 14)]
    assert reason in outcome.rejected[0]["reason"]


def test_links_without_their_log_are_listed(tmp_path: Path, attempt: Callable):
    layout = BASES["irc_disentanglement"]
    folder = layout.write(tmp_path / "in")
    assert "import a folder that holds train, dev or test" in attempt("irc_disentanglement", folder / IRC_LINKS).error
    (folder / IRC_LOG).unlink()
    outcome = attempt("irc_disentanglement", folder)
    assert outcome.dialogues == layout.expected[:1]
    assert [(it["file"], it["kind"]) for it in outcome.rejected] == [(IRC_LINKS, "file")]
    assert "its log 2004-12-25.ascii.txt is missing" in outcome.rejected[0]["reason"]


def test_self_dialogue_columns_that_are_no_sentences_are_passed_over(tmp_path: Path, attempt: Callable):
    content = csv_bytes(("AssignmentId", "Answer.sentence1", "Answer.sentence_feedback"), ("A1", "Hm", "nice task"))
    outcome = attempt("self_dialogue", lay_out(tmp_path / "in", {"corpus/x/x.csv": content}))
    assert [turn.text for dialogue in outcome.dialogues for turn in dialogue.turns] == ["Hm"]


def test_self_dialogue_needs_the_folder_to_know_blocked_workers(tmp_path: Path, attempt: Callable):
    layout = BASES["self_dialogue"]
    folder = layout.write(tmp_path / "in")
    error = attempt("self_dialogue", folder / layout.main_file, drop_blocked_workers=True).error
    assert "blocked_workers.txt" in error
    (folder / "blocked_workers.txt").unlink()
    assert "blocked_workers.txt" in attempt("self_dialogue", folder, drop_blocked_workers=True).error
    lay_out(folder, {"a/blocked_workers.txt": "W1\n", "b/blocked_workers.txt": "W7\n"})
    assert [it.id for it in attempt("self_dialogue", folder, drop_blocked_workers=True).dialogues] == ["A2"]


def test_convokit_replies_in_a_circle_are_listed(tmp_path: Path, attempt: Callable):
    """With order=paths they belong to no chain; they are not lost without a word."""
    records = [
        {"id": "1", "conversation_id": "c", "speaker": "a", "text": "One", "reply_to": "2", "timestamp": 1},
        {"id": "2", "conversation_id": "c", "speaker": "b", "text": "Two", "reply_to": "1", "timestamp": 2},
        {"id": "3", "conversation_id": "d", "speaker": "a", "text": "Three", "reply_to": None, "timestamp": 3},
    ]
    folder = lay_out(tmp_path / "in", {"utterances.jsonl": jsonl_bytes(*records)})
    outcome = attempt("convokit", folder, order="paths")
    assert [dialogue.id for dialogue in outcome.dialogues] == ["d/0"]
    assert [(rejection["line"], rejection["text"]) for rejection in outcome.rejected] == [(1, "One"), (2, "Two")]
    assert len(attempt("convokit", folder).dialogues) == 2


# ---- what was there before


@each_reader
def test_a_store_that_was_there_survives_a_failed_import(reader: str, tmp_path: Path):
    layout = BASES[reader]
    out = tmp_path / "out"
    import_corpus(reader, layout.write(tmp_path / "in"), out, **layout.options)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    empty = lay_out(tmp_path / "empty", {layout.main_file: b""})
    for strict in (False, True):
        with pytest.raises(CorpusError):
            import_corpus(reader, empty / layout.main_file, out, strict=strict, **layout.options)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert tuple(Store(out)) == layout.expected


@pytest.mark.parametrize("reader", ["jsonl", "messages", "text", "table", "reddit"])
def test_a_store_inside_the_folder_that_is_imported_is_not_read_as_input(reader: str, tmp_path: Path):
    """The store's own files (rejected.jsonl, Parquet) look like somebody's log; reading what is being written never ends."""
    layout = BASES[reader]
    folder = layout.write(tmp_path / "in")
    for _ in range(2):
        try:
            store = import_corpus(reader, folder, folder / "store", **layout.options)
        except CorpusError as error:
            assert "store" in str(error)
            continue
        assert [file["name"] for file in store.manifest["inputs"]] == list(layout.files)
        assert tuple(store) == layout.expected


def test_a_file_name_that_is_not_unicode_is_no_crash(tmp_path: Path, attempt: Callable):
    """Old archives unpack to names in latin-1, which no manifest can hold as they are."""
    folder = lay_out(tmp_path / "in", {"plain.txt": "User: Hello\n"})
    (folder / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"User: Good day\nno\x00good: x\n")
    try:
        store = import_corpus("text", folder, tmp_path / "out")
    except CorpusError as error:
        assert str(error)
        assert not (tmp_path / "out").exists()
    else:
        assert len(store) == 2


@pytest.mark.parametrize(
    "record",
    [
        {"id": "\ud800", "turns": [{"speaker": "user", "text": "Hm"}]},
        {"id": "\ud800", "turns": [{"speaker": "user", "text": ""}]},
        {"id": "x", "source": "\ud800", "turns": [{"speaker": "user", "text": "Hm"}]},
        {"id": "x", "split": "\ud800", "turns": [{"speaker": "user", "text": "Hm"}]},
        {"id": "x", "turns": [{"speaker": "user", "text": "Hm", "intent": "\ud800"}]},
        {"id": "x", "turns": [{"speaker": "user", "text": "Hm", "acts": ["\ud800"]}]},
        {"id": "x", "turns": [{"speaker": "user", "text": "Hm", "slots": [{"name": "\ud800", "start": 0, "end": 2}]}]},
        {"id": "x", "turns": [{"speaker": "\ud800", "text": "Hm"}]},
        {"id": "x", "turns": [{"speaker": "user", "text": "Hm \ud800"}]},
    ],
    ids=["id", "id of a rejection", "source", "split", "intent", "act", "slot", "speaker", "text"],
)
def test_half_a_character_anywhere_is_refused(record: dict, tmp_path: Path, attempt: Callable):
    """A lone surrogate, which JSON escapes can smuggle in and no file can hold."""
    good = {"id": "good", "turns": [{"speaker": "user", "text": "Fine"}]}
    content = "\n".join(json.dumps(it) for it in (record, good))
    outcome = attempt("jsonl", lay_out(tmp_path / "in", {"own.jsonl": content}))
    assert outcome.dialogues[-1].id == "good"
    assert outcome.rejected


def test_parquet_columns_of_odd_types_are_read_or_refused(tmp_path: Path, attempt: Callable):
    """Numbers as names and labels are words; a text that is no string is refused by its type."""
    day = datetime.date(2024, 5, 1)
    columns = {
        "conversation": [1, 1, 1],
        "speaker": [0, 1, 0],
        "text": ["Which day?", "Monday", "Thanks"],
        "label": [0, None, 7],
        "part": [decimal.Decimal("1.5")] * 3,
    }
    folder = lay_out(tmp_path / "good", {"log.parquet": parquet_bytes(columns)})
    (dialogue,) = attempt("table", folder, intent="label", split="part").dialogues
    assert [turn.speaker for turn in dialogue.turns] == ["speaker_1", "speaker_2", "speaker_1"]
    assert [turn.intent for turn in dialogue.turns] == ["0", None, "7"]
    assert dialogue.split == "1.5"
    for number, texts in enumerate(
        [[1, 2, 3], [b"a", b"b", b"c"], [day] * 3, [["a"], ["b"], []], [1.5, float("nan"), None]]
    ):
        file = parquet_bytes({**columns, "text": texts})
        outcome = attempt("table", lay_out(tmp_path / str(number), {"log.parquet": file}), intent="label")
        assert "not a string" in outcome.error or "empty" in outcome.error


def test_the_damages_above_are_what_they_claim():
    """The helper knows the kinds of file, so that no test passes for want of damage."""
    assert KINDS["kvret"] == "json"
    assert KINDS["jsonl"] == "jsonl"
    assert KINDS["text"] == KINDS["table"] == KINDS["msr_e2e"] == "lines"
