"""Tests that imports survive broken files: whatever is valid is kept, and the rest is reported.

The valid tiny corpora of `tests.helpers.layouts` are damaged. Faults of whole files are tested once per file format,
with one reader each; faults in records are tested for every reader. The fixture `try_import` checks what holds for
every import: the result is a complete store with every fault listed by file and reason, or a `CorpusError` and no out
folder; never another exception; and strict imports stop exactly at the first fault.
"""

import contextlib
import datetime
import decimal
import gzip
import itertools
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.layouts import BASES, LAYOUTS, Layout, csv_bytes, jsonl_bytes, lay_out, layout_named, parquet_bytes
from tests.helpers.reading import try_reading
from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.registry import READERS
from turnwise.corpus.source.encodings import DETECT
from turnwise.corpus.storage.store import Store

MEGABYTE = 1_000_000
DEEP = 100_000

#: A reader for each way of reading a file: the methods of `CorpusSource`, and `ast.literal_eval` in question_answers.
FORMATS = {
    "JSON array": "kvret",
    "JSON object": "topical_chat",
    "JSON document": "star",
    "JSON Lines": "jsonl",
    "CSV": "table",
    "blocks of lines": "text",
    "tab-separated lines": "msr_e2e",
    "Python literals": "question_answers",
}
#: Readers that parse lines or texts with patterns of their own, some of which could backtrack.
PATTERN_READERS = (
    *("cornell_movie_dialogs", "discourse", "hwu64_kfold", "irc_disentanglement", "kakaotalk", "lex", "massive"),
    *("mbox", "messages", "zoom"),
    *("multiwoz", "personachat", "rasa", "responses", "slack", "taskmaster3_partial", "teams", "transcript"),
    *("twitter_support", "whatsapp"),
)

each_reader = pytest.mark.parametrize("reader", READERS)
each_format = pytest.mark.parametrize("reader", FORMATS.values(), ids=FORMATS)
each_format_and_pattern = pytest.mark.parametrize("reader", [*FORMATS.values(), *PATTERN_READERS])


def _json_kind(layout: Layout) -> str:
    """Return 'json' (a file is one document), 'jsonl' (a line is one), or 'lines'."""
    text = layout.content.decode("latin-1").removeprefix("\xef\xbb\xbf")
    for kind, pieces in (("json", [text]), ("jsonl", text.splitlines())):
        try:
            for piece in pieces:
                json.loads(piece)
        except ValueError:
            continue
        return kind
    return "lines"


KINDS = {reader: _json_kind(layout) for reader, layout in BASES.items()}
JSON_FILES = [reader for reader in READERS if KINDS[reader] == "json"]
JSON_LINES = [reader for reader in READERS if KINDS[reader] == "jsonl"]
#: A file is one dialogue, so there are no elements after a fault.
ONE_DIALOGUE_PER_FILE = {"star"}
#: Words and labels are in several files, line by line: neither a line nor a word may be added to one of them alone.
LABELS_IN_OTHER_FILES = {"snips", "atis"}
#: A message has an id, by which copies of it are recognised and left out.
MESSAGES_WITH_IDS = {
    "messenger",
    "mattermost",
    "rocketchat",
    "slack",
    "teams",
    "discord",
    "telegram",
    "discourse",
    "gitter",
}


def _find_text(layout: Layout) -> tuple[str, bytes]:
    encoding = READERS[layout.reader].encoding.replace(DETECT, "utf-8")
    for name in sorted(layout.files, key=lambda name: name != layout.main):
        for dialogue in layout.expected:
            for turn in dialogue.turns:
                if turn.text.encode(encoding) in layout.files[name]:
                    return name, turn.text.encode(encoding)
    raise AssertionError(layout)


def _write_with_text(layout: Layout, folder: Path, change: Callable[[bytes], bytes], *, quoted: bool = False) -> Path:
    """Write the layout with one of its texts changed; `quoted`: including its quotation marks, if it has some."""
    name, text = _find_text(layout)
    if quoted and _is_quoted(layout):
        text = b'"' + text + b'"'
    return lay_out(layout.write(folder), {name: layout.files[name].replace(text, change(text))})


def _is_quoted(layout: Layout) -> bool:
    name, text = _find_text(layout)
    return b'"' + text + b'"' in layout.files[name]


# ---- whole files


def test_missing_path(tmp_path: Path, try_import: Callable):
    assert "nowhere does not exist" in try_import("jsonl", tmp_path / "nowhere").error


def test_folder_without_matching_files(tmp_path: Path, try_import: Callable):
    folder = lay_out(tmp_path / "in", {"photos/cat.jpg": b"\xff\xd8"})
    for reader in READERS:
        error = try_import(reader, folder).error
        assert str(folder) in error
        assert "expected" in error


@each_format
def test_file_without_dialogues(reader: str, tmp_path: Path, try_import: Callable):
    layout = BASES[reader]
    for number, content in enumerate([b"", b" \n\n\t\n", b"\xef\xbb\xbf", b"[]", b"{}", b"null"]):
        path = lay_out(tmp_path / str(number), {layout.main: content}) / layout.main
        error = try_import(reader, path, **layout.options).error
        assert "no dialogue of" in error or "has no column" in error
        assert path.name in error


@each_format
def test_binary_file(reader: str, tmp_path: Path, try_import: Callable):
    layout = BASES[reader]
    utf_16 = b"\xff\xfe" + "[1]".encode("utf-16-le")
    for number, content in enumerate([bytes(range(256)) * 20, b"\x00" * 5000, utf_16, b"PK\x03\x04" + bytes(300)]):
        path = lay_out(tmp_path / str(number), {layout.main: content}) / layout.main
        assert path.name in try_import(reader, path, **layout.options).error


@each_format
def test_truncated_file_keeps_complete_dialogues(reader: str, tmp_path: Path):
    layout = BASES[reader]
    complete = {dialogue.id: dialogue for dialogue in layout.expected}
    content = layout.content.rstrip()
    for end in sorted({*range(1, len(content), max(1, len(content) // 25)), len(content) - 1}):
        outcome = try_reading(reader, layout.write(tmp_path / f"in-{end}", content[:end]), **layout.options)
        if KINDS[reader] == "json":
            assert outcome.rejected or outcome.error
            assert all(dialogue == complete[dialogue.id] for dialogue in outcome.dialogues)
            assert all(rejection["line"] or reader in ONE_DIALOGUE_PER_FILE for rejection in outcome.rejected)
        elif KINDS[reader] == "jsonl":
            last_line = content[:end].split(b"\n")[-1]
            try:
                json.loads(last_line or b"{}")
            except ValueError:
                assert outcome.rejected or outcome.error


@pytest.mark.parametrize("reader", ["kvret", "topical_chat", "star"])
def test_content_after_a_json_document_is_listed(reader: str, tmp_path: Path, try_import: Callable):
    layout = BASES[reader]
    for number, junk in enumerate([b"garbage", b"[]", b', {"more": 1}', b"\x00"]):
        folder = layout.write(tmp_path / str(number), layout.content + junk)
        outcome = try_import(reader, folder, **layout.options)
        assert outcome.rejected or outcome.error


@pytest.mark.parametrize("name", ["abcd gzip", "messages gzip", "table csv-gzip"])
def test_damaged_gzip_file_is_listed(name: str, tmp_path: Path):
    layout = layout_named(name)
    content = layout.content
    middle = len(content) // 2
    damaged = {
        "truncated": content[:middle],
        "flipped": content[:middle] + bytes([content[middle] ^ 0xFF]) * 3 + content[middle + 3 :],
        "not gzip": gzip.decompress(content),
        "empty": b"",
        "trailing": content + b"junk",
    }
    for damage, changed in damaged.items():
        outcome = try_reading(layout.reader, layout.write(tmp_path / damage, changed), **layout.options)
        assert outcome.rejected or outcome.error, damage


def test_parquet_file_truncated_or_with_any_byte_changed(tmp_path: Path, try_import: Callable):
    layout = next(layout for layout in LAYOUTS if layout.reader == "table" and layout.main.endswith(".parquet"))
    size = len(layout.content)
    for end in (0, 3, 4, 12, size // 2, size - 8, size - 1):
        outcome = try_import("table", layout.write(tmp_path / f"cut-{end}", layout.content[:end]), **layout.options)
        assert "log.parquet" in outcome.error or "not a complete Parquet file" in outcome.error
    for position in range(4, size, 31):
        damaged = bytearray(layout.content)
        damaged[position] ^= 0x55
        with contextlib.suppress(CorpusError):
            folder = layout.write(tmp_path / f"flip-{position}", bytes(damaged))
            import_corpus("table", folder, tmp_path / "out", **layout.options)


# ---- encodings


@each_format
def test_nul_byte_in_a_text_is_listed(reader: str, tmp_path: Path, try_import: Callable):
    layout = BASES[reader]
    folder = _write_with_text(layout, tmp_path / "in", lambda text: text[:1] + b"\x00" + text[1:])
    outcome = try_import(reader, folder, **layout.options)
    assert outcome.rejected or outcome.error
    assert not any("\x00" in turn.text for dialogue in outcome.dialogues for turn in dialogue.turns)


@each_format
def test_undecodable_byte_is_listed_with_line_and_advice(reader: str, tmp_path: Path, try_import: Callable):
    layout = BASES[reader]
    name, text = _find_text(layout)
    folder = _write_with_text(layout, tmp_path / "in", lambda text: text + b"\xe9")
    outcome = try_import(reader, folder, encoding="utf-8", **layout.options)
    if outcome.rejected:
        rejection = outcome.rejected[0]
        assert rejection["file"] == name
        assert rejection["line"] == layout.files[name].count(b"\n", 0, layout.files[name].index(text)) + 1
    reason = outcome.rejected[0]["reason"] if outcome.rejected else outcome.error
    assert "byte 0xe9 is not utf-8" in reason
    assert "--encoding latin-1" in reason


@each_format
def test_other_encoding_is_read_when_named(reader: str, tmp_path: Path, try_import: Callable):
    layout = BASES[reader]
    name, text = _find_text(layout)
    folder = layout.write(tmp_path / "in")
    content = layout.files[name].removeprefix(b"\xef\xbb\xbf").decode().encode("cp1252")
    lay_out(folder, {name: content.replace(text, text + b"\xe9")})
    outcome = try_import(reader, folder, encoding="cp1252", **layout.options)
    assert text.decode() + "é" in {turn.text for dialogue in outcome.dialogues for turn in dialogue.turns}


def test_unknown_encoding(tmp_path: Path, try_import: Callable):
    assert "utf-nine" in try_import("jsonl", BASES["jsonl"].write(tmp_path / "in"), encoding="utf-nine").error


@pytest.mark.parametrize("reader", ["table", "text", "jsonl", "messages"])
@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_utf_16_complete_or_truncated(reader: str, missing_bytes: int, tmp_path: Path, try_import: Callable):
    """Spreadsheets export 'Unicode text' as UTF-16; a truncated file ends in the middle of a character."""
    layout = BASES[reader]
    content = layout.content.decode().encode("utf-16")
    folder = layout.write(tmp_path / "in", content[: len(content) - missing_bytes])
    outcome = try_import(reader, folder, encoding="utf-16", **layout.options)
    if missing_bytes:
        assert outcome.rejected or outcome.error
    else:
        assert outcome.dialogues == layout.expected


# ---- size and depth


@each_format_and_pattern
def test_line_of_megabytes_is_handled_in_seconds(reader: str, tmp_path: Path):
    """Junk at the end: earlier dialogues are kept, and excerpts are short. A backtracking pattern would need hours."""
    layout = BASES[reader]
    for number, (filler, megabytes) in enumerate([("x", 2), (" ", 1), ("\t", 1), (": ", 1), ('"', 1), ("0", 1)]):
        junk = (filler * (megabytes * MEGABYTE // len(filler)) + "!").encode()
        folder = layout.write(tmp_path / str(number), layout.content.rstrip() + b"\n\n" + junk)
        outcome = try_reading(reader, folder, **layout.options)
        if reader not in ONE_DIALOGUE_PER_FILE and not outcome.error:
            assert layout.expected[0].id in {dialogue.id for dialogue in outcome.dialogues}
        assert all(len(rejection["text"] or "") <= 200 for rejection in outcome.rejected)
        assert all(len(rejection["reason"]) < 1000 for rejection in outcome.rejected)


@pytest.mark.parametrize(
    "reader",
    [reader if reader in FORMATS.values() else pytest.param(reader, marks=pytest.mark.full) for reader in READERS],
)
def test_text_of_ten_megabytes_is_kept(reader: str, tmp_path: Path):
    if reader in LABELS_IN_OTHER_FILES:
        pytest.skip("each word would need a tag")
    layout = BASES[reader]
    long = _find_text(layout)[1] + b" and so on" * MEGABYTE
    outcome = try_reading(reader, _write_with_text(layout, tmp_path / "in", lambda _: long), **layout.options)
    assert not outcome.rejected
    assert long.decode() in {turn.text for dialogue in outcome.dialogues for turn in dialogue.turns}


@each_format_and_pattern
def test_deep_nesting_is_no_crash(reader: str, tmp_path: Path):
    """A hundred thousand brackets instead of the file, instead of a text, and on a line of their own."""
    layout = BASES[reader]
    for number, bracket in enumerate(["[", '{"a":', "-"]):
        deep = (bracket * (DEEP // len(bracket) + 1)).encode()
        alone = lay_out(tmp_path / f"alone-{number}", {layout.main: deep}) / layout.main
        outcome = try_reading(reader, alone, **layout.options)
        assert outcome.error or KINDS[reader] == "lines"
        inside = _write_with_text(layout, tmp_path / f"inside-{number}", lambda _, deep=deep: deep, quoted=True)
        outcome = try_reading(reader, inside, **layout.options)
        assert outcome.rejected or outcome.error or not _is_quoted(layout)
        after = layout.content.rstrip() + b"\n" + deep + b"\n"
        try_reading(reader, layout.write(tmp_path / f"after-{number}", after), **layout.options)


@pytest.mark.parametrize("depth", [50, 200, 300, 330, 400, 480, 500, 900, 960, 980])
def test_nesting_that_json_just_accepts_is_rejected(depth: int, tmp_path: Path, try_import: Callable):
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
    outcome = try_import("jsonl", folder)
    assert [dialogue.id for dialogue in outcome.dialogues] == ["good"]


@each_format_and_pattern
def test_number_of_ten_thousand_digits(reader: str, tmp_path: Path, try_import: Callable):
    """Python refuses to convert such a number, with an error that is not the JSON decoder's."""
    layout = BASES[reader]
    folder = _write_with_text(layout, tmp_path / "in", lambda _: b"1" * 10_000, quoted=True)
    outcome = try_import(reader, folder, **layout.options)
    assert outcome.rejected or outcome.error or not _is_quoted(layout)


# ---- ids


def _repeat(layout: Layout) -> bytes:
    content = layout.content.strip()
    if KINDS[layout.reader] == "json":
        return content[:-1] + b"," + content[1:]
    return content + b"\n" + content + b"\n"


@pytest.mark.parametrize(
    "reader",
    [
        *sorted(set(JSON_FILES) - ONE_DIALOGUE_PER_FILE - MESSAGES_WITH_IDS - {"json", "lex"}),
        "metalwoz",
        "jsonl",
        "msr_e2e",
        "self_dialogue",
    ],
)
def test_duplicate_id_is_listed_and_the_first_dialogue_kept(reader: str, tmp_path: Path):
    layout = BASES[reader]
    outcome = try_reading(reader, layout.write(tmp_path / "in", _repeat(layout)), **layout.options)
    assert outcome.dialogues[: len(layout.expected)] == layout.expected
    assert len([reason for reason in outcome.reasons if "was there before" in reason]) >= 2


def test_dstc2_acts_must_be_a_list(tmp_path: Path, try_import: Callable):
    layout = BASES["dstc2"]
    wrong = {"original_id": "voip-2", "system_turns": [{"utt_idx": 1, "acts": "bye()"}]}
    name = "DERIVED_system_acts.jsonl"
    folder = lay_out(layout.write(tmp_path / "in"), {name: layout.files[name] + jsonl_bytes(wrong)})
    outcome = try_import("dstc2", folder)
    assert outcome.dialogues == layout.expected
    assert [(rejection["file"], rejection["line"]) for rejection in outcome.rejected] == [(name, 3)]


def test_nli_missing_texts_are_rejected(tmp_path: Path, try_import: Callable):
    content = csv_bytes(("sent0", "sent1", "hard_neg"), ("Ann bakes", "Someone bakes", "Ann swims"), ("Bob sings",))
    outcome = try_import("nli", lay_out(tmp_path / "in", {"nli.csv": content}), form="triplets")
    assert [turn.text for dialogue in outcome.dialogues for turn in dialogue.turns if turn.text == "None"] == []
    assert [rejection["line"] for rejection in outcome.rejected] == [3, 3]


# ---- records

#: Wrong values for any place in a JSON document.
WRONG_VALUES = (None, 5, 1.5, "\ud800", [], [1], {"a": 1}, 10**400)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*place, key))


def _replace_at(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _replace_at(value[place[0]], place[1:], new)
    return copy


def _parse(layout: Layout) -> Any:
    text = layout.content.decode()
    return json.loads(text) if KINDS[layout.reader] == "json" else [json.loads(line) for line in text.splitlines()]


def _serialise(layout: Layout, document: Any) -> bytes:
    is_document = KINDS[layout.reader] == "json"
    return (json.dumps(document) if is_document else "\n".join(map(json.dumps, document))).encode()


def _with_wrong_values(layout: Layout, count: int) -> Iterator[tuple[str, Any, bytes]]:
    """Yield the main file with every value replaced by `count` wrong values: description, wrong value, content."""
    document = _parse(layout)
    wrong_values = itertools.cycle(WRONG_VALUES)
    for place in _places(document):
        if place or KINDS[layout.reader] == "json":
            for wrong in itertools.islice(wrong_values, count):
                content = _serialise(layout, _replace_at(document, place, wrong))
                yield f"{place} = {wrong!r:.30}", wrong, content


@pytest.mark.parametrize("count", [2, pytest.param(len(WRONG_VALUES), marks=pytest.mark.full)])
@pytest.mark.parametrize("reader", [*JSON_FILES, *JSON_LINES])
def test_wrong_type_anywhere_is_listed(reader: str, count: int, tmp_path: Path):
    layout = BASES[reader]
    turns = sum(len(dialogue.turns) for dialogue in layout.expected)
    lost = []
    for change, wrong, content in _with_wrong_values(layout, count):
        outcome = try_reading(reader, layout.write(tmp_path, content), **layout.options)
        read = sum(len(dialogue.turns) for dialogue in outcome.dialogues)
        is_less = len(outcome.dialogues) < len(layout.expected) or read < turns
        is_reported = outcome.rejected or outcome.error or outcome.manifest["left_out"] != layout.left_out
        if is_less and wrong != [] and not is_reported:
            lost.append(change)
    assert not lost


@pytest.mark.parametrize("reader", [*JSON_FILES, *JSON_LINES])
def test_missing_key_anywhere_is_listed(reader: str, tmp_path: Path):
    """Keys may be optional, but no dialogue is lost without a report, and no other exception is raised."""
    layout = BASES[reader]
    document = _parse(layout)
    for place in (place for place in _places(document) if place and isinstance(place[-1], str)):
        parent: Any = document
        for key in place[:-1]:
            parent = parent[key]
        without_key = {key: value for key, value in parent.items() if key != place[-1]}
        content = _serialise(layout, _replace_at(document, place[:-1], without_key))
        outcome = try_reading(reader, layout.write(tmp_path, content))
        is_a_dialogue = len(place) == 1  # in a file that is an object of dialogues, or of splits
        is_reported = outcome.rejected or outcome.error or is_a_dialogue
        assert len(outcome.dialogues) >= len(layout.expected) or is_reported, place


@each_reader
def test_random_damage_is_no_crash(reader: str, tmp_path: Path):
    layout = BASES[reader]
    pieces = [b'"', b"\n", b"\t", b"\\", b"\\ud800", b"\r", b"null", b"[", b",", b"{}"]
    for seed in range(8):
        rng = random.Random(f"{reader} {seed}")
        content = bytearray(layout.content)
        for _ in range(rng.randint(1, 6)):
            start = rng.randrange(len(content))
            end = min(len(content), start + rng.randint(1, 30))
            match rng.randrange(4):
                case 0:
                    content[start:end] = rng.randbytes(end - start)
                case 1:
                    del content[start:end]
                case 2:
                    content[start:start] = content[start:end]
                case 3:
                    content[start:end] = rng.choice(pieces)
            content = content or bytearray(b"x")
        try_reading(reader, layout.write(tmp_path / f"in-{seed}", bytes(content)), **layout.options)


def _massive(**changes: Any) -> bytes:
    record = {"id": "9", "locale": "en-US", "partition": "train", "intent": "pets_feed", "utt": "feed cows"}
    return jsonl_bytes(record | {"annot_utt": "feed [pet : cows]"} | changes)


@pytest.mark.parametrize(
    ("reader", "content", "reason"),
    [
        ("cornell_movie_dialogs", b"u0 +++$+++ u2 +++$+++ m0 +++$+++ ['L1', 'L2'\n", "expected a list of lines"),
        ("cornell_movie_dialogs", b"u0 +++$+++ u2 +++$+++ m0 +++$+++ ['L99']\n", "'L99' is missing"),
        ("cornell_movie_dialogs", b"u0 +++$+++ u2\n", "not enough values"),
        ("msr_e2e", b"1\t2\n", "expected at least 5 cells, got 2"),
        ("msr_e2e", b"3\t1\tt\tghost\tBoo\n", "unknown speaker 'ghost'"),
        ("personachat", b"no number\n", "expected a number, a space and a text"),
        ("responses", b"2\ta\tb\n", "expected 0 or 1, at least one turn, and a response, separated by tabs"),
        ("labelled_responses", b"1\ta\t \n", "a non-blank context and response are expected"),
        ("labelled_responses", b"1\t \t \tb\n", "a non-blank context and response are expected"),
        ("question_answers", b"__import__('os').getcwd()\n", "nor is it a Python literal"),
        ("taskmaster3_partial", b"a\tb\n", "expected context, target and id; got 2 cells"),
        ("self_dialogue", b"h,A9,W1,,,\n", "the dialogue has no turns"),
        ("self_dialogue", b"h,,W1,Hm,,\n", "a dialogue needs an id"),
        ("self_dialogue", b"h,A9,W1,a,b,c,d,e\n", "8 cells under 6 columns"),
        ("table", b"c,customer,,\n", "the text is empty"),
        ("table", b"c,,Hm,\n", "unknown speaker ''"),
        ("table", b",agent,Hm,\n", "no conversation in column 'conversation'"),
        ("table", b'c,agent,"open\n', "not a valid row"),
        ("text", b"\n\nwords without a speaker\n", "has no speaker"),
        ("reddit", b'{"context": "a", "response": "b", "context/1": "c"}\n', "'context/0' is missing"),
        ("metalwoz", b'{"id": "m3", "turns": "abc"}\n', "'turns' is not a list"),
        ("nli", b'{"sentence1": "Only one", "gold_label": "neutral"}\n', "'sentence2' is missing"),
        ("nli", b'{"one": "a", "other": "b"}\n', "'premise' is missing"),
        ("authored_intents", b'{"domain": "a", "intent": "b", "texts": "c"}\n', "'texts' must be a list"),
        ("massive", b'{"id": "9", "locale": "fr-FR"}\n', "set locale=fr-FR to read it"),
        ("massive", _massive(id="1"), "the id 'en-US/1' was there before"),
        ("massive", _massive(intent=" "), "'intent' must be a non-blank string"),
        ("massive", _massive(partition="extra"), "the partition must be train, dev or test, got 'extra'"),
        ("massive", _massive(annot_utt="feed [pet : cats]"), "the annotation and the text 'feed cows' have different"),
        ("massive", _massive(annot_utt="feed [pet cows]"), "slots must be marked as '[name : value]'"),
        ("massive", _massive(annot_utt="feed [ : cows]"), "a slot has no name"),
        ("massive", _massive(annot_utt="feed [pet : ] cows"), "the slot 'pet' has no value"),
        ("hwu64_kfold", b"9;;feed;feed cows;feed cows;\n", "'scenario' must be a non-blank string"),
        ("hwu64_kfold", b"9;pets;feed\n", "'answer_annotation' must be a non-blank string"),
        ("zendesk", b'{"id": 5, "requester_id": 1}\n', "export the tickets with their comments"),
        ("intercom", b'{"id": "5", "source": {}}\n', "export each conversation, not the list of them"),
        ("twitter_support", b"5,a,True,Tue Oct 31 22:10:47 +0000 2017,Hm,,\n", "the tweet 5 was there before"),
        ("twitter_support", b"6,a,maybe,Tue Oct 31 22:10:47 +0000 2017,Hm,,\n", "'inbound' must be True or False"),
        ("twitter_support", b"6,a,True,noonish,Hm,,\n", "cannot parse the time 'noonish'"),
        ("twitter_support", b",a,True,Tue Oct 31 22:10:47 +0000 2017,Hm,,\n", "'tweet_id' is empty"),
        ("mbox", b"From x Wed May  1 10:00:00 2024\n", "the header 'From' with an address is missing"),
        ("transcript", b"\nwords without a time\n", "a cue without a time"),
    ],
)
def test_invalid_record_is_listed_with_line_and_reason(reader: str, content: bytes, reason: str, tmp_path: Path):
    layout = BASES[reader]
    outcome = try_reading(reader, layout.write(tmp_path / "in", layout.content + content), **layout.options)
    assert outcome.dialogues == layout.expected
    listed = [rejection for rejection in outcome.rejected if reason in rejection["reason"]]
    assert listed, outcome.rejected
    assert listed[0]["file"] == layout.main
    lines = (layout.content + content).splitlines()
    assert listed[0]["line"] == max(number for number, line in enumerate(lines, 1) if line)


def test_personachat_line_without_a_reply_keeps_the_utterance(tmp_path: Path, try_import: Callable):
    layout = BASES["personachat"]
    outcome = try_import("personachat", layout.write(tmp_path / "in", layout.content + b"2 hello ?\n"))
    assert [turn.text for turn in outcome.dialogues[-1].turns] == ["anyone ?", "hello ?"]
    assert [(it["line"], it["reason"]) for it in outcome.rejected] == [(4, "the text is empty")]


def test_multiwoz_invalid_split_lists_are_listed(tmp_path: Path, try_import: Callable):
    layout = layout_named("multiwoz data-with-lists")
    for number, broken in enumerate([b'["C.json"', b"[" * DEEP, b"\xff", b'[["C.json"]]', b"[1" + b"1" * 9000 + b"]"]):
        folder = lay_out(layout.write(tmp_path / str(number)), {"testListFile.json": broken})
        outcome = try_import("multiwoz", folder, form="json")
        assert [dialogue.id for dialogue in outcome.dialogues] == ["A.json", "B.json", "C.json"]
        assert [rejection["file"] for rejection in outcome.rejected] == ["testListFile.json"]


@pytest.mark.parametrize("reader", sorted(LABELS_IN_OTHER_FILES))
@pytest.mark.parametrize(
    ("file", "content", "line", "reason"),
    [
        ("seq.in", "feed the goat\nis it fed\n", 1, "3 words but 6 slot tags"),
        ("seq.in", "\nis it fed\n", 1, "an utterance and, in the same line of label, its intent are expected"),
        ("seq.out", "O O X-pet O O O\nO O O\n", 1, "the slot tag must be O, B-NAME or I-NAME, got 'X-pet'"),
        ("seq.out", "O O B-pet I-pet O I-time\n\n", 2, "3 words but 0 slot tags"),
        ("label", "Feed\n \n", 2, "an utterance and, in the same line of label, its intent are expected"),
    ],
)
def test_slot_gated_mismatched_line_is_listed(
    reader: str, file: str, content: str, line: int, reason: str, tmp_path: Path, try_import: Callable
):
    layout = BASES[reader]
    outcome = try_import(reader, lay_out(layout.write(tmp_path / "in"), {f"data/{reader}/test/{file}": content}))
    assert [(it["file"], it["line"], it["kind"]) for it in outcome.rejected] == [
        (f"data/{reader}/test/seq.in", line, "dialogue")
    ]
    assert reason in outcome.rejected[0]["reason"]
    assert outcome.dialogues == tuple(dialogue for dialogue in layout.expected if dialogue.id != f"test/{line}")


@pytest.mark.parametrize("reader", sorted(LABELS_IN_OTHER_FILES))
@pytest.mark.parametrize("file", ["seq.in", "seq.out", "label"])
def test_slot_gated_files_of_unequal_length_are_rejected(reader: str, file: str, tmp_path: Path, try_import: Callable):
    """With a line missing in one of them the labels cannot be assigned; the other splits are read."""
    layout = BASES[reader]
    name = f"data/{reader}/test/{file}"
    for number, content in enumerate([layout.files[name].split(b"\n", 1)[1], b"one more\n" + layout.files[name]]):
        outcome = try_import(reader, lay_out(layout.write(tmp_path / str(number)), {name: content}))
        assert outcome.dialogues == layout.expected[2:]
        assert [(it["file"], it["kind"]) for it in outcome.rejected] == [(f"data/{reader}/test/seq.in", "file")]
        assert "they need the same number of lines" in outcome.rejected[0]["reason"]


@pytest.mark.parametrize(
    "row", [["only a text"], ["a text", 5], ["a text", " "], ["", "feed_pet"], "ab", None, {"text": "intent"}]
)
def test_clinc150_entry_must_be_a_pair(row: Any, tmp_path: Path, try_import: Callable):
    content = json.dumps({"val": [["feed the goat", "feed_pet"], row], "train": [["is it fed", "pet_status"]]})
    outcome = try_import("clinc150", lay_out(tmp_path / "in", {"data_full.json": content}))
    assert [dialogue.id for dialogue in outcome.dialogues] == ["val/1", "train/1"]
    assert [(it["line"], it["dialogue"]) for it in outcome.rejected] == [(1, "val/2")]
    assert "[text, intent] is expected" in outcome.rejected[0]["reason"]


@pytest.mark.parametrize("other", [{"extra": []}, {"train": {"a text": "intent"}}])
def test_clinc150_list_must_be_a_known_split(other: dict, tmp_path: Path, try_import: Callable):
    content = json.dumps({"val": [["feed the goat", "feed_pet"]], **other})
    outcome = try_import("clinc150", lay_out(tmp_path / "in", {"data_full.json": content}))
    assert [dialogue.id for dialogue in outcome.dialogues] == ["val/1"]
    assert [it["kind"] for it in outcome.rejected] == ["file"]


IRC_LOG, IRC_LINKS = "data/train/2004-12-25.ascii.txt", "data/train/2004-12-25.annotation.txt"


@pytest.mark.parametrize("line", [b"[10:04] <dora> it is \xe9\n", b"[10:04] <dora> it is \0\n"], ids=["byte", "NUL"])
def test_irc_rejected_message_does_not_shift_links(line: bytes, tmp_path: Path, try_import: Callable):
    """Links are line numbers: the threads are those of the complete log, without that message."""
    layout = BASES["irc_disentanglement"]
    lines = layout.content.splitlines(keepends=True)
    outcome = try_import("irc_disentanglement", layout.write(tmp_path / "in", b"".join([*lines[:8], line, *lines[9:]])))
    assert [(it["file"], it["line"]) for it in outcome.rejected] == [(IRC_LOG, 9)]
    dev, screen, awake = layout.expected
    assert (outcome.dialogues[0], outcome.dialogues[2]) == (dev, awake)
    # the messages around it are one turn now
    assert [turn.text for turn in outcome.dialogues[1].turns[:3]] == [turn.text for turn in screen.turns[:3]]
    assert outcome.dialogues[1].turns[3].text == "waits for the answer thanks"
    assert [turn.speaker for turn in outcome.dialogues[1].turns] == ["speaker_1", "speaker_2", "speaker_1", "system"]


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("0 16 -", "the log has 16 lines, cannot link 0 to 16"),
        ("-1 3 -", "cannot link -1 to 3"),
        ("one 3 -", "invalid literal"),
        ("3", "not enough values"),
        ("", "not enough values"),
    ],
)
def test_irc_invalid_link_is_listed(link: str, reason: str, tmp_path: Path, try_import: Callable):
    layout = BASES["irc_disentanglement"]
    folder = lay_out(layout.write(tmp_path / "in"), {IRC_LINKS: layout.files[IRC_LINKS] + f"{link}\n".encode()})
    outcome = try_import("irc_disentanglement", folder)
    assert outcome.dialogues == layout.expected
    assert [(it["file"], it["line"]) for it in outcome.rejected] == [(IRC_LINKS, 14)]
    assert reason in outcome.rejected[0]["reason"]


def test_irc_links_without_a_log_are_listed(tmp_path: Path, try_import: Callable):
    layout = BASES["irc_disentanglement"]
    folder = layout.write(tmp_path / "in")
    assert (
        "import a folder that contains train, dev or test"
        in try_import("irc_disentanglement", folder / IRC_LINKS).error
    )
    (folder / IRC_LOG).unlink()
    outcome = try_import("irc_disentanglement", folder)
    assert outcome.dialogues == layout.expected[:1]
    assert [(it["file"], it["kind"]) for it in outcome.rejected] == [(IRC_LINKS, "file")]
    assert "its log 2004-12-25.ascii.txt is missing" in outcome.rejected[0]["reason"]


def test_convokit_circular_replies_are_listed(tmp_path: Path, try_import: Callable):
    """With order=paths they belong to no chain of replies."""
    records = [
        {"id": "1", "conversation_id": "c", "speaker": "a", "text": "One", "reply_to": "2", "timestamp": 1},
        {"id": "2", "conversation_id": "c", "speaker": "b", "text": "Two", "reply_to": "1", "timestamp": 2},
        {"id": "3", "conversation_id": "d", "speaker": "a", "text": "Three", "reply_to": None, "timestamp": 3},
    ]
    folder = lay_out(tmp_path / "in", {"utterances.jsonl": jsonl_bytes(*records)})
    outcome = try_import("convokit", folder, order="paths")
    assert [dialogue.id for dialogue in outcome.dialogues] == ["d/0"]
    assert [(rejection["line"], rejection["text"]) for rejection in outcome.rejected] == [(1, "One"), (2, "Two")]
    assert len(try_import("convokit", folder).dialogues) == 2


# ---- the store and its surroundings


def test_previous_store_survives_a_failed_import(tmp_path: Path):
    layout = BASES["jsonl"]
    out = tmp_path / "out"
    import_corpus("jsonl", layout.write(tmp_path / "in"), out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    empty = lay_out(tmp_path / "empty", {layout.main: b""})
    for strict in (False, True):
        with pytest.raises(CorpusError):
            import_corpus("jsonl", empty / layout.main, out, strict=strict)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert tuple(Store(out)) == layout.expected


@pytest.mark.parametrize("reader", ["jsonl", "messages", "text", "table", "reddit"])
def test_store_inside_the_imported_folder_is_not_read(reader: str, tmp_path: Path):
    """The store's own files (rejected.jsonl, Parquet) look like logs."""
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


def test_file_name_that_is_not_unicode(tmp_path: Path, try_import: Callable):
    """Old archives have names in latin-1, which a JSON manifest cannot represent."""
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
def test_lone_surrogate_anywhere_is_rejected(record: dict, tmp_path: Path, try_import: Callable):
    """JSON escapes can represent one, UTF-8 cannot."""
    good = {"id": "good", "turns": [{"speaker": "user", "text": "Fine"}]}
    content = "\n".join(json.dumps(it) for it in (record, good))
    outcome = try_import("jsonl", lay_out(tmp_path / "in", {"own.jsonl": content}))
    assert outcome.dialogues[-1].id == "good"
    assert outcome.rejected


def test_parquet_columns_of_other_types(tmp_path: Path, try_import: Callable):
    """Numbers are accepted as names and labels; a text that is not a string is rejected."""
    day = datetime.date(2024, 5, 1)
    columns = {
        "conversation": [1, 1, 1],
        "speaker": [0, 1, 0],
        "text": ["Which day?", "Monday", "Thanks"],
        "label": [0, None, 7],
        "part": [decimal.Decimal("1.5")] * 3,
    }
    folder = lay_out(tmp_path / "good", {"log.parquet": parquet_bytes(columns)})
    (dialogue,) = try_import("table", folder, intent="label", split="part").dialogues
    assert [turn.speaker for turn in dialogue.turns] == ["speaker_1", "speaker_2", "speaker_1"]
    assert [turn.intent for turn in dialogue.turns] == ["0", None, "7"]
    assert dialogue.split == "1.5"
    for number, texts in enumerate(
        [[1, 2, 3], [b"a", b"b", b"c"], [day] * 3, [["a"], ["b"], []], [1.5, float("nan"), None]]
    ):
        file = parquet_bytes({**columns, "text": texts})
        outcome = try_import("table", lay_out(tmp_path / str(number), {"log.parquet": file}), intent="label")
        assert "not a string" in outcome.error or "empty" in outcome.error
