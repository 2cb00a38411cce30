"""Fixtures of the readers' tests: an import that checks what holds for every import, and the imported layouts."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.layouts import Layout
from tests.helpers.outcomes import Outcome, outcome_of
from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.pipeline import import_corpus


@pytest.fixture(autouse=True, scope="session")
def _no_fsync() -> Iterator[None]:
    """Skip fsync: thousands of stores need not survive a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def try_import(tmp_path: Path) -> Callable[..., Outcome]:
    """Import twice, once strictly, which stops at the first rejection of the other: `try_import(reader, path, …)`."""
    count = 0

    def run(reader: str, path: Path, **options: Any) -> Outcome:
        nonlocal count
        count += 1
        out, strict = tmp_path / f"out-{count}", tmp_path / f"strict-{count}"
        try:
            outcome = outcome_of(import_corpus(reader, path, out, **options))
        except CorpusError as error:
            assert not out.exists()
            assert str(error)
            outcome = Outcome(error=str(error))
        if not outcome.rejected and not outcome.error:
            return outcome
        with pytest.raises(CorpusError) as stopped:
            import_corpus(reader, path, strict, strict=True, **options)
        assert not strict.exists()
        if outcome.rejected:
            first = outcome.rejected[0]
            assert first["file"] in str(stopped.value)
            assert first["reason"] in str(stopped.value)
        return outcome

    return run


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Layout], Outcome]:
    """Return what a strict import of a layout gives: `imported(layout)` imports each one once."""
    outcomes: dict[str, Outcome] = {}

    def run(layout: Layout) -> Outcome:
        if layout.name not in outcomes:
            folder = tmp_path_factory.mktemp("layout")
            source = layout.write(folder / "in")
            outcomes[layout.name] = outcome_of(
                import_corpus(layout.reader, source, folder / "out", strict=True, **layout.options)
            )
        return outcomes[layout.name]

    return run
