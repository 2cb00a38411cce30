"""A sweep trains and measures every point once, however often it is stopped, and says early what cannot be."""

import itertools
import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.helpers.tiny import backbone, corpus, recipe
from turnwise import evaluate
from turnwise.cli.experiments import sweep_command
from turnwise.corpus.store import Corpus, read_corpus
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.runner import EvaluationError
from turnwise.evaluation.suites import SUITES
from turnwise.models.encoder import Encoder
from turnwise.models.identity import encoder_fingerprint
from turnwise.models.loading import ModelUnderTest, load_folder
from turnwise.papers.sweeps import sweeping as sweep_module
from turnwise.papers.sweeps.grid import GridError, parse_axis
from turnwise.papers.sweeps.points import Point
from turnwise.papers.sweeps.sweep import Sweep, SweepError, load_sweep, packaged_sweeps
from turnwise.papers.sweeps.sweeping import run_sweep
from turnwise.papers.sweeps.variants import VariantError
from turnwise.training import TrainingInterruptedError
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe, RecipeError, load_recipe, packaged_recipes

TASKS = ("nli",)

#: What all models of these tests are measured by.
MEASURES: dict[str, Any] = {"tasks": TASKS, "effort": Effort(seeds=1)}


@pytest.fixture(scope="module")
def world(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(30)


@pytest.fixture(scope="module")
def tiny_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    place.write_text(recipe("dse", "steps=4", "checkpoint_every=1").to_yaml(), encoding="utf-8")
    return place


@dataclass
class Counted:
    """What was trained, and what stops the next training."""

    trained: list[str]
    at: Callable[[int], BaseException | None] = lambda _: None


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """The names of the runs that are trained, and a way to stop one before it begins."""
    count = Counted([])

    def counting(wanted: Any, learnt: Any, out: Path, **options: Any) -> Encoder:
        stop = count.at(len(count.trained))
        if stop is not None:
            raise stop
        count.trained.append(out.name)
        return train(wanted, learnt, out, **options)

    monkeypatch.setattr(sweep_module, "train", counting)
    return count


def content(out: Path) -> str:
    """A sweep's results, wherever it lies."""
    return (out / "results.json").read_text(encoding="utf-8").replace(str(out), "OUT")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def values(points: list[Point]) -> list[list[float]]:
    return [[row.value for results in point.results for row in results.rows] for point in points]


# ---- running


@pytest.fixture(scope="module")
def whole(world: Path, tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Point]]:
    """Two axes, a suite and tasks."""
    out = tmp_path_factory.mktemp("whole") / "out"
    wanted = load_sweep(tiny_recipe, ["learning_rate=1e-3,1e-2", "query_turns=[1],[1,2]"], ["seed=3"], ["dialoguecse"])
    return out, run_sweep(wanted, corpus(), world, out, **MEASURES)


@pytest.fixture(scope="module")
def pair(world: Path, tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Point]]:
    """A little sweep that nothing disturbs."""
    out = tmp_path_factory.mktemp("pair") / "out"
    return out, run_sweep(seeds(tiny_recipe), corpus(), world, out, **MEASURES)


def seeds(tiny_recipe: Path, values: str = "1,2") -> Sweep:
    return load_sweep(tiny_recipe, [f"seed={values}"])


def test_a_re_ranker_is_judged_by_its_best_on_validation_data(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the recipe keeps is what is measured, and not the last of the run."""
    loaded: list[Path] = []

    def loading(folder: Path, *options: Any) -> ModelUnderTest:
        loaded.append(folder)
        return load_folder(folder, *options)

    monkeypatch.setattr(sweep_module, "load_folder", loading)
    place = tmp_path / "tiny.yaml"
    place.write_text(recipe("ums", "steps=2", "batch_size=4", "probe_every=1").to_yaml(), encoding="utf-8")
    _, point = run_sweep(load_sweep(place, ["seed=1"]), corpus(), world, tmp_path / "out", tasks=("reranking",))
    assert not point.failure and point.folder is not None
    assert loaded == [point.folder / "best"]
    probed = [
        json.loads(line) for line in (point.folder / "metrics.jsonl").read_text().splitlines() if "probe." in line
    ]
    assert [line["step"] for line in probed] == [0, 1, 2]
    assert all(line["probe.responses adversarial adversary first"] >= 0 for line in probed)


def test_every_point_is_trained_and_measured(whole: tuple[Path, list[Point]], tiny_recipe: Path) -> None:
    out, points = whole
    places = [{"learning_rate": rate, "query_turns": turns} for rate in (1e-3, 1e-2) for turns in ([1], [1, 2])]
    assert [point.place for point in points] == [{}, *places]
    assert points[0].name == "untrained"
    assert points[1].name == "learning_rate=0.001, query_turns=[1]"
    assert points[0].folder is None
    assert not any(point.failure for point in points)
    for point, place in zip(points[1:], places, strict=True):
        assert point.folder is not None
        assert load_recipe(point.folder / "recipe.yaml") == replace(
            load_recipe(tiny_recipe),
            seed=3,
            learning_rate=place["learning_rate"],
            objectives={"dse": {**load_recipe(tiny_recipe).objectives["dse"], "query_turns": place["query_turns"]}},
        )
        assert not (point.folder / "checkpoints").exists()
        for name in ("dialoguecse", "nli"):
            written = json.loads((point.folder / "evaluation" / name / "results.json").read_text(encoding="utf-8"))
            assert written["model"] == point.name
    assert [[results.suite for results in point.results] for point in points] == [["dialoguecse", "nli"]] * 5
    assert len({tuple(each) for each in values(points)}) == 5
    assert {path.name for path in out.iterdir()} >= {"sweep.yaml", "results.json", "table.md", "report.html", "curves"}
    assert len(list((out / "tokens").glob("texts-*"))) == 1


def test_the_points_are_those_that_train_and_evaluate_give(
    whole: tuple[Path, list[Point]], tiny_recipe: Path, world: Path, tmp_path: Path
) -> None:
    _, points = whole
    alone = load_recipe(tiny_recipe, ["seed=3", "learning_rate=1e-2", "query_turns=[1, 2]"])
    train(alone, corpus(), tmp_path / "model")
    assert points[-1].folder is not None
    assert same(weights(tmp_path / "model"), weights(points[-1].folder))
    for model, point in ((tmp_path / "model", points[-1]), (backbone(), points[0])):
        results = evaluate(str(model), world, tasks=TASKS, effort=Effort(seeds=1))
        assert [row.value for row in results.rows] == [row.value for row in point.results[1].rows]


def test_a_finished_sweep_run_again_does_nothing_new(
    pair: tuple[Path, list[Point]], tiny_recipe: Path, world: Path, counted: Counted
) -> None:
    out, points = pair
    before = content(out)
    again = run_sweep(seeds(tiny_recipe), corpus(), world, out, **MEASURES)
    assert counted.trained == []
    assert values(again) == values(points)
    assert content(out) == before


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(KeyboardInterrupt("by a key"), marks=pytest.mark.full),
        TrainingInterruptedError("interrupted at step 2 of 4"),
    ],
)
def test_stopped_between_points_and_run_again_gives_the_same(
    stop: BaseException,
    pair: tuple[Path, list[Point]],
    tiny_recipe: Path,
    world: Path,
    tmp_path: Path,
    counted: Counted,
) -> None:
    counted.at = lambda number: stop if number == 1 else None
    with pytest.raises(type(stop), match=r"by a key|interrupted at seed=2; all is saved. The same sweep goes on"):
        run_sweep(seeds(tiny_recipe), corpus(), world, tmp_path, **MEASURES)
    kept = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [point["place"] for point in kept["points"]] == [{}, {"seed": 1}]
    counted.at = lambda _: None
    run_sweep(seeds(tiny_recipe), corpus(), world, tmp_path, **MEASURES)
    assert content(tmp_path) == content(pair[0])
    assert counted.trained == ["seed=1", "seed=2"]


@pytest.mark.parametrize("moment", ["training", pytest.param("nli", marks=pytest.mark.full)])
def test_killed_within_a_point_and_run_again_gives_the_same(
    moment: str, pair: tuple[Path, list[Point]], tiny_recipe: Path, world: Path, tmp_path: Path
) -> None:
    """Within a training of four steps after its second, and within an evaluation."""
    under_way = ""

    def kill(what: str, done: int, total: int | None = None) -> None:
        nonlocal under_way
        kind, _, rest = what.partition(":")
        under_way = rest.strip() if kind == "sweep" else under_way
        if under_way == "seed=1" and (
            what.startswith("training") and done == 3 if moment == "training" else "nli" in what
        ):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(seeds(tiny_recipe), corpus(), world, tmp_path, progress=kill, **MEASURES)
    run = tmp_path / "runs" / "seed=1"
    left = sorted(path.name for path in (run / "checkpoints").glob("*"))
    assert left == (["step-000000001", "step-000000002"] if moment == "training" else [])
    points = run_sweep(seeds(tiny_recipe), corpus(), world, tmp_path, **MEASURES)
    assert content(tmp_path) == content(pair[0])
    assert pair[1][1].folder is not None
    assert same(weights(run), weights(pair[1][1].folder))
    assert values(points) == values(pair[1])


def test_a_point_that_fails_is_noted_and_tried_again(
    tiny_recipe: Path, world: Path, tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share that leaves no dialogue cannot be learnt from; the others can."""
    wanted = load_sweep(tiny_recipe, ["corpus_share=1,1e-9,0.5"])
    points = run_sweep(wanted, corpus(), world, tmp_path, **MEASURES)
    assert [bool(point.failure) for point in points] == [False, False, True, False]
    assert "take a larger one" in points[2].failure
    assert points[2].results == ()
    assert len(counted.trained) == 3
    noted = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["points"]
    assert [point["failure"] for point in noted] == ["", "", points[2].failure, ""]
    counted.trained.clear()
    monkeypatch.setattr(Corpus, "sampled", lambda self, share: self)
    again = run_sweep(wanted, corpus(), world, tmp_path, **MEASURES)
    assert counted.trained == [points[2].folder.name if points[2].folder else ""]
    assert not any(point.failure for point in again)
    assert values([again[1], again[3]]) == values([points[1], points[3]])


def test_what_fails_at_the_start_stops_the_sweep_before_anything_is_trained(
    tiny_recipe: Path, tmp_path: Path, counted: Counted
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(Exception, match="holds no data set"):
        run_sweep(seeds(tiny_recipe), corpus(), tmp_path / "empty", tmp_path / "out", **MEASURES)
    assert counted.trained == []


def test_the_grid_may_grow(tiny_recipe: Path, world: Path, tmp_path: Path, counted: Counted) -> None:
    first = run_sweep(seeds(tiny_recipe), corpus(), world, tmp_path, **MEASURES)
    assert counted.trained == ["seed=1", "seed=2"]
    second = run_sweep(seeds(tiny_recipe, "5,2,1"), corpus(), world, tmp_path, **MEASURES)
    assert counted.trained == ["seed=1", "seed=2", "seed=5"]
    assert [point.place for point in second] == [{}, {"seed": 5}, {"seed": 2}, {"seed": 1}]
    assert values([second[0], second[3], second[2]]) == values(first)
    assert yaml.safe_load((tmp_path / "sweep.yaml").read_text(encoding="utf-8"))["grid"] == {"seed": [5, 2, 1]}


def test_another_recipe_or_corpus_is_refused_in_the_same_folder(tiny_recipe: Path, world: Path, tmp_path: Path) -> None:
    def run(learnt: Corpus, *settings: str, name: str | Path = tiny_recipe) -> None:
        run_sweep(load_sweep(name, ["seed=1"], settings), learnt, world, tmp_path / "out", **MEASURES)

    learnt = read_corpus(world)
    run(learnt, "steps=2")
    with pytest.raises(SweepError, match=r"another recipe \(steps is 2 there and 3 here\): choose another --out"):
        run(learnt, "steps=3")
    with pytest.raises(SweepError, match=r"another recipe \(objectives is .* there and .* here"):
        run(
            learnt,
            f"backbone={backbone()}",
            *("batch_size=8", "steps=2", "max_length=24", "log_every=1"),
            name="simcse",
        )
    with pytest.raises(SweepError, match="another corpus or other splits"):
        run(Corpus(learnt.stores, ["train"]), "steps=2")
    with pytest.raises(SweepError, match="another corpus or other splits"):
        run(corpus(), "steps=2")
    (tmp_path / "out" / "sweep.yaml").write_text("nonsense", encoding="utf-8")
    with pytest.raises(SweepError, match="not what a sweep wrote"):
        run(learnt, "steps=2")
    (tmp_path / "out" / "sweep.yaml").unlink()
    with pytest.raises(SweepError, match="holds other files"):
        run(learnt, "steps=2")


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["seed=1,2", "learning_rate=1e-3,fast"], r"seed=1, learning_rate=fast: learning_rate='fast': expected float"),
        (["seed=1,2", "query_trns=[1]"], r"neither the recipe nor its objectives have a key 'query_trns'"),
        (["batch_size=8,1"], r"batch_size=1: batch_size=1: too small"),
        (["learning_rate=1,1.0"], r"learning_rate=1.0 and learning_rate=1 are one model, judged in one way"),
    ],
)
def test_what_cannot_be_trained_is_told_before_anything_is(
    axes: list[str], message: str, tiny_recipe: Path, world: Path, tmp_path: Path, counted: Counted
) -> None:
    with pytest.raises(SweepError, match=message):
        run_sweep(load_sweep(tiny_recipe, axes), corpus(), world, tmp_path / "out", **MEASURES)
    assert counted.trained == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tasks", [(), ("intent",)])
def test_what_cannot_be_measured_is_told_before_anything_is_trained(
    tasks: tuple[str, ...], tiny_recipe: Path, world: Path, tmp_path: Path, counted: Counted
) -> None:
    with pytest.raises(EvaluationError, match=r"nothing is measured|there is no task 'intent'"):
        run_sweep(seeds(tiny_recipe), corpus(), world, tmp_path / "out", tasks=tasks, start=False)
    assert counted.trained == []
    assert not (tmp_path / "out").exists()


def test_a_sweep_of_several_processes_is_refused(
    tiny_recipe: Path, tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SweepError, match="runs in one process"):
        run_sweep(seeds(tiny_recipe, "1"), corpus(), world, tmp_path / "out", **MEASURES)
    assert not (tmp_path / "out").exists()


# ---- too little memory


@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, pytest.param(MemoryError, marks=pytest.mark.full)])
def test_a_point_whose_training_runs_out_of_memory_is_noted_and_the_others_go_on(
    kind: type[Exception], tiny_recipe: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[weakref.ref[Any]] = []
    left: list[bool] = []

    def greedy(wanted: Any, learnt: Any, out: Path, **options: Any) -> Encoder:
        if out.name == "seed=1" and not held:
            weights = torch.zeros(8)
            held.append(weakref.ref(weights))
            raise kind("tried to allocate 20 GiB")
        return train(wanted, learnt, out, **options)

    monkeypatch.setattr(sweep_module, "train", greedy)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: left.append(any(each() is not None for each in held)))
    points = run_sweep(seeds(tiny_recipe), corpus(), world, tmp_path, **MEASURES)
    assert [bool(point.failure) for point in points] == [False, True, False]
    assert [bool(point.results) for point in points] == [True, False, True]
    assert "training it ran out of memory (tried to allocate 20 GiB)" in points[1].failure
    assert "--set tokens_per_forward=N" in points[1].failure
    assert left == [False, False]  # before each point, when nothing holds what the last one left
    assert (
        points[1].failure in json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["points"][1]["failure"]
    )
    again = run_sweep(seeds(tiny_recipe), corpus(), world, tmp_path, **MEASURES)
    assert not any(point.failure for point in again)


def test_memory_that_runs_out_in_measuring_fails_a_point_and_stops_at_the_start(
    tiny_recipe: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Encoder.encode

    def run(greedy: Callable[[int], bool], **options: Any) -> list[Point]:
        calls: list[None] = []

        def encoding(self: Encoder, *arguments: Any, **keywords: Any) -> Any:
            calls.append(None)
            if greedy(len(calls)):
                raise torch.OutOfMemoryError
            return encode(self, *arguments, **keywords)

        monkeypatch.setattr(Encoder, "encode", encoding)
        return run_sweep(seeds(tiny_recipe), corpus(), world, tmp_path, **MEASURES, **options)

    with pytest.raises(SweepError, match=r"untrained: measuring it ran out of memory \(OutOfMemoryError\)"):
        run(lambda _: True)
    assert not (tmp_path / "runs").exists()
    first, second = run(lambda number: number == 1, start=False)
    assert "measuring it ran out of memory (OutOfMemoryError)" in first.failure
    assert "tokens_per_forward" not in first.failure  # which is of training alone
    assert second.results and not second.failure


# ---- the start


@pytest.mark.parametrize("axis", ["layers=1,2", "pooling=mean,cls"])
def test_there_is_no_one_start_where_an_axis_changes_it(
    axis: str, tiny_recipe: Path, world: Path, tmp_path: Path
) -> None:
    points = run_sweep(load_sweep(tiny_recipe, [axis], ["steps=1"]), corpus(), world, tmp_path, **MEASURES)
    assert [point.place != {} for point in points] == [True, True]
    assert not any(point.failure for point in points)
    assert not (tmp_path / "start").exists()


def test_the_start_may_be_left_out_and_checkpoints_kept(tiny_recipe: Path, world: Path, tmp_path: Path) -> None:
    wanted = load_sweep(tiny_recipe, ["seed=1"], ["steps=2"])
    points = run_sweep(wanted, corpus(), world, tmp_path, start=False, keep_checkpoints=True, **MEASURES)
    assert [point.place for point in points] == [{"seed": 1}]
    assert not (tmp_path / "start").exists()
    assert list((tmp_path / "runs" / "seed=1" / "checkpoints").iterdir())


def test_the_start_is_cut_and_pooled_as_all_points_are(tiny_recipe: Path, world: Path, tmp_path: Path) -> None:
    wanted = load_sweep(tiny_recipe, ["seed=1"], ["layers=1", "pooling=cls", "steps=1"])
    points = run_sweep(wanted, corpus(), world, tmp_path, **MEASURES)
    cut = Encoder.load(backbone(), pooling="cls")
    cut.backbone.keep_layers(1)
    assert points[0].results[0].facts["fingerprint"] == encoder_fingerprint(cut)


# ---- names and files


@pytest.mark.parametrize("name", packaged_sweeps())
def test_packaged_sweeps_can_be_run(name: str) -> None:
    sweep = load_sweep(name)
    assert len(sweep.plan()) > 1
    assert sweep.base().describes
    assert sweep.describes
    assert sweep.suites
    assert set(sweep.suites) <= set(SUITES)
    assert name not in packaged_recipes()


def recipes(sweep: str) -> list[Recipe]:
    return [planned.recipe for planned in load_sweep(sweep).plan()]


def test_the_packaged_sweeps_are_the_papers() -> None:
    parts = ("baselines", "corpus", "negatives", "temperature", "turns")
    assert packaged_sweeps() == [
        *(f"dialoguecse-{part}" for part in parts),
        "dse-queries",
        *(f"tadse-{part}" for part in ("baselines", "losses", "negatives", "rate")),
        *(f"ums-{part}" for part in ("backbones", "tasks")),
        *(f"wmdc-{part}" for part in ("corpus", "layers", "windows")),
    ]
    windows = recipes("wmdc-windows")
    options = [
        (recipe.steps, recipe.objectives["wmdc"]["windows"], recipe.objectives["wmdc"]["reweight"])
        for recipe in windows
    ]
    assert options == [(1500, list(range(1, size + 1)), reweight) for size in range(1, 6) for reweight in (True, False)]
    assert [(each.steps, each.corpus_share) for each in recipes("wmdc-corpus")] == [
        (1500, share) for share in (0.01, 0.1, 1.0)
    ]
    assert [(each.backbone, each.layers) for each in recipes("wmdc-layers")] == [("minilm", n) for n in (2, 4, 6)]
    turns = [each.objectives["dse"]["query_turns"] for each in recipes("dse-queries")]
    assert turns == [[1], [2], [3], [1, 2, 3]]


def test_the_sweeps_of_ums_are_its_tables() -> None:
    """Table 5 has every subset of the three tasks; Table 2 two backbones, post-trained or not, with the tasks and without."""
    tasks = [set(each.objectives) - {"response-selection"} for each in recipes("ums-tasks")]
    three = ("insertion", "deletion", "search")
    assert [sorted(each) for each in tasks] == [
        sorted(subset) for size in range(4) for subset in itertools.combinations(three, size)
    ]
    backbones = recipes("ums-backbones")
    assert [(each.backbone.split("/")[-1], each.first is not None, len(each.objectives)) for each in backbones] == [
        (name, post_trained, objectives)
        for name in ("bert-base-uncased", "electra-base-discriminator")
        for post_trained in (False, True)
        for objectives in (1, 4)
    ]
    first = [each.first.objectives["post-training"] for each in backbones if each.first is not None]
    assert [options.get("detection", False) for options in first] == [False, False, True, True]


@pytest.mark.parametrize(
    ("name", "axis", "values"),
    [
        ("turns", "context_turns", [1, 2, 3, 4, 5]),
        ("corpus", "corpus_share", [0.01, 0.03, 0.1, 0.3, 1]),
        ("temperature", "temperature", [0.05, 0.1, 0.2, 0.5]),
        ("negatives", "negatives", [1, 4, 9, 19]),
    ],
)
def test_dialoguecses_figures_change_one_thing(name: str, axis: str, values: list[float]) -> None:
    """Each beside the recipe itself, which has none of the values but its own; two of them beside the siamese network."""
    plan = load_sweep(f"dialoguecse-{name}").plan()
    kinds = ["dialoguecse", "siamese"] if name in ("turns", "corpus") else ["dialoguecse"]
    found = [(each.place[axis], kind) for each in plan for kind in each.recipe.objectives]
    assert found == [(value, kind) for value in values for kind in kinds]
    for each in plan:
        ((kind, options),) = each.recipe.objectives.items()
        own = load_recipe(kind).objectives[kind]
        changed = {} if axis == "corpus_share" else {axis: each.place[axis]}
        assert options == own | changed | ({"in_batch": False} if name == "negatives" else {})
        share = each.place[axis] if axis == "corpus_share" else 1
        assert each.recipe == replace(load_recipe(kind), objectives={kind: options}, steps=1500, corpus_share=share)


def test_dialoguecses_table_has_its_baselines() -> None:
    plan = {each.name: each for each in load_sweep("dialoguecse-baselines").plan()}
    judged = {"avg": ("mean", None), "CLS": ("cls", None), "flow": ("mean", "flow"), "whitening": ("mean", "whitening")}
    for way, expected in judged.items():
        for start in ("backbone", "adapted"):
            each = plan.pop(f"{start}-{way}")
            assert ((each.pooling, each.postprocess), each.trained) == (expected, start == "adapted")
            if each.trained:
                assert (each.recipe.epochs, each.recipe.batch_size, each.recipe.learning_rate) == (0.5, 50, 2e-5)
                assert (each.recipe.objectives["masked-language"], each.recipe.max_length) == (
                    {"share": 0.15, "most": 10},
                    50,
                )
                adapted = each.recipe
    assert plan.pop("GloVe").word_vectors
    found = {name: each.recipe.objectives for name, each in plan.items()}
    for ending, first in (("", None), (", the paper's numbers", adapted)):
        siamese, ours = (
            (f"SiameseBERT-s{ending}", f"SiameseBERT-m{ending}"),
            (f"DialogueCSE-I1{ending}", f"DialogueCSE-I2{ending}"),
        )
        assert [found[name]["siamese"]["context_turns"] for name in siamese] == [1, 3]
        assert [found[name]["dialoguecse"]["aggregation"] for name in ours] == ["attention", "mean"]
        assert all(plan[name].recipe.first == first for name in (*siamese, *ours))  # one first stage serves all
    assert len(found) == 8
    assert {each.recipe.steps for each in plan.values()} == {1500}


def test_tadses_losses_are_added_one_after_the_other() -> None:
    """As its Table 5 has them; t' is the template behind the layer."""
    plan = {each.name: each for each in load_sweep("tadse-losses").plan()}
    assert not plan.pop("untrained").trained
    own = load_recipe("tadse")
    for name, each in plan.items():
        options = each.recipe.objectives["tadse"]
        learnt = ("L^u" in name, "L^t" in name, "L^pair" in name, "L^t'" in name)
        weights = (options.get(f"{part}_weight", 1.0) for part in ("utterance", "template", "pair"))
        assert (*(weight > 0 for weight in weights), options.get("template_layer", False)) == learnt
        assert replace(each.recipe, objectives=own.objectives) == own
    assert list(plan) == ["L^u", "L^u + L^t", "L^u + L^t + L^pair", "L^u + L^t' + L^pair"]


def test_tadses_table_has_its_baselines() -> None:
    plan = {each.name: each for each in load_sweep("tadse-baselines").plan()}
    assert not plan.pop("untrained").trained
    kinds = {name: list(each.recipe.objectives) for name, each in plan.items()}
    assert kinds == {
        "SimCSE-aug": ["simcse"],
        "TOD-BERT-aug": ["masked-language"],
        "DSE-aug": ["dse"],
        "TaDSE": ["tadse"],
        "TaDSE w/ MLP": ["tadse"],
    }
    assert (
        len({(each.recipe.backbone, each.recipe.steps) for each in plan.values()}) == 1
    )  # all learn for as long, from one model


def test_the_command_line_adds_to_a_file_and_replaces(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "describes: mine\nrecipe: dse\ngrid:\n  learning_rate: [1e-5, 3.0e-5]\n  seed: [1, 2]\nset: [steps=5, batch_size=8]\n"
        "suites: [dse, diaeval]\n",
        encoding="utf-8",
    )
    plain = load_sweep(file)
    assert plain == Sweep(
        *("dse", (parse_axis("learning_rate=1e-5,3e-5"), parse_axis("seed=1,2")), ("steps=5", "batch_size=8")),
        *(("dse", "diaeval"), "mine"),
    )
    changed = load_sweep(file, ["seed=7", "ema=0,0.9"], ["steps=9"], ["ums"])
    assert [(axis.key, axis.values) for axis in changed.axes] == [
        ("learning_rate", (1e-5, 3e-5)),
        ("seed", (7,)),
        ("ema", (0, 0.9)),
    ]
    assert changed.suites == ("ums",)
    assert {(each.recipe.steps, each.recipe.batch_size, each.recipe.seed) for each in changed.plan()} == {(9, 8, 7)}
    assert load_sweep(file, suites=[]).suites == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recipe: dse\ngrid: {seed: [1]}\nsuite: dse\n", "a sweep has no key 'suite'"),
        ("grid: {seed: [1]}\n", "a sweep has to name its recipe"),
        ("recipe: dse\ngrid: {seed: 1}\n", "each with a list of values"),
        ("recipe: dse\ngrid: [seed]\n", "each with a list of values"),
        ("recipe: dse\ngrid: {seed: []}\n", "the axis 'seed' has no values"),
        ("recipe: dse\ngrid: {seed: [1]}\nsuites: dse\n", "suites: expected a list of texts"),
        ("recipe: dse\ngrid: {seed: [1]}\nset: 5\n", "set: expected a list of texts"),
        ("recipe: dse\ngrid: {seed: [1]}\nset: {seed: 2}\n", "seed is an axis and set for all points too"),
        ("recipe: [dse\n", "is not valid YAML"),
    ],
)
def test_bad_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises((SweepError, GridError, VariantError), match=message):
        load_sweep(file)


def test_names_of_nothing_and_grids_of_nothing_are_refused() -> None:
    with pytest.raises(RecipeError, match="there is no recipe 'nothing'"):
        load_sweep("nothing", ["seed=1"]).plan()
    with pytest.raises(GridError, match="needs an axis"):
        load_sweep("dse").plan()
    with pytest.raises(GridError, match="two axes are called 'seed'"):
        load_sweep("wmdc-windows", ["seed=1", "seed=2"])


# ---- the command


app = typer.Typer()
app.command("sweep")(sweep_command)


def run_command(*arguments: object) -> Any:
    return CliRunner(env={"COLUMNS": "240", "NO_COLOR": "1"}).invoke(app, [str(each) for each in arguments])


def test_the_command(tiny_recipe: Path, world: Path, tmp_path: Path) -> None:
    common = (
        tiny_recipe,
        "--corpus",
        world,
        "--split",
        "train",
        "--data",
        world,
        "--out",
        tmp_path / "out",
        "--set",
        "steps=2",
    )
    grid = ("--grid", "seed=1,2", "--task", "nli", "--seeds", 1)
    answer = run_command(*common, *grid)
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    for name in ("untrained", "seed=1", "seed=2"):
        assert any(line.startswith(f"  {name} ") and " to " in line for line in lines), name
    assert f"{tmp_path / 'out' / 'report.html'} has" in answer.stderr
    told = run_command(*common, *grid, "--json")
    assert told.stdout == (tmp_path / "out" / "results.json").read_text(encoding="utf-8")
    assert [point["place"] for point in json.loads(told.stdout)["points"]] == [{}, {"seed": 1}, {"seed": 2}]


@pytest.mark.parametrize(
    ("options", "suites", "tasks"),
    [
        ((), ("dialoguecse",), ()),
        (("--task", "nli"), (), ("nli",)),
        (("--suite", "ums"), ("ums",), ()),
        (("--suite", "ums", "--task", "nli"), ("ums",), ("nli",)),
    ],
)
def test_suites_and_tasks_of_the_command_replace_the_sweeps_own(
    options: tuple[str, ...],
    suites: tuple[str, ...],
    tasks: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def asking(wanted: Sweep, *arguments: Any, **keywords: Any) -> list[Point]:
        asked.append((wanted.suites, tuple(keywords["tasks"]), keywords["effort"]))
        raise typer.Exit  # nothing is to be trained

    monkeypatch.setattr(sweep_module, "run_sweep", asking)
    file = tmp_path / "mine.yaml"
    file.write_text("recipe: dse\ngrid: {seed: [1]}\nsuites: [dialoguecse]\n", encoding="utf-8")
    common = (
        "--corpus",
        corpus().stores[0].folder,
        "--data",
        tmp_path,
        "--out",
        tmp_path / "out",
        "--seeds",
        2,
        "--steps",
        3,
    )
    assert run_command(file, *common, *options).exit_code == 0
    assert asked == [(suites, tasks, Effort(seeds=2, steps=3))]


def test_the_command_names_the_points_that_failed(tiny_recipe: Path, world: Path, tmp_path: Path) -> None:
    answer = run_command(
        *(
            tiny_recipe,
            "--corpus",
            corpus().stores[0].folder,
            "--data",
            world,
            "--out",
            tmp_path / "out",
            "--task",
            "nli",
        ),
        *("--grid", "corpus_share=1e-9,1", "--set", "steps=1", "--no-start"),
    )
    assert isinstance(answer.exception, SweepError)  # which the command line turns into exit code 1
    assert "1 of 2 points failed" in str(answer.exception)
    assert "corpus_share=1.0e-09: a share of 1e-09" in str(answer.exception)
    assert "failed" in answer.stdout


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), TrainingInterruptedError("interrupted")])
def test_the_command_says_how_to_go_on(
    stop: BaseException, tiny_recipe: Path, world: Path, tmp_path: Path, counted: Counted
) -> None:
    counted.at = lambda _: stop
    answer = run_command(
        *(
            tiny_recipe,
            "--corpus",
            corpus().stores[0].folder,
            "--data",
            world,
            "--out",
            tmp_path / "out",
            "--task",
            "nli",
        ),
        *("--grid", "seed=1"),
    )
    assert answer.exit_code == 130
    assert "Go on with the same command" in answer.stderr


def test_the_command_lists_the_packaged_sweeps() -> None:
    answer = run_command("--list")
    assert answer.exit_code == 0
    assert [name for name in packaged_sweeps() if name not in answer.stdout] == []
