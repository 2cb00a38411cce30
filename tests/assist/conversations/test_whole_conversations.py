"""Whole conversations: their vectors, the ones alike, clusters, and an index that can be stopped."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.made_up_dialogues import SIZE, Words, dialogues, topic
from turnwise.assist.conversations import conversations as module
from turnwise.assist.conversations import vectors as conversation_vectors
from turnwise.assist.conversations.conversations import Conversations, ConversationsError
from turnwise.assist.conversations.vectors import Census, Usual, conversation_vector
from turnwise.assist.search.filters import FilterError
from turnwise.assist.search.table import TableError
from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn


@pytest.fixture
def kept(tmp_path: Path) -> Conversations:
    found = Conversations.open(tmp_path / "table", Words())
    found.index(dialogues(45))
    return found


# ---- the vector


SPEAKERS = st.sampled_from([USER, SYSTEM, "speaker_1", "speaker_2"])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(SPEAKERS, st.sampled_from("abcdef")), min_size=1, max_size=8),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(2, 900)),
)
def test_the_vector_written_out(said: list[tuple[str, str]], counts: dict[str, int]) -> None:
    turns = [Turn(*each) for each in said]
    vectors = Words().encode([turn.text for turn in turns])
    centre = np.random.default_rng(0).normal(size=SIZE).astype(np.float32) / 20
    means = []
    for role in (USER, SYSTEM):
        total, weights = np.zeros(SIZE), 0.0
        for turn, vector in zip(turns, vectors, strict=True):
            if turn.speaker == role or turn.speaker.startswith("speaker_"):
                weight = 1 / (1 + np.log10(counts.get(turn.text, 1)))
                total, weights = total + weight * (vector - centre), weights + weight
        means.append(total / weights if weights else total)
    expected = np.concatenate([means[0] + means[1], (means[0] - means[1]) / 2])
    found = conversation_vector(turns, vectors, Usual(counts, centre))
    assert found.dtype == np.float32 and np.linalg.norm(found) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-5)


def test_weights_fall_with_frequency() -> None:
    weights = Usual({"b": 2, "c": 10, "d": 1000}).weights([Turn(USER, text) for text in ("a", " B ", "c", "d")])
    assert (np.diff(weights) < 0).all() and weights[[0, 2, 3]] == pytest.approx([1, 1 / 2, 1 / 4])


def test_a_census_counts_what_is_the_same_text_and_finds_the_mean() -> None:
    census = Census()
    for turns in [[Turn(USER, "Yes "), Turn(SYSTEM, "yes"), Turn(USER, "no")], [Turn(USER, "YES")]]:
        census.read(turns)
    assert [turn.text for turn in census.sample] == ["Yes ", "yes", "no", "YES"]
    usual = census.usual(np.eye(4, dtype=np.float32))
    assert usual.counts == {"yes": 3}
    np.testing.assert_allclose(usual.centre, np.full(4, 1 / 14), atol=1e-6)  # as if ten turns more were zero


def test_a_census_draws_from_all_of_a_large_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_vectors, "SAMPLE", 100)
    census = Census()
    for number in range(1000):
        census.read([Turn(USER, str(number))])
    drawn = [int(turn.text) for turn in census.sample]
    assert len(set(drawn)) == 100 and 400 < np.mean(drawn) < 600


def test_what_is_said_counts_more_than_who_says_it() -> None:
    encoder = Words()

    def vector(*said: tuple[str, str]) -> np.ndarray:
        return conversation_vector([Turn(*each) for each in said], encoder.encode([text for _, text in said]), Usual())

    boats, gardens = "mast sail", "rose hedge"
    asked = vector((USER, boats), (SYSTEM, gardens))
    swapped = vector((SYSTEM, boats), (USER, gardens))
    other = vector((USER, "dial chime"), (SYSTEM, "pendulum hour"))
    assert asked @ other < asked @ swapped < 0.99
    alone = vector((USER, boats))  # the other side is silent
    assert asked @ alone > swapped @ alone > other @ alone
    np.testing.assert_allclose(vector(("speaker_1", boats)), vector((USER, boats), (SYSTEM, boats)), atol=1e-6)


# ---- the ones alike


def test_the_nearest_are_about_the_same(kept: Conversations) -> None:
    shares = []
    for each in dialogues(45):
        found = kept.similar(each, top=5)
        assert len(found) == 5 and each.id not in {one.dialogue for one in found}
        assert [one.similarity for one in found] == sorted((one.similarity for one in found), reverse=True)
        shares.append(np.mean([topic(one.dialogue) == topic(each.id) for one in found]))
    assert np.mean(shares) > 0.75  # a third by chance


def test_weights_help_where_much_is_said_everywhere() -> None:
    corpus, encoder = dialogues(90, seed=3), Words()

    def share(said: Usual) -> float:
        vectors = np.stack(
            [
                conversation_vector(each.turns, encoder.encode([turn.text for turn in each.turns]), said)
                for each in corpus
            ]
        )
        cosines = vectors @ vectors.T
        np.fill_diagonal(cosines, -1)
        near = np.argsort(-cosines, axis=1)[:, :5]
        return float(
            np.mean(
                [
                    [topic(corpus[row].id) == topic(each.id) for row in rows]
                    for each, rows in zip(corpus, near, strict=True)
                ]
            )
        )

    census = Census()
    for each in corpus:
        census.read(each.turns)
    usual = census.usual(encoder.encode([turn.text for turn in census.sample]))
    plain, weighted = share(Usual()), share(Usual(usual.counts))
    assert weighted > plain + 0.05 and share(usual) > plain + 0.05


def test_what_is_found_is_whole(kept: Conversations) -> None:
    corpus = {each.id: each for each in dialogues(45)}
    (found,) = kept.similar(corpus["boats 0"].turns, top=1)
    assert found.dialogue == "boats 0" and found.similarity == pytest.approx(1, abs=1e-5)
    assert (found.turns, found.source, found.split) == (corpus["boats 0"].turns, "made up", "test")
    assert kept.dialogue("boats 0") == corpus["boats 0"]


def test_conditions(kept: Conversations) -> None:
    asked = ["about mast rope"]
    assert {each.split for each in kept.similar(asked, top=9, where={"split": "train"})} == {"train"}
    assert kept.similar(asked, where={"source": "it's; DROP TABLE"}) == []
    with pytest.raises(FilterError, match="no column 'size'"):
        kept.similar(asked, where={"size": 3})


def test_vectors_of_a_caller_are_taken(kept: Conversations) -> None:
    said = [Turn(USER, "mast sail"), Turn(SYSTEM, "deck")]
    given = kept.encoder.encode(kept.inputs(said), normalise=True)
    vector = kept.vector(said, vectors=given)
    np.testing.assert_array_equal(vector, kept.vector(said))
    assert kept.similar(said, vector=vector) == kept.similar(said)


def test_texts_alternate_and_the_newest_is_the_user_s(kept: Conversations) -> None:
    turns = [Turn(USER, "hello there"), Turn(SYSTEM, "we have rope"), Turn(USER, "about sail")]
    np.testing.assert_array_equal(kept.vector([turn.text for turn in turns]), kept.vector(turns))


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ([], "a turn at least"),
        ("hello", r"\[text\]"),
        (["  "], "a word in it"),
        ([3], "not int"),
        ([None, "x"], "not NoneType"),
    ],
)
def test_what_is_no_conversation(kept: Conversations, said: Any, says: str) -> None:
    with pytest.raises(ConversationsError, match=says):
        kept.similar(said)


def test_numbers_and_names_that_are_not_there(kept: Conversations, tmp_path: Path) -> None:
    with pytest.raises(ConversationsError, match="top is 0"):
        kept.similar(["x"], top=0)
    with pytest.raises(ConversationsError, match="no dialogue 'nobody'"):
        kept.dialogue("nobody")
    kept.index(dialogues(3, source="elsewhere"))
    with pytest.raises(ConversationsError, match="of which source, elsewhere, made up"):
        kept.dialogue("boats 0")
    assert kept.dialogue("boats 0", "elsewhere").source == "elsewhere"
    empty = Conversations.open(tmp_path / "empty", Words())
    for act in (empty.clusters, lambda: empty.similar(["x"])):
        with pytest.raises(ConversationsError, match="holds no conversation"):
            act()


# ---- the index


def test_indexing_again_adds_nothing_and_encodes_nothing(kept: Conversations, tmp_path: Path) -> None:
    encoder = Words()
    again = Conversations.open(tmp_path / "table", encoder)
    before = encoder.encoded
    told: list[tuple[str, int, int | None]] = []
    done = again.index(
        dialogues(45), total=45, progress=lambda what, done, total=None: told.append((what, done, total))
    )
    assert (done.read, done.added, done.dialogues) == (45, 0, 45) and encoder.encoded == before
    assert ("indexing conversations", 45, 45) in told
    assert again.index(dialogues(50)).added == 5


def test_the_first_corpus_says_what_is_usual(kept: Conversations, tmp_path: Path) -> None:
    said = [Turn(USER, "hello there"), Turn(USER, "about sail")]
    before = kept.vector(said)
    kept.index([Dialogue(f"more {number}", (Turn(USER, "about sail"),)) for number in range(20)])
    np.testing.assert_array_equal(kept.vector(said), before)
    np.testing.assert_array_equal(Conversations.open(tmp_path / "table", Words()).vector(said), before)
    census = Census()
    for each in dialogues(45):
        census.read(each.turns)
    usual = census.usual(kept.encoder.encode([turn.text for turn in census.sample]))
    expected = conversation_vector(said, kept.encoder.encode([turn.text for turn in said]), usual)
    np.testing.assert_allclose(before, expected, atol=1e-5)


def test_a_corpus_of_one_turn(tmp_path: Path) -> None:
    kept = Conversations.open(tmp_path / "table", Words())
    kept.index([Dialogue("only", (Turn(USER, "mast and sail"),))])
    (found,) = kept.similar(["mast and sail"])
    assert found.dialogue == "only" and found.similarity == pytest.approx(1, abs=1e-5)


def test_what_cannot_be_indexed(tmp_path: Path) -> None:
    kept = Conversations.open(tmp_path / "table", Words())
    with pytest.raises(ConversationsError, match="only once"):
        kept.index(iter(dialogues(3)))
    with pytest.raises(ConversationsError, match="no dialogue"):
        kept.index([])
    assert kept.index(dialogues(3)).added == 3  # neither has left anything behind
    with pytest.raises(TableError, match="another encoder"):
        Conversations.open(tmp_path / "table", Words("other"))


def test_stopped_between_portions_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PORTION", 10)

    def stops(what: str, done: int, total: int | None = None) -> None:
        if what == "indexing conversations" and done >= 20:
            raise KeyboardInterrupt

    kept = Conversations.open(tmp_path / "table", Words())
    with pytest.raises(KeyboardInterrupt):
        kept.index(dialogues(45), progress=stops)
    again = Conversations.open(tmp_path / "table", Words())
    assert len(again) == 20 and again.index(dialogues(45)).added == 25
    whole = Conversations.open(tmp_path / "whole", Words())
    whole.index(dialogues(45))
    assert again.similar(["about sail"], top=45) == whole.similar(["about sail"], top=45)


_INDEXES = """
import sys
from tests.helpers.made_up_dialogues import Words, dialogues
from turnwise.assist.conversations import conversations as module
module.PORTION = 8
kept = module.Conversations.open(sys.argv[1], Words())
print("open", flush=True)
kept.index(dialogues(200), progress=lambda what, done, total=None: print(what, done, flush=True))
"""


def test_killed_at_any_moment_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _INDEXES, str(tmp_path / "table")]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    heard = [worker.stdout.readline()]
    while "indexing conversations 48" not in heard[-1]:
        heard.append(worker.stdout.readline())
        assert heard[-1], "it ended by itself"
    worker.send_signal(signal.SIGKILL)
    heard += worker.stdout.read().splitlines()
    worker.wait()
    told = max(int(line.split()[-1]) for line in heard if "indexing" in line)
    kept = Conversations.open(tmp_path / "table", Words())
    assert told <= len(kept) < 200
    kept.index(dialogues(200))
    found = kept.similar(["about sail"], top=1000)
    assert sorted(each.dialogue for each in found) == sorted(each.id for each in dialogues(200))


# ---- clusters


def test_clusters_are_topics(tmp_path: Path) -> None:
    kept = Conversations.open(tmp_path / "table", Words())
    kept.index(dialogues(120))
    found = kept.clusters(method="tsne", least=10)
    assert [each.number for each in found] == list(range(len(found))) and len(found) >= 3
    placed = {each.dialogue: each.cluster for each in kept.cluster_of(method="tsne", least=10)}
    assert set(placed) == {each.id for each in dialogues(120)}
    for each in found:
        members = [name for name, number in placed.items() if number == each.number]
        assert len(members) == each.size and set(each.examples) <= set(members)
        assert Counter(map(topic, members)).most_common(1)[0][1] > 0.9 * len(members)
        assert each.name and each.words
    assert kept.clusters(method="tsne", least=10) is found  # kept
    kept.index(dialogues(123))
    assert kept.clusters(method="tsne", least=10) is not found
