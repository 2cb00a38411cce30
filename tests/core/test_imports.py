"""Imports: packages whose `__init__` runs later, and garbage collection during imports."""

import gc
import importlib
import sys
from pathlib import Path

import pytest

from turnwise.core.imports import defer_package, without_garbage_collection


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package that defines `client`, with a submodule `models` that defines `model`."""
    name = f"package_of_{tmp_path.name}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(f"from {name}.models import model\nclient = ['client', model]\n")
    (tmp_path / name / "models.py").write_text("model = ['model']\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_a_deferred_package_runs_when_its_names_are_used(package: str) -> None:
    defer_package(package)
    models = importlib.import_module(f"{package}.models")
    deferred = importlib.import_module(package)
    assert "client" not in vars(deferred)
    assert deferred.models is models
    assert deferred.client == ["client", ["model"]]
    assert deferred.model is models.model
    with pytest.raises(AttributeError, match="nothing"):
        _ = deferred.nothing


def test_a_missing_or_imported_package_is_left_as_it_is(package: str) -> None:
    imported = importlib.import_module(package)
    defer_package(package)
    assert sys.modules[package] is imported
    defer_package(f"{package}_missing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package}_missing")


def test_garbage_collection_is_restored() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), without_garbage_collection():
        assert not gc.isenabled()
        with without_garbage_collection():
            pass
        assert not gc.isenabled()
        raise ValueError("x")
    assert gc.isenabled()
