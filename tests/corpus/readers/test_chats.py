"""Tests the readers of chat exports: Slack, Teams, Discord, WhatsApp and Telegram."""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.layouts import BASES, json_bytes, lay_out, lines_bytes
from tests.helpers.outcomes import Outcome
from tests.helpers.reading import read_directly, utterances, zip_up
from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.readers.shared import chat_exports
from turnwise.corpus.readers.shared import files as shared_files
from turnwise.corpus.registry import READERS

CHATS = (
    "slack",
    "teams",
    "discord",
    "whatsapp",
    "telegram",
    "messenger",
    "mattermost",
    "rocketchat",
    "kakaotalk",
    "zoom",
    "discourse",
    "gitter",
)
JSON_CHATS = tuple(reader for reader in CHATS if reader not in ("whatsapp", "kakaotalk", "zoom"))

#: 10:03 on 5 January 2024, and lengths of time in seconds.
START = 1704448980
MINUTE, HOUR, DAY = 60, 3600, 86400


def texts(outcome: Outcome) -> dict[str, list[str]]:
    return {dialogue.id: [turn.text for turn in dialogue.turns] for dialogue in outcome.dialogues}


# ---- Slack


def slack(text: Any, seconds: float = 0, user: str | None = "U1", **more: Any) -> dict[str, Any]:
    return {"type": "message", "user": user, "text": text, "ts": f"{START + seconds:.6f}", **more}


def slack_export(folder: Path, *messages: Any, **other: Any) -> Path:
    users = [
        {"id": "U1", "name": "anna", "profile": {"display_name": "Anna", "real_name": "Anna Example"}},
        {"id": "U2", "name": "ben", "real_name": "Ben Example", "profile": {"display_name": ""}},
    ]
    files = {
        "users.json": users,
        "channels.json": [{"id": "C1", "name": "bakery"}],
        "general/2024-01-05.json": messages,
    }
    return lay_out(folder, {name: json_bytes(content) for name, content in (files | other).items()})


def test_slack_thread_is_a_dialogue_however_long_it_takes(tmp_path: Path, try_import: Callable):
    root = f"{START + MINUTE:.6f}"
    folder = slack_export(
        tmp_path / "in",
        slack("Before"),
        slack("Who waters the plants?", MINUTE, thread_ts=root, reply_count=2),
        slack("After", 2 * MINUTE, "U2"),
        **{
            "general/2024-01-09.json": [
                slack("Thanks!", 4 * DAY, thread_ts=root),
                slack("I do.", 3 * DAY, "U2", thread_ts=root, subtype="thread_broadcast"),
            ]
        },
    )
    assert texts(try_import("slack", folder)) == {
        "general/2024-01-05T10:03:00": ["Before", "After"],
        f"general/{root}": ["Who waters the plants?", "I do.", "Thanks!"],
    }


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Hi <@U2> and <@U1>!", "Hi @Ben Example and @Anna!"),
        ("<@U9|zoe> and <@U8>", "@zoe and @U8"),
        ("in <#C1> or <#C1|> or <#C2|kitchen> or <#C3>", "in #bakery or #bakery or #kitchen or #C3"),
        ("<!here> <!subteam^S1|@bakers> <!date^1^{date}|5 May> <!channel>", "@here @bakers 5 May @channel"),
        ("see <https://example.com/a?b=1&amp;c=2>", "see https://example.com/a?b=1&c=2"),
        ("see <https://example.com|our page>", "see our page"),
        ("a &lt; b &amp;&amp; b &gt; c &amp;lt;", "a < b && b > c &lt;"),
        ("1 < 2", "1 < 2"),
        ("Brot 🥖 für <@U1>", "Brot 🥖 für @Anna"),
    ],
)
def test_slack_markup_becomes_plain_text(text: str, plain: str, tmp_path: Path, try_import: Callable):
    outcome = try_import("slack", slack_export(tmp_path / "in", slack(text)))
    assert list(texts(outcome).values()) == [[plain]]


def test_slack_names_come_from_the_list_the_message_or_the_id(tmp_path: Path, try_import: Callable):
    folder = slack_export(
        tmp_path / "in",
        slack("1", 1, "U1"),
        slack("2", 2, "U2"),
        slack("3", 3, "U3", user_profile={"display_name": "", "real_name": "Zoë"}),
        slack("4", 4, "U4"),
    )
    speakers = {"anna": "system", "Ben Example": "user", "ZOË": "speaker_3", "u4": "speaker_4"}
    (dialogue,) = try_import("slack", folder, speakers=speakers).dialogues
    assert [turn.speaker for turn in dialogue.turns] == ["system", "user", "speaker_3", "speaker_4"]


def test_slack_events_leave_no_hole_but_files_and_deleted_messages_do(tmp_path: Path, try_import: Callable):
    folder = slack_export(
        tmp_path / "in",
        slack("One"),
        slack("<@U2> has joined the channel", 1, "U2", subtype="channel_join"),
        slack("set the topic", 2, subtype="channel_topic"),
        slack("Two", 3, subtype="me_message"),
        slack("", 4, files=[{"id": "F1"}]),
        slack("Three", 5, files=[{"id": "F2"}]),
        slack("This message was deleted.", 6, "USLACKBOT", subtype="tombstone"),
        slack("Four", 7),
    )
    outcome = try_import("slack", folder)
    assert list(texts(outcome).values()) == [["One", "Two"], ["Three"], ["Four"]]
    assert texts(try_import("slack", folder, bots="skip")) == texts(outcome)
    assert outcome.rejected == ()
    assert outcome.manifest["left_out"] == {
        "channel_join events": 1,
        "channel_topic events": 1,
        "files without text": 1,
        "deleted messages": 1,
    }


def test_slack_bots_are_the_system_or_skipped(tmp_path: Path, try_import: Callable):
    folder = slack_export(
        tmp_path / "in",
        slack("Is it built?"),
        slack("Build passed", 1, None, subtype="bot_message", bot_id="B1", username="builder"),
        slack("Deployed", 2, "U7", bot_id="B2"),
        slack("Great", 3),
    )
    outcome = try_import("slack", folder)
    assert [turn.speaker for turn in outcome.dialogues[0].turns] == ["speaker_1", "system", "system", "speaker_1"]
    outcome = try_import("slack", folder, bots="skip")
    assert list(texts(outcome).values()) == [["Is it built?", "Great"]]
    assert outcome.manifest["left_out"] == {"messages of bots": 2}
    with pytest.raises(CorpusError, match="bots must be 'system' or 'skip'"):
        import_corpus("slack", folder, tmp_path / "out", bots="human")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (None, "the message is a NoneType, not an object"),
        ({"user": "U1", "text": "no type", "ts": "1"}, "'type' is missing"),
        ({"type": "message", "user": "U1", "text": "no time"}, "'ts' is missing"),
        (slack("wrong time", ts="soon"), "cannot parse the time 'soon'"),
        (slack("too late", ts="1e30"), "is not between 1970 and 9999"),
        (slack(["a", "list"], 1), "'text' is a list, not a string"),
        (slack("nobody", 1, None), "'user' is missing"),
        (slack("wrong thread", 1, thread_ts=5), "'thread_ts' is a int, not a string"),
    ],
)
def test_slack_unreadable_message_is_rejected_alone(message: Any, reason: str, tmp_path: Path, try_import: Callable):
    """Its conversation is not known, so the dialogues around it are split there."""
    outcome = try_import("slack", slack_export(tmp_path / "in", slack("Hi"), message, slack("Bye", 2)))
    assert list(texts(outcome).values()) == [["Hi"], ["Bye"]]
    (rejection,) = outcome.rejected
    assert reason in rejection["reason"]
    assert (rejection["file"], rejection["line"]) == ("general/2024-01-05.json", 1)


def test_slack_invalid_user_costs_the_name_only(tmp_path: Path, try_import: Callable):
    users = [5, {"id": "U1"}, {"name": "no id"}, {"id": "U2", "profile": "none"}]
    folder = slack_export(tmp_path / "in", slack("Hi <@U1>"), **{"users.json": users})
    outcome = try_import("slack", folder)
    assert list(texts(outcome).values()) == [["Hi @U1"]]
    assert {rejection["file"] for rejection in outcome.rejected} == {"users.json"}
    assert len(outcome.rejected) == 3


def test_slack_zip_reads_like_its_folder(tmp_path: Path, try_import: Callable):
    layout = BASES["slack"]
    folder = lay_out(layout.write(tmp_path / "in"), {"kitchen/2024-01-05.json": "[5]", "__MACOSX/2024-01-05.json": "x"})
    outcome = try_import("slack", zip_up(folder, tmp_path / "export.zip"))
    assert outcome.dialogues == layout.expected
    assert [rejection["file"] for rejection in outcome.rejected] == ["kitchen/2024-01-05.json"]
    assert "users.json" in {file["name"] for file in outcome.manifest["inputs"]}


def test_slack_one_channel(tmp_path: Path, try_import: Callable):
    folder = slack_export(tmp_path / "in", slack("Hi")) / "general"
    ids = ["general/2024-01-05T10:03:00"]
    assert list(texts(try_import("slack", folder))) == ids
    assert list(texts(try_import("slack", folder / "2024-01-05.json"))) == ids
    assert list(texts(try_import("slack", zip_up(folder, tmp_path / "general.zip")))) == ids


@pytest.mark.parametrize("reader", [*CHATS, "dialogflow", "lex"])
def test_zip_file_that_cannot_be_used(reader: str, tmp_path: Path, try_import: Callable):
    damaged = lay_out(tmp_path, {"damaged.zip": b"PK\x03\x04 and no more"}) / "damaged.zip"
    assert "unpack it with another program" in try_import(reader, damaged).error
    other = zip_up(lay_out(tmp_path / "photos", {"cat.jpg": b"\xff\xd8"}), tmp_path / "photos.zip")
    error = try_import(reader, other).error
    assert f"{other} contains no such file: expected" in error


def test_zip_members_stay_inside_the_temporary_folder(tmp_path: Path, try_import: Callable):
    archive = tmp_path / "chats.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../../outside.txt", "31/12/23, 21:41 - Anna: Hi\n")
    assert list(texts(try_import("whatsapp", archive)).values()) == [["Hi"]]
    assert not list(tmp_path.parent.rglob("outside.txt"))


def test_an_archive_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, try_import: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "chat.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("_chat.txt", "31/12/23, 21:41 - Anna: Hi\n" + " " * 5_000_000)
    monkeypatch.setattr(shared_files, "_HARMLESS", 1_000_000)
    assert "times its size: if that is right, set TURNWISE_UNPACKED_GB=1" in try_import("whatsapp", archive).error
    monkeypatch.setenv("TURNWISE_UNPACKED_GB", "1")
    assert list(texts(try_import("whatsapp", archive)).values()) == [["Hi"]]


def test_what_a_killed_process_unpacked_is_removed(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left, used = (tmp_path / f"store/.writing-temporary-{number}-x" for number in (int(ended.stdout), os.getpid()))
    left.mkdir(parents=True)
    used.mkdir()
    with zipfile.ZipFile(tmp_path / "chat.zip", "w") as file:
        file.writestr("_chat.txt", "31/12/23, 21:41 - Anna: Hi\n")
    import_corpus("whatsapp", tmp_path / "chat.zip", tmp_path / "store", limit=1)
    assert used.is_dir() and not left.exists()


# ---- pauses


def test_chat_is_split_at_pauses(tmp_path: Path, try_import: Callable):
    """Exactly the pause does not split; the times of threads and of messages without text do not count."""
    folder = slack_export(
        tmp_path / "in",
        slack("One"),
        slack("Two", 6 * HOUR),
        slack("Three", 12 * HOUR + 1),
        slack("", 13 * HOUR),
        slack("Four", 19 * HOUR),
    )
    assert texts(try_import("slack", folder, holes="keep")) == {
        "general/2024-01-05T10:03:00": ["One", "Two"],
        "general/2024-01-05T22:03:01": ["Three"],
        "general/2024-01-06T05:03:00": ["Four"],
    }
    assert texts(try_import("slack", folder, holes="keep", pause=0.0)) == {"general": ["One", "Two", "Three", "Four"]}
    assert len(try_import("slack", folder, pause=5.9).dialogues) == 4
    assert len(try_import("slack", folder, pause=8.0).dialogues) == 2  # split at the message without text


@pytest.mark.parametrize("reader", [it for it in CHATS if "pause" in READERS[it].options])
def test_pause_must_be_a_number_of_hours(reader: str, tmp_path: Path):
    folder = BASES[reader].write(tmp_path / "in")
    for pause in (-1.0, float("nan")):
        with pytest.raises(CorpusError, match="pause must be a number of hours"):
            import_corpus(reader, folder, tmp_path / "out", pause=pause)
    assert READERS[reader].parse_options([("pause", "1.5")]) == {"pause": 1.5}
    with pytest.raises(CorpusError, match="pause must be a number, got 'long'"):
        READERS[reader].parse_options([("pause", "long")])


def test_ids_stay_the_same_when_an_export_grows(tmp_path: Path, try_import: Callable):
    messages = [slack(str(number), number * 5 * HOUR + number % 3 * 2 * HOUR) for number in range(12)]
    before = try_import("slack", slack_export(tmp_path / "before", *messages[:7]))
    after = try_import("slack", slack_export(tmp_path / "after", *messages))
    assert len(before.dialogues) > 2
    assert len(after.dialogues) > len(before.dialogues)
    assert before.dialogues[:-1] == after.dialogues[: len(before.dialogues) - 1]
    assert before.dialogues[-1].id in texts(after)


def test_copies_in_overlapping_exports_are_left_out(tmp_path: Path, try_import: Callable):
    layout = BASES["discord"]
    folder = lay_out(layout.write(tmp_path / "in"), {"again.json": layout.content})
    outcome = try_import("discord", folder)
    assert outcome.dialogues == layout.expected
    assert outcome.manifest["left_out"]["copies of messages"] == 3


def test_copies_are_recognised_in_a_chat_of_many_days(tmp_path: Path, try_import: Callable):
    messages = [slack(str(number), number * 5 * HOUR) for number in range(60)]
    folder = slack_export(tmp_path / "in", *messages, **{"general/2024-01-06.json": messages})
    outcome = try_import("slack", folder)
    assert texts(outcome) == {"general/2024-01-05T10:03:00": [str(number) for number in range(60)]}
    assert outcome.manifest["left_out"]["copies of messages"] == 60


def test_a_chat_without_pauses_is_divided(tmp_path: Path, try_import: Callable, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chat_exports, "_MAX_MESSAGES", 3)
    folder = slack_export(tmp_path / "in", *(slack(str(number), number * HOUR) for number in (0, 1, 2, 3, 4, 5, 24)))
    outcome = try_import("slack", folder)
    assert texts(outcome) == {
        "general/2024-01-05T10:03:00": ["0", "1", "2"],
        "general/2024-01-05T13:03:00": ["3", "4", "5"],
        "general/2024-01-06T10:03:00": ["24"],
    }
    assert outcome.manifest["facts"]["sessions divided after 10,000 messages"] == 1
    assert [len(dialogue.turns) for dialogue in try_import("slack", folder, pause=0.0).dialogues] == [7]


# ---- Teams


def graph(content: str, identity: str = "1", minutes: int = 0, name: str = "Anna", **more: Any) -> dict[str, Any]:
    return {
        "id": identity,
        "messageType": "message",
        "createdDateTime": f"2024-01-05T10:{minutes:02}:00Z",
        "from": {"user": {"displayName": name}},
        "body": {"contentType": "html", "content": content},
        "chatId": "19:chat",
        **more,
    }


def teams_export(folder: Path, *messages: Any) -> Path:
    return lay_out(folder, {"page.json": json_bytes({"value": messages})})


def test_teams_events_leave_no_hole_but_deleted_messages_do(tmp_path: Path, try_import: Callable):
    folder = teams_export(
        tmp_path / "in",
        graph("Hi", "1", 1),
        graph("<systemEventMessage/>", "2", 2, messageType="systemEventMessage", **{"from": None}),
        graph("Ho", "3", 3, "Ben"),
        graph("", "4", 4, deletedDateTime="2024-01-05T11:00:00Z"),
        graph("Hm", "5", 5),
        graph('<attachment id="7"></attachment>', "6", 6, attachments=[{"id": "7"}]),
        graph("Bye &amp; <b>thanks</b>", "7", 7, body={"contentType": "text", "content": "Bye &amp; <b>thanks</b>"}),
    )
    outcome = try_import("teams", folder)
    assert list(texts(outcome).values()) == [["Hi", "Ho"], ["Hm"], ["Bye &amp; <b>thanks</b>"]]
    assert outcome.manifest["left_out"] == {
        "systemEventMessage events": 1,
        "deleted messages": 1,
        "attachments without text": 1,
    }


def test_teams_replies_may_be_inside_their_post(tmp_path: Path, try_import: Callable):
    channel = {"chatId": None, "channelIdentity": {"teamId": "t", "channelId": "19:c"}}
    robot = {"application": {"displayName": "Robot"}, "user": None}
    replies = [
        graph("First", "2", 2, replyToId="1", **channel, **{"from": robot}),
        graph("Second", "3", 3, "Ben", replyToId="1", **channel),
        5,
    ]
    post = graph("Question", "1", 1, replyToId=None, replies=replies, **channel)
    content = json_bytes([post, graph("Alone", "9", 9, **channel)])
    outcome = try_import("teams", lay_out(tmp_path / "in", {"posts.json": content}))
    assert {dialogue.id: utterances(dialogue) for dialogue in outcome.dialogues} == {
        "19:c/1": [("speaker_1", "Question"), ("system", "First"), ("speaker_2", "Second")],
        "19:c/9": [("speaker_1", "Alone")],
    }
    assert outcome.reasons == ["not the expected layout: the message is a int, not an object"]


def personal(content: str | None, minutes: int, kind: str = "RichText", **more: Any) -> dict[str, Any]:
    time = f"2024-01-05T10:{minutes:02}:00.000Z"
    message = {"id": str(minutes), "displayName": None, "from": "8:anna", "content": content, "messagetype": kind}
    return message | {"originalarrivaltime": time} | more


def test_teams_personal_export(tmp_path: Path, try_import: Callable):
    messages = [
        personal("Bye", 9, "RichText/Html"),
        personal("", 8, properties={"deletetime": "1"}),
        personal("<b>Beep</b>", 7, "RichText", **{"from": "28:robot"}),
        personal("<URIObject>photo</URIObject>", 6, "RichText/UriObject"),
        personal("a < b", 5, "Text"),
        personal("<partlist/>", 4, "Event/Call"),
        personal("<addmember/>", 3, "ThreadActivity/AddMember"),
        personal("Hi", 2),
    ]
    record = {"id": "19:group", "displayName": "Us", "MessageList": messages}
    content = json_bytes({"userId": "8:anna", "conversations": [record, {"id": "19:none", "MessageList": None}]})
    outcome = try_import("teams", lay_out(tmp_path / "in", {"messages.json": content}))
    assert [utterances(dialogue) for dialogue in outcome.dialogues] == [
        [("speaker_1", "Hi"), ("speaker_1", "a < b")],
        [("system", "Beep")],
        [("speaker_1", "Bye")],
    ]
    assert outcome.manifest["left_out"] == {
        "deleted messages": 1,
        "RichText/UriObject messages": 1,
        "Event/Call events": 1,
        "ThreadActivity/AddMember events": 1,
    }
    assert outcome.reasons == ["not the expected layout: 'MessageList' is a NoneType, not a list"]


# ---- Discord


def discord(content: str, identity: str, seconds: int = 0, name: str = "anna", **more: Any) -> dict[str, Any]:
    message = {"id": identity, "type": "Default", "timestamp": START + seconds, "content": content}
    return message | {"author": {"id": f"a-{name}", "name": name, "isBot": name == "robot"}} | more


def discord_file(*messages: Any, identity: str = "41", kind: str = "GuildTextChat") -> bytes:
    return json_bytes({"channel": {"id": identity, "type": kind}, "messages": messages, "messageCount": 0})


def test_discord_parts_of_a_channel_are_put_together(tmp_path: Path, try_import: Callable):
    files = {
        "c [part 2].json": discord_file(discord("Second", "2", MINUTE)),
        "c.json": discord_file(discord("First", "1")),
        "empty.json": discord_file(identity="50"),
    }
    outcome = try_import("discord", lay_out(tmp_path / "in", files))
    assert texts(outcome) == {"41/2024-01-05T10:03:00": ["First", "Second"]}
    assert outcome.rejected == ()


@pytest.mark.parametrize("kind", ["GuildPublicThread", "GuildPrivateThread", "GuildNewsThread"])
def test_discord_thread_is_one_dialogue(kind: str, tmp_path: Path, try_import: Callable):
    content = discord_file(discord("Why?", "1"), discord("Because.", "2", 9 * DAY, "ben"), kind=kind)
    assert texts(try_import("discord", lay_out(tmp_path / "in", {"t.json": content}))) == {"41": ["Why?", "Because."]}


def test_discord_events_leave_no_hole_but_messages_without_text_do(tmp_path: Path, try_import: Callable):
    content = discord_file(
        discord("One", "1"),
        discord("Pinned a message.", "2", 1, type="ChannelPinnedMessage"),
        discord("Started a call.", "3", 2, type="Call"),
        discord("Two", "4", 3, type="Reply", reference={"messageId": "1"}),
        discord("", "5", 4, attachments=[{"id": "7"}]),
        discord("Three", "6", 5, attachments=[{"id": "8"}]),
        discord("", "7", 6, stickers=[{"id": "9"}]),
        discord("Four", "8", 7, "robot", type="20"),
        discord(" ", "9", 8),
    )
    folder = lay_out(tmp_path / "in", {"c.json": content})
    outcome = try_import("discord", folder)
    assert list(texts(outcome).values()) == [["One", "Two"], ["Three"], ["Four"]]
    assert outcome.dialogues[-1].turns[0].speaker == "system"
    assert outcome.manifest["left_out"] == {
        "ChannelPinnedMessage events": 1,
        "Call events": 1,
        "attachments without text": 1,
        "stickers": 1,
        "messages without text": 1,
    }
    assert "Four" not in str(texts(try_import("discord", folder, bots="skip")))


# ---- Telegram


def telegram(text: Any, identity: int, seconds: int = 0, **more: Any) -> dict[str, Any]:
    message = {"id": identity, "type": "message", "date_unixtime": str(START + seconds), "text": text}
    return message | {"from": "Anna", "from_id": "user1"} | more


def telegram_export(folder: Path, *messages: Any) -> Path:
    chat = {"name": "Bakers", "type": "private_supergroup", "id": 77, "messages": messages}
    return lay_out(folder, {"result.json": json_bytes(chat)})


def test_telegram_service_lines_leave_no_hole_but_media_do(tmp_path: Path, try_import: Callable):
    folder = telegram_export(
        tmp_path / "in",
        telegram("One", 1),
        {"id": 2, "type": "service", "action": "phone_call", "text": "", "date": "2024-01-05T10:04:00"},
        {"id": 3, "type": "service", "action": "pin_message", "text": "", "date": "2024-01-05T10:04:00"},
        telegram("Two", 4, 2, photo="(File not included.)"),
        telegram("", 5, 3, photo="photos/1.jpg"),
        telegram("Three", 6, 4),
        telegram("", 7, 5, media_type="sticker", file="s.webp", sticker_emoji="🙂"),
        telegram("", 8, 6, media_type="voice_message", file="v.ogg"),
        telegram("", 9, 7, poll={"question": "?"}),
        telegram(["Fo", {"type": "bold", "text": "ur"}], 10, 8),
    )
    outcome = try_import("telegram", folder)
    assert list(texts(outcome).values()) == [["One", "Two"], ["Three"], ["Four"]]
    assert outcome.manifest["left_out"] == {
        "phone_call events": 1,
        "pin_message events": 1,
        "photos": 1,
        "stickers": 1,
        "voice messages": 1,
        "polls": 1,
    }


def test_telegram_topics_are_chats_of_their_own(tmp_path: Path, try_import: Callable):
    folder = telegram_export(
        tmp_path / "in",
        {"id": 1, "type": "service", "action": "topic_created", "title": "Rye", "date": "2024-01-05T10:00:00"},
        telegram("In the topic", 2, 1, reply_to_message_id=1),
        telegram("Outside", 3, 2),
        telegram("A reply in the topic", 4, 3, reply_to_message_id=2),
        telegram("A reply outside", 5, 4, reply_to_message_id=3),
    )
    assert texts(try_import("telegram", folder)) == {
        "77/2024-01-05T10:03:02": ["Outside", "A reply outside"],
        "77/1/2024-01-05T10:03:01": ["In the topic", "A reply in the topic"],
    }


def test_telegram_deleted_accounts_and_older_dates(tmp_path: Path, try_import: Callable):
    """A deleted account has no name, but an id; older versions give the time without a zone only."""
    folder = telegram_export(
        tmp_path / "in",
        telegram("Hi", 1, date_unixtime=None, date="2024-01-05T10:03:00"),
        telegram("Ho", 2, 9, **{"from": None, "from_id": "user2"}),
        telegram("Hm", 3, 10, **{"from": None, "from_id": None}),
    )
    outcome = try_import("telegram", folder, speakers={"user2": "system"})
    assert [utterances(dialogue) for dialogue in outcome.dialogues] == [[("speaker_1", "Hi"), ("system", "Ho")]]
    assert outcome.reasons == ["not the expected layout: 'from' is missing"]


# ---- WhatsApp


def whatsapp(folder: Path, *lines: str, name: str = "_chat.txt") -> Path:
    return lay_out(folder, {name: lines_bytes(*lines)})


@pytest.mark.parametrize(
    "header",
    [
        *("12/31/23, 9:41\u202fPM - ", "12/31/23, 9:41 PM - ", "[12/31/23, 9:41:05 PM] "),
        *("\u200e[12/31/23, 9:41:05\u202fPM] ", "[31.12.23, 21:41:05] ", "31.12.23, 21:41 - "),
        *("31/12/2023, 21:41 - ", "31/12/23, 9:41 pm - ", "31/12/23 9:41 p.\xa0m. - ", "31-12-2023 21:41 - "),
        *("2023-12-31 21:41 - ", "[2023-12-31, 9:41:05 PM] ", "2023/12/31, 21:41 - ", "31. 12. 2023 21:41 - "),
        *("[31.12.2023 klo 21.41.05] ", "31.12.2023 kl. 21.41 - ", "21:41, 31/12/2023 - ", "9:41 CH, 31/12/2023 - "),
        *("31/12/2566 21:41 - ", "[31/12/66 21:41:05] ", "[R5/12/31 21:41:05] ", "2023/12/31 下午9:41 - "),
        *("31/12/23, 21:41:05: ", "12/31/23, 9:41:05 PM: ", "\ufeff31 Dec 2023, 21:41 - ", "31 déc. 2023 à 21:41 - "),
        *(
            "31/12/23 9:41 de la noche - ",
            "31/12/2023, 9:41 at night - ",
            "\u200f[31\u200f/12\u200f/2023، 9:41:05\xa0م] ",
        ),
    ],
)
def test_whatsapp_date_formats(header: str, tmp_path: Path, try_import: Callable):
    folder = whatsapp(tmp_path / "in", f"{header}Anna: Hello", "", "second line", f"{header}Ben Müller: Ho: ho")
    (dialogue,) = try_import("whatsapp", folder).dialogues
    assert dialogue.id.removesuffix(":05").removesuffix(":00") == "_chat/2023-12-31T21:41"
    assert utterances(dialogue) == [("speaker_1", "Hello\n\nsecond line"), ("speaker_2", "Ho: ho")]


@pytest.mark.parametrize(
    ("line", "options", "day", "fact"),
    [
        ("5/1/24, 9:41 PM - Anna: Hi", {}, "2024-05-01", "month-first (assumed, "),
        ("05/01/24, 9:41 pm - Anna: Hi", {}, "2024-01-05", "day-first (assumed, "),
        ("05/01/2024, 21:41 - Anna: Hi", {}, "2024-01-05", "day-first (assumed, "),
        ("05.01.24, 21:41 - Anna: Hi", {}, "2024-01-05", "day-first (assumed, "),
        ("5/1/24, 9:41 PM - Anna: Hi", {"dates": "day-first"}, "2024-01-05", "day-first (as set)"),
        ("05.01.24, 21:41 - Anna: Hi", {"dates": "month-first"}, "2024-05-01", "month-first (as set)"),
    ],
)
def test_whatsapp_order_of_day_and_month(
    line: str, options: dict, day: str, fact: str, tmp_path: Path, try_import: Callable
):
    outcome = try_import("whatsapp", whatsapp(tmp_path / "in", line), **options)
    assert outcome.dialogues[0].id == f"_chat/{day}T21:41:00"
    (found,) = outcome.manifest["facts"]["dates"]
    assert found.startswith(fact)
    assert ("--set dates=" in found) == ("assumed" in fact)


def test_whatsapp_clock_set_back_keeps_the_order(tmp_path: Path, try_import: Callable):
    lines = ["02:58 - Anna: One", "02:59 - Ben: Two", "02:01 - Anna: Three", "02:30 - Ben: Four", "03:05 - Anna: Five"]
    folder = whatsapp(tmp_path / "in", *(f"27.10.2024, {line}" for line in lines))
    assert list(texts(try_import("whatsapp", folder)).values()) == [["One", "Two", "Three", "Four", "Five"]]


def test_whatsapp_one_number_above_twelve_decides_for_the_file(tmp_path: Path, try_import: Callable):
    lines = [f"{date}/24, 9:41 PM - Anna: {date}" for date in ("5/1", "6/1", "13/1", "14/1")]
    outcome = try_import("whatsapp", whatsapp(tmp_path / "in", *lines))
    assert [dialogue.id[6:16] for dialogue in outcome.dialogues] == [
        "2024-01-05",
        "2024-01-06",
        "2024-01-13",
        "2024-01-14",
    ]
    assert outcome.manifest["facts"]["dates"] == {"day-first (found in the dates)": 1}
    outcome = try_import("whatsapp", tmp_path / "in", dates="month-first")
    assert [rejection["line"] for rejection in outcome.rejected] == [3, 4]
    assert "the date 13/1/24 is not month-first (--set dates=…)" in outcome.reasons[0]
    with pytest.raises(CorpusError, match="dates must be 'day-first' or 'month-first'"):
        import_corpus("whatsapp", tmp_path / "in", tmp_path / "out", dates="year-first")


NO_WORDS = {
    "media without text": [
        *("<Media omitted>", "<Medien ausgeschlossen>", "<Médias omis>", "image omitted", "\u200eBild weggelassen"),
        *("\u200e<attached: 00000012-PHOTO-2023-12-31.jpg>", "IMG-20231231-WA0001.jpg (file attached)"),
        *("\u200eplan.pdf (Datei angehängt)", "<Medien ausgeschlossen>\nplan of the day.pdf", "document omitted"),
        *("location: https://maps.google.com/?q=52.5,-13.4", "<\u200eimage omitted>"),
    ],
    "deleted messages": [
        *("This message was deleted", "\u200eThis message was deleted.", "You deleted this message"),
        *("Diese Nachricht wurde gelöscht.", "Se eliminó este mensaje."),
    ],
    "messages without text": ["", "null", "live location shared", "Waiting for this message. This may take a while."],
}


@pytest.mark.parametrize(("text", "what"), [(text, what) for what, texts in NO_WORDS.items() for text in texts])
def test_whatsapp_message_without_text_leaves_a_hole(text: str, what: str, tmp_path: Path, try_import: Callable):
    moment = "31/12/2023, 21:41 -"
    folder = whatsapp(tmp_path / "in", f"{moment} Anna: One", f"{moment} Ben: {text}", f"{moment} Anna: Two")
    outcome = try_import("whatsapp", folder)
    assert list(texts(outcome).values()) == [["One"], ["Two"]]
    assert outcome.manifest["left_out"] == {what: 1}
    assert outcome.rejected == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("IMG-20231231-WA0001.jpg (file attached)\nOur bread", "Our bread"),
        ("<Media omitted>\nOur bread", "Our bread"),
        ("Rye <This message was edited>", "Rye"),
        ("Rye \u200e<Ändrat>", "Rye"),
        ("Rye <Diese Nachricht wurde bearbeitet.>", "Rye"),
        ("I <3 rye", "I <3 rye"),
        ("rye <or oats>", "rye <or oats>"),
        ("hello @\u2068Ben Müller\u2069!", "hello @Ben Müller!"),
        ("she omitted the salt", "she omitted the salt"),
        ("مرحبا بكم", "مرحبا بكم"),
    ],
)
def test_whatsapp_captions_and_notes(text: str, words: str, tmp_path: Path, try_import: Callable):
    outcome = try_import("whatsapp", whatsapp(tmp_path / "in", f"31/12/2023, 21:41 - Anna: {text}"))
    assert list(texts(outcome).values()) == [[words]]
    assert outcome.manifest["left_out"] == {}


@pytest.mark.parametrize(
    "line",
    [
        "Messages and calls are end-to-end encrypted.",
        "Anna added Ben",
        'Anna changed the subject to "Plan: B"',
        "Anna changed the subject from “Bread: rye” to “Bread: oats”",
    ],
)
def test_whatsapp_line_without_a_sender_leaves_no_hole(line: str, tmp_path: Path, try_import: Callable):
    moment = "31/12/2023, 21:41 -"
    folder = whatsapp(tmp_path / "in", f"{moment} Anna: One", f"{moment} {line}", "more", f"{moment} Anna: Two")
    outcome = try_import("whatsapp", folder)
    assert list(texts(outcome).values()) == [["One", "Two"]]
    assert outcome.manifest["left_out"] == {"lines without a sender (joins, calls, notices)": 1}


@pytest.mark.parametrize("name", ["~\u202fBen", "\u202aBen\u202c", "Ben", "~ Ben"])
def test_whatsapp_names_for_the_speaker_map(name: str, tmp_path: Path, try_import: Callable):
    folder = whatsapp(tmp_path / "in", f"31/12/2023, 21:41 - {name}: Hi", "31/12/2023, 21:42 - +1 555 0100: Ho")
    (dialogue,) = try_import("whatsapp", folder, speakers={"ben": "system", "*": "user"}).dialogues
    assert utterances(dialogue) == [("system", "Hi"), ("user", "Ho")]


@pytest.mark.parametrize(
    "content",
    [
        *("Anna: Hello\nBen: Ho\n", "conversation,speaker,text\na,user,Hi\n", "31/12/2023 Anna: Hello\n"),
        *("2023-12-31T21:41:00Z Anna: Hello\n", '[{"type": "message"}]', ""),
    ],
)
def test_whatsapp_refuses_other_files(content: str, tmp_path: Path, try_import: Callable):
    folder = lay_out(tmp_path / "in", {"notes.txt": content})
    assert "expected a chat exported from WhatsApp" in try_import("whatsapp", folder).error
    whatsapp(folder, "31/12/2023, 21:41 - Anna: Hello")
    outcome = try_import("whatsapp", folder)
    assert list(texts(outcome).values()) == [["Hello"]]
    assert [(rejection["file"], rejection["kind"]) for rejection in outcome.rejected] == [("notes.txt", "file")]


def test_whatsapp_invalid_dates_and_lost_beginnings_are_rejected(tmp_path: Path, try_import: Callable):
    folder = whatsapp(
        tmp_path / "in",
        "the end of a message",
        "31/12/2023, 21:41 - Anna: One",
        "31/02/2023, 21:41 - Anna: never",
        "31/12/2023, 25:41 - Anna: never",
        "31/12/2023, 13:41 PM - Anna: never",
        "31/12/2023, 21:42 - Anna: Two",
    )
    outcome = try_import("whatsapp", folder)
    assert list(texts(outcome).values()) == [["One"], ["Two"]]
    assert [rejection["line"] for rejection in outcome.rejected] == [1, 3, 4, 5]


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        ("9:42 qux", "'qux' next to the time is not known as a half of the day"),
        ("AM 9:42 PM", "'AM' and 'PM' next to the time contradict each other"),
    ],
)
def test_whatsapp_unknown_half_of_the_day_is_rejected(time: str, reason: str, tmp_path: Path, try_import: Callable):
    lines = ["31/12/2023, 9:41 - Anna: One", f"31/12/2023, {time} - Anna: never", "31/12/2023, 9:43 - Anna: Two"]
    outcome = try_import("whatsapp", whatsapp(tmp_path / "in", *lines))
    assert list(texts(outcome).values()) == [["One"], ["Two"]]
    assert outcome.reasons == [reason]


def test_whatsapp_byte_order_mark_within_a_line_begins_a_message(tmp_path: Path, try_import: Callable):
    folder = whatsapp(tmp_path / "in", "31/12/23, 21:41 - Anna: One\ufeff31/12/23, 21:42 - Ben: Two \ufeffthree")
    assert list(texts(try_import("whatsapp", folder)).values()) == [["One", "Two three"]]


@pytest.mark.parametrize("text", ["12 Aug 10:30 - tea: rye", "Mar 5, 8:11 PM - tea: rye", "[12/31, 9:41 PM] Ben: rye"])
def test_whatsapp_date_without_a_year_is_text_in_a_chat_with_years(text: str, tmp_path: Path, try_import: Callable):
    outcome = try_import("whatsapp", whatsapp(tmp_path / "in", "31/12/23, 21:41 - Anna: One", text))
    assert list(texts(outcome).values()) == [[f"One\n{text}"]]


# ---- broken files


@pytest.mark.parametrize("reader", JSON_CHATS)
def test_truncated_file_keeps_the_messages_before_the_end(reader: str, tmp_path: Path, try_import: Callable):
    layout = BASES[reader]
    whole = [turn.text for dialogue in layout.expected for turn in dialogue.turns]
    content = layout.content[: max(layout.content.find(text.encode()) for text in whole)]
    outcome = try_import(reader, layout.write(tmp_path / "in", content))
    kept = [turn.text for dialogue in outcome.dialogues for turn in dialogue.turns]
    assert len(kept) == len(whole) - 1
    assert set(kept) < set(whole)
    (rejection,) = outcome.rejected
    assert rejection["file"] == layout.main
    assert rejection["line"] == content.count(b"\n") + 1


@pytest.mark.parametrize("reader", [reader for reader in JSON_CHATS if reader != "slack"])
def test_other_json_files_are_refused(reader: str, tmp_path: Path, try_import: Callable):
    layout = BASES[reader]
    folder = lay_out(layout.write(tmp_path / "in"), {"zz.json": b'{"name": "bakery", "version": [1, 2]}'})
    outcome = try_import(reader, folder, **layout.options)
    assert outcome.dialogues == layout.expected
    ((file, reason),) = [(rejection["file"], rejection["reason"]) for rejection in outcome.rejected]
    assert file == "zz.json"
    assert "expected" in reason


@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from(["", "31/12/23, 21:41 - ", "[1.2.24, 9:00:00] ", "2024-13-01 10:00 - ", "\u200e"]),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        ).map("".join),
        max_size=8,
    )
)
def test_any_lines_are_read_or_rejected(lines: list[str]):
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder), {"_chat.txt": "\n".join(lines)})
        dialogues, _, source = read_directly("whatsapp", Path(folder), encoding="utf-8")
    assert dialogues or source.counts.rejected_rows or source.skipped
