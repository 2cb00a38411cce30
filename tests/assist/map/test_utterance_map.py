"""Maps: distinct texts, storage, and comparison with an earlier map."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.families import WORDS, nudged
from tests.helpers.topic_texts import TOPICS, TopicEncoder, texts_about
from turnwise.assist.map.reduction import MapSettings
from turnwise.assist.map.utterance_map import (
    JOURNAL,
    MapUtterance,
    UtteranceMap,
    collect_utterances,
    detect_novelty,
    make_map,
    merge_duplicates,
    sample_utterances,
)
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import EncoderMismatchError, MapError
from turnwise.models.encoder import Encoder
from turnwise.models.vector_cache import VectorCache

TSNE = MapSettings("tsne")
OLD = [text for topic in ("parcel", "hotel", "card") for text in texts_about(topic, 40)]


@pytest.fixture(scope="module")
def earlier() -> UtteranceMap:
    return make_map(
        TopicEncoder(),
        [MapUtterance(text, "d", 0, "user", 2) for text in OLD],
        MapSettings("tsne", 12),
        model="topical",
    )


@pytest.fixture(scope="module")
def later(earlier: UtteranceMap) -> UtteranceMap:
    texts = [*texts_about("parcel", 60, 20), *texts_about("card", 40, 10), *texts_about("doctor", 45)]
    return make_map(TopicEncoder(), texts, MapSettings("tsne", 12), model="topical", earlier=earlier)


def assert_equal(one: UtteranceMap, other: UtteranceMap) -> None:
    for name in ("vectors", "points", "labels", "counts"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert (one.new is None) == (other.new is None)
    assert one.new is None or other.new is None or np.array_equal(one.new, other.new)
    assert list(one.utterances) == list(other.utterances)
    assert list(one.clusters) == list(other.clusters)
    assert (one.model, one.method, one.seed, one.comparison) == (
        other.model,
        other.method,
        other.seed,
        other.comparison,
    )


def test_corpus_texts_are_collected_with_counts() -> None:
    corpus = [
        Dialogue("a", (Turn("user", " Hello "), Turn("system", "Hello"), Turn("user", "a room, please"))),
        Dialogue("b", (Turn("system", "hi"), Turn("user", "hello"), Turn("user", "HELLO"))),
    ]
    reported: list[tuple[int, int | None]] = []
    utterances = collect_utterances(
        corpus, ["user"], total=2, progress=lambda what, done, total=None: reported.append((done, total))
    )
    assert utterances == [
        MapUtterance("Hello", "a", 0, "user", 3, last=1),
        MapUtterance("a room, please", "a", 2, "user", 1, last=1),
    ]
    assert [utterance.count for utterance in collect_utterances(corpus)] == [4, 1, 1]
    assert reported[-1] == (2, 2)
    assert collect_utterances([]) == []


def test_duplicates_are_merged() -> None:
    assert merge_duplicates(["a", MapUtterance("A ", "d", 1, "user", 4), "b"]) == [
        MapUtterance("a", count=5),
        MapUtterance("b"),
    ]
    with pytest.raises(MapError, match=r"pass \[text\]"):
        merge_duplicates("a")
    with pytest.raises(MapError, match="text 1 is empty"):
        merge_duplicates(["a", " "])


def test_map_contains_all_texts_and_finds_the_topics(earlier: UtteranceMap) -> None:
    assert len(earlier) == len(OLD) and earlier.texts == OLD and (earlier.counts == 2).all()
    assert earlier.vectors == pytest.approx(TopicEncoder().encode(OLD))
    assert len(earlier.clusters) == 3 and earlier.new is None and earlier.comparison is None
    for cluster in earlier.clusters:
        members = np.flatnonzero(earlier.labels == cluster.number)
        assert cluster.size == len(members) and cluster.utterances == 2 * len(members)
        assert set(cluster.representatives) <= set(members.tolist())
    assert {cluster.words[0] for cluster in earlier.clusters} <= {word for words in TOPICS.values() for word in words}


def test_texts_unlike_all_earlier_ones_are_new(earlier: UtteranceMap, later: UtteranceMap) -> None:
    assert later.new is not None and later.comparison is not None
    about_doctors = np.array(["doctor" in text or "clinic" in text or "appointment" in text for text in later.texts])
    assert later.new[about_doctors].all()
    assert later.new[~about_doctors].mean() < 0.1
    assert later.comparison.texts == len(earlier) and later.comparison.utterances == 2 * len(earlier)
    before = {cluster.words[0]: count for cluster, count in zip(later.clusters, later.comparison.before, strict=True)}
    for word, count in before.items():
        assert count == (0 if word in TOPICS["doctor"] else pytest.approx(80, abs=4)), (
            "hotels are similar to no later text"
        )
    # earlier texts keep their relative positions
    old, new = (dict(zip(made.texts, made.points, strict=True)) for made in (earlier, later))
    both = sorted(set(old) & set(new))
    middles = [
        np.array([np.mean([places[text] for text in both if word in text], 0) for word in ("parcel", "card")])
        for places in (old, new)
    ]
    moves = [middle[0] - middle[1] for middle in middles]
    assert moves[0] @ moves[1] / np.linalg.norm(moves[0]) / np.linalg.norm(moves[1]) > 0.7


def test_novelty_threshold_comes_from_the_earlier_texts() -> None:
    vectors, old = (
        TopicEncoder().encode(texts_about("parcel", 20, 500) + texts_about("doctor", 5)),
        TopicEncoder().encode(OLD),
    )
    nearest, threshold, new = detect_novelty(vectors, old)
    similarity = nearest.similarities[:, 0]
    among = np.sort(old.astype(np.float64) @ old.T, 1)[:, -2]
    assert threshold == pytest.approx(np.quantile(among, 0.01), abs=1e-6)
    assert np.allclose(similarity, (vectors.astype(np.float64) @ old.T).max(1))
    assert (new == (similarity < threshold)).all() and new[20:].all()


def test_saved_map_is_restored(earlier: UtteranceMap, later: UtteranceMap, tmp_path: Path) -> None:
    for made in (earlier, later):
        made.save(tmp_path / "map")  # the second replaces the first
        assert_equal(UtteranceMap.load(tmp_path / "map"), made)
    description = json.loads((tmp_path / "map" / "map.json").read_text(encoding="utf-8"))
    assert description["clusters"][0]["name"] == later.clusters[0].name and description["since"] == json.loads(
        json.dumps(asdict(later.comparison))
    )


def test_incomplete_folder_is_not_a_map(earlier: UtteranceMap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier.save(tmp_path / "map")
    with monkeypatch.context() as patched:
        patched.setattr(
            "turnwise.assist.map.utterance_map.write_tensors",
            lambda *_: (_ for _ in ()).throw(OSError("no space left")),
        )
        with pytest.raises(OSError, match="no space"):
            earlier.save(tmp_path / "map")
    with pytest.raises(MapError, match="is not a map: create one"):
        UtteranceMap.load(tmp_path / "map")
    earlier.save(tmp_path / "map")
    assert_equal(UtteranceMap.load(tmp_path / "map"), earlier)


def test_unreadable_and_labelled_maps_raise_errors(earlier: UtteranceMap, tmp_path: Path) -> None:
    with pytest.raises(MapError, match="is not a map"):
        UtteranceMap.load(tmp_path / "nowhere")
    earlier.save(tmp_path / "map")
    (tmp_path / "map" / JOURNAL).touch()
    with pytest.raises(MapError, match="is labelled"):
        earlier.save(tmp_path / "map")
    (tmp_path / "file").touch()
    with pytest.raises(MapError, match="is a file"):
        earlier.save(tmp_path / "file")
    (tmp_path / "map" / "map.json").write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(MapError, match="has map format 99"):
        UtteranceMap.load(tmp_path / "map")


def test_maps_of_different_encoders_cannot_be_compared(earlier: UtteranceMap) -> None:
    for other in (TopicEncoder(size=25), TopicEncoder(spread=2.0)):
        with pytest.raises(EncoderMismatchError, match=r"earlier map \(topical\) was made with another encoder"):
            make_map(other, OLD, TSNE, earlier=earlier)
    alone = make_map(TopicEncoder(), ["a room"], TSNE)
    assert alone.points.shape == (1, 2) and alone.clusters == []
    with pytest.raises(MapError, match="a single text"):
        make_map(TopicEncoder(), OLD, TSNE, earlier=alone)
    with pytest.raises(MapError, match="no text to map"):
        make_map(TopicEncoder(), [], TSNE)


def test_map_of_a_model_that_was_trained_further_cannot_be_compared(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tiny_folder("bert")
    texts = [f"{first} {second}" for first in WORDS[:6] for second in WORDS[6:10]]
    make_map(Encoder.load(folder, device="cpu"), texts, TSNE, model=str(folder)).save(tmp_path / "map")
    saved = UtteranceMap.load(tmp_path / "map")
    assert saved.encoder == Encoder.load(folder, device="cpu").identify()
    make_map(VectorCache(Encoder.load(folder, device="cpu")), texts, TSNE, earlier=saved)
    with pytest.raises(EncoderMismatchError, match=r"made with another encoder: .*turnwise map STORE --out DIR"):
        make_map(nudged(folder), texts, TSNE, earlier=saved)


def test_samples_depend_on_the_seed() -> None:
    utterances = [MapUtterance(str(number)) for number in range(50)]
    sample = sample_utterances(utterances, 20, seed=4)
    assert len(set(sample)) == 20 and sample == sorted(sample, key=lambda utterance: int(utterance.text))
    assert sample == sample_utterances(utterances, 20, seed=4) != sample_utterances(utterances, 20, seed=5)
    assert sample_utterances(utterances, 50) == sample_utterances(utterances, 99) == utterances
