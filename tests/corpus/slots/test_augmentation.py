"""Tests augmentation against the full product of values, and that held-out data never enter it."""

import json
import random
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.helpers.stores import write_store
from tests.helpers.strategies import corpora
from turnwise import Dialogue, Slot, Turn, read_corpus
from turnwise.cli import app
from turnwise.core.errors import CorpusError
from turnwise.corpus.slots.augmentation import augment, augment_store, pick_values, sample_combinations
from turnwise.corpus.slots.templates import EntityBook, Template
from turnwise.corpus.storage.store import Store


def switch(device: str, room: str, intent: str | None = "switch_on", speaker: str = "user") -> Turn:
    text, slots = Template(("Turn on ", " in ", "."), ("device", "room")).fill([device, room])
    return Turn(speaker, text, intent, (), slots)


#: The scene of the paper's Table 2, in words of our own.
HOUSE = [
    Dialogue("a", (switch("heater", "attic"), Turn("system", "Done.")), "home", "train"),
    Dialogue("b", (switch("radio", "cellar"),), "home", "train"),
    Dialogue("c", (switch("kettle", "porch"),), "home", "train"),
]


def house_store(folder: Path, dialogues: list[Dialogue]) -> Path:
    return write_store(folder, dialogues, reader="house", licence="none of yours")


def texts(augmented: list[Dialogue]) -> list[str]:
    return [turn.text for dialogue in augmented for turn in dialogue.turns]


def test_three_utterances_become_nine() -> None:
    augmented = list(augment(HOUSE, EntityBook.from_corpus(HOUSE), top=3))
    pairs = product(("heater", "radio", "kettle"), ("attic", "cellar", "porch"))
    assert sorted(texts(augmented)) == sorted(f"Turn on {device} in {room}." for device, room in pairs)
    assert [dialogue.id for dialogue in augmented[:3]] == [
        "000000-original-1",
        "000000-original-2",
        "000000-original-3",
    ]
    assert {(dialogue.source, dialogue.split, dialogue.turns[0].intent) for dialogue in augmented} == {
        ("home", "train", "switch_on")
    }


@settings(deadline=None, max_examples=25)
@given(corpora(6), st.integers(1, 3), st.integers(1, 6), st.sampled_from([None, "user"]))
def test_every_result_fits_its_template(dialogues: list[Dialogue], top: int, most: int, speaker: str | None) -> None:
    """With any texts, overlapping slots and intents, the result equals a plain restatement if nothing is sampled."""
    book = EntityBook.from_corpus(dialogues, speaker)
    augmented = list(augment(dialogues, book, top=top, max_per_template=most, speaker=speaker))
    turns = [turn for dialogue in dialogues for turn in dialogue.turns if speaker in (None, turn.speaker)]
    uses = {(Template.from_turn(turn), turn.intent) for turn in turns}

    def key(turn: Turn) -> tuple[str | None, str]:
        return turn.intent, turn.text.strip().lower()

    full = {key(turn) for turn in turns}
    for template, intent in uses:
        for values in product(*([value for value, _ in book.most_common(name, top)] for name in template.names)):
            full.add((intent, template.fill(values)[0].strip().lower()))
    keys = [key(dialogue.turns[0]) for dialogue in augmented]
    assert len(set(keys)) == len(keys)
    assert {key(turn) for turn in turns} <= set(keys) <= full
    everything = augment(dialogues, book, top=top, max_per_template=10**6, speaker=speaker)
    assert {key(dialogue.turns[0]) for dialogue in everything} == full
    assert len({dialogue.id for dialogue in augmented}) == len(augmented)
    for dialogue in augmented:
        (turn,) = dialogue.turns  # a turn checks its own offsets
        assert dialogue.split == "train"
        assert (Template.from_turn(turn), turn.intent) in uses
    counts = Counter(dialogue.id.split("-")[0] for dialogue in augmented if "original" not in dialogue.id)
    assert all(count <= most for count in counts.values())


def test_slot_without_values_leaves_the_original() -> None:
    assert texts(list(augment(HOUSE[:1], EntityBook(), top=3))) == ["Turn on heater in attic."]


def test_combinations_are_equally_likely() -> None:
    """All ten pairs of five are drawn about 1,000 times each: 4 standard deviations are 120."""
    generator = random.Random(5)
    counts = Counter(tuple(sample_combinations(5, 2, generator)) for _ in range(10_000))
    assert len(counts) == 10
    assert all(abs(count - 1_000) < 120 for count in counts.values())


def test_huge_numbers_of_combinations_are_sampled() -> None:
    words = tuple("w" * n for n in range(61))
    template = Template(words, ("letter",) * 60)
    values = [("abcde" * 12)[n : n + 1] for n in range(60)]
    text, slots = template.fill(values)
    corpus = [Dialogue("long", (Turn("user", text, None, (), slots),))]
    book = EntityBook.from_corpus(corpus)
    augmented = texts(list(augment(corpus, book, top=5, max_per_template=40, seed=2)))
    assert len(augmented) == 41
    assert augmented == texts(list(augment(corpus, book, top=5, max_per_template=40, seed=2)))
    assert augmented[1:] != texts(list(augment(corpus, book, top=5, max_per_template=40, seed=3)))[1:]


@given(st.lists(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=3), max_size=4))
def test_combinations_are_numbered_in_the_order_of_itertools_product(choices: list[list[str]]) -> None:
    for number, values in enumerate(product(*choices)):
        assert pick_values(number, choices) == list(values)


@pytest.mark.parametrize("limits", [{"top": 0}, {"top": 1, "max_per_template": 0}])
def test_limits_below_one_are_rejected(limits: dict[str, int]) -> None:
    with pytest.raises(CorpusError, match="must be at least 1"):
        list(augment(HOUSE, EntityBook.from_corpus(HOUSE), **limits))


def test_held_out_splits_are_not_read(tmp_path: Path) -> None:
    held_out = [
        Dialogue("t1", (switch("secret", "vault"),) * 3, "home", "test"),
        Dialogue(
            "t2",
            (Turn("user", "Where is the secret?", "ask", (), (Slot("device", "secret", 13, 19),)),),
            "home",
            "valid",
        ),
    ]
    folder = house_store(tmp_path / "house", [*held_out, *HOUSE])
    view = read_corpus(folder, splits=["train"])
    book = EntityBook.from_corpus(view)
    assert "secret" not in dict(book.most_common("device", 100))
    written = augment_store(folder, tmp_path / "out", top=9)
    for augmented in (list(written), list(augment(view, book, top=9))):
        assert len(augmented) == 9
        assert not any("secret" in text or "vault" in text or "Where" in text for text in texts(augmented))
    statistics = written.manifest["facts"]
    del statistics["made_of"]
    assert statistics == {
        "slot_names": 2,
        "values": 6,
        "templates": 1,
        "utterances": 3,
        "distinct_utterances": 3,
        "augmented_utterances": 9,
        "utterances_per_template": 9.0,
    }


def test_manifest_describes_the_origin(tmp_path: Path) -> None:
    folder = house_store(tmp_path / "house", HOUSE)
    written = augment_store(folder, tmp_path / "out", top=3, max_per_template=4, seed=7)
    again = augment_store(folder, tmp_path / "again", top=3, max_per_template=4, seed=7)
    other = augment_store(folder, tmp_path / "other", top=3, max_per_template=4, seed=8)
    assert written.manifest["options"] == {"top": 3, "most": 4, "seed": 7, "splits": ["train"], "speaker": "user"}
    assert written.manifest["licence"] == "none of yours"
    source = Store(folder).manifest
    assert [file["sha256"] for file in written.manifest["inputs"]] == [file["sha256"] for file in source["files"]]
    assert source["generation"] in written.manifest["facts"]["made_of"]
    assert again.manifest["generation"] == written.manifest["generation"] != other.manifest["generation"]
    with pytest.raises(CorpusError, match="choose another --out"):
        augment_store(folder, folder, top=3)


def test_commands(tmp_path: Path) -> None:
    folder = house_store(tmp_path / "house", HOUSE)
    run = CliRunner().invoke
    output = json.loads(run(app, ["corpus", "templates", str(folder), "--top", "1", "--json"]).stdout)
    assert output["slots"] == [
        {"name": "device", "count": 3, "top": {"heater": 1}},
        {"name": "room", "count": 3, "top": {"attic": 1}},
    ]
    assert output["common"] == [{"template": "Turn on {device} in {room}.", "count": 3}]
    assert (output["splits"], output["templates"], output["utterances"]) == (["train"], 1, 3)
    text = run(app, ["corpus", "templates", str(folder)]).stdout
    assert "split train" in text
    assert "Turn on {device} in {room}." in text
    augmenting = ["corpus", "augment", str(folder), "--out", str(tmp_path / "out"), "--top", "2"]
    assert "split train" in run(app, augmenting).stdout
    counted = json.loads(run(app, [*augmenting, "--json"]).stdout)
    assert counted["augmented_utterances"] == len(Store(tmp_path / "out")) == 6


def test_store_without_slots_is_rejected(tmp_path: Path) -> None:
    folder = house_store(
        tmp_path / "plain", [Dialogue("a", (Turn("user", "hello"), switch("heater", "attic", speaker="system")))]
    )
    for command in (["templates", str(folder)], ["augment", str(folder), "--out", str(tmp_path / "out"), "--top", "2"]):
        result = CliRunner().invoke(app, ["corpus", *command])
        assert isinstance(result.exception, CorpusError)
        assert "no turn of user has a slot" in str(result.exception)
    assert not (tmp_path / "out").exists()
    output = json.loads(
        CliRunner().invoke(app, ["corpus", "templates", str(folder), "--speaker", "any", "--json"]).stdout
    )
    assert (output["splits"], output["templates"]) == (None, 2)
