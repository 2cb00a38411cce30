"""Tests the reader of e-mail: mbox and .eml files, threads, texts in any encoding, and speakers by address."""

import base64
import gzip
from collections.abc import Callable
from email.header import Header
from pathlib import Path

import pytest

from tests.helpers.layouts import lay_out
from tests.helpers.reading import texts
from turnwise.core.dialogue import Dialogue
from turnwise.corpus.registry import get_reader

ANN, BOB, HELP = "ann@example.org", "bob@example.net", "help@example.com"


def mailbox(folder: Path, *messages: str | bytes, name: str = "support.mbox") -> Path:
    return lay_out(folder, {name: b"".join(it.encode() if isinstance(it, str) else it for it in messages)})


def mail(sender: str, to: str, subject: str, minute: int, text: str, number: int, *headers: str) -> str:
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


def raw_mail(*headers: str, body: bytes, number: int = 1) -> bytes:
    lines = (
        f"From {ANN} Wed May  1 10:00:00 2024",
        f"From: {ANN}",
        "Date: Wed, 1 May 2024 10:00:00 +0000",
        f"Message-ID: <{number}@example.org>",
        "MIME-Version: 1.0",
        *headers,
    )
    return "\n".join(lines).encode() + b"\n\n" + body + b"\n\n"


def threads(*dialogues: Dialogue) -> dict[str, list[str]]:
    return {dialogue.id: texts(dialogue) for dialogue in dialogues}


# ---- threads


def test_threads_by_references(tmp_path: Path, try_import: Callable):
    folder = mailbox(
        tmp_path / "in",
        mail(ANN, HELP, "Kettle", 9, "four", 4, "References: <1@example.org> <3@example.org>"),
        mail(ANN, HELP, "Kettle", 1, "one", 1),
        mail(HELP, ANN, "[Ticket 5] something else", 2, "two", 2, "In-Reply-To: Message of today <1@example.org>"),
        mail(HELP, ANN, "Re: Kettle", 3, "three", 3, "References: <1@example.org>\n\t<2@example.org>"),
        mail(BOB, HELP, "Kettle", 5, "mine too", 5),
    )
    outcome = try_import("mbox", folder)
    assert threads(*outcome.dialogues) == {
        "4@example.org": ["one", "two", "three", "four"],
        "5@example.org": ["mine too"],
    }


@pytest.mark.parametrize(
    "subject",
    ["Re: My kettle", "AW: my  Kettle", "Fwd: RE: My kettle", "SV: My kettle", "Re[2]: My kettle", "WG: AW: My kettle"],
)
def test_reply_without_references_joins_by_subject(subject: str, tmp_path: Path, try_import: Callable):
    folder = mailbox(
        tmp_path / "in",
        mail(ANN, HELP, "My kettle", 1, "one", 1),
        mail(HELP, f"Ann <{ANN.upper()}>", str(Header(subject, "utf-8")), 2, "two", 2),
        mail(ANN, HELP, Header(subject, "utf-8").encode(), 3, "three", 3),
    )
    assert threads(*try_import("mbox", folder).dialogues) == {"1@example.org": ["one", "two", "three"]}


def test_same_subject_alone_is_no_thread(tmp_path: Path, try_import: Callable):
    """Many people write about an 'Order'; and a new message is not a reply."""
    folder = mailbox(
        tmp_path / "in",
        mail(ANN, HELP, "Order", 1, "a", 1),
        mail(BOB, HELP, "Order", 2, "b", 2),
        mail(ANN, HELP, "Order", 3, "c", 3),
        mail(HELP, BOB, "Re: Order", 4, "to b", 4),
        mail(ANN, HELP, "Re: ", 5, "d", 5),
        mail(ANN, HELP, "Re: ", 6, "e", 6),
        mail(ANN, HELP, "Reorder: Order", 7, "f", 7),
    )
    assert [texts(it) for it in try_import("mbox", folder).dialogues] == [
        ["a"], ["b", "to b"], ["c"], ["d"], ["e"], ["f"],
    ]  # fmt: skip


def test_thread_over_several_files(tmp_path: Path, try_import: Callable):
    one, two = mail(ANN, HELP, "Kettle", 1, "one", 1), mail(HELP, ANN, "Re: Kettle", 2, "two", 2)
    three = mail(ANN, HELP, "Re: Kettle", 3, "three", 3)
    folder = mailbox(tmp_path / "in", one, three, name="inbox.mbox")
    mailbox(folder, two, name="sent/mbox")
    mailbox(folder, one, two, name="all.mbox")
    lay_out(folder, {"old/archive.mbox.gz": gzip.compress(two.encode())})
    outcome = try_import("mbox", folder)
    assert threads(*outcome.dialogues) == {"1@example.org": ["one", "two", "three"]}
    assert outcome.manifest["left_out"] == {"copies of a message (same Message-ID)": 3}


def test_eml_files_in_any_order(tmp_path: Path, try_import: Callable):
    files = {"a.eml": mail(HELP, ANN, "Re: Kettle", 2, "two", 2), "b.eml": mail(ANN, HELP, "Kettle", 1, "one", 1)}
    folder = lay_out(tmp_path / "in", {name: text.split("\n", 1)[1] for name, text in files.items()})
    assert threads(*try_import("mbox", folder).dialogues) == {"2@example.org": ["one", "two"]}


@pytest.mark.parametrize(("name", "first_line"), [("support.mbox", 0), ("question.eml", 1)])
def test_byte_order_mark_is_ignored(name: str, first_line: int, tmp_path: Path, try_import: Callable):
    lines = mail(ANN, HELP, "Parcel", 0, "Where is it?", 1).splitlines(keepends=True)[first_line:]
    folder = mailbox(tmp_path / "in", "\ufeff", *lines, name=name)
    (dialogue,) = try_import("mbox", folder).dialogues
    assert texts(dialogue) == ["Where is it?"]


def test_messages_without_ids_have_the_names_of_their_places(tmp_path: Path, try_import: Callable):
    message = mail(ANN, HELP, "Kettle", 1, "one", 1).replace("Message-ID: <1@example.org>\n", "")
    outcome = try_import("mbox", mailbox(tmp_path / "in", message, message))
    assert threads(*outcome.dialogues) == {"support.mbox/1": ["one"], "support.mbox/9": ["one"]}


def test_invalid_dates_keep_the_order_of_the_file(tmp_path: Path, try_import: Callable):
    undated = mail(ANN, HELP, "Re: Kettle", 2, "two", 2).replace("Date: Wed, 1 May 2024 10:02:00 +0000", "Date: soon")
    folder = mailbox(
        tmp_path / "in", mail(ANN, HELP, "Kettle", 1, "one", 1), undated, mail(ANN, HELP, "Re: Kettle", 3, "three", 3)
    )
    outcome = try_import("mbox", folder)
    assert [texts(it) for it in outcome.dialogues] == [["one", "two", "three"]]
    assert outcome.manifest["facts"]["messages without a valid date (they follow the one before them in the file)"] == 1


# ---- speakers


def test_speakers_by_address_and_domain(tmp_path: Path, try_import: Callable):
    folder = mailbox(
        tmp_path / "in",
        mail("Ann <Ann@Example.org>", HELP, "Kettle", 1, "one", 1),
        mail(f'"Help, Desk" <{HELP}>', ANN, "Re: Kettle", 2, "two", 2, "References: <1@example.org>"),
        mail("carl@example.com", ANN, "Re: Kettle", 3, "three", 3, "References: <1@example.org>"),
        mail("dora@sub.example.com", ANN, "Re: Kettle", 4, "four", 4, "References: <1@example.org>"),
    )

    def speakers(roles: dict[str, str]) -> list[str]:
        return [turn.speaker for turn in try_import("mbox", folder, speakers=roles).dialogues[0].turns]

    assert speakers({"@example.com": "system", "*": "user"}) == ["user", "system", "system", "user"]
    assert speakers({"HELP@example.com": "system", "*": "user"}) == ["user", "system", "user", "user"]
    # an address goes before its domain
    assert speakers({"@Example.com": "system", "carl@example.com": "speaker_7", "*": "user"})[2] == "speaker_7"
    assert speakers({}) == ["speaker_1", "speaker_2", "speaker_3", "speaker_4"]
    setting = "help@example.com=system,@example.org=user"
    assert get_reader("mbox").parse_options([("speakers", setting)]) == {
        "speakers": {"help@example.com": "system", "@example.org": "user"}
    }


def test_automatic_messages_are_left_out_unless_requested(tmp_path: Path, try_import: Callable):
    folder = mailbox(
        tmp_path / "in",
        mail(ANN, HELP, "Kettle", 1, "one", 1, "Auto-Submitted: no"),
        mail(
            HELP, ANN, "Away", 2, "away", 2, "Auto-Submitted: auto-replied (vacation)", "In-Reply-To: <1@example.org>"
        ),
        mail(HELP, ANN, "Re: Kettle", 3, "two", 3, "In-Reply-To: <1@example.org>"),
    )
    outcome = try_import("mbox", folder)
    assert [texts(it) for it in outcome.dialogues] == [["one", "two"]]
    assert outcome.manifest["left_out"] == {"automatic messages": 1}
    assert [texts(it) for it in try_import("mbox", folder, automatic=True).dialogues] == [["one", "away", "two"]]


# ---- texts


@pytest.mark.parametrize(
    ("headers", "body", "text"),
    [
        (("Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: 8bit"), "Grüße".encode(), "Grüße"),
        (("Content-Type: text/plain; charset=UTF-8", "Content-Transfer-Encoding: quoted-printable"),
         b"Gr=C3=BC=C3=9Fe, ein langer=\n Satz", "Grüße, ein langer Satz"),
        (("Content-Type: text/plain; charset=iso-8859-15", "Content-Transfer-Encoding: base64"),
         base64.b64encode("Grüße 5 €".encode("iso-8859-15")), "Grüße 5 €"),
        (("Content-Type: text/plain; charset=iso-8859-1",), "“Grüße”".encode("cp1252"), "“Grüße”"),
        (("Content-Type: text/plain; charset=gb2312",), "你好".encode("gb18030"), "你好"),
        (("Content-Type: text/plain; charset=iso-2022-jp",), "こんにちは".encode("iso-2022-jp"), "こんにちは"),
        ((), "Grüße".encode(), "Grüße"),
        (("Content-Type: text/plain; charset=us-ascii",), "Grüße".encode(), "Grüße"),
        (("Content-Type: text/html; charset=utf-8",), "<p>Grüße,<br>Ann &amp; Co</p>".encode(), "Grüße,\nAnn & Co"),
        ((), b"> You wrote:\n> a\n\nI did.\r\nAnn", "> You wrote:\n> a\n\nI did.\nAnn"),
        ((), b"one\n\n>From here on\n\nFrom there on\n>>From x", "one\n\nFrom here on\n\nFrom there on\n>From x"),
    ],
)  # fmt: skip
def test_text_encodings(headers: tuple, body: bytes, text: str, tmp_path: Path, try_import: Callable):
    (dialogue,) = try_import("mbox", mailbox(tmp_path / "in", raw_mail(*headers, body=body))).dialogues
    assert texts(dialogue) == [text]


def multipart(kind: str, *parts: tuple[str, str]) -> bytes:
    pieces = [f"--b\n{header}\n\n{body}\n" for header, body in parts]
    return raw_mail(f"Content-Type: multipart/{kind}; boundary=b", body=("".join(pieces) + "--b--").encode())


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (multipart("alternative", ("Content-Type: text/html", "<b>html</b>"), ("Content-Type: text/plain", "p")), "p"),
        (multipart("alternative", ("Content-Type: text/plain", " "), ("Content-Type: text/html", "<b>h</b>")), "h"),
        (multipart("mixed", ("Content-Type: text/plain\nContent-Disposition: attachment; filename=a.txt", "log"),
                   ("Content-Type: text/html", "<p>see log</p>")), "see log"),
        (multipart("mixed", ("Content-Type: message/rfc822", "Subject: inner\n\ninner text"),
                   ("Content-Type: text/plain", "outer text")), "outer text"),
        (multipart("mixed", ("Content-Type: multipart/alternative; boundary=c",
                             "--c\nContent-Type: text/plain\n\nnested\n--c--"),
                   ("Content-Type: text/plain", "footer")), "nested"),
    ],
)  # fmt: skip
def test_part_that_is_the_text(message: bytes, text: str, tmp_path: Path, try_import: Callable):
    (dialogue,) = try_import("mbox", mailbox(tmp_path / "in", message)).dialogues
    assert texts(dialogue) == [text]


def test_attachments_only_split_a_thread(tmp_path: Path, try_import: Callable):
    picture = "Content-Type: image/png; name=kettle.png\nContent-Transfer-Encoding: base64"
    folder = mailbox(
        tmp_path / "in",
        mail(ANN, HELP, "Kettle", 1, "one", 1),
        mail(ANN, HELP, "Re: Kettle", 2, "iVBORw0KGgo=", 2, picture),
        mail(HELP, ANN, "Re: Kettle", 3, "three", 3),
    )
    outcome = try_import("mbox", folder)
    assert threads(*outcome.dialogues) == {"1@example.org": ["one"], "1@example.org#2": ["three"]}
    assert outcome.manifest["left_out"] == {"messages without text (attachments)": 1}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (raw_mail("Content-Type: text/plain; charset=x-none", body=b"Hm", number=2), "unknown encoding: x-none"),
        (
            raw_mail("Content-Type: text/plain; charset=utf-8", body=b"\xe9", number=2),
            "byte 0xe9 of the text is not utf-8",
        ),
        (raw_mail(body=b"\xe9", number=2), "(--encoding latin-1)"),
        (raw_mail(body=b"Hm", number=2).replace(b"From: ann@example.org\n", b""), "the header 'From' with an address"),
        (raw_mail(body=b"Hm", number=2).replace(b"From: ann@example.org", b"From: <>"), "the header 'From' with an"),
        (raw_mail("Content-Type: text/html", body=b"<![x[Hm]]>", number=2), "the HTML cannot be parsed"),
    ],
)
def test_unreadable_message_is_rejected_alone(message: bytes, reason: str, tmp_path: Path, try_import: Callable):
    message = message.replace(b"MIME-Version", b"References: <1@example.org>\nMIME-Version").replace(b"10:00", b"10:02")
    folder = mailbox(
        tmp_path / "in",
        mail(ANN, HELP, "Kettle", 1, "before", 1),
        message,
        mail(HELP, ANN, "Re: Kettle", 3, "after", 3, "References: <1@example.org>"),
    )
    outcome = try_import("mbox", folder)
    assert [texts(it) for it in outcome.dialogues] == [["before"], ["after"]]
    (rejection,) = outcome.rejected
    assert reason in rejection["reason"]
    assert (rejection["line"], rejection["dialogue"]) == (10, "1@example.org")


def test_encoding_of_texts_that_do_not_state_it(tmp_path: Path, try_import: Callable):
    folder = mailbox(tmp_path / "in", raw_mail(body="Grüße".encode("latin-1")))
    (dialogue,) = try_import("mbox", folder, encoding="latin-1").dialogues
    assert texts(dialogue) == ["Grüße"]


@pytest.mark.parametrize(
    "header",
    [
        *(b"Subject: =?utf-8?B?!!!?=", b"Subject: =?x-none?Q?Re=3A_a?=", b"Subject: =?utf-7?Q?+2AA-?="),
        *(b"Subject: \xff\xfe raw bytes", b"References: <\xff@example.org> <<>>", b'To: <<>>, @, \xff, "'),
        *(b"Date: Wed, 99 Foo 99999 99:99:99 +9999", b"Content-Type: ;;; charset*=x'y'z; \xff"),
        *(b"Content-Type: multipart/mixed", b"Content-Transfer-Encoding: x-none"),
    ],
)
def test_malformed_headers_are_no_crash(header: bytes, tmp_path: Path, try_import: Callable):
    message = raw_mail(body=b"Hm").replace(b"MIME-Version: 1.0", header)
    outcome = try_import("mbox", mailbox(tmp_path / "in", message, mail(ANN, HELP, "a", 1, "fine", 7)))
    assert ["fine"] in [texts(it) for it in outcome.dialogues]


def test_deeply_nested_parts_are_no_crash(tmp_path: Path, try_import: Callable):
    depth = 500
    body = "".join(f"--b{n}\nContent-Type: multipart/mixed; boundary=b{n + 1}\n\n" for n in range(depth))
    message = raw_mail("Content-Type: multipart/mixed; boundary=b0", body=body.encode())
    outcome = try_import("mbox", mailbox(tmp_path / "in", message, mail(ANN, HELP, "a", 1, "fine", 7)))
    assert [texts(it) for it in outcome.dialogues] == [["fine"]]


# ---- files


@pytest.mark.parametrize("content", [b"Subject: no mbox\n\nHm\n", b"conversation,speaker,text\na,b,c\n", b"\x00\xff"])
def test_file_that_is_no_mbox_is_rejected(content: bytes, tmp_path: Path, try_import: Callable):
    folder = mailbox(tmp_path / "in", content)
    assert "not an mbox file, which starts with a line 'From ADDRESS DATE'" in try_import("mbox", folder).error
    mailbox(folder, mail(ANN, HELP, "a", 1, "fine", 7), name="valid.mbox")
    outcome = try_import("mbox", folder)
    assert [texts(it) for it in outcome.dialogues] == [["fine"]]
    assert [it["file"] for it in outcome.rejected] == ["support.mbox"]


def test_truncated_gzip_file_keeps_its_first_messages(tmp_path: Path, try_import: Callable):
    messages = "".join(mail(ANN, HELP, f"subject {n}", 1, f"text {n} " * 50, n) for n in range(200))
    content = gzip.compress(messages.encode())
    folder = lay_out(tmp_path / "in", {"a.mbox.gz": content[: len(content) // 2]})
    outcome = try_import("mbox", folder)
    assert 0 < len(outcome.dialogues) < 200
    assert "cannot be read to its end" in outcome.reasons[-1]


def test_file_of_any_name_is_an_mbox(tmp_path: Path, try_import: Callable):
    folder = mailbox(tmp_path / "in", mail(ANN, HELP, "a", 1, "fine", 7), name="Inbox")
    assert len(try_import("mbox", folder / "Inbox").dialogues) == 1
    assert "expected *.mbox" in try_import("mbox", folder).error
