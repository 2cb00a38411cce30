"""The flow: exactly invertible, its determinant the Jacobian's, fitted by likelihood, and closer to isotropic for it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from turnwise.papers.baselines.flow import ActNorm, Coupling, Flow, Flowed, fit
from turnwise.papers.baselines.vectors import PostprocessingError

couplings = pytest.mark.parametrize("coupling", ["additive", "affine"])


def stirred(size: int, coupling: Coupling, seed: int = 0, steps: int = 3) -> Flow:
    """A flow with random weights everywhere: as it begins, its couplings would do nothing and could not go wrong."""
    torch.manual_seed(seed)
    flow = Flow(size, steps=steps, width=6, coupling=coupling).double()
    flow.initialise(torch.randn(40, size, dtype=torch.float64) * 3 + 2)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return flow


def gaussian(count: int, size: int, seed: int = 0) -> torch.Tensor:
    """Vectors in a narrow cone: correlated, unequal in spread, far from zero."""
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(size, size)) * np.geomspace(3, 0.1, size)[:, None]
    return torch.from_numpy((random.normal(size=(count, size)) @ mixing + 4).astype(np.float32))


@couplings
@settings(deadline=None, max_examples=15)
@given(size=st.integers(2, 9), seed=st.integers(0, 500))
def test_the_inverse_undoes_it(coupling: Coupling, size: int, seed: int) -> None:
    flow = stirred(size, coupling, seed)
    vectors = torch.randn(7, size, dtype=torch.float64) * 2
    z, _ = flow(vectors)
    assert (z - vectors).abs().max() > 0.1
    assert_close(flow.inverse(z), vectors, atol=1e-9, rtol=1e-9)
    assert_close(flow(flow.inverse(vectors))[0], vectors, atol=1e-9, rtol=1e-9)


@couplings
@settings(deadline=None, max_examples=10)
@given(size=st.integers(2, 6), seed=st.integers(0, 500))
def test_the_determinant_is_the_jacobians(coupling: Coupling, size: int, seed: int) -> None:
    flow = stirred(size, coupling, seed)
    vectors = torch.randn(3, size, dtype=torch.float64)
    _, found = flow(vectors)
    for vector, determinant in zip(vectors, found, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda x: flow(x[None])[0][0], vector)
        assert_close(determinant, torch.linalg.slogdet(jacobian).logabsdet, atol=1e-8, rtol=1e-8)


def test_only_affine_couplings_depend_on_the_vector() -> None:
    vectors = torch.randn(5, 6, dtype=torch.float64)
    assert stirred(6, "affine")(vectors)[1].std() > 1e-3
    assert stirred(6, "additive")(vectors)[1].std() < 1e-9


def test_the_loss_is_the_likelihood_by_change_of_variables() -> None:
    flow = stirred(4, "affine")
    vectors = torch.randn(6, 4, dtype=torch.float64)
    z, determinant = flow(vectors)
    likelihood = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1) + determinant
    assert_close(flow.loss(vectors), -likelihood.mean() / 4)


def test_actnorm_begins_with_standardised_data() -> None:
    vectors = gaussian(500, 5)
    flow = Flow(5, steps=2)
    flow.initialise(vectors)
    z, _ = flow(vectors)
    assert_close(z.mean(0), torch.zeros(5), atol=1e-4, rtol=0)
    assert_close(z.std(0), torch.ones(5), atol=1e-4, rtol=0)


def test_a_number_that_never_varies_is_not_blown_up() -> None:
    vectors = gaussian(100, 3)
    vectors[:, 1] = 0.25
    norm = ActNorm(3)
    norm.initialise(vectors)
    z, determinant = norm(vectors)
    assert_close(z[:, 1], torch.zeros(100))
    assert float(norm.spread[1]) == pytest.approx(float(vectors.std(0).max()))
    assert determinant.isfinite().all()


@couplings
def test_training_raises_the_likelihood_and_makes_vectors_isotropic(coupling: Coupling) -> None:
    """Held-out vectors, too; isotropic: no direction has much more variance than another, no pair of numbers is correlated."""
    vectors, held_out = gaussian(800, 5).split([500, 300])
    torch.manual_seed(0)
    flow = Flow(5, steps=4, coupling=coupling)
    flow.initialise(vectors)
    with torch.no_grad():
        at_first = float(flow.loss(held_out))
        untrained = variances(flow(held_out)[0])
    fit(flow, vectors, epochs=10, batch_size=50, learning_rate=1e-2, seed=0)
    with torch.no_grad():
        assert float(flow.loss(held_out)) < at_first - 0.2
        trained = variances(flow(held_out)[0])
    raw = variances(held_out)
    assert trained[-1] / trained[0] < 0.2 * untrained[-1] / untrained[0]
    assert trained[-1] / trained[0] < 0.01 * raw[-1] / raw[0]


def variances(vectors: torch.Tensor) -> torch.Tensor:
    """In the directions in which vectors vary least to most."""
    return torch.linalg.eigvalsh(torch.cov(vectors.T.double()))


class Rows:
    """An encoder of which a test knows every vector: the text is the number of its row."""

    def __init__(self, rows: torch.Tensor):
        self.rows = rows.numpy()
        self.asked: list[tuple[bool | None, int | None]] = []

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        self.asked.append((normalise, max_length))
        return self.rows[[int(text) for text in inputs]]


TEXTS = [str(number) for number in range(120)]


def test_an_encoder_behind_a_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Rows(gaussian(120, 6))
    before = encoder.rows.copy()
    flowed = Flowed(encoder, TEXTS[:80], epochs=3, max_length=7)
    raw = flowed.encode(TEXTS)
    with torch.no_grad():
        expected = flowed.flow(torch.from_numpy(before))[0].numpy()
    np.testing.assert_allclose(raw, expected, atol=1e-5)
    monkeypatch.setattr("turnwise.papers.baselines.flow.AT_ONCE", 7)
    scaled = flowed.encode(TEXTS, normalise=True, max_length=9)
    np.testing.assert_allclose(scaled, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-5)
    assert raw.dtype == scaled.dtype == np.float32
    assert encoder.asked == [(False, 7), (False, None), (False, 9)]
    assert flowed.encode([]).shape == (0, 6)
    # an encoder may hand out its own memory
    assert np.array_equal(encoder.rows, before)


def test_a_seed_determines_the_flow_and_leaves_the_random_state_alone() -> None:
    encoder = Rows(gaussian(120, 6))
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = Flowed(encoder, TEXTS)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    again, other = Flowed(encoder, TEXTS), Flowed(encoder, TEXTS, seed=1)
    assert np.array_equal(first.encode(TEXTS), again.encode(TEXTS))
    assert not np.allclose(first.encode(TEXTS), other.encode(TEXTS))


def test_the_description_tells_different_flows_apart() -> None:
    encoder = Rows(gaussian(120, 6))
    descriptions = [Flowed(encoder, TEXTS).description for _ in range(2)]
    descriptions += [
        Flowed(encoder, TEXTS, **change).description for change in ({"seed": 1}, {"epochs": 2}, {"coupling": "affine"})
    ]
    descriptions.append(Flowed(encoder, TEXTS[:100]).description)
    assert descriptions[0] == descriptions[1]
    assert len(set(descriptions)) == 5
    assert "1 epochs of batches of 32, learning rate 0.001, seed 0, parameters " in descriptions[0]


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(PostprocessingError, match="at least 2 numbers, not 1"):
        Flowed(Rows(gaussian(120, 1)), TEXTS)
    with pytest.raises(PostprocessingError, match="have the same vector"):
        Flowed(Rows(torch.ones(120, 3)), TEXTS)
    with pytest.raises(PostprocessingError, match="not finite in epoch 1: lower its learning rate"):
        Flowed(Rows(gaussian(120, 6)), TEXTS, learning_rate=1e30)


def test_a_number_that_never_varies_does_not_blow_up() -> None:
    """Some encoders have such a number; each actnorm would scale up the shift that the coupling before it gave."""
    vectors = torch.randn(640, 16, generator=torch.Generator().manual_seed(0))
    vectors[:, 3] = 1e-33
    flow = Flow(16)
    fit(flow, vectors, epochs=3, batch_size=32, learning_rate=1e-3, seed=0)
    assert flow(vectors)[0].abs().max() < 100
