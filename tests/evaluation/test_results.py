"""Intervals cover what they should; results are written whole."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from turnwise.evaluation.results import Outcome, Results, interval


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """200 draws of 20 runs by 200 coin flips with chance 0.7: the 95% interval should hold 0.7 in 90 to 100% of them."""
    random = np.random.default_rng(0)
    covered = 0
    for draw in range(200):
        low, high = interval((random.random((20, 200)) < 0.7).astype(float), replicates=200, seed=draw)
        covered += low <= 0.7 <= high
    assert 0.9 <= covered / 200 <= 1


def test_an_interval_of_a_constant_is_a_point() -> None:
    assert interval(np.ones((3, 7))) == pytest.approx((1, 1))


def test_results_are_written(tmp_path: Path) -> None:
    values = np.array([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
    results = Results("model", "intents")
    results.add([Outcome("intents", "toy", "1-shot prototypes", "accuracy", values)])
    results.write(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert content["model"] == "model"
    (row,) = content["rows"]
    assert (row["value"], row["std"], row["runs"], row["n"]) == (75, 0, 2, 4)
    assert row["low"] <= 75 <= row["high"]
    assert set(row) == {
        *("task", "dataset", "setting", "metric", "value", "std", "low", "high", "runs", "n", "table", "published", "comparable")
    }
    table = pq.read_table(tmp_path / "out" / "outcomes.parquet").to_pylist()
    assert [line["values"] for line in table] == values.tolist()
    assert "| intents | toy |" in (tmp_path / "out" / "tables.md").read_text()
