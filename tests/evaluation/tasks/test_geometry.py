"""Uniformity and alignment against a double loop, and their intervals against a bootstrap of pairs."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.encoders import ConstantEncoder, RandomEncoder
from turnwise.core.errors import DatasetError
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance
from turnwise.evaluation.metrics import bootstrap_outcomes
from turnwise.evaluation.tasks.geometry import geometry

UTTERANCES = st.lists(
    st.builds(IntentUtterance, st.text("abcd", min_size=1, max_size=3), st.sampled_from("xyz")), min_size=4, max_size=25
)


def data_of(test: list[IntentUtterance]) -> IntentData:
    return IntentData("toy", test=tuple(test))


@settings(deadline=None)
@given(UTTERANCES)
def test_equals_a_double_loop(test: list[IntentUtterance]) -> None:
    encoder = RandomEncoder()
    near, alike = [], []
    for one in range(len(test)):
        for two in range(one):
            square = float(((encoder.unit(test[one].text) - encoder.unit(test[two].text)) ** 2).sum())
            near.append(math.exp(-2 * square))
            if test[one].intent == test[two].intent:
                alike.append(square)
    uniformity, alignment = geometry(encoder, data_of(test))
    assert (uniformity.key[0], uniformity.metric, alignment.metric) == ("geometry", "uniformity", "alignment")
    assert uniformity.row().value == pytest.approx(math.log(np.mean(near)), abs=1e-5)
    assert alignment.row().value == pytest.approx(np.mean(alike), abs=1e-5)
    assert len(set(encoder.encoded)) == len(encoder.encoded)


def test_chunks_change_nothing() -> None:
    test = [IntentUtterance(f"text {number}", f"intent {number % 7}") for number in range(600)]
    whole = geometry(RandomEncoder(), data_of(test))
    with sklearn.config_context(working_memory=0.1):
        chunked = geometry(RandomEncoder(), data_of(test))
    for one, two in zip(whole, chunked, strict=True):
        assert one.evidence == pytest.approx(two.evidence, rel=1e-5)
        assert one.evidence.shape == (1, 600, 2)


def test_intervals_are_those_of_resampling_both_ends_of_every_pair() -> None:
    """Against a bootstrap of the pairs themselves: each counts as often as its two utterances are drawn."""

    class Lopsided(RandomEncoder):
        """Vectors that are not alike: the longer a text, the farther it lies from a common place."""

        def vector(self, text: str) -> npt.NDArray[np.float32]:
            return np.eye(6, dtype=np.float32)[0] + super().vector(text) * len(text) / 20

    test = [IntentUtterance("x" * (number % 20) + str(number), f"intent {number % 7}") for number in range(120)]
    encoder, random = Lopsided(), np.random.default_rng(1)
    places = np.stack([encoder.unit(each.text) for each in test])
    intents = np.array([each.intent for each in test])
    squares = ((places[:, None] - places) ** 2).sum(-1)
    others = ~np.eye(len(test), dtype=bool)
    alike = others & (intents[:, None] == intents)
    resampled = []
    for _ in range(1_000):
        weights = np.bincount(random.integers(0, len(test), len(test)), minlength=len(test))
        pairs = np.outer(weights, weights)
        resampled.append(
            (
                math.log((pairs * others * np.exp(-2 * squares)).sum() / (pairs * others).sum()),
                (pairs * alike * squares).sum() / (pairs * alike).sum(),
            )
        )
    for outcome, spread in zip(geometry(encoder, data_of(test)), np.std(resampled, 0), strict=True):
        assert bootstrap_outcomes([outcome], seed=0)[0].std() == pytest.approx(spread, rel=0.15)


def test_extremes() -> None:
    """Everything in one place: no distance at all."""
    uniformity, alignment = geometry(
        ConstantEncoder(), data_of([IntentUtterance(str(number), "x") for number in range(10)])
    )
    assert uniformity.row().value == pytest.approx(0, abs=1e-6)
    assert alignment.row().value == pytest.approx(0, abs=1e-6)
    with pytest.raises(DatasetError, match="no two test utterances of one intent"):
        geometry(ConstantEncoder(), data_of([IntentUtterance(str(number), str(number)) for number in range(10)]))
