"""What the tests of the papers' evaluations share."""

from collections.abc import Iterator

import pytest

from turnwise.core.progress import silent
from turnwise.evaluation.metrics import bootstrap_mean, bootstrap_outcomes


@pytest.fixture(scope="module")
def few_bootstrap_samples() -> Iterator[None]:
    """Compute confidence intervals from 100 samples: many more take much of the time of a small evaluation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap_outcomes, "__defaults__", (100, silent))
        patch.setattr(bootstrap_mean, "__defaults__", (100,))
        yield
