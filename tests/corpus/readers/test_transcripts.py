"""Tests the reader of call transcripts: SRT and WebVTT files with speaker labels."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.layouts import lay_out
from tests.helpers.reading import utterances


def srt(*cues: str) -> bytes:
    return "\n".join(f"{n}\n00:00:{n:02},000 --> 00:00:{n + 1:02},000\n{cue}\n" for n, cue in enumerate(cues)).encode()


def call(folder: Path, *cues: str, name: str = "call.srt") -> Path:
    return lay_out(folder, {name: srt(*cues)})


def spoken(folder: Path, try_import: Callable, **options: object) -> list[list[tuple[str, str]]]:
    return [utterances(it) for it in try_import("transcript", folder, **options).dialogues]


@pytest.mark.parametrize(
    "label",
    [
        *("Customer: {}", "CUSTOMER: {}", "customer: {}", "- Customer: {}", ">> Customer: {}", "[Customer] {}"),
        *("[Customer]: {}", "<v Customer>{}</v>", "<v Customer>{}", "<v.loud Customer>{}</v>"),
        *("<b>Customer:</b> {}", "Customer:\n{}"),
    ],
)
def test_labels(label: str, tmp_path: Path, try_import: Callable):
    folder = call(tmp_path / "in", label.format("My kettle leaks."), "Agent: Since when?")
    assert spoken(folder, try_import) == [[("user", "My kettle leaks."), ("system", "Since when?")]]


@pytest.mark.parametrize(
    "label", ["Ann", "Ann Lee", "SPEAKER_00", "spk_0", "Speaker 1", "Ann van der Lee", "客户", "Dr. Ann B. Lee"]
)
def test_names_of_speakers(label: str, tmp_path: Path, try_import: Callable):
    folder = call(tmp_path / "in", "Agent: Hello.", f"{label}: Hi.")
    assert spoken(folder, try_import, speakers={label: "user"}) == [[("system", "Hello."), ("user", "Hi.")]]


@pytest.mark.parametrize(
    "text",
    [
        *("It is 10:30 now", "See http://example.com/a: it is there", "I said: no"),
        *("This is what I would like to say: no", "[Music] and so on", "- with a dash", "25: a number", "so: yes"),
        *("Ann said: yes", "A very long sentence with many words in it that ends in a colon: yes"),
    ],
)
def test_texts_that_are_no_labels(text: str, tmp_path: Path, try_import: Callable):
    folder = call(tmp_path / "in", "Agent: Hello.", text)
    assert spoken(folder, try_import) == [[("system", f"Hello. {text}")]]


def test_labels_on_a_few_cues_do_not_hold_for_the_others(tmp_path: Path, try_import: Callable):
    """In a cue with a label, the lines below it belong to the same speaker."""
    folder = call(
        tmp_path / "in",
        "Ann: My kettle\nleaks\nbadly.",
        "Since when?",
        "Monday.",
        "Bob: I see.",
        "So do I.",
        "Yes.",
        "Oh.",
    )
    outcome = try_import("transcript", folder, speakers={"ann": "user", "bob": "system"})
    assert [utterances(it) for it in outcome.dialogues] == [
        [
            ("user", "My kettle leaks badly."),
            ("speaker_1", "Since when? Monday."),
            ("system", "I see."),
            ("speaker_1", "So do I. Yes. Oh."),
        ]
    ]
    assert outcome.manifest["facts"]["lines without a speaker label, taken for '?'"] == 5


def test_consecutive_cues_of_a_speaker_are_one_turn(tmp_path: Path, try_import: Callable):
    folder = call(
        tmp_path / "in", "Ann: My", "ANN: kettle", "leaks\nbadly.", "Bob: Since when?\nAnn: Monday.", "Bob: Oh."
    )
    outcome = try_import("transcript", folder)
    assert [utterances(it) for it in outcome.dialogues] == [
        [
            ("speaker_1", "My kettle leaks badly."),
            ("speaker_2", "Since when?"),
            ("speaker_1", "Monday."),
            ("speaker_2", "Oh."),
        ]
    ]
    assert [it.id for it in outcome.dialogues] == ["call.srt"]
    assert outcome.manifest["facts"]["turns of speakers without a role"] == 4


def test_file_is_a_conversation(tmp_path: Path, try_import: Callable):
    folder = call(tmp_path / "in", "Ann: One.", name="monday/call.srt")
    lay_out(folder, {"monday/call.vtt.gz": gzip.compress(b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>Two.\n")})
    outcome = try_import("transcript", folder, speakers={"*": "user"})
    assert [it.id for it in outcome.dialogues] == ["monday/call.srt", "monday/call.vtt.gz"]


def test_cues_are_sorted_by_time(tmp_path: Path, try_import: Callable):
    cues = [
        "WEBVTT",
        "01:00:00.000 --> 01:00:01.000\n<v Ann>four",
        "59:00.000 --> 59:01.000\n<v Bob>three",
        "00:00:01.500 --> 00:00:02.000 line:0 position:20%\n<v Bob>two",
        "00:00:01.250 --> 00:00:02.000\n<v Ann>one",
    ]
    folder = lay_out(tmp_path / "in", {"a.vtt": "\n\n".join(cues)})
    (dialogue,) = try_import("transcript", folder).dialogues
    assert [turn.text for turn in dialogue.turns] == ["one", "two three", "four"]


def test_formatting_notes_and_sounds_are_left_out(tmp_path: Path, try_import: Callable):
    content = """WEBVTT Kind: captions

STYLE
::cue { color: lime }

REGION
id:a

NOTE Agent: not said

first
00:01.000 --> 00:02.000
<v Ann><i>Hello</i> &amp; <c.loud>good</c> <00:01.500>day</v>

00:02.000 --> 00:03.000
[MUSIC]

00:03.000 --> 00:04.000
{\\an8}<font color="red">to</font> <u>you</u>
(laughs)

00:04.000 --> 00:05.000
♪ la la ♪

00:05.000 --> 00:06.000
"""
    outcome = try_import("transcript", lay_out(tmp_path / "in", {"a.vtt": content}))
    assert [utterances(it) for it in outcome.dialogues] == [[("speaker_1", "Hello & good day to you")]]
    assert outcome.manifest["left_out"] == {"descriptions of sounds": 3}
    assert outcome.rejected == ()


def test_files_without_labels_are_rejected(tmp_path: Path, try_import: Callable):
    """Dashes show that the speaker changes, but not to whom."""
    folder = call(tmp_path / "in", "- My kettle leaks.\n- Since when?")
    error = try_import("transcript", folder).error
    assert "no cue has a speaker label: expected '<v Anna>text</v>', 'Anna: text', '[Agent] text'" in error
    call(folder, "Ann: fine", name="valid.srt")
    outcome = try_import("transcript", folder)
    assert [it.id for it in outcome.dialogues] == ["valid.srt"]
    assert [(it["file"], it["kind"]) for it in outcome.rejected] == [("call.srt", "file")]


@pytest.mark.parametrize("content", [b"", b"WEBVTT\n\nNOTE empty\n", b"\n\n"])
def test_files_without_cues_are_rejected(content: bytes, tmp_path: Path, try_import: Callable):
    assert "there are no cues" in try_import("transcript", lay_out(tmp_path / "in", {"a.vtt": content})).error


def test_first_cues_without_a_label_are_rejected(tmp_path: Path, try_import: Callable):
    outcome = try_import("transcript", call(tmp_path / "in", "Hello?", "Anyone?", "Agent: Yes.", "User: Hi."))
    assert [utterances(it) for it in outcome.dialogues] == [[("system", "Yes."), ("user", "Hi.")]]
    assert [(it["line"], it["text"]) for it in outcome.rejected] == [(3, "Hello? Anyone?")]
    assert "the speaker is not known, no label precedes the cue" in outcome.reasons[0]


@pytest.mark.parametrize(
    ("cue", "reason"),
    [
        ("Agent: no time", "a cue without a time"),
        ("9\nyesterday --> today\nAgent: lost", "cannot parse the time of the cue"),
        ("9\n99999999:00:00.000 --> 0\nAgent: lost", "cannot parse the time of the cue"),
        ("00:01.000 --> 00:02.000\nAgent: one\n00:02.000 --> 00:03.000\nAnn: two", "several cues without a blank line"),
        ("a\nb\n00:01.000 --> 00:02.000\nAgent: one", "a cue without a time"),
    ],
)
def test_unreadable_cue_splits_the_conversation(cue: str, reason: str, tmp_path: Path, try_import: Callable):
    before, after = "00:01.000 --> 00:02.000\nAnn: before", "00:03.000 --> 00:04.000\nAnn: after"
    outcome = try_import("transcript", lay_out(tmp_path / "in", {"a.vtt": "\n\n".join(["WEBVTT", before, cue, after])}))
    assert [(it.id, utterances(it)) for it in outcome.dialogues] == [
        ("a.vtt", [("speaker_1", "before")]),
        ("a.vtt#2", [("speaker_1", "after")]),
    ]
    assert [(it["line"], reason in it["reason"]) for it in outcome.rejected] == [(6, True)]


@pytest.mark.parametrize("piece", ["<v ", "<v  ", "<c ", "[", "(", "a:", "Ann ", "{\\", "♪", "-->", "<00:"])
def test_long_malformed_cues_are_read_in_linear_time(piece: str, tmp_path: Path, try_import: Callable):
    try_import("transcript", call(tmp_path / "in", "Ann: fine", piece * 100_000))
