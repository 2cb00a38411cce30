"""Summaries of suites: the metrics that the papers' own averages consist of, their means, and paired differences."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.encoders import Longest
from tests.helpers.encoders import count_letters as letters
from turnwise import evaluate
from turnwise.core.errors import TurnwiseError
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.metrics import Outcome, bootstrap_outcomes, lower_is_better
from turnwise.evaluation.results import Results
from turnwise.evaluation.suites import SummaryResult, summarise
from turnwise.models.loading import wrap_model
from turnwise.papers.suites import PAPER_SUITES

PROBED = "frozen encoder, MLP"


def outcome(
    dataset: str,
    right: Sequence[Sequence[float]],
    task: str = "actions",
    setting: str = PROBED,
    metric: str = "Micro F1",
) -> Outcome:
    return Outcome(task, dataset, setting, metric, np.array(right, np.float64))


def random_outcome(dataset: str, seed: int, runs: int = 2, examples: int = 60) -> Outcome:
    return outcome(dataset, np.random.default_rng(seed).integers(0, 2, (runs, examples)).tolist())


def results(suite: str, *outcomes: Outcome) -> Results:
    actual = Results("some model", suite)
    actual.add(outcomes)
    return actual


@pytest.fixture(scope="module")
def world(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(300)


@pytest.mark.parametrize("suite", PAPER_SUITES)
def test_the_parts_are_what_the_tasks_emit(suite: str, world: Path) -> None:
    """Those that need no fine-tuning: compared with metrics of a model on the sample world."""
    measured = evaluate(letters, world, suite=suite, effort=Effort(seeds=1, steps=1), fine_tuning=False, plots=False)
    actual = summarise(measured)
    assert [summary.name for summary in actual] == [
        summary.name for summary in PAPER_SUITES[suite].summaries if "fine-tuned" not in str(summary)
    ]
    emitted = {(each.task, each.setting, each.metric) for each in measured.outcomes}
    parts = {part for summary in PAPER_SUITES[suite].summaries for part in summary.parts}
    assert {part for part in parts - emitted if "fine-tuned" not in part[1] and part[1] != "re-ranker"} == set()
    assert {part for summary in actual for part in summary.parts} == parts & emitted


def test_dse_is_summed_up_by_the_columns_of_its_table_6() -> None:
    cells = PAPER_SUITES["dse"].tables["Table 6"].cells.values()
    averages = [{(key[0], key[2], key[3]) for key in cell.keys} for cell in cells if cell.average]
    assert [set(summary.parts) for summary in PAPER_SUITES["dse"].summaries] == averages
    assert len(averages) == 5


def test_every_suite_has_summaries_whose_metrics_agree_on_what_is_better() -> None:
    for summaries in (suite.summaries for suite in PAPER_SUITES.values()):
        assert summaries
        assert len({summary.name for summary in summaries}) == len(summaries)
        for summary in summaries:
            assert len(set(summary.parts)) == len(summary.parts)
            assert len({lower_is_better(metric) for _, _, metric in summary.parts}) == 1


def test_a_summary_is_the_mean_of_its_parts_on_all_data_sets() -> None:
    measured = results(
        "diaeval",
        outcome("gsim", [[1, 1, 0, 0]]),
        outcome("sample", [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
        outcome("gsim", [[1, 1, 1, 1]], metric="Macro F1"),
        outcome("irc", [[0, 0, 1]], "responses", "0-shot similarity, history", "Top-3"),
        outcome("irc", [[0, 1, 1]], "responses", "0-shot similarity, history", "Top-10"),
    )
    actions, responses = summarise(measured)
    assert (actions.suite, actions.name, actions.datasets) == ("diaeval", "actions", ("gsim", "sample"))
    assert actions.value == pytest.approx((50 + 90) / 2)
    assert (responses.name, responses.datasets, responses.value) == ("responses", ("irc",), pytest.approx(100 / 3))


def test_single_tasks_have_a_summary_for_each_metric_but_counts() -> None:
    counted = outcome("second", [[1, 0]], "reranking", "cosine, history", "contexts without a right response")
    measured = results(
        "intents+reranking",
        outcome("first", [[1, 0]], "intents", "1-NN", "accuracy"),
        outcome("second", [[1, 1]], "intents", "1-NN", "accuracy"),
        outcome("second", [[0, 0]], "intents", "3-NN", "accuracy"),
        counted,
    )
    actual = {summary.name: (summary.datasets, summary.value) for summary in summarise(measured)}
    assert actual == {
        "intents, 1-NN, accuracy": (("first", "second"), 75.0),
        "intents, 3-NN, accuracy": (("second",), 0.0),
    }
    assert summarise(Results("nothing", "dse")) == []


def test_the_bootstrap_resamples_data_sets_separately_and_their_metrics_together() -> None:
    """A restatement: the mean over members in every drawing, each data set drawn by a seed of its own."""
    members = (random_outcome("gsim", 1), random_outcome("gsim", 2), random_outcome("dstc2", 3, examples=40))
    actual = SummaryResult("diaeval", "actions", members)
    seeds = [crc32(b"gsim"), crc32(b"gsim"), crc32(b"dstc2")]
    expected = sum(bootstrap_outcomes([one], seed=seed)[0] for one, seed in zip(members, seeds, strict=True)) / 3
    np.testing.assert_allclose(actual.bootstrap, expected)
    assert actual.confidence_interval() == pytest.approx(tuple(np.percentile(expected, [2.5, 97.5])))
    doubled = SummaryResult("diaeval", "actions", (members[0], members[0]))
    np.testing.assert_allclose(doubled.bootstrap, bootstrap_outcomes(members[:1], seed=crc32(b"gsim"))[0])


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 99), st.integers(0, 99))
def test_differences_are_paired(first: int, second: int) -> None:
    ours, theirs = (
        SummaryResult("diaeval", "actions", (random_outcome("gsim", seed), random_outcome("dstc2", seed, examples=30)))
        for seed in (first, second)
    )
    value, low, high = ours.difference(theirs)
    assert value == pytest.approx(ours.value - theirs.value)
    drawings = [
        np.mean([bootstrap_outcomes([one], seed=crc32(one.dataset.encode()))[0] for one in each.outcomes], axis=0)
        for each in (ours, theirs)
    ]
    assert (low, high) == pytest.approx(tuple(np.percentile(drawings[0] - drawings[1], [2.5, 97.5])))
    assert ours.difference(ours) == (0, 0, 0)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ((random_outcome("gsim", 1),), "only one of the two has actions, dstc2"),
        (
            (random_outcome("gsim", 1), random_outcome("dstc2", 1, runs=3)),
            "2 × 60 and 3 × 60 runs and test examples of actions, dstc2",
        ),
        (
            (random_outcome("gsim", 1, examples=61), random_outcome("dstc2", 1)),
            "2 × 60 and 2 × 61 runs and test examples of actions, gsim",
        ),
    ],
)
def test_what_was_not_seen_on_the_same_examples_has_no_difference(other: tuple[Outcome, ...], message: str) -> None:
    ours, theirs = (
        SummaryResult("diaeval", "actions", members)
        for members in ((random_outcome("gsim", 1), random_outcome("dstc2", 1)), other)
    )
    assert message in ours.why_not_paired(theirs)
    with pytest.raises(TurnwiseError, match="diaeval, actions cannot be compared"):
        ours.difference(theirs)


def test_an_undefined_member_makes_an_undefined_mean() -> None:
    evidence = np.stack([np.ones((1, 20)), np.arange(20.0)[None]], -1)
    flat = Outcome("sts", "sample", "cosine", "Spearman", evidence, "spearman")
    (actual,) = summarise(results("dialoguecse", flat))
    assert np.isnan([actual.value, *actual.confidence_interval()]).all()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        folder = tmp_path / "intents_csv" / name
        folder.mkdir(parents=True)
        for split in ("train", "test"):
            (folder / f"{split}.csv").write_text(
                "text,intent\n" + "".join(f"{split} {n},{'ab'[n % 2]}\n" for n in range(8))
            )
    return tmp_path


def test_a_requested_data_set_that_is_missing_is_named(data: Path) -> None:
    assert {row.dataset for row in evaluate(letters, data, tasks=["intents"], datasets=["first"]).rows} == {"first"}
    with pytest.raises(TurnwiseError, match=r"holds no data set for intents among frist$"):
        evaluate(letters, data, tasks=["intents"], datasets=["frist", "second"])


def test_an_unsuitable_model_is_distinguished_from_missing_data(data: Path) -> None:
    with pytest.raises(
        TurnwiseError, match="no protocol of intents can be run on longest: prototypes: the model does not have"
    ):
        evaluate(Longest(), data, tasks=["intents"], name="longest")


def test_compression_is_only_for_models_with_templates(data: Path) -> None:
    """Of others it is not left out, as fine-tuning is of a function: nobody expects it of them."""
    plain = wrap_model(letters, "letters")
    assert plain.encoder is not None
    before = evaluate(plain, data, tasks=["intents"], datasets=["first"])
    after = evaluate(replace(plain, variants={"retrieved": plain}), data, tasks=["intents"], datasets=["first"])
    assert set(before.facts["left out"]) == set(after.facts["left out"]) == {"fine-tuned intents"}
    added = {row.setting for row in after.rows} - {row.setting for row in before.rows}
    assert added == {"1-NN, compressed, templates retrieved"}
