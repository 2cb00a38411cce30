"""Tests of the cleaning steps for markup and e-mails: what goes, what must survive, and where slots move."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise import Dialogue, Slot, Turn
from turnwise.corpus.hygiene.steps import make_step

LEFT_AS_IS = "turns left as they were, since nothing would remain"


def clean(step: str, text: str) -> str:
    (cleaned,) = make_step(step)([Dialogue("d", (Turn("user", text),))])
    return cleaned.turns[0].text


CASES = yaml.safe_load(Path(__file__).with_name("text_steps.yaml").read_text(encoding="utf-8"))
CLEANED = [(step, text, expected) for step, cases in CASES.items() for text, expected in cases["cleaned"]]

#: What makes markup out of cleaned texts: entities can spell tags, and code can contain marks.
SPELT_MARKUP = {"html": "&", "markdown": "`"}


@pytest.mark.parametrize(("step", "text", "expected"), CLEANED)
def test_texts_are_cleaned(step: str, text: str, expected: str) -> None:
    assert clean(step, text) == expected
    if step in SPELT_MARKUP and SPELT_MARKUP[step] not in text:
        assert clean(step, expected) == expected


@pytest.mark.parametrize(("step", "text"), [(step, text) for step in CASES for text in CASES[step]["unchanged"]])
def test_other_text_is_left(step: str, text: str) -> None:
    assert clean(step, text) == text


def test_urls() -> None:
    assert clean("urls", "see https://shop.example/a?b=1. Or www.shop.example!") == "see [URL]. Or [URL]!"
    assert clean("urls", "mail anna@mail.example, file.name") == "mail anna@mail.example, file.name"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("email-quotes", "> all of it\n> is quoted"),
        ("email-quotes", "-----Original Message-----\nFrom: Ben\nhello"),
        ("control-characters", "\u200b"),
    ],
)
def test_message_of_which_nothing_would_remain_stays_and_is_counted(name: str, text: str) -> None:
    step = make_step(name)
    (cleaned,) = step([Dialogue("d", (Turn("user", text),))])
    assert cleaned.turns[0].text == text
    assert step.changes == {LEFT_AS_IS: 1}


LINES = [line for text, _ in CASES["email-quotes"]["cleaned"] for line in text.splitlines()]


@given(st.lists(st.sampled_from(LINES) | st.text("ab>-: \t", max_size=8), min_size=1, max_size=12))
def test_email_quotes_are_idempotent(lines: list[str]) -> None:
    text = "\n".join(lines).strip()
    if text:
        once = clean("email-quotes", text)
        assert clean("email-quotes", once) == once


PIECES = [
    piece
    for step, text, _ in CLEANED
    if step != "email-quotes"
    for piece in (text, text[: len(text) // 2], text[len(text) // 2 :])
]
MARKS = st.text("<>/!-*_~`#[]()|&;:.@ \n\t'\"ab1\u00a0\u0130\ufffc", max_size=30)


@settings(deadline=None)
@given(
    st.sampled_from(["html", "markdown", "urls", "email-quotes"]),
    st.lists(st.sampled_from(PIECES) | MARKS, min_size=1, max_size=4).map("".join),
    st.data(),
)
def test_no_text_raises_becomes_empty_or_gets_invalid_slots(step: str, text: str, data: st.DataObject) -> None:
    text = text.strip()
    if not text:
        return
    start = data.draw(st.integers(0, len(text) - 1))
    slot = Slot.from_text(text, "slot", start, data.draw(st.integers(start + 1, len(text))))
    cleaning = make_step(step)
    (cleaned,) = cleaning([Dialogue("d", (Turn("user", text, slots=(slot,)),))])
    (turn,) = cleaned.turns
    assert turn.text == turn.text.strip() != ""
    assert len(turn.slots) + cleaning.changes["slots lost"] == 1
    assert (turn.text != text) <= cleaning.changes["turns changed"]


@pytest.mark.parametrize(
    ("step", "text", "value", "moved"),
    [
        ("html", "<p>fly to <b>Rome</b> &amp; back</p>", "Rome", ("Rome", 7)),
        ("html", "<p>fly to <b>Rome</b> &amp; back</p>", "<b>Rome</b> &amp; back", ("Rome & back", 7)),
        ("markdown", "- fly to **Rome**", "Rome", ("Rome", 7)),
        ("markdown", "see [the map](https://maps.example/rome) of Rome", "of Rome", ("of Rome", 12)),
        ("urls", "see https://maps.example/rome for Rome", "Rome", ("Rome", 14)),
        ("unicode", "cafe\u0301 in Oslo", "cafe\u0301", ("café", 0)),
        ("unicode", "cafe\u0301 in Oslo", "Oslo", ("Oslo", 8)),
        ("mask", "mail bob@x.example please", "bob@x.example", ("[EMAIL]", 5)),
        ("email-quotes", "> where to?\nfly to Rome", "Rome", ("Rome", 7)),
    ],
)
def test_slots_move_with_their_text(step: str, text: str, value: str, moved: tuple[str, int]) -> None:
    start = text.index(value)
    turn = Turn("user", text, slots=(Slot("city", value, start, start + len(value)),))
    (cleaned,) = make_step(step)([Dialogue("d", (turn,))])
    assert [(slot.value, slot.start) for slot in cleaned.turns[0].slots] == [moved]


def test_slot_in_a_quoted_line_is_lost_and_counted() -> None:
    turn = Turn("user", "> to Oslo?\nyes", slots=(Slot("city", "Oslo", 5, 9),))
    step = make_step("email-quotes")
    (cleaned,) = step([Dialogue("d", (turn,))])
    assert cleaned.turns[0] == Turn("user", "yes")
    assert step.changes == {"slots lost": 1, "turns changed": 1}
