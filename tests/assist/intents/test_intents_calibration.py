"""Calibration: the rate that was named is the rate that is measured, and probabilities are what they say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.made_up_intents import world
from turnwise.assist.intents.calibration import (
    Evidence,
    calibrate,
    fit_temperature,
    intent_offsets,
    joined,
    lower_quantile,
    reliability,
)
from turnwise.assist.intents.examples import Examples
from turnwise.assist.intents.fitted import FittedIntents, Settings


def _fitted(vectors, labels, **changed):
    given = {"head": "neighbours", "neighbours": 5, "false_rejection": 0.05, "per_intent": False, "seed": 0, **changed}
    pairs = [(f"text {row}", f"intent {label:03}") for row, label in enumerate(labels)]
    return FittedIntents.of(Examples.of(pairs, vectors), Settings(**given))


@pytest.mark.parametrize("head", ["prototypes", "neighbours", "logistic"])
@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_the_measured_rate_of_false_rejection_is_the_one_that_was_named(head, rate):
    asked, _ = world(30, 60, 100)
    measured = [
        _fitted(*world(30, 5, seed), head=head, false_rejection=rate).judged(asked).abstained.mean()
        for seed in range(4)
    ]
    assert np.mean(measured) == pytest.approx(rate, abs=0.02)


def test_intents_of_different_size_are_calibrated_together():
    asked, _ = world(30, 60, 100)
    measured = []
    for seed in range(4):
        vectors, labels = world(30, 9, seed)
        random = np.random.default_rng(seed)
        kept = np.concatenate([np.flatnonzero(labels == label)[: random.integers(1, 10)] for label in range(30)])
        measured.append(_fitted(vectors[kept], labels[kept]).judged(asked).abstained.mean())
    assert np.mean(measured) == pytest.approx(0.05, abs=0.025)


def test_a_threshold_for_each_intent_brings_their_rates_together():
    asked, truth = world(20, 100, 100)
    spreads = {}
    for per_intent in (False, True):
        rejected = _fitted(*world(20, 30, 1), per_intent=per_intent).judged(asked).abstained
        assert rejected.mean() == pytest.approx(0.05, abs=0.025)
        spreads[per_intent] = np.std([rejected[truth == label].mean() for label in range(20)])
    assert spreads[True] < spreads[False]


def test_out_of_scope_examples_turn_more_away_for_the_same_rate():
    # what is out of scope lies about three places that are near to intents
    asked, _ = world(20, 60, 100)
    centres = np.stack([asked[60 * label : 60 * label + 60].mean(0) for label in range(3)])
    centres += np.random.default_rng(5).normal(size=(3, 48)) * 0.1

    def outside(count, seed):
        draw = np.random.default_rng(seed)
        found = centres[draw.integers(0, 3, count)] + draw.normal(size=(count, 48)) * 0.05
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)

    setting = Settings("neighbours", 5, 0.05, False, 0)
    strange = [(f"strange {row}", "out_of_scope") for row in range(40)]
    test = outside(300, 1_000)
    rates = []
    for seed in range(4):
        inside, labels = world(20, 8, seed)
        pairs = [(f"text {row}", f"intent {label:02}") for row, label in enumerate(labels)]
        alone = FittedIntents.of(Examples.of(pairs, inside), setting)
        helped = FittedIntents.of(Examples.of([*pairs, *strange], np.concatenate([inside, outside(40, seed)])), setting)
        assert 0 < helped.calibration.caution <= 1
        assert helped.judged(test).abstained.mean() > alone.judged(test).abstained.mean() + 0.1
        assert helped.calibration.out_of_scope_recall == pytest.approx(helped.judged(test).abstained.mean(), abs=0.15)
        rates.append(helped.judged(asked).abstained.mean())
    assert np.mean(rates) == pytest.approx(0.05, abs=0.025)
    # too few say nothing
    few = FittedIntents.of(Examples.of([*pairs, *strange[:9]], np.concatenate([inside, outside(9, 1)])), setting)
    assert few.calibration.caution == 0
    assert few.calibration.threshold == pytest.approx(alone.calibration.threshold)


@settings(max_examples=60, deadline=None)
@given(st.integers(20, 400), st.floats(0.01, 0.5), st.integers(0, 99))
def test_the_quantile_is_between_the_order_statistics_it_should_be(count, rate, seed):
    scores = np.random.default_rng(seed).normal(size=count)
    ordered = np.sort(scores)
    found = lower_quantile(scores, rate)
    place = rate * (count + 1)
    if place < 1:
        assert found < scores.mean()
    else:
        low = int(place)
        assert ordered[low - 1] - 1e-9 <= found <= ordered[min(low, count - 1)] + 1e-9


@pytest.mark.parametrize("count", [4, 12, 19, 60])
def test_a_new_score_falls_below_the_quantile_as_often_as_was_named(count):
    random = np.random.default_rng(0)
    below = [random.normal() < lower_quantile(random.normal(size=count), 0.05) for _ in range(2_000)]
    assert np.mean(below) == pytest.approx(0.05, abs=0.015)


def test_offsets_are_drawn_towards_nothing_where_there_are_few_texts():
    random = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), [200, 200, 200, 2])
    own = np.array([0.0, 0.2, 0.4, 0.4])[truth] + random.normal(size=len(truth)) * 0.3
    found = intent_offsets(own, truth, 5)
    assert found[0] < found[1] < found[2]
    assert abs(found[3]) < abs(found[2])
    assert found[4] == 0  # of which nothing is known
    # where intents do not differ, they have no thresholds of their own
    same = intent_offsets(random.normal(size=400), np.repeat(np.arange(40), 10), 40)
    assert np.abs(same).max() < 0.2


def test_the_temperature_is_the_one_that_answers_were_drawn_with():
    random = np.random.default_rng(0)
    ranking = random.normal(size=(4_000, 5)) * 2
    for temperature in (0.3, 1.0, 3.0):
        drawn = (ranking / temperature + random.gumbel(size=ranking.shape)).argmax(1)
        assert fit_temperature(ranking, drawn) == pytest.approx(temperature, rel=0.1)
    # what is always right is not for that always certain
    certain = np.eye(3)[np.repeat(np.arange(3), 3)]
    few = fit_temperature(certain, np.repeat(np.arange(3), 3))
    assert 0.8 < np.exp(1 / few) / (np.exp(1 / few) + 2) < 0.97


def test_the_reliability_curve_restated():
    random = np.random.default_rng(0)
    confidence, right = random.uniform(size=500), random.uniform(size=500) < 0.7
    found = reliability(confidence, right, bins=4)
    for place, (low, high) in enumerate([(0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.01)]):
        inside = (confidence >= low) & (confidence < high)
        assert found.count[place] == inside.sum()
        assert found.confidence[place] == pytest.approx(confidence[inside].mean())
        assert found.accuracy[place] == pytest.approx(right[inside].mean())
    assert found.ece == pytest.approx(sum(abs(found.confidence - found.accuracy) * found.count) / 500)
    certain = reliability(np.array([1.0, 1.0]), np.array([True, True]))
    assert (certain.count.tolist(), certain.ece) == ([2], 0.0)


def test_probabilities_are_calibrated_on_texts_that_were_not_seen():
    asked, truth = world(30, 60, 100, spread=1.2)
    for head in ("neighbours", "logistic"):
        fitted = _fitted(*world(30, 8, 1, spread=1.2), head=head)
        probabilities = fitted.probabilities(asked)
        np.testing.assert_allclose(probabilities.sum(1), 1)
        curve = reliability(probabilities.max(1), probabilities.argmax(1) == truth)
        assert 0.4 < (probabilities.argmax(1) == truth).mean() < 0.98  # otherwise there is nothing to be seen
        assert curve.ece < 0.08


def test_it_never_abstains_where_no_rate_is_named():
    evidence = Evidence(np.zeros((3, 2)), np.zeros((3, 2)), np.array([0, 1, 0]))
    found = calibrate(evidence, None, per_intent=False, held_out=False)
    assert found.threshold is None
    assert (found.thresholds(2) == -np.inf).all()


def test_the_evidence_of_folds_is_joined_in_order():
    part = Evidence(np.ones((2, 3)), np.ones((2, 3)), np.array([0, 1]), np.ones(2), np.ones((4, 3)), np.ones(4))
    both = joined([part, part])
    assert both.likeness.shape == (4, 3)
    assert both.truth.tolist() == [0, 1, 0, 1]
    assert both.outside is not None and both.outside.shape == (8, 3)
    bare = Evidence(np.ones((2, 3)), np.ones((2, 3)), np.array([0, 1]))
    assert joined([bare, bare]).foreign is None
