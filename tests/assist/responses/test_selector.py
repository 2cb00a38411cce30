"""Two-stage selection against a plain restatement: sort everything by cosine, cut, sort by the re-ranker's scores."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import Selector
from turnwise.assist.responses.selector import SelectedResponse
from turnwise.assist.search.neighbours import nearest_neighbours
from turnwise.core.dialogue import SYSTEM, USER, Turn
from turnwise.core.errors import SearchError
from turnwise.core.types import SupportsScoreAll

POOL = [f"response {number}" for number in range(12)]
CONTEXTS = [["hello", f"question {number}"] for number in range(5)]


def texts(item: Any) -> tuple[str, ...]:
    return (item,) if isinstance(item, str) else tuple(turn.text if isinstance(turn, Turn) else turn for turn in item)


class FakeEncoder:
    """Random vectors by text; on axes there are ties."""

    def __init__(self, axes: bool = False):
        self.axes = axes
        self.seen: list[Any] = []
        self.lengths: list[int | None] = []

    def vector(self, item: Any) -> npt.NDArray[np.float32]:
        number = zlib.crc32("\n".join(texts(item)).encode())
        vector = np.eye(3)[number % 3] if self.axes else np.random.default_rng(number).normal(size=4)
        return (vector / np.linalg.norm(vector)).astype(np.float32)

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        assert normalise
        self.seen += inputs
        self.lengths.append(max_length)
        return np.stack([self.vector(item) for item in inputs]) if len(inputs) else np.empty((0, 4), np.float32)


class FakeReranker:
    """Scores that depend on context and candidate, with few values, so that there are ties."""

    def score(self, context: Sequence[Any], candidates: Sequence[str]) -> npt.NDArray[np.float64]:
        requests = "\n".join(texts(context))
        return np.array([zlib.crc32(f"{requests}\t{candidate}".encode()) % 5 / 4 for candidate in candidates])


class BatchFakeReranker(FakeReranker):
    """The same for many contexts at once."""

    def __init__(self) -> None:
        self.calls = 0

    def score_all(self, requests: Sequence[tuple[Sequence[Any], Sequence[str]]]) -> list[npt.NDArray[np.float64]]:
        self.calls += 1
        return [self.score(*each) for each in requests]


def restated_selection(
    context: Sequence[str], pool: Sequence[str], k: int, top: int, axes: bool
) -> list[SelectedResponse]:
    """Select by sorting lists of tuples."""
    encoder = FakeEncoder(axes)
    query = encoder.vector(context).astype(np.float64)
    distinct = [(place, text) for place, text in enumerate(pool) if text not in pool[:place]]
    cosines = {text: float((encoder.vector(text).astype(np.float64) * query).sum()) for _, text in distinct}
    near = sorted(distinct, key=lambda each: -cosines[each[1]])[:k]
    scores = {text: float(FakeReranker().score(context, [text])[0]) for _, text in near}
    best = sorted(near, key=lambda each: -scores[each[1]])[:top]
    return [SelectedResponse(place, text, cosines[text], scores[text]) for place, text in best]


def indexed(reranker: Any, pool: Sequence[str] = POOL, axes: bool = False, **options: Any) -> Selector:
    selector = Selector(FakeEncoder(axes), reranker, **options)
    selector.index(pool)
    return selector


@given(
    st.lists(st.sampled_from(POOL), min_size=1, max_size=20),
    st.integers(1, 15).flatmap(lambda k: st.tuples(st.just(k), st.integers(1, k))),
    st.booleans(),
    st.booleans(),
)
def test_selection_matches_sorting(pool: list[str], sizes: tuple[int, int], axes: bool, at_once: bool) -> None:
    selector = indexed(BatchFakeReranker() if at_once else FakeReranker(), pool, axes)
    responses = selector.select_all(CONTEXTS, *sizes)
    for context, selected in zip(CONTEXTS, responses, strict=True):
        expected = restated_selection(context, pool, *sizes, axes)
        assert [(each.index, each.text, each.score) for each in selected] == [
            (each.index, each.text, each.score) for each in expected
        ]
        assert [each.similarity for each in selected] == pytest.approx(
            [each.similarity for each in expected], abs=1e-12
        )


def test_without_a_reranker() -> None:
    responses = indexed(None).select(CONTEXTS[0], k=8, top=5)
    everything = restated_selection(CONTEXTS[0], POOL, len(POOL), len(POOL), False)
    nearest_first = sorted(everything, key=lambda each: -each.similarity)[:5]
    assert [each.text for each in responses] == [each.text for each in nearest_first]
    assert all(each.score is None for each in responses)
    with pytest.raises(SearchError, match="there is no re-ranker"):
        indexed(None).score_all(CONTEXTS, np.zeros((len(CONTEXTS), 1), np.int64))


def test_texts_are_encoded_once_and_contexts_scored_together() -> None:
    reranker = BatchFakeReranker()
    assert isinstance(reranker, SupportsScoreAll)
    reported: list[tuple[int, int | None]] = []
    encoder = FakeEncoder()
    selector = Selector(encoder, reranker, max_length=7)
    selector.index([*POOL, *POOL], progress=lambda what, done, total=None: reported.append((done, total)))
    assert len(selector) == len(POOL) == len(encoder.seen) and list(selector.responses) == POOL
    assert reported == [(12, 12)]
    assert len(selector.select_all(CONTEXTS, 4, 2)) == 5 and reranker.calls == 1
    assert len(encoder.seen) == len(POOL) + 5 and set(encoder.lengths) == {7}
    assert selector.select_all([], 4, 2) == []
    selector.index(["another"])
    assert [each.text for each in selector.select(["hello"], 5, 5)] == ["another"]


def test_encoder_receives_speakers() -> None:
    """The response is the system's, so the newest of bare texts is the user's; turns are passed unchanged."""
    selector = indexed(None)
    encoder = selector.encoder
    assert isinstance(encoder, FakeEncoder) and encoder.seen[0] == (Turn(SYSTEM, "response 0"),)
    turns = [Turn("speaker_1", "a"), Turn("speaker_2", "b")]
    selector.select_all([["a", "b"], turns], 1, 1)
    assert encoder.seen[-2:] == [(Turn(SYSTEM, "a"), Turn(USER, "b")), tuple(turns)]
    last = indexed(None, context="last")
    last.select(["a", "b"], 1, 1)
    assert isinstance(last.encoder, FakeEncoder) and last.encoder.seen[-1] == (Turn(USER, "b"),)


def test_reranker_reads_the_whole_conversation() -> None:
    whole = indexed(FakeReranker(), context="last").select(CONTEXTS[1], 12, 12)
    assert {each.text: each.score for each in whole} == dict(
        zip(POOL, FakeReranker().score(CONTEXTS[1], POOL).tolist(), strict=True)
    )


def test_neighbours_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    queries, vectors = (random.normal(size=(count, 6)).astype(np.float32) for count in (9, 40))
    vectors[30] = vectors[2]  # a tie: the first comes first
    at_once = nearest_neighbours(queries, vectors, 7)
    products = vectors.astype(np.float64) @ queries.astype(np.float64).T
    np.testing.assert_array_equal(at_once.rows, np.argsort(-products, 0, kind="stable")[:7].T)
    monkeypatch.setattr("turnwise.assist.search.neighbours._BLOCK", 80)
    np.testing.assert_array_equal(nearest_neighbours(queries, vectors, 7).rows, at_once.rows)


@pytest.mark.parametrize(
    ("context", "k", "top", "message"),
    [
        (["hello"], 0, 0, "top 0 and k 0"),
        (["hello"], 3, 0, "between 1 and k, got top 0 and k 3"),
        (["hello"], 3, 4, "got top 4 and k 3"),
        ([], 3, 1, "conversation 0 must be a list"),
        ("hello", 3, 1, "conversation 0 must be a list"),
    ],
)
def test_invalid_selections(context: Any, k: int, top: int, message: str) -> None:
    with pytest.raises(SearchError, match=message):
        indexed(None).select(context, k, top)


def test_invalid_indexing() -> None:
    with pytest.raises(SearchError, match="nothing is indexed"):
        Selector(FakeEncoder()).select(["hello"])
    with pytest.raises(SearchError, match="nothing is indexed"):
        indexed(None, []).select(["hello"])
    with pytest.raises(SearchError, match="give a single one as"):
        indexed(None, "hello")


def test_vectors_that_are_not_finite() -> None:
    class Broken(FakeEncoder):
        def vector(self, item: Any) -> npt.NDArray[np.float32]:
            return np.full(4, np.nan, np.float32)

    with pytest.raises(SearchError, match="not finite"):
        Selector(Broken()).index(POOL)
