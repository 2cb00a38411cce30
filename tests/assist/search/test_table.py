"""The table of vectors: keys once, searches that agree with a plain product, conditions that stay conditions, several writers."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import million
from tests.helpers.bag_of_words import BagOfWords
from turnwise.assist.search.filters import FilterError, condition
from turnwise.assist.search.schema import TableError
from turnwise.assist.search.table import RECALL, VectorTable

COLUMNS = pa.schema([pa.field("text", pa.string()), pa.field("Turn", pa.int32())])
SIZE = 6


def opened(place: Path | str, name: str = "made", **settings: Any) -> VectorTable:
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


def test_a_key_is_there_once_and_its_first_row_stays(tmp_path: Path) -> None:
    table = opened(tmp_path)
    assert table.add(["a", "b", "a"], vectors(3), {"text": ["first", "second", "third"], "Turn": [0, 1, 2]}) == 2
    assert table.add(["b", "c"], vectors(2), {"text": ["other", None], "Turn": [3, None]}) == 1
    rows = opened(tmp_path).read(["key", "text"]).to_pylist()
    assert sorted((row["key"], row["text"]) for row in rows) == [("a", "first"), ("b", "second"), ("c", None)]
    assert table.holds(["a", "z", "c"]) == {"a", "c"}
    assert table.holds([]) == set()


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 1000))
def test_a_search_finds_what_a_plain_product_finds(
    tmp_path_factory: pytest.TempPathFactory, count: int, k: int, seed: int
) -> None:
    table = opened(tmp_path_factory.mktemp("table"))
    rows, queries = vectors(count, seed) * 7, vectors(3, seed + 1)
    table.add([str(place) for place in range(count)], rows, {"text": [None] * count, "Turn": list(range(count))})
    for query, found in zip(queries, table.search(queries, k, columns=["Turn", "vector"]), strict=True):
        assert [row.values["Turn"] for row in found] == exact(rows, query, k)
        for row in found:
            unit = rows[row.values["Turn"]] / np.linalg.norm(rows[row.values["Turn"]])
            np.testing.assert_allclose(row.values["vector"], unit, atol=1e-6)
            assert row.similarity == pytest.approx(float(unit @ query / np.linalg.norm(query)), abs=1e-5)


def test_equal_rows_come_in_the_order_of_their_keys(tmp_path: Path) -> None:
    table = opened(tmp_path)
    same = np.repeat(vectors(1), 4, axis=0)
    table.add(["d", "b", "c", "a"], same, {"text": [None] * 4, "Turn": [None] * 4})
    assert [row.key for row in table.search(same[:1], 4)[0]] == ["a", "b", "c", "d"]


HOSTILE = [
    "it's",
    "' OR '1'='1",
    "'; DROP TABLE made; --",
    "back\\slash",
    "per%cent _",
    "`tick`",
    '"double"',
    "ünïcode 🙂",
    "a\nb",
    "",
]


def test_values_in_a_condition_are_values_whatever_they_hold(tmp_path: Path) -> None:
    table = opened(tmp_path)
    count = len(HOSTILE)
    table.add([f"key {place}" for place in range(count)], vectors(count), {"text": HOSTILE, "Turn": list(range(count))})
    for place, text in enumerate(HOSTILE):
        found = table.search(vectors(1, 5), 99, where={"text": text})[0]
        assert [row.values["Turn"] for row in found] == [place]
    assert table.holds(["' OR true --"]) == set()
    assert len(table) == count


@settings(max_examples=30, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_is_found_by_itself_alone(shared_table: VectorTable, text: str) -> None:
    key = f"key of {text}"
    shared_table.add([key], vectors(1), {"text": [text], "Turn": [1]})
    assert shared_table.read(["key"], {"text": text})["key"].to_pylist() == [key]
    assert shared_table.holds([key]) == {key}


@pytest.fixture(scope="module")
def shared_table(tmp_path_factory: pytest.TempPathFactory) -> VectorTable:
    return opened(tmp_path_factory.mktemp("shared"))


def test_conditions_combine(tmp_path: Path) -> None:
    table = opened(tmp_path)
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
    assert table.remove({"text": "x"}) == 2
    assert keys({}) == "cd"


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
def test_conditions_that_make_no_sense_are_refused(where: Any) -> None:
    with pytest.raises(FilterError):
        condition(where, {"text": str, "Turn": int})


def test_a_broken_expression_is_told(tmp_path: Path) -> None:
    table = opened(tmp_path)
    add(table, ["a"])
    with pytest.raises(TableError, match="cannot be searched"):
        table.search(vectors(1), 1, where="nothing = (")


def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    table = opened(tmp_path)
    whole: dict[str, Any] = {"text": ["t"], "Turn": [0]}
    for bad in (
        np.zeros((1, SIZE)),
        np.full((1, SIZE), np.nan),
        np.ones((1, SIZE + 1)),
        np.ones((2, SIZE)),
        np.ones(SIZE),
    ):
        with pytest.raises(TableError):
            table.add(["a"], bad.astype(np.float32), whole)
    for columns in (
        {"text": ["t"]},
        whole | {"more": [1]},
        {"text": ["t"], "Turn": ["one"]},
        {"text": ["\ud800"], "Turn": [0]},
    ):
        with pytest.raises(TableError):
            table.add(["a"], vectors(1), columns)
    with pytest.raises(TableError, match="one row at least"):
        table.search(vectors(1), 0)
    assert len(table) == 0
    assert table.search(vectors(2), 3) == [[], []]
    assert table.search(np.empty((0, SIZE), np.float32), 3) == []
    assert table.add([], np.empty((0, SIZE), np.float32), {"text": [], "Turn": []}) == 0


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    opened(tmp_path, about={"turns": "3"}, encoder=BagOfWords())
    opened(tmp_path, about={"turns": "3"}, encoder=BagOfWords())
    with pytest.raises(TableError, match="vector"):
        opened(tmp_path, size=SIZE + 1)
    with pytest.raises(TableError, match="turns '3', not '4'"):
        opened(tmp_path, about={"turns": "4"})
    with pytest.raises(TableError, match="another encoder"):
        opened(tmp_path, about={"turns": "3"}, encoder=BagOfWords(seed=1))
    with pytest.raises(TableError, match="no column 'more'"):
        opened(tmp_path, columns=pa.schema([pa.field("more", pa.string())]))
    (tmp_path / "file").write_text("")
    with pytest.raises(TableError, match="cannot be opened"):
        opened(tmp_path / "file")


def test_many_small_commits_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.assist.search.table._COMMITS", 5)
    table = opened(tmp_path)
    for place in range(42):
        assert add(table, [str(place)], seed=place) == 1
    assert len(table) == 42
    # two that were not put together yet, and at most two that were
    assert table._table.stats()["fragment_stats"]["num_fragments"] <= 4
    assert len(table.holds([str(place) for place in range(50)])) == 42
    # nor do those pile up that short processes leave
    for place in range(42, 60):
        add(opened(tmp_path), [str(place)], seed=place)
    assert opened(tmp_path)._table.stats()["fragment_stats"]["num_fragments"] <= 6


def test_writers_at_the_same_moment_double_nothing(tmp_path: Path) -> None:
    opened(tmp_path)
    barrier = threading.Barrier(2)
    added: list[int] = []

    def write() -> None:
        table = opened(tmp_path)
        for portion in range(6):
            barrier.wait()
            added.append(add(table, [f"{portion}/{place}" for place in range(10)]))

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    keys = opened(tmp_path).read(["key"])["key"].to_pylist()
    assert len(keys) == len(set(keys)) == 60
    assert sum(added) == 60


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[VectorTable, np.ndarray]:
    table = opened(tmp_path_factory.mktemp("indexed"))
    rows = vectors(6_000, 3)
    table.add(
        [str(place) for place in range(6_000)],
        rows,
        {"text": ["odd" if i % 2 else "even" for i in range(6_000)], "Turn": list(range(6_000))},
    )
    return table, rows


def test_an_index_is_built_above_a_size_and_finds_what_it_says(indexed: tuple[VectorTable, np.ndarray]) -> None:
    table, rows = indexed
    table.settle(exact_up_to=6_000)
    assert table.index is None
    table.settle(exact_up_to=5_999, recall=0.9)
    index = table.index
    assert index is not None
    assert index == VectorTable.open(table.uri, table.name, size=SIZE, columns=COLUMNS).index
    assert (index.rows, index.partitions) == (6_000, 6)
    assert index.recall >= 0.9
    queries = vectors(50, 9)
    found = table.search(queries, 10)
    shares = [
        len({row.values["Turn"] for row in near} & {*exact(rows, query, 10)}) / 10
        for query, near in zip(queries, found, strict=True)
    ]
    assert np.mean(shares) >= 0.8
    for query, near in zip(queries[:5], table.search(queries[:5], 10, exact=True), strict=True):
        assert [row.values["Turn"] for row in near] == exact(rows, query, 10)


def test_rows_that_came_after_the_index_are_found(indexed: tuple[VectorTable, np.ndarray]) -> None:
    table, _ = indexed
    table.build_index(recall=0.5)
    new = vectors(3, 77)
    table.add(["new 0", "new 1", "new 2"], new, {"text": ["new"] * 3, "Turn": [-1, -2, -3]})
    assert [found[0].key for found in table.search(new, 1)] == ["new 0", "new 1", "new 2"]
    table.tidy()
    assert [found[0].key for found in table.search(new, 1)] == ["new 0", "new 1", "new 2"]
    # a narrow condition is met wherever the rows lie
    assert {row.key for row in table.search(-new[:1], 3, where={"text": "new"})[0]} == {"new 0", "new 1", "new 2"}


def test_an_index_is_measured_by_the_queries_that_are_given(indexed: tuple[VectorTable, np.ndarray]) -> None:
    table, _ = indexed
    assert table.build_index(recall=1.0, queries=vectors(20, 5)).recall == 1.0
    with pytest.raises(TableError, match="shape"):
        table.build_index(queries=vectors(2, size=SIZE + 1))
    with pytest.raises(TableError, match="empty"):
        opened(table.uri, "nothing").build_index()


def test_places_other_than_folders(tmp_path: Path) -> None:
    table = opened(f"file://{tmp_path}/by-address")
    assert add(table, ["a", "b"]) == 2
    assert len(opened(tmp_path / "by-address")) == 2
    assert VectorTable.exists(tmp_path / "by-address", "made")
    assert not VectorTable.exists(tmp_path / "nowhere", "made")
    assert not (tmp_path / "nowhere").exists()
    memory = opened("memory://")
    assert add(memory, ["a", "b"]) == 2
    assert add(memory, ["b", "c"]) == 1
    assert [row.key for row in memory.search(vectors(1), 1)[0]] == ["a"]
    assert not VectorTable.exists("memory://", "other")
    with pytest.raises(TableError, match="cannot be opened"):
        opened("nosuchstorage://bucket/path")


@pytest.mark.full
def test_a_million_vectors(tmp_path: Path) -> None:
    figures = million.measure(tmp_path, 1_000_000)
    assert figures["added"] == 1_000_000
    assert figures["recall, own vectors"] >= RECALL
    assert figures["recall, other vectors"] >= RECALL - 0.03
