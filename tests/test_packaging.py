"""The wheels work without a clone, and the files around a release fit together."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers import ROOT
from turnwise.core.project import Project
from turnwise.version import __version__

#: Folders of a package, each built as a wheel.
PROJECTS = (".", "./weights", "./weights-onnx")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def load(path: Path) -> Any:
    # BaseLoader reads the key `on` as a string, where YAML 1.1 reads True
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)


# ---- files around a release


def test_packages_have_one_version() -> None:
    for folder in PROJECTS:
        described = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))
        assert described["project"]["dynamic"] == ["version"]
        source = ROOT / folder / described["tool"]["hatch"]["version"]["path"]
        assert source.resolve() == ROOT / "src" / "turnwise" / "version.py"
        assert described["project"]["urls"] == PROJECT["urls"]
    assert load(ROOT / "CITATION.cff")["version"] == __version__
    releases = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert releases[0] == __version__


def test_extras_name_the_packages_of_weights() -> None:
    extras = PROJECT["optional-dependencies"]
    packages = {name: [need for need in extras[name] if need.startswith("turnwise-weights")] for name in extras}
    assert {name: needs for name, needs in packages.items() if needs} == {
        "light": ["turnwise-weights-onnx>=0.2"],
        "small": ["turnwise-weights>=0.2"],
    }
    for needs in extras.values():
        for own in re.findall(r"turnwise\[(.*?)\]", " ".join(needs)):
            assert set(own.split(",")) <= extras.keys()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_use_targets_and_files_that_exist(path: Path) -> None:
    workflow = load(path)
    assert workflow["name"] and workflow["on"] and workflow["permissions"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for job in workflow["jobs"].values():
        assert job["runs-on"] and int(job["timeout-minutes"]) <= 360
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "a/b@v1"))
            command = step.get("run", "")
            assert set(re.findall(r"\bmake ([a-z-]+)", command)) <= targets
            assert all((ROOT / name).exists() for name in re.findall(r"\btests/\S+", command))


# ---- wheels, in an empty environment


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the three wheels; skips if the package registry cannot be reached."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    reached = subprocess.run([*pip, "download", "--no-deps", "--dest", folder / "probe", "annotated-doc"])
    if reached.returncode:
        pytest.skip("the package registry cannot be reached")
    command = [*pip, "wheel", "--no-deps", "--wheel-dir", folder, *PROJECTS]
    subprocess.run(command, cwd=ROOT, check=True)
    assert len(list(folder.glob(f"*-{__version__}-*.whl"))) == len(PROJECTS)
    return folder


@pytest.fixture
def installed(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[..., str]]:
    """Install extras of turnwise into an empty environment; the result runs one of its programs in an empty folder."""
    for name in ("PYTHONPATH", "COVERAGE_PROCESS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    programs, folder = tmp_path / "environment" / "bin", tmp_path / "empty"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", programs.parent], check=True)

    def run(program: str, *arguments: object, code: int = 0) -> str:
        command = [str(programs / program), *map(str, arguments)]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout if code == 0 else result.stderr

    def install(*extras: str) -> Callable[..., str]:
        requirement = f"turnwise[{','.join(extras)}]"
        constraints = ("--constraint", ROOT / "constraints.txt")
        run("python", "-m", "pip", "install", "--quiet", "--find-links", wheels, *constraints, requirement)
        return run

    return install


#: Prints the installed files of turnwise below its package, and which of some packages are installed.
INVENTORY = """
import importlib.util, json, sys
from importlib.metadata import files
own = [path.as_posix() for path in files("turnwise") if path.parts[0] == "turnwise" and path.suffix != ".pyc"]
print(json.dumps([own, [name for name in sys.argv[1:] if importlib.util.find_spec(name)]]))
"""

EXAMPLES = """intent,text
track_order,where is my parcel
track_order,has my package been shipped
track_order,when will my order arrive
cancel_order,cancel my order please
cancel_order,I don't want it any more
cancel_order,please stop my order
"""


def check_intents(run: Callable[..., str], folder: Path, model: str) -> None:
    """Check that a classifier of six examples is right about a text that is like some of them."""
    (folder / "examples.csv").write_text(EXAMPLES, encoding="utf-8")
    run("turnwise", "intents", "fit", "examples.csv", "--model", model, "--out", "intents")
    (predicted,) = json.loads(run("turnwise", "intents", "predict", "intents", "where is my package", "--json"))
    assert predicted["ranked"][0]["intent"] == "track_order"


@pytest.mark.full
def test_light_wheels(installed: Callable[..., Callable[..., str]], tmp_path: Path) -> None:
    run = installed("light")
    heavy = ("torch", "transformers", "sklearn", "scipy", "pyarrow", "lancedb")
    files, present = json.loads(run("python", "-c", INVENTORY, *heavy))
    sources = subprocess.check_output(["git", "ls-files", "turnwise"], cwd=ROOT / "src", text=True).splitlines()
    assert not present and set(files) == set(sources)
    check_intents(run, tmp_path / "empty", "turnwise-small-int8")
    message = run("turnwise", "corpus", "sample", "--out", "sample", code=1)
    assert message == "error: pyarrow is not installed: pip install 'turnwise[corpus]'\n"
    # what `turnwise start` needs, still without torch
    run = installed("light", "corpus", "map", "serve")
    check_start(run, tmp_path / "empty")
    assert json.loads(run("python", "-c", INVENTORY, "torch", "transformers"))[1] == []


@pytest.mark.full
def test_wheels(installed: Callable[..., Callable[..., str]], tmp_path: Path) -> None:
    run = installed("small")
    check_intents(run, tmp_path / "empty", "turnwise-small")
    check_start(run, tmp_path / "empty")


def check_start(run: Callable[..., str], folder: Path) -> None:
    """Check that `turnwise start` makes a project of a sample log, and that the project can be used."""
    run("turnwise", "corpus", "sample", "--out", "sample", "--dialogues", 60, "--seed", 1)
    run("turnwise", "corpus", "export", "sample", "--format", "messages", "--out", "chats.jsonl")
    run("turnwise", "start", "chats.jsonl", "--out", "project", "--no-serve")
    project = Project.load(folder / "project")
    model = ("--model", "turnwise-small-int8")
    words = (project.part("responses"), "where is my parcel?", *model, "--json")
    suggestions = run("turnwise", "responses", "suggest", *words)
    assert json.loads(suggestions)["suggestions"] and project.part("map").is_dir()
