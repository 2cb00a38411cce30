"""Overlaps of collections equal those of plain sets of texts and pairs."""

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.stores import write_store
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.comparison_key import comparison_key
from turnwise.corpus.overlap import TextCollection, TextOverlap, decontaminate_store, find_overlaps
from turnwise.evaluation.leakage import open_text_collection

DATA = os.environ.get("TURNWISE_DATA")

WORDS = st.sampled_from(["yes", "Yes!", "no", "thank you", "thank-you", "goodbye", "...", "where is it?"])
COLLECTIONS = st.lists(st.lists(WORDS, max_size=5), max_size=8)
STORES = st.lists(st.lists(WORDS, min_size=1, max_size=5), min_size=1, max_size=8)


def letters(text: str) -> str:
    return re.sub("[^a-z]", "", text.lower())


def overlaps(*collections: Sequence[Sequence[str]], examples: int = 3) -> list[TextOverlap]:
    named = [TextCollection(str(number), lambda each=each: each) for number, each in enumerate(collections)]  # type: ignore[misc]
    return find_overlaps(named, examples)


def distinct_texts(dialogues: Sequence[Sequence[str]]) -> set[str]:
    return {letters(text) for dialogue in dialogues for text in dialogue} - {""}


def pairs_of(dialogue: Sequence[str]) -> list[tuple[str, str]]:
    return [pair for pair in pairwise(map(letters, dialogue)) if "" not in pair]


@given(COLLECTIONS, COLLECTIONS)
def test_counts_equal_those_of_plain_sets(first: list[list[str]], second: list[list[str]]) -> None:
    forward, backward = overlaps(first, second)
    for overlap, ours, theirs in ((forward, first, second), (backward, second, first)):
        our_texts, their_texts = distinct_texts(ours), distinct_texts(theirs)
        our_pairs, their_pairs = ({pair for each in part for pair in pairs_of(each)} for part in (ours, theirs))
        assert (overlap.texts, overlap.shared_texts) == (len(our_texts), len(our_texts & their_texts))
        assert (overlap.pairs, overlap.shared_pairs) == (len(our_pairs), len(our_pairs & their_pairs))
        ours = [dialogue for dialogue in ours if dialogue]
        assert overlap.dialogues == len(ours)
        assert overlap.sharing_dialogues == sum(bool(distinct_texts([each]) & their_texts) for each in ours)
        assert overlap.shared_endings == sum(tuple(map(letters, each[-2:])) in their_pairs for each in ours)


def test_examples_are_the_longest_shared_texts_and_pairs_as_written_in_the_first() -> None:
    first = [["Hi!", "How are you?", "fine, thanks"], ["HI", "What do you want to know?"]]
    second = [["hi", "how are you", "Fine. Thanks"], ["what do you want to know"]]
    overlap, _ = overlaps(first, second, examples=2)
    assert overlap.text_examples == ("What do you want to know?", "fine, thanks")
    assert overlap.pair_examples == (("How are you?", "fine, thanks"), ("Hi!", "How are you?"))


def test_every_collection_is_compared_with_every_other() -> None:
    found = overlaps([["a"]], [["a"], ["b"]], [["c"]], examples=0)
    assert [(each.first, each.second, each.shared_texts) for each in found] == [
        *(("0", "1", 1), ("0", "2", 0), ("1", "0", 1), ("1", "2", 0), ("2", "0", 0), ("2", "1", 0))
    ]
    assert all(each.text_examples == each.pair_examples == () for each in found)


def near(first: str, second: str) -> bool:
    ours, theirs = ({*comparison_key(text).split()} for text in (first, second))
    return len(ours & theirs) / len(ours | theirs) >= 0.8


SENTENCES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=9).map(lambda words: "xx ".join([*words, ""]))


@given(*[st.lists(st.lists(SENTENCES, min_size=1, max_size=3), min_size=1, max_size=12)] * 2)
def test_near_texts_equal_those_of_a_comparison_of_all_pairs(first: list[list[str]], second: list[list[str]]) -> None:
    found = overlaps(first, second, examples=1)
    for overlap, ours, theirs in zip(found, (first, second), (second, first), strict=True):
        our_texts, their_texts = ({comparison_key(text) for each in part for text in each} for part in (ours, theirs))
        expected = {text for text in our_texts - their_texts if any(near(text, other) for other in their_texts)}
        assert overlap.near_texts == len(expected)
        assert all(comparison_key(text) in expected and near(text, other) for text, other in overlap.near_examples)


def test_large_collections_are_indexed_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.corpus.overlap.TEXTS_PER_INDEX", 2)
    first = [[f"please order {word} for me"] for word in ("one", "two", "six", "ten")]
    second = [[f"please order {word} for me now"] for word in ("six", "ten", "two", "nine", "eight")]
    forward, backward = overlaps(first, second)
    assert (forward.near_texts, backward.near_texts) == (3, 3)
    assert ("please order ten for me", "please order ten for me now") in forward.near_examples
    assert ("please order ten for me now", "please order ten for me") in backward.near_examples


@pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")
def test_near_texts_of_hwu64_in_massive() -> None:
    names = ("hwu64_kfold:test", "massive:train")
    overlap, _ = find_overlaps([open_text_collection(name, Path(DATA or "")) for name in names])
    # of the 589 that are left without the shared ones
    assert (overlap.texts, overlap.shared_texts, overlap.near_texts) == (1_076, 487, 40)


def write_ours(factory: pytest.TempPathFactory, ours: list[list[str]]) -> Path:
    folder = factory.mktemp("stores")
    write_store(folder / "ours", [dialogue(str(number), *each) for number, each in enumerate(ours)])
    return folder


def dialogue(name: str, *texts: str) -> Dialogue:
    return Dialogue(name, tuple(Turn("user", text) for text in texts), "made", "train")


@given(STORES, COLLECTIONS)
def test_decontamination_drops_shared_pairs_and_shared_single_texts_only(
    tmp_path_factory: pytest.TempPathFactory, ours: list[list[str]], theirs: list[list[str]]
) -> None:
    folder = write_ours(tmp_path_factory, ours)
    their_texts, their_pairs = distinct_texts(theirs), {pair for each in theirs for pair in pairs_of(each)}
    kept = [
        str(number)
        for number, each in enumerate(ours)
        if not (distinct_texts([each]) & their_texts if len(each) == 1 else set(pairs_of(each)) & their_pairs)
    ]
    collection = TextCollection("theirs", lambda: theirs)
    if not kept:
        with pytest.raises(CorpusError, match=r"every dialogue of .*ours is in theirs"):
            decontaminate_store(folder / "ours", [collection], folder / "clean", by_turn=False)
        assert not (folder / "clean").exists()
        return
    clean = decontaminate_store(folder / "ours", [collection], folder / "clean", by_turn=False)
    assert [each.id for each in clean] == kept
    assert clean.manifest["facts"]["dropped"] == {"theirs": len(ours) - len(kept)}


def test_decontamination_counts_a_dialogue_for_the_first_collection_that_has_it(tmp_path: Path) -> None:
    write_store(tmp_path / "ours", [dialogue("a", "wake me up"), dialogue("b", "Hi", "yes?"), dialogue("c", "stop")])
    collections = [
        TextCollection("first", lambda: [["Wake me up!"], ["hi", "no"]]),
        TextCollection("second", lambda: [["wake me up"], ["hi", "Yes"]]),
    ]
    clean = decontaminate_store(tmp_path / "ours", collections, tmp_path / "clean")
    assert [each.id for each in clean] == ["c"]
    assert clean.manifest["facts"]["dropped"] == {"first": 1, "second": 1}
    assert clean.manifest["read"] == {"dialogues": 3, "utterances": 4}


@given(STORES, COLLECTIONS)
def test_decontamination_by_turn_leaves_no_shared_text_and_makes_no_new_pair(
    tmp_path_factory: pytest.TempPathFactory, ours: list[list[str]], theirs: list[list[str]]
) -> None:
    folder = write_ours(tmp_path_factory, ours)
    shared = distinct_texts(theirs)
    expected: list[list[str]] = []
    for each in ours:
        runs: list[list[str]] = [[]]
        for text in each:
            if distinct_texts([[text]]) & shared:
                runs.append([])
            else:
                runs[-1].append(text)
        expected += [run for run in runs if run]
    collection = TextCollection("theirs", lambda: theirs)
    if not expected:
        with pytest.raises(CorpusError, match=r"every turn of .*ours is in theirs"):
            decontaminate_store(folder / "ours", [collection], folder / "clean", by_turn=True)
        return
    clean = decontaminate_store(folder / "ours", [collection], folder / "clean", by_turn=True)
    assert [[turn.text for turn in each.turns] for each in clean] == expected
    assert len({each.id for each in clean}) == len(expected)
    assert clean.manifest["facts"]["dropped"] == {"theirs": sum(map(len, ours)) - sum(map(len, expected))}


def test_decontamination_by_turn_keeps_ids_of_whole_dialogues_and_numbers_the_rest(tmp_path: Path) -> None:
    write_store(tmp_path / "ours", [dialogue("a", "Hi", "yes", "thanks", "bye"), dialogue("b", "hello", "there")])
    clean = decontaminate_store(
        tmp_path / "ours", [TextCollection("test", lambda: [["YES!"]])], tmp_path / "clean", by_turn=True
    )
    assert [(each.id, [turn.text for turn in each.turns]) for each in clean] == [
        *(("a/1", ["Hi"]), ("a/2", ["thanks", "bye"]), ("b", ["hello", "there"]))
    ]


def test_single_texts_are_dropped_by_turn_and_dialogues_by_their_pairs(tmp_path: Path) -> None:
    """By dialogue, an utterance of a data set of intents would stay in dialogues of several turns."""
    write_store(
        tmp_path / "ours",
        [dialogue("a", "hi", "wake me up", "done"), dialogue("b", "yes", "it is late", "ok"), dialogue("c", "stop")],
    )
    collections = [
        TextCollection("intents", lambda: [["Wake me up!"], ["stop"]]),
        TextCollection("dialogues", lambda: [["yes", "it is late"], ["done"]]),
    ]
    clean = decontaminate_store(tmp_path / "ours", collections, tmp_path / "clean")
    assert [(each.id, [turn.text for turn in each.turns]) for each in clean] == [("a/1", ["hi"]), ("a/2", ["done"])]
    assert clean.manifest["facts"]["dropped"] == {"intents": 2, "dialogues": 1}
    assert clean.manifest["options"]["by_turn"] == {"intents": True, "dialogues": False}
