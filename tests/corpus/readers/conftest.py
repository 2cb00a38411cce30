"""The fixture of the readers' tests: an import that checks what holds for every import."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.outcomes import Outcome, outcome_of
from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.pipeline import import_corpus


@pytest.fixture
def try_import(tmp_path: Path) -> Callable[..., Outcome]:
    """Import twice, once strictly: `try_import(reader, path, **options)`.

    The out folder is a complete store or missing; a strict import stops exactly at the first rejection of the other.
    """
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
        try:
            strictly = outcome_of(import_corpus(reader, path, strict, strict=True, **options))
        except CorpusError as error:
            assert not strict.exists()
            assert outcome.rejected or outcome.error
            if outcome.rejected:
                first = outcome.rejected[0]
                assert first["file"] in str(error)
                assert first["reason"] in str(error)
        else:
            assert not outcome.rejected
            assert strictly.dialogues == outcome.dialogues
        return outcome

    return run
