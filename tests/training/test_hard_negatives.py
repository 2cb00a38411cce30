"""Hard negatives equal those of a brute-force search, are never from the own dialogue, and are cached."""

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.tiny import backbone, corpus, folder
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import ModelError
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.models.encoder import Encoder
from turnwise.objectives.objective import TurnTable
from turnwise.training import hard_negatives as hard_negatives_module
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.hard_negatives import mine_hard_negatives
from turnwise.training.tokens import tokenise_corpus


@cache
def encoder() -> Encoder:
    return Encoder.load(backbone(), device="cpu")


@cache
def texts() -> TurnTable:
    return tokenise_corpus(TrainingCorpus(corpus(), folder() / "negatives"), encoder().backbone.tokenizer)


def rows(table: np.ndarray, turns: int) -> list[list[int]]:
    return [[n for n in row if n >= 0] for row in table.tolist()]


@cache
def mined() -> list[list[int]]:
    return rows(
        mine_hard_negatives(TrainingCorpus(corpus(), folder() / "negatives"), texts(), backbone(), count=5),
        len(texts()),
    )


def list_turns(source: Corpus) -> list[tuple[int, int, Turn]]:
    """Return every turn with the number of its dialogue and its position."""
    return [
        (number, place, turn) for number, dialogue in enumerate(source) for place, turn in enumerate(dialogue.turns)
    ]


def search_all(source: Corpus) -> list[dict[int, float]]:
    """Return, for every turn, the cosines of all allowed hard negatives, in a loop over turns."""
    turns = list_turns(source)
    firsts: dict[str, int] = {}
    for number, (_, place, turn) in enumerate(turns):
        if place:
            firsts.setdefault(turn.text.strip().lower(), number)
    vectors = encoder().encode([[turns[number][2]] for number in firsts.values()], normalise=True)
    histories = [list(dialogue.turns[:place])[-4:] for dialogue in source for place in range(1, len(dialogue.turns))]
    cosines = iter(encoder().encode(histories, normalise=True) @ vectors.T)
    expected: list[dict[int, float]] = []
    for dialogue in source:
        own = {turn.text.strip().lower() for turn in dialogue.turns}
        expected.append({})
        for _ in dialogue.turns[1:]:
            near = dict(zip(firsts.items(), next(cosines).tolist(), strict=True))
            expected.append({number: cosine for (text, number), cosine in near.items() if text not in own})
    return expected


def check(negatives: list[list[int]], expected: list[dict[int, float]], most: int) -> None:
    """Compare cosines, since equally near turns may be in any order."""
    assert len(negatives) == len(expected)
    for mine, allowed in zip(negatives, expected, strict=True):
        assert len(mine) == len(set(mine)) == min(most, len(allowed))
        assert set(mine) <= set(allowed)
        nearest = sorted(allowed.values(), reverse=True)[: len(mine)]
        assert [allowed[number] for number in mine] == pytest.approx(nearest, abs=1e-5)


@cache
def expected() -> list[dict[int, float]]:
    return search_all(corpus())


def test_hard_negatives_equal_a_brute_force_search() -> None:
    check(mined(), expected(), 5)


@pytest.mark.parametrize(("queries", "encoded"), [(1, 1000), (7, 50), (1000, 30)])
def test_block_sizes_change_nothing(
    queries: int, encoded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hard_negatives_module, "QUERIES", queries)
    monkeypatch.setattr(hard_negatives_module, "TOKENISE_BATCH", encoded)
    check(
        rows(mine_hard_negatives(TrainingCorpus(corpus(), tmp_path), texts(), backbone(), count=5), len(texts())),
        expected(),
        5,
    )


def test_stores_can_be_selected(tmp_path: Path) -> None:
    """Others get no hard negatives, and give none."""
    talks = [[("a b", "c d"), ("a", "c e", "b d")], [("c", "d"), ("e", "a b")], [("b", "a"), ("d", "e f")]]
    folders = [stored(tmp_path / str(number), *each).stores[0].folder for number, each in enumerate(talks)]
    source = TrainingCorpus(read_corpus(*folders), tmp_path / "cache")
    table = tokenise_corpus(source, encoder().backbone.tokenizer)
    mined = rows(mine_hard_negatives(source, table, backbone(), count=9, stores=[0, 2]), len(table))
    responses = {1, 3, 4, 10, 12}  # of the first and the third store
    for turn, negatives in enumerate(mined):
        assert bool(negatives) == (turn in responses)
        assert set(negatives) <= responses - {turn}
    assert {turn for negatives in mined for turn in negatives} == responses


def test_texts_of_the_own_dialogue_are_no_hard_negatives() -> None:
    turns = list_turns(corpus())
    starts = texts().dialogue_starts
    for (dialogue, place, _), negatives in zip(turns, mined(), strict=True):
        assert bool(negatives) == (place > 0)
        own = {texts().identity(turn) for turn in range(starts[dialogue], starts[dialogue + 1])}
        assert not own & {texts().identity(negative) for negative in negatives}
        assert all(turns[negative][1] > 0 and turns[negative][0] != dialogue for negative in negatives)


def stored(place: Path, *dialogues: tuple[str, ...]) -> Corpus:
    with StoreWriter(place) as writer:
        for number, spoken in enumerate(dialogues):
            writer.write(Dialogue(str(number), tuple(Turn("user", text) for text in spoken)))
        writer.commit({})
    return read_corpus(place)


def test_few_responses_give_few_hard_negatives(tmp_path: Path) -> None:
    """Equal texts count once, ignoring case and space; texts of the own dialogue and first turns do not count."""
    source = stored(tmp_path / "store", ("hello", "Yes."), ("hello", "yes. ", "no"), ("maybe",), ("why", "hello"))
    table = tokenise_corpus(TrainingCorpus(source, tmp_path), encoder().backbone.tokenizer)
    negatives = rows(mine_hard_negatives(TrainingCorpus(source, tmp_path), table, backbone()), len(table))
    # turns: hello 0, Yes. 1 | hello 2, yes. 3, no 4 | maybe 5 | why 6, hello 7
    assert [sorted(row) for row in negatives] == [[], [4], [], [], [], [], [], [1, 4]]
    alone = stored(tmp_path / "alone", ("hello",), ("why",))
    table = tokenise_corpus(TrainingCorpus(alone, tmp_path), encoder().backbone.tokenizer)
    assert rows(mine_hard_negatives(TrainingCorpus(alone, tmp_path), table, backbone()), len(table)) == [[], []]


def test_candidates_are_a_deterministic_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hard_negatives_module, "CANDIDATES", 20)
    samples = [
        rows(
            mine_hard_negatives(TrainingCorpus(corpus(), tmp_path / name), texts(), backbone(), count=20),
            len(texts()),
        )
        for name in ("one", "two")
    ]
    chosen = {negative for row in samples[0] for negative in row}
    assert len(chosen) == 20
    assert {negative for row in samples[1] for negative in row} == chosen
    check(
        samples[0],
        [{number: cosine for number, cosine in row.items() if number in chosen} for row in expected()],
        20,
    )


def test_hard_negatives_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[tuple[str, int, int | None]] = []

    def report(what: str, done: int, total: int | None = None) -> None:
        reports.append((what, done, total))

    torch.manual_seed(3)
    first = mine_hard_negatives(TrainingCorpus(corpus(), tmp_path), texts(), backbone(), report)
    random_number = torch.rand(1)
    steps = [(done, total) for what, done, total in reports if what == "mining hard negatives"]
    answers = sum(bool(place) for _, place, _ in list_turns(corpus()))
    assert steps[-1] == (answers, answers)
    assert all(before <= after for (before, _), (after, _) in pairwise(steps))

    def load(*_: object) -> None:
        raise AssertionError("the encoder is not needed a second time")

    monkeypatch.setattr(Encoder, "load", load)
    torch.manual_seed(3)
    again = mine_hard_negatives(TrainingCorpus(corpus(), tmp_path), texts(), backbone())
    assert rows(again, len(texts())) == rows(first, len(texts()))
    # mined or cached, the heads of a run are initialised alike
    assert torch.equal(torch.rand(1), random_number)
    with pytest.raises(AssertionError, match="a second time"):
        mine_hard_negatives(TrainingCorpus(corpus(), tmp_path), texts(), backbone(), count=3)
    with pytest.raises(AssertionError, match="a second time"):
        mine_hard_negatives(TrainingCorpus(corpus(), tmp_path), texts(), backbone(0.2))
    with pytest.raises(AssertionError, match="a second time"):
        mine_hard_negatives(TrainingCorpus(corpus().sample(0.5), tmp_path), texts(), backbone())
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir() if path.name != ".locks"] == ["negatives"]


def test_the_token_table_returns_hard_negatives(tmp_path: Path) -> None:
    table = tokenise_corpus(TrainingCorpus(corpus(), tmp_path), encoder().backbone.tokenizer)
    with pytest.raises(AssertionError, match="no miner"):
        table.hard_negatives(1)
    table.negatives = mine_hard_negatives(TrainingCorpus(corpus(), folder() / "negatives"), table, backbone(), count=5)
    assert [table.hard_negatives(turn).tolist() for turn in range(len(table))] == mined()
    assert table.hard_negatives(1).dtype == np.int64


def test_a_missing_miner_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere does not exist"):
        mine_hard_negatives(TrainingCorpus(corpus(), tmp_path), texts(), str(tmp_path / "nowhere"))
