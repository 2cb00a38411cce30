"""What the tests of sweeps share."""

from collections.abc import Iterator

import pytest

from turnwise.papers.sweeps import report


@pytest.fixture(scope="module")
def no_curves() -> Iterator[None]:
    """Draw no curves: a sweep draws all of them anew after every point."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "line_chart", lambda *_, **__: "<svg/>")
        yield
