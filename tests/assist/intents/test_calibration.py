"""Calibration: measured false rejection rates match the requested ones, and probabilities are calibrated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.intent_examples import world
from turnwise.assist.intents.calibration import compute_reliability, fit_temperature, intent_offsets, lower_quantile
from turnwise.assist.intents.examples import IntentExamples
from turnwise.assist.intents.model import IntentModel, IntentSettings


def _fit(vectors, labels, **changed):
    settings = {
        "head": "neighbours",
        "neighbours": 5,
        "false_rejection": 0.05,
        "per_intent": False,
        "seed": 0,
        **changed,
    }
    pairs = [(f"text {row}", f"intent {label:03}") for row, label in enumerate(labels)]
    return IntentModel.fit(IntentExamples.from_pairs(pairs, vectors), IntentSettings(**settings))


@pytest.mark.parametrize("head", ["prototypes", "neighbours", "logistic"])
@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_measured_false_rejection_rate_matches_the_requested_one(head, rate):
    queries, _ = world(30, 60, 100)
    measured = [
        _fit(*world(30, 5, seed), head=head, false_rejection=rate).score(queries).abstained.mean() for seed in range(4)
    ]
    assert np.mean(measured) == pytest.approx(rate, abs=0.02)


def test_intents_of_different_sizes_share_a_calibration():
    queries, _ = world(30, 60, 100)
    measured = []
    for seed in range(4):
        vectors, labels = world(30, 9, seed)
        random = np.random.default_rng(seed)
        rows = np.concatenate([np.flatnonzero(labels == label)[: random.integers(1, 10)] for label in range(30)])
        measured.append(_fit(vectors[rows], labels[rows]).score(queries).abstained.mean())
    assert np.mean(measured) == pytest.approx(0.05, abs=0.025)


def test_thresholds_per_intent_equalise_rejection_rates():
    queries, truth = world(20, 100, 100)
    spreads = {}
    for per_intent in (False, True):
        rejected = _fit(*world(20, 30, 1), per_intent=per_intent).score(queries).abstained
        assert rejected.mean() == pytest.approx(0.05, abs=0.025)
        spreads[per_intent] = np.std([rejected[truth == label].mean() for label in range(20)])
    assert spreads[True] < spreads[False]


def test_out_of_scope_examples_raise_recall_at_the_same_rate():
    # out-of-scope texts lie around three points near intents
    queries, _ = world(20, 60, 100)
    centres = np.stack([queries[60 * label : 60 * label + 60].mean(0) for label in range(3)])
    centres += np.random.default_rng(5).normal(size=(3, 48)) * 0.1

    def outside(count, seed):
        draw = np.random.default_rng(seed)
        result = centres[draw.integers(0, 3, count)] + draw.normal(size=(count, 48)) * 0.05
        return (result / np.linalg.norm(result, axis=1, keepdims=True)).astype(np.float32)

    settings_ = IntentSettings("neighbours", 5, 0.05, False, 0)
    out_of_scope = [(f"unrelated {row}", "out_of_scope") for row in range(40)]
    test = outside(300, 1_000)
    rates = []
    for seed in range(4):
        inside, labels = world(20, 8, seed)
        pairs = [(f"text {row}", f"intent {label:02}") for row, label in enumerate(labels)]
        alone = IntentModel.fit(IntentExamples.from_pairs(pairs, inside), settings_)
        helped = IntentModel.fit(
            IntentExamples.from_pairs([*pairs, *out_of_scope], np.concatenate([inside, outside(40, seed)])), settings_
        )
        assert 0 < helped.calibration.caution <= 1
        assert helped.score(test).abstained.mean() > alone.score(test).abstained.mean() + 0.1
        assert helped.calibration.out_of_scope_recall == pytest.approx(helped.score(test).abstained.mean(), abs=0.15)
        rates.append(helped.score(queries).abstained.mean())
    assert np.mean(rates) == pytest.approx(0.05, abs=0.025)
    # too few out-of-scope examples are ignored
    few = IntentModel.fit(
        IntentExamples.from_pairs([*pairs, *out_of_scope[:9]], np.concatenate([inside, outside(9, 1)])), settings_
    )
    assert few.calibration.caution == 0
    assert few.calibration.threshold == pytest.approx(alone.calibration.threshold)


@given(st.integers(20, 400), st.floats(0.01, 0.5), st.integers(0, 99))
def test_quantile_lies_between_adjacent_order_statistics(count, rate, seed):
    scores = np.random.default_rng(seed).normal(size=count)
    ordered = np.sort(scores)
    result = lower_quantile(scores, rate)
    place = rate * (count + 1)
    if place < 1:
        assert result < scores.mean()
    else:
        low = int(place)
        assert ordered[low - 1] - 1e-9 <= result <= ordered[min(low, count - 1)] + 1e-9


@pytest.mark.parametrize("count", [4, pytest.param(12, marks=pytest.mark.full)])
def test_new_scores_are_below_the_quantile_at_the_requested_rate(count):
    random = np.random.default_rng(0)
    below = [random.normal() < lower_quantile(random.normal(size=count), 0.05) for _ in range(1_000)]
    assert np.mean(below) == pytest.approx(0.05, abs=0.02)


def test_offsets_shrink_towards_zero_for_few_texts():
    random = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), [200, 200, 200, 2])
    own = np.array([0.0, 0.2, 0.4, 0.4])[truth] + random.normal(size=len(truth)) * 0.3
    result = intent_offsets(own, truth, 5)
    assert result[0] < result[1] < result[2]
    assert abs(result[3]) < abs(result[2])
    assert result[4] == 0  # no texts
    # intents that do not differ get no thresholds of their own
    same = intent_offsets(random.normal(size=400), np.repeat(np.arange(40), 10), 40)
    assert np.abs(same).max() < 0.2


def test_temperature_is_recovered_from_samples():
    random = np.random.default_rng(0)
    ranking = random.normal(size=(4_000, 5)) * 2
    for temperature in (0.3, 1.0, 3.0):
        labels = (ranking / temperature + random.gumbel(size=ranking.shape)).argmax(1)
        assert fit_temperature(ranking, labels) == pytest.approx(temperature, rel=0.1)
    # always being correct does not imply full certainty
    certain = np.eye(3)[np.repeat(np.arange(3), 3)]
    few = fit_temperature(certain, np.repeat(np.arange(3), 3))
    assert 0.8 < np.exp(1 / few) / (np.exp(1 / few) + 2) < 0.97


def test_reliability_curve_matches_a_restatement():
    random = np.random.default_rng(0)
    confidence, right = random.uniform(size=500), random.uniform(size=500) < 0.7
    result = compute_reliability(confidence, right, bins=4)
    for place, (low, high) in enumerate([(0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.01)]):
        inside = (confidence >= low) & (confidence < high)
        assert result.count[place] == inside.sum()
        assert result.confidence[place] == pytest.approx(confidence[inside].mean())
        assert result.accuracy[place] == pytest.approx(right[inside].mean())
    assert result.ece == pytest.approx(np.abs(np.subtract(result.confidence, result.accuracy)) @ result.count / 500)
    certain = compute_reliability(np.array([1.0, 1.0]), np.array([True, True]))
    assert (certain.count, certain.ece) == ([2], 0.0)


def test_probabilities_are_calibrated_on_unseen_texts():
    queries, truth = world(30, 60, 100, spread=1.2)
    for head in ("neighbours", "logistic"):
        fitted = _fit(*world(30, 8, 1, spread=1.2), head=head)
        probabilities = fitted.calibration.probabilities(fitted.logits(queries))
        np.testing.assert_allclose(probabilities.sum(1), 1)
        curve = compute_reliability(probabilities.max(1), probabilities.argmax(1) == truth)
        assert 0.4 < (probabilities.argmax(1) == truth).mean() < 0.98  # neither trivial nor hopeless
        assert curve.ece < 0.08
