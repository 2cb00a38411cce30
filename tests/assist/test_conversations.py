"""Whole conversations: their vectors, similarity search, clusters, and resumable indexing."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.bag_of_words import SIZE, BagOfWords
from tests.helpers.topic_dialogues import dialogues, topic
from turnwise.assist import conversations as module
from turnwise.assist.conversations import Conversations, TurnStatistics, conversation_title, conversation_vector
from turnwise.assist.map.reduction import MapSettings
from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn
from turnwise.core.errors import EncoderMismatchError, SearchError


@pytest.fixture
def conversations(tmp_path: Path) -> Conversations:
    results = Conversations.open(tmp_path / "table", BagOfWords())
    results.index(dialogues(45))
    return results


# ---- the vector


SPEAKERS = st.sampled_from([USER, SYSTEM, "speaker_1", "speaker_2"])


@given(
    st.lists(st.tuples(SPEAKERS, st.sampled_from("abcdef")), min_size=1, max_size=8),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(2, 900)),
)
def test_vector_matches_a_restatement(pairs: list[tuple[str, str]], counts: dict[str, int]) -> None:
    turns = [Turn(*each) for each in pairs]
    vectors = BagOfWords().encode([turn.text for turn in turns])
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
    results = conversation_vector(turns, vectors, TurnStatistics(counts, centre))
    assert results.dtype == np.float32 and np.linalg.norm(results) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(results, expected / np.linalg.norm(expected), atol=1e-5)


def statistics_of(corpus: list[Dialogue], folder: Path) -> TurnStatistics:
    """Return the turn statistics of a corpus, as the index stores them."""
    conversations = Conversations.open(folder, BagOfWords())
    conversations.index(corpus)
    assert conversations._statistics is not None
    return conversations._statistics


def test_statistics_count_equal_texts_and_compute_the_mean(tmp_path: Path) -> None:
    turns = Turn(USER, "Yes "), Turn(SYSTEM, "yes"), Turn(USER, "no"), Turn(USER, "YES")
    statistics = statistics_of([Dialogue("1", turns[:3]), Dialogue("2", turns[3:])], tmp_path)
    assert statistics.counts == {"yes": 3}
    vectors = BagOfWords().encode([turn.text for turn in turns])
    np.testing.assert_allclose(statistics.mean, vectors.sum(0) / 14, atol=1e-6)  # as if ten turns more were zero


def test_sample_covers_a_large_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 100)
    sampled: list[int] = []

    class Recorder(BagOfWords):
        def encode(self, inputs: Any, **options: Any) -> np.ndarray:
            if len(inputs) == 100:
                sampled.extend(int(item[0].text) for item in inputs)
            return super().encode(inputs, **options)

    corpus = [Dialogue(str(number), (Turn(USER, str(number)),)) for number in range(1000)]
    Conversations.open(tmp_path, Recorder()).index(corpus)
    assert len(set(sampled[:100])) == 100 and 400 < np.mean(sampled[:100]) < 600


# ---- similar conversations


def test_result_contains_the_whole_conversation(conversations: Conversations) -> None:
    corpus = {each.id: each for each in dialogues(45)}
    (results,) = conversations.similar(corpus["boats 0"].turns, top=1)
    assert results.dialogue == "boats 0" and results.similarity == pytest.approx(1, abs=1e-5)
    assert (results.turns, results.source, results.split) == (corpus["boats 0"].turns, "made up", "test")
    assert conversations.dialogue("boats 0") == corpus["boats 0"]


def test_filters(conversations: Conversations) -> None:
    query = ["about mast rope"]
    assert {each.split for each in conversations.similar(query, top=9, where={"split": "train"})} == {"train"}
    assert conversations.similar(query, where={"source": "it's; DROP TABLE"}) == []
    with pytest.raises(SearchError, match="no column 'size'"):
        conversations.similar(query, where={"size": 3})


def test_precomputed_vectors(conversations: Conversations) -> None:
    query = [Turn(USER, "mast sail"), Turn(SYSTEM, "deck")]
    vectors = conversations.encoder.encode(conversations.inputs(query), normalise=True)
    np.testing.assert_array_equal(conversations.vector(query, vectors=vectors), conversations.vector(query))
    assert conversations.similar(query, vectors=vectors) == conversations.similar(query)


def test_speakers_of_bare_texts_alternate(conversations: Conversations) -> None:
    turns = [Turn(USER, "hello there"), Turn(SYSTEM, "we have rope"), Turn(USER, "about sail")]
    np.testing.assert_array_equal(conversations.vector([turn.text for turn in turns]), conversations.vector(turns))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ([], "at least one turn"),
        ("hello", r"\[text\]"),
        (["  "], "at least one word"),
        ([3], "not int"),
        ([None, "x"], "not NoneType"),
    ],
)
def test_invalid_conversations(conversations: Conversations, query: Any, message: str) -> None:
    with pytest.raises(SearchError, match=message):
        conversations.similar(query)


def test_invalid_arguments(conversations: Conversations, tmp_path: Path) -> None:
    with pytest.raises(SearchError, match="top must be at least 1"):
        conversations.similar(["x"], top=0)
    with pytest.raises(SearchError, match="no dialogue 'nobody'"):
        conversations.dialogue("nobody")
    conversations.index(dialogues(3, source="elsewhere"))
    with pytest.raises(SearchError, match="sources elsewhere, made up"):
        conversations.dialogue("boats 0")
    assert conversations.dialogue("boats 0", "elsewhere").source == "elsewhere"
    empty = Conversations.open(tmp_path / "empty", BagOfWords())
    for act in (empty.cluster, lambda: empty.similar(["x"])):
        with pytest.raises(SearchError, match="has no conversations"):
            act()


# ---- indexing


def test_indexing_again_adds_nothing_and_encodes_nothing(conversations: Conversations, tmp_path: Path) -> None:
    encoder = BagOfWords()
    again = Conversations.open(tmp_path / "table", encoder)
    before = encoder.encoded
    reported: list[tuple[str, int, int | None]] = []
    done = again.index(
        dialogues(45), total=45, progress=lambda what, done, total=None: reported.append((what, done, total))
    )
    assert (done.read, done.added, done.dialogues) == (45, 0, 45) and encoder.encoded == before
    assert ("indexing conversations", 45, 45) in reported
    assert again.index(dialogues(50)).added == 5


def test_statistics_come_from_the_first_corpus(conversations: Conversations, tmp_path: Path) -> None:
    query = [Turn(USER, "hello there"), Turn(USER, "about sail")]
    before = conversations.vector(query)
    conversations.index([Dialogue(f"more {number}", (Turn(USER, "about sail"),)) for number in range(20)])
    np.testing.assert_array_equal(conversations.vector(query), before)
    np.testing.assert_array_equal(Conversations.open(tmp_path / "table", BagOfWords()).vector(query), before)


def test_single_turn_corpus(tmp_path: Path) -> None:
    conversations = Conversations.open(tmp_path / "table", BagOfWords())
    conversations.index([Dialogue("only", (Turn(USER, "mast and sail"),))])
    (results,) = conversations.similar(["mast and sail"])
    assert results.dialogue == "only" and results.similarity == pytest.approx(1, abs=1e-5)


def test_invalid_corpora(tmp_path: Path) -> None:
    conversations = Conversations.open(tmp_path / "table", BagOfWords())
    with pytest.raises(SearchError, match="an iterator"):
        conversations.index(iter(dialogues(3)))
    with pytest.raises(SearchError, match="no dialogues"):
        conversations.index([])
    assert conversations.index(dialogues(3)).added == 3  # neither has left anything behind
    with pytest.raises(EncoderMismatchError, match="another encoder"):
        Conversations.open(tmp_path / "table", BagOfWords("other"))
    with pytest.raises(SearchError, match="written with max_length 'None', not '16'"):
        Conversations.open(tmp_path / "table", BagOfWords(), max_length=16)


def test_interrupted_indexing_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 10)

    def stops(what: str, done: int, total: int | None = None) -> None:
        if what == "indexing conversations" and done >= 20:
            raise KeyboardInterrupt

    conversations = Conversations.open(tmp_path / "table", BagOfWords())
    with pytest.raises(KeyboardInterrupt):
        conversations.index(dialogues(45), progress=stops)
    again = Conversations.open(tmp_path / "table", BagOfWords())
    assert len(again) == 20 and again.index(dialogues(45)).added == 25
    whole = Conversations.open(tmp_path / "whole", BagOfWords())
    whole.index(dialogues(45))
    assert again.similar(["about sail"], top=45) == whole.similar(["about sail"], top=45)


# ---- clusters


def test_clusters_match_topics(tmp_path: Path) -> None:
    conversations = Conversations.open(tmp_path / "table", BagOfWords(size=32))
    conversations.index(dialogues(120))
    clustering = conversations.cluster(MapSettings("tsne", 10))
    clusters = clustering.clusters
    assert [each.number for each in clusters] == list(range(len(clusters))) and len(clusters) >= 3
    assigned = {dialogue: cluster for dialogue, _, cluster in clustering.assignments}
    assert set(assigned) == {each.id for each in dialogues(120)}
    for each in clusters:
        members = [name for name, number in assigned.items() if number == each.number]
        assert len(members) == each.size and set(each.examples) <= set(members)
        assert Counter(map(topic, members)).most_common(1)[0][1] > 0.9 * len(members)
        assert each.name and each.words
    assert conversations.cluster(MapSettings("tsne", 10)) is clustering  # cached
    conversations.index(dialogues(123))
    assert conversations.cluster(MapSettings("tsne", 10)) is not clustering


def test_clusters_are_kept_for_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conversations = Conversations.open(tmp_path / "table", BagOfWords(size=32))
    conversations.index(dialogues(120))
    clustering = conversations.cluster(MapSettings("tsne", 10), keep=True)

    def fail(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(Conversations, "_compute_clusters", fail)
    other = Conversations.open(tmp_path / "table", BagOfWords(size=32))
    assert other.cluster(MapSettings("tsne", 10)) == clustering
    with pytest.raises(AssertionError, match="computed again"):
        other.cluster(MapSettings("tsne", 11))
    other.index(dialogues(123))
    with pytest.raises(AssertionError, match="computed again"):
        other.cluster(MapSettings("tsne", 10))


# ---- titles


def title(*texts: str) -> str:
    """Return the title of a conversation whose turns begin with the speaker's initial, such as "u hello"."""
    return conversation_title(
        [Turn({"u": "user", "s": "system"}.get(text[0], "speaker_1"), text[2:]) for text in texts]
    )


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["u hi", "s Hello!", "u where is my parcel?", "u it is late by a week"], "where is my parcel?"),
        (["s Hello, how can I help you today?", "u Good morning", "u cancel order 4711"], "cancel order 4711"),
        (["u hi there, can you help me please?", "s Sure.", "u my card is blocked"], "my card is blocked"),
        (["u hello [NAME_1] [NAME_2]", "u reset my password"], "reset my password"),
        (["u Hi, my parcel is lost"], "Hi, my parcel is lost"),
        (["u Guten Tag", "u Wo ist mein Paket?"], "Wo ist mein Paket?"),
        (["u 你好", "u 我的包裹在哪里"], "我的包裹在哪里"),
        (["u hi", "u refund", "s Which order?", "u ok"], "refund"),
        (["u hello", "s Hello."], "hello"),
        (["p hey", "p did you see the match"], "did you see the match"),
        (["s Your parcel has arrived."], "Your parcel has arrived."),
    ],
)
def test_greetings_and_short_openings_are_skipped(texts: list[str], expected: str) -> None:
    assert title(*texts) == expected


def test_titles_are_short_and_on_one_line() -> None:
    assert conversation_title([]) == ""
    result = title("u first line\n\nsecond " + "word " * 500)
    assert result.startswith("first line second word") and result.endswith("…") and len(result) <= 100
