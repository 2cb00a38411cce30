"""Titles of conversations: the user's first request."""

import pytest

from turnwise.assist.conversations.titles import MAX_LENGTH, conversation_title
from turnwise.core.dialogue import Turn


def title(*texts: str) -> str:
    """Return the title of a conversation whose turns begin with the speaker's initial, such as "u hello"."""
    return conversation_title(
        [Turn({"u": "user", "s": "system"}.get(text[0], "speaker_1"), text[2:]) for text in texts]
    )


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["u hi", "s Hello!", "u where is my parcel?", "u it is late by a week"], "where is my parcel?"),
        (["s Hello, how can I help you today?", "u Good morning", "u cancel order 4711"], "cancel order 4711"),
        (["u hi there, can you help me please?", "s Sure.", "u my card is blocked"], "my card is blocked"),
        (["u hello [NAME_1] [NAME_2]", "u reset my password"], "reset my password"),
        (["u Hi, my parcel is lost"], "Hi, my parcel is lost"),
        (["u Guten Tag", "u Wo ist mein Paket?"], "Wo ist mein Paket?"),
        (["u 你好", "u 我的包裹在哪里"], "我的包裹在哪里"),
        (["u hi", "u refund", "s Which order?", "u ok"], "refund"),
        (["u hello", "s Hello."], "hello"),
        (["p hey", "p did you see the match"], "did you see the match"),
        (["s Your parcel has arrived."], "Your parcel has arrived."),
    ],
)
def test_greetings_and_short_openings_are_skipped(texts: list[str], expected: str) -> None:
    assert title(*texts) == expected


def test_titles_are_short_and_on_one_line() -> None:
    assert conversation_title([]) == ""
    result = title("u first line\n\nsecond " + "word " * 500)
    assert result.startswith("first line second word") and result.endswith("…") and len(result) <= MAX_LENGTH
