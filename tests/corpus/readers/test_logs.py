"""Tests the readers of your own logs: tables, chat-completion logs, plain text, and turnwise's own format."""

import gzip
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.layouts import csv_bytes, jsonl_bytes, lay_out, parquet_bytes
from tests.helpers.outcomes import outcome_of
from tests.helpers.reading import utterances
from turnwise.core.dialogue import Dialogue, Slot, Turn
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.readers.jsonl import to_json
from turnwise.corpus.readers.shared.speakers import ROLE_WORDS

COLUMNS = ("conversation", "speaker", "text", "time")


def table(folder: Path, *rows: tuple, columns: tuple = COLUMNS, name: str = "log.csv", delimiter: str = ",") -> Path:
    return lay_out(folder, {name: csv_bytes(columns, *rows, delimiter=delimiter)})


# ---- table


def test_rows_keep_their_order_without_a_time_column(tmp_path: Path, try_import: Callable):
    """Conversations may be interleaved; each is put together, and they come by name."""
    folder = table(
        tmp_path / "in",
        ("z", "user", "z one", "3"),
        ("a", "user", "a one", "9"),
        ("z", "agent", "z two", "2"),
        ("a", "agent", "a two", "8"),
        ("z", "user", "z three", "1"),
    )
    outcome = try_import("table", folder)
    assert {it.id: [text for _, text in utterances(it)] for it in outcome.dialogues} == {
        "a": ["a one", "a two"],
        "z": ["z one", "z two", "z three"],
    }
    assert outcome.manifest["read"] == {"dialogues": 2, "utterances": 5}


def test_rows_are_sorted_by_time_where_there_is_one(tmp_path: Path, try_import: Callable):
    folder = table(
        tmp_path / "in",
        ("a", "user", "fourth", "10"),
        ("a", "agent", "first", "9"),
        ("a", "user", "second", "9.5"),
        ("a", "agent", "third", "9.5"),
    )
    (dialogue,) = try_import("table", folder, time="time").dialogues
    assert [text for _, text in utterances(dialogue)] == ["first", "second", "third", "fourth"]


def test_conversation_may_be_spread_over_files(tmp_path: Path, try_import: Callable):
    folder = table(tmp_path / "in", ("a", "user", "Late already", "1"), name="monday.csv")
    table(folder, ("a", "agent", "Good morning", "2"), ("a", "user", "", "3"), name="tuesday.tsv", delimiter="\t")
    (folder / "wednesday.csv.gz").write_bytes(gzip.compress(csv_bytes(COLUMNS, ("a", "user", "Bye", "0"))))
    outcome = try_import("table", folder, time="time")
    (dialogue,) = outcome.dialogues
    assert [text for _, text in utterances(dialogue)] == ["Bye", "Late already", "Good morning"]
    assert [(it["file"], it["line"], it["reason"]) for it in outcome.rejected] == [
        ("tuesday.tsv", 3, "the text is empty")
    ]
    assert [file["name"] for file in outcome.manifest["inputs"]] == ["monday.csv", "tuesday.tsv", "wednesday.csv.gz"]


@pytest.mark.parametrize(
    ("first", "second", "options"),
    [
        ("2024-05-01T12:00:00+02:00", "2024-05-01T11:00:00+00:00", {}),
        ("2024-05-01T10:59:00Z", "2024-05-01T11:00:00", {}),
        ("2024-05-01", "2024-05-01 00:00:01", {}),
        ("20240501T235959", "20240502T000000", {}),
        ("1714560000", "1714560001", {}),
        ("1714560000000", "1714560000001", {}),
        ("1714560000.25", "1714560000.5", {}),
        ("-5", "5", {}),
        ("02/01/2024 10:00", "01/02/2024 09:00", {"time_format": "%d/%m/%Y %H:%M"}),
        ("31 Jan 24", "01 Feb 24", {"time_format": "%d %b %y"}),
        ("12:00 +0200", "11:00 +0000", {"time_format": "%H:%M %z"}),
    ],
)
def test_time_formats(first: str, second: str, options: dict, tmp_path: Path, try_import: Callable):
    """ISO 8601 with and without zones (none: UTC), seconds or milliseconds since 1970, or in a given format."""
    folder = table(tmp_path / "in", ("a", "agent", "later", second), ("a", "user", "earlier", first))
    (dialogue,) = try_import("table", folder, time="time", **options).dialogues
    assert utterances(dialogue) == [("user", "earlier"), ("system", "later")]


@pytest.mark.parametrize(
    "moments",
    [
        pa.array([datetime(2024, 5, 1, 10, tzinfo=UTC), datetime(2024, 5, 1, 9, tzinfo=UTC)]),
        pa.array([datetime(2024, 5, 1, 10), datetime(2024, 5, 1, 9)], pa.timestamp("ns")),  # noqa: DTZ001 (without a zone)
        pa.array([date(2024, 5, 2), date(2024, 5, 1)]),
        pa.array([20, 10]),
        pa.array([2.5, 1.5]),
        pa.array(["2024-05-01T10:00:00", "2024-05-01T09:00:00"]),
    ],
    ids=["utc", "ns", "date", "int", "float", "string"],
)
def test_parquet_time_types(moments: pa.Array, tmp_path: Path, try_import: Callable):
    columns = {"conversation": ["a", "a"], "speaker": ["bot", "user"], "text": ["later", "earlier"], "time": moments}
    folder = lay_out(tmp_path / "in", {"log.parquet": parquet_bytes(columns)})
    (dialogue,) = try_import("table", folder, time="time").dialogues
    assert utterances(dialogue) == [("user", "earlier"), ("system", "later")]


@pytest.mark.parametrize(
    ("moment", "options", "hint"),
    [
        ("noonish", {}, "give its format by --set time_format="),
        ("", {}, "cannot parse the time ''"),
        ("nan", {}, "cannot parse the time 'nan'"),
        ("inf", {}, "cannot parse the time 'inf'"),
        ("13/13/2024", {"time_format": "%d/%m/%Y"}, "it does not match '%d/%m/%Y'"),
    ],
)
def test_invalid_time_rejects_one_row(moment: str, options: dict, hint: str, tmp_path: Path, try_import: Callable):
    good = "01/05/2024" if options else "2024-05-01"
    folder = table(
        tmp_path / "in", ("a", "user", "Hello", good), ("a", "bot", "Lost", moment), ("a", "user", "Bye", good)
    )
    outcome = try_import("table", folder, time="time", **options)
    assert [text for it in outcome.dialogues for _, text in utterances(it)] == ["Hello", "Bye"]
    (rejection,) = outcome.rejected
    assert hint in rejection["reason"]
    assert {key: rejection[key] for key in ("line", "kind", "dialogue", "text")} == {
        "line": 3,
        "kind": "turn",
        "dialogue": "a",
        "text": "Lost",
    }
    assert outcome.manifest["read"] == {"dialogues": 1, "utterances": 3}


@pytest.mark.parametrize("option", ["conversation", "speaker", "text", "time", "intent", "split"])
@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_missing_column_is_an_error_that_lists_the_columns(
    option: str, name: str, tmp_path: Path, try_import: Callable
):
    if name == "log.csv":
        folder = table(tmp_path / "in", ("a", "user", "Hi", "1"))
    else:
        folder = lay_out(tmp_path / "in", {name: parquet_bytes({column: ["a"] for column in COLUMNS})})
    error = try_import("table", folder, **{option: "Message Body"}).error
    assert f"{name} has no column 'Message Body'" in error
    assert "it has 'conversation', 'speaker', 'text', 'time'" in error
    assert "--set" in error


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "utf8"])
def test_byte_order_mark_is_no_part_of_the_first_column(encoding: str, tmp_path: Path, try_import: Callable):
    content = "conversation,speaker,text\n1,Customer,Hi\n".encode("utf-8-sig")
    options = {name: name for name in ("conversation", "speaker", "text")}
    outcome = try_import("table", lay_out(tmp_path / "in", {"log.csv": content}), encoding=encoding, **options)
    (dialogue,) = outcome.dialogues
    assert utterances(dialogue) == [("user", "Hi")]


def test_quoted_cells_may_hold_line_ends_and_delimiters(tmp_path: Path, try_import: Callable):
    mail = b'"Dear all,\r\n\r\nit says ""no"", twice.\r\nAnn"'
    content = b"conversation,speaker,text\r\na,user," + mail + b'\r\na,,lost\r\na,bot,"x\ty;z"\r\n'
    outcome = try_import("table", lay_out(tmp_path / "in", {"mail.csv": content}))
    assert [utterances(it) for it in outcome.dialogues] == [
        [("user", 'Dear all,\r\n\r\nit says "no", twice.\r\nAnn')],
        [("system", "x\ty;z")],
    ]
    assert [rejection["line"] for rejection in outcome.rejected] == [6]


def test_short_rows_lack_their_last_cells_and_long_rows_are_rejected(tmp_path: Path, try_import: Callable):
    content = b"conversation,speaker,text\na,user\na,user,one,two\n\na,user,fine\n"
    outcome = try_import("table", lay_out(tmp_path / "in", {"log.csv": content}))
    assert [utterances(it) for it in outcome.dialogues] == [[("user", "fine")]]
    assert {(it["line"], it["reason"].partition(":")[0]) for it in outcome.rejected} == {
        (2, "the text is empty"),
        (3, "4 cells under 3 columns"),
    }


@pytest.mark.parametrize("name", ["log.txt", "log", "LOG.CSV", "export.2024.log", "a.tsv.csv"])
def test_file_of_any_name_reads_as_csv(name: str, tmp_path: Path, try_import: Callable):
    folder = table(tmp_path / "in", ("a", "user", "Hi", ""), name=name)
    assert [utterances(it) for it in try_import("table", folder / name).dialogues] == [[("user", "Hi")]]


def test_intents_and_splits_come_from_their_columns(tmp_path: Path, try_import: Callable):
    """An empty cell is no intent; a conversation's split is its first message's."""
    rows = (("a", "user", "Refund!", "refund", "test"), ("a", "bot", "Sure", "", "train"), ("b", "user", "Hm", "", ""))
    folder = table(tmp_path / "in", *rows, columns=("conversation", "speaker", "text", "goal", "part"))
    first, second = try_import("table", folder, intent="goal", split="part").dialogues
    assert [turn.intent for turn in first.turns] == ["refund", None]
    assert (first.split, second.split) == ("test", None)


# ---- who speaks


def test_role_words_are_known_in_any_case(tmp_path: Path, try_import: Callable):
    rows = [(word, name, "Hello", "") for word in ROLE_WORDS for name in (word, f" {word.upper()} ")]
    outcome = try_import("table", table(tmp_path / "in", *rows))
    assert {it.id: [who for who, _ in utterances(it)] for it in outcome.dialogues} == {
        word: [role] * 2 for word, role in ROLE_WORDS.items()
    }
    assert outcome.manifest["facts"] == {"roles": ROLE_WORDS}


@pytest.mark.parametrize("word", ["End-User", "end_user", "END  USER"])
def test_hyphens_and_underscores_in_role_words_count_as_spaces(word: str, tmp_path: Path, try_import: Callable):
    outcome = try_import("table", table(tmp_path / "in", ("a", word, "one", "")))
    assert utterances(outcome.dialogues[0]) == [("user", "one")]
    assert outcome.manifest["facts"] == {"roles": {"end user": "user"}}


def test_map_of_speakers_goes_before_role_words_and_a_star_after_them(tmp_path: Path, try_import: Callable):
    rows = [("a", name, name, "") for name in ("Bob", "agent", "customer", "Zoë", "bot")]
    speakers = {"bob": "system", "BOT": "user", "*": "speaker_1"}
    (dialogue,) = try_import("table", table(tmp_path / "in", *rows), speakers=speakers).dialogues
    assert utterances(dialogue) == [
        ("system", "Bob"),
        ("system", "agent"),
        ("user", "customer"),
        ("speaker_1", "Zoë"),
        ("user", "bot"),
    ]


def test_names_without_a_role_are_numbered_by_conversation_and_counted(tmp_path: Path, try_import: Callable):
    rows = [
        ("a", "Ann", "1", ""),
        ("a", "Bob", "2", ""),
        ("a", "ann ", "3", ""),
        ("b", "Bob", "4", ""),
        ("b", "user", "5", ""),
    ]
    outcome = try_import("table", table(tmp_path / "in", *rows))
    assert [[who for who, _ in utterances(it)] for it in outcome.dialogues] == [
        ["speaker_1", "speaker_2", "speaker_1"],
        ["speaker_1", "user"],
    ]
    assert outcome.manifest["facts"] == {"turns of speakers without a role": 4, "roles": {"user": "user"}}


def test_numbers_in_the_speaker_map_are_not_reused(tmp_path: Path, try_import: Callable):
    rows = [("a", "Ann", "1", ""), ("a", "Bob", "2", ""), ("a", "Cid", "3", "")]
    (dialogue,) = try_import("table", table(tmp_path / "in", *rows), speakers={"bob": "speaker_1"}).dialogues
    assert [who for who, _ in utterances(dialogue)] == ["speaker_2", "speaker_1", "speaker_3"]


# ---- messages


def chat(folder: Path, *messages: Any, **more: Any) -> Path:
    return lay_out(folder, {"chats.jsonl": jsonl_bytes({"id": "c", "messages": list(messages), **more})})


def test_instructions_and_tools_are_skipped_and_counted(tmp_path: Path, try_import: Callable):
    folder = chat(
        tmp_path / "in",
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Really."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "{}", "tool_call_id": "1"},
        {"role": "assistant", "content": "", "function_call": {"name": "f"}},
        {"role": "function", "content": "{}"},
        {"role": "assistant", "content": "Sunny.", "tool_calls": [{"id": "2"}]},
    )
    outcome = try_import("messages", folder)
    assert [utterances(it) for it in outcome.dialogues] == [[("user", "Weather?"), ("system", "Sunny.")]]
    assert outcome.rejected == ()
    assert outcome.manifest["left_out"] == {
        "system messages": 1,
        "developer messages": 1,
        "messages that only call a tool": 2,
        "tool messages": 1,
        "function messages": 1,
    }


def test_parts_are_joined_and_images_are_counted(tmp_path: Path, try_import: Callable):
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:"}},
        "A fern?",
        {"type": "input_audio", "input_audio": {}},
        {},
    ]
    outcome = try_import("messages", chat(tmp_path / "in", {"role": "user", "content": content}))
    assert [utterances(it) for it in outcome.dialogues] == [[("user", "What is this?\nA fern?")]]
    assert outcome.manifest["left_out"] == {"image_url parts": 1, "input_audio parts": 1, "unknown parts": 1}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "user", "content": None}, "the text is a NoneType, not a string"),
        ({"role": "user", "content": 5}, "the text is a int, not a string"),
        ({"role": "user", "content": {"text": "Hm"}}, "the text is a dict, not a string"),
        ({"role": "critic", "content": "Bad."}, "unknown speaker 'critic'"),
        ({"role": "user", "content": " "}, "the text is empty"),
    ],
)
def test_unreadable_message_is_rejected_alone(message: dict, reason: str, tmp_path: Path, try_import: Callable):
    outcome = try_import("messages", chat(tmp_path / "in", {"role": "user", "content": "Hi"}, message))
    assert [utterances(it) for it in outcome.dialogues] == [[("user", "Hi")]]
    assert reason in outcome.reasons[0]
    assert outcome.rejected[0]["dialogue"] == "c"


def test_conversation_id_is_its_own_or_its_place(tmp_path: Path, try_import: Callable):
    """0 is an id as good as any; nothing and '' are none."""
    hello = {"messages": [{"role": "user", "content": "Hi"}]}
    records = [{"id": 0, **hello}, {"conversation_id": "x", **hello}, {"id": None, **hello}, {"id": "", **hello}]
    outcome = try_import("messages", lay_out(tmp_path / "in", {"day/chats.jsonl": jsonl_bytes(*records)}))
    assert [it.id for it in outcome.dialogues] == ["0", "x", "day/chats.jsonl/3", "day/chats.jsonl/4"]


# ---- text


def text_file(folder: Path, content: str, name: str = "chat.txt") -> Path:
    return lay_out(folder, {name: content})


def test_line_without_a_speaker_continues_the_turn(tmp_path: Path, try_import: Callable):
    """A name alone on its line starts a turn whose words follow."""
    content = "Ann: First,\n   a list\nmilk\n\nBob:\nsecond\n"
    outcome = try_import("text", text_file(tmp_path / "in", content), speakers={"*": "user"})
    assert [utterances(it) for it in outcome.dialogues] == [[("user", "First,\na list\nmilk")], [("user", "second")]]


@pytest.mark.parametrize(
    "line",
    [
        *("10:30 is fine", "at 10:30", "http://example.org/a: b", "https://example.org", "C:\\temp"),
        *("a name that is far too long to be the name of anybody at all: no", "::", "one\ttwo: three"),
    ],
)
def test_times_and_addresses_start_no_turn(line: str, tmp_path: Path, try_import: Callable):
    outcome = try_import("text", text_file(tmp_path / "in", f"User: See\n{line}\nAgent: Good: thanks\n"))
    assert [utterances(it) for it in outcome.dialogues] == [[("user", f"See\n{line}"), ("system", "Good: thanks")]]
    assert outcome.manifest["left_out"] == {"line ends inside a turn (the lines are kept)": 1}


def test_first_line_without_a_speaker_is_rejected(tmp_path: Path, try_import: Callable):
    """What comes before anybody speaks has no speaker; the rest of the dialogue is kept."""
    outcome = try_import("text", text_file(tmp_path / "in", "Chat of 5 May\nUser: Hi\n\n\nlost\n"))
    assert [utterances(it) for it in outcome.dialogues] == [[("user", "Hi")]]
    assert [(it["kind"], it["line"], it["text"]) for it in outcome.rejected] == [
        ("turn", 1, "Chat of 5 May"),
        ("turn", 5, "lost"),
        ("dialogue", 5, None),
    ]
    assert outcome.manifest["read"] == {"dialogues": 2, "utterances": 3}


def test_blank_lines_with_spaces_separate_dialogues(tmp_path: Path, try_import: Callable):
    outcome = try_import("text", text_file(tmp_path / "in", "\n \nUser: a\n \t \n\n  Agent : b  \n"))
    assert [(it.id, utterances(it)) for it in outcome.dialogues] == [
        ("chat.txt/3", [("user", "a")]),
        ("chat.txt/6", [("system", "b")]),
    ]


def test_long_monologue(tmp_path: Path):
    """Joining the turn anew with each of a hundred thousand lines would copy 200 GB."""
    folder = text_file(tmp_path / "in", "User: It began\n" + "and then some more of the same old story\n" * 100_000)
    (dialogue,) = import_corpus("text", folder, tmp_path / "out")
    assert dialogue.turns[0].text.count("\n") == 100_000


# ---- turnwise's own format

SCHEMA = json.loads(files("turnwise.corpus.readers").joinpath("dialogue.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

#: Everything that a file can hold: no half characters; NUL is refused in texts.
_words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40).map(
    str.strip
)
_speakers = st.sampled_from(["user", "system", "speaker_1", "speaker_2", "speaker_17"])


@st.composite
def _slots(draw: st.DrawFn, text: str) -> tuple[Slot, ...]:
    slots = []
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text) - 1))
        end = draw(st.integers(start + 1, len(text)))
        slots.append(Slot.from_text(text, draw(_words), start, end))
    return tuple(sorted(slots, key=lambda slot: (slot.start, slot.end, slot.name)))


@st.composite
def _turns(draw: st.DrawFn) -> Turn:
    text = draw(_texts.filter(bool))
    acts = tuple(draw(st.lists(_words, max_size=3)))
    return Turn(draw(_speakers), text, draw(st.none() | _words), acts, draw(_slots(text)))


@st.composite
def _dialogues(draw: st.DrawFn) -> Dialogue:
    turns = tuple(draw(st.lists(_turns(), min_size=1, max_size=4)))
    return Dialogue(draw(_words), turns, draw(_words), draw(st.none() | _words))


@given(dialogues=st.lists(_dialogues(), min_size=1, max_size=4, unique_by=lambda it: it.id))
def test_written_dialogues_round_trip(dialogues: list[Dialogue], tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("jsonl")
    lines = [to_json(dialogue) for dialogue in dialogues]
    for line in lines:
        assert "\n" not in line
        VALIDATOR.validate(json.loads(line))
    lay_out(folder / "in", {"own.jsonl": "\n".join(lines)})
    outcome = outcome_of(import_corpus("jsonl", folder / "in", folder / "out", strict=True))
    assert outcome.dialogues == tuple(dialogues)


def test_schema_is_valid():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


GOOD_TURN = {"speaker": "user", "text": "Two teas", "slots": [{"name": "count", "value": "Two", "start": 0, "end": 3}]}
GOOD = {"id": "x", "turns": [GOOD_TURN]}


def _with_turn(**changes: Any) -> dict[str, Any]:
    return {"id": "x", "turns": [{**GOOD_TURN, **changes}]}


def _with_slot(**changes: Any) -> dict[str, Any]:
    return _with_turn(slots=[{**GOOD_TURN["slots"][0], **changes}])


def _each(make: Callable[..., Any], **wrong_values: list) -> Iterator[Any]:
    return (make(**{key: value}) for key, values in wrong_values.items() for value in values)


_NO_LISTS = ["", None, {}, "Hi"]

REFUSED = [
    *([], "x", None, {"turns": [GOOD_TURN]}, {"id": "x"}),
    *_each(
        lambda **changes: GOOD | changes,
        id=["", 5, None],
        turns=[[], *_NO_LISTS, {"0": GOOD_TURN}, [GOOD_TURN, None], ["Hi"], [["user", "Hi"]]],
        source=[5, None],
        split=[5, ["train"], None],
    ),
    *({"id": "x", "turns": [{key: value}]} for key, value in (("text", "Hi"), ("speaker", "user"))),
    *_each(
        _with_turn,
        speaker=["bob", "speaker_0", "User", None, ["user"]],
        intent=[5, 0, [], False],
        acts=["inform", None, ["inform", 5], [None]],
        slots=[
            *_NO_LISTS,
            ["count"],
            [{"start": 0, "end": 3}],
            [{"name": "count", "end": 3}],
            [{"name": "n", "start": 0}],
        ],
    ),
    *_each(lambda **changes: _with_turn(slots=[], **changes), text=["", " \n", 5, None, ["Hi"]]),
    *_each(_with_slot, name=["", 5, None], value=[5, None], start=["0", -8], end=[0, 2.5, True]),
]


@pytest.mark.parametrize("record", REFUSED)
def test_reader_rejects_what_the_schema_rejects(record: Any, tmp_path: Path, try_import: Callable):
    assert not VALIDATOR.is_valid(record)
    other = {**GOOD, "id": "other"}
    outcome = try_import("jsonl", lay_out(tmp_path / "in", {"own.jsonl": jsonl_bytes(record, other)}))
    assert outcome.dialogues[-1].id == "other"
    assert outcome.rejected
    assert {(it["file"], it["line"]) for it in outcome.rejected} == {("own.jsonl", 1)}


@pytest.mark.parametrize(
    "record",
    [
        _with_slot(value="Three"),
        _with_slot(start=0, end=99, value="Two teas"),
        _with_slot(start=3, end=1, value=""),
        _with_turn(text="Two\0teas", slots=[]),
        _with_turn(speaker="user\n"),
    ],
    ids=["other value", "end outside", "end before start", "NUL", "line end in the speaker"],
)
def test_reader_rejects_what_a_schema_cannot_express(record: dict, tmp_path: Path, try_import: Callable):
    other = {**GOOD, "id": "other"}
    outcome = try_import("jsonl", lay_out(tmp_path / "in", {"own.jsonl": jsonl_bytes(record, other)}))
    assert [it["line"] for it in outcome.rejected][:1] == [1]


def test_dialogue_without_source_gets_the_readers_name(tmp_path: Path, try_import: Callable):
    records = [GOOD, {**GOOD, "id": "y", "source": "kiosk"}, {**GOOD, "id": "z", "source": ""}]
    outcome = try_import("jsonl", lay_out(tmp_path / "in", {"own.jsonl": jsonl_bytes(*records)}))
    assert [it.source for it in outcome.dialogues] == ["jsonl", "kiosk", "jsonl"]
