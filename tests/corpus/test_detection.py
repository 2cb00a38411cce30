"""Tests how the format of a log is recognised."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
from openpyxl import Workbook

from tests.helpers.layouts import BASES, LAYOUTS, Layout, csv_bytes, lay_out, layout_named
from turnwise.core.dialogue import Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.formats import detect_format
from turnwise.corpus.importing.pipeline import SplitPlan, import_corpus
from turnwise.corpus.registry import READERS

#: Training data with candidates or labels, and texts that the reader's tests make hard to recognise.
_BY_NAME_ONLY = ("responses", "labelled_responses", "question_answers", "nli", "text")
_OWN_LOGS = [
    layout
    for layout in LAYOUTS
    if READERS[layout.reader].is_log
    and layout.reader not in _BY_NAME_ONLY
    and layout.name != "messages under-another-key"
]


@pytest.mark.parametrize("layout", _OWN_LOGS, ids=lambda layout: layout.name)
def test_every_layout_is_recognised(layout: Layout, tmp_path: Path):
    detection = detect_format(lay_out(tmp_path / "in", layout.files))
    assert detection.reader == layout.reader
    assert detection.why


def test_recognised_options_import_the_log(tmp_path: Path):
    rows = [
        (f"T-{ticket}", role, f"text {number} of ticket", f"{13 + ticket:02}/02/2024 10:{number:02}")
        for ticket in range(10)
        for number, role in enumerate(("End-user", "Agent", "End-user"))
    ]
    content = csv_bytes(("Ticket Number", "Author Type", "Message", "Created At"), *rows, delimiter="|")
    folder = lay_out(tmp_path / "in", {"export.csv": content})
    detection = detect_format(folder)
    assert dict(detection.options) == {
        "conversation": "Ticket Number",
        "speaker": "Author Type",
        "text": "Message",
        "time": "Created At",
        "time_format": ["%d/%m/%Y %H:%M"],
    }
    store = import_corpus(detection.reader, folder, tmp_path / "store", **detection.options)
    assert len(store) == 10
    assert store.manifest["rejected"] == 0


@pytest.mark.parametrize("word", ["我的包裹在哪里", "荷物はどこですか", "พัสดุอยู่ที่ไหน"])
def test_texts_of_languages_without_spaces_are_recognised(word: str, tmp_path: Path):
    rows = [(str(number // 2), ("user", "agent")[number % 2], f"{word}{number}") for number in range(30)]
    folder = lay_out(tmp_path / "in", {"log.csv": csv_bytes(("conversation", "speaker", "text"), *rows)})
    assert detect_format(folder).options["text"] == "text"
    rows = [(conversation, speaker, f"id-{number}") for number, (conversation, speaker, _) in enumerate(rows)]
    folder = lay_out(tmp_path / "ids", {"log.csv": csv_bytes(("conversation", "speaker", "text"), *rows)})
    with pytest.raises(CorpusError, match="column of the text is not recognised"):
        detect_format(folder)


def test_day_and_month_are_told_apart_by_values_above_twelve(tmp_path: Path):
    rows = [("a", "user", "hello there", f"01/{day}/2024 10:00") for day in range(10, 25)]
    folder = lay_out(tmp_path / "in", {"log.csv": csv_bytes(("conversation", "speaker", "text", "time"), *rows)})
    assert detect_format(folder).options["time_format"] == ["%m/%d/%Y %H:%M"]


def test_nested_json(tmp_path: Path):
    comments = [{"author": {"role": "agent"}, "body": "Hello there", "created_at": "2024-05-01T10:00:00Z"}]
    document = {"data": {"cases": [{"case": {"no": 7, "thread": comments}}]}}
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    detection = detect_format(path)
    assert detection.reader == "json"
    assert dict(detection.options) == {
        "conversations": "data.cases[]",
        "id": "case.no",
        "messages": "case.thread[]",
        "speaker": "author.role",
        "text": "body",
        "time": "created_at",
    }
    (dialogue,) = import_corpus("json", path, tmp_path / "store", **detection.options)
    assert (dialogue.id, dialogue.turns[0].speaker) == ("7", "system")


@pytest.mark.parametrize(
    ("key", "times"),
    [
        ("timestamp_ms", (1704449100000, 1704448980000)),
        ("ts", ("1704449100.000300", "1704448980.000100")),
        ("ts", (1704449100.5, 1704448980.25)),
        ("sentTime", (1704449100, 1704448980)),
        ("$date", ("2024-01-05T10:05:00.000Z", "2024-01-05T10:03:00.000Z")),
        ("when", ("05.01.2024 10:05", "05.01.2024 10:03")),
    ],
)
def test_times_are_recognised_by_key_and_value(key: str, times: tuple, tmp_path: Path):
    """A file with the newest message first is imported in the order of time."""
    messages = [
        {"size": 1704448000, key: times[0], "from_name": "Ben", "content": "Yes."},
        {"size": 1704449999, key: times[1], "from_name": "Anna", "content": "Open?"},
    ]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"page": 1, "messages": messages}), encoding="utf-8")
    detection = detect_format(path)
    assert detection.options["time"] == key
    assert "speaker is 'from_name' (Ben); text is 'content' (Yes.)" in detection.why
    store = import_corpus(detection.reader, path, tmp_path / "store", **detection.options)
    assert [[turn.text for turn in dialogue.turns] for dialogue in store] == [["Open?", "Yes."]]


def test_a_file_without_times_says_so(tmp_path: Path):
    messages = [{"id": number, "sender": name, "text": "Hi"} for number, name in ((1704449100, "Ben"), (7, "Anna"))]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"page": 1, "messages": messages}), encoding="utf-8")
    detection = detect_format(path)
    assert "no times: the order in the file" in detection.why
    store = import_corpus(detection.reader, path, tmp_path / "store", **detection.options)
    assert store.manifest["facts"]["order"] == "that of the files: no times are read (option time)"


def test_records_that_are_messages_and_objects_under_ids(tmp_path: Path):
    rows = [{"author": name, "body": name, "created_at": 1704449100 - at} for at, name in enumerate(("Ben", "Anna"))]
    for name, document, turns in (
        ("flat.json", rows, [["Anna", "Ben"]]),
        ("ids.json", {"t-1": {"comments": rows}, "t-2": {"comments": rows[:1]}}, [["Anna", "Ben"], ["Ben"]]),
    ):
        path = tmp_path / name
        path.write_text(json.dumps(document), encoding="utf-8")
        detection = detect_format(path)
        store = import_corpus(detection.reader, path, tmp_path / f"store-{name}", **detection.options)
        assert [[turn.text for turn in dialogue.turns] for dialogue in store] == turns


def test_plain_text_needs_recurring_speakers(tmp_path: Path):
    chat = tmp_path / "chat.txt"
    chat.write_text("Anna: hello\nBen: hi\nAnna: how are you?\nBen: fine\n", encoding="utf-8")
    assert detect_format(chat).reader == "text"
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear all,\nplease note: the office is closed.\nReason: a leak.\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="not recognised"):
        detect_format(letter)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"notes.csv": b"date,amount\n2024-01-01,5\n"}, "column of the conversation is not recognised among 'date'"),
        ({"data.json": b'{"numbers": [1, 2, 3]}'}, "not recognised"),
        ({"image.png": b"\x89PNG\r\n\x1a\n\x00\x00"}, "other files than pictures"),
        (
            {"a.json": b'{"messages": [{"sender": "x", "say": "hi"}]}'},
            r"`json` finds no text at messages\[\], which have",
        ),
        (
            {"a.json": b'{"channel_id": 1, "posts": []}'},
            "`slack` needs the keys channel_id, messages: messages is miss",
        ),
        ({"a.txt": b"Dear all,\nbye\n"}, "`text` needs lines 'Speaker: text'"),
        ({"notes.pdf": b"%PDF"}, "notes.pdf has a format that is not recognised. Name a reader"),
        ({"broken.json": b'{"messages": ['}, "broken.json is damaged in line 1: not valid JSON from here on"),
        ({"broken.jsonl": b'{"messages": [\n'}, "broken.jsonl is damaged in line 1: not valid JSON"),
        ({"broken.parquet": b"PAR1"}, "broken.parquet is damaged: not a complete Parquet file"),
        ({"broken.csv.gz": b"\x1f\x8b\x08\x00"}, "broken.csv.gz is damaged: cannot be read to its end"),
        ({"empty.csv": b""}, "empty.csv is empty"),
        ({"blank.txt": b" \n\n"}, "blank.txt is empty"),
        ({"header.csv": b"conversation;speaker;text\n"}, "header.csv is a table without rows"),
        ({"list.json": b"[]"}, "list.json has no records"),
        ({"settings.yml": b"host: example.com\nport: 80\n"}, "not recognised"),
    ],
)
def test_other_files_are_refused(files: dict[str, bytes], message: str, tmp_path: Path):
    with pytest.raises(CorpusError, match=message):
        detect_format(lay_out(tmp_path / "in", files))


@pytest.mark.parametrize(
    "reader",
    [
        "slack",
        "teams",
        "discord",
        "whatsapp",
        "kakaotalk",
        "zoom",
        "telegram",
        "messenger",
        "discourse",
        "gitter",
        "dialogflow",
        "lex",
    ],
)
def test_zipped_exports(reader: str, tmp_path: Path):
    layout = BASES[reader]
    path = tmp_path / "export.zip"
    with ZipFile(path, "w") as archive:
        for name, content in layout.files.items():
            archive.writestr(name, content)
    detection = detect_format(path)
    assert detection.reader == reader
    store = import_corpus(reader, path, tmp_path / "store", **layout.options)
    assert [dialogue.turns for dialogue in store] == [dialogue.turns for dialogue in layout.expected]


@pytest.mark.parametrize("layout", [it for it in LAYOUTS if it.reader == "whatsapp"], ids=lambda layout: layout.name)
def test_layouts_of_whatsapp(layout: Layout, tmp_path: Path):
    assert detect_format(layout.write(tmp_path)).reader == "whatsapp"


def test_chats_with_long_messages(tmp_path: Path):
    recipe = "\n".join(f"{number} spoons of rye" for number in range(30))
    lines = [f"31/12/23, 21:{minute} - Anna: {recipe}" for minute in range(10, 20)]
    assert detect_format(lay_out(tmp_path, {"_chat.txt": "\n".join(lines)})).reader == "whatsapp"


@pytest.mark.parametrize("line", ["2023-12-31 21:41:05 - started", "31/12/23 dear diary: rye", "21:41 - Anna: Hi"])
def test_other_texts_with_times_are_no_chats(line: str, tmp_path: Path):
    with pytest.raises(CorpusError):
        detect_format(lay_out(tmp_path, {"log.txt": f"{line}\n" * 3}))


def test_other_files_in_a_zip_file_are_read_by_their_own_readers(tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    readers = ("mbox", "messages", "table")
    with ZipFile(folder / "export.zip", "w") as archive:
        for name in readers:
            for file, content in BASES[name].files.items():
                archive.writestr(f"{name}/{file}", content)
        archive.writestr("again.zip", b"PK")
    for path in (folder, folder / "export.zip"):
        assert detect_format(path).reader == "auto"
        store = import_corpus("auto", path, tmp_path / f"store-{path.name}")
        assert {dialogue.source for dialogue in store} == set(readers)
        assert len(store) == sum(len(BASES[name].expected) for name in readers)
        (unread,) = store.manifest["facts"]["not read"]
        assert unread.endswith("again.zip is an archive within an archive: unpack it")


def test_messages_about_an_archive_name_no_temporary_folder(tmp_path: Path):
    path = tmp_path / "log.zip"
    with ZipFile(path, "w") as archive:
        archive.writestr("inner/a.csv", "date,amount\n1,2\n")
    with pytest.raises(CorpusError, match=r"a\.csv is a table, but its column of the conversation") as refused:
        detect_format(path, scratch=tmp_path / "scratch")
    with ZipFile(path, "w") as archive:
        archive.writestr("inner/users.json", "[]")
    with pytest.raises(CorpusError, match="nothing was written") as empty:
        import_corpus("slack", path, tmp_path / "scratch" / "store")
    assert all("scratch" not in str(error.value) for error in (refused, empty))


def test_store_is_not_imported_again(tmp_path: Path):
    log = tmp_path / "log.csv"
    log.write_bytes(csv_bytes(("conversation", "speaker", "text"), ("a", "user", "hi")))
    import_corpus("table", log, tmp_path / "store")
    with pytest.raises(CorpusError, match="is a store already"):
        detect_format(tmp_path / "store")


def test_every_file_of_a_folder_is_read_by_its_own_format_or_listed(tmp_path: Path):
    tables = {f"days/{day}.csv": csv_bytes(("conversation", "speaker", "text"), (day, "user", "hi")) for day in "abc"}
    readers = ("slack", "convokit", "telegram", "zendesk", "mbox", "rasa", "lex")
    exports = {f"{name}/{file}": content for name in readers for file, content in BASES[name].files.items()}
    unread = {"manual.pdf": b"%PDF", "empty.txt": b"", "other.csv": b"date;amount\n1;2\n"}
    with ZipFile(tmp_path / "teams.zip", "w") as archive:
        for name, content in BASES["teams"].files.items():
            archive.writestr(name, content)
    ignored = {"photo.jpg": b"\xff\xd8", ".DS_Store": b"x"}
    folder = lay_out(tmp_path / "in", tables | exports | unread | ignored)
    (tmp_path / "teams.zip").rename(folder / "teams.zip")
    assert detect_format(folder).reader == "auto"
    store = import_corpus("auto", folder, tmp_path / "store")
    sentences = store.manifest["facts"]["not read"]
    assert [each.split()[0] for each in sorted(sentences)] == ["empty.txt", "manual.pdf", "other.csv"]
    assert "empty.txt is empty" in sentences
    alone = [len(BASES[name].expected) for name in ("teams", *readers)]
    assert len(store) == 3 + sum(alone)
    assert {dialogue.source for dialogue in store} == {"table", "teams", *readers}


#: Readers of logs whose files are not recognised, and those without a layout that needs no options.
_NOT_BY_ITSELF = {"auto", "responses", "labelled_responses", "nli"}


def _without_roles(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return turns of a user and the system as those of two people, the user first."""
    return tuple(replace(turn, speaker={"user": "speaker_1", "system": "speaker_2"}[turn.speaker]) for turn in turns)


def test_one_folder_with_a_log_of_every_kind(tmp_path: Path):
    """All logs are read, in the order of their files, with the right speakers, and the report counts every message."""
    logs = [name for name, reader in READERS.items() if reader.is_log and name not in _NOT_BY_ITSELF]
    layouts = [next((it for it in LAYOUTS if it.reader == name and not it.options), BASES[name]) for name in logs]
    layouts[logs.index("text")] = layout_named("text recurring")  # speakers of plain text must recur
    layouts.sort(key=lambda layout: layout.reader)
    files = {f"{it.reader}/{name}": content for it in layouts for name, content in it.files.items()}
    store = import_corpus("auto", lay_out(tmp_path / "in", files), tmp_path / "store")
    manifest = store.manifest
    dialogues = [(it.source, it.turns) for it in store]
    expected = [dialogue for layout in layouts for dialogue in layout.expected]
    assert dialogues == [(it.source, _without_roles(it.turns) if it.source == "mbox" else it.turns) for it in expected]
    left_out = sum((Counter(it.left_out) for it in layouts), Counter())
    assert (Counter(manifest["left_out"]), manifest["rejected"], "not read" in manifest["facts"]) == (
        left_out,
        0,
        False,
    )
    assert manifest["utterances"] == manifest["read"]["utterances"] == sum(len(turns) for _, turns in dialogues)


def test_equal_ids_in_files_of_different_formats_stay_apart(tmp_path: Path):
    table = csv_bytes(("conversation", "speaker", "text", "time"), ("1", "user", "hello", "2024-02-01"))
    tickets = [{"id": 1, "requester_id": 2, "comments": [{"author_id": 2, "public": True, "body": "My kettle leaks."}]}]
    tickets[0]["comments"][0]["created_at"] = "2024-01-01"
    folder = lay_out(tmp_path / "in", {"a.csv": table, "b.json": json.dumps(tickets)})
    plan = SplitPlan.parse("50/0/50", by="time")
    dialogues = {each.id: each for each in import_corpus("auto", folder, tmp_path / "store", split_plan=plan)}
    assert {name: (each.source, each.split) for name, each in dialogues.items()} == {
        "1": ("table", "test"),
        "b.json/1": ("zendesk", "train"),
    }


def test_a_file_that_its_reader_refuses_does_not_stop_the_others(tmp_path: Path):
    agent = {
        f"agent/intents/greet_usersays_{language}.json": json.dumps([{"id": "1", "data": [{"text": "hi"}]}])
        for language in ("en", "de")
    }
    folder = lay_out(tmp_path / "in", agent | {"log.csv": "conversation,speaker,text\na,user,hello\n"})
    store = import_corpus("auto", folder, tmp_path / "store")
    assert [dialogue.id for dialogue in store] == ["a"]
    assert len(store.manifest["facts"]["not read"]) == 2
    with pytest.raises(CorpusError, match="strict: stopped here"):
        import_corpus("auto", folder, tmp_path / "strict", strict=True)


def test_projects_and_stores_in_a_folder_are_no_logs(tmp_path: Path):
    folder = lay_out(tmp_path / "in", {"log.csv": "conversation,speaker,text\na,user,hello\n", "p/turnwise.yaml": ""})
    lay_out(folder, {"p/answers.jsonl": "{}\n"})
    import_corpus("table", folder / "log.csv", folder / "store")
    assert detect_format(folder).reader == "table"


def test_excel_files_are_tables(tmp_path: Path):
    workbook = Workbook()
    for number in range(20):
        workbook.active.append([f"T-{number // 4}", ("Customer", "Agent")[number % 2], f"my text {number}", number])
    workbook.active.insert_rows(1)
    for column, name in enumerate(("Ticket", "Author", "Message", "Created"), 1):
        workbook.active.cell(1, column, name)
    workbook.create_sheet("Notes").append(["nothing"])
    workbook.save(tmp_path / "log.xlsx")
    detection = detect_format(tmp_path / "log.xlsx")
    assert (detection.reader, detection.options["text"]) == ("table", "Message")
    store = import_corpus(detection.reader, tmp_path / "log.xlsx", tmp_path / "store", **detection.options)
    assert (len(store), store.manifest["rejected"]) == (5, 0)
    assert store.manifest["facts"]["sheets not read"] == ["Notes of log.xlsx"]
