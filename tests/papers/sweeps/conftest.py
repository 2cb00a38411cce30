"""What the tests of sweeps share."""

import pytest

from turnwise.papers.sweeps import report


@pytest.fixture
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no curves: a sweep draws all of them anew after every point."""
    monkeypatch.setattr(report, "line_chart", lambda *_, **__: "<svg/>")
