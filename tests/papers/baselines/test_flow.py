"""The flow: invertibility, Jacobian determinant, likelihood, training, and the post-processor."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.helpers.vector_table import VectorTable
from turnwise.core.errors import ModelError
from turnwise.papers.baselines.postprocessing import Flow, FlowPostprocessor, FlowStep, fit_flow


def random_flow(size: int, seed: int = 0, steps: int = 3) -> Flow:
    """Return a flow with random weights; initially its couplings are the identity."""
    torch.manual_seed(seed)
    flow = Flow(size, steps=steps, width=6).double()
    flow.initialise(torch.randn(40, size, dtype=torch.float64) * 3 + 2)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return flow


def gaussian(count: int, size: int, seed: int = 0) -> torch.Tensor:
    """Return correlated vectors of unequal variance far from zero."""
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(size, size)) * np.geomspace(3, 0.1, size)[:, None]
    return torch.from_numpy((random.normal(size=(count, size)) @ mixing + 4).astype(np.float32))


@settings(deadline=None, max_examples=10)
@given(size=st.integers(2, 6), seed=st.integers(0, 500))
def test_determinant_is_that_of_the_jacobian(size: int, seed: int) -> None:
    flow = random_flow(size, seed)
    vectors = torch.randn(3, size, dtype=torch.float64)
    _, determinants = flow(vectors)
    for vector, determinant in zip(vectors, determinants, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda x: flow(x[None])[0][0], vector)
        assert_close(determinant, torch.linalg.slogdet(jacobian).logabsdet, atol=1e-8, rtol=1e-8)


def test_loss_is_the_likelihood_by_change_of_variables() -> None:
    flow = random_flow(4)
    vectors = torch.randn(6, 4, dtype=torch.float64)
    z, determinant = flow(vectors)
    likelihood = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1) + determinant
    assert_close(flow.loss(vectors), -likelihood.mean() / 4)


def test_actnorm_initially_standardises_the_data() -> None:
    vectors = gaussian(500, 5)
    flow = Flow(5, steps=2)
    flow.initialise(vectors)
    z, _ = flow(vectors)
    assert_close(z.mean(0), torch.zeros(5), atol=1e-4, rtol=0)
    assert_close(z.std(0), torch.ones(5), atol=1e-4, rtol=0)


def test_constant_dimension_is_not_amplified_by_actnorm() -> None:
    vectors = gaussian(100, 3)
    vectors[:, 1] = 0.25
    step = FlowStep(3, width=4)
    step.initialise(vectors)
    z, determinant = step(vectors)  # the coupling is the identity
    assert_close(z[:, int((step.order == 1).nonzero())], torch.zeros(100))
    assert float(step.std[1]) == pytest.approx(float(vectors.std(0).max()))
    assert determinant.isfinite()


def test_training_increases_the_likelihood_and_isotropy() -> None:
    """Of held-out vectors; isotropic vectors have similar variance in all directions."""
    vectors, held_out = gaussian(800, 5).split([500, 300])
    torch.manual_seed(0)
    flow = Flow(5, steps=4)
    flow.initialise(vectors)
    with torch.no_grad():
        initial_loss = float(flow.loss(held_out))
        untrained = variances(flow(held_out)[0])
    fit_flow(flow, vectors, epochs=10, batch_size=50, learning_rate=1e-2)
    with torch.no_grad():
        assert float(flow.loss(held_out)) < initial_loss - 0.2
        trained = variances(flow(held_out)[0])
    raw = variances(held_out)
    assert trained[-1] / trained[0] < 0.2 * untrained[-1] / untrained[0]
    assert trained[-1] / trained[0] < 0.01 * raw[-1] / raw[0]


def variances(vectors: torch.Tensor) -> torch.Tensor:
    """Return the variances in the principal directions, in increasing order."""
    return torch.linalg.eigvalsh(torch.cov(vectors.T.double()))


TEXTS = [str(number) for number in range(120)]


def test_postprocessor_applies_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = VectorTable(gaussian(120, 6).numpy())
    before = encoder.rows.copy()
    postprocessor = FlowPostprocessor(encoder, TEXTS[:80])
    raw = postprocessor.encode(TEXTS)
    with torch.no_grad():
        expected = postprocessor.flow(torch.from_numpy(before))[0].numpy()
    np.testing.assert_allclose(raw, expected, atol=1e-5)
    monkeypatch.setattr("turnwise.papers.baselines.postprocessing.BATCH_SIZE", 7)
    scaled = postprocessor.encode(TEXTS, normalise=True, max_length=9)
    np.testing.assert_allclose(scaled, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-5)
    assert raw.dtype == scaled.dtype == np.float32
    assert encoder.calls == [(False, None), (False, None), (False, 9)]
    assert postprocessor.encode([]).shape == (0, 6)
    # the encoder's own memory is not changed
    assert np.array_equal(encoder.rows, before)


def test_seed_determines_the_flow_without_changing_the_global_state() -> None:
    encoder = VectorTable(gaussian(120, 6).numpy())
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = FlowPostprocessor(encoder, TEXTS)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    assert np.array_equal(first.encode(TEXTS), FlowPostprocessor(encoder, TEXTS).encode(TEXTS))


def test_descriptions_of_different_flows_differ() -> None:
    encoder = VectorTable(gaussian(120, 6).numpy())
    first, again, other = (FlowPostprocessor(encoder, texts).description for texts in (TEXTS, TEXTS, TEXTS[:100]))
    assert first == again != other
    assert "1 epochs of batches of 32, learning rate 0.001, seed 0, parameters " in first


def test_unsuitable_vectors_are_rejected() -> None:
    with pytest.raises(ModelError, match="at least 2 dimensions, got 1"):
        FlowPostprocessor(VectorTable(gaussian(120, 1).numpy()), TEXTS)
    with pytest.raises(ModelError, match="have the same vector"):
        FlowPostprocessor(VectorTable(np.ones((120, 3))), TEXTS)
    with pytest.raises(ModelError, match="not finite in epoch 1: lower its learning rate"):
        fit_flow(Flow(6), gaussian(120, 6), learning_rate=1e30)


def test_constant_dimension_stays_bounded_in_training() -> None:
    """Some encoders have such a dimension; every actnorm would amplify the shift of the coupling before it."""
    vectors = torch.randn(640, 16, generator=torch.Generator().manual_seed(0))
    vectors[:, 3] = 1e-33
    flow = Flow(16)
    fit_flow(flow, vectors, epochs=3, batch_size=32, learning_rate=1e-3)
    assert flow(vectors)[0].abs().max() < 100
