"""Keys of texts: equal where only the spelling differs, different where the meaning may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.corpus.comparison_key import comparison_key, key_words


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("What's the weather?", "what 's the weather ?"),
        ("WHAT'S  THE\tWEATHER", "what’s the_weather!"),
        ("I don't know, I'll ask", "i do n't know , i 'll ask"),
        ("it's", "it ' s"),
        ("the dogs' bowl", "the dogs bowl"),
        ("'hello' he said", "hello he said"),
        ("10:30 am", "10 : 30 am."),
        ("at 5 p.m.", "at 5 pm"),
        ("at nine p.m. on TV", "at nine p m on t v"),
        ("at 10am", "at 10 am"),
        ("let's go to Tom's", "lets go to tom s"),
        ("35 - 2", "35 − 2"),
        ("100%", "100 %"),
        ("well-known", "well known"),
        ("今天天气", "今天 天气"),
        ("ＡＢＣ １２３", "abc 123"),
        ("Straße", "STRASSE"),
        ("ok \u2764\ufe0f", "OK"),
    ],
)
def test_case_punctuation_and_space_do_not_matter(first: str, second: str) -> None:
    assert comparison_key(first) == comparison_key(second) != ""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("3.5 + 2", "35 − 2"),
        ("3.5", "35"),
        ("it is -5 degrees", "it is 5 degrees"),
        ("C++", "C#"),
        ("C++", "C"),
        ("$5", "€5"),
        ("5%", "5"),
        ("now here", "nowhere"),
        ("naïve", "naive"),
        ("हिंदी", "हदी"),
        ("ไม่", "ไม"),
        ("कि", "की"),
    ],
)
def test_what_carries_meaning_is_kept(first: str, second: str) -> None:
    assert comparison_key(first) != comparison_key(second)


def test_texts_without_words_have_no_key() -> None:
    assert [comparison_key(text) for text in ("", "?!", "...", " - ", "_", "👍")] == [""] * 6


def test_keys_of_version_1_are_letters_and_digits() -> None:
    assert comparison_key("What's the C++_code, 3.5?", 1) == "whatstheccode35"
    assert comparison_key("ＡＢＣ １２３", 1) == "abc123"


@given(st.text())
def test_keys_are_keys_of_themselves_up_to_case(text: str) -> None:
    key = comparison_key(text)
    assert key == key.strip() and "  " not in key
    assert "".join(key_words(key)) == key.replace(" ", "")


def test_words_of_scripts_without_spaces_are_characters() -> None:
    assert key_words(comparison_key("今天 天气, ok then?")) == ["今", "天", "天", "气", "ok", "then"]
