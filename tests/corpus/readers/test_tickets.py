"""Tests the readers of support tickets (Zendesk, Intercom, Freshdesk) and of tweets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.layouts import csv_bytes, json_bytes, jsonl_bytes, lay_out
from tests.helpers.reading import read_directly, texts, utterances
from turnwise.corpus.registry import get_reader

ANN, BOB, CID = 900, 901, 902


# ---- Zendesk


def zendesk_comment(author: int, text: str, minute: int, **changes: Any) -> dict[str, Any]:
    time = f"2024-05-01T10:{minute:02}:00Z"
    return {"author_id": author, "type": "Comment", "body": text, "public": True, "created_at": time} | changes


def zendesk(folder: Path, *comments: Any, name: str = "tickets.jsonl", **more: Any) -> Path:
    ticket = {"id": 17, "requester_id": ANN, "comments": list(comments), **more}
    return lay_out(folder, {name: jsonl_bytes(ticket)})


def test_zendesk_comment_of_an_unknown_ticket_is_rejected(tmp_path: Path, try_import: Callable):
    comments = [zendesk_comment(ANN, "Hi", 0) | {"ticket_id": ticket} for ticket in (1, 2)]
    comments.append(zendesk_comment(ANN, "Hello", 1))
    folder = lay_out(
        tmp_path / "in",
        {"tickets.jsonl": jsonl_bytes({"id": 1, "requester_id": ANN}), "all.jsonl": jsonl_bytes(*comments)},
    )
    outcome = try_import("zendesk", folder)
    assert [utterances(dialogue) for dialogue in outcome.dialogues] == [[("user", "Hi")]]
    assert ["the ticket 2 of the comment is missing" in outcome.reasons[0], "'ticket_id' is" in outcome.reasons[1]] == [
        True,
        True,
    ]


def test_comments_are_sorted_by_time(tmp_path: Path, try_import: Callable):
    """A comment without a time stays behind the one before it."""
    folder = zendesk(
        tmp_path / "in",
        zendesk_comment(BOB, "third", 8),
        zendesk_comment(BOB, "fourth", 8, created_at=None),
        zendesk_comment(ANN, "first", 1, created_at="2024-05-01T12:01:00+02:00"),
        zendesk_comment(BOB, "second", 5),
    )
    (dialogue,) = try_import("zendesk", folder).dialogues
    assert texts(dialogue) == ["first", "second", "third", "fourth"]
    assert read_directly("zendesk", folder)[2].start_times == {"17": 1714557660.0}


def test_requester_is_the_user_and_others_have_the_roles_of_users(tmp_path: Path, try_import: Callable):
    """Whoever is copied in is a user too; a requester who works here is still the one who asks."""
    comments = [zendesk_comment(person, str(person), minute) for minute, person in enumerate((ANN, BOB, CID))]
    ticket = {"id": 1, "requester_id": ANN, "comments": comments}
    users = [{"id": ANN, "role": "agent"}, {"id": BOB, "role": "agent"}, {"id": CID, "role": "end-user"}]
    alone = lay_out(tmp_path / "alone", {"a.json": json_bytes([ticket])})
    page = lay_out(tmp_path / "page", {"a.json": json_bytes({"users": users, "tickets": [ticket]}, indent=2)})
    pages = lay_out(tmp_path / "pages", {"a.json": json_bytes([ticket]), "users.json": json_bytes({"users": users})})
    speakers = [
        [speaker for speaker, _ in utterances(try_import("zendesk", folder).dialogues[0])]
        for folder in (alone, page, pages)
    ]
    assert speakers == [["user", "system", "system"], ["user", "system", "user"], ["user", "system", "user"]]


@pytest.mark.parametrize(
    ("users", "reason"),
    [
        ({}, "'users' must be a list"),
        ([5], "expected an object with 'role', got a int"),
        ([{"id": CID}], "'role' is missing"),
        ([{"id": CID, "role": "boss"}], "unknown role 'boss': expected end-user, agent, admin"),
    ],
)
def test_invalid_users_are_rejected_and_tickets_are_kept(users: Any, reason: str, tmp_path: Path, try_import: Callable):
    ticket = {"id": 1, "requester_id": ANN, "comments": [zendesk_comment(ANN, "Hi", 0)]}
    folder = lay_out(tmp_path / "in", {"a.json": json_bytes({"users": users, "tickets": [ticket]})})
    outcome = try_import("zendesk", folder)
    assert [utterances(it) for it in outcome.dialogues] == [[("user", "Hi")]]
    assert [reason in it for it in outcome.reasons] == [True]


def test_private_notes_are_left_out_unless_requested(tmp_path: Path, try_import: Callable):
    folder = zendesk(
        tmp_path / "in",
        zendesk_comment(ANN, "Help!", 0),
        zendesk_comment(BOB, "Not him again.", 1, public=False),
        zendesk_comment(BOB, "Gladly.", 2),
    )
    outcome = try_import("zendesk", folder)
    assert [texts(it) for it in outcome.dialogues] == [["Help!", "Gladly."]]
    assert outcome.manifest["left_out"] == {"private notes": 1}
    kept = try_import("zendesk", folder, private=True)
    assert [utterances(it) for it in kept.dialogues] == [
        [("user", "Help!"), ("system", "Not him again."), ("system", "Gladly.")]
    ]
    assert kept.manifest["left_out"] == {}
    assert get_reader("zendesk").parse_options([("private", "true")]) == {"private": True}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"plain_body": "plain", "body": "**bold**", "html_body": "<b>bold</b>"}, "plain"),
        ({"plain_body": "one&nbsp;two", "body": "x"}, "one two"),
        ({"plain_body": None, "body": "body", "html_body": "<p>html</p>"}, "body"),
        ({"body": " ", "html_body": "<p>Grüße,<br>Ann &amp; Co</p>"}, "Grüße,\nAnn & Co"),
    ],
)
def test_text_of_a_comment(body: dict, text: str, tmp_path: Path, try_import: Callable):
    comment = {key: value for key, value in zendesk_comment(ANN, "", 0).items() if key != "body"} | body
    (dialogue,) = try_import("zendesk", zendesk(tmp_path / "in", comment)).dialogues
    assert texts(dialogue) == [text]


@pytest.mark.parametrize(
    ("comment", "left_out"),
    [
        (zendesk_comment(BOB, "", 1, attachments=[{"id": 1}]), "messages without text (attachments)"),
        (zendesk_comment(BOB, "", 1, html_body='<p><img src="a.png"></p>'), "messages without text (attachments)"),
        (zendesk_comment(BOB, "Call from +1 202 555 0123", 1, type="VoiceComment"), "comments of type VoiceComment"),
    ],
)
def test_message_without_text_does_not_split_the_ticket(
    comment: dict, left_out: str, tmp_path: Path, try_import: Callable
):
    folder = zendesk(tmp_path / "in", zendesk_comment(ANN, "before", 0), comment, zendesk_comment(ANN, "after", 2))
    outcome = try_import("zendesk", folder)
    assert [(it.id, texts(it)) for it in outcome.dialogues] == [("17", ["before", "after"])]
    assert outcome.manifest["left_out"] == {left_out: 1}
    assert outcome.rejected == ()


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        (5, "expected an object with 'author_id', got a int"),
        ({"body": "Hm", "public": True}, "'author_id' is missing"),
        (zendesk_comment(BOB, "Hm", 1, author_id=[1]), "'author_id' is a list, not a string"),
        (zendesk_comment(BOB, "Hm", 1, public="yes"), "'public' is a str, not true or false"),
        ({"author_id": BOB, "body": "Hm"}, "'public' is missing"),
        ({"author_id": BOB, "public": True}, "'plain_body' or 'body' or 'html_body' is missing"),
        (zendesk_comment(BOB, "Hm", 1, body=5), "'body' is a int, not a string"),
        (zendesk_comment(BOB, "Hm", 1, created_at="noonish"), "'created_at': cannot parse the time 'noonish'"),
        (zendesk_comment(BOB, "Hm", 1, created_at=10**400), "'created_at': cannot parse the time"),
        (zendesk_comment(BOB, "Hm", 1, type=5), "'type' is a int, not a string"),
        (zendesk_comment(BOB, "", 1, html_body="<![x[Hm]]>"), "the HTML cannot be parsed"),
        (zendesk_comment(BOB, "Hm\0", 1), "the text contains a NUL character"),
    ],
)
def test_unreadable_comment_is_rejected_alone(comment: Any, reason: str, tmp_path: Path, try_import: Callable):
    folder = zendesk(tmp_path / "in", zendesk_comment(ANN, "before", 0), comment, zendesk_comment(ANN, "after", 2))
    outcome = try_import("zendesk", folder)
    assert [texts(it) for it in outcome.dialogues] == [["before"], ["after"]]
    (rejection,) = outcome.rejected
    assert reason in rejection["reason"]
    assert (rejection["kind"], rejection["line"], rejection["dialogue"]) == ("turn", 1, "17")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (5, "expected an object with 'id'"),
        ({"subject": "Hi"}, "'id' is missing"),
        ({"id": 2}, "'requester_id' is missing"),
        ({"id": 2, "requester_id": 1, "description": "Hi"}, "'comments' is missing: export the tickets with their"),
        ({"id": 2, "requester_id": 1, "comments": {}}, "'comments' is a dict, not a list"),
        ({"id": 2, "requester_id": 1, "audits": [5]}, "not the expected layout"),
        ({"tickets": 5}, "'tickets' is a int, not a list"),
    ],
)
def test_other_records_are_rejected(record: Any, reason: str, tmp_path: Path, try_import: Callable):
    good = {"id": 1, "requester_id": ANN, "comments": [zendesk_comment(ANN, "Hi", 0)]}
    outcome = try_import("zendesk", lay_out(tmp_path / "in", {"tickets.jsonl": jsonl_bytes(record, good)}))
    assert [it.id for it in outcome.dialogues] == ["1"]
    assert [(it["line"], reason in it["reason"]) for it in outcome.rejected] == [(1, True)]


def test_comments_in_audits(tmp_path: Path, try_import: Callable):
    audits = [
        {
            "author_id": ANN,
            "created_at": "2024-05-01T10:00:00Z",
            "events": [{"type": "Create", "field_name": "status"}, {"type": "Comment", "body": "Hi", "public": True}],
        },
        {
            "author_id": BOB,
            "created_at": "2024-05-01T10:01:00Z",
            "events": [{"type": "Comment", "body": "Hm", "public": False}, {"type": "Notification", "body": "You…"}],
        },
        {
            "author_id": -1,
            "created_at": "2024-05-01T10:02:00Z",
            "events": [{"type": "Comment", "author_id": BOB, "body": "Hello", "public": True}],
        },
    ]
    ticket = {"id": 3, "requester_id": ANN, "audits": audits}
    outcome = try_import("zendesk", lay_out(tmp_path / "in", {"a.json": json_bytes([ticket])}))
    assert [utterances(it) for it in outcome.dialogues] == [[("user", "Hi"), ("system", "Hello")]]
    assert outcome.manifest["left_out"] == {"private notes": 1}


def test_tickets_without_messages_are_counted(tmp_path: Path, try_import: Callable):
    tickets = [
        {"id": 1, "requester_id": ANN, "comments": []},
        {"id": 2, "requester_id": ANN, "comments": [zendesk_comment(BOB, "secret", 0, public=False)]},
        {"id": 3, "requester_id": ANN, "comments": [zendesk_comment(ANN, "Hi", 0)]},
    ]
    outcome = try_import("zendesk", lay_out(tmp_path / "in", {"a.jsonl": jsonl_bytes(*tickets)}))
    assert [it.id for it in outcome.dialogues] == ["3"]
    assert outcome.rejected == ()
    assert outcome.manifest["left_out"] == {"tickets without a message": 2, "private notes": 1}


# ---- Intercom


def part(kind: str, author: str, body: str | None, second: int, /, **changes: Any) -> dict[str, Any]:
    return {"part_type": kind, "body": body, "author": {"type": author}, "created_at": 1714557600 + second} | changes


def intercom(folder: Path, *parts: Any, **changes: Any) -> Path:
    opening = {"body": "<p>Hi</p>", "author": {"type": "contact"}}
    listed = {"type": "conversation_part.list", "conversation_parts": list(parts)}
    record = {"id": "31", "created_at": 1714557600, "source": opening, "conversation_parts": listed} | changes
    return lay_out(folder, {"conversations.jsonl": jsonl_bytes(record)})


def test_intercom_parts_that_are_messages(tmp_path: Path, try_import: Callable):
    folder = intercom(
        tmp_path / "in",
        part("comment", "bot", "<p>A person will answer.</p>", 1),
        part("assignment", "bot", None, 2),
        part("assignment", "admin", "<p>Can you take this?</p>", 3),
        part("note", "admin", "<p>Not again</p>", 4),
        part("close", "admin", None, 5),
        part("quick_reply", "lead", "Yes", 6),
        part("close", "admin", "<p>Bye!</p>", 7),
        part("open", "user", "<p>One more thing</p>", 8),
        part("conversation_attribute_updated_by_admin", "bot", None, 9),
    )
    outcome = try_import("intercom", folder)
    assert [utterances(it) for it in outcome.dialogues] == [
        [
            ("user", "Hi"),
            ("system", "A person will answer."),
            ("user", "Yes"),
            ("system", "Bye!"),
            ("user", "One more thing"),
        ]
    ]
    assert outcome.manifest["left_out"] == {
        "parts of type assignment": 2,
        "private notes": 1,
        "parts of type close": 1,
        "parts of type conversation_attribute_updated_by_admin": 1,
    }
    assert read_directly("intercom", folder)[2].start_times == {"31": 1714557600.0}
    kept = try_import("intercom", folder, private=True)
    assert ("system", "Not again") in utterances(kept.dialogues[0])


@pytest.mark.parametrize(
    ("missing", "left_out"),
    [
        (part("comment", "user", None, 2, attachments=[{}]), "messages without text (attachments)"),
        (part("comment", "user", "<p>removed</p>", 2, redacted=True), "redacted messages"),
    ],
)
def test_intercom_missing_text_does_not_split(missing: dict, left_out: str, tmp_path: Path, try_import: Callable):
    folder = intercom(tmp_path / "in", part("comment", "admin", "before", 1), missing, part("comment", "user", "x", 3))
    outcome = try_import("intercom", folder)
    assert [texts(it) for it in outcome.dialogues] == [["Hi", "before", "x"]]
    assert outcome.manifest["left_out"] == {left_out: 1}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("Hm", "expected an object with 'part_type', got a str"),
        ({"body": "Hm"}, "'part_type' is missing"),
        (part("comment", "user", "Hm", 2, author=None), "'author' is a NoneType, not an object"),
        (part("comment", "ghost", "Hm", 2), "unknown type 'ghost': expected user, lead, contact, admin"),
        (part("comment", "user", "Hm", 2, created_at=[]), "'created_at' is a list, not a time"),
        (part("comment", "user", "Hm", 2, body={}), "'body' is a dict, not a string"),
    ],
)
def test_intercom_unreadable_part_is_rejected_alone(wrong: Any, reason: str, tmp_path: Path, try_import: Callable):
    folder = intercom(tmp_path / "in", part("comment", "admin", "Hello", 1), wrong, part("comment", "user", "Bye", 3))
    outcome = try_import("intercom", folder)
    assert [texts(it) for it in outcome.dialogues] == [["Hi", "Hello"], ["Bye"]]
    assert [reason in it for it in outcome.reasons] == [True]


def test_intercom_unreadable_source_is_rejected_alone(tmp_path: Path, try_import: Callable):
    parts = {"conversation_parts": [part("comment", "admin", "Hello", 1)]}
    records = ({"id": 1, "conversation_parts": parts}, {"id": 2, "conversation_parts": parts, "source": {"body": "Hi"}})
    outcome = try_import("intercom", lay_out(tmp_path / "in", {"a.jsonl": jsonl_bytes(*records)}))
    assert [texts(it) for it in outcome.dialogues] == [["Hello"], ["Hello"]]
    assert [reason.split(": ")[1] for reason in outcome.reasons] == ["'source' is missing", "'author' is missing"]
    assert {rejection["kind"] for rejection in outcome.rejected} == {"turn"}


# ---- Freshdesk


def freshdesk_message(text: str, minute: int, *, incoming: bool, private: bool = False) -> dict[str, Any]:
    time = f"2024-05-01T10:{minute:02}:00Z"
    return {"body_text": text, "incoming": incoming, "private": private, "created_at": time}


def freshdesk(folder: Path, *messages: Any, **changes: Any) -> Path:
    ticket = {"id": 51, "description_text": "Hi", "created_at": "2024-05-01T10:00:00Z", "conversations": list(messages)}
    return lay_out(folder, {"tickets.json": json_bytes([ticket | changes], indent=1)})


def test_freshdesk_ticket_that_an_agent_started(tmp_path: Path, try_import: Callable):
    folder = freshdesk(tmp_path / "in", freshdesk_message("Oh, thanks", 3, incoming=True), source=10)
    (dialogue,) = try_import("freshdesk", folder).dialogues
    assert utterances(dialogue) == [("system", "Hi"), ("user", "Oh, thanks")]
    assert read_directly("freshdesk", folder)[2].start_times == {"51": 1714557600.0}


def test_freshdesk_html_is_read_without_a_plain_text(tmp_path: Path, try_import: Callable):
    html_only = {"body": "<div>One<br/>two</div>", "incoming": False, "private": False}
    folder = freshdesk(tmp_path / "in", html_only, description_text=None, description="<p>Three &gt; two</p>")
    (dialogue,) = try_import("freshdesk", folder).dialogues
    assert texts(dialogue) == ["Three > two", "One\ntwo"]


def test_freshdesk_private_notes(tmp_path: Path, try_import: Callable):
    note = freshdesk_message("Careful", 1, incoming=False, private=True)
    folder = freshdesk(tmp_path / "in", note, freshdesk_message("Hello", 2, incoming=False))
    outcome = try_import("freshdesk", folder)
    assert [texts(it) for it in outcome.dialogues] == [["Hi", "Hello"]]
    assert outcome.manifest["left_out"] == {"private notes": 1}
    assert [texts(it) for it in try_import("freshdesk", folder, private=True).dialogues] == [["Hi", "Careful", "Hello"]]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (None, "expected an object with 'created_at', got a NoneType"),
        ({"body_text": "Hm", "incoming": True}, "'private' is missing"),
        ({"body_text": "Hm", "private": False}, "'incoming' is missing"),
        ({"body_text": "Hm", "private": 0, "incoming": True}, "'private' is a int, not true or false"),
        ({"private": False, "incoming": True}, "'body_text' or 'body' is missing"),
    ],
)
def test_freshdesk_unreadable_message_is_rejected_alone(wrong: Any, reason: str, tmp_path: Path, try_import: Callable):
    outcome = try_import("freshdesk", freshdesk(tmp_path / "in", wrong, freshdesk_message("Bye", 3, incoming=True)))
    assert [texts(it) for it in outcome.dialogues] == [["Hi"], ["Bye"]]
    assert [reason in it for it in outcome.reasons] == [True]


def test_freshdesk_ticket_without_a_description(tmp_path: Path, try_import: Callable):
    record = {"id": 51, "conversations": [freshdesk_message("Bye", 3, incoming=True)]}
    outcome = try_import("freshdesk", lay_out(tmp_path / "in", {"tickets.json": json_bytes([record])}))
    assert [texts(it) for it in outcome.dialogues] == [["Bye"]]
    assert outcome.reasons == ["not the expected layout: 'description_text' or 'description' is missing"]


def test_freshdesk_conversations_in_other_files(tmp_path: Path, try_import: Callable):
    """A page of conversations, and single ones; a ticket that is not there lacks its description alone."""
    rows = [
        freshdesk_message(text, minute, incoming=True) | {"ticket_id": ticket}
        for text, minute, ticket in (("Two", 2, 51), ("One", 1, 51), ("Three", 3, 60))
    ]
    tickets = [{"id": 51, "requester_id": 1, "description_text": "Hi", "created_at": "2024-05-01T10:00:00Z"}]
    files = {"a.json": {"conversations": rows[:1]}, "b.json": rows[1:], "tickets.json": tickets}
    folder = lay_out(tmp_path / "in", {name: json_bytes(content) for name, content in files.items()})
    outcome = try_import("freshdesk", folder)
    assert [(it.id, texts(it)) for it in outcome.dialogues] == [("51", ["Hi", "One", "Two"]), ("60", ["Three"])]
    assert outcome.rejected == ()


def test_freshdesk_tickets_without_any_conversations(tmp_path: Path, try_import: Callable):
    record = {"id": 51, "requester_id": 1, "description_text": "Hi", "created_at": "2024-05-01T10:00:00Z"}
    outcome = try_import("freshdesk", lay_out(tmp_path / "in", {"tickets.json": json_bytes([record])}))
    assert "save the answers of /tickets/ID/conversations too" in outcome.error


# ---- tweets


TWEET_COLUMNS = (
    *("tweet_id", "author_id", "inbound", "created_at", "text", "response_tweet_id", "in_response_to_tweet_id"),
)


def tweet(number: int, minute: int, text: str, reply_to: object = "", *, inbound: bool = True) -> tuple[object, ...]:
    author = "115001" if inbound else "KettleHelp"
    return (number, author, inbound, f"Tue Oct 31 22:{minute:02}:47 +0000 2017", text, "", reply_to)


def tweets(folder: Path, *rows: tuple) -> Path:
    return lay_out(folder, {"twcs.csv": csv_bytes(TWEET_COLUMNS, *rows)})


def test_tweets_in_any_order_become_chains_of_replies(tmp_path: Path, try_import: Callable):
    """A conversation with two answers is two chains; the first tweet need not come first in the file."""
    folder = tweets(
        tmp_path / "in",
        tweet(30, 5, "leaf", 20),
        tweet(21, 3, "other answer", 10, inbound=False),
        tweet(20, 2, "answer", 10, inbound=False),
        tweet(10, 1, "root"),
    )
    outcome = try_import("twitter_support", folder)
    assert [(it.id, texts(it)) for it in outcome.dialogues] == [
        ("10/0", ["root", "other answer"]),
        ("10/1", ["root", "answer", "leaf"]),
    ]
    outcome = try_import("twitter_support", folder, order="chronological")
    assert [(it.id, texts(it)) for it in outcome.dialogues] == [("10", ["root", "answer", "other answer", "leaf"])]
    assert set(read_directly("twitter_support", folder)[2].start_times.values()) == {1509487307.0}


def test_reply_to_a_missing_tweet_starts_a_conversation(tmp_path: Path, try_import: Callable):
    folder = tweets(tmp_path / "in", tweet(2, 1, "answer", 1, inbound=False), tweet(3, 2, "thanks", "2.0"))
    (dialogue,) = try_import("twitter_support", folder).dialogues
    assert utterances(dialogue) == [("system", "answer"), ("user", "thanks")]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("@KettleHelp it leaks", "it leaks"),
        ("@KettleHelp @115001\nit leaks", "it leaks"),
        (".@KettleHelp it leaks", "it leaks"),
        ("it leaks, @KettleHelp", "it leaks, @KettleHelp"),
        ("write to ann@example.org", "write to ann@example.org"),
        ("@KettleHelp hot &lt;3 &amp; cold", "hot <3 & cold"),
    ],
)
def test_mentions_at_the_start_are_removed(text: str, clean: str, tmp_path: Path, try_import: Callable):
    folder = tweets(tmp_path / "in", tweet(1, 0, text))
    assert texts(try_import("twitter_support", folder).dialogues[0]) == [clean]
    kept = texts(try_import("twitter_support", folder, mentions=True).dialogues[0])
    assert kept == [text.replace("&lt;", "<").replace("&amp;", "&")]


@pytest.mark.parametrize("order", ["paths", "chronological"])
def test_unreadable_tweet_splits_its_chain(order: str, tmp_path: Path, try_import: Callable):
    folder = tweets(
        tmp_path / "in",
        tweet(1, 1, "before"),
        (2, "KettleHelp", "False", "noonish", "lost", "", 1),
        tweet(3, 3, "after", 2),
    )
    outcome = try_import("twitter_support", folder, order=order)
    assert [texts(it) for it in outcome.dialogues] == [["before"], ["after"]]
    assert [(it["line"], it["text"]) for it in outcome.rejected] == [(3, "lost")]


def test_tweet_of_mentions_only_splits_its_chain(tmp_path: Path, try_import: Callable):
    folder = tweets(
        tmp_path / "in", tweet(1, 1, "before"), tweet(2, 2, "@115001", 1, inbound=False), tweet(3, 3, "after", 2)
    )
    outcome = try_import("twitter_support", folder)
    assert [texts(it) for it in outcome.dialogues] == [["before"], ["after"]]
    assert outcome.manifest["left_out"] == {"tweets without text, apart from mentions": 1}


def test_circles_of_replies_are_rejected(tmp_path: Path, try_import: Callable):
    folder = tweets(
        tmp_path / "in", tweet(1, 1, "a", 2), tweet(2, 2, "b", 1), tweet(3, 3, "c", 2), tweet(4, 4, "fine"),
        tweet(5, 5, "d", 5),
    )  # fmt: skip
    outcome = try_import("twitter_support", folder)
    assert [texts(it) for it in outcome.dialogues] == [["fine"]]
    assert [it["text"] for it in outcome.rejected] == ["a", "b", "c", "d"]
    assert {it["reason"] for it in outcome.rejected} == {"it replies, directly or indirectly, to itself"}


def test_long_chain_of_tweets(tmp_path: Path, try_import: Callable):
    rows = [tweet(n, n % 60, f"tweet {n}", n - 1 if n > 1 else "", inbound=n % 2 == 1) for n in range(3000, 0, -1)]
    (dialogue,) = try_import("twitter_support", tweets(tmp_path / "in", *rows)).dialogues
    assert texts(dialogue) == [f"tweet {n}" for n in range(1, 3001)]
