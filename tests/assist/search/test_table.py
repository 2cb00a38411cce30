"""Vector tables: unique keys, searches that match a matrix product, safe filters, concurrent writers, the index."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks import million_vectors
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.bag_of_words import BagOfWords
from turnwise.assist.search.schema import filter_sql
from turnwise.assist.search.table import RECALL, VectorTable
from turnwise.core.errors import EncoderMismatchError, SearchError
from turnwise.models.identity import EncoderIdentity

COLUMNS = pa.schema([pa.field("text", pa.string()), pa.field("Turn", pa.int32())])
SIZE = 6


def open_table(place: Path | str, name: str = "made", **settings: Any) -> VectorTable:
    return VectorTable.open(place, name, **{"size": SIZE, "columns": COLUMNS} | settings)


def vectors(count: int, seed: int = 0, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32)


def add(table: VectorTable, keys: list[str], seed: int = 0) -> int:
    return table.add(
        keys, vectors(len(keys), seed), {"text": [f"text {key}" for key in keys], "Turn": list(range(len(keys)))}
    )


def exact(rows: np.ndarray, query: np.ndarray, k: int) -> list[int]:
    cosines = rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    return np.argsort(-cosines)[:k].tolist()


def test_keys_are_unique_and_first_rows_stay(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    assert table.add(["a", "b", "a"], vectors(3), {"text": ["first", "second", "third"], "Turn": [0, 1, 2]}) == 2
    assert table.add(["b", "c"], vectors(2), {"text": ["other", None], "Turn": [3, None]}) == 1
    rows = open_table(tmp_path).read(["key", "text"]).to_pylist()
    assert sorted((row["key"], row["text"]) for row in rows) == [("a", "first"), ("b", "second"), ("c", None)]
    assert table.existing_keys(["a", "z", "c"]) == {"a", "c"}
    assert table.existing_keys([]) == set()


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 1000))
def test_search_matches_a_matrix_product(
    tmp_path_factory: pytest.TempPathFactory, count: int, k: int, seed: int
) -> None:
    table = open_table(tmp_path_factory.mktemp("table"))
    rows, queries = vectors(count, seed) * 7, vectors(3, seed + 1)
    table.add([str(place) for place in range(count)], rows, {"text": [None] * count, "Turn": list(range(count))})
    for query, hits in zip(queries, table.search(queries, k), strict=True):
        assert [row.values["Turn"] for row in hits] == exact(rows, query, k)
        for row in hits:
            unit = rows[row.values["Turn"]] / np.linalg.norm(rows[row.values["Turn"]])
            assert row.similarity == pytest.approx(float(unit @ query / np.linalg.norm(query)), abs=1e-5)


def test_ties_are_ordered_by_key(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    same = np.repeat(vectors(1), 4, axis=0)
    table.add(["d", "b", "c", "a"], same, {"text": [None] * 4, "Turn": [None] * 4})
    assert [row.key for row in table.search(same[:1], 4)[0]] == ["a", "b", "c", "d"]


@settings(max_examples=30, deadline=None)
@example(text="' OR '1'='1")
@example(text="'; DROP TABLE made; --")
@example(text='back\\slash "double" `tick` 100% _\n')
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_matches_only_itself(shared_table: VectorTable, text: str) -> None:
    key = f"key of {text}"
    shared_table.add([key], vectors(1), {"text": [text], "Turn": [1]})
    assert shared_table.read(["key"], {"text": text})["key"].to_pylist() == [key]
    assert shared_table.existing_keys([key]) == {key}


@pytest.fixture(scope="module")
def shared_table(tmp_path_factory: pytest.TempPathFactory) -> VectorTable:
    return open_table(tmp_path_factory.mktemp("shared"))


def test_filters(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    table.add(list("abcd"), vectors(4), {"text": ["x", "x", None, "y"], "Turn": [1, 2, 1, None]})

    def keys(where: Any) -> str:
        return "".join(sorted(row.key for row in table.search(vectors(1), 9, where=where)[0]))

    assert keys({"text": "x", "Turn": 2}) == "b"
    assert keys({"text": ["x", None]}) == "abc"
    assert keys({"text": None}) == "c"
    assert keys({"text": []}) == ""
    assert keys({}) == "abcd"
    assert keys({"Turn": [1, None], "key": ["a", "d"]}) == "ad"
    assert keys("`Turn` > 1 OR text = 'y'") == "bd"


@pytest.mark.parametrize(
    "where",
    [
        {"size": 1},
        {"text": {"a": 1}},
        {"text": b"x"},
        {"text": [1]},
        {"text": "\ud800"},
        {"Turn": 1.5},
        {"Turn": True},
        {"Turn": 2**63},
        " ",
    ],
)
def test_invalid_filters(where: Any) -> None:
    with pytest.raises(SearchError):
        filter_sql(where, {"text": str, "Turn": int})


def test_invalid_sql(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    add(table, ["a"])
    with pytest.raises(SearchError, match="cannot be searched"):
        table.search(vectors(1), 1, where="nothing = (")


def test_invalid_rows_are_rejected_and_nothing_is_written(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    whole: dict[str, Any] = {"text": ["t"], "Turn": [0]}
    for bad in (np.zeros((1, SIZE)), np.full((1, SIZE), np.nan), np.ones((1, SIZE + 1)), np.ones(SIZE)):
        with pytest.raises(SearchError):
            table.add(["a"], bad.astype(np.float32), whole)
    for columns in ({"text": ["t"]}, {"text": ["t"], "Turn": ["one"]}, {"text": ["\ud800"], "Turn": [0]}):
        with pytest.raises(SearchError):
            table.add(["a"], vectors(1), columns)
    with pytest.raises(SearchError, match="k must be at least 1"):
        table.search(vectors(1), 0)
    assert len(table) == 0
    assert table.search(vectors(2), 3) == [[], []]
    assert table.search(np.empty((0, SIZE), np.float32), 3) == []
    assert table.add([], np.empty((0, SIZE), np.float32), {"text": [], "Turn": []}) == 0


def test_table_that_does_not_fit_is_rejected(tmp_path: Path) -> None:
    encoder, other = (EncoderIdentity.of(each) for each in (BagOfWords(), BagOfWords("other")))
    open_table(tmp_path, settings={"turns": "3"}, encoder=encoder)
    open_table(tmp_path, settings={"turns": "3"}, encoder=encoder)
    with pytest.raises(SearchError, match="no column 'vector'"):
        open_table(tmp_path, size=SIZE + 1)
    with pytest.raises(SearchError, match="turns '3', not '4'"):
        open_table(tmp_path, settings={"turns": "4"})
    with pytest.raises(EncoderMismatchError, match="another encoder"):
        open_table(tmp_path, settings={"turns": "3"}, encoder=other)
    with pytest.raises(SearchError, match="no column 'more'"):
        open_table(tmp_path, columns=pa.schema([pa.field("more", pa.string())]))
    (tmp_path / "file").write_text("")
    with pytest.raises(SearchError, match="cannot be opened"):
        open_table(tmp_path / "file")


def test_small_commits_are_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.assist.search.table._COMMITS", 5)
    table = open_table(tmp_path)
    for place in range(12):
        assert add(table, [str(place)], seed=place) == 1
    assert len(table) == 12
    # two that are not compacted yet, and at most two that are
    assert table._table.stats()["fragment_stats"]["num_fragments"] <= 4
    assert len(table.existing_keys([str(place) for place in range(50)])) == 12
    # nor do the commits of short processes accumulate
    for place in range(12, 24):
        add(open_table(tmp_path), [str(place)], seed=place)
    assert open_table(tmp_path)._table.stats()["fragment_stats"]["num_fragments"] <= 6


def test_concurrent_writers_duplicate_nothing(tmp_path: Path) -> None:
    open_table(tmp_path)
    barrier = threading.Barrier(2)
    added: list[int] = []

    def write() -> None:
        table = open_table(tmp_path)
        for portion in range(6):
            barrier.wait()
            added.append(add(table, [f"{portion}/{place}" for place in range(10)]))

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    keys = open_table(tmp_path).read(["key"])["key"].to_pylist()
    assert len(keys) == len(set(keys)) == 60
    assert sum(added) == 60


def test_rows_that_another_process_has_just_added_are_not_added_again(tmp_path: Path) -> None:
    first, second = open_table(tmp_path), open_table(tmp_path)
    assert second.existing_keys(["a"]) == set()  # what it reads next may be up to two seconds old
    assert (add(first, ["a"]), add(second, ["a", "b"])) == (1, 1)
    assert sorted(open_table(tmp_path).read(["key"])["key"].to_pylist()) == ["a", "b"]


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[VectorTable, np.ndarray]:
    table = open_table(tmp_path_factory.mktemp("indexed"))
    rows = vectors(6_000, 3)
    table.add(
        [str(place) for place in range(6_000)],
        rows,
        {"text": ["odd" if i % 2 else "even" for i in range(6_000)], "Turn": list(range(6_000))},
    )
    return table, rows


def test_index_is_built_above_a_size_and_reaches_its_recall(
    indexed: tuple[VectorTable, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rows = indexed
    for limit, has_index in ((6_000, False), (5_999, True)):
        monkeypatch.setattr("turnwise.assist.search.table.EXACT_UP_TO", limit)
        table.optimise()
        assert (table.index is not None) == has_index
    index = table.index
    assert index is not None
    assert index == VectorTable.open(table.uri, table.name, size=SIZE, columns=COLUMNS).index
    assert (index.rows, index.partitions) == (6_000, 6)
    assert index.recall >= RECALL
    queries = vectors(50, 9)
    hits = table.search(queries, 10)
    shares = [
        len({row.values["Turn"] for row in near} & {*exact(rows, query, 10)}) / 10
        for query, near in zip(queries, hits, strict=True)
    ]
    assert np.mean(shares) >= 0.8
    for query, near in zip(queries[:5], table.search(queries[:5], 10, exact=True), strict=True):
        assert [row.values["Turn"] for row in near] == exact(rows, query, 10)


def test_rows_added_after_the_index_are_found(indexed: tuple[VectorTable, np.ndarray]) -> None:
    table, _ = indexed
    table.build_index(recall=0.5)
    new = vectors(3, 77)
    table.add(["new 0", "new 1", "new 2"], new, {"text": ["new"] * 3, "Turn": [-1, -2, -3]})
    assert [hits[0].key for hits in table.search(new, 1)] == ["new 0", "new 1", "new 2"]
    table.compact()
    assert [hits[0].key for hits in table.search(new, 1)] == ["new 0", "new 1", "new 2"]
    # a selective filter finds its rows in any partition
    assert {row.key for row in table.search(-new[:1], 3, where={"text": "new"})[0]} == {"new 0", "new 1", "new 2"}


def test_addresses_other_than_folders(tmp_path: Path) -> None:
    table = open_table(f"file://{tmp_path}/by-address")
    assert add(table, ["a", "b"]) == 2
    assert len(open_table(tmp_path / "by-address")) == 2
    assert VectorTable.exists(tmp_path / "by-address", "made")
    assert not VectorTable.exists(tmp_path / "nowhere", "made")
    assert not (tmp_path / "nowhere").exists()
    memory = open_table("memory://")
    assert add(memory, ["a", "b"]) == 2
    assert add(memory, ["b", "c"]) == 1
    assert [row.key for row in memory.search(vectors(1), 1)[0]] == ["a"]
    assert not VectorTable.exists("memory://", "other")
    with pytest.raises(SearchError, match="cannot be opened"):
        open_table("nosuchstorage://bucket/path")


@pytest.mark.full
def test_million_vectors(tmp_path: Path) -> None:
    metrics = million_vectors.measure(tmp_path, 1_000_000)
    assert metrics["added"] == 1_000_000
    assert metrics["recall, own vectors"] >= RECALL
    assert metrics["recall, other vectors"] >= RECALL - 0.03
