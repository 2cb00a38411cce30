"""What the readers' tests share: an import that checks the promises that hold for every import, whatever comes of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.outcomes import Outcome, outcome_of
from turnwise.corpus.importing import import_corpus
from turnwise.corpus.source import CorpusError


@pytest.fixture
def try_import(tmp_path: Path) -> Callable[..., Outcome]:
    """Imports twice, once strictly: `try_import(reader, path, **options)`.

    Either way the out folder is a whole store or not there; strict stops exactly where the other would have rejected.
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
