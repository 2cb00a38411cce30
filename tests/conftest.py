"""What several folders of tests share: tiny models, small sample worlds, and no network."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# how fast an example is made or tried tells of the machine, and of what else runs on it
settings.register_profile("turnwise", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("turnwise")

# read by huggingface_hub when it is imported, so before any test is
os.environ["HF_HUB_OFFLINE"] = "1"

# read by torch when it is imported: workers that run side by side have a core each, and would otherwise fight for all of them
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# families.py stands beside the tests that need it most
sys.path.append(str(Path(__file__).parent / "backbone"))


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny random model, by its family; made once."""
    import families

    place = tmp_path_factory.mktemp("tiny")

    def folder(family: str) -> Path:
        if not (place / family).is_dir():
            families.save(family, place / family)
        return place / family

    return folder


@pytest.fixture(scope="session")
def sample_world(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The folder of a sample world, by its number of dialogues; made once, to be read only."""
    from turnwise.corpus.sample_folder import write_sample

    place = tmp_path_factory.mktemp("worlds")

    def folder(dialogues: int) -> Path:
        if not (place / str(dialogues)).is_dir():
            write_sample(place / str(dialogues), dialogues, 1)
        return place / str(dialogues)

    return folder
