"""The table of names: every entry exists, looking up names imports nothing large, and others can add entries."""

import subprocess
import sys
from typing import get_args

import numpy as np
import pytest

from turnwise.core import registry
from turnwise.core.errors import TurnwiseError
from turnwise.evaluation.evaluation_protocols import Protocol, all_protocols
from turnwise.evaluation.suites import find_suite
from turnwise.models.loading import load_model


def test_every_entry_is_defined_where_the_table_says() -> None:
    protocols = all_protocols()
    for kind in get_args(registry.Kind):
        for name in registry.known_names(kind):
            assert registry.find(kind, name)
    assert {protocol.task for protocol in protocols.values()} == set(registry.known_names("task"))
    assert all(isinstance(protocol, Protocol) for protocol in protocols.values())
    for name in registry.known_names("suite"):
        suite = find_suite(name)
        assert suite.name == name
        assert {step.protocol for step in suite.steps} <= protocols.keys()


def test_names_are_known_without_large_imports() -> None:
    code = (
        "import sys; from turnwise.core.registry import check_name\n"
        "check_name('suite', 'dse'); print({'numpy', 'torch'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_others_add_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._PLACES, "loader", dict(registry._PLACES["loader"]))
    registry.add("loader", "ones", f"{__name__}:Ones")
    vectors = load_model("ones:3").encoder.encode(["a", "b"])  # type: ignore[union-attr]
    np.testing.assert_array_equal(vectors, np.ones((2, 3)))


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(TurnwiseError, match=r"there is no suite 'dsee': choose from dse, .*, ums\. Did you mean dse\?"):
        registry.find("suite", "dsee")


class Ones:
    """An encoder of as many ones as its name says."""

    def __init__(self, size: str):
        self._size = int(size)

    def encode(self, texts: list[str]) -> np.ndarray:  # type: ignore[type-arg]
        return np.ones((len(texts), self._size))
