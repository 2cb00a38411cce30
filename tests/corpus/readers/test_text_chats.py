"""Tests the readers of KakaoTalk's and Zoom's text exports, and of forums, beyond their layouts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.layouts import json_bytes, lay_out, lines_bytes
from tests.helpers.reading import read_directly, utterances
from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.formats import detect_format


def test_kakaotalk_time_that_does_not_exist_is_rejected_alone(tmp_path: Path, try_import: Callable):
    lines = [
        "2023년 5월 1일 오후 3:21, 안나 : 네",
        "2023년 5월 32일 오후 3:22, 벤 : 네?",
        "2023년 5월 1일 오후 3:23, 안나 : 빵",
    ]
    outcome = try_import(
        "kakaotalk", lay_out(tmp_path / "in", {"chat.txt": lines_bytes("안나 님과 카카오톡 대화", *lines)})
    )
    assert [[turn.text for turn in it.turns] for it in outcome.dialogues] == [["네"], ["빵"]]
    assert [it["line"] for it in outcome.rejected] == [3]


def test_kakaotalk_text_before_the_first_message_is_rejected(tmp_path: Path, try_import: Callable):
    lines = ["Date Saved : May 3, 2023, 11:29 AM", "and flour", "May 1, 2023, 3:21 PM, Anna : Rye"]
    outcome = try_import("kakaotalk", lay_out(tmp_path / "in", {"chat.txt": lines_bytes("Chats with Anna", *lines)}))
    assert [it["line"] for it in outcome.rejected] == [3]
    assert [utterances(it) for it in outcome.dialogues] == [[("speaker_1", "Rye")]]


def test_kakaotalk_message_that_looks_like_a_notice_or_a_quoted_message(tmp_path: Path, try_import: Callable):
    day = "--------------- 2023년 5월 1일 월요일 ---------------"
    lines = ["[안나] [오후 3:21] 벤님이 나갔습니다.", "[벤] [오후 3:22] [안나] [오후 3:21] 네"]
    outcome = try_import("kakaotalk", lay_out(tmp_path / "in", {"chat.txt": lines_bytes("x", day, *lines)}))
    assert utterances(outcome.dialogues[0]) == [
        ("speaker_1", "벤님이 나갔습니다."),
        ("speaker_2", "[안나] [오후 3:21] 네"),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["[INFO] [12:30] started", "[INFO] [12:31] stopped"],
        ["2023. 5. 1. 15:21 started", "2023. 5. 1. 15:22 stopped"],
        ["09:15:02 Message from Anna: started", "09:15:03 Message from Ben: stopped"],
        ["00:00:01\tstarted", "00:00:02\tstopped"],
    ],
)
def test_other_texts_with_times_are_no_chats(lines: list[str], tmp_path: Path):
    with pytest.raises(CorpusError, match="`kakaotalk`, `zoom`, `whatsapp` need lines that begin with a time"):
        detect_format(lay_out(tmp_path, {"log.txt": lines_bytes(*lines)}))


def test_zoom_lines_with_dates_are_not_taken_for_whatsapp(tmp_path: Path):
    lines = ["2026-05-19 17:41:10 From Al to Everyone: Hi", "2026-05-19 17:41:12 From Bo to Everyone: Hello"]
    assert detect_format(lay_out(tmp_path, {"chat.txt": lines_bytes(*lines)})).reader == "zoom"


def test_zoom_meeting_over_midnight(tmp_path: Path):
    lines = ["23:59:50 From Anna to Everyone: One", "00:00:10 From Ben to Everyone: Two"]
    folder = lay_out(tmp_path, {"2024-05-01 23.30.00 Night/chat.txt": lines_bytes(*lines)})
    (dialogue,), _, source = read_directly("zoom", folder)
    assert [turn.text for turn in dialogue.turns] == ["One", "Two"]
    assert source.start_times == {"2024-05-01 23.30.00 Night/chat": 1714607990.0}


def test_zoom_names_and_texts_with_separators(tmp_path: Path):
    lines = [
        "09:15:02\t From  Anna (Bakery, 9:00) : from 9 to 5 : noted",
        "09:15:03 From  Ben  to  Everyone : see https://bread.example: rye",
        '09:15:04 From  Anna  to  Everyone : "Replying to" is a phrase',
    ]
    (dialogue,), _, _ = read_directly("zoom", lay_out(tmp_path, {"chat.txt": lines_bytes(*lines)}))
    assert utterances(dialogue) == [
        ("speaker_1", "from 9 to 5 : noted"),
        ("speaker_2", "see https://bread.example: rye"),
        ("speaker_3", '"Replying to" is a phrase'),
    ]


def test_discourse_topic_in_pages_is_one_dialogue(tmp_path: Path):
    def page(*numbers: int) -> bytes:
        posts = [
            {
                "id": number,
                "topic_id": 7,
                "post_number": number,
                "username": "anna",
                "cooked": f"<p>{number}</p>",
                "created_at": f"2024-01-0{number}T10:00:00Z",
            }
            for number in numbers
        ]
        return json_bytes({"post_stream": {"posts": posts, "stream": [1, 2, 3]}, "id": 7})

    (dialogue,), _, source = read_directly("discourse", lay_out(tmp_path, {"a.json": page(3), "b.json": page(1, 2)}))
    assert (dialogue.id, [turn.text for turn in dialogue.turns]) == ("7", ["1", "2", "3"])
    assert not any("not in the files" in fact for fact in source.facts)


def test_whatsapp_messages_deleted_by_an_admin_are_holes(tmp_path: Path):
    mark = "\u200e"
    texts = ["Anna: One", f"Ben: {mark}This message was deleted by admin Clara.", "Anna: Two"]
    lines = [f"[31.12.23, 21:41:0{number}] {text}" for number, text in enumerate(texts)]
    dialogues, _, source = read_directly("whatsapp", lay_out(tmp_path, {"_chat.txt": lines_bytes(*lines)}))
    assert [turn.text for dialogue in dialogues for turn in dialogue.turns] == ["One", "Two"]
    assert source.left_out == {"deleted messages": 1}


@pytest.mark.parametrize(
    ("texts", "senders"),
    [
        (["Dr: Anna: Hi", "Ben: Hello", "Dr: Anna: How are you?", "Dr: Anna: Well?"], ["Dr: Anna", "Ben"]),
        (["Dr: Anna: Hi", "Dr: Ben: Hello"] * 3, ["Dr: Anna", "Dr: Ben"]),
        (["Anna: Note: rye", "Ben: Hello", "Anna: Note: salt", "Anna: Bye", "Anna: Note: oil"], ["Anna", "Ben"]),
        (["Anna: Note: rye", "Ben: Hello", "Anna: Note: salt"], ["Anna", "Ben"]),
    ],
)
def test_whatsapp_names_with_a_colon(texts: list[str], senders: list[str], tmp_path: Path):
    """A name with a colon is told by its repetition in all messages that begin like it."""
    lines = [f"31/12/23, 21:1{number} - {text}" for number, text in enumerate(texts)]
    folder = lay_out(tmp_path, {"chat.txt": lines_bytes(*lines)})
    speakers = {name: f"speaker_{number}" for number, name in enumerate(senders, 1)}
    (dialogue,), _, _ = read_directly("whatsapp", folder, speakers={**speakers, "*": "system"})
    expected = [next((f"{name}: ", text) for name in senders if text.startswith(f"{name}: ")) for text in texts]
    assert [(turn.speaker, turn.text) for turn in dialogue.turns] == [
        (speakers[name.removesuffix(": ")], text.removeprefix(name)) for name, text in expected
    ]
