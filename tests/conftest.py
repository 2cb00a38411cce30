"""What several folders of tests share: tiny models, small sample worlds, and no network."""

import faulthandler
import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from filelock import FileLock
from hypothesis import HealthCheck, settings

from tests.helpers import ROOT

# timing depends on the machine and on other load; `make test` tries fewer examples than `make test-full`
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("full"), max_examples=25)
settings.load_profile("full")

# read by huggingface_hub and transformers when they are imported
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}

# read by torch when it is imported: each test worker uses one core
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# read by Triton when it is imported: without a GPU its kernels are interpreted
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

# subprocesses import the package and these helpers as this process does
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Print a traceback of a crash, also after a package has enabled the handler for output that tests capture."""
    faulthandler.enable(item.config.stash[fault_handler_stderr_fd_key])


@pytest.fixture(scope="module", autouse=True)
def _skip_older_objects_in_garbage_collections() -> None:
    """Speed up collections, several of which each training run makes: imported modules are most of all objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny random model, by its family; made once."""
    from tests.helpers import families

    place = tmp_path_factory.mktemp("tiny")

    def folder(family: str) -> Path:
        if not (place / family).is_dir():
            families.save(family, place / family)
        return place / family

    return folder


@pytest.fixture(scope="session")
def sample_world(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The folder of a sample world, by its number of dialogues; made once for all workers, to be read only."""
    from turnwise.corpus.synthetic.sample import write_sample

    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "worlds"
    place.mkdir(exist_ok=True)

    def folder(dialogues: int) -> Path:
        with FileLock(place / f"{dialogues}.lock"):
            if not (place / str(dialogues)).is_dir():
                write_sample(place / f"{dialogues}.part", dialogues, 1)
                (place / f"{dialogues}.part").rename(place / str(dialogues))
        return place / str(dialogues)

    return folder


@pytest.fixture
def run_turnwise(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """Runs a command line in this process: what it says, once it has ended with the code that it should."""
    from turnwise.cli import main

    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: object, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()  # what the test itself has loaded
        monkeypatch.setattr(sys, "argv", ["turnwise", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
            sys.exit(0)
        output = capsys.readouterr()
        assert (stop.value.code or 0) == code, output
        return output.out, output.err

    return run


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium without a window; where there is none, the test skips."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()
