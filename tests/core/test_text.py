"""Texts on one line."""

from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.text import shorten_text


@given(st.text(), st.integers(1, 30))
def test_shortened_texts_fit_on_one_line(text: str, length: int) -> None:
    result = shorten_text(text, length)
    line = " ".join(text.split())
    assert len(result) <= length
    assert result == line if len(line) <= length else result.endswith("…") and line.startswith(result[:-1])
