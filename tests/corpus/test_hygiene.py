"""Tests that each cleaning step works, reports its changes, keeps slots valid and leaves no hidden holes."""

import json
import unicodedata
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.strategies import dialogues
from turnwise import Dialogue, Slot, Turn, import_corpus, read_corpus
from turnwise.core.errors import CorpusError
from turnwise.corpus.hygiene.edits import HolePolicy
from turnwise.corpus.hygiene.masking import Masking
from turnwise.corpus.hygiene.steps import LOG_STEPS, STEPS, CleaningStep, make_step, plan_steps

VALUES = {"minimum-turns": "=2", "maximum-turns": "=3", "maximum-words": "=2"}
EVERY_STEP = [name + VALUES.get(name, "") for name in STEPS]


def one(*texts: str, speakers: str = "us") -> Dialogue:
    names = {"u": "user", "s": "system"}
    return Dialogue("d", tuple(Turn(names[speakers[i % len(speakers)]], text) for i, text in enumerate(texts)))


def apply(step: str | CleaningStep, dialogue: Dialogue) -> Dialogue:
    step = make_step(step) if isinstance(step, str) else step
    (changed,) = step([dialogue])
    return changed


@settings(deadline=None)
@given(st.sampled_from(EVERY_STEP), dialogues())
def test_no_turn_is_dropped_from_the_middle_and_slots_stay_exact(step: str, dialogue: Dialogue) -> None:
    """Turns stay in order, and only merging and truncating change their number; Turn validates the slots."""
    remaining = list(make_step(step)([dialogue]))
    if not remaining:
        return
    (changed,) = remaining
    speakers = [turn.speaker for turn in dialogue.turns]
    after = [turn.speaker for turn in changed.turns]
    if step == "merge-speakers":
        assert after == [name for i, name in enumerate(speakers) if i == 0 or speakers[i - 1] != name]
        assert " ".join(turn.text for turn in changed.turns) == " ".join(turn.text for turn in dialogue.turns)
    elif step == "repeated-messages":
        assert set(changed.turns) <= set(dialogue.turns) and changed.turns[0] == dialogue.turns[0]
    else:
        assert after == speakers[: len(after)]
        assert step.startswith("maximum-turns") or len(after) == len(speakers)
    assert (changed.id, changed.source, changed.split) == (dialogue.id, dialogue.source, dialogue.split)


@settings(deadline=None)
@given(st.sampled_from([s for s in EVERY_STEP if "duplicates" not in s]), dialogues())
def test_steps_are_idempotent(step: str, dialogue: Dialogue) -> None:
    for changed in make_step(step)([dialogue]):
        assert apply(step, changed) == changed


@given(st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text))
def test_unicode_equals_the_standard_library(text: str) -> None:
    try:
        dialogue = one(text)
    except ValueError:
        return
    assert apply("unicode", dialogue).turns[0].text == unicodedata.normalize("NFC", text)


def test_control_characters_go_and_line_ends_become_spaces() -> None:
    step = make_step("control-characters")
    changed = apply(step, one("a\x07b\u200bc \n\n d\u202ee", "plain", "family 👨\u200d👩\u200d👧"))
    assert [turn.text for turn in changed.turns] == ["abc de", "plain", "family 👨\u200d👩\u200d👧"]
    assert step.changes["turns changed"] == 1


def test_merge_joins_labels_and_moves_slots() -> None:
    first = Turn("user", "to Rome", "book", ("inform(city)",), (Slot("city", "Rome", 3, 7),))
    second = Turn("user", "at nine", None, ("inform(time)", "inform(city)"), (Slot("time", "nine", 3, 7),))
    step = make_step("merge-speakers")
    merged = apply(step, Dialogue("d", (first, second, Turn("system", "done"))))
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
    assert list(step([one("a", "b"), one("a", "b", "c")])) == [one("a", "b", "c")]
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
    changed = apply(step, dialogue)
    assert changed.turns[0].text == "from Rome  to"
    assert [slot.value for slot in changed.turns[0].slots] == ["Rome"]
    assert step.changes == {"slots lost": 1, "turns changed": 1}


def test_masks_are_counted_by_kind_and_chosen_by_kind() -> None:
    step = make_step("mask=email")
    changed = apply(step, one("a@b.example, c@d.example and www.example.org"))
    assert changed.turns[0].text == "[EMAIL], [EMAIL] and www.example.org"
    assert step.changes == {"email masked": 2, "turns changed": 1}


def test_exact_duplicates_keep_the_first() -> None:
    step = make_step("exact-duplicates")
    different = [one("hello", "yes"), one("hello", "yes", speakers="su"), one("hello yes")]
    assert list(step([different[0], *different])) == different
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
        kept = list(make_step("near-duplicates=0.75")([one(base), one(variant)]))
        assert len(kept) == (1 if expected is None else 2), similarity
    different = [one(f"{number} " + " ".join(f"w{number}x{i}" for i in range(30))) for number in range(200)]
    assert list(make_step("near-duplicates")(different)) == different


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ("polish", "no step 'polish'"),
        ("minimum-turns", "needs a number"),
        ("maximum-words=many", "needs a number"),
        ("maximum-words=²", "needs a number"),
        ("unicode=yes", "takes no value"),
        ("near-duplicates=2", "from 0.5 to below 1"),
        ("near-duplicates=x", "needs a similarity"),
        ("mask=colour", "cannot mask 'colour'"),
        ("automatic-messages=often", "needs a fraction"),
        ("automatic-messages=0", "a fraction above 0 and up to 1"),
    ],
)
def test_invalid_steps(description: str, reason: str) -> None:
    with pytest.raises(CorpusError, match=reason):
        make_step(description)


# ---- turns that are removed


def test_repeated_messages_keep_the_first_without_a_hole() -> None:
    step = make_step("repeated-messages")
    dialogue = one("Hello", "hello ", "HELLO", "Hello", "Hi there", "hi", "hi", speakers="uuussss")
    assert list(step([dialogue])) == [one("Hello", "Hello", "Hi there", "hi", speakers="usss")]
    assert step.changes == {"repeated turns removed": 3}


WELCOME = "Welcome to Example support, an agent will be with you shortly."
QUEUE = "You are number {} in the queue, please wait."
ANYTHING_ELSE = "Is there anything else I can help you with?"
CLOSING = "Please rate this chat at https://rate.example or write to help@mail.example."


def chat(number: int, *turns: tuple[str, str]) -> Dialogue:
    return Dialogue(f"c{number}", tuple(Turn(speaker, text) for speaker, text in turns))


def support_chat(number: int) -> Dialogue:
    return chat(
        number,
        ("system", WELCOME),
        ("user", f"my order {number} is late"),
        ("system", QUEUE.format(number)),
        ("system", f"Hello, I am looking at order {'x' * number} now"),
        ("user", "I would like to thank you"),
        ("system", ANYTHING_ELSE),
        ("user", "no"),
        ("system", "bye"),
        ("system", CLOSING),
    )


def texts(dialogues: list[Dialogue]) -> list[list[str]]:
    return [[turn.text for turn in dialogue.turns] for dialogue in dialogues]


def test_automatic_messages_are_removed_and_the_dialogue_is_split_there() -> None:
    step = make_step("automatic-messages")
    cleaned = list(step(map(support_chat, range(30))))
    assert texts(cleaned[14:16]) == [
        ["my order 7 is late"],
        ["Hello, I am looking at order xxxxxxx now", "I would like to thank you", ANYTHING_ELSE, "no", "bye"],
    ]
    assert [dialogue.id for dialogue in cleaned[14:16]] == ["c7", "c7#2"]
    assert step.changes == {
        "turns removed": 90,
        "dialogues split": 30,
        f'times "{WELCOME}"': 30,
        'times "You are number # in the queue, please wait."': 30,
        'times "Please rate this chat at [URL] or write to [EMAIL]."': 30,
    }


def test_automatic_messages_with_other_hole_policies() -> None:
    chats = [support_chat(number) for number in range(30)]
    kept = list(make_step("automatic-messages", holes="keep")(chats))
    assert texts(kept[3:4]) == [
        [
            "my order 3 is late",
            "Hello, I am looking at order xxx now",
            "I would like to thank you",
            ANYTHING_ELSE,
            "no",
            "bye",
        ]
    ]
    step = make_step("automatic-messages", holes="drop-dialogue")
    assert list(step(chats)) == []
    assert step.changes["dialogues dropped"] == 30
    assert step.changes["turns dropped with them"] == 270


@pytest.mark.parametrize("policy", ["split", "drop-dialogue", "keep"])
def test_automatic_messages_at_the_edges_leave_no_hole(policy: HolePolicy) -> None:
    chats = [chat(n, ("system", WELCOME), ("user", f"hello {n}"), ("system", "hi")) for n in range(20)]
    cleaned = list(make_step("automatic-messages", holes=policy)(chats))
    assert cleaned == [chat(n, ("user", f"hello {n}"), ("system", "hi")) for n in range(20)]


def test_dialogue_of_automatic_messages_only_is_dropped() -> None:
    chats = [chat(n, ("system", WELCOME), ("user", "hello")) for n in range(20)]
    step = make_step("automatic-messages")
    assert len(list(step([*chats, chat(20, ("system", WELCOME))]))) == 20
    assert step.changes["dialogues dropped"] == 1


def test_parts_get_ids_that_no_other_part_has() -> None:
    chats = [support_chat(number) for number in range(20)]
    others = [Dialogue(identifier, (Turn("user", "and then"),)) for identifier in ("c5#2", "c5#3", "c6#2")]
    ids = [dialogue.id for dialogue in make_step("automatic-messages")([*chats, *others])]
    assert len(ids) == len(set(ids)) == 43
    assert {"c4#2", "c5#4", "c6#3"} <= set(ids)


FREQUENT_BUT_HUMAN = {
    "answer to a first question": [("user", "how can I reset it?"), ("system", "Open the settings and choose reset.")],
    "answer to a later question": [
        ("user", "hello"),
        ("system", "hi"),
        ("user", "how can I reset it?"),
        ("system", "Open the settings and choose reset."),
    ],
    "question in the middle": [("user", "hi"), ("system", ANYTHING_ELSE), ("user", "no"), ("system", "bye")],
    "words of the user": [("user", "I would like to book a table"), ("system", "fine"), ("user", "thanks")],
    "words of somebody without a role": [("speaker_1", "hello, how are you doing today?"), ("speaker_2", "fine")],
    "few words": [("system", "Hello, welcome to Example"), ("user", "hi")],
    "no user": [("system", "Hello and welcome to our show"), ("speaker_1", "thanks")],
}


@pytest.mark.parametrize("turns", FREQUENT_BUT_HUMAN.values(), ids=FREQUENT_BUT_HUMAN)
def test_frequent_messages_of_people_survive(turns: list[tuple[str, str]]) -> None:
    chats = [chat(number, *turns) for number in range(40)]
    step = make_step("automatic-messages")
    assert list(step(chats)) == chats
    assert step.changes == {}


def mixed_chats(welcomed: int, total: int) -> Iterator[Dialogue]:
    for number in range(total):
        greeting = [("system", WELCOME)] if number < welcomed else []
        yield chat(number, *greeting, ("user", f"hello {number}"), ("system", "hi"))


@pytest.mark.parametrize(
    ("step", "welcomed", "total", "removed"),
    [
        ("automatic-messages", 19, 19, 0),
        ("automatic-messages", 20, 400, 20),
        ("automatic-messages", 20, 401, 0),
        ("automatic-messages=0.5", 199, 400, 0),
        ("automatic-messages=0.5", 200, 400, 200),
    ],
)
def test_automatic_messages_need_a_fraction_and_a_number_of_conversations(
    step: str, welcomed: int, total: int, removed: int
) -> None:
    cleaning = make_step(step)
    assert len(list(cleaning(mixed_chats(welcomed, total)))) == total
    assert cleaning.changes["turns removed"] == removed


def test_message_counts_once_per_conversation() -> None:
    dialogue = chat(0, *[("system", WELCOME)] * 30, ("user", "hello"))
    assert list(make_step("automatic-messages=0.01")([dialogue])) == [dialogue]


def test_reported_messages_are_masked_as_the_user_asks() -> None:
    text = "Welcome, {} of Example Ltd is here for you."
    chats = [chat(n, ("system", text.format("Anna Schmidt")), ("user", "hi")) for n in range(20)]
    step = make_step("automatic-messages", Masking(lists={"name": ["Anna Schmidt"]}))
    assert len(list(step(chats))) == 20
    assert step.changes[f'times "{text.format("[NAME]")}"'] == 20


# ---- streams and plans


@pytest.mark.parametrize("step", [name for name in EVERY_STEP if name != "automatic-messages"])
def test_steps_of_one_dialogue_at_a_time_do_not_wait_for_the_end(step: str) -> None:
    words = "alpha beta gamma delta"
    endless = (one(*(f"{word}{number}" for word in words.split())) for number in count())
    assert len(list(islice(make_step(step)(endless), 3))) == 3


def test_log_is_replaced_by_its_steps() -> None:
    assert plan_steps(["log", "merge-speakers"]) == [*LOG_STEPS, "merge-speakers"]
    assert set(LOG_STEPS) <= set(STEPS)


def test_masking_comes_after_what_reveals_personal_data() -> None:
    assert plan_steps(["mask=email", "log", "merge-speakers"]) == [
        *LOG_STEPS[:-1],
        "mask=email",
        "repeated-messages",
        "merge-speakers",
    ]
    assert plan_steps(["unicode", "mask", "merge-speakers"]) == ["unicode", "mask", "merge-speakers"]
    assert plan_steps(["mask", "minimum-turns=2"]) == ["mask", "minimum-turns=2"]


def test_import_with_log_and_masking(tmp_path: Path) -> None:
    turns = [
        {"speaker": "user", "text": "<p>write to anna&#64;mail.example</p><br>Sent from my iPhone"},
        {"speaker": "user", "text": "write to **anna@mail.example**"},
        {"speaker": "system", "text": "> write to me\nI *will*\u200b"},
    ]
    log = tmp_path / "chats.jsonl"
    log.write_text(json.dumps({"id": "d", "turns": turns}), encoding="utf-8")
    store = import_corpus("jsonl", log, tmp_path / "store", steps=["log"], masking=Masking())
    (dialogue,) = read_corpus(tmp_path / "store")
    assert [turn.text for turn in dialogue.turns] == ["write to [EMAIL]", "I will"]
    assert [step["step"] for step in store.manifest["steps"]] == plan_steps(["mask", "log"])
