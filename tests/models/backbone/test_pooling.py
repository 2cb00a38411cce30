"""Pooling over the stream against a plain loop over the sequences."""

from collections.abc import Callable
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.helpers.families import sequences
from turnwise.models.backbone.source import Pooling
from turnwise.models.backbone.stream import PoolerLayer, TokenStream, pool

PLAIN: dict[Pooling, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda states: states.mean(0),
    "cls": lambda states: states[0],
    "cls-mlp": lambda states: states[0],
    "max": lambda states: states.max(0).values,
    "first-last": lambda states: states.mean(0),
}


def test_every_pooling_is_tested() -> None:
    assert set(PLAIN) == set(get_args(Pooling))


@pytest.mark.parametrize("pooling", PLAIN)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12), seed=st.integers(0, 100))
def test_pooling_equals_a_loop_over_sequences(pooling: Pooling, lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    given_states = [torch.randn(length, 4) for length in lengths]
    stream = TokenStream.of(sequences(lengths))
    states = torch.cat([given_states[index] for index in stream.order])
    expected = torch.stack([PLAIN[pooling](part) for part in given_states])
    assert_close(pool(states, stream, pooling), expected)


@pytest.mark.parametrize("pooling", PLAIN)
def test_gradients_reach_the_right_tokens(pooling: Pooling) -> None:
    """The vector of one sequence depends on that sequence's states and on no others."""
    stream = TokenStream.of(sequences([3, 2, 3]))
    states = torch.randn(8, 4, requires_grad=True)
    pool(states, stream, pooling)[1].sum().backward()
    assert states.grad is not None
    assert states.grad[:2].any()  # the shortest sequence comes first in the stream
    assert not states.grad[2:].any()


def test_the_pooler_layer_is_linear_then_tanh() -> None:
    layer = PoolerLayer(4)
    vectors = torch.randn(3, 4)
    assert_close(layer(vectors), (vectors @ layer.linear.weight.T + layer.linear.bias).tanh())
