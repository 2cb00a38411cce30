"""Learning rate schedules equal those of PyTorch and transformers."""

from itertools import pairwise

import pytest
import torch
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from turnwise.training.step import learning_rate_factor


def reference(make: object, steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)  # type: ignore[operator]
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("steps", [7, 50, 200])
def test_one_cycle_equals_pytorch(steps: int) -> None:
    expected = reference(
        lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=steps), steps
    )
    assert [learning_rate_factor("one-cycle", step, steps) for step in range(steps)] == pytest.approx(
        expected, abs=1e-9
    )


def test_linear_and_cosine_equal_transformers_without_warm_up() -> None:
    linear = reference(lambda optimizer: get_linear_schedule_with_warmup(optimizer, 0, 40), 40)
    cosine = reference(lambda optimizer: get_cosine_schedule_with_warmup(optimizer, 0, 40), 40)
    assert [learning_rate_factor("linear", step, 40) for step in range(40)] == pytest.approx(linear)
    assert [learning_rate_factor("cosine", step, 40) for step in range(40)] == pytest.approx(cosine)


def test_warm_up_rises_to_the_peak_and_is_never_zero() -> None:
    rates = [learning_rate_factor("linear", step, 100, 0.1) for step in range(100)]
    assert all(a < b for a, b in pairwise(rates[:11]))
    assert rates[0] > 0
    assert rates[10] == 1
    assert min(rates) > 0
    assert learning_rate_factor("constant", 99, 100, 0.1) == 1
