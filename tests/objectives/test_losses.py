"""Losses and gradients equal direct float64 NumPy implementations, and are stable in half precision."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise import losses
from turnwise.objectives.losses import hard_negative_nt_xent, inverse_response_frequency, nt_xent, symmetric_nt_xent

Array = npt.NDArray[np.float64]


def test_losses_have_their_public_names() -> None:
    names = {"hard_negative_nt_xent", "nt_xent", "matching_guided_embedding", "inverse_response_frequency"}
    assert names <= set(losses.__all__)


def direct_hard_negative(
    queries: Array, responses: Array, temperature: float, weighting: str, same: npt.NDArray[np.bool_] | None = None
) -> float:
    """Compute Eqs. 1–3 of DSE term by term."""
    vectors = np.concatenate([queries, responses])
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    count = len(vectors)
    total = 0.0
    for anchor in range(count):
        partner = (anchor + count // 2) % count
        similarity = [float(vectors[anchor] @ vectors[other]) / temperature for other in range(count)]
        negatives = [j for j in range(count) if j not in (anchor, partner) and (same is None or not same[anchor, j])]
        if not negatives:
            continue
        mean = sum(np.exp(similarity[k]) for k in negatives) / len(negatives)
        alpha = {j: np.exp(similarity[j]) / mean for j in [*negatives, partner]}
        if weighting == "outside":
            denominator = np.exp(similarity[partner]) + sum(alpha[j] * np.exp(similarity[j]) for j in negatives)
        else:
            denominator = sum(np.exp(alpha[j] * similarity[j]) for j in [*negatives, partner])
        total += -np.log(np.exp(similarity[partner]) / denominator)
    return total / count


def vectors(seed: int, rows: int, size: int = 8) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, size))


@given(st.integers(0, 10**6), st.integers(2, 9), st.sampled_from([0.05, 0.1, 0.5, 1.0]))
def test_hard_negative_equals_a_direct_implementation(seed: int, rows: int, temperature: float) -> None:
    queries, responses = vectors(seed, rows), vectors(seed + 1, rows)
    actual = hard_negative_nt_xent(torch.tensor(queries), torch.tensor(responses), temperature)
    assert actual.item() == pytest.approx(direct_hard_negative(queries, responses, temperature, "outside"), rel=1e-9)


@given(st.integers(0, 10**6), st.lists(st.booleans(), min_size=2, max_size=8).filter(any))
def test_texts_that_do_not_belong_together_are_negatives_only(seed: int, is_pair: list[bool]) -> None:
    queries, responses = vectors(seed, len(is_pair)), vectors(seed + 1, len(is_pair))
    texts = np.concatenate([queries, responses])
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    exponentials = np.exp(texts @ texts.T / 0.5)
    losses = []
    for anchor in np.flatnonzero(np.tile(is_pair, 2)):
        partner = (anchor + len(is_pair)) % len(texts)
        negatives = np.delete(exponentials[anchor], [anchor, partner])
        positive = exponentials[anchor, partner]
        losses.append(-np.log(positive / (positive + (negatives**2).sum() / negatives.mean())))
    actual = hard_negative_nt_xent(torch.tensor(queries), torch.tensor(responses), 0.5, is_pair=torch.tensor(is_pair))
    assert actual.item() == pytest.approx(np.mean(losses), rel=1e-9)


@given(st.integers(0, 10**6), st.integers(2, 9), st.sampled_from([0.3, 1.0]))
def test_printed_form_equals_a_direct_implementation(seed: int, rows: int, temperature: float) -> None:
    queries, responses = vectors(seed, rows), vectors(seed + 1, rows)
    actual = hard_negative_nt_xent(torch.tensor(queries), torch.tensor(responses), temperature, weighting="inside")
    assert actual.item() == pytest.approx(direct_hard_negative(queries, responses, temperature, "inside"), rel=1e-9)


@pytest.mark.parametrize("weighting", ["outside", "inside"])
def test_gradients_equal_finite_differences(weighting: str) -> None:
    """The gradient flows through the weights, as finite differences do."""
    queries, responses = vectors(1, 4), vectors(2, 4)
    tensor = torch.tensor(queries, requires_grad=True)
    hard_negative_nt_xent(tensor, torch.tensor(responses), 0.5, weighting=weighting).backward()  # type: ignore[arg-type]
    assert tensor.grad is not None
    step = 1e-6
    for row in range(4):
        for column in range(8):
            up, down = queries.copy(), queries.copy()
            up[row, column] += step
            down[row, column] -= step
            difference = (
                direct_hard_negative(up, responses, 0.5, weighting)
                - direct_hard_negative(down, responses, 0.5, weighting)
            ) / (2 * step)
            assert tensor.grad[row, column].item() == pytest.approx(difference, rel=1e-5, abs=1e-8)


def test_masked_equal_texts_are_no_negatives() -> None:
    queries, responses = vectors(3, 5), vectors(4, 5)
    same = np.zeros((10, 10), bool)
    for a, b in ((0, 1), (5, 8), (2, 9)):
        same[a, b] = same[b, a] = True
    actual = hard_negative_nt_xent(torch.tensor(queries), torch.tensor(responses), 0.2, same=torch.tensor(same))
    assert actual.item() == pytest.approx(direct_hard_negative(queries, responses, 0.2, "outside", same), rel=1e-9)
    assert actual.item() != pytest.approx(direct_hard_negative(queries, responses, 0.2, "outside"), rel=1e-6)


def test_one_pair_has_no_negatives_and_no_gradient() -> None:
    query = torch.randn(1, 4, requires_grad=True)
    loss = hard_negative_nt_xent(query, torch.randn(1, 4), 0.05)
    loss.backward()
    assert loss.item() == 0
    assert query.grad is not None
    assert torch.equal(query.grad, torch.zeros_like(query))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_is_stable_for_close_vectors(kind: torch.dtype) -> None:
    """exp(20)² overflows half precision; the log-sum-exp form does not."""
    base = torch.randn(1, 64)
    queries = (base + 0.01 * torch.randn(32, 64)).to(kind).requires_grad_()
    loss = hard_negative_nt_xent(queries, queries.detach() + 0.001, 0.05)
    loss.backward()
    assert torch.isfinite(loss)
    assert queries.grad is not None
    assert torch.isfinite(queries.grad).all()


def direct_nt_xent(
    anchors: Array, candidates: Array, temperature: float, cosine: bool, masked: npt.NDArray[np.bool_] | None = None
) -> list[float]:
    losses = []
    for row, anchor in enumerate(anchors):
        scores = []
        for column, candidate in enumerate(candidates):
            score = float(anchor @ candidate)
            if cosine:
                score /= float(np.linalg.norm(anchor) * np.linalg.norm(candidate))
            if masked is None or not masked[row, column] or row == column:
                scores.append((column, score / temperature))
        denominator = sum(np.exp(score) for _, score in scores)
        losses.append(-np.log(np.exp(dict(scores)[row]) / denominator))
    return losses


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(0, 4), st.booleans())
def test_nt_xent_equals_a_direct_implementation(seed: int, rows: int, extra: int, cosine: bool) -> None:
    anchors, positives, negatives = vectors(seed, rows), vectors(seed + 1, rows), vectors(seed + 2, extra)
    masked = np.random.default_rng(seed).random((rows, rows + extra)) < 0.2
    actual = nt_xent(
        torch.tensor(anchors),
        torch.tensor(positives),
        0.3,
        negatives=torch.tensor(negatives) if extra else None,
        same=torch.tensor(masked),
        similarity="cosine" if cosine else "dot",
        reduction="none",
    )
    expected = direct_nt_xent(anchors, np.concatenate([positives, negatives]), 0.3, cosine, masked)
    assert actual.tolist() == pytest.approx(expected, rel=1e-8)
    mean = nt_xent(torch.tensor(anchors), torch.tensor(positives), 0.3, similarity="cosine" if cosine else "dot")
    assert mean.item() == pytest.approx(np.mean(direct_nt_xent(anchors, positives, 0.3, cosine)), rel=1e-8)


def test_losses_do_not_depend_on_the_length_of_vectors() -> None:
    queries, responses = torch.tensor(vectors(5, 6)), torch.tensor(vectors(6, 6))
    assert hard_negative_nt_xent(7 * queries, responses / 3, 0.05).item() == pytest.approx(
        hard_negative_nt_xent(queries, responses, 0.05).item(), rel=1e-9
    )


def direct_weighted(
    contexts: Array,
    responses: Array,
    counts: Array | None,
    temperature: float,
    same: npt.NDArray[np.bool_] | None = None,
) -> float:
    """Compute WMDC's appendix A with Eqs. 4 and 5 pair by pair."""
    forward = direct_nt_xent(contexts, responses, temperature, True, same)
    backward = direct_nt_xent(responses, contexts, temperature, True, same)
    weights = [
        1.0 if counts is None else 1 / (np.log(count) + 1)
        for count in (np.ones(len(contexts)) if counts is None else counts)
    ]
    return float(
        sum(weight * (a + b) / 2 for weight, a, b in zip(weights, forward, backward, strict=True)) / len(contexts)
    )


@given(st.integers(0, 10**6), st.integers(1, 8), st.sampled_from([0.05, 0.3, 1.0]), st.booleans(), st.booleans())
def test_weighted_loss_equals_a_direct_implementation(
    seed: int, rows: int, temperature: float, weighted: bool, mask: bool
) -> None:
    random = np.random.default_rng(seed)
    contexts, responses = vectors(seed, rows), vectors(seed + 1, rows)
    counts = random.integers(1, 10_000, rows).astype(float) if weighted else None
    same = np.triu(random.random((rows, rows)) < 0.3)
    same = same | same.T if mask else None
    actual = symmetric_nt_xent(
        torch.tensor(contexts),
        torch.tensor(responses),
        temperature,
        weights=None if counts is None else inverse_response_frequency(torch.tensor(counts)),
        same=None if same is None else torch.tensor(same),
    )
    assert actual.item() == pytest.approx(
        direct_weighted(contexts, responses, counts, temperature, same), rel=1e-8, abs=1e-12
    )


def test_gradients_of_the_weighted_loss_equal_finite_differences() -> None:
    sides = {"contexts": vectors(1, 4), "responses": vectors(2, 4)}
    counts = np.array([1.0, 5.0, 5371.0, 2.0])
    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in sides.items()}
    weights = inverse_response_frequency(torch.tensor(counts))
    symmetric_nt_xent(tensors["contexts"], tensors["responses"], 0.3, weights=weights).backward()
    step = 1e-6
    for name, tensor in tensors.items():
        assert tensor.grad is not None
        for row in range(4):
            for column in range(8):
                moved = []
                for sign in (1, -1):
                    changed = {each: value.copy() for each, value in sides.items()}
                    changed[name][row, column] += sign * step
                    moved.append(direct_weighted(changed["contexts"], changed["responses"], counts, 0.3))
                assert tensor.grad[row, column].item() == pytest.approx(
                    (moved[0] - moved[1]) / (2 * step), rel=1e-5, abs=1e-8
                )


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8))
def test_frequent_responses_have_lower_weights(counts: list[int]) -> None:
    weights = inverse_response_frequency(torch.tensor(counts)).tolist()
    assert weights == pytest.approx([1 / (np.log(count) + 1) for count in counts], rel=1e-6)
    assert all(0 < weight <= 1 for weight in weights)
    assert [weight for _, weight in sorted(zip(counts, weights, strict=True))] == sorted(weights, reverse=True)


def test_weight_of_the_papers_most_frequent_response() -> None:
    """Its Table 5: "yes." occurs 5,371 times; a response that occurs once has weight 1."""
    actual = inverse_response_frequency(torch.tensor([1, 5371])).tolist()
    assert actual == pytest.approx([1.0, 0.10429], abs=1e-5)
