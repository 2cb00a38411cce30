"""Maps: each text once, on disk and back the same, and what is new since an earlier one."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.made_up_topics import TOPICS, Topical, texts_about
from turnwise.assist.map.making import distinct, drawn_at_random, make_map, utterances_of
from turnwise.assist.map.map import JOURNAL, Map, MapError, Utterance
from turnwise.assist.map.novelty import novelty
from turnwise.assist.search.portions import KeptPortions
from turnwise.core.dialogue import Dialogue, Turn

OLD = [text for topic in ("parcel", "hotel", "card") for text in texts_about(topic, 40)]


@pytest.fixture(scope="module")
def earlier() -> Map:
    return make_map(
        Topical(), [Utterance(text, "d", 0, "user", 2) for text in OLD], model="topical", method="tsne", least=12
    )


@pytest.fixture(scope="module")
def later(earlier: Map) -> Map:
    texts = [*texts_about("parcel", 60, 20), *texts_about("card", 40, 10), *texts_about("doctor", 45)]
    return make_map(Topical(), texts, model="topical", method="tsne", least=12, since=earlier)


def same(one: Map, other: Map) -> None:
    for name in ("vectors", "points", "labels", "counts"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert (one.new is None) == (other.new is None)
    assert one.new is None or other.new is None or np.array_equal(one.new, other.new)
    assert list(one.utterances) == list(other.utterances)
    assert list(one.clusters) == list(other.clusters)
    assert (one.model, one.method, one.seed, one.since) == (other.model, other.method, other.seed, other.since)


def test_a_corpus_becomes_its_different_texts_with_counts() -> None:
    corpus = [
        Dialogue("a", (Turn("user", " Hello "), Turn("system", "Hello"), Turn("user", "a room, please"))),
        Dialogue("b", (Turn("system", "hi"), Turn("user", "hello"), Turn("user", "HELLO"))),
    ]
    told: list[tuple[int, int | None]] = []
    found = utterances_of(corpus, ["user"], total=2, progress=lambda what, done, total=None: told.append((done, total)))
    assert found == [Utterance("Hello", "a", 0, "user", 3), Utterance("a room, please", "a", 2, "user", 1)]
    assert [utterance.count for utterance in utterances_of(corpus)] == [4, 1, 1]
    assert told[-1] == (2, 2)
    assert utterances_of([]) == []


def test_texts_that_are_the_same_become_one() -> None:
    assert distinct(["a", Utterance("A ", "d", 1, "user", 4), "b"]) == [Utterance("a", count=5), Utterance("b")]
    with pytest.raises(MapError, match=r"give a single one as \[text\]"):
        distinct("a")
    with pytest.raises(MapError, match="text 1 is empty"):
        distinct(["a", " "])


def test_a_map_has_all_texts_and_finds_the_topics(earlier: Map) -> None:
    assert len(earlier) == len(OLD) and earlier.texts == OLD and (earlier.counts == 2).all()
    assert earlier.vectors == pytest.approx(Topical().encode(OLD))
    assert len(earlier.clusters) == 3 and earlier.new is None and earlier.since is None
    for cluster in earlier.clusters:
        members = np.flatnonzero(earlier.labels == cluster.number)
        assert cluster.size == len(members) and cluster.utterances == 2 * len(members)
        assert set(cluster.representatives) <= set(members.tolist())
    assert {cluster.words[0] for cluster in earlier.clusters} <= {word for words in TOPICS.values() for word in words}


def test_what_is_new_is_what_was_unlike_all_before(earlier: Map, later: Map) -> None:
    assert later.new is not None and later.since is not None
    about_doctors = np.array(["doctor" in text or "clinic" in text or "appointment" in text for text in later.texts])
    assert later.new[about_doctors].all()
    assert later.new[~about_doctors].mean() < 0.1
    assert later.since.texts == len(earlier) and later.since.utterances == 2 * len(earlier)
    before = {cluster.words[0]: count for cluster, count in zip(later.clusters, later.since.before, strict=True)}
    for word, count in before.items():
        assert count == (0 if word in TOPICS["doctor"] else pytest.approx(80, abs=4)), (
            "hotels are near to nothing there is now"
        )
    # what was there before lies where it was
    old, new = (dict(zip(made.texts, made.points, strict=True)) for made in (earlier, later))
    both = sorted(set(old) & set(new))
    middles = [
        np.array([np.mean([places[text] for text in both if word in text], 0) for word in ("parcel", "card")])
        for places in (old, new)
    ]
    moves = [middle[0] - middle[1] for middle in middles]
    assert moves[0] @ moves[1] / np.linalg.norm(moves[0]) / np.linalg.norm(moves[1]) > 0.7


def test_new_is_below_the_threshold_that_earlier_texts_set() -> None:
    vectors, old = Topical().encode(texts_about("parcel", 20, 500) + texts_about("doctor", 5)), Topical().encode(OLD)
    found = novelty(vectors, old)
    among = np.sort(old.astype(np.float64) @ old.T, 1)[:, -2]
    assert found.threshold == pytest.approx(np.quantile(among, 0.01), abs=1e-6)
    assert np.allclose(found.similarity, (vectors.astype(np.float64) @ old.T).max(1))
    assert (found.new == (found.similarity < found.threshold)).all() and found.new[20:].all()


def test_a_map_comes_back_from_disk_as_it_was(earlier: Map, later: Map, tmp_path: Path) -> None:
    for made in (earlier, later):
        made.save(tmp_path / "map")  # the second replaces the first
        same(Map.load(tmp_path / "map"), made)
    known = json.loads((tmp_path / "map" / "map.json").read_text(encoding="utf-8"))
    assert known["clusters"][0]["name"] == later.clusters[0].name and known["since"] == json.loads(
        json.dumps(asdict(later.since))
    )


def test_a_folder_is_a_map_only_when_it_is_whole(earlier: Map, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier.save(tmp_path / "map")
    with monkeypatch.context() as patched:
        patched.setattr("turnwise.assist.map.map.save_file", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
        with pytest.raises(OSError, match="no space"):
            earlier.save(tmp_path / "map")
    with pytest.raises(MapError, match="is not a map: make one"):
        Map.load(tmp_path / "map")
    earlier.save(tmp_path / "map")
    same(Map.load(tmp_path / "map"), earlier)


def test_maps_that_cannot_be_read_or_replaced_say_so(earlier: Map, tmp_path: Path) -> None:
    with pytest.raises(MapError, match="is not a map"):
        Map.load(tmp_path / "nowhere")
    earlier.save(tmp_path / "map")
    (tmp_path / "map" / JOURNAL).touch()
    with pytest.raises(MapError, match="is labelled"):
        earlier.save(tmp_path / "map")
    (tmp_path / "file").touch()
    with pytest.raises(MapError, match="is a file"):
        earlier.save(tmp_path / "file")
    (tmp_path / "map" / "map.json").write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(MapError, match="of format 99"):
        Map.load(tmp_path / "map")


def test_a_map_cannot_be_compared_with_one_of_another_encoder(earlier: Map) -> None:
    for other in (Topical(size=25), Topical(spread=2.0)):
        with pytest.raises(MapError, match=r"made by another encoder \(topical\)"):
            make_map(other, OLD, method="tsne", since=earlier)
    alone = make_map(Topical(), ["a room"], method="tsne")
    assert alone.points.shape == (1, 2) and alone.clusters == []
    with pytest.raises(MapError, match="a single text"):
        make_map(Topical(), OLD, method="tsne", since=alone)
    with pytest.raises(MapError, match="no text to map"):
        make_map(Topical(), [], method="tsne")
    with pytest.raises(MapError, match="2 vectors for 1 different"):
        make_map(Topical(), ["a", "A"], method="tsne", vectors=np.eye(2, dtype=np.float32))


def test_vectors_that_are_there_are_not_made_again(earlier: Map) -> None:
    encoder = Topical()
    made = make_map(encoder, earlier.utterances, model="topical", method="tsne", least=12, vectors=earlier.vectors)
    assert encoder.encoded == []
    same(made, earlier)


def test_utterances_are_drawn_by_a_seed() -> None:
    utterances = [Utterance(str(number)) for number in range(50)]
    drawn = drawn_at_random(utterances, 20, seed=4)
    assert len(set(drawn)) == 20 and drawn == sorted(drawn, key=lambda utterance: int(utterance.text))
    assert drawn == drawn_at_random(utterances, 20, seed=4) != drawn_at_random(utterances, 20, seed=5)
    assert drawn_at_random(utterances, 50) == drawn_at_random(utterances, 99) == utterances


def test_what_was_encoded_is_not_encoded_again(tmp_path: Path) -> None:
    first = Topical()
    vectors = KeptPortions(first, tmp_path / "out").encode(OLD, normalise=True)
    again = Topical()
    kept = KeptPortions(again, tmp_path / "out")
    assert np.array_equal(kept.encode(OLD, normalise=True), vectors) and np.array_equal(vectors, Topical().encode(OLD))
    assert again.encoded == first.encoded[:1], "but for what tells encoders apart"
    for more in ({"normalise": False}, {"normalise": True, "max_length": 8}):
        before = len(again.encoded)
        kept.encode(OLD, **more)  # type: ignore[arg-type]
        assert len(again.encoded) == before + len(OLD)
    other = Topical(spread=0.9)
    assert not np.array_equal(KeptPortions(other, tmp_path / "out").encode(OLD, normalise=True), vectors)
    (tmp_path / "out" / "map.json").touch()
    kept.clear()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["map.json"]
