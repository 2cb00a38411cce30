"""Running sweeps: equality with train and evaluate, resuming, failures, memory, the command."""

import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.helpers.tiny import backbone, corpus, recipe
from tests.papers.sweeps.conftest import LoadVariants
from turnwise import evaluate
from turnwise.cli.train import sweep_command
from turnwise.core.errors import TrainingError, TrainingInterruptedError, TurnwiseError
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.loading import ModelUnderTest, load_model
from turnwise.papers.sweeps import run as sweep_module
from turnwise.papers.sweeps.experiment import EvaluationPlan, SweepPoint
from turnwise.papers.sweeps.plan import Sweep, load_sweep, packaged_sweeps
from turnwise.papers.sweeps.run import run_sweep
from turnwise.training.loop import train
from turnwise.training.recipe import load_recipe

pytestmark = pytest.mark.usefixtures("no_curves", "few_bootstrap_samples")

TASKS = ("nli",)


def run(
    sweep: Sweep, corpus: Corpus, data: Path, out: Path, *, tasks: tuple[str, ...] = TASKS, **options: Any
) -> list[SweepPoint]:
    return run_sweep(sweep, corpus, EvaluationPlan(data, sweep.suites, tasks, effort=Effort(seeds=1)), out, **options)


@pytest.fixture(scope="module")
def tiny_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(recipe("dse", "steps=4", "checkpoint_every=1").to_yaml(), encoding="utf-8")
    return path


@dataclass
class TrainingLog:
    """The folder names of the trained runs, and an error that stops the next training."""

    trained: list[str]
    error_at: Callable[[int], BaseException | None] = lambda _: None


@pytest.fixture
def training_log(monkeypatch: pytest.MonkeyPatch) -> TrainingLog:
    log = TrainingLog([])

    def logged_train(recipe: Any, corpus: Any, out: Path, **options: Any) -> Encoder:
        if (error := log.error_at(len(log.trained))) is not None:
            raise error
        log.trained.append(out.name)
        return train(recipe, corpus, out, **options)

    monkeypatch.setattr(sweep_module, "train", logged_train)
    return log


def content(out: Path) -> str:
    """Return a sweep's results without its path."""
    return (out / "results.json").read_text(encoding="utf-8").replace(str(out), "OUT")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def values(points: list[SweepPoint]) -> list[list[float]]:
    return [[row.value for results in point.results for row in results.rows] for point in points]


@pytest.fixture(scope="module")
def pair(world: Path, tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[SweepPoint]]:
    """A small uninterrupted sweep."""
    out = tmp_path_factory.mktemp("pair") / "out"
    return out, run(seeds(tiny_recipe), corpus(), world, out)


def seeds(tiny_recipe: Path, values: str = "1,2") -> Sweep:
    return load_sweep(tiny_recipe, [f"seed={values}"])


@pytest.mark.full
def test_rerankers_are_evaluated_at_their_best_validation_step(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best model of the run is evaluated, not the last one."""
    loaded: list[Path] = []

    def logged_load(folder: Path, *options: Any, title: str) -> ModelUnderTest:
        loaded.append(folder)
        return load_model(folder, *options, title=title)

    monkeypatch.setattr(sweep_module, "load_model", logged_load)
    path = tmp_path / "tiny.yaml"
    path.write_text(recipe("ums", "steps=2", "batch_size=4", "probe_every=1").to_yaml(), encoding="utf-8")
    _, point = run(load_sweep(path, ["seed=1"]), corpus(), world, tmp_path / "out", tasks=("reranking",))
    assert not point.failure and point.folder is not None
    assert loaded == [point.folder / "best"]
    probed = [
        json.loads(line) for line in (point.folder / "metrics.jsonl").read_text().splitlines() if "probe." in line
    ]
    assert [line["step"] for line in probed] == [0, 1, 2]
    assert all(line["probe.responses adversarial adversary first"] >= 0 for line in probed)


def test_points_equal_train_and_evaluate(
    pair: tuple[Path, list[SweepPoint]], tiny_recipe: Path, world: Path, tmp_path: Path
) -> None:
    _, points = pair
    train(load_recipe(tiny_recipe, ["seed=2"]), corpus(), tmp_path / "model")
    assert points[-1].folder is not None
    assert same(weights(tmp_path / "model"), weights(points[-1].folder))
    assert not (points[-1].folder / "checkpoints").exists()
    for model, point in ((tmp_path / "model", points[-1]), (backbone(), points[0])):
        results = evaluate(str(model), world, tasks=TASKS, effort=Effort(seeds=1))
        assert [row.value for row in results.rows] == [row.value for row in point.results[-1].rows]


def test_finished_sweeps_are_not_repeated(
    pair: tuple[Path, list[SweepPoint]], tiny_recipe: Path, world: Path, training_log: TrainingLog
) -> None:
    out, points = pair
    before = content(out)
    again = run(seeds(tiny_recipe), corpus(), world, out)
    assert training_log.trained == []
    assert values(again) == values(points)
    assert content(out) == before


def test_resuming_between_points_gives_the_same_results(
    pair: tuple[Path, list[SweepPoint]], tiny_recipe: Path, world: Path, tmp_path: Path, training_log: TrainingLog
) -> None:
    stop = TrainingInterruptedError("interrupted at step 2 of 4")
    training_log.error_at = lambda number: stop if number == 1 else None
    with pytest.raises(TrainingInterruptedError, match="interrupted at seed=2; everything is saved"):
        run(seeds(tiny_recipe), corpus(), world, tmp_path)
    partial = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [point["place"] for point in partial["points"]] == [{}, {"seed": 1}]
    training_log.error_at = lambda _: None
    run(seeds(tiny_recipe), corpus(), world, tmp_path)
    assert content(tmp_path) == content(pair[0])
    assert training_log.trained == ["seed=1", "seed=2"]


def test_resuming_within_a_point_gives_the_same_results(
    pair: tuple[Path, list[SweepPoint]], tiny_recipe: Path, world: Path, tmp_path: Path
) -> None:
    """The sweep is killed in the third of four training steps."""
    current = ""

    def kill(step: str, done: int, total: int | None = None) -> None:
        nonlocal current
        kind, _, rest = step.partition(":")
        current = rest.strip() if kind == "sweep" else current
        if current == "seed=1" and step.startswith("training") and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(seeds(tiny_recipe), corpus(), world, tmp_path, progress=kill)
    folder = tmp_path / "runs" / "seed=1"
    checkpoints = sorted(path.name for path in (folder / "checkpoints").glob("*"))
    assert checkpoints == ["step-000000001", "step-000000002"]
    points = run(seeds(tiny_recipe), corpus(), world, tmp_path)
    assert content(tmp_path) == content(pair[0])
    assert pair[1][1].folder is not None
    assert same(weights(folder), weights(pair[1][1].folder))
    assert values(points) == values(pair[1])


def test_failed_points_are_reported_and_tried_again(
    tiny_recipe: Path, world: Path, tmp_path: Path, training_log: TrainingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fraction of the corpus without a dialogue cannot be trained on; the other can."""
    sweep = load_sweep(tiny_recipe, ["corpus_fraction=1e-9,0.5"])
    failed, finished = run(sweep, corpus(), world, tmp_path, start=False)
    assert "use a larger one" in failed.failure and failed.results == ()
    assert not finished.failure
    reported = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["points"]
    assert [point["failure"] for point in reported] == [failed.failure, ""]
    training_log.trained.clear()
    monkeypatch.setattr(Corpus, "sample", lambda self, fraction: self)
    again = run(sweep, corpus(), world, tmp_path, start=False)
    assert training_log.trained == [failed.folder.name if failed.folder else ""]
    assert not any(point.failure for point in again)
    assert values([again[1]]) == values([finished])


def test_failure_of_the_untrained_model_stops_the_sweep(
    tiny_recipe: Path, tmp_path: Path, training_log: TrainingLog
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(Exception, match="holds no data set"):
        run(seeds(tiny_recipe), corpus(), tmp_path / "empty", tmp_path / "out")
    assert training_log.trained == []


def test_grid_may_change_between_runs(
    tiny_recipe: Path, world: Path, tmp_path: Path, training_log: TrainingLog
) -> None:
    first = run(seeds(tiny_recipe), corpus(), world, tmp_path, start=False)
    assert training_log.trained == ["seed=1", "seed=2"]
    second = run(seeds(tiny_recipe, "5,2,1"), corpus(), world, tmp_path, start=False)
    assert training_log.trained == ["seed=1", "seed=2", "seed=5"]
    assert [point.parameters for point in second] == [{"seed": 5}, {"seed": 2}, {"seed": 1}]
    assert values([second[2], second[1]]) == values(first)
    assert yaml.safe_load((tmp_path / "sweep.yaml").read_text(encoding="utf-8"))["grid"] == {"seed": [5, 2, 1]}


def test_another_recipe_or_corpus_is_rejected_in_the_same_folder(
    tiny_recipe: Path, world: Path, tmp_path: Path
) -> None:
    def sweep_of(corpus: Corpus, *settings: str, name: str | Path = tiny_recipe) -> None:
        run(load_sweep(name, ["seed=1"], settings), corpus, world, tmp_path / "out")

    whole = read_corpus(world)
    sweep_of(whole, "steps=2")
    with pytest.raises(TrainingError, match=r"another recipe \(steps was 2, now 3\): choose another --out"):
        sweep_of(whole, "steps=3")
    with pytest.raises(TrainingError, match=r"another recipe \(objectives was .*, now "):
        sweep_of(
            whole, f"backbone={backbone()}", *("batch_size=8", "steps=2", "max_length=24", "log_every=1"), name="simcse"
        )
    with pytest.raises(TrainingError, match="another corpus or other splits"):
        sweep_of(Corpus(whole.stores, ["train"]), "steps=2")
    with pytest.raises(TrainingError, match="another corpus or other splits"):
        sweep_of(corpus(), "steps=2")
    (tmp_path / "out" / "sweep.yaml").write_text("nonsense", encoding="utf-8")
    with pytest.raises(TrainingError, match="is not a sweep definition"):
        sweep_of(whole, "steps=2")
    (tmp_path / "out" / "sweep.yaml").unlink()
    with pytest.raises(TrainingError, match="contains other files"):
        sweep_of(whole, "steps=2")


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["seed=1,2", "learning_rate=1e-3,fast"], "seed=1, learning_rate=fast: learning_rate must be a number"),
        (["seed=1,2", "query_trns=[1]"], r"neither the recipe nor its objectives have a key 'query_trns'"),
        (["batch_size=8,1"], r"batch_size=1: batch_size must be 2 or more, got 1"),
    ],
)
def test_invalid_points_are_rejected_before_training(
    axes: list[str], message: str, tiny_recipe: Path, world: Path, tmp_path: Path, training_log: TrainingLog
) -> None:
    with pytest.raises(TrainingError, match=message):
        run(load_sweep(tiny_recipe, axes), corpus(), world, tmp_path / "out")
    assert training_log.trained == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tasks", [(), ("intent",)])
def test_invalid_evaluations_are_rejected_before_training(
    tasks: tuple[str, ...], tiny_recipe: Path, world: Path, tmp_path: Path, training_log: TrainingLog
) -> None:
    with pytest.raises(TurnwiseError, match=r"there is nothing to evaluate|there is no task 'intent'"):
        run(seeds(tiny_recipe), corpus(), world, tmp_path / "out", tasks=tasks, start=False)
    assert training_log.trained == []
    assert not (tmp_path / "out").exists()


def test_several_processes_are_rejected(
    tiny_recipe: Path, tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingError, match="runs in one process"):
        run(seeds(tiny_recipe, "1"), corpus(), world, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_out_of_memory_in_training_fails_one_point(
    tiny_recipe: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors: list[weakref.ref[Any]] = []
    still_alive: list[bool] = []

    def failing_train(recipe: Any, corpus: Any, out: Path, **options: Any) -> Encoder:
        if out.name == "seed=1" and not tensors:
            weights = torch.zeros(8)
            tensors.append(weakref.ref(weights))
            raise torch.OutOfMemoryError("tried to allocate 20 GiB")
        return train(recipe, corpus, out, **options)

    monkeypatch.setattr(sweep_module, "train", failing_train)
    monkeypatch.setattr(
        torch.cuda, "empty_cache", lambda: still_alive.append(any(each() is not None for each in tensors))
    )
    points = run(seeds(tiny_recipe), corpus(), world, tmp_path)
    assert [bool(point.failure) for point in points] == [False, True, False]
    assert [bool(point.results) for point in points] == [True, False, True]
    assert "training ran out of memory (tried to allocate 20 GiB)" in points[1].failure
    assert "--set tokens_per_forward=N" in points[1].failure
    assert still_alive == [False, False]  # memory is released before each point, when nothing refers to it
    again = run(seeds(tiny_recipe), corpus(), world, tmp_path)
    assert not any(point.failure for point in again)


def test_out_of_memory_in_evaluation_fails_one_point_but_stops_at_the_untrained_model(
    tiny_recipe: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Encoder.encode

    def run_failing(fails: Callable[[int], bool], **options: Any) -> list[SweepPoint]:
        calls: list[None] = []

        def failing_encode(self: Encoder, *arguments: Any, **keywords: Any) -> Any:
            calls.append(None)
            if fails(len(calls)):
                raise torch.OutOfMemoryError
            return encode(self, *arguments, **keywords)

        monkeypatch.setattr(Encoder, "encode", failing_encode)
        return run(seeds(tiny_recipe), corpus(), world, tmp_path, **options)

    with pytest.raises(TrainingError, match=r"untrained: evaluation ran out of memory \(OutOfMemoryError\)"):
        run_failing(lambda _: True)
    assert not (tmp_path / "runs").exists()
    first, second = run_failing(lambda number: number == 1, start=False)
    assert "evaluation ran out of memory (OutOfMemoryError)" in first.failure
    assert "tokens_per_forward" not in first.failure  # an option of training only
    assert second.results and not second.failure


@pytest.mark.parametrize("axis", ["layers=1,2", "pooling=mean,cls"])
def test_untrained_model_is_left_out_if_an_axis_changes_it(
    axis: str, tiny_recipe: Path, world: Path, tmp_path: Path
) -> None:
    points = run(load_sweep(tiny_recipe, [axis], ["steps=1"]), corpus(), world, tmp_path)
    assert [point.parameters != {} for point in points] == [True, True]
    assert not any(point.failure for point in points)
    assert not (tmp_path / "start").exists()


def test_untrained_model_may_be_skipped_and_checkpoints_kept(tiny_recipe: Path, world: Path, tmp_path: Path) -> None:
    sweep = load_sweep(tiny_recipe, ["seed=1"], ["steps=2"])
    points = run(sweep, corpus(), world, tmp_path, start=False, keep_checkpoints=True)
    assert [point.parameters for point in points] == [{"seed": 1}]
    assert not (tmp_path / "start").exists()
    assert list((tmp_path / "runs" / "seed=1" / "checkpoints").iterdir())


def test_untrained_model_has_the_common_layers_and_pooling(tiny_recipe: Path, world: Path, tmp_path: Path) -> None:
    sweep = load_sweep(tiny_recipe, ["seed=1"], ["layers=1", "pooling=cls", "steps=1"])
    points = run(sweep, corpus(), world, tmp_path)
    encoder = Encoder.load(backbone(), pooling="cls")
    encoder.backbone.keep_layers(1)
    assert points[0].results[0].facts["fingerprint"] == encoder_fingerprint(encoder)


app = typer.Typer()
app.command("sweep")(sweep_command)


def run_command(*arguments: object) -> Any:
    return CliRunner(env={"COLUMNS": "240", "NO_COLOR": "1"}).invoke(app, [str(each) for each in arguments])


def run_sweep_of(recipe: Path, data: Path, out: Path, options: str) -> Any:
    common = ("--corpus", corpus().stores[0].folder, "--data", data, "--out", out)
    return run_command(recipe, *common, *options.split())


def test_command_prints_results_and_json(tiny_recipe: Path, world: Path, tmp_path: Path) -> None:
    common = (tiny_recipe, "--corpus", world, "--data", world, "--out", tmp_path / "out")
    options = ["--split", "train", "--set", "steps=2", "--grid", "seed=1,2", "--task", "nli", "--seeds", "1"]
    answer = run_command(*common, *options)
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    for name in ("untrained", "seed=1", "seed=2"):
        assert any(line.startswith(f"  {name} ") and " to " in line for line in lines), name
    assert f"tables and curves: {tmp_path / 'out' / 'report.html'}" in answer.stderr
    printed = run_command(*common, *options, "--json")
    assert json.loads(printed.stdout) == json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert [point["place"] for point in json.loads(printed.stdout)["points"]] == [{}, {"seed": 1}, {"seed": 2}]


@pytest.mark.parametrize(
    ("options", "suites", "tasks"),
    [
        ("", ("dialoguecse",), ()),
        ("--task nli", (), ("nli",)),
        ("--suite ums", ("ums",), ()),
        ("--suite ums --task nli", ("ums",), ("nli",)),
    ],
)
def test_command_options_replace_the_suites_of_a_sweep(
    options: str, suites: tuple[str, ...], tasks: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def record_call(sweep: Sweep, corpus: Corpus, evaluation: EvaluationPlan, *_: Any, **__: Any) -> list[SweepPoint]:
        calls.append((evaluation.suites, evaluation.tasks, evaluation.effort))
        raise typer.Exit  # without training

    monkeypatch.setattr(sweep_module, "run_sweep", record_call)
    file = tmp_path / "mine.yaml"
    file.write_text("recipe: dse\ngrid: {seed: [1]}\nsuites: [dialoguecse]\n", encoding="utf-8")
    assert run_sweep_of(file, tmp_path, tmp_path / "out", f"--seeds 2 --steps 3 {options}").exit_code == 0
    assert calls == [(suites, tasks, Effort(seeds=2, steps=3))]


def test_command_names_failed_points(tiny_recipe: Path, world: Path, tmp_path: Path) -> None:
    options = "--task nli --grid corpus_fraction=1e-9,1 --set steps=1 --no-start"
    answer = run_sweep_of(tiny_recipe, world, tmp_path / "out", options)
    assert isinstance(answer.exception, TrainingError)  # which the command line turns into exit code 1
    assert "1 of 2 points failed" in str(answer.exception)
    assert "corpus_fraction=1.0e-09: a fraction of 1e-09" in str(answer.exception)
    assert "failed" in answer.stdout


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), TrainingInterruptedError("interrupted")])
def test_interrupted_command_says_how_to_continue(
    stop: BaseException, tiny_recipe: Path, world: Path, tmp_path: Path, training_log: TrainingLog
) -> None:
    training_log.error_at = lambda _: stop
    answer = run_sweep_of(tiny_recipe, world, tmp_path / "out", "--task nli --grid seed=1 --no-start")
    assert answer.exit_code == 130
    assert "Run the same command to continue" in answer.stderr


def test_command_lists_packaged_sweeps() -> None:
    answer = run_command("--list")
    assert answer.exit_code == 0
    assert [name for name in packaged_sweeps() if name not in answer.stdout] == []


def test_command_selects_variants(
    load_variants: LoadVariants, recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def record_call(sweep: Sweep, *_: Any, **__: Any) -> list[SweepPoint]:
        calls.append([variant.name for variant in sweep.variants])
        raise typer.Exit  # without training

    monkeypatch.setattr(sweep_module, "run_sweep", record_call)
    load_variants({"a": {}, "b": {"pooling": "cls"}, "c": {"pooling": "max"}})
    for options in ("", "--variant c --variant a"):
        assert run_sweep_of(recipes / "sweep.yaml", tmp_path, tmp_path / "out", options).exit_code == 0
    assert calls == [["a", "b", "c"], ["a", "c"]]
