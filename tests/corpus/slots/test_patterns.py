"""Patterns against phrases with the places that a reader would mark."""

from pathlib import Path

import pytest

from turnwise.corpus.slots.detectors import BuiltInDetector, pattern_slots, slot_patterns

#: A phrase with its slots in brackets: [name value].
PHRASES = Path(__file__).with_name("patterns.txt").read_text(encoding="utf-8").splitlines()


def marked(text: str) -> str:
    """A text with the detected slots in brackets."""
    for slot in reversed(BuiltInDetector().find(text)):
        text = f"{text[: slot.start]}[{slot.name} {slot.value}]{text[slot.end :]}"
    return text


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("change", [str, str.upper], ids=["as written", "in capitals"])
def test_expected_slots_are_detected(phrase: str, change: type[str]) -> None:
    text = phrase.replace("]", "")
    for name, _ in slot_patterns():
        text = text.replace(f"[{name} ", "")
    result = marked(change(text))
    assert result.lower() == phrase


@pytest.mark.parametrize(
    "row", ["twenty one ", "five hundred and ", "next next ", "1,", "10:", "march ", "the ", "one - "]
)
def test_long_sequence_of_partial_matches_is_fast(row: str) -> None:
    """Read in every way that is possible, it would never end."""
    assert all(slot.end <= 300 * len(row) for slot in pattern_slots(row * 300 + "-x"))
