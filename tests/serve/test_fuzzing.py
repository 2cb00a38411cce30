"""Schemathesis against the OpenAPI description: no request fails, and every response matches its schema."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.helpers.trial import build, listening
from turnwise.serve.settings import Limits

#: Small, so that requests beyond them are tried as well.
LIMITS = Limits(texts=6, characters=80)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, tiny_folder) -> Iterator[str]:
    with listening(build(tmp_path_factory.mktemp("run_schemathesis"), tiny_folder("bert"), LIMITS)) as address:
        yield address


@pytest.mark.full
def test_many_requests_to_every_route(address: str, tmp_path: Path) -> None:
    """Includes boundary values, and requests that follow from responses.

    Reported are statuses of 500 and above; undocumented statuses, content types and bodies; invalid requests that are
    accepted, and valid ones that are rejected.
    """
    options = [
        "--no-color",
        "--no-shrink",
        "--generation-database",
        "none",
        "--request-timeout",
        "300",
        "--max-examples",
        "100",
    ]
    command = [
        Path(sys.executable).parent / "schemathesis",
        "run",
        f"{address}/openapi.json",
        *options,
        "--generation-database",
        "none",
    ]
    environment = os.environ | {"COLUMNS": "132"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert httpx.get(f"{address}/ready").status_code == 200
