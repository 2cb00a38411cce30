"""The service benchmark: both sides get the same requests, and the reported values are consistent."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks import adding_examples, starting
from typer.testing import CliRunner

from turnwise.cli import app
from turnwise.cli.benchmarks.serving import ASYNC, SYNC, TURNWISE, serve_benchmark
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.synthetic.sample import labelled_utterances


@pytest.mark.full
@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk")
def test_both_sides_get_the_same_load_and_give_the_same_vectors(tiny_folder: Callable[[str], Path]) -> None:
    options = ["--clients", "1", "--clients", "3", "--seconds", "1", "--repeats", "1", "--json"]
    done = CliRunner().invoke(
        app, ["bench", "serve", "--model", str(tiny_folder("bert")), *options], catch_exceptions=False
    )
    result = json.loads(done.stdout)
    assert [(load["server"], load["clients"]) for load in result["loads"]] == [
        (server, clients) for clients in (1, 3) for server in (SYNC, ASYNC, TURNWISE)
    ]
    for load in result["loads"]:
        assert load["failed"] == 0
        assert load["requests_per_second"] > 0
        assert 0 < load["median_milliseconds"] <= load["p99_milliseconds"]
    assert 0 <= result["max_difference"] < 1e-5
    for clients in (1, 3):
        rate = {load["server"]: load["requests_per_second"] for load in result["loads"] if load["clients"] == clients}
        assert result["ratios"][str(clients)] == pytest.approx(rate[TURNWISE] / max(rate[SYNC], rate[ASYNC]))
    assert result["texts"] == 2_000 and 5 < result["tokens_per_text"] < 64
    assert result["environment"]["sentence-transformers"]


@pytest.mark.full
def test_startup_is_measured_until_the_first_answer(
    tiny_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tiny_folder("bert"))
    starting.main(folder, [folder], repeats=1)
    result = json.loads(capsys.readouterr().out)
    peer, *ours = result["seconds"]
    assert ours == [TURNWISE, f"{TURNWISE} {Path(folder).name}"]
    for name in ours:
        assert result["ratios"][name] == pytest.approx(result["seconds"][peer] / result["seconds"][name])
        assert 0 < result["seconds"][name] < 100


@pytest.mark.full
def test_added_examples_are_stored_beside_predictions(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("banking.block_card", "banking.replace_card")
    cards = [each for each in labelled_utterances(1) if each.intent in names]
    monkeypatch.setattr(adding_examples, "labelled_utterances", lambda _: cards)
    result = adding_examples.measure(str(tiny_folder("bert")), clients=2, seconds=0.5)
    assert result["lost"] == 0 and result["examples"] == sum(each.split == "train" for each in cards)
    assert result["additions_per_second"] > 0 and result["seconds_until_used"] > 0
    assert result["ratio"] == pytest.approx(result["additions_per_second"] / result["single_additions_per_second"])
    for name in ("addition", "prediction_alone", "prediction"):
        assert 0 < result[f"{name}_median_milliseconds"] <= result[f"{name}_p99_milliseconds"]


def test_missing_wrk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(TurnwiseError, match=r"wrk.* is not installed.*apt install wrk"):
        serve_benchmark("minilm")


@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk")
def test_a_server_that_does_not_start_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TurnwiseError):
        serve_benchmark(str(tmp_path / "nothing"), clients=[1], seconds=1, repeats=1)
