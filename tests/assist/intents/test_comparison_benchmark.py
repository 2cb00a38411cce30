"""`benchmarks/intent_classifiers.py`: what is measured next, and the paired differences of its report."""

import argparse
import json
from typing import Any

from benchmarks import intent_classifiers


def result(method: str, seed: int, accuracy: float) -> dict[str, Any]:
    cell = {"dataset": "snips", "shots": 5, "seed": seed, "method": method}
    metrics = {"accuracy": accuracy, "accuracy_with_rejection": accuracy, "false_rejection": 0.05}
    return {**cell, **metrics, "head": "logistic", "seconds": 1.0, "processes": 2}


def test_a_run_continues_with_what_is_missing(tmp_path):
    options = argparse.Namespace(
        out=tmp_path, methods=["minilm-nearest", "setfit"], shots=[5], datasets=["snips"], seeds=2
    )
    order = [(cell.seed, cell.method) for cell in intent_classifiers.missing_cells(options)]
    assert order == [(0, "setfit"), (0, "minilm-nearest"), (1, "setfit"), (1, "minilm-nearest")]
    (tmp_path / "results.jsonl").write_text(json.dumps(result("setfit", 0, 0.9)) + "\n", encoding="utf-8")
    assert [(cell.seed, cell.method) for cell in intent_classifiers.missing_cells(options)] == order[1:]


def test_differences_are_paired_by_seed():
    reference = [result("turnwise", seed, value) for seed, value in enumerate([0.9, 0.7, 0.8])]
    # always two points above the reference, and a seed that the reference does not have
    other = [result("setfit", seed, value) for seed, value in enumerate([0.92, 0.72, 0.82, 0.1])]
    report = intent_classifiers.make_report([*reference, *other])
    assert "| SetFit from MiniLM | – | – | – | 82.0 ± 24.8 |" in report
    assert "| SetFit from MiniLM | – | – | – | **+2.0 ± 0.0** |" in report
