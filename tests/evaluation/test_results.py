"""Results are written whole and read back as they were."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from turnwise.core.errors import TurnwiseError
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.results import Results, read_content, read_outcomes, write_outcomes, write_results

VALUES = np.array([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0]])


def accuracy(values: np.ndarray = VALUES, setting: str = "1-shot prototypes") -> Outcome:
    return Outcome("intents", "toy", setting, "accuracy", values)


def test_results_are_written(tmp_path: Path) -> None:
    results = Results("model", "intents", data=[{"name": "toy", "sha256": "00"}], facts={"seeds": [1, 2]})
    results.add([accuracy()])
    write_results(results, tmp_path / "out")
    content = read_content(tmp_path / "out" / "results.json")
    assert content["model"] == "model"
    assert (content["data"], content["facts"], content["missing"]) == (results.data, results.facts, [])
    assert {"turnwise", "python", "torch", "device"} <= set(content["environment"])
    (row,) = content["rows"]
    assert (row["value"], row["std"], row["runs"], row["n"]) == (75, 0, 2, 4)
    assert row["low"] <= 75 <= row["high"]
    keys = "task dataset setting metric value std low high runs n table published comparable seen"
    assert set(row) == set(keys.split())
    table = pq.read_table(tmp_path / "out" / "outcomes.parquet").to_pylist()
    assert [line["values"] for line in table] == VALUES.tolist()


def test_outcomes_come_back_as_they_were(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    outcomes = [
        accuracy(),
        Outcome("scope", "toy", "1-shot", "AUROC", random.random((3, 5, 2)).astype(np.float32), "auroc"),
        Outcome("geometry", "toy", "all", "uniformity", random.random((1, 6, 2)).astype(np.float32), "log ratio", 1.0),
    ]
    write_outcomes(tmp_path / "outcomes.parquet", outcomes)
    read = read_outcomes(tmp_path / "outcomes.parquet")
    for before, after in zip(outcomes, read, strict=True):
        assert (before.key, before.statistic, before.scale) == (after.key, after.statistic, after.scale)
        assert np.array_equal(before.table, after.table)


def test_undefined_values_are_null(tmp_path: Path) -> None:
    results = Results("model", "similarity", facts={"loss": float("nan"), "rates": [float("inf")]})
    results.add([Outcome("similarity", "toy", "cosine", "Spearman", np.ones((1, 4, 2)), "spearman")])
    write_results(results, tmp_path)
    content = json.loads(
        (tmp_path / "results.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON")
    )
    assert [content["rows"][0][name] for name in ("value", "low", "high")] == [None] * 3
    assert content["facts"] == {"loss": None, "rates": [None]}


def test_two_metrics_of_one_name_are_rejected() -> None:
    results = Results("model", "intents")
    results.add([accuracy()])
    with pytest.raises(TurnwiseError, match="two metrics are named intents, toy, 1-shot prototypes, accuracy"):
        results.add([accuracy()])
    assert len(results.rows) == len(results.outcomes) == 1


@pytest.mark.parametrize("shape", [(3,), (0, 4), (2, 0), (1, 2, 3, 4)])
def test_evidence_has_runs_and_examples(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="evidence must be"):
        accuracy(np.ones(shape))


def test_files_that_are_missing_or_not_ours_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("[]")
    (tmp_path / "broken.parquet").write_text("no")
    pq.write_table(pa.table({"task": ["intents"]}), tmp_path / "other.parquet")
    for read, suffix in ((read_content, "json"), (read_outcomes, "parquet")):
        for name in ("missing", "broken", "other"):
            with pytest.raises(TurnwiseError, match=f"{name}.{suffix}"):
                read(tmp_path / f"{name}.{suffix}")
