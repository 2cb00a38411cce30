"""The service against its own description: whatever is asked, no answer is a failure, and each is as its description says."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.helpers.trial import build, listening
from turnwise.serve.settings import Limits

#: Small, so that what lies beyond them is tried too.
LIMITS = Limits(texts=6, characters=80)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, tiny_folder) -> Iterator[str]:
    with listening(build(tmp_path_factory.mktemp("fuzzed"), tiny_folder("bert"), LIMITS)) as address:
        yield address


def fuzzed(address: str, place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What schemathesis finds.

    That is: answers of 500 and above; statuses, types and bodies that are not described; requests that are taken although they are
    not as described, or not taken although they are.
    """
    command = [
        Path(sys.executable).parent / "schemathesis",
        "run",
        f"{address}/openapi.json",
        "--no-color",
        "--no-shrink",
    ]
    patient = ("--generation-database", "none", "--request-timeout", "300")
    return subprocess.run(
        [*command, *patient, *options],
        capture_output=True,
        text=True,
        cwd=place,
        env=os.environ | {"COLUMNS": "132"},
        check=False,
    )


def test_a_few_requests_to_every_route(address: str, tmp_path: Path) -> None:
    few = ("--phases", "examples,fuzzing", "--max-examples", "4", "--seed", "1")
    # what takes no parameters and takes long is left to the other test
    done = fuzzed(address, tmp_path, *few, "--exclude-path", "/conversations/clusters")
    assert done.returncode == 0, done.stdout + done.stderr
    assert httpx.get(f"{address}/ready").status_code == 200


@pytest.mark.full
def test_many_requests_to_every_route(address: str, tmp_path: Path) -> None:
    """Also the edges of everything that the description allows, and requests that follow on from answers."""
    done = fuzzed(address, tmp_path, "--max-examples", "100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert httpx.get(f"{address}/ready").status_code == 200
