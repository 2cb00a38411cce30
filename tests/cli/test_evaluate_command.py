"""`turnwise evaluate`, `compare` and `annotate`: printed and written output, and errors."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from tests.helpers.command_line import Answer, run
from tests.helpers.stores import write_store
from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn
from turnwise.evaluation.probe import make_probe
from turnwise.models.encoder import Encoder

#: Keys of every row of results.json.
KEYS = [
    *("task", "dataset", "setting", "metric", "value", "std", "low", "high", "runs", "n"),
    *("table", "published", "comparable", "seen"),
]

SPEAKERS = (USER, SYSTEM, USER, SYSTEM)

FILES = {"results.json", "outcomes.parquet", "tables.md", "report.html"}

METRIC_LINE = re.compile(r"^(\S+): (.+?) {2,}(.+?) (−?[\d.]+)  \(95%: (−?[\d.]+) to (−?[\d.]+)\) *$", re.MULTILINE)


@pytest.fixture(scope="module")
def world(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(50)


@pytest.fixture(scope="module")
def tiny(tiny_folder: Callable[[str], Path]) -> Path:
    return tiny_folder("bert")


@pytest.fixture(scope="module")
def measured(world: Path, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    """Results of two tasks as JSON, and the folder they were written to."""
    out = tmp_path_factory.mktemp("tasks") / "plain"
    return out, run("evaluate", tiny, "--task", "nli", "--task", "sts", "--data", world, "--out", out, "--json")


@pytest.fixture(scope="module")
def whitened(world: Path, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of the two tasks with whitened vectors."""
    out = tmp_path_factory.mktemp("tasks") / "whitened"
    run("evaluate", tiny, "--task", "nli", "--data", world, "--out", out, "--postprocess", "whitening", "--fit", world)
    return out


def rows(folder: Path) -> dict[tuple[str, ...], dict[str, object]]:
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return {tuple(row[key] for key in KEYS[:4]): row for row in content["rows"]}


# ---- evaluate


def test_a_suite_prints_metrics_writes_files_and_reports_missing_data(world: Path, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "results"
    answer = run("evaluate", tiny, "--suite", "dse", "--data", world, "--out", out, "--seeds", 1, "--steps", 1)
    assert {path.name for path in out.iterdir()} == FILES | {"plots", "cache"}
    assert [path.name for path in (out / "plots").iterdir()] == ["intents_sample.svg"]
    shown = [
        (task, what, metric, float(value)) for task, what, metric, value, _, _ in METRIC_LINE.findall(answer.stdout)
    ]
    assert shown == [
        (task, f"{dataset}, {setting}", metric, pytest.approx(row["value"], abs=0.0051))
        for (task, dataset, setting, metric), row in rows(out).items()
    ]
    assert {task for task, *_ in shown} == {"intents", "out-of-scope", "responses", "actions", "nli"}
    assert all(row["runs"] == 1 for row in rows(out).values())
    assert "cut short: seeds 1, steps 1" in (out / "tables.md").read_text(encoding="utf-8")

    messages = answer.stderr.splitlines()
    assert "missing: clinc150 (prototypes); get it from https://github.com/clinc/oos-eval" in messages
    assert "missing: appen_a (prototypes); its authors have not published it" in messages
    assert any(line.startswith("left out: fine-tuned responses, sample; sample has 21 pairs") for line in messages)
    assert messages[-1] == f"tables: {out / 'report.html'}"


def test_a_store_is_ranked_by_its_own_candidates_and_by_next_turns(tiny: Path, tmp_path: Path) -> None:
    """The two protocols read the same store; their settings tell them apart."""
    dialogues = [
        Dialogue(str(number), tuple(Turn(speaker, f"{speaker} of dialogue {number} says so") for speaker in SPEAKERS))
        for number in range(120)
    ]
    store = write_store(tmp_path / "store", dialogues)
    run("evaluate", tiny, "--task", "responses", "--data", store, "--out", tmp_path / "out")
    settings = {setting for _, _, setting, _ in rows(tmp_path / "out")}
    assert settings == {"0-shot similarity, history", "0-shot similarity, next turn"}


def test_a_store_with_intents_is_evaluated_as_it_is_probed(tiny: Path, tmp_path: Path) -> None:
    dialogues = [
        Dialogue(f"{split} {number}", (Turn(USER, f"{topic} number {number}", topic),), split=split)
        for split in ("train", "valid", "test")
        for topic in ("card", "key")
        for number in range(12)
    ]
    store = write_store(tmp_path / "our-logs", dialogues)
    run("evaluate", tiny, "--task", "intents", "--data", store, "--out", tmp_path / "out")
    assert {dataset for _, dataset, _, _ in rows(tmp_path / "out")} == {"our-logs"}
    assert all(name.startswith("our-logs ") for name in make_probe(store)(Encoder.load(tiny, device="cpu")))


def test_json_equals_results_json_and_has_every_key(measured: tuple[Path, Answer]) -> None:
    out, answer = measured
    content = json.loads(answer.stdout)
    assert answer.stdout == (out / "results.json").read_text(encoding="utf-8")
    assert {path.name for path in out.iterdir()} == FILES | {"cache"}
    assert {"model", "suite", "environment", "facts", "data", "missing", "rows"} <= set(content)
    assert content["suite"] == "nli+sts" and content["facts"]["fingerprint"]
    assert {(row["task"], row["metric"]) for row in content["rows"]} == {
        *(("nli", "accuracy"), ("sts", "Spearman"), ("sts", "Pearson"))
    }
    for row in content["rows"]:
        assert list(row) == KEYS
        assert row["low"] <= row["value"] <= row["high"] and row["n"] > 100 and row["runs"] == 1
        assert row["table"] is row["published"] is None
    assert {(entry["name"], *entry["tasks"]) for entry in content["data"]} == {("sample", "nli"), ("sample", "sts")}


def test_whitening_is_fitted_on_the_texts_of_a_store(measured: tuple[Path, Answer], whitened: Path, tiny: Path) -> None:
    content = json.loads((whitened / "results.json").read_text(encoding="utf-8"))
    assert content["model"] == f"{tiny}, whitening"
    ((key, row),) = rows(whitened).items()
    assert row["value"] != rows(measured[0])[key]["value"]


def test_a_function_in_the_working_directory_is_evaluated(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function represents a text by its letter counts."""
    (tmp_path / "letters.py").write_text(
        "import numpy\n"
        "def counts(texts):\n"
        "    return numpy.array([[text.count(letter) + 0.1 for letter in 'aeiourstln'] for text in texts])\n"
    )
    monkeypatch.chdir(tmp_path)
    answer = run("evaluate", "letters:counts", "--task", "nli", "--data", world, "--out", "mine")
    assert answer.stdout.splitlines()[0].strip() == "letters:counts"
    assert [groups[:3] for groups in METRIC_LINE.findall(answer.stdout)] == [
        ("nli", "sample, entailment nearer than contradiction", "accuracy")
    ]
    assert not (tmp_path / "mine" / "cache").exists()  # nobody knows whether it gives the same vectors tomorrow


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "name either a suite or one or more tasks"),
        (["--task", "nli", "--postprocess", "whitening"], 2, "--postprocess and --fit must be used together"),
        (["--suite", "glue"], 1, "there is no suite 'glue': choose from dse, dialoguecse, tadse, diaeval, ums"),
        (["--task", "sorting"], 1, "there is no task 'sorting': choose from intents, out-of-scope"),
        (["--task", "nli", "--dataset", "snli"], 1, "holds no data set for nli among snli"),
        (["--task", "nli", "--data", "nowhere"], 1, "nowhere is not a folder"),
        (["--task", "nli", "--data", "WORLD/intents"], 1, "holds no data set for the task 'nli'"),
        (["--task", "nli", "--postprocess", "polish", "--fit", "WORLD"], 1, "choose from flow, whitening"),
    ],
)
def test_invalid_input_is_reported(
    arguments: list[str], code: int, message: str, world: Path, tiny: Path, tmp_path: Path
) -> None:
    given = [word.replace("WORLD", str(world)) for word in arguments]
    defaults = [
        word
        for option, value in (("--data", world), ("--out", tmp_path / "x"))
        for word in (option, value)
        if option not in arguments
    ]
    answer = run("evaluate", tiny, *given, *defaults, code=code)
    assert_one_clear_error(answer, message, code)
    assert not (tmp_path / "x" / "results.json").exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("./nothing", "nothing does not exist"),
        ("no_such_module:encode", "the module 'no_such_module' cannot be imported"),
        ("json:encode", "the module 'json' has no 'encode'"),
        ("glove:nothing.txt", "nothing.txt cannot be read"),
    ],
)
def test_unknown_models_are_reported(model: str, message: str, world: Path, tmp_path: Path) -> None:
    answer = run("evaluate", model, "--task", "nli", "--data", world, "--out", tmp_path / "x", code=1)
    assert_one_clear_error(answer, message, 1)
    assert not (tmp_path / "x").exists()


def assert_one_clear_error(answer: Answer, message: str, code: int) -> None:
    """Expect a one-line error, or a usage message for exit code 2."""
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr and answer.stdout == ""
    assert code == 2 or (answer.stderr.startswith("error: ") and answer.stderr.count("\n") == 1)


# ---- compare


def test_compare_prints_a_verdict_and_a_table(measured: tuple[Path, Answer], whitened: Path) -> None:
    plain, _ = measured
    text = run("compare", plain, whitened).stdout
    verdict = re.match(
        r"(.+) is better than (.+) in (\d) of 1 metrics, worse in (\d), no clear difference in (\d);", text
    )
    assert verdict is not None and verdict.groups()[:2] == (str(whitened), str(plain))
    assert sum(map(int, verdict.groups()[2:])) == 1
    assert "| nli | sample | entailment nearer than contradiction | accuracy |" in text
    assert f"- sts, sample, cosine, Spearman: only {plain} has it" in text

    entries = {entry["task"]: entry for entry in json.loads(run("compare", plain, whitened, "--json").stdout)}
    key = ("nli", "sample", "entailment nearer than contradiction", "accuracy")
    first, second = (float(str(rows(folder)[key]["value"])) for folder in (plain, whitened))
    assert (entries["nli"]["first"], entries["nli"]["second"]) == pytest.approx((first, second))
    assert entries["nli"]["difference"] == pytest.approx(second - first)
    assert entries["nli"]["low"] <= entries["nli"]["difference"] <= entries["nli"]["high"]
    assert 0 < entries["nli"]["p"] <= entries["nli"]["corrected"] <= 1
    assert entries["sts"]["verdict"] == "not comparable" and entries["sts"]["p"] is None


def test_compare_reports_invalid_input(measured: tuple[Path, Answer], tmp_path: Path) -> None:
    plain, _ = measured
    assert_one_clear_error(run("compare", plain, code=2), "name two or more result folders", 2)
    assert_one_clear_error(run("compare", plain, tmp_path, code=1), "results.json does not exist", 1)


# ---- annotate


def test_annotators_scores_become_a_similarity_set(world: Path, tiny: Path, tmp_path: Path) -> None:
    """Export pairs, collect the scores of two annotators, and evaluate a model against their median."""
    exported = run("annotate", "export", world, "--out", tmp_path / "new" / "pairs.csv", "--pairs", 30, "--model", tiny)
    assert exported.stdout == "" and exported.stderr.startswith("wrote 30 pairs to ")
    with (tmp_path / "new" / "pairs.csv").open(encoding="utf-8-sig", newline="") as file:
        pairs = list(csv.DictReader(file))
    assert len(pairs) == 30 and {pair["score"] for pair in pairs} == {""}

    annotations = {"ann": [1 + number % 5 for number in range(30)], "eve": [1 + number % 4 for number in range(30)]}
    for name, scores in annotations.items():
        with (tmp_path / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(pairs[0]))
            writer.writeheader()
            writer.writerows({**pair, "score": score} for pair, score in zip(pairs, scores, strict=True))
    data = tmp_path / "data"
    (data / "pairs").parent.mkdir()
    (data / "pairs").symlink_to(world / "pairs")
    for split in ("dev", "test"):
        gold = data / "dialoguecse" / "datasets" / "edc" / split / "sts.txt"
        collected = run("annotate", "collect", *(tmp_path / f"{name}.csv" for name in annotations), "--out", gold)
        assert collected.stdout == "" and collected.stderr == f"wrote 30 pairs to {gold}\n"
    median = [(one + two) / 2 for one, two in zip(*annotations.values(), strict=True)]
    lines = [line.split("\t") for line in gold.read_text(encoding="utf-8").splitlines()]
    assert lines == [[f"{score:g}", pair["first"], pair["second"]] for score, pair in zip(median, pairs, strict=True)]

    run("evaluate", tiny, "--task", "sts", "--data", data, "--out", tmp_path / "both")
    assert {dataset for _, dataset, _, _ in rows(tmp_path / "both")} == {"dsts_ecd", "sample"}
    run("evaluate", tiny, "--task", "sts", "--dataset", "dsts_ecd", "--data", data, "--out", tmp_path / "own")
    assert {dataset for _, dataset, _, _ in rows(tmp_path / "own")} == {"dsts_ecd"}
    row = rows(tmp_path / "own")["sts", "dsts_ecd", "cosine", "Spearman"]
    encoder = Encoder.load(tiny, device="cpu")
    firsts, seconds = (encoder.encode([line[column] for line in lines], normalise=True) for column in (1, 2))
    assert row["value"] == pytest.approx(100 * spearmanr(np.sum(firsts * seconds, axis=1), median).statistic, abs=0.01)
    assert row["n"] == 30


def test_annotate_reports_invalid_input(world: Path, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "pairs.csv"
    assert_one_clear_error(
        run("annotate", "export", world, "--out", out, "--label", "colour", code=2), "is not one of 'intent', 'acts'", 2
    )
    assert_one_clear_error(run("annotate", "export", tmp_path, "--out", out, code=1), "is not a store", 1)
    many = run("annotate", "export", world, "--out", out, "--pairs", 10**6, "--model", tiny, code=1)
    assert_one_clear_error(many, "ask for fewer, or use more turns", 1)
    assert not out.exists()
    run("annotate", "export", world, "--out", out, "--pairs", 3, "--model", tiny)
    unjudged = run("annotate", "collect", out, "--out", tmp_path / "gold.txt", code=1)
    assert_one_clear_error(unjudged, "pairs.csv, line 2: the score must be 1, 2, 3, 4 or 5, got ''", 1)
    assert not (tmp_path / "gold.txt").exists()
