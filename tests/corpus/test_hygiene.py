"""Tests that each cleaning step works, reports its changes, keeps slots valid and drops no turn from the middle."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.strategies import dialogues
from turnwise import Dialogue, Slot, Turn
from turnwise.corpus.hygiene import STEPS, make_step
from turnwise.corpus.source import CorpusError

VALUES = {"minimum-turns": "=2", "maximum-turns": "=3", "maximum-words": "=2"}
EVERY_STEP = [name + VALUES.get(name, "") for name in STEPS]


def one(*texts: str, speakers: str = "us") -> Dialogue:
    names = {"u": "user", "s": "system"}
    return Dialogue("d", tuple(Turn(names[speakers[i % len(speakers)]], text) for i, text in enumerate(texts)))


def apply(step: str, dialogue: Dialogue) -> Dialogue:
    changed = make_step(step)(dialogue)
    assert changed is not None
    return changed


@settings(deadline=None)
@given(st.sampled_from(EVERY_STEP), dialogues())
def test_no_turn_is_dropped_from_the_middle_and_slots_stay_exact(step: str, dialogue: Dialogue) -> None:
    """Turns stay in order, and only merging and truncating change their number; Turn validates the slots."""
    changed = make_step(step)(dialogue)
    if changed is None:
        return
    speakers = [turn.speaker for turn in dialogue.turns]
    after = [turn.speaker for turn in changed.turns]
    if step == "merge-speakers":
        assert after == [name for i, name in enumerate(speakers) if i == 0 or speakers[i - 1] != name]
        assert " ".join(turn.text for turn in changed.turns) == " ".join(turn.text for turn in dialogue.turns)
    else:
        assert after == speakers[: len(after)]
        assert step.startswith("maximum-turns") or len(after) == len(speakers)
    assert (changed.id, changed.source, changed.split) == (dialogue.id, dialogue.source, dialogue.split)


@settings(deadline=None)
@given(st.sampled_from([s for s in EVERY_STEP if "duplicates" not in s]), dialogues())
def test_steps_are_idempotent(step: str, dialogue: Dialogue) -> None:
    changed = make_step(step)(dialogue)
    if changed is not None:
        assert make_step(step)(changed) == changed


@given(st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text))
def test_unicode_equals_the_standard_library(text: str) -> None:
    try:
        dialogue = one(text)
    except ValueError:
        return
    assert apply("unicode", dialogue).turns[0].text == unicodedata.normalize("NFC", text)


def test_unicode_moves_slots() -> None:
    text = "cafe\u0301 in Oslo"
    dialogue = Dialogue(
        "d", (Turn("user", text, slots=(Slot.from_text(text, "place", 0, 5), Slot.from_text(text, "city", 9, 13))),)
    )
    turn = apply("unicode", dialogue).turns[0]
    assert [(slot.value, slot.start) for slot in turn.slots] == [("café", 0), ("Oslo", 8)]


def test_control_characters_go_and_line_ends_become_spaces() -> None:
    step = make_step("control-characters")
    changed = step(one("a\x07b\u200bc \n\n d\u202ee", "plain", "family 👨\u200d👩\u200d👧"))
    assert changed is not None
    assert [turn.text for turn in changed.turns] == ["abc de", "plain", "family 👨\u200d👩\u200d👧"]
    assert step.changes["turns changed"] == 1


def test_turn_of_control_characters_only_is_kept_and_counted() -> None:
    step = make_step("control-characters")
    dialogue = one("hello", "\u200b", "bye")
    assert step(dialogue) == dialogue
    assert step.changes["turns left as they were, since nothing would remain"] == 1


def test_merge_joins_labels_and_moves_slots() -> None:
    first = Turn("user", "to Rome", "book", ("inform(city)",), (Slot("city", "Rome", 3, 7),))
    second = Turn("user", "at nine", None, ("inform(time)", "inform(city)"), (Slot("time", "nine", 3, 7),))
    step = make_step("merge-speakers")
    merged = step(Dialogue("d", (first, second, Turn("system", "done"))))
    assert merged is not None
    assert merged.turns[0] == Turn(
        "user",
        "to Rome at nine",
        "book",
        ("inform(city)", "inform(time)"),
        (Slot("city", "Rome", 3, 7), Slot("time", "nine", 11, 15)),
    )
    assert step.changes == {"turns joined to the one before": 1}


def test_minimum_and_maximum_turns() -> None:
    step = make_step("minimum-turns=3")
    assert step(one("a", "b")) is None
    assert step(one("a", "b", "c")) == one("a", "b", "c")
    assert step.changes == {"dialogues dropped": 1, "turns dropped with them": 2}
    assert apply("maximum-turns=2", one("a", "b", "c")) == one("a", "b")


def test_maximum_words_cuts_the_text_and_the_slots_behind_the_cut() -> None:
    text = "from Rome  to Oslo please"
    dialogue = Dialogue(
        "d",
        (
            Turn("user", text, slots=(Slot.from_text(text, "a", 5, 9), Slot.from_text(text, "b", 14, 18))),
            Turn("system", "ok"),
        ),
    )
    step = make_step("maximum-words=3")
    changed = step(dialogue)
    assert changed is not None
    assert changed.turns[0].text == "from Rome  to"
    assert [slot.value for slot in changed.turns[0].slots] == ["Rome"]
    assert step.changes == {"slots lost": 1, "turns changed": 1}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("write to ann.lee+x@mail.example.org now", "write to [EMAIL] now"),
        ("see https://example.org/a?b=1. thanks", "see [URL]. thanks"),
        ("or www.example.org/x, please", "or [URL], please"),
        ("my card is 4111 1111 1111 1111 ok", "my card is [CARD] ok"),
        ("my card is 4111-1111-1111-1111", "my card is [CARD]"),
        ("call +44 20 7946 0958 today", "call [PHONE] today"),
        ("call (555) 010-9999", "call [PHONE]"),
        ("call 01223323737.", "call [PHONE]."),
        ("on 2024-05-17 at 10:30", "on 2024-05-17 at 10:30"),
        ("on 17.05.2024", "on 17.05.2024"),
        ("it is 12.50 for 4 people, order 12345", "it is 12.50 for 4 people, order 12345"),
        ("no. 4111 1111 1111 1112", "no. 4111 1111 1111 1112"),
        ("file.name is not an address", "file.name is not an address"),
    ],
)
def test_masks(text: str, masked: str) -> None:
    assert apply("mask", one(text)).turns[0].text == masked


def test_masks_are_counted_by_kind_and_chosen_by_kind() -> None:
    step = make_step("mask=email")
    changed = step(one("a@b.example, c@d.example and www.example.org"))
    assert changed is not None
    assert changed.turns[0].text == "[EMAIL], [EMAIL] and www.example.org"
    assert step.changes == {"email masked": 2, "turns changed": 1}


def test_slot_around_a_mask_takes_its_value() -> None:
    text = "mail bob@x.example please"
    dialogue = Dialogue(
        "d", (Turn("user", text, slots=(Slot.from_text(text, "contact", 5, 18), Slot.from_text(text, "cut", 10, 25))),)
    )
    step = make_step("mask")
    changed = step(dialogue)
    assert changed is not None
    assert changed.turns[0].slots == (Slot("contact", "[EMAIL]", 5, 12),)
    assert step.changes["slots lost"] == 1


def test_exact_duplicates_keep_the_first() -> None:
    step = make_step("exact-duplicates")
    assert step(one("hello", "yes")) is not None
    assert step(one("hello", "yes")) is None
    assert step(one("hello", "yes", speakers="su")) is not None
    assert step(one("hello yes")) is not None
    assert step.changes["dialogues dropped"] == 1


def jaccard(a: str, b: str) -> float:
    sets = []
    for text in (a, b):
        words = text.lower().split()
        sets.append({tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_near_duplicates_follow_the_exact_similarity() -> None:
    """Compared with the exact Jaccard similarity: well above the threshold is dropped, well below is kept."""
    base = " ".join(f"word{number}" for number in range(300))
    for changed, expected in ((2, None), (6, None), (60, "kept"), (150, "kept")):
        words = base.split()
        for position in range(changed):
            words[position * (300 // changed)] = f"other{position}"
        variant = " ".join(words)
        similarity = jaccard(base, variant)
        assert similarity > 0.85 if expected is None else similarity < 0.6
        step = make_step("near-duplicates=0.75")
        assert step(one(base)) is not None
        assert (step(one(variant)) is None) == (expected is None), similarity
    step = make_step("near-duplicates")
    results = [step(one(f"{number} " + " ".join(f"w{number}x{i}" for i in range(30)))) for number in range(200)]
    assert all(dialogue is not None for dialogue in results)


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ("polish", "no step 'polish'"),
        ("minimum-turns", "needs a number"),
        ("minimum-turns=0", "needs a number"),
        ("maximum-words=many", "needs a number"),
        ("unicode=yes", "takes no value"),
        ("near-duplicates=2", "from 0.5 to below 1"),
        ("near-duplicates=x", "needs a similarity"),
        ("mask=colour", "cannot mask 'colour'"),
    ],
)
def test_invalid_steps(description: str, reason: str) -> None:
    with pytest.raises(CorpusError, match=reason):
        make_step(description)
