"""Numerical routines: equal to those of SciPy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression

from tests.helpers.intent_examples import world
from turnwise.assist.intents.numerics import fit_logistic, log_softmax, minimise_scalar, softmax, student_quantile


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=5))
def test_softmax(rows: list[list[float]]) -> None:
    logits = np.array(rows)
    np.testing.assert_allclose(log_softmax(logits), special.log_softmax(logits, axis=1), atol=1e-9)
    np.testing.assert_allclose(softmax(logits), special.softmax(logits, axis=1), atol=1e-12)


@given(st.floats(0.0005, 0.9995), st.integers(1, 400))
def test_student_quantile(probability: float, degrees: int) -> None:
    expected = stats.t.ppf(probability, degrees)
    assert student_quantile(probability, degrees) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(st.floats(-6, 2), st.floats(0.1, 5))
def test_minimum_between_bounds(lowest: float, scale: float) -> None:
    def function(value: float) -> float:
        return scale * (np.exp(value - lowest) - (value - lowest))

    expected = minimize_scalar(function, bounds=(-7, 3), method="bounded").x
    assert minimise_scalar(function, -7, 3) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("classes", [3, 12])
def test_logistic_regression(classes: int) -> None:
    vectors, labels = world(classes, 6, 1)
    coefficients, intercepts = fit_logistic(vectors, labels, 10.0, tolerance=1e-7)
    theirs = LogisticRegression(C=10.0, tol=1e-8, max_iter=5_000).fit(vectors, labels)
    np.testing.assert_allclose(coefficients, theirs.coef_, atol=2e-3)
    np.testing.assert_allclose(intercepts, theirs.intercept_, atol=2e-3)


def test_weighted_logistic_regression_of_two_classes() -> None:
    """scikit-learn has one row of coefficients for two classes, which doubles the regularisation."""
    random = np.random.default_rng(0)
    labels = (np.arange(60) < 12).astype(np.int64)
    points = random.normal(size=(60, 2)) + labels[:, None] * [1.0, -0.5]
    weights = len(labels) / (2 * np.bincount(labels))[labels]
    coefficients, intercepts = fit_logistic(points, labels, 50.0, weights, tolerance=1e-9)
    theirs = LogisticRegression(C=100.0, class_weight="balanced", tol=1e-9, max_iter=5_000).fit(points, labels)
    np.testing.assert_allclose(coefficients[1] - coefficients[0], theirs.coef_[0], atol=1e-4)
    assert intercepts[1] - intercepts[0] == pytest.approx(theirs.intercept_[0], abs=1e-4)
