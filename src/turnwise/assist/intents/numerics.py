"""Numerical routines of intent classifiers in NumPy alone: they are fitted where SciPy and scikit-learn are missing.

Tests compare each routine with that of SciPy or scikit-learn.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Float = TypeVar("Float", bound=np.floating[Any])

#: Steps whose curvature L-BFGS remembers.
_MEMORY = 10

#: The part of the expected decrease that a step must reach, and the factor by which it is shortened until it does.
_SUFFICIENT, _SHORTEN = 1e-4, 0.5


def log_softmax(logits: npt.NDArray[Float]) -> npt.NDArray[Float]:
    """Return the logarithms of `softmax`."""
    shifted = logits - logits.max(1, keepdims=True)
    logs: npt.NDArray[Float] = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return logs


def softmax(logits: npt.NDArray[Float]) -> npt.NDArray[Float]:
    """Return probabilities (rows, classes), which add up to 1 in each row."""
    probabilities: npt.NDArray[Float] = np.exp(log_softmax(logits))
    return probabilities


def minimise_scalar(function: Callable[[float], float], low: float, high: float, tolerance: float = 1e-5) -> float:
    """Return where a function with one minimum between two bounds is lowest, by golden-section search."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > tolerance:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return (low + high) / 2


def student_quantile(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t distribution with a whole number of degrees of freedom, by bisection."""
    if probability > 0.5:
        return -student_quantile(1 - probability, degrees)
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is -t / √degrees
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - _student_mass(middle, degrees)) / 2 > probability else (low, middle)
    return -math.tan((low + high) / 2) * math.sqrt(degrees)


def _student_mass(angle: float, degrees: int) -> float:
    """Return the probability of values between -t and t, t = √degrees tan(angle) (Abramowitz and Stegun, 26.7.3-4)."""
    odd = degrees % 2
    factors = [(term - 1) / term for term in range(2 + odd, degrees, 2)]
    terms = np.cumprod([math.cos(angle) ** odd, *(factor * math.cos(angle) ** 2 for factor in factors)])
    total = math.sin(angle) * float(terms.sum()) if degrees > 1 else 0.0
    return 2 / math.pi * (angle + total) if odd else total


def fit_logistic(
    vectors: npt.NDArray[np.floating],
    labels: npt.NDArray[np.int64],
    inverse_regularisation: float,
    weights: Array | None = None,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 1_000,
) -> tuple[Array, Array]:
    """Fit a multinomial logistic regression; return coefficients (classes, size) and intercepts (classes).

    It minimises the mean loss of the rows, which may have `weights`, plus |coefficients|² / 2 / C / rows, with C the
    inverse regularisation, until no derivative exceeds the tolerance. Labels are 0 to their maximum.
    """
    rows, classes = len(vectors), int(labels.max()) + 1
    row_weights = np.full(rows, 1 / rows) if weights is None else weights / rows
    data = np.hstack([vectors, np.ones((rows, 1))]).astype(np.float64)  # the last column is for the intercepts
    start, strength = np.zeros((classes, data.shape[1])), 1 / (inverse_regularisation * rows)
    fitted = _fit_coefficients(data, np.eye(classes)[labels], row_weights, strength, start, tolerance, max_iterations)
    return fitted[:, :-1], fitted[:, -1]


def fit_soft_logistic(
    vectors: npt.NDArray[np.float32],
    labels: npt.NDArray[np.float32],
    weights: npt.NDArray[np.float32],
    inverse_regularisation: float,
    start: Array | None = None,
    *,
    tolerance: float,
    max_iterations: int = 100,
) -> tuple[Array, Array]:
    """Fit a logistic regression to the probability of each class (rows, classes), in single precision.

    The loss is that of `fit_logistic` with the sum of the weights as the number of rows. `start` holds coefficients and
    intercepts (classes, size + 1) of a similar regression.
    """
    data = np.hstack([vectors, np.ones((len(vectors), 1), np.float32)])
    total = float(weights.sum())
    start = np.zeros((labels.shape[1], data.shape[1])) if start is None else start
    strength = 1 / (inverse_regularisation * total)
    fitted = _fit_coefficients(data, labels, weights / total, strength, start, tolerance, max_iterations)
    return fitted[:, :-1], fitted[:, -1]


def _fit_coefficients(
    data: npt.NDArray[np.floating],
    truth: npt.NDArray[np.floating],
    row_weights: npt.NDArray[np.floating],
    strength: float,
    start: Array,
    tolerance: float,
    max_iterations: int,
) -> Array:
    """Return coefficients with intercepts (classes, size + 1) for weighted rows with soft labels."""
    penalty = np.append(np.full(data.shape[1] - 1, strength), 0)

    def loss(flat: Array) -> tuple[float, Array]:
        coefficients = flat.reshape(start.shape)
        logs = log_softmax(data @ coefficients.T.astype(data.dtype))
        value = -float((logs * truth).sum(1) @ row_weights) + float((penalty * coefficients**2).sum()) / 2
        errors = (np.exp(logs) - truth) * row_weights[:, None]
        return value, (errors.T @ data + penalty * coefficients).ravel()

    return _minimise(loss, start.ravel(), tolerance, max_iterations).reshape(start.shape)


def _minimise(
    function: Callable[[Array], tuple[float, Array]], start: Array, tolerance: float, max_iterations: int
) -> Array:
    """Return where a convex function, which returns its value and gradient, is lowest, by L-BFGS."""
    point, (value, gradient) = start, function(start)
    history: deque[tuple[Array, Array]] = deque(maxlen=_MEMORY)
    for _ in range(max_iterations):
        if np.abs(gradient).max() <= tolerance:
            break
        direction = _newton_direction(gradient, history)
        slope = float(gradient @ direction)
        step = 1.0 if history else min(1.0, 1 / float(np.abs(gradient).sum()))
        while True:
            new_point = point + step * direction
            new_value, new_gradient = function(new_point)
            if new_value <= value + _SUFFICIENT * step * slope or step < 1e-12:
                break
            step *= _SHORTEN
        moved, changed = new_point - point, new_gradient - gradient
        if moved @ changed > 0:
            history.append((moved, changed))
        point, value, gradient = new_point, new_value, new_gradient
    return point


def _newton_direction(gradient: Array, history: deque[tuple[Array, Array]]) -> Array:
    """Return the direction of descent by the curvature of earlier steps."""
    direction = -gradient
    factors = []
    for moved, changed in reversed(history):
        factors.append((moved @ direction) / (moved @ changed))
        direction = direction - factors[-1] * changed
    if history:
        moved, changed = history[-1]
        direction = direction * (moved @ changed) / (changed @ changed)
    for (moved, changed), factor in zip(history, reversed(factors), strict=True):
        direction = direction + (factor - (changed @ direction) / (moved @ changed)) * moved
    return direction
