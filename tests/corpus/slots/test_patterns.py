"""Patterns against phrases with the places that a reader would mark."""

import pytest

from turnwise.corpus.slots.detectors import BuiltInDetector, pattern_slots, slot_patterns

#: A phrase with its slots in brackets: [name value].
PHRASES = """
pay [money $20] to rosa
it costs [money 20 dollars] or [money twenty five us dollars]
move [money $1,000.50] to savings
she owes me [money two hundred bucks]
[money £5 million] was raised
send [money $5k] now
[number 3] pounds of beef
remind me on [date march 3rd] at [time 5 pm]
the fair is on [date the 3rd of march 2019]
from [date january 4th] to [date the 8th]
the [ordinal 8th] of them
[date june 1st, 2020] was a [date monday]'s eve
call rosa [date next tuesday]
open [date mondays] and [date this coming friday]
[date tomorrow]'s weather
may i leave in [date may]
the band will march on [date the 5th] at [time noon]
they march and may sing
[date the day after tomorrow]
[date the next two weeks]
when is my next day off
we met [date two weeks ago] and meet in [date 2 days]
it was [date 12/25/2019]
in [date 1999] and in [time twenty minutes]
wake me at [time half past six]
wake me at [time quarter to five]
wake me at [time seven] [date tomorrow]
wake me at [time 5]
meet at [time 10:30am] or [time 5:15 pm]
lunch at [time twelve noon]
[time six o'clock pm] is late
[time five thirty p.m.] is early
[time eight p. m.] suits me
[time ten past six]
add [number 45] to [number 87]
at [number 5] star hotels
a timer for [time 10 minutes]
be back in [time half an hour]
what is on [time tonight]
the [ordinal third] song
play the [ordinal twenty first] track
read it first
first of all, hello
wait a second
book a table for [number four]
[number twenty five] guests
[number a hundred and twenty] guests
[number one hundred] guests
[number 2.5 million] people
between [number 2] and [number 3]
this one or that one
[number one and a half] cups
what about my 401k
covid-19 and flight ab123
room 12b, gate 4-5
the seventeenthly thing
""".strip().splitlines()


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
