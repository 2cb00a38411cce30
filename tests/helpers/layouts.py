"""A tiny input for every layout that turnwise reads, with the dialogues it contains; all sentences are invented.

The tests beside this file import it: `test_layouts` reads every layout as it is, `test_malformed` damages the first one
of every reader. So the first layout of a reader has two dialogues or more, and its `main` file is the one worth
damaging.
"""

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.core.dialogue import Dialogue, Slot, Turn


@dataclass(frozen=True)
class Layout:
    """Files of a corpus, and the dialogues that a reader should return.

    Attributes:
        name: what the test is called.
        reader: who reads it.
        files: contents by path under the folder that is imported.
        expected: the dialogues, in order.
        options: what the reader is told.
        left_out: what the manifest should say was left out by rule.
        facts: what the manifest should say the reader learned.
        main: the file that `test_malformed` damages; the only one, unless there are several.
    """

    name: str
    reader: str
    files: Mapping[str, bytes]
    expected: tuple[Dialogue, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    main: str = ""

    @property
    def main_file(self) -> str:
        return self.main or next(iter(self.files))

    @property
    def content(self) -> bytes:
        return self.files[self.main_file]

    def write(self, folder: Path, content: bytes | None = None) -> Path:
        """Write the files under `folder`, the main one with other content if given; return the folder."""
        files = dict(self.files)
        if content is not None:
            files[self.main_file] = content
        return lay_out(folder, files)


def lay_out(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write files by their paths under a folder; return the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def turn(
    speaker: str,
    text: str,
    intent: str | None = None,
    acts: Sequence[str] = (),
    slots: Sequence[tuple[str, str]] = (),
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


def _dialogues(source: str, *parts: tuple[str, str | None, Sequence[Turn]]) -> tuple[Dialogue, ...]:
    return tuple(Dialogue(identity, tuple(turns), source, split) for identity, split, turns in parts)


USER, SYSTEM, ONE, TWO = "user", "system", "speaker_1", "speaker_2"

# ---- people's own logs

_ROWS = (
    ("b", "Customer", "My kettle leaks.", "2024-05-01T10:00:00"),
    ("a", "customer", "Do you mend bicycles?", "2024-05-01T09:00:00"),
    ("b", "Agent", "Oh dear, since when?", "2024-05-01T10:01:00"),
    ("a", "agent", "We do, on Tuesdays.", "2024-05-01T09:05:00"),
)
_COLUMNS = ("conversation", "speaker", "text", "time")
_MENDING = (
    ("a", None, (turn(USER, "Do you mend bicycles?"), turn(SYSTEM, "We do, on Tuesdays."))),
    ("b", None, (turn(USER, "My kettle leaks."), turn(SYSTEM, "Oh dear, since when?"))),
)

_ROLES = {"roles": {"customer": "user", "agent": "system"}}

_TABLES = (
    Layout(
        "table csv", "table", {"log.csv": csv_bytes(_COLUMNS, *_ROWS)}, _dialogues("table", *_MENDING), facts=_ROLES
    ),
    Layout(
        "table tsv with BOM and time",
        "table",
        {"log.tsv": "\ufeff".encode() + csv_bytes(_COLUMNS, *reversed(_ROWS), delimiter="\t")},
        _dialogues("table", *_MENDING),
        {"time": "time"},
        facts=_ROLES,
    ),
    Layout(
        "table csv.gz",
        "table",
        {"log.csv.gz": gzip.compress(csv_bytes(_COLUMNS, *_ROWS), mtime=0)},
        _dialogues("table", *_MENDING),
        facts=_ROLES,
    ),
    Layout(
        "table tsv.gz",
        "table",
        {"log.tsv.gz": gzip.compress(csv_bytes(_COLUMNS, *_ROWS, delimiter="\t"), mtime=0)},
        _dialogues("table", *_MENDING),
        facts=_ROLES,
    ),
    Layout(
        "table tab",
        "table",
        {"log.tab": csv_bytes(_COLUMNS, *_ROWS, delimiter="\t")},
        _dialogues("table", *_MENDING),
        facts=_ROLES,
    ),
    Layout(
        "table parquet with labels and other column names",
        "table",
        {
            "log.parquet": parquet_bytes(
                {
                    "thread": [7, 7],
                    "who": ["bob", "ann"],
                    "body": ["It is in aisle three.", "Where is the flour?"],
                    "at": [datetime(2024, 5, 1, 9, 5, tzinfo=UTC), datetime(2024, 5, 1, 9, tzinfo=UTC)],
                    "goal": [None, "find_item"],
                    "part": ["train", "train"],
                }
            )
        },
        _dialogues(
            "table",
            ("7", "train", (turn(USER, "Where is the flour?", "find_item"), turn(SYSTEM, "It is in aisle three."))),
        ),
        {
            "conversation": "thread",
            "speaker": "who",
            "text": "body",
            "time": "at",
            "intent": "goal",
            "split": "part",
            "speakers": {"bob": "system", "*": "user"},
        },
    ),
)

_MESSAGES = (
    {
        "id": "chat-1",
        "messages": [
            {"role": "system", "content": "You are a gardener."},
            {"role": "user", "content": "When do I prune roses?"},
            {"role": "assistant", "content": [{"type": "text", "text": "In late winter."}]},
        ],
    },
    {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning!"}]},
)
_ROSES = (turn(USER, "When do I prune roses?"), turn(SYSTEM, "In late winter."))
_HELLO = (turn(USER, "Hello"), turn(SYSTEM, "Good morning!"))

_CHATS = (
    Layout(
        "messages jsonl",
        "messages",
        {"chats.jsonl": jsonl_bytes(*_MESSAGES)},
        _dialogues("messages", ("chat-1", None, _ROSES), ("chats.jsonl/2", None, _HELLO)),
        left_out={"system messages": 1},
    ),
    Layout(
        "messages jsonl.gz",
        "messages",
        {"chats.jsonl.gz": gzip.compress(jsonl_bytes(*_MESSAGES), mtime=0)},
        _dialogues("messages", ("chat-1", None, _ROSES), ("chats.jsonl.gz/2", None, _HELLO)),
        left_out={"system messages": 1},
    ),
    Layout(
        "messages as a json array",
        "messages",
        {"chats.json": json_bytes([_MESSAGES[0], {"conversation_id": 12, **_MESSAGES[1]}], indent=1)},
        _dialogues("messages", ("chat-1", None, _ROSES), ("12", None, _HELLO)),
        left_out={"system messages": 1},
    ),
    Layout(
        "messages as ShareGPT has them",
        "messages",
        {
            "chats.json": json_bytes(
                [
                    {
                        "id": "chat-1",
                        "conversations": [
                            {"from": "system", "value": "You are a gardener."},
                            {"from": "human", "value": "When do I prune roses?"},
                            {"from": "gpt", "value": "In late winter."},
                        ],
                    }
                ]
            )
        },
        _dialogues("messages", ("chat-1", None, _ROSES)),
        left_out={"system messages": 1},
    ),
    Layout(
        "messages as Parquet, a file per split",
        "messages",
        {
            "data/test-00000-of-00001.parquet": parquet_bytes(
                {"dialog": [["Snow again!", "Lovely.", "Is it?"]], "act": [[1, 2, 3]]}
            ),
            "data/train-00000-of-00001.parquet": parquet_bytes(
                {"id": ["chat-1"], "messages": [_MESSAGES[0]["messages"][1:2]], "prompt": ["unused"]}
            ),
            "default/validation/0000.parquet": parquet_bytes(
                {
                    "id": [3],
                    "conversations": [[{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Good morning!"}]],
                }
            ),
        },
        _dialogues(
            "messages",
            (
                "data/test-00000-of-00001.parquet/1",
                "test",
                (turn(ONE, "Snow again!"), turn(TWO, "Lovely."), turn(ONE, "Is it?")),
            ),
            ("chat-1", "train", _ROSES[:1]),
            ("3", "valid", _HELLO),
        ),
        main="data/train-00000-of-00001.parquet",
    ),
    Layout(
        "messages under another key",
        "messages",
        {"chats.jsonl": jsonl_bytes({"id": "a", "chosen": _MESSAGES[1]["messages"], "messages": ["no"]})},
        _dialogues("messages", ("a", None, _HELLO)),
        {"messages": "chosen"},
    ),
)

_FORUM = (
    {"id": "u1", "conversation_id": "u1", "speaker": "ann", "text": "Which yeast?", "timestamp": 1, "reply_to": None},
    {"id": "u4", "conversation_id": "u4", "speaker": "cid", "text": "Is this on?", "timestamp": 9, "reply_to": None},
    {"id": "u3", "conversation_id": "u1", "speaker": "cid", "text": "Dry.", "timestamp": 3, "reply_to": "u1"},
    {"id": "u2", "conversation_id": "u1", "speaker": "bob", "text": "Fresh.", "timestamp": 2, "reply_to": "u1"},
)

_CONVOKIT = (
    Layout(
        "convokit chronological",
        "convokit",
        {"utterances.jsonl": jsonl_bytes(*_FORUM)},
        _dialogues(
            "convokit",
            ("u1", None, (turn(ONE, "Which yeast?"), turn(TWO, "Fresh."), turn("speaker_3", "Dry."))),
            ("u4", None, (turn(ONE, "Is this on?"),)),
        ),
        facts={"turns of speakers without a role": 4},
    ),
    Layout(
        "convokit paths",
        "convokit",
        {"forum/utterances.jsonl": jsonl_bytes(*_FORUM)},
        _dialogues(
            "convokit",
            ("u1/0", None, (turn(ONE, "Which yeast?"), turn(TWO, "Fresh."))),
            ("u1/1", None, (turn(ONE, "Which yeast?"), turn(TWO, "Dry."))),
            ("u4/0", None, (turn(ONE, "Is this on?"),)),
        ),
        {"order": "paths"},
        facts={"turns of speakers without a role": 5},
    ),
    Layout(
        "convokit of older releases",
        "convokit",
        {
            "utterances.jsonl": jsonl_bytes(
                {"id": "1", "root": "1", "user": "ann", "text": "Is it far?", "timestamp": "10", "reply-to": None},
                {"id": "2", "root": "1", "user": "bob", "text": "A mile.", "timestamp": "20", "reply-to": "1"},
            )
        },
        _dialogues("convokit", ("1/0", None, (turn(USER, "Is it far?"), turn(SYSTEM, "A mile.")))),
        {"order": "paths", "speakers": {"Bob": "system", "*": "user"}},
    ),
)

_LOGS = (
    *_TABLES,
    *_CHATS,
    *_CONVOKIT,
    Layout(
        "text",
        "text",
        {
            "chat.txt": lines_bytes(
                "User: Is the pool open?",
                "Agent: Until nine.",
                "  Bring a towel.",
                "",
                "",
                "Ann: Snow again!",
                "Bob: Lovely.",
            )
        },
        _dialogues(
            "text",
            ("chat.txt/1", None, (turn(USER, "Is the pool open?"), turn(SYSTEM, "Until nine.\nBring a towel."))),
            ("chat.txt/6", None, (turn(ONE, "Snow again!"), turn(TWO, "Lovely."))),
        ),
        left_out={"line ends inside a turn (the lines are kept)": 1},
        facts={"turns of speakers without a role": 2, "roles": {"user": "user", "agent": "system"}},
    ),
    Layout(
        "jsonl",
        "jsonl",
        {
            "own.jsonl": jsonl_bytes(
                {
                    "id": "d1",
                    "source": "bakery",
                    "split": "test",
                    "turns": [
                        {
                            "speaker": "user",
                            "text": "Two rye loaves",
                            "intent": "order",
                            "acts": ["inform(bread)", "inform(count)"],
                            "slots": [
                                {"name": "bread", "value": "rye", "start": 4, "end": 7},
                                {"name": "count", "start": 0, "end": 3},
                            ],
                        },
                        {"speaker": "system", "text": "Gladly", "intent": None},
                    ],
                },
                {"id": "d2", "turns": [{"speaker": "speaker_2", "text": "Grüß Gott"}]},
            )
        },
        (
            Dialogue(
                "d1",
                (
                    turn(
                        USER,
                        "Two rye loaves",
                        "order",
                        ["inform(bread)", "inform(count)"],
                        [("count", "Two"), ("bread", "rye")],
                    ),
                    turn(SYSTEM, "Gladly"),
                ),
                "bakery",
                "test",
            ),
            Dialogue("d2", (turn(TWO, "Grüß Gott"),), "jsonl"),
        ),
    ),
    Layout(
        "jsonl.gz",
        "jsonl",
        {
            "own.jsonl.gz": gzip.compress(
                jsonl_bytes({"id": "d1", "turns": [{"speaker": "user", "text": "Hum"}]}), mtime=0
            )
        },
        _dialogues("jsonl", ("d1", None, (turn(USER, "Hum"),))),
    ),
)

_JSON_PATHS = Layout(
    "json by paths",
    "json",
    {
        "cases.json": json_bytes(
            {
                "cases": [
                    {
                        "no": "a",
                        "thread": [
                            {"author": {"role": "customer"}, "body": "Do you mend bicycles?"},
                            {"author": {"role": "agent"}, "body": "We do, on Tuesdays."},
                        ],
                    },
                    {
                        "no": "b",
                        "thread": [
                            {"author": {"role": "customer"}, "body": "My kettle leaks."},
                            {"author": {"role": "agent"}, "body": "Oh dear, since when?"},
                        ],
                    },
                ]
            },
            indent=1,
        )
    },
    _dialogues("json", *_MENDING),
    {"conversations": "cases[]", "id": "no", "messages": "thread[]", "speaker": "author.role", "text": "body"},
    facts={"roles": {"customer": "user", "agent": "system"}},
)

# ---- chat exports; 1704448980 is 10:03 on 5 January 2024

_SLACK = Layout(
    "slack",
    "slack",
    {
        "general/2024-01-05.json": json_bytes(
            [
                {
                    "type": "message",
                    "subtype": "channel_join",
                    "user": "U2",
                    "text": "joined",
                    "ts": "1704448900.000100",
                },
                {
                    "type": "message",
                    "user": "U1",
                    "text": "Is the &lt;big&gt; oven on, <@U2>?",
                    "ts": "1704448980.000100",
                },
                {"type": "message", "user": "U2", "text": "Until noon.", "ts": "1704449040.000200"},
                {
                    "type": "message",
                    "user": "U1",
                    "text": "Who waters the plants?",
                    "ts": "1704449100.000300",
                    "thread_ts": "1704449100.000300",
                },
                {
                    "type": "message",
                    "user": "U2",
                    "text": "I do.",
                    "ts": "1704621900.000400",
                    "thread_ts": "1704449100.000300",
                },
            ],
            indent=1,
        ),
        "general/2024-01-06.json": json_bytes(
            [{"type": "message", "user": "U2", "text": "Lunch?", "ts": "1704535380.000100"}]
        ),
        "users.json": json_bytes(
            [
                {"id": "U1", "name": "anna", "profile": {"display_name": "Anna", "real_name": "Anna Example"}},
                {"id": "U2", "name": "ben", "profile": {"display_name": "", "real_name": "Ben Example"}},
            ]
        ),
        "channels.json": json_bytes([{"id": "C1", "name": "general"}]),
    },
    _dialogues(
        "slack",
        (
            "general/2024-01-05T10:03:00",
            None,
            (turn(ONE, "Is the <big> oven on, @Ben Example?"), turn(TWO, "Until noon.")),
        ),
        ("general/2024-01-06T10:03:00", None, (turn(ONE, "Lunch?"),)),
        ("general/1704449100.000300", None, (turn(ONE, "Who waters the plants?"), turn(TWO, "I do."))),
    ),
    left_out={"channel_join events": 1},
    facts={"turns of speakers without a role": 5},
    main="general/2024-01-05.json",
)


def _graph_message(identity: str, name: str, content: str, time: str, **more: Any) -> dict[str, Any]:
    return {
        "id": identity,
        "messageType": "message",
        "createdDateTime": time,
        "from": {"application": None, "user": {"id": f"id-{name}", "displayName": name}},
        "body": {"contentType": "html", "content": content},
        **more,
    }


_CHANNEL = {"channelIdentity": {"teamId": "t1", "channelId": "19:plants@thread.tacv2"}}
_TEAMS = (
    Layout(
        "teams graph",
        "teams",
        {
            "channel.json": json_bytes(
                {
                    "@odata.context": "https://graph.microsoft.com/v1.0/$metadata",
                    "value": [
                        _graph_message(
                            "2",
                            "Ben",
                            "<p>I do, <at id='0'>Anna</at>.</p>",
                            "2024-01-07T09:00:00Z",
                            replyToId="1",
                            **_CHANNEL,
                        ),
                        _graph_message(
                            "1", "Anna", "Who waters the plants?", "2024-01-05T10:03:00.25Z", replyToId=None, **_CHANNEL
                        ),
                        _graph_message("7", "Anna", "Lunch?", "2024-01-05T10:04:00Z", chatId="19:lunch"),
                        _graph_message("8", "Ben", "Sure.", "2024-01-05T10:05:00Z", chatId="19:lunch"),
                    ],
                },
                indent=1,
            )
        },
        _dialogues(
            "teams",
            ("19:lunch/2024-01-05T10:04:00", None, (turn(ONE, "Lunch?"), turn(TWO, "Sure."))),
            ("19:plants@thread.tacv2/1", None, (turn(ONE, "Who waters the plants?"), turn(TWO, "I do, @Anna."))),
        ),
        facts={"turns of speakers without a role": 4},
    ),
    Layout(
        "teams personal",
        "teams",
        {
            "messages.json": json_bytes(
                {
                    "userId": "8:live:anna",
                    "conversations": [
                        {
                            "id": "8:live:ben",
                            "displayName": "Ben",
                            "MessageList": [
                                {
                                    "id": "2",
                                    "displayName": "Ben",
                                    "originalarrivaltime": "2024-01-05T10:04:00.1234567Z",
                                    "messagetype": "RichText",
                                    "content": 'Sure <ss type="smile">:)</ss>',
                                    "from": "8:live:ben",
                                },
                                {
                                    "id": "1",
                                    "displayName": None,
                                    "originalarrivaltime": "2024-01-05T10:03:00Z",
                                    "messagetype": "RichText",
                                    "content": "Lunch &amp; tea?",
                                    "from": "8:live:anna",
                                },
                            ],
                        }
                    ],
                }
            )
        },
        _dialogues(
            "teams",
            ("8:live:ben/2024-01-05T10:03:00", None, (turn(USER, "Lunch & tea?"), turn(SYSTEM, "Sure :)"))),
        ),
        {"speakers": {"live:anna": "user", "Ben": "system"}},
    ),
)


def _discord_message(identity: str, name: str, content: str, time: str, kind: str = "Default") -> dict[str, Any]:
    author = {"id": f"9{identity}", "name": name, "nickname": name.upper(), "isBot": name == "helper"}
    return {"id": identity, "type": kind, "timestamp": time, "content": content, "author": author, "attachments": []}


_DISCORD = Layout(
    "discord",
    "discord",
    {
        "bakers - general [41].json": json_bytes(
            {
                "guild": {"id": "40", "name": "bakers"},
                "channel": {"id": "41", "type": "GuildTextChat", "name": "general"},
                "messages": [
                    _discord_message("1", "anna", "Joined the server.", "2024-01-05T10:00:00+00:00", "GuildMemberJoin"),
                    _discord_message("2", "anna", "Which flour?", "2024-01-05T12:03:00.5+02:00"),
                    _discord_message("3", "helper", "Rye.", "2024-01-05T10:04:00+00:00", "Reply"),
                    _discord_message("4", "ben", "Still rye?", "2024-01-05T18:00:00+00:00"),
                ],
                "messageCount": 4,
            },
            indent=1,
        ),
        "bakers - starter [42].json": json_bytes(
            {
                "guild": {"id": "40", "name": "bakers"},
                "channel": {"id": "42", "type": "GuildPublicThread", "name": "starter"},
                "messages": [
                    _discord_message("5", "ben", "My starter died.", "2024-01-05T10:03:00+00:00"),
                    _discord_message("6", "anna", "Feed it.", "2024-01-06T10:03:00+00:00"),
                ],
            }
        ),
    },
    _dialogues(
        "discord",
        ("41/2024-01-05T10:03:00", None, (turn(ONE, "Which flour?"), turn(SYSTEM, "Rye."))),
        ("41/2024-01-05T18:00:00", None, (turn(ONE, "Still rye?"),)),
        ("42", None, (turn(ONE, "My starter died."), turn(TWO, "Feed it."))),
    ),
    left_out={"GuildMemberJoin events": 1},
    facts={"turns of speakers without a role": 4, "roles": {"bot": "system"}},
)

_WHATSAPP = (
    Layout(
        "whatsapp iphone",
        "whatsapp",
        {
            "_chat.txt": lines_bytes(
                "[31.12.23, 21:41:05] Anna: \u200eMessages are encrypted.",
                "[31.12.23, 21:41:05] Anna: Shall we bake?",
                "I have flour.",
                "\u200e[31.12.23, 21:42:00] ~\u202fBen: Yes: rye",
                "[01.01.24, 09:00:00] Ben: It burned.",
            )
        },
        _dialogues(
            "whatsapp",
            (
                "_chat/2023-12-31T21:41:05",
                None,
                (turn(ONE, "Shall we bake?\nI have flour."), turn(TWO, "Yes: rye")),
            ),
            ("_chat/2024-01-01T09:00:00", None, (turn(ONE, "It burned."),)),
        ),
        left_out={"messages written by WhatsApp": 1},
        facts={"dates": {"day-first (found in the dates)": 1}, "turns of speakers without a role": 3},
    ),
    Layout(
        "whatsapp android",
        "whatsapp",
        {
            "WhatsApp Chat with Ben.txt": lines_bytes(
                "12/31/23, 9:40\u202fPM - Ben joined using this group's invite link",
                "12/31/23, 9:41\u202fPM - Anna: Shall we bake?",
                "1/1/24, 12:05\u202fAM - Ben: Now?",
            )
        },
        _dialogues(
            "whatsapp",
            (
                "WhatsApp Chat with Ben/2023-12-31T21:41:00",
                None,
                (turn(SYSTEM, "Shall we bake?"), turn(USER, "Now?")),
            ),
        ),
        {"speakers": {"anna": "system", "*": "user"}},
        left_out={"lines without a sender (joins, calls, notices)": 1},
        facts={"dates": {"month-first (found in the dates)": 1}},
    ),
)


def _telegram_message(identity: int, name: str, text: Any, time: int) -> dict[str, Any]:
    moment = datetime.fromtimestamp(time, UTC).replace(tzinfo=None).isoformat()
    sender = {"from": name, "from_id": f"user{len(name)}"}
    return {"id": identity, "type": "message", "date": moment, "date_unixtime": str(time), **sender, "text": text}


_TELEGRAM_CHAT = {
    "name": "Bakers",
    "type": "private_group",
    "id": 77,
    "messages": [
        {
            "id": 1,
            "type": "service",
            "date": "2024-01-05T10:00:00",
            "actor": "Anna",
            "action": "create_group",
            "text": "",
        },
        _telegram_message(2, "Anna", "Which flour?", 1704448980),
        _telegram_message(3, "Ben", ["See ", {"type": "link", "text": "https://example.com"}, "."], 1704449040),
        _telegram_message(4, "Ben", "Still there?", 1704535380),
    ],
}
_TELEGRAM_TURNS = (
    ("77/2024-01-05T10:03:00", None, (turn(ONE, "Which flour?"), turn(TWO, "See https://example.com."))),
    ("77/2024-01-06T10:03:00", None, (turn(ONE, "Still there?"),)),
)
_TELEGRAM = (
    Layout(
        "telegram",
        "telegram",
        {"result.json": json_bytes(_TELEGRAM_CHAT, indent=1)},
        _dialogues("telegram", *_TELEGRAM_TURNS),
        left_out={"create_group events": 1},
        facts={"turns of speakers without a role": 3},
    ),
    Layout(
        "telegram all chats",
        "telegram",
        {
            "DataExport/result.json": json_bytes(
                {
                    "about": "Here is the data you requested.",
                    "contacts": {"about": "", "list": [{"first_name": "Ben"}]},
                    "chats": {
                        "about": "",
                        "list": [
                            {"name": "Ben", "type": "personal_chat", "id": 5, "messages": []},
                            _TELEGRAM_CHAT,
                        ],
                    },
                }
            )
        },
        _dialogues("telegram", *_TELEGRAM_TURNS),
        left_out={"create_group events": 1},
        facts={"turns of speakers without a role": 3},
    ),
)

# ---- tickets, e-mail, transcripts and tweets

_LEAK = (turn(USER, "My kettle leaks."), turn(SYSTEM, "Since when?"), turn(USER, "Since Monday."))
_MEND = (turn(USER, "Do you mend bicycles?"), turn(SYSTEM, "On Tuesdays."))


def zendesk_comment(author: int, text: str, minute: int, **changes: Any) -> dict[str, Any]:
    time = f"2024-05-01T10:{minute:02}:00Z"
    return {"author_id": author, "type": "Comment", "body": text, "public": True, "created_at": time} | changes


_ZENDESK_TICKETS = (
    {
        "id": 17,
        "requester_id": 900,
        "comments": [
            zendesk_comment(900, "My kettle leaks.", 0, plain_body="My kettle leaks."),
            zendesk_comment(901, "Looks like the old model.", 1, public=False),
            zendesk_comment(901, "Since when?", 2),
            zendesk_comment(900, "Since Monday.", 3),
        ],
    },
    {
        "id": 18,
        "requester_id": 902,
        "comments": [
            zendesk_comment(901, "", 6, html_body="<div>On <b>Tuesdays</b>.</div>"),
            zendesk_comment(902, "Do you mend bicycles?", 5),
        ],
    },
)
_ZENDESK_EXPECTED = _dialogues("zendesk", ("17", None, _LEAK), ("18", None, _MEND))
_ZENDESK_USERS = [{"id": 900, "role": "end-user"}, {"id": 901, "role": "admin"}, {"id": 902, "role": "end-user"}]

_INTERCOM_CONVERSATIONS = (
    {
        "type": "conversation",
        "id": "31",
        "created_at": 1714557600,
        "source": {"body": "<p>My kettle leaks.</p>", "author": {"type": "lead"}},
        "conversation_parts": {
            "conversation_parts": [
                {"part_type": "assignment", "body": None, "author": {"type": "bot"}, "created_at": 1714557601},
                {"part_type": "note", "body": "<p>Old!</p>", "author": {"type": "admin"}, "created_at": 1714557602},
                {"part_type": "open", "body": "Since Monday.", "author": {"type": "lead"}, "created_at": 1714557700},
                {"part_type": "comment", "body": "Since when?", "author": {"type": "admin"}, "created_at": 1714557603},
            ]
        },
    },
    {
        "type": "conversation",
        "id": "32",
        "created_at": 1714557600,
        "source": {"body": "<p>Do you mend bicycles?</p>", "author": {"type": "user"}},
        "conversation_parts": {
            "conversation_parts": [
                {"part_type": "comment", "body": "On Tuesdays.", "author": {"type": "bot"}, "created_at": 1714557601},
            ]
        },
    },
)
_INTERCOM_EXPECTED = _dialogues("intercom", ("31", None, _LEAK), ("32", None, _MEND))
_INTERCOM_LEFT_OUT = {"parts of type assignment": 1, "private notes": 1}


def freshdesk_message(text: str, minute: int, *, incoming: bool, private: bool = False) -> dict[str, Any]:
    time = f"2024-05-01T10:{minute:02}:00Z"
    return {"body_text": text, "incoming": incoming, "private": private, "created_at": time}


_FRESHDESK_TICKETS = [
    {
        "id": 51,
        "source": 2,
        "description_text": "My kettle leaks.",
        "created_at": "2024-05-01T10:00:00Z",
        "conversations": [
            freshdesk_message("Since Monday.", 4, incoming=True),
            freshdesk_message("Old model?", 1, incoming=False, private=True),
            freshdesk_message("Since when?", 2, incoming=False),
        ],
    },
    {
        "id": 52,
        "source": 1,
        "description": "<p>Do you mend bicycles?</p>",
        "created_at": "2024-05-01T10:00:00Z",
        "conversations": [freshdesk_message("On Tuesdays.", 1, incoming=False)],
    },
]
_FRESHDESK_EXPECTED = _dialogues("freshdesk", ("51", None, _LEAK), ("52", None, _MEND))

TWEET_COLUMNS = (
    *("tweet_id", "author_id", "inbound", "created_at", "text", "response_tweet_id", "in_response_to_tweet_id"),
)


def tweet(number: int, minute: int, text: str, reply_to: object = "", *, inbound: bool = True) -> tuple[object, ...]:
    author = "115001" if inbound else "KettleHelp"
    return (number, author, inbound, f"Tue Oct 31 22:{minute:02}:47 +0000 2017", text, "", reply_to)


_TWEETS = csv_bytes(
    TWEET_COLUMNS,
    tweet(3, 5, "@115001 Since when?", 1, inbound=False),
    tweet(1, 0, "@KettleHelp My kettle leaks."),
    tweet(4, 9, "@KettleHelp Since Monday.", 3),
    tweet(5, 7, "@115001 Hot &amp; cold?", 1, inbound=False),
    tweet(8, 8, "Do you mend bicycles?"),
    tweet(9, 9, "@115001 @KettleFans On Tuesdays.", 8, inbound=False),
)


def mail(sender: str, to: str, subject: str, minute: int, text: str, number: int, *headers: str) -> str:
    """Return a message of an mbox file."""
    clock = f"10:{minute:02}:00"
    lines = (
        f"From {sender} Wed May  1 {clock} 2024",
        f"From: {sender}",
        f"To: {to}",
        f"Subject: {subject}",
        f"Date: Wed, 1 May 2024 {clock} +0000",
        f"Message-ID: <{number}@example.org>",
        *headers,
        "",
        text,
        "",
    )
    return "".join(f"{line}\n" for line in lines)


_ANN, _CID, _HELP = "ann@example.org", "cid@example.net", "help@example.com"
_MAILBOX = (
    mail(_ANN, _HELP, "Kettle", 0, "My kettle leaks.", 1),
    mail(_CID, _HELP, "Bicycles", 1, "Do you mend bicycles?", 2),
    mail(_HELP, _ANN, "Re: Kettle", 2, "Since when?", 3, "In-Reply-To: <1@example.org>"),
    mail(_HELP, _CID, "AW: Bicycles", 3, "On Tuesdays.", 4),
    mail(_HELP, _ANN, "Away", 4, "I am away.", 5, "Auto-Submitted: auto-replied", "References: <1@example.org>"),
    mail(_ANN, _HELP, "Re: Kettle", 5, "Since Monday.", 6, "References: <1@example.org> <3@example.org>"),
)
_MAIL_EXPECTED = _dialogues("mbox", ("1@example.org", None, _LEAK), ("2@example.org", None, _MEND))
_MAIL_SPEAKERS = {"speakers": {"@example.com": "system", "*": "user"}}

_TRANSCRIPTS = (
    Layout(
        "transcript vtt",
        "transcript",
        {
            "bicycle.vtt": lines_bytes(
                *("WEBVTT", "", "00:01.000 --> 00:02.000", "<v Customer>Do you mend bicycles?</v>", ""),
                *("NOTE", "Line two is quiet.", "", "00:05.000 --> 00:06.000", "<v Agent>On <i>Tuesdays</i>."),
            ),
            "kettle.vtt": lines_bytes(
                *("WEBVTT - a call", "", "1", "00:00:01.000 --> 00:00:02.000", "<v Customer>My kettle</v>", ""),
                *("2", "00:00:02.000 --> 00:00:03.000", "<v Customer>leaks.</v>", "", "", "3"),
                *("00:00:04.000 --> 00:00:06.000 align:start", "<v Agent>Since when?</v>"),
                *("<v Customer>Since Monday.</v>", "", "4", "00:00:07.000 --> 00:00:08.000", "[music]"),
            ),
        },
        _dialogues("transcript", ("bicycle.vtt", None, _MEND), ("kettle.vtt", None, _LEAK)),
        left_out={"descriptions of sounds": 1},
        facts={"roles": {"customer": "user", "agent": "system"}},
        main="bicycle.vtt",
    ),
    Layout(
        "transcript srt",
        "transcript",
        {
            "kettle.srt": lines_bytes(
                *("1", "00:00:01,000 --> 00:00:02,000", "SPEAKER_00: My kettle", "leaks.", ""),
                *("2", "00:00:04,000 --> 00:00:05,000", "- SPEAKER_01: Since when?", "- SPEAKER_00: Since", ""),
                *("3", "00:00:05,000 --> 00:00:06,000", "Monday."),
            )
        },
        _dialogues("transcript", ("kettle.srt", None, _LEAK)),
        {"speakers": {"speaker_01": "system", "*": "user"}},
    ),
)

_TICKETS = (
    Layout(
        "zendesk jsonl",
        "zendesk",
        {"tickets.jsonl": jsonl_bytes(*_ZENDESK_TICKETS)},
        _ZENDESK_EXPECTED,
        left_out={"private notes": 1},
    ),
    Layout(
        "zendesk as JSON Lines in a .json.gz file",
        "zendesk",
        {"tickets.json.gz": gzip.compress(jsonl_bytes(*_ZENDESK_TICKETS), mtime=0)},
        _ZENDESK_EXPECTED,
        left_out={"private notes": 1},
    ),
    Layout(
        "zendesk as an indented page with users",
        "zendesk",
        {
            "tickets.json": json_bytes(
                {"tickets": list(_ZENDESK_TICKETS), "users": _ZENDESK_USERS, "count": 2}, indent=1
            )
        },
        _ZENDESK_EXPECTED,
        left_out={"private notes": 1},
    ),
    Layout(
        "zendesk as an array beside a file of users",
        "zendesk",
        {
            "tickets.json": json_bytes(list(_ZENDESK_TICKETS), indent=1),
            "zendesk_users.jsonl": jsonl_bytes(*_ZENDESK_USERS),
        },
        _ZENDESK_EXPECTED,
        left_out={"private notes": 1},
    ),
    Layout(
        "intercom jsonl",
        "intercom",
        {"conversations.jsonl": jsonl_bytes(*_INTERCOM_CONVERSATIONS)},
        _INTERCOM_EXPECTED,
        left_out=_INTERCOM_LEFT_OUT,
    ),
    Layout(
        "intercom with a list under conversations",
        "intercom",
        {"conversations.json": json_bytes({"conversations": list(_INTERCOM_CONVERSATIONS)})},
        _INTERCOM_EXPECTED,
        left_out=_INTERCOM_LEFT_OUT,
    ),
    Layout(
        "freshdesk",
        "freshdesk",
        {"tickets.json": json_bytes(_FRESHDESK_TICKETS, indent=1)},
        _FRESHDESK_EXPECTED,
        left_out={"private notes": 1},
    ),
    Layout(
        "freshdesk with a list under tickets",
        "freshdesk",
        {"tickets.json": json_bytes({"tickets": _FRESHDESK_TICKETS}, indent=1)},
        _FRESHDESK_EXPECTED,
        left_out={"private notes": 1},
    ),
    Layout(
        "twitter_support",
        "twitter_support",
        {"twcs.csv": _TWEETS},
        _dialogues(
            "twitter_support",
            ("1/0", None, (turn(USER, "My kettle leaks."), turn(SYSTEM, "Hot & cold?"))),
            ("1/1", None, _LEAK),
            ("8/0", None, _MEND),
        ),
    ),
    Layout(
        "twitter_support chronological with mentions",
        "twitter_support",
        {"twcs.csv.gz": gzip.compress(_TWEETS, mtime=0)},
        _dialogues(
            "twitter_support",
            (
                "1",
                None,
                (
                    turn(USER, "@KettleHelp My kettle leaks."),
                    turn(SYSTEM, "@115001 Since when?"),
                    turn(SYSTEM, "@115001 Hot & cold?"),
                    turn(USER, "@KettleHelp Since Monday."),
                ),
            ),
            ("8", None, (turn(USER, "Do you mend bicycles?"), turn(SYSTEM, "@115001 @KettleFans On Tuesdays."))),
        ),
        {"order": "chronological", "mentions": True},
    ),
    Layout(
        "mbox",
        "mbox",
        {"support.mbox": "".join(_MAILBOX).encode()},
        _MAIL_EXPECTED,
        _MAIL_SPEAKERS,
        left_out={"automatic messages": 1},
    ),
    Layout(
        "mbox as .eml files",
        "mbox",
        {f"{number}.eml": message.split("\n", 1)[1].encode() for number, message in enumerate(_MAILBOX)},
        _MAIL_EXPECTED,
        _MAIL_SPEAKERS,
        left_out={"automatic messages": 1},
    ),
    *_TRANSCRIPTS,
)

# ---- responses, questions and answers

_RESPONSES = (
    Layout(
        "responses as Ubuntu V1, Douban and E-commerce have them",
        "responses",
        {
            "valid.txt": lines_bytes(
                "1\tmy screen is black\tis it plugged in ?\tno",
                "0\tmy screen is black\tis it plugged in ?\tI like trains",
                "0\twho is there\tthe cat",
                "0\twho is there\tthe dog",
                "1\tone or two\ttwo",
                "1\tone or two\tone",
            )
        },
        _dialogues(
            "responses",
            (
                "valid.txt/1",
                "valid",
                (turn(ONE, "my screen is black"), turn(TWO, "is it plugged in ?"), turn(ONE, "no")),
            ),
            ("valid.txt/3", "valid", (turn(ONE, "who is there"),)),
            ("valid.txt/5", "valid", (turn(ONE, "one or two"), turn(TWO, "two"))),
        ),
        left_out={
            "negative responses": 3,
            "further right responses": 1,
            "contexts without a right response (their turns are kept)": 1,
        },
    ),
    Layout(
        "responses in a file named by its split alone",
        "responses",
        {"ECD/test": lines_bytes("1\t有 货 吗\t有", "0\t有 货 吗\t没有")},
        _dialogues("responses", ("ECD/test/1", "test", (turn(ONE, "有 货 吗"), turn(TWO, "有")))),
        left_out={"negative responses": 1},
    ),
    Layout(
        "responses as Ubuntu V2's test has them",
        "responses",
        {
            "test.csv": csv_bytes(
                ("Context", "Ground Truth Utterance", "Distractor_0", "Distractor_1"),
                ("no sound __eou__ at all __eou__ __eot__ muted ? __eou__ __eot__", "yes , sorry __eou__", "hm", "ha"),
            )
        },
        _dialogues(
            "responses",
            ("test.csv/2", "test", (turn(ONE, "no sound at all"), turn(TWO, "muted ?"), turn(ONE, "yes , sorry"))),
        ),
        left_out={"negative responses": 2},
    ),
    Layout(
        "responses as Ubuntu V2's train has them",
        "responses",
        {
            "train.csv": csv_bytes(
                ("Context", "Utterance", "Label"),
                ("which port ? __eou__ __eot__", "the left one __eou__", "1.0"),
                ("any news ? __eou__ __eot__", "bananas __eou__", "0.0"),
            )
        },
        _dialogues(
            "responses",
            ("train.csv/2", "train", (turn(ONE, "which port ?"), turn(TWO, "the left one"))),
            ("train.csv/3", "train", (turn(ONE, "any news ?"),)),
        ),
        left_out={"negative responses": 1, "contexts without a right response (their turns are kept)": 1},
    ),
)

_BLACK = (turn(ONE, "my screen is black"), turn(TWO, "is it plugged in ?"))
_RIGHT, _WRONG = "right response", "wrong response"

_LABELLED_RESPONSES = (
    Layout(
        "labelled_responses as Ubuntu V1, Douban and E-commerce have them",
        "labelled_responses",
        {
            "valid.txt": lines_bytes(
                "1\tmy screen is black\tis it plugged in ?\tno",
                "0\tmy screen is black\tis it plugged in ?\tI like trains",
                "0\twho is there\tthe cat",
                "1\tone or two\ttwo",
                "1\tone or two\tone",
            )
        },
        _dialogues(
            "labelled_responses",
            ("valid.txt/1/1", "valid", (*_BLACK, turn(ONE, "no", _RIGHT))),
            ("valid.txt/1/2", "valid", (*_BLACK, turn(ONE, "I like trains", _WRONG))),
            ("valid.txt/3/1", "valid", (turn(ONE, "who is there"), turn(TWO, "the cat", _WRONG))),
            ("valid.txt/4/1", "valid", (turn(ONE, "one or two"), turn(TWO, "two", _RIGHT))),
            ("valid.txt/4/2", "valid", (turn(ONE, "one or two"), turn(TWO, "one", _RIGHT))),
        ),
    ),
    Layout(
        "labelled_responses as Ubuntu V2 has them",
        "labelled_responses",
        {
            "test.csv": csv_bytes(
                ("Context", "Ground Truth Utterance", "Distractor_0"),
                ("no sound __eou__ at all __eou__ __eot__ muted ? __eou__ __eot__", "yes , sorry __eou__", "hm"),
            ),
            "train.csv": csv_bytes(
                ("Context", "Utterance", "Label"), ("any news ? __eou__ __eot__", "bananas __eou__", "0.0")
            ),
        },
        _dialogues(
            "labelled_responses",
            (
                "test.csv/2/1",
                "test",
                (turn(ONE, "no sound at all"), turn(TWO, "muted ?"), turn(ONE, "yes , sorry", _RIGHT)),
            ),
            ("test.csv/2/2", "test", (turn(ONE, "no sound at all"), turn(TWO, "muted ?"), turn(ONE, "hm", _WRONG))),
            ("train.csv/2/1", "train", (turn(ONE, "any news ?"), turn(TWO, "bananas", _WRONG))),
        ),
    ),
)

_LID = (turn(USER, "Does the lid fit?"), turn(SYSTEM, "It's snug."))
_PLUG = (turn(USER, "Which plug?"), turn(SYSTEM, "Type G."))

_QUESTIONS = (
    Layout(
        "question_answers as JSON Lines",
        "question_answers",
        {
            "qa.jsonl": lines_bytes(
                '{"question": "Does the lid fit?", "answer": "It\'s snug.", "votes": null}',
                '{ "answer": "Type G.", "verified": true, "question": "Which plug?" }',
            )
        },
        _dialogues("question_answers", ("qa.jsonl/1", None, _LID), ("qa.jsonl/2", None, _PLUG)),
    ),
    Layout(
        "question_answers as Python literals",
        "question_answers",
        {
            "qa.json": lines_bytes(
                "{'question': 'Does the lid fit?', 'answer': \"It's snug.\", 'asin': 'X1', 'n': None}"
            )
        },
        _dialogues("question_answers", ("qa.json/1", None, _LID)),
    ),
    Layout(
        "question_answers as gzipped Python literals",
        "question_answers",
        {"qa.json.gz": gzip.compress(b"{'question': 'Which plug?', 'answer': 'Type G.'}\n", mtime=0)},
        _dialogues("question_answers", ("qa.json.gz/1", None, _PLUG)),
    ),
    Layout(
        "question_answers as csv with other names",
        "question_answers",
        {"qa.csv": csv_bytes(("a", "q"), ("It's snug.", "Does the lid fit?"), ("Type G.", "Which plug?"))},
        _dialogues("question_answers", ("qa.csv/2", None, _LID), ("qa.csv/3", None, _PLUG)),
        {"question": "q", "answer": "a"},
    ),
    Layout(
        "question_answers as tsv",
        "question_answers",
        {"qa.tsv": csv_bytes(("question", "answer"), ("Which plug?", "Type G."), delimiter="\t")},
        _dialogues("question_answers", ("qa.tsv/2", None, _PLUG)),
    ),
)

# ---- public corpora


def _sgd_turn(speaker: str, text: str, *frames: dict[str, Any]) -> dict[str, Any]:
    return {"speaker": speaker, "utterance": text, "frames": list(frames)}


_SGD = Layout(
    "schema_guided_dialogue",
    "schema_guided_dialogue",
    {
        "train/dialogues_001.json": json_bytes(
            [
                {
                    "dialogue_id": "1_00000",
                    "services": ["Boats_1"],
                    "turns": [
                        _sgd_turn(
                            "USER",
                            "A boat in Bergen please",
                            {
                                "service": "Boats_1",
                                "slots": [{"slot": "city", "start": 10, "exclusive_end": 16}],
                                "actions": [
                                    {"act": "INFORM_INTENT", "slot": "", "values": []},
                                    {"act": "INFORM", "slot": "city", "values": ["Bergen"]},
                                ],
                                "state": {"active_intent": "FindBoat", "requested_slots": []},
                            },
                        ),
                        _sgd_turn(
                            "SYSTEM",
                            "For how many?",
                            {
                                "service": "Boats_1",
                                "slots": [{"slot": "city", "copy_from": "city", "value": "Bergen"}],
                                "actions": [{"act": "REQUEST", "slot": "people", "values": []}],
                            },
                        ),
                        _sgd_turn("USER", "Never mind", {"slots": [], "state": {"active_intent": "NONE"}}),
                    ],
                },
                {"dialogue_id": "1_00001", "turns": [_sgd_turn("USER", "Ahoy")]},
            ],
            indent=2,
        ),
        "dev/dialogues_001.json": json_bytes([{"dialogue_id": "1_00000", "turns": [_sgd_turn("SYSTEM", "Welcome")]}]),
        "train/schema.json": b"[]",
    },
    _dialogues(
        "schema_guided_dialogue",
        ("dev/1_00000", "valid", (turn(SYSTEM, "Welcome"),)),
        (
            "train/1_00000",
            "train",
            (
                turn(
                    USER, "A boat in Bergen please", "FindBoat", ["INFORM_INTENT", "INFORM(city)"], [("city", "Bergen")]
                ),
                turn(SYSTEM, "For how many?", acts=["REQUEST(people)"]),
                turn(USER, "Never mind"),
            ),
        ),
        ("train/1_00001", "train", (turn(USER, "Ahoy"),)),
    ),
)

_MWOZ_LOG = [
    {
        "text": "A tent near Mill Pond",
        "dialog_act": {"Camping-Inform": [["Area", "Mill Pond"], ["none", "none"]]},
        "span_info": [["Camping-Inform", "Area", "Mill Pond", 3, 4]],
        "metadata": {},
    },
    {"text": "Done.", "dialog_act": "No Annotation", "metadata": {}},
]
_MWOZ_TURNS = (
    turn(USER, "A tent near Mill Pond", acts=["Camping-Inform(Area)", "Camping-Inform"], slots=[("Area", "Mill Pond")]),
    turn(SYSTEM, "Done."),
)

_MULTIWOZ = (
    Layout(
        "multiwoz text",
        "multiwoz",
        {
            "dev_dialogues_001.txt": lines_bytes(
                "is [Hill House] cheap ?", "it is , like [Elm] [Oak]", "", "", "a taxi", "done ."
            )
        },
        _dialogues(
            "multiwoz",
            (
                "dev_dialogues_001/0",
                "valid",
                (
                    turn(USER, "is Hill House cheap ?", slots=[("value", "Hill House")]),
                    turn(SYSTEM, "it is , like Elm Oak", slots=[("value", "Elm"), ("value", "Oak")]),
                ),
            ),
            ("dev_dialogues_001/1", "valid", (turn(USER, "a taxi"), turn(SYSTEM, "done ."))),
        ),
        facts={"form": "text"},
    ),
    Layout(
        "multiwoz json by split",
        "multiwoz",
        {
            "val.json": json_bytes({"A.json": {"goal": {}, "log": _MWOZ_LOG}}, indent=1),
            "test.json": json_bytes({"B.json": {"goal": {}, "log": _MWOZ_LOG[1:]}}),
        },
        _dialogues("multiwoz", ("B.json", "test", (turn(USER, "Done."),)), ("A.json", "valid", _MWOZ_TURNS)),
        facts={"form": "json"},
    ),
    Layout(
        "multiwoz data.json with its lists",
        "multiwoz",
        {
            "data.json": json_bytes({name: {"log": _MWOZ_LOG} for name in ("A.json", "B.json", "C.json")}),
            "valListFile.txt": b"B.json\n",
            "testListFile.json": b'["C.json"]',
        },
        _dialogues(
            "multiwoz",
            ("A.json", "train", _MWOZ_TURNS),
            ("B.json", "valid", _MWOZ_TURNS),
            ("C.json", "test", _MWOZ_TURNS),
        ),
        {"form": "json"},
        facts={"form": "json"},
    ),
)

_KVRET = Layout(
    "kvret",
    "kvret",
    {
        "kvret_dev_public.json": json_bytes(
            [
                {
                    "dialogue": [
                        {"turn": "driver", "data": {"end_dialogue": False, "utterance": "Any rain on Friday? "}},
                        {
                            "turn": "assistant",
                            "data": {
                                "utterance": "Where?",
                                "requested": {"rain": True, "date": False},
                                "slots": {"date": "friday"},
                            },
                        },
                        {"turn": "driver", "data": {"utterance": "Here"}},
                    ],
                    "scenario": {"uuid": "k-1", "task": {"intent": "weather"}, "kb": {}},
                },
                {
                    "dialogue": [{"turn": "assistant", "data": {"utterance": "Hm?", "requested": {}, "slots": {}}}],
                    "scenario": {"uuid": "k-2", "task": {"intent": "navigate"}},
                },
            ],
            indent=2,
        )
    },
    _dialogues(
        "kvret",
        (
            "k-1",
            "valid",
            (
                turn(USER, "Any rain on Friday?", "weather", ["inform(date)", "request(rain)"], [("date", "Friday")]),
                turn(SYSTEM, "Where?"),
                turn(USER, "Here"),
            ),
        ),
        ("k-2", "valid", (turn(SYSTEM, "Hm?"),)),
    ),
)

_WOZ2 = Layout(
    "woz2",
    "woz2",
    {
        "woz_validate_en.json": json_bytes(
            [
                {
                    "dialogue_idx": 0,
                    "dialogue": [
                        {
                            "turn_idx": 0,
                            "system_transcript": "",
                            "system_acts": [],
                            "transcript": "Thai food please",
                            "turn_label": [["food", "thai"]],
                        },
                        {
                            "turn_idx": 1,
                            "system_transcript": "In the north?",
                            "system_acts": ["price range", ["area", "north"]],
                            "transcript": "What is the phone number?",
                            "turn_label": [["request", "phone"]],
                        },
                    ],
                },
                {
                    "dialogue_idx": 1,
                    "dialogue": [
                        {
                            "system_transcript": "Hello",
                            "system_acts": [],
                            "transcript": "Hi",
                            "turn_label": [],
                        }
                    ],
                },
            ],
            indent=1,
        )
    },
    _dialogues(
        "woz2",
        (
            "woz_validate_en/0",
            "valid",
            (
                turn(USER, "Thai food please", acts=["inform(food)"], slots=[("food", "Thai")]),
                turn(SYSTEM, "In the north?", acts=["request(price range)", "confirm(area)"]),
                turn(USER, "What is the phone number?", acts=["request(phone)"]),
            ),
        ),
        ("woz_validate_en/1", "valid", (turn(SYSTEM, "Hello"), turn(USER, "Hi"))),
    ),
)

_CAMREST = Layout(
    "camrest676",
    "camrest676",
    {
        "CamRest676.json": json_bytes(
            [
                {
                    "dialogue_id": 3,
                    "dial": [
                        {
                            "turn": 0,
                            "usr": {
                                "transcript": "Cheap noodles, and their address?",
                                "slu": [
                                    {"act": "inform", "slots": [["pricerange", "cheap"]]},
                                    {"act": "request", "slots": [["slot", "address"]]},
                                ],
                            },
                            "sys": {"sent": "Which area?", "DA": ["area"]},
                        }
                    ],
                },
                {
                    "dialogue_id": 4,
                    "dial": [{"usr": {"transcript": "Bye", "slu": []}, "sys": {"sent": "Farewell", "DA": []}}],
                },
            ],
            indent=1,
        )
    },
    _dialogues(
        "camrest676",
        (
            "3",
            None,
            (
                turn(
                    USER,
                    "Cheap noodles, and their address?",
                    acts=["inform(pricerange)", "request(address)"],
                    slots=[("pricerange", "Cheap")],
                ),
                turn(SYSTEM, "Which area?", acts=["request(area)"]),
            ),
        ),
        ("4", None, (turn(USER, "Bye"), turn(SYSTEM, "Farewell"))),
    ),
)

_STAR = Layout(
    "star",
    "star",
    {
        "dialogues/1.json": json_bytes(
            {
                "DialogueID": 1,
                "Events": [
                    {"Agent": "UserGuide", "Action": "instruct", "Text": "Ask for a plumber."},
                    {"Agent": "User", "Action": "utter", "Text": "My sink is blocked"},
                    {"Agent": "Wizard", "Action": "query", "Constraints": []},
                    {
                        "Agent": "Wizard",
                        "Action": "pick_suggestion",
                        "Text": "What is your name?",
                        "ActionLabel": "plumber_ask_name",
                    },
                    {"Agent": "Wizard", "Action": "utter", "Text": "Please."},
                    {"Agent": "User", "Action": "complete"},
                ],
            },
            indent=2,
        ),
        "dialogues/2.json": json_bytes(
            {"DialogueID": 2, "Events": [{"Agent": "User", "Action": "utter", "Text": "Anybody?"}]}
        ),
        "tasks/plumber/plumber.json": b"{}",
    },
    _dialogues(
        "star",
        (
            "1",
            None,
            (
                turn(USER, "My sink is blocked"),
                turn(SYSTEM, "What is your name?", acts=["plumber_ask_name"]),
                turn(SYSTEM, "Please."),
            ),
        ),
        ("2", None, (turn(USER, "Anybody?"),)),
    ),
    left_out={"events that are no utterances": 3},
)

_TASKMASTER = (
    Layout(
        "taskmaster-4",
        "taskmaster",
        {
            "TM-4-2024/data/data_01.json": json_bytes(
                [
                    {
                        "conversation_id": "dlg-1",
                        "utterances": [
                            {
                                "index": 0,
                                "speaker": "user",
                                "text": " A soup with no salt",
                                "segments": [
                                    {
                                        "start_index": "13",
                                        "end_index": "20",
                                        "text": "no salt",
                                        "annotations": [{"name": "request"}],
                                    }
                                ],
                            },
                            {"index": 1, "speaker": "assistant", "text": "Coming up"},
                        ],
                    },
                    {"conversation_id": "dlg-2", "utterances": [{"index": 0, "speaker": "assistant", "text": "Next!"}]},
                ],
                indent=2,
            ),
            "TM-4-2024/ontology/entities.json": b"{}",
        },
        _dialogues(
            "taskmaster",
            (
                "dlg-1",
                None,
                (turn(USER, "A soup with no salt", slots=[("request", "no salt")]), turn(SYSTEM, "Coming up")),
            ),
            ("dlg-2", None, (turn(SYSTEM, "Next!"),)),
        ),
    ),
    Layout(
        "taskmaster-1 with upper-case speakers",
        "taskmaster",
        {
            "TM-1-2019/self-dialogs.json": json_bytes(
                [
                    {
                        "conversation_id": "dlg-3",
                        "instruction_id": "pizza-1",
                        "utterances": [
                            {
                                "index": 0,
                                "speaker": "USER",
                                "text": "A large one",
                                "segments": [
                                    {
                                        "start_index": 2,
                                        "end_index": 7,
                                        "text": "large",
                                        "annotations": [{"name": "pizza.size"}, {"name": "pizza.size.accept"}],
                                    }
                                ],
                            },
                            {"index": 1, "speaker": "ASSISTANT", "text": "With olives?"},
                        ],
                    }
                ]
            ),
            "TM-1-2019/sample.json": b"[]",
        },
        _dialogues(
            "taskmaster",
            (
                "dlg-3",
                None,
                (
                    turn(USER, "A large one", slots=[("pizza.size", "large"), ("pizza.size.accept", "large")]),
                    turn(SYSTEM, "With olives?"),
                ),
            ),
        ),
    ),
)

_TASKMASTER3 = Layout(
    "taskmaster3_partial",
    "taskmaster3_partial",
    {
        "TM-3-2020/splits/train/train-bc.tsv": lines_bytes(
            "<PR>find<PRAN>name<PRAV>Owls<C><U>Any owl films?<PN>find<PAN>name<PAV>owl\t[A]One: Owls.\tdlg-a",
            "<U>Two seats<C><U>Any owl films?<PN>find<PR>find<A>One: Owls.\t[PN]book<PAN>seats<PAV>2\tdlg-a",
            '"<U>Say ""when"""\t[A]When.\tdlg-b',
        ),
        "TM-3-2020/reward/reward_00.json": json_bytes(
            [
                {
                    "conversation_id": "dlg-c",
                    "context": json.dumps(
                        [
                            {"role": "agent", "text": "Hello."},
                            {"role": "user", "text": "Hi."},
                            {"role": "agent", "call": 1},
                        ]
                    ),
                    "generation": "{}",
                    "reward": "1.0",
                }
            ]
        ),
    },
    _dialogues(
        "taskmaster3_partial",
        ("dlg-c", None, (turn(SYSTEM, "Hello."), turn(USER, "Hi."))),
        ("dlg-a", "train", (turn(USER, "Any owl films?"), turn(SYSTEM, "One: Owls."), turn(USER, "Two seats"))),
        ("dlg-b", "train", (turn(USER, 'Say "when"'), turn(SYSTEM, "When."))),
    ),
    left_out={
        "generations of a model": 1,
        "API calls as targets": 1,
        "turns of a shorter moment of the same conversation": 2,
    },
)

_MSR = Layout(
    "msr_e2e with BOM",
    "msr_e2e",
    {
        "movie_all.tsv": "\ufeff".encode()
        + lines_bytes(
            "session.ID\tMessage.ID\tMessage.Timestamp\tMessage.From\tMessage.Text\tAct.1\tAct.2",
            "1\t1\t2017-01-01\tuser\tTwo seats for today\trequest(theater;city)\tinform(date=today;numberofpeople=2)",
            "1\t2\t2017-01-01\tagent\tGreat!\tthanks()\t",
            "2\t1\t2017-01-02\tuser\tGood evening\t\t",
        )
    },
    _dialogues(
        "msr_e2e",
        (
            "movie/1",
            None,
            (
                turn(
                    USER,
                    "Two seats for today",
                    acts=["request(theater)", "request(city)", "inform(date)", "inform(numberofpeople)"],
                    slots=[("date", "today")],
                ),
                turn(SYSTEM, "Great!", acts=["thanks"]),
            ),
        ),
        ("movie/2", None, (turn(USER, "Good evening"),)),
    ),
)

_FRAMES = Layout(
    "frames",
    "frames",
    {
        "frames.json": json_bytes(
            [
                {
                    "id": "f-1",
                    "turns": [
                        {
                            "author": "user",
                            "text": "Off to Porto in May",
                            "timestamp": 1.0,
                            "labels": {
                                "acts": [
                                    {
                                        "name": "inform",
                                        "args": [{"key": "dst_city", "val": "Porto"}, {"key": "flex", "val": True}],
                                    },
                                    {"name": "greeting", "args": []},
                                ]
                            },
                        },
                        {
                            "author": "wizard",
                            "text": "When?",
                            "labels": {"acts": [{"name": "request", "args": [{"key": "day"}]}]},
                        },
                    ],
                },
                {"id": "f-2", "turns": [{"author": "wizard", "text": "Hi", "labels": {"acts": []}}]},
            ],
            indent=2,
        )
    },
    _dialogues(
        "frames",
        (
            "f-1",
            None,
            (
                turn(
                    USER,
                    "Off to Porto in May",
                    acts=["inform(dst_city)", "inform(flex)", "greeting"],
                    slots=[("dst_city", "Porto")],
                ),
                turn(SYSTEM, "When?", acts=["request(day)"]),
            ),
        ),
        ("f-2", None, (turn(SYSTEM, "Hi"),)),
    ),
)

_METALWOZ = Layout(
    "metalwoz",
    "metalwoz",
    {
        "dialogues/BUS_SCHEDULE.txt": jsonl_bytes(
            {
                "id": "m1",
                "user_id": "u",
                "bot_id": "b",
                "domain": "BUS",
                "task_id": "t",
                "turns": ["How can I help?", "Bus 9?"],
            },
            {
                "id": "m2",
                "user_id": "u",
                "bot_id": "b",
                "domain": "BUS",
                "task_id": "t",
                "turns": ["Hello", "Hi", "Yes?"],
            },
        ),
        "tasks.txt": b"not a dialogue\n",
    },
    _dialogues(
        "metalwoz",
        ("m1", None, (turn(SYSTEM, "How can I help?"), turn(USER, "Bus 9?"))),
        ("m2", None, (turn(SYSTEM, "Hello"), turn(USER, "Hi"), turn(SYSTEM, "Yes?"))),
    ),
)

_SELF_COLUMNS = ("HITId", "AssignmentId", "WorkerId", "Answer.sentence1", "Answer.sentence10", "Answer.sentence2")
_SELF_FILES = {
    "corpus/jazz/jazz.csv": csv_bytes(
        _SELF_COLUMNS,
        ("h", "A1", "W1", "I play the drums", "Last one", "Loud, then"),
        ("h", "A2", "W2", "So slow", "", "It is a ballad"),
    ),
    "blocked_workers.txt": b"W2\nW9\n",
}
_DRUMS = (turn(ONE, "I play the drums"), turn(TWO, "Loud, then"), turn(TWO, "Last one"))

_SELF_DIALOGUE = (
    Layout(
        "self_dialogue",
        "self_dialogue",
        _SELF_FILES,
        _dialogues(
            "self_dialogue", ("A1", None, _DRUMS), ("A2", None, (turn(ONE, "So slow"), turn(TWO, "It is a ballad")))
        ),
        left_out={"blank cells": 1},
    ),
    Layout(
        "self_dialogue without blocked workers",
        "self_dialogue",
        _SELF_FILES,
        _dialogues("self_dialogue", ("A1", None, _DRUMS)),
        {"drop_blocked_workers": True},
        left_out={"blank cells": 1, "dialogues of blocked workers": 1, "utterances of blocked workers": 2},
    ),
)

_CHITCHAT = Layout(
    "chitchat",
    "chitchat",
    {
        "dataset.json": json_bytes(
            {
                "c1": {
                    "messages": [
                        [{"text": "hey", "sender": "x", "timestamp": "t"}, {"text": "you there", "sender": "x"}],
                        [{"text": "yep", "sender": "y"}],
                    ],
                    "ratings": {},
                },
                "c2": {"messages": [[{"text": "nobody here", "sender": "z"}]]},
            },
            indent=1,
        )
    },
    _dialogues(
        "chitchat",
        ("c1", None, (turn(ONE, "hey"), turn(ONE, "you there"), turn(TWO, "yep"))),
        ("c2", None, (turn(ONE, "nobody here"),)),
    ),
)

_CASINO = Layout(
    "casino",
    "casino",
    {
        "split/casino_valid.json": json_bytes(
            [
                {
                    "dialogue_id": 5,
                    "chat_logs": [
                        {"text": "Is it cold up there?", "task_data": {}, "id": "mturk_agent_2"},
                        {"text": "Submit-Deal", "task_data": {"x": 1}, "id": "mturk_agent_1"},
                        {"text": "I need logs", "task_data": {}, "id": "mturk_agent_2"},
                    ],
                    "annotations": [["Is it cold up there?", "small-talk"], ["I need logs", "self-need,no-need"]],
                },
                {"dialogue_id": 6, "chat_logs": [{"text": "Deal?", "id": "mturk_agent_1"}]},
            ],
            indent=1,
        )
    },
    _dialogues(
        "casino",
        (
            "5",
            "valid",
            (
                turn(ONE, "Is it cold up there?", acts=["small-talk"]),
                turn(TWO, "Submit-Deal"),
                turn(ONE, "I need logs", acts=["self-need", "no-need"]),
            ),
        ),
        ("6", "valid", (turn(ONE, "Deal?"),)),
    ),
)

_DAILY = Layout(
    "dailydialog",
    "dailydialog",
    {
        "data/dialogues.json": json_bytes(
            [
                {
                    "dataset": "dailydialog",
                    "data_split": "validation",
                    "dialogue_id": "dailydialog-validation-0",
                    "original_id": "validation-0",
                    "domains": ["Work"],
                    "turns": [
                        {
                            "speaker": "user",
                            "utterance": "Did the parcel come?",
                            "utt_idx": 0,
                            "dialogue_acts": {
                                "binary": [{"intent": "question", "domain": "", "slot": ""}],
                                "categorical": [],
                                "non-categorical": [],
                            },
                            "emotion": "no emotion",
                        },
                        {"speaker": "system", "utterance": "Not yet.", "utt_idx": 1},
                    ],
                },
                {
                    "data_split": "train",
                    "dialogue_id": "dailydialog-train-7",
                    "turns": [{"speaker": "user", "utterance": "Tea?", "utt_idx": 0, "dialogue_acts": {}}],
                },
            ],
            indent=2,
        )
    },
    _dialogues(
        "dailydialog",
        ("validation-0", "valid", (turn(USER, "Did the parcel come?", acts=["question"]), turn(SYSTEM, "Not yet."))),
        ("dailydialog-train-7", "train", (turn(USER, "Tea?"),)),
    ),
)

_TOPICAL = Layout(
    "topical_chat",
    "topical_chat",
    {
        "conversations/valid_freq.json": json_bytes(
            {
                "t_1": {
                    "article_url": "",
                    "content": [
                        {"message": "Do you follow chess?", "agent": "agent_1", "sentiment": "Neutral"},
                        {"message": "A little.", "agent": "agent_2"},
                        {"message": "Me too", "agent": "agent_2"},
                    ],
                },
                "t_2": {"content": [{"message": "Hiya", "agent": "agent_2"}]},
            },
            indent=1,
        )
    },
    _dialogues(
        "topical_chat",
        ("t_1", "valid", (turn(ONE, "Do you follow chess?"), turn(TWO, "A little."), turn(TWO, "Me too"))),
        ("t_2", "valid", (turn(ONE, "Hiya"),)),
    ),
)

_DSTC2_DATA = json_bytes(
    [
        {
            "data_split": "test",
            "dialogue_id": "dstc2_0",
            "original_id": "voip-1",
            "turns": [
                {"speaker": "user", "utt_idx": 0, "utterance": "swiss food", "dialogue_act": {"binary": []}},
                {"speaker": "system", "utt_idx": 1, "utterance": "What part of town?", "dialogue_act": {}},
            ],
        },
        {
            "data_split": "train",
            "dialogue_id": "dstc2_1",
            "original_id": "voip-2",
            "turns": [{"speaker": "system", "utt_idx": 1, "utterance": "Goodbye", "dialogue_act": {}}],
        },
    ],
    indent=2,
)

_DSTC2 = (
    Layout(
        "dstc2 with acts beside it",
        "dstc2",
        {
            "transcripts/data.json": _DSTC2_DATA,
            "DERIVED_system_acts.jsonl": jsonl_bytes(
                {
                    "original_id": "voip-1",
                    "split": "test",
                    "system_turns": [{"utt_idx": 1, "acts": ["request(area)"], "match": "exact"}],
                },
                {"original_id": "voip-9", "split": "test", "system_turns": []},
            ),
        },
        _dialogues(
            "dstc2",
            ("voip-1", "test", (turn(USER, "swiss food"), turn(SYSTEM, "What part of town?", acts=["request(area)"]))),
            ("voip-2", "train", (turn(SYSTEM, "Goodbye"),)),
        ),
    ),
    Layout(
        "dstc2 without acts",
        "dstc2",
        {"transcripts/data.json": _DSTC2_DATA},
        _dialogues(
            "dstc2",
            ("voip-1", "test", (turn(USER, "swiss food"), turn(SYSTEM, "What part of town?"))),
            ("voip-2", "train", (turn(SYSTEM, "Goodbye"),)),
        ),
    ),
)

_GSIM = (
    Layout(
        "gsim_m2m unified",
        "gsim_m2m",
        {
            "unified/data.json": json_bytes(
                [
                    {
                        "data_split": "validation",
                        "dialogue_id": "m2m_0",
                        "original_id": "movies_1",
                        "turns": [
                            {
                                "speaker": "user",
                                "utterance": "seats at 7 pm",
                                "utt_idx": 0,
                                "dialogue_act": {
                                    "binary": [{"intent": "GREETING", "domain": "movie", "slot": "", "value": ""}],
                                    "categorical": [],
                                    "non-categorical": [
                                        {"intent": "INFORM", "slot": "time", "value": "7 pm", "start": 9, "end": 13}
                                    ],
                                },
                            }
                        ],
                    },
                    {
                        "data_split": "test",
                        "dialogue_id": "m2m_1",
                        "original_id": "movies_2",
                        "turns": [{"speaker": "system", "utterance": "hello", "utt_idx": 0, "dialogue_act": {}}],
                    },
                ],
                indent=1,
            )
        },
        _dialogues(
            "gsim_m2m",
            (
                "movies_1",
                "valid",
                (turn(USER, "seats at 7 pm", acts=["GREETING", "INFORM(time)"], slots=[("time", "7 pm")]),),
            ),
            ("movies_2", "test", (turn(SYSTEM, "hello"),)),
        ),
        facts={"form": "unified"},
    ),
    Layout(
        "gsim_m2m original",
        "gsim_m2m",
        {
            "sim-M/dev.json": json_bytes(
                [
                    {
                        "dialogue_id": "movies_1",
                        "turns": [
                            {
                                "user_acts": [{"type": "GREETING"}],
                                "user_intents": ["BUY_SEATS"],
                                "user_utterance": {
                                    "slots": [{"slot": "time", "start": 2, "exclusive_end": 4}],
                                    "text": "seats at 7 pm",
                                    "tokens": ["seats", "at", "7", "pm"],
                                },
                            },
                            {
                                "system_acts": [{"slot": "movie", "type": "REQUEST"}],
                                "system_utterance": {
                                    "slots": [],
                                    "text": "which film ?",
                                    "tokens": ["which", "film", "?"],
                                },
                                "user_acts": [{"type": "INFORM"}],
                                "user_utterance": {"slots": [], "text": "any", "tokens": ["any"]},
                            },
                        ],
                    }
                ]
            )
        },
        _dialogues(
            "gsim_m2m",
            (
                "dev/movies_1",
                "valid",
                (
                    turn(USER, "seats at 7 pm", "BUY_SEATS", ["GREETING"], [("time", "7 pm")]),
                    turn(SYSTEM, "which film ?", acts=["REQUEST(movie)"]),
                    turn(USER, "any", acts=["INFORM"]),
                ),
            ),
        ),
        facts={"form": "original"},
    ),
)

_CORNELL = Layout(
    "cornell_movie_dialogs in latin-1",
    "cornell_movie_dialogs",
    {
        "movie_conversations.txt": (
            "u0 +++$+++ u2 +++$+++ m0 +++$+++ ['L1', 'L2', 'L3']\nu0 +++$+++ u2 +++$+++ m0 +++$+++ ['L4', 'L5']\n"
        ).encode("latin-1"),
        "movie_lines.txt": (
            "L3 +++$+++ u2 +++$+++ m0 +++$+++ ZOË +++$+++ Adieu.\n"
            "L2 +++$+++ u0 +++$+++ m0 +++$+++ MAX +++$+++ In the café +++$+++ really\n"
            "L1 +++$+++ u2 +++$+++ m0 +++$+++ ZOË +++$+++ Where were you?\n"
            "L5 +++$+++ u2 +++$+++ m0 +++$+++ ZOË +++$+++ Nothing.\n"
            "L4 +++$+++ u0 +++$+++ m0 +++$+++ MAX +++$+++ What?\n"
        ).encode("latin-1"),
    },
    _dialogues(
        "cornell_movie_dialogs",
        ("m0/L1", None, (turn(ONE, "Where were you?"), turn(TWO, "In the café +++$+++ really"), turn(ONE, "Adieu."))),
        ("m0/L4", None, (turn(ONE, "What?"), turn(TWO, "Nothing."))),
    ),
)

_PERSONA = (
    Layout(
        "personachat",
        "personachat",
        {
            "valid_none_original.txt": lines_bytes(
                "1 good day\tand to you\t\tfirst|second",
                "2 i knit\ti row\t\tfirst|second",
                "1 __SILENCE__\tanyone ?\t\tfirst|second",
            ),
            "valid_self_original.txt": lines_bytes("1 your persona: i knit."),
        },
        _dialogues(
            "personachat",
            (
                "valid_none_original/0",
                "valid",
                (turn(ONE, "good day"), turn(TWO, "and to you"), turn(ONE, "i knit"), turn(TWO, "i row")),
            ),
            ("valid_none_original/1", "valid", (turn(TWO, "anyone ?"),)),
        ),
    ),
    Layout(
        "personachat with personas",
        "personachat",
        {
            "train_both_revised.txt": lines_bytes(
                "1 your persona: i knit.", "2 partner's persona: i row.", "3 hello\thi\t\ta|b"
            )
        },
        _dialogues("personachat", ("train_both_revised/0", "train", (turn(ONE, "hello"), turn(TWO, "hi")))),
        {"variant": "both_revised"},
        left_out={"persona lines": 2},
    ),
)

_ABCD_DATA = {
    "train": [
        {
            "convo_id": 11,
            "original": [
                ["agent", "Hello there"],
                ["customer", "A refund please"],
                ["action", "Pulled up"],
                ["agent", "Sure"],
            ],
            "delexed": [
                {"speaker": who, "text": "", "targets": ["refund_initiate", None, None, [], -1]}
                for who in ("agent", "customer", "action", "agent")
            ],
        },
        {"convo_id": 12, "original": [["customer", "Boots?"]]},
    ],
    "dev": [{"convo_id": 13, "original": [["agent", "Bye"]], "delexed": [{"targets": ["x", None, None, [], -1]}]}],
}
_ABCD_DIALOGUES = _dialogues(
    "abcd",
    (
        "11",
        "train",
        (turn(SYSTEM, "Hello there"), turn(USER, "A refund please", "refund_initiate"), turn(SYSTEM, "Sure")),
    ),
    ("12", "train", (turn(USER, "Boots?"),)),
    ("13", "valid", (turn(SYSTEM, "Bye"),)),
)

_ABCD = (
    Layout(
        "abcd",
        "abcd",
        {"abcd_v1.1.json": json_bytes(_ABCD_DATA, indent=1)},
        _ABCD_DIALOGUES,
        left_out={"action rows": 1},
    ),
    Layout(
        "abcd gz",
        "abcd",
        {"abcd_v1.1.json.gz": gzip.compress(json_bytes(_ABCD_DATA), mtime=0)},
        _ABCD_DIALOGUES,
        left_out={"action rows": 1},
    ),
)

_CCPE = Layout(
    "ccpe_m",
    "ccpe_m",
    {
        "data.json": json_bytes(
            [
                {
                    "conversationId": "CCPE-1",
                    "utterances": [
                        {"index": 0, "speaker": "ASSISTANT", "text": "Which films?"},
                        {
                            "index": 1,
                            "speaker": "USER",
                            "text": "Slow westerns",
                            "segments": [
                                {
                                    "startIndex": 0,
                                    "endIndex": 13,
                                    "text": "Slow westerns",
                                    "annotations": [{"annotationType": "ENTITY_PREFERENCE", "entityType": "GENRE"}],
                                }
                            ],
                        },
                    ],
                },
                {"conversationId": "CCPE-2", "utterances": [{"index": 0, "speaker": "USER", "text": "None"}]},
            ],
            indent=2,
        )
    },
    _dialogues(
        "ccpe_m",
        (
            "CCPE-1",
            None,
            (turn(SYSTEM, "Which films?"), turn(USER, "Slow westerns", slots=[("GENRE", "Slow westerns")])),
        ),
        ("CCPE-2", None, (turn(USER, "None"),)),
    ),
)

_REDDIT = Layout(
    "reddit",
    "reddit",
    {
        "train-00000.json": jsonl_bytes(
            {
                "subreddit": "tea",
                "thread_id": "x",
                "context": "Green or black?",
                "response": "White.",
                "context/0": "I want tea.",
                "context/1": "What now?",
                "context_author": "a",
                "response_author": "b",
            },
            {"thread_id": "x", "context": "Milk?", "response": "Never."},
        )
    },
    _dialogues(
        "reddit",
        (
            "train-00000.json/1",
            None,
            (turn(ONE, "What now?"), turn(TWO, "I want tea."), turn(ONE, "Green or black?"), turn(TWO, "White.")),
        ),
        ("train-00000.json/2", None, (turn(ONE, "Milk?"), turn(TWO, "Never."))),
    ),
)

_BREAD = (turn(ONE, "Ann bakes bread"), turn(TWO, "Someone bakes", "entailment"))
_FISH = (turn(ONE, "Ann bakes bread"), turn(TWO, "Ann is a fish", "contradiction"))
_TRIPLET = (turn(ONE, "Ann bakes bread"), turn(TWO, "Someone bakes"), turn("speaker_3", "Ann is a fish"))
_PAIRS = (
    ("Ann bakes bread", "Someone bakes", "entailment"),
    ("Ann bakes bread", "Ann is a fish", "contradiction"),
    ("Bob swims", "Bob sings", "-"),
)

_AUTHORED = (
    Layout(
        "authored_intents",
        "authored_intents",
        {
            "intents.jsonl": jsonl_bytes(
                {"domain": "tea", "intent": "brew_tea", "texts": ["Put the kettle on", "make me a brew"]},
                {"domain": "rain", "intent": "will_it_rain", "texts": ["Umbrella today?"]},
            )
        },
        _dialogues(
            "authored_intents",
            ("1/1", "train", (turn(USER, "Put the kettle on", "tea: brew_tea"),)),
            ("1/2", "train", (turn(USER, "make me a brew", "tea: brew_tea"),)),
            ("2/1", "train", (turn(USER, "Umbrella today?", "rain: will_it_rain"),)),
        ),
    ),
    Layout(
        "authored_pairs",
        "authored_pairs",
        {
            "pairs.jsonl": jsonl_bytes(
                {"topic": "kettles", "message": "Does the lid fit?", "reply": "It's snug."},
                {"topic": "kettles", "message": "Mine leaks. [SEP] Where? [SEP] At the spout.", "reply": "Descale it."},
            )
        },
        _dialogues(
            "authored_pairs",
            ("1", "train", (turn(ONE, "Does the lid fit?"), turn(TWO, "It's snug."))),
            (
                "2",
                "train",
                (turn(ONE, "Mine leaks."), turn(TWO, "Where?"), turn(ONE, "At the spout."), turn(TWO, "Descale it.")),
            ),
        ),
    ),
    Layout(
        "authored_products",
        "authored_products",
        {
            "products.jsonl": jsonl_bytes(
                {"topic": "whisk", "message": "is it steel", "reply": "Chromed iron."},
                {"topic": "whisk", "message": "Mine squeaks.", "reply": "Oil it."},
            )
        },
        _dialogues(
            "authored_products",
            ("1", "train", (turn(ONE, "is it steel"), turn(TWO, "Chromed iron."))),
            ("2", "train", (turn(ONE, "Mine squeaks."), turn(TWO, "Oil it."))),
        ),
    ),
    Layout(
        "authored_sentences",
        "authored_sentences",
        {"sentences.txt": b"A fox crosses the empty car park.\nThe ferry was cancelled because of fog.\n"},
        _dialogues(
            "authored_sentences",
            ("1", "train", (turn(USER, "A fox crosses the empty car park."),)),
            ("2", "train", (turn(USER, "The ferry was cancelled because of fog."),)),
        ),
    ),
)

_NLI = (
    Layout(
        "nli as SNLI and MNLI have it",
        "nli",
        {
            "snli_1.0_dev.jsonl": jsonl_bytes(
                *({"sentence1": one, "sentence2": two, "gold_label": label} for one, two, label in _PAIRS)
            )
        },
        _dialogues(
            "nli",
            ("snli_1.0_dev.jsonl/1", "valid", _BREAD),
            ("snli_1.0_dev.jsonl/2", "valid", _FISH),
        ),
        left_out={"pairs without a gold label": 1},
    ),
    Layout(
        "nli as csv with numbers for labels",
        "nli",
        {
            "train.csv": csv_bytes(
                ("premise", "hypothesis", "label"),
                ("Ann bakes bread", "Someone bakes", 0),
                ("Ann bakes bread", "Ann is a fish", 2),
            )
        },
        _dialogues("nli", ("train.csv/2", "train", _BREAD), ("train.csv/3", "train", _FISH)),
    ),
    Layout(
        "nli triplets out of pairs",
        "nli",
        {
            "pairs.tsv": csv_bytes(
                ("first", "second", "relation"),
                *_PAIRS,
                ("Bob swims", "Bob moves", "entailment"),
                delimiter="\t",
            )
        },
        _dialogues("nli", ("pairs.tsv/2", None, _TRIPLET)),
        {"form": "triplets"},
        left_out={"pairs without a gold label": 1, "pairs without a counterpart": 1},
    ),
    Layout(
        "nli triplets as SimCSE has them",
        "nli",
        {"nli.csv": csv_bytes(("sent0", "sent1", "hard_neg"), ("Ann bakes bread", "Someone bakes", "Ann is a fish"))},
        _dialogues("nli", ("nli.csv/2", None, _TRIPLET)),
        {"form": "triplets"},
    ),
    Layout(
        "nli pairs out of SimCSE's triplets",
        "nli",
        {"nli.csv": csv_bytes(("sent0", "sent1", "hard_neg"), ("Ann bakes bread", "Someone bakes", "Ann is a fish"))},
        _dialogues("nli", ("nli.csv/2", None, _BREAD)),
    ),
)

# ---- labelled utterances, each a dialogue of one turn


def _massive_line(
    identity: str, locale: str, partition: str, intent: str, text: str, annotation: str
) -> dict[str, str]:
    return {
        "id": identity,
        "locale": locale,
        "partition": partition,
        "scenario": intent.partition("_")[0],
        "intent": intent,
        "utt": text,
        "annot_utt": annotation,
        "worker_id": "7",
    }


_SHELF = _massive_line("1", "en-US", "dev", "lists_query", "what is on the shelf", "what is on the shelf")
_GOAT = _massive_line(
    "0", "en-US", "test", "pets_feed", "feed my goat at noon ", "feed my [pet : goat] at [time : noon]"
)
# white space around the slots, where the text has none
_ZIEGE = _massive_line(
    "0", "de-DE", "train", "pets_feed", "Ziege,mittags füttern", "[pet : Ziege] , [time : mittags] füttern"
)
_MASSIVE_EN = (
    ("en-US/1", "valid", (turn(USER, "what is on the shelf", "lists_query"),)),
    ("en-US/0", "test", (turn(USER, "feed my goat at noon", "pets_feed", slots=[("pet", "goat"), ("time", "noon")]),)),
)
_MASSIVE_DE = (
    (
        "de-DE/0",
        "train",
        (turn(USER, "Ziege,mittags füttern", "pets_feed", slots=[("pet", "Ziege"), ("time", "mittags")]),),
    ),
)
_MASSIVE_FILES = {"1.1/data/de-DE.jsonl": jsonl_bytes(_ZIEGE), "1.1/data/en-US.jsonl": jsonl_bytes(_SHELF, _GOAT)}

_MASSIVE = (
    Layout(
        "massive",
        "massive",
        _MASSIVE_FILES,
        _dialogues("massive", *_MASSIVE_EN),
        main="1.1/data/en-US.jsonl",
    ),
    Layout(
        "massive in another locale",
        "massive",
        {"de-DE.jsonl": jsonl_bytes(_ZIEGE)},
        _dialogues("massive", *_MASSIVE_DE),
        {"locale": "de-DE"},
    ),
    Layout(
        "massive in all locales",
        "massive",
        _MASSIVE_FILES,
        _dialogues("massive", *_MASSIVE_DE, *_MASSIVE_EN),
        {"locale": "all"},
    ),
)

_FOLD_COLUMNS = ("answerid", "scenario", "intent", "answer_annotation", "answer_from_anno", "answer_from_user")
_FOLD_FILES = {
    "KFold_1/testset/csv/pets_feed.csv": csv_bytes(
        _FOLD_COLUMNS,
        ("null", "pets", "feed", "is the cat fed", "is the cat fed", "Is the cat fed?"),
        ("9", "pets", "feed", "feed my [pet : goat] at  [ time:noon]", "feed my goat at noon", "Feed my goat at 12"),
        delimiter=";",
    ),
    "KFold_1/trainset/pets_wash.csv": csv_bytes(
        _FOLD_COLUMNS, ("null", "pets", "wash", "wash [pet : the old dog]", "wash the old dog", ""), delimiter=";"
    ),
    "KFold_2/trainset/pets_feed.csv": csv_bytes(
        _FOLD_COLUMNS, ("null", "pets", "feed", "is the cat fed", "is the cat fed", "Is the cat fed?"), delimiter=";"
    ),
    "dialoglue_csv/train.csv": csv_bytes(("text", "category"), ("of another layout", "none")),
}

_HWU64_FOLDS = (
    Layout(
        "hwu64_kfold",
        "hwu64_kfold",
        _FOLD_FILES,
        _dialogues(
            "hwu64_kfold",
            ("KFold_1/testset/csv/pets_feed.csv/2", "test", (turn(USER, "is the cat fed", "pets_feed"),)),
            (
                "KFold_1/testset/csv/pets_feed.csv/3",
                "test",
                (turn(USER, "feed my goat at noon", "pets_feed", slots=[("pet", "goat"), ("time", "noon")]),),
            ),
            (
                "KFold_1/trainset/pets_wash.csv/2",
                "train",
                (turn(USER, "wash the old dog", "pets_wash", slots=[("pet", "the old dog")]),),
            ),
        ),
    ),
    Layout(
        "hwu64_kfold in another fold",
        "hwu64_kfold",
        _FOLD_FILES,
        _dialogues(
            "hwu64_kfold", ("KFold_2/trainset/pets_feed.csv/2", "train", (turn(USER, "is the cat fed", "pets_feed"),))
        ),
        {"fold": "2"},
        main="KFold_2/trainset/pets_feed.csv",
    ),
)


def _slot_gated(name: str, other: str) -> Layout:
    files = {
        f"data/{name}/test/seq.in": lines_bytes("feed the old  goat at noon ", "is it fed"),
        f"data/{name}/test/seq.out": lines_bytes("O O B-pet I-pet O I-time ", "O O O"),
        f"data/{name}/test/label": lines_bytes("Feed", "Ask#Feed"),
        f"data/{name}/train/seq.in": lines_bytes("cats dogs hens"),
        f"data/{name}/train/seq.out": lines_bytes("B-pet B-pet I-bird"),
        f"data/{name}/train/label": lines_bytes("Feed"),
        f"data/{other}/valid/seq.in": lines_bytes("of another data set"),
    }
    goat = turn(USER, "feed the old  goat at noon", "Feed", slots=[("pet", "old  goat"), ("time", "noon")])
    pets = turn(USER, "cats dogs hens", "Feed", slots=[("pet", "cats"), ("pet", "dogs"), ("bird", "hens")])
    expected = _dialogues(
        name,
        ("test/1", "test", (goat,)),
        ("test/2", "test", (turn(USER, "is it fed", "Ask#Feed"),)),
        ("train/1", "train", (pets,)),
    )
    return Layout(name, name, files, expected, main=f"data/{name}/train/seq.in")


_CLINC150 = (
    Layout(
        "clinc150",
        "clinc150",
        {
            "data/data_full.json": json_bytes(
                {
                    "oos_val": [["why is the sea salt", "oos"]],
                    "val": [["feed the goat", "feed_pet"], ["is it fed", "pet_status"]],
                    "train": [["wash the goat", "wash_pet"]],
                },
                indent=1,
            ),
            "data/data_small.json": json_bytes({"test": [["is it small", "size"]]}),
        },
        _dialogues(
            "clinc150",
            ("oos_val/1", "valid", (turn(USER, "why is the sea salt", "oos"),)),
            ("val/1", "valid", (turn(USER, "feed the goat", "feed_pet"),)),
            ("val/2", "valid", (turn(USER, "is it fed", "pet_status"),)),
            ("train/1", "train", (turn(USER, "wash the goat", "wash_pet"),)),
        ),
    ),
    Layout(
        "clinc150 in another form",
        "clinc150",
        {"data/data_small.json": json_bytes({"test": [["is it small", "size"]]})},
        _dialogues("clinc150", ("test/1", "test", (turn(USER, "is it small", "size"),))),
        {"form": "small"},
    ),
)

_RASA_NLU = b"""version: "3.1"
nlu:
- intent: feed_pet
  examples: |
    - feed the [goat](pet) at [noon]{"entity": "time", "role": "start"}
    - feed it

- synonym: goat
  examples: |
    - billy
- intent: faq/ask_name
  examples:
  - text: |
      what is the goat called?
    metadata: {sentiment: calm}
  - text: and the [hen](pet:chicken)?
- lookup: pet
  examples: |
    - cow
"""
_RASA_STORIES = b"""stories:
- story: names
  steps:
  - user: |
      what is the [goat](pet) called?
    intent: faq/ask_name
  - action: utter_faq
  - slot_was_set:
    - pet: goat
  - user: feed her
    intent: feed_pet
  - bot: She has hay now.
- story: only the last text is there
  steps:
  - intent: faq/ask_name
  - action: utter_faq
  - user: and the hen?
    intent: faq/ask_name
  - action: action_look_up
rules:
- rule: no text at all
  steps:
  - intent: feed_pet
  - action: utter_fed
"""
_RASA_DOMAIN = b"""intents: [feed_pet, faq]
responses:
  utter_faq/ask_name:
  - image: goat.png
  - text: "{pet} is called Dora."
  - text: Dora.
"""
_RASA = (
    Layout(
        "rasa",
        "rasa",
        {"data/nlu.yml": _RASA_NLU},
        _dialogues(
            "rasa",
            (
                "data/nlu.yml/1",
                None,
                (turn(USER, "feed the goat at noon", "feed_pet", slots=[("pet", "goat"), ("time.start", "noon")]),),
            ),
            ("data/nlu.yml/2", None, (turn(USER, "feed it", "feed_pet"),)),
            ("data/nlu.yml/3", None, (turn(USER, "what is the goat called?", "faq/ask_name"),)),
            ("data/nlu.yml/4", None, (turn(USER, "and the hen?", "faq/ask_name", slots=[("pet", "hen")]),)),
        ),
        left_out={"synonym sections": 1, "lookup sections": 1, "synonyms of entities": 1},
    ),
    Layout(
        "rasa stories with a domain",
        "rasa",
        {"domain.yml": _RASA_DOMAIN, "tests/test_stories.yml": _RASA_STORIES, "config.yml": b"language: en\n"},
        _dialogues(
            "rasa",
            (
                "tests/test_stories.yml/1",
                "test",
                (
                    turn(USER, "what is the goat called?", "faq/ask_name", slots=[("pet", "goat")]),
                    turn(SYSTEM, "{pet} is called Dora."),
                    turn(USER, "feed her", "feed_pet"),
                    turn(SYSTEM, "She has hay now."),
                ),
            ),
            ("tests/test_stories.yml/2", "test", (turn(USER, "and the hen?", "faq/ask_name"),)),
        ),
        left_out={
            "user steps without a text": 2,
            "actions without a text": 2,
            "bot texts of stories in which a user text is missing": 1,
        },
        main="tests/test_stories.yml",
    ),
)

_DIALOGFLOW = (
    Layout(
        "dialogflow ES",
        "dialogflow",
        {
            "agent.json": json_bytes({"language": "en"}),
            "entities/pet_entries_en.json": json_bytes([{"value": "goat"}]),
            "intents/feed_pet.json": json_bytes({"id": "i1", "name": "feed pet", "fallbackIntent": False}),
            "intents/feed_pet_usersays_en.json": json_bytes(
                [
                    {
                        "id": "p1",
                        "data": [
                            {"text": "feed the ", "userDefined": False},
                            {"text": "old goat", "alias": "pet", "meta": "@pet", "userDefined": True},
                            {"text": " now"},
                        ],
                        "isTemplate": False,
                        "count": 0,
                    },
                    {"id": "p2", "data": [{"text": "give it hay"}], "count": 2},
                ],
                indent=1,
            ),
            "intents/fallback.json": json_bytes({"id": "i2", "name": "fallback", "fallbackIntent": True}),
            "intents/fallback_usersays_en.json": json_bytes(
                [
                    {"id": "p3", "data": [{"text": "paint the goat"}], "isTemplate": False},
                    {"id": "p4", "data": [{"text": "@pet:pet"}], "isTemplate": True},
                ]
            ),
        },
        _dialogues(
            "dialogflow",
            ("intents/fallback_usersays_en.json/p3", None, (turn(USER, "paint the goat", "out_of_scope"),)),
            (
                "intents/feed_pet_usersays_en.json/p1",
                None,
                (turn(USER, "feed the old goat now", "feed pet", slots=[("pet", "old goat")]),),
            ),
            ("intents/feed_pet_usersays_en.json/p2", None, (turn(USER, "give it hay", "feed pet"),)),
        ),
        left_out={"template phrases": 1},
        main="intents/feed_pet_usersays_en.json",
    ),
    Layout(
        "dialogflow CX in one of two languages",
        "dialogflow",
        {
            "intents/feed/feed.json": json_bytes({"name": "0-0", "displayName": "feed", "isFallback": False}),
            "intents/feed/trainingPhrases/de.json": json_bytes(
                {"trainingPhrases": [{"parts": [{"text": "ein Schaf"}], "repeatCount": 1, "languageCode": "de"}]}
            ),
            "intents/feed/trainingPhrases/en.json": json_bytes(
                {
                    "trainingPhrases": [
                        {
                            "parts": [{"text": "hay for ", "auto": True}, {"text": "two", "parameterId": "number"}],
                            "repeatCount": 1,
                            "languageCode": "en",
                        }
                    ]
                }
            ),
            "intents/none/none.json": json_bytes({"name": "0-1", "displayName": "none", "isFallback": True}),
            "intents/none/trainingPhrases/en.json": json_bytes(
                {"trainingPhrases": [{"id": "t1", "parts": [{"text": "sing"}], "repeatCount": 1, "languageCode": "en"}]}
            ),
        },
        _dialogues(
            "dialogflow",
            (
                "intents/feed/trainingPhrases/en.json/1",
                None,
                (turn(USER, "hay for two", "feed", slots=[("number", "two")]),),
            ),
            ("intents/none/trainingPhrases/en.json/t1", None, (turn(USER, "sing", "out_of_scope"),)),
        ),
        {"language": "en"},
        main="intents/feed/trainingPhrases/en.json",
    ),
)

_LEX = (
    Layout(
        "lex V2",
        "lex",
        {
            "manifest.json": json_bytes({"metadata": {"schemaVersion": "1.0"}}),
            "Farm/Bot.json": json_bytes({"name": "Farm"}),
            "Farm/BotLocales/en_GB/Intents/Feed/Intent.json": json_bytes(
                {
                    "name": "Feed",
                    "sampleUtterances": [{"utterance": "feed the {Pet}"}, {"utterance": "give them hay"}],
                },
                indent=1,
            ),
            "Farm/BotLocales/en_GB/Intents/Feed/Slots/Pet/Slot.json": json_bytes({"name": "Pet"}),
            "Farm/BotLocales/en_GB/Intents/FallbackIntent/Intent.json": json_bytes(
                {"name": "FallbackIntent", "sampleUtterances": None}
            ),
        },
        _dialogues(
            "lex",
            ("Farm/BotLocales/en_GB/Intents/Feed/Intent.json/Feed/1", None, (turn(USER, "feed the {Pet}", "Feed"),)),
            ("Farm/BotLocales/en_GB/Intents/Feed/Intent.json/Feed/2", None, (turn(USER, "give them hay", "Feed"),)),
        ),
        left_out={"intents without sample utterances": 1},
        facts={"utterances with placeholders of slots, kept as written": 1},
        main="Farm/BotLocales/en_GB/Intents/Feed/Intent.json",
    ),
    Layout(
        "lex V1",
        "lex",
        {
            "farm.json": json_bytes(
                {
                    "metadata": {"schemaVersion": "1.0", "importType": "LEX"},
                    "resource": {
                        "name": "Farm",
                        "intents": [
                            {"name": "Feed", "sampleUtterances": ["feed them"], "slots": []},
                            {"name": "Wash", "sampleUtterances": ["wash the {Pet}"]},
                        ],
                    },
                }
            )
        },
        _dialogues(
            "lex",
            ("farm.json/Feed/1", None, (turn(USER, "feed them", "Feed"),)),
            ("farm.json/Wash/1", None, (turn(USER, "wash the {Pet}", "Wash"),)),
        ),
        facts={"utterances with placeholders of slots, kept as written": 1},
    ),
)

_LUIS = (
    Layout(
        "luis",
        "luis",
        {
            "app.json": json_bytes(
                {
                    "luis_schema_version": "7.0.0",
                    "name": "Farm",
                    "intents": [{"name": "None"}, {"name": "Feed"}],
                    "utterances": [
                        {
                            "text": "\U0001f410 feed the goat",
                            "intent": "Feed",
                            "entities": [{"entity": "pet", "startPos": 12, "endPos": 15}],
                        },
                        {"text": "paint the goat", "intent": "None", "entities": []},
                    ],
                    "patterns": [{"pattern": "feed {pet}", "intent": "Feed"}],
                },
                indent=1,
            )
        },
        _dialogues(
            "luis",
            ("app.json/1", None, (turn(USER, "\U0001f410 feed the goat", "Feed", slots=[("pet", "goat")]),)),
            ("app.json/2", None, (turn(USER, "paint the goat", "out_of_scope"),)),
        ),
        left_out={"patterns": 1},
    ),
    Layout(
        "luis, a CLU project",
        "luis",
        {
            "project.json": json_bytes(
                {
                    "projectFileVersion": "2022-10-01-preview",
                    "stringIndexType": "Utf16CodeUnit",
                    "metadata": {"projectKind": "Conversation"},
                    "assets": {
                        "intents": [{"category": "Feed"}],
                        "utterances": [
                            {
                                "text": "feed the hen",
                                "intent": "Feed",
                                "language": "en",
                                "dataset": "Train",
                                "entities": [{"category": "pet", "offset": 9, "length": 3}],
                            },
                            {"text": "sing", "intent": "None", "language": "en", "dataset": "Test", "entities": []},
                        ],
                    },
                }
            )
        },
        _dialogues(
            "luis",
            ("project.json/1", "train", (turn(USER, "feed the hen", "Feed", slots=[("pet", "hen")]),)),
            ("project.json/2", "test", (turn(USER, "sing", "out_of_scope"),)),
        ),
    ),
)

#: Threads of five turns behind which there is a short one, of three, of two, and of nobody; a line has no link.
_IRC_LOG = lines_bytes(
    "=== dora [~dora@host] has joined #ubuntu",
    "[10:00] <dora> my screen stays black",
    "[10:01] <ann> which card do you have?",
    "[10:01] <bob> is anybody awake tonight?",
    "[10:02] <dora> Ann: some old one",
    "[10:02] <dora> ann, wait, I will look",
    "[10:03]  * ann waits for the answer",
    "[10:03] <cid> bob: most of us are",
    "[10:04] <dora> http://example.org: it is this one",
    "[10:05] <ann> thanks",
    "[10:06] <bob> good, then to my question",
    "[10:07] <eve> my mouse is slow",
    "[10:08] <fay> mine is fast, eve",
    "[10:09] <eve> nobody answers this",
    "-spam:#ubuntu- buy now",
    "[10:09] <fay> ",
)
_IRC_LINKS = lines_bytes(
    *(
        "0 0 -",
        "1 1 -",
        "1 2 -",
        "2 4 -",
        "4 5 -",
        "5 6 -",
        "6 8 -",
        "8 9 -",
        "3 3 -",
        "3 7 -",
        "7 10 -",
        "11 12 -",
        "14 15 -",
    )
)
_IRC = Layout(
    "irc_disentanglement",
    "irc_disentanglement",
    {
        "data/train/2004-12-25.ascii.txt": _IRC_LOG,
        "data/train/2004-12-25.annotation.txt": _IRC_LINKS,
        "data/dev/2005-01-01_02.ascii.txt": lines_bytes(
            "[01:00] <a> late?", "[01:01] <b> a bit", "[01:02] <a> then sleep well, all"
        ),
        "data/dev/2005-01-01_02.annotation.txt": lines_bytes("0 1 -", "1 2 -"),
        "data/channel-two/other.ascii.txt": lines_bytes("[01:00] <a> of another channel"),
        "data/channel-two/other.annotation.txt": lines_bytes("0 0 -"),
    },
    _dialogues(
        "irc_disentanglement",
        (
            "dev/2005-01-01_02/0",
            "valid",
            (turn(ONE, "late?"), turn(TWO, "a bit"), turn(SYSTEM, "then sleep well, all")),
        ),
        (
            "train/2004-12-25/1",
            "train",
            (
                turn(ONE, "my screen stays black"),
                turn(TWO, "which card do you have?"),
                turn(ONE, "some old one wait, I will look"),
                turn(TWO, "waits for the answer"),
                turn(SYSTEM, "http://example.org: it is this one"),
            ),
        ),
        (
            "train/2004-12-25/3",
            "train",
            (
                turn(ONE, "is anybody awake tonight?"),
                turn(TWO, "most of us are"),
                turn(SYSTEM, "good, then to my question"),
            ),
        ),
    ),
    left_out={"turns of three words or fewer at a thread's end": 1, "threads of fewer than three turns": 1},
    main="data/train/2004-12-25.ascii.txt",
)

LAYOUTS = (
    *_LOGS,
    _JSON_PATHS,
    _SLACK,
    *_TEAMS,
    _DISCORD,
    *_WHATSAPP,
    *_TELEGRAM,
    *_RASA,
    *_DIALOGFLOW,
    *_LEX,
    *_LUIS,
    *_TICKETS,
    *_RESPONSES,
    *_LABELLED_RESPONSES,
    *_QUESTIONS,
    *_NLI,
    *_AUTHORED,
    _SGD,
    *_MULTIWOZ,
    _KVRET,
    _WOZ2,
    _CAMREST,
    _STAR,
    *_TASKMASTER,
    _TASKMASTER3,
    _MSR,
    _FRAMES,
    _METALWOZ,
    *_SELF_DIALOGUE,
    _CHITCHAT,
    _CASINO,
    _DAILY,
    _TOPICAL,
    *_DSTC2,
    *_GSIM,
    _CORNELL,
    *_PERSONA,
    *_ABCD,
    _CCPE,
    _REDDIT,
    _IRC,
    *_MASSIVE,
    *_HWU64_FOLDS,
    _slot_gated("snips", "atis"),
    _slot_gated("atis", "snips"),
    *_CLINC150,
)

#: The layout of each reader that `test_malformed` damages.
BASES = {layout.reader: layout for layout in reversed(LAYOUTS)}
