"""Tests corpus views: combined turns, minimum number of turns, samples."""

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.stores import write_store
from tests.helpers.strategies import corpora
from turnwise import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.storage import rows as rows_module
from turnwise.corpus.storage.corpus import Corpus, read_corpus


def stored(folder: Path, dialogues: list[Dialogue]) -> Corpus:
    return read_corpus(write_store(folder, dialogues))


def dialogue_of(speakers: str, name: str = "d", split: str | None = None) -> Dialogue:
    names = {"u": "user", "s": "system"}
    return Dialogue(
        name, tuple(Turn(names[who], f"{who}{position}") for position, who in enumerate(speakers)), None, split
    )


def runs(dialogue: Dialogue) -> list[list[Turn]]:
    return [list(turns) for _, turns in itertools.groupby(dialogue.turns, key=lambda turn: turn.speaker)]


@settings(max_examples=60)
@given(corpora(8), st.booleans(), st.integers(1, 5), st.sampled_from([1.0, 0.7]), st.sampled_from([None, ["train"]]))
def test_view_equals_a_plain_restatement(
    dialogues: list[Dialogue], combine: bool, least: int, share: float, splits: list[str] | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            before = Corpus(stored(Path(folder) / "store", dialogues).stores, splits).sample(share)
        except CorpusError:
            return
        expected = [
            (dialogue, [[turn] for turn in dialogue.turns] if not combine else runs(dialogue)) for dialogue in before
        ]
        expected = [(dialogue, turns) for dialogue, turns in expected if len(turns) >= least]
        try:
            view = before.prepare(combine, least)
        except CorpusError:
            assert not expected
            return
        read_dialogues = list(view)
        assert len(view) == len(read_dialogues) == len(expected)
        assert list(view.prepare(combine, least)) == read_dialogues
        for read, (dialogue, joined) in zip(read_dialogues, expected, strict=True):
            assert (read.id, read.source, read.split) == (dialogue.id, dialogue.source, dialogue.split)
            assert [turn.speaker for turn in read.turns] == [turns[0].speaker for turns in joined]
            assert [turn.text for turn in read.turns] == [" ".join(turn.text for turn in turns) for turns in joined]
            for turn, parts in zip(read.turns, joined, strict=True):
                intents = [part.intent for part in parts if part.intent is not None]
                assert turn.intent == (intents[0] if intents else None)
                assert set(turn.acts) == {act for part in parts for act in part.acts}
                assert len(parts) == 1 or len(turn.acts) == len(set(turn.acts))
                values = [(slot.name, slot.value) for part in parts for slot in part.slots]
                assert [(slot.name, turn.text[slot.start : slot.end]) for slot in turn.slots] == values


def test_views_of_views(tmp_path: Path) -> None:
    """Splits, shares and preparing go together in any order; turns are counted after they are combined."""
    whole = stored(
        tmp_path / "store", [dialogue_of("usus" if number % 2 else "uuss", f"d{number}") for number in range(60)]
    )
    assert whole.prepare() is whole
    assert whole.prepare(False, 1) is whole
    half = list(whole.sample(0.5).prepare(True, 4))
    assert 0 < len(half) < 30
    assert list(whole.prepare(True, 4).sample(0.5)) == half
    assert list(whole.prepare(False, 4).prepare(True).sample(0.5)) == half
    assert list(whole.prepare(True, 4).prepare(False, 2).sample(0.5)) == half
    assert len(whole.prepare(min_turns=4)) == 60
    assert len(whole.prepare(True, 3)) == 30


def test_counting_goes_over_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A speaker that ends one dialogue and begins the next is counted in both, wherever a group ends."""
    monkeypatch.setattr(rows_module, "GROUP_TURNS", 5)
    whole = stored(
        tmp_path / "store",
        [dialogue_of(speakers, f"d{number}") for number, speakers in enumerate(["us", "su", "ss", "usu"] * 5)],
    )
    assert sum(1 for store in whole.stores for _ in store.batches()) > 3
    for least, expected in ((1, 20), (2, 15), (3, 5)):
        assert len(whole.prepare(True, least)) == expected
        assert sum(1 for _ in whole.prepare(True, least)) == expected


def test_empty_view_is_an_error(tmp_path: Path) -> None:
    whole = stored(tmp_path / "store", [dialogue_of("uuss", f"d{number}", "train") for number in range(5)])
    with pytest.raises(CorpusError, match=r"none of 5 dialogues has 5 turns or more: require fewer"):
        whole.prepare(min_turns=5)
    with pytest.raises(CorpusError, match=r"has 3 turns or more, once consecutive turns of one speaker are combined"):
        Corpus(whole.stores, ["train"]).prepare(True, 3)
    with pytest.raises(CorpusError, match="a fraction of 1e-09 of 5 dialogues is none"):
        whole.prepare(True, 2).sample(1e-9)


def test_a_split_includes_all_of_a_store_without_splits(tmp_path: Path) -> None:
    split = [dialogue_of("us", name, name) for name in ("train", "test")] + [dialogue_of("us", "neither")]
    first = write_store(tmp_path / "split", split)
    second = write_store(tmp_path / "unsplit", [dialogue_of("us", "a"), dialogue_of("us", "b")])
    corpus = read_corpus(first, second, splits=["train"])
    assert [dialogue.id for dialogue in corpus] == ["train", "a", "b"]
    assert len(corpus) == 3
    with pytest.raises(CorpusError, match="no dialogue is in split valid"):
        read_corpus(first, second, splits=["valid"])
    with pytest.raises(CorpusError, match="no dialogue is in split train"):
        read_corpus(second, splits=["train"])
