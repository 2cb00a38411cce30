"""Learning-rate schedules as pure functions of the step: nothing to save, nothing to restore."""

import math

from turnwise.training.recipe import Schedule

#: OneCycleLR's own numbers: where it starts and ends, as shares of the peak.
_ONE_CYCLE_START, _ONE_CYCLE_END, _ONE_CYCLE_RISE = 1 / 25, 1 / 25 / 1e4, 0.3


def learning_rate_factor(schedule: Schedule, step: int, steps: int, warmup: float = 0.0) -> float:
    """What the learning rate is multiplied by at a step (from 0) of a run.

    Args:
        schedule: 'constant', 'linear' (to 0), 'cosine' (to 0), or 'one-cycle' (up and down by cosines, as PyTorch's).
        step: which step.
        steps: how many there are.
        warmup: share of the steps in which the rate rises from 0; for 'one-cycle' the share of the rise, 0.3 if 0.
    """
    if schedule == "one-cycle":
        rise = (warmup or _ONE_CYCLE_RISE) * steps - 1
        if step <= rise:
            return _cosine(_ONE_CYCLE_START, 1.0, step / rise if rise > 0 else 1.0)
        return _cosine(1.0, _ONE_CYCLE_END, (step - rise) / max(1e-9, steps - 1 - rise))
    rising = math.ceil(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    if schedule == "constant":
        return 1.0
    done = (step - rising) / max(1, steps - rising)
    return 1 - done if schedule == "linear" else _cosine(1.0, 0.0, done)


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * min(1.0, share)))
