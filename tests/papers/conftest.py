"""What the tests of the papers' evaluations share."""

from collections.abc import Iterator

import pytest

from turnwise.evaluation.metrics import Outcome, bootstrap_mean


@pytest.fixture(scope="module")
def few_bootstrap_samples() -> Iterator[None]:
    """Compute confidence intervals from 100 samples: many more take much of the time of a small evaluation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outcome.bootstrap, "__defaults__", (0, 100))
        patch.setattr(bootstrap_mean, "__defaults__", (100,))
        yield
