"""Every statistic agrees with scikit-learn, SciPy or a plain loop, also in bootstrap samples; coverage of intervals."""

from typing import get_args
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, roc_auc_score

from turnwise.evaluation import metrics
from turnwise.evaluation.metrics import Outcome, Statistic, bootstrap_outcomes, compute_per_run, confidence_interval

Array = npt.NDArray[np.float64]
#: Few different values, so that most examples tie with some other.
SCORES = st.integers(-3, 3).map(float)


@st.composite
def pairs(draw: st.DrawFn) -> Array:
    """Two parts of a run, both of which vary."""
    count = draw(st.integers(2, 25))
    pair = draw(arrays(np.float64, (count, 2), elements=SCORES))
    pair[0], pair[1] = (0, 1), (2, -1)
    return pair


@st.composite
def scored(draw: st.DrawFn) -> Array:
    """Scores and truths, of which both kinds are there."""
    count = draw(st.integers(2, 60))
    truth = draw(arrays(np.float64, count, elements=st.sampled_from([0.0, 1.0])))
    truth[:2] = 0, 1
    return np.stack([draw(arrays(np.float64, count, elements=SCORES)), truth], 1)


def brute_fpr95(score: Array, truth: Array) -> float:
    """The fewest negatives that pass any threshold which 95% of the positives pass."""
    positives, negatives = score[truth == 1], score[truth == 0]
    return min(float((negatives >= t).mean()) for t in positives if 20 * (positives >= t).sum() >= 19 * len(positives))


def bootstrap(statistic: Statistic, evidence: Array, seed: int = 0, count: int = metrics.BOOTSTRAP_SAMPLES) -> Array:
    (samples,) = bootstrap_outcomes([Outcome("", "", "", "", evidence, statistic, 1.0)], count, seed=seed)
    return samples


def plain(statistic: Statistic, run: Array) -> float:
    """A statistic by other means; NaN where it is undefined."""
    if statistic == "mean":
        return float(np.mean(run[:, 0]))
    if statistic == "ratio":
        return run[:, 0].sum() / run[:, 1].sum() if run[:, 1].sum() else np.nan
    if statistic == "macro ratio":
        sums = run.sum(0)
        return float(
            np.mean([above / below if below else 0 for above, below in zip(sums[::2], sums[1::2], strict=True)])
        )
    if statistic == "log ratio":
        return float(np.log(run[:, 0].sum() / run[:, 1].sum()))
    first, second = run[:, 0], run[:, 1]
    if len(set(second)) == 1 or (statistic in ("spearman", "pearson") and len(set(first)) == 1):
        return float("nan")
    if statistic in ("spearman", "pearson"):
        return float((spearmanr if statistic == "spearman" else pearsonr)(first, second).statistic)
    return float(roc_auc_score(second, first)) if statistic == "auroc" else brute_fpr95(first, second)


def evidence_of(statistic: Statistic, runs: int = 3, examples: int = 23, seed: int = 0) -> Array:
    """Evidence that suits a statistic, with ties."""
    random = np.random.default_rng(seed)
    parts = {"mean": 1, "macro ratio": 6}.get(statistic, 2)
    evidence = random.integers(1, 6, (runs, examples, parts)).astype(float)
    if statistic in ("auroc", "fpr95"):
        evidence[..., 1] = evidence[..., 1] > 2
    return evidence


@pytest.mark.parametrize("statistic", ["spearman", "pearson"])
@given(run=pairs())
def test_correlations_are_scipy_s(statistic: Statistic, run: Array) -> None:
    expected = (spearmanr if statistic == "spearman" else pearsonr)(run[:, 0], run[:, 1]).statistic
    assert compute_per_run(statistic, run[None]) == pytest.approx([expected], abs=1e-12)


@given(scored())
def test_the_area_under_the_curve_is_scikit_learn_s(run: Array) -> None:
    assert compute_per_run("auroc", run[None]) == pytest.approx([roc_auc_score(run[:, 1], run[:, 0])], abs=1e-12)


@given(scored())
def test_false_positives_at_95_percent_are_those_of_the_best_threshold(run: Array) -> None:
    assert compute_per_run("fpr95", run[None]) == pytest.approx([brute_fpr95(run[:, 0], run[:, 1])], abs=1e-12)


@given(arrays(np.int64, st.tuples(st.integers(1, 30), st.just(2)), elements=st.integers(0, 3)))
def test_ratios_give_f_measures(labels: npt.NDArray[np.int64]) -> None:
    truth, predicted = labels.T
    classes = np.arange(4)
    is_truth, is_predicted = truth[:, None] == classes, predicted[:, None] == classes
    right, either = is_truth & is_predicted, is_truth * 1 + is_predicted
    macro = np.stack([2 * right, either], -1).reshape(len(labels), -1)
    options = {"labels": classes, "zero_division": 0}
    assert compute_per_run("macro ratio", macro[None]) == pytest.approx(
        [f1_score(truth, predicted, average="macro", **options)]
    )
    micro = np.stack([2 * right.sum(1), either.sum(1)], 1)
    assert compute_per_run("ratio", micro[None]) == pytest.approx(
        [f1_score(truth, predicted, average="micro", **options)]
    )


@pytest.mark.parametrize("statistic", get_args(Statistic))
@pytest.mark.parametrize("block", [7, 10**6])
def test_a_bootstrap_sample_is_the_value_of_the_sampled_runs_and_examples(
    statistic: Statistic, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampled one by one and computed by other means; how many are sampled at a time does not matter."""
    evidence = evidence_of(statistic)
    runs, examples, _ = evidence.shape
    monkeypatch.setattr(metrics, "_MAX_WEIGHTS", block * examples)
    actual = bootstrap(statistic, evidence, seed=5, count=40)
    random = np.random.default_rng(5)
    weights = random.multinomial(runs, np.full(runs, 1 / runs), 40)
    for drawing, run_weights in zip(actual, weights, strict=True):
        sampled = random.integers(0, examples, examples)
        expected = sum(
            weight * plain(statistic, run[sampled]) for weight, run in zip(run_weights, evidence, strict=True) if weight
        )
        assert drawing == pytest.approx(expected / runs, abs=1e-12)


def test_a_rare_label_that_is_not_sampled_is_no_failure() -> None:
    """Everything is right, but one label has a single example, and another never occurs, which alone counts as 0."""
    evidence = np.zeros((1, 50, 6))
    evidence[:, :, :2] = 2
    evidence[:, 0, 2:4] = 2
    assert compute_per_run("macro ratio", evidence) == pytest.approx([2 / 3])
    assert set(bootstrap("macro ratio", evidence).round(9)) == {round(2 / 3, 9), 0.5}
    assert set(bootstrap("macro ratio", evidence[..., :4])) == {1.0}


def test_what_is_undefined_is_not_a_number() -> None:
    constant = np.stack([np.full(5, 0.1), np.arange(5.0)], 1)[None]
    one_kind = np.stack([np.arange(5.0), np.ones(5)], 1)[None]
    for truth in (one_kind, one_kind * [1, 0]):
        assert np.isnan(compute_per_run("auroc", truth)).all()
        assert np.isnan(compute_per_run("fpr95", truth)).all()
    assert np.isnan(compute_per_run("pearson", constant)).all()
    assert np.isnan(compute_per_run("spearman", constant)).all()
    assert np.isnan(compute_per_run("ratio", np.zeros((1, 3, 2)))).all()
    assert np.isnan(compute_per_run("auroc", np.array([[[np.nan, 1], [0.0, 0]]]))).all()
    assert np.isnan(confidence_interval(bootstrap("pearson", constant))).all()


def test_undefined_samples_are_left_out_of_an_interval() -> None:
    assert confidence_interval(np.array([np.nan, 1.0, -np.inf, 1.0])) == (1, 1)


def test_a_run_that_is_not_sampled_does_not_count() -> None:
    evidence = np.ones((2, 4, 2))
    evidence[1] = 0
    actual = bootstrap("ratio", evidence)
    assert set(actual[~np.isnan(actual)]) == {1}
    assert 0.2 < np.isnan(actual).mean() < 0.9


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """The 95% intervals of 200 draws of 20 × 200 coin flips hold the chance of 0.7 in 90 to 100% of them."""
    random = np.random.default_rng(0)
    covered = 0
    for draw in range(200):
        flips = (random.random((20, 200, 1)) < 0.7).astype(float)
        low, high = confidence_interval(bootstrap("mean", flips, seed=draw, count=200))
        covered += low <= 0.7 <= high
    assert 0.9 <= covered / 200 <= 1


@pytest.mark.parametrize("statistic", ["mean", "ratio", "spearman", "auroc"])
def test_equal_seeds_and_shapes_draw_alike(statistic: Statistic) -> None:
    """Shifting all scores of a model shifts its metric by the same amount in every bootstrap sample."""
    evidence = evidence_of(statistic)
    moved = evidence + 1 if statistic == "mean" else evidence * [2, 1]
    difference = bootstrap(statistic, moved, seed=3) - bootstrap(statistic, evidence, seed=3) * (
        2 if statistic == "ratio" else 1
    )
    assert difference == pytest.approx(
        np.full(metrics.BOOTSTRAP_SAMPLES, 1.0 if statistic == "mean" else 0.0), abs=1e-12
    )
    assert not np.array_equal(bootstrap(statistic, evidence, seed=3), bootstrap(statistic, evidence, seed=4))


def test_metrics_that_share_resamples_have_the_values_of_single_ones() -> None:
    """Metrics of one data set are computed together; the numbers of runs, examples and parts may differ."""
    random = np.random.default_rng(0)
    outcomes = [
        Outcome("intents", dataset, f"setting {number}", "accuracy", random.random((runs, examples, parts)), statistic)
        for number, (dataset, runs, examples, parts, statistic) in enumerate(
            [
                *(("a", 3, 40, 1, "mean"), ("b", 3, 40, 1, "mean"), ("a", 3, 40, 2, "ratio")),
                *(("a", 2, 40, 1, "mean"), ("a", 3, 40, 2, "pearson"), ("a", 3, 30, 2, "spearman")),
            ]
        )
    ]
    reports: list[tuple[int, int]] = []
    together = bootstrap_outcomes(outcomes, 50, lambda task, done, total: reports.append((done, total)))
    for outcome, samples in zip(outcomes, together, strict=True):
        np.testing.assert_array_equal(
            samples, bootstrap_outcomes([outcome], 50, seed=crc32(outcome.dataset.encode()))[0]
        )
    assert reports == sorted(reports) and reports[-1] == (300, 300)


def test_rows_of_several_metrics_are_those_of_single_ones() -> None:
    """Metrics share resamples, and equal columns of evidence are summed once."""
    random = np.random.default_rng(1)
    correct = random.integers(0, 2, (3, 50)).astype(np.float32)
    in_scope = np.broadcast_to(np.arange(50) < 40, (3, 50)).astype(np.float32)
    ratio = np.stack([correct * in_scope, in_scope], -1)
    macro = np.concatenate([ratio, np.stack([correct * (1 - in_scope), 1 - in_scope], -1)], -1)
    scores = np.stack([random.integers(0, 9, (3, 50)), in_scope], -1).astype(np.float32)
    outcomes = [
        Outcome("intents", dataset, "setting", metric, evidence, statistic)
        for dataset, metric, evidence, statistic in (
            ("a", "accuracy", correct, "mean"),
            ("a", "in scope", ratio, "ratio"),
            ("b", "both", macro, "macro ratio"),
            ("b", "AUROC", scores, "auroc"),
            ("b", "FPR95", scores, "fpr95"),
            ("c", "of fewer examples", correct[:, :20], "mean"),
        )
    ]
    rows = metrics.metric_rows(outcomes)
    assert rows == [outcome.row() for outcome in outcomes]
    for row, outcome in zip(rows, outcomes, strict=True):
        assert (row.low, row.high) == confidence_interval(bootstrap_outcomes([outcome], seed=0)[0])
        assert row.value == outcome.value
        assert row.std == outcome.per_run().std(ddof=1)


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("positives", [0.02, 0.5, 0.98])
def test_scores_and_labels_of_many_examples_are_counted_exactly(positives: float, ties: bool) -> None:
    """Every bootstrap sample has the value that follows from the definition, without any rounding of counts."""
    random = np.random.default_rng(2)
    label = (random.random(400) < positives).astype(np.float64)
    score = random.normal(size=400) + label
    evidence = np.stack([score.round(1) if ties else score, label], -1)[None]
    sampled = np.random.default_rng(7)
    sampled.multinomial(1, [1.0], 30)
    drawings = [evidence[0, sampled.integers(0, 400, 400)] for _ in range(30)]
    for statistic in ("auroc", "fpr95"):
        expected = [_count_pairs(drawing) if statistic == "auroc" else brute_fpr95(*drawing.T) for drawing in drawings]
        assert bootstrap(statistic, evidence, seed=7, count=30).tolist() == expected  # type: ignore[arg-type]


def _count_pairs(run: Array) -> float:
    """The AUROC by its definition: the proportion of pairs in which the positive has the higher score."""
    above, below = run[run[:, 1] == 1, 0][:, None], run[run[:, 1] == 0, 0]
    return float(((above > below).sum() + (above == below).sum() / 2) / (above.size * below.size))
