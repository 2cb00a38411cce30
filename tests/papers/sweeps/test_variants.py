"""Variants of a sweep: validation, shared runs and first stages, and end-to-end equality."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from turnwise.core.errors import TrainingError
from turnwise.corpus.storage.corpus import Corpus
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.loading import ModelUnderTest, load_model, postprocess_model, wrap_model
from turnwise.papers.sweeps import run as sweep_module
from turnwise.papers.sweeps.plan import Axis, Sweep, Variant, load_sweep, run_name
from turnwise.papers.sweeps.points import EvaluationPlan, SweepPoint
from turnwise.papers.sweeps.run import run_sweep
from turnwise.training import loop
from turnwise.training.checkpoint import TRAINED
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe
from turnwise.training.recipe_loading import load_recipe

pytestmark = pytest.mark.usefixtures("no_curves", "few_bootstrap_samples")

#: Two steps of masked language modelling before two steps of DSE.
FIRST_STAGE: dict[str, Any] = {
    "objectives": {"masked-language": {}},
    "steps": 2,
    "batch_size": 8,
    "learning_rate": 1e-3,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recipes: one.yaml has one stage, two.yaml two, other.yaml another objective."""
    folder = tmp_path_factory.mktemp("recipes")
    tree = yaml.safe_load(recipe("dse", "steps=2").to_yaml())
    (folder / "one.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    (folder / "two.yaml").write_text(yaml.safe_dump({**tree, "first": FIRST_STAGE}), encoding="utf-8")
    (folder / "other.yaml").write_text(recipe("siamese", "steps=2").to_yaml(), encoding="utf-8")
    return folder


def sweep(
    files: Path, variants: dict[str, Any], base: str = "one", *, given: dict[str, Any] | None = None, **keys: Any
) -> Sweep:
    """Load a sweep from a file; recipes are named without their folder."""
    resolved = {
        name: {**options, "recipe": str(files / f"{options['recipe']}.yaml")}
        if options and "recipe" in options
        else options
        for name, options in variants.items()
    }
    path = files / "sweep.yaml"
    path.write_text(
        yaml.safe_dump({"recipe": str(files / f"{base}.yaml"), "variants": resolved, **keys}, sort_keys=False)
    )
    return load_sweep(path, **(given or {}))


# ---- definitions


def test_variant_is_the_last_axis(files: Path) -> None:
    definition = sweep(
        files,
        {"DSE": {}, "siamese, wide": {"recipe": "other", "set": {"context_turns": 2}}},
        grid={"learning_rate": [1e-3, 1e-2], "seed": [1, 2]},
        set={"steps": 3},
    )
    assert definition.axis_names == ["learning_rate", "seed", "variant"]
    points = [(rate, seed, name) for rate in (1e-3, 1e-2) for seed in (1, 2) for name in ("DSE", "siamese, wide")]
    plan = definition.plan()
    assert [tuple(each.parameters.values()) for each in plan] == points
    assert plan[3].name == "siamese, wide, learning_rate=0.001, seed=2"
    for each in plan:
        rate, seed, name = each.parameters.values()
        expected = load_recipe(files / ("one.yaml" if name == "DSE" else "other.yaml"))
        if name != "DSE":
            expected = replace(expected, objectives={"siamese": {**expected.objectives["siamese"], "context_turns": 2}})
        assert each.recipe == replace(expected, learning_rate=rate, seed=seed, steps=3)
    assert len({each.run_folder for each in plan}) == len(plan)


def test_variants_without_a_grid_are_the_points(files: Path) -> None:
    plan = sweep(files, {"b": {"set": ["seed=2"]}, "a": None}).plan()
    assert [(each.name, each.parameters, each.recipe.seed) for each in plan] == [
        ("b", {"variant": "b"}, 2),
        ("a", {"variant": "a"}, 1),
    ]


def test_settings_are_overridden_by_variants_and_those_by_arguments(files: Path) -> None:
    def steps_and_batch_sizes(*given: str) -> list[tuple[int | None, int]]:
        definition = sweep(
            files, {"a": {}, "b": {"set": {"steps": 7}}}, set={"steps": 5, "batch_size": 6}, given={"settings": given}
        )
        return [(each.recipe.steps, each.recipe.batch_size) for each in definition.plan()]

    assert steps_and_batch_sizes() == [(5, 6), (7, 6)]
    with pytest.raises(TrainingError, match="b and a are the same model"):
        steps_and_batch_sizes("steps=9")
    assert steps_and_batch_sizes("batch_size=4") == [(5, 4), (7, 4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": True}, "x: a variant has no key 'train'; it has recipe, set, trained"),
        ("dse", "x: expected keys and values"),
        ({"pooling": "cls-mlp"}, "x: pooling must be 'cls', 'mean', 'max' or 'first-last', got 'cls-mlp'"),
        ({"postprocess": "flows"}, "x: there is no post-processor 'flows': choose from flow, whitening"),
        ({"trained": "perhaps"}, "x: trained must be true or false, got .perhaps."),
        ({"stage": "second"}, "x: stage must be 'first', got 'second'"),
        ({"set": 5}, "x: set: expected keys and values, or a list of strings"),
        ({"word_vectors": True, "pooling": "cls"}, "x: word_vectors and pooling exclude each other"),
        ({"word_vectors": True, "trained": False}, "x: word_vectors and trained exclude each other"),
        ({"word_vectors": True, "set": {"seed": 2}}, "x: word_vectors and set exclude each other"),
        ({"trained": False, "stage": "first"}, "x: stage=first needs training"),
        ({"trained": False, "set": {"steps": 2}}, "x: steps has no effect without training"),
        ({"trained": False, "set": {"corpus_fraction": 0.5}}, "x: corpus_fraction has no effect"),
    ],
)
def test_invalid_variants_are_rejected(options: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump({"recipe": "dse", "variants": {"x": options}}), encoding="utf-8")
    with pytest.raises(TrainingError, match=message):
        load_sweep(file)


@pytest.mark.parametrize("variants", [[], {}, ["a"], {1: {}}, {"": {}}, None])
def test_variants_must_be_a_mapping_of_names(variants: Any, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump({"recipe": "dse", "variants": variants}), encoding="utf-8")
    with pytest.raises(TrainingError, match="variants: expected a mapping"):
        load_sweep(file)


@pytest.mark.parametrize(
    ("variants", "grid", "message"),
    [
        (
            {"a": {}, "b": {"trained": False}},
            {"seed": [1]},
            "b is not trained, but a grid .seed. needs trained variants",
        ),
        ({"a": {}, "b": {"word_vectors": True}}, {"seed": [1]}, "b is not trained, but a grid .seed. needs trained"),
        ({"a": {"set": {"seed": 2}}}, {"seed": [1]}, "a: seed is an axis and also set by the variant"),
        ({"a": {}, "b": {"recipe": "other"}}, {"query_turns": [[1]]}, r"b, query_turns=\[1\]: .*a key 'query_turns'"),
        ({"a": {}, "b": {"set": {"warmth": 2}}}, {}, "b: .*have a key 'warmth'"),
        ({"a": {"stage": "first"}}, {}, "a: the recipe .*one.yaml has no first stage"),
        ({"a": {}, "b": {"recipe": "one"}}, {}, "b and a are the same model in the same evaluation"),
        ({"a": {"pooling": "cls"}, "b": {"set": {"seed": 1}, "pooling": "cls"}}, {}, "b and a are the same model"),
        ({"a": {"trained": False}, "b": {"trained": False, "recipe": "other"}}, {}, "b and a are the same model"),
        ({"a": {"word_vectors": True}, "b": {"word_vectors": True}}, {}, "b and a are the same model"),
        (
            {"a": {"recipe": "two", "stage": "first"}},
            {"temperature": [0.1, 0.2]},
            "a, temperature=0.2 and a",
        ),
    ],
)
def test_ineffective_or_duplicate_variants_are_rejected(
    variants: dict[str, Any], grid: dict[str, Any], message: str, files: Path
) -> None:
    with pytest.raises(TrainingError, match=message):
        sweep(files, variants, grid=grid).plan()


def test_duplicate_variant_names_are_rejected() -> None:
    with pytest.raises(TrainingError, match="two variants are called 'a'"):
        Sweep("dse", (Axis("seed", (1,)),), variants=(Variant("a"), Variant("a", pooling="cls")))


def test_different_evaluations_of_one_model_are_different_points(files: Path) -> None:
    variants: dict[str, Any] = {"own": {}, "cls": {"pooling": "cls"}, "white": {"postprocess": "whitening"}}
    variants |= {f"bare {name}": {**options, "trained": False} for name, options in variants.items()}
    share = {"trained": False, "postprocess": "whitening", "set": {"corpus_fraction": 0.5}}
    assert len(sweep(files, {**variants, "share": share}).plan()) == 7


def test_variants_can_be_selected(files: Path) -> None:
    three: dict[str, Any] = {name: {"set": {"seed": seed}} for seed, name in enumerate("abc")}
    assert [each.name for each in sweep(files, three, given={"variants": ["c", "a"]}).plan()] == ["a", "c"]
    with pytest.raises(TrainingError, match="there is no variant 'd', 'e': choose from a, b, c"):
        sweep(files, three, given={"variants": ["d", "a", "e"]})
    with pytest.raises(TrainingError, match="there is no variant 'a': this sweep has none"):
        load_sweep("wmdc-corpus", variants=["a"])


def test_run_names_depend_on_the_whole_recipe(files: Path) -> None:
    two = load_recipe(files / "two.yaml")
    assert two.first is not None
    unrecorded = replace(two, first=replace(two.first, record_training_data=not two.first.record_training_data))
    assert run_name(unrecorded) == run_name(two)
    other = [
        replace(two, seed=2),
        replace(two, first=None),
        replace(two, first=replace(two.first, steps=3)),
        two.first,
        two,
    ]
    assert len({run_name(each) for each in other}) == len(other)
    assert run_name(two).startswith("dse~")


# ---- shared runs


@dataclass
class CallLog:
    """Records training and evaluation calls instead of executing them.

    Attributes:
        trained: folder names and recipes.
        first_stages: the first stages passed to the trainings.
        evaluated: names, fingerprints and folders.
        training_error: returns the error that a training raises.
    """

    trained: list[tuple[str, Recipe]] = field(default_factory=list)
    first_stages: list[Path | None] = field(default_factory=list)
    evaluated: list[tuple[str, str | None, Path]] = field(default_factory=list)
    training_error: Callable[[Recipe], BaseException | None] = lambda _: None


@pytest.fixture
def call_log(monkeypatch: pytest.MonkeyPatch) -> CallLog:
    log = CallLog()

    def fake_train(recipe: Recipe, corpus: Corpus, out: Path, first: Path | None = None, **_: Any) -> None:
        log.trained.append((out.name, recipe))
        log.first_stages.append(first)
        if (error := log.training_error(recipe)) is not None:
            raise error
        encoder = Encoder.load(recipe.backbone, device="cpu", pooling=recipe.pooling)
        encoder.save(out)
        (out / TRAINED).touch()

    def fake_evaluate(self: EvaluationPlan, model: ModelUnderTest, folder: Path, *_: Any) -> tuple[()]:
        log.evaluated.append((model.name, model.fingerprint, folder))
        return ()

    monkeypatch.setattr(sweep_module, "train", fake_train)
    monkeypatch.setattr(sweep_module, "release_memory", lambda: None)
    monkeypatch.setattr(EvaluationPlan, "evaluate", fake_evaluate)
    return log


def run(sweep: Sweep, out: Path, **options: Any) -> list[SweepPoint]:
    return run_sweep(sweep, corpus(), EvaluationPlan(out.parent, tasks=("nli",)), out, **options)


def test_variants_with_equal_recipes_share_a_run(files: Path, tmp_path: Path, call_log: CallLog) -> None:
    variants = {"own": {}, "cls": {"pooling": "cls"}, "other": {"recipe": "other"}, "max": {"pooling": "max"}}
    points = run(sweep(files, variants, grid={"seed": [1, 2]}), tmp_path / "out")
    assert len(call_log.trained) == 4  # two recipes, two seeds
    assert [point.name for point in points[:3]] == ["untrained", "own, seed=1", "cls, seed=1"]
    assert not any(point.failure for point in points)
    runs = {(point.parameters["variant"] == "other", point.parameters["seed"]): point.folder for point in points[1:]}
    assert [point.folder for point in points[1:]] == [
        runs[p.parameters["variant"] == "other", p.parameters["seed"]] for p in points[1:]
    ]
    folders = [folder for _, _, folder in call_log.evaluated]
    assert len(set(folders)) == 9
    assert {folder.parent.parent for folder in folders[1:]} == {tmp_path / "out" / "points"}
    # the unchanged backbone with the variant's pooling
    pooled = {way: encoder_fingerprint(Encoder.load(backbone(), pooling=way)) for way in (None, "cls", "max")}  # type: ignore[arg-type]
    for point, (name, fingerprint, _) in zip(points[1:], call_log.evaluated[1:], strict=True):
        assert point.name == name
        assert fingerprint == pooled[variants[point.parameters["variant"]].get("pooling")]
    written = yaml.safe_load((tmp_path / "out" / "sweep.yaml").read_text(encoding="utf-8"))
    assert [each["name"] for each in written["variants"]] == list(variants)
    call_log.trained.clear()
    again = run(sweep(files, {**variants, "new": {"pooling": "first-last"}}, grid={"seed": [2]}), tmp_path / "out")
    assert [point.name for point in again[1:]] == [f"{name}, seed=2" for name in (*variants, "new")]
    assert call_log.trained == []


def test_only_selected_variants_are_trained(files: Path, tmp_path: Path, call_log: CallLog) -> None:
    variants: dict[str, Any] = {"own": {}, "other": {"recipe": "other"}, "bare": {"trained": False, "pooling": "cls"}}
    points = run(sweep(files, variants, given={"variants": ["bare"]}), tmp_path / "out", start=False)
    assert [(point.name, point.folder, point.parameters) for point in points] == [("bare", None, {"variant": "bare"})]
    assert call_log.trained == []
    run(sweep(files, variants), tmp_path / "out")
    assert [set(each.objectives) for _, each in call_log.trained] == [{"dse"}, {"siamese"}]


def test_recipes_with_equal_first_stages_share_it(files: Path, tmp_path: Path, call_log: CallLog) -> None:
    two = load_recipe(files / "two.yaml")
    assert two.first is not None
    points = run(load_sweep(files / "two.yaml", ["temperature=0.05,0.1,0.2"]), tmp_path / "out")
    first = tmp_path / "out" / "runs" / run_name(two.first)
    assert call_log.trained[0] == (first.name, two.first)
    assert [(name, each.first, each.backbone) for name, each in call_log.trained[1:]] == [
        (f"temperature={value}", two.first, two.backbone) for value in (0.05, 0.1, 0.2)
    ]
    assert call_log.first_stages == [None, first, first, first]
    assert [point.folder for point in points[1:]] == [
        tmp_path / "out" / "runs" / f"temperature={v}" for v in (0.05, 0.1, 0.2)
    ]
    # the untrained model is the backbone of both stages
    assert call_log.evaluated[0][1] == encoder_fingerprint(Encoder.load(backbone()))


def test_first_stage_is_evaluated_without_training_the_second(files: Path, tmp_path: Path, call_log: CallLog) -> None:
    two = load_recipe(files / "two.yaml")
    variants = {"adapted": {"stage": "first"}, "adapted, [CLS]": {"stage": "first", "pooling": "cls"}, "both": {}}
    adapted = run(sweep(files, variants, "two", given={"variants": list(variants)[:2]}), tmp_path / "out")
    assert [each for _, each in call_log.trained] == [two.first]
    assert two.first is not None
    assert {point.folder for point in adapted[1:]} == {tmp_path / "out" / "runs" / run_name(two.first)}
    run(sweep(files, variants, "two"), tmp_path / "out")
    assert [set(each.objectives) for _, each in call_log.trained] == [{"masked-language"}, {"dse"}]
    # a recipe that equals the first stage reuses its run
    first = files / "first.yaml"
    first.write_text(two.first.to_yaml(), encoding="utf-8")
    run(sweep(files, {"alone": {"recipe": "first"}}, "two"), tmp_path / "out")
    assert len(call_log.trained) == 2


@pytest.mark.parametrize(
    "error", [TrainingError("the loss is nan"), torch.OutOfMemoryError("tried to allocate 20 GiB")]
)
def test_failed_training_is_tried_once_and_fails_all_points_that_need_it(
    error: Exception, files: Path, tmp_path: Path, call_log: CallLog
) -> None:
    variants: dict[str, Any] = {
        "adapted": {"stage": "first"},
        "both": {},
        "warm": {"set": {"temperature": 0.5}},
        "one": {"set": {"first": None}},
        "bare": {"trained": False, "pooling": "max"},
    }
    call_log.training_error = lambda recipe: error if "masked-language" in recipe.objectives else None
    points = run(sweep(files, variants, "two"), tmp_path / "out", start=False)
    assert [str(error) in point.failure for point in points] == [True, True, True, False, False]
    assert [point.name for point in points if not point.failure] == ["one", "bare"]
    assert len(call_log.trained) == 2  # the first stage once, and the recipe without one
    call_log.training_error = lambda _: None
    again = run(sweep(files, variants, "two"), tmp_path / "out", start=False)
    assert not any(point.failure for point in again)
    assert len(call_log.trained) == 2 + 3


def test_untrained_model_is_left_out_if_a_variant_is_the_same(files: Path, tmp_path: Path, call_log: CallLog) -> None:
    def names(bare: dict[str, Any], folder: str) -> list[str]:
        return [
            point.name
            for point in run(sweep(files, {"bare": {"trained": False, **bare}, "own": {}}), tmp_path / folder)
        ]

    assert names({}, "a") == ["bare", "own"]
    assert names({"pooling": "mean"}, "b") == ["bare", "own"]  # the backbone's own pooling
    assert names({"recipe": "other"}, "c") == ["bare", "own"]
    assert names({"pooling": "cls"}, "d") == ["untrained", "bare", "own"]
    assert names({"set": {"layers": 1}}, "e") == ["untrained", "bare", "own"]
    assert names({"postprocess": "whitening"}, "f") == ["untrained", "bare", "own"]


def test_word_vectors_are_trained_once_on_the_sampled_corpus(
    files: Path, tmp_path: Path, call_log: CallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[float, int]] = []

    def fake_training(corpus: Corpus, out: Path, *, seed: int, **_: Any) -> None:
        calls.append((corpus.fraction, seed))
        words = sorted({word for dialogue in corpus for turn in dialogue.turns for word in turn.text.lower().split()})
        out.write_text(
            "".join(f"{word} {number}.0 {len(word)}.0 1.5\n" for number, word in enumerate(words)), encoding="utf-8"
        )

    monkeypatch.setattr(sweep_module, "train_word_vectors", fake_training)
    variants: dict[str, Any] = {
        "GloVe": {"word_vectors": True},
        "GloVe, white": {"word_vectors": True, "postprocess": "whitening"},
    }
    for _ in range(2):
        points = run(sweep(files, variants, set={"corpus_fraction": 0.5, "seed": 4}), tmp_path / "out")
        assert [(point.name, point.failure) for point in points] == [
            ("untrained", ""),
            ("GloVe", ""),
            ("GloVe, white", ""),
        ]
    assert calls == [(0.5, 4)]
    assert len({fingerprint for _, fingerprint, _ in call_log.evaluated}) == 3


# ---- end to end


def evaluation(data: Path) -> EvaluationPlan:
    return EvaluationPlan(data, tasks=("nli",), effort=Effort(seeds=1))


#: Both stages, only the first, the whitened backbone, and word vectors.
METHODS: dict[str, Any] = {
    "backbone, whitened": {"trained": False, "postprocess": "whitening"},
    "adapted": {"stage": "first"},
    "adapted, [CLS]": {"stage": "first", "pooling": "cls"},
    "both": {},
    "words": {"word_vectors": True},
}


@pytest.fixture(scope="module")
def table(
    files: Path, sample_world: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[SweepPoint], Path]:
    """A sweep of trained and evaluated models."""
    out = tmp_path_factory.mktemp("table") / "out"
    world = sample_world(30)
    return (
        out,
        run_sweep(sweep(files, METHODS, "two"), corpus(), evaluation(world), out),
        world,
    )


@pytest.mark.full
def test_variants_equal_train_and_evaluate(
    table: tuple[Path, list[SweepPoint], Path], files: Path, tmp_path: Path
) -> None:
    out, points, world = table
    assert [point.name for point in points] == ["untrained", *METHODS]
    assert not any(point.failure for point in points)
    train(load_recipe(files / "two.yaml"), corpus(), tmp_path / "model")
    for point, folder in ((points[4], tmp_path / "model"), (points[2], tmp_path / "model" / loop.FIRST)):
        assert point.folder is not None
        ours, alone = load_file(point.folder / "model.safetensors"), load_file(folder / "model.safetensors")
        assert ours.keys() == alone.keys() and all(torch.equal(ours[name], alone[name]) for name in ours)
    texts = list(dict.fromkeys(turn.text for dialogue in corpus() for turn in dialogue.turns))
    first = tmp_path / "model" / loop.FIRST
    for point, model in (
        (points[1], postprocess_model(wrap_model(Encoder.load(backbone())), "whitening", texts)),
        (points[2], wrap_model(Encoder.load(first))),
        (points[3], wrap_model(Encoder.load(first, pooling="cls"))),
        (points[4], wrap_model(Encoder.load(tmp_path / "model"))),
        (points[5], load_model(f"glove:{out / 'word-vectors.txt'}")),
    ):
        results = evaluate(model, world, tasks=("nli",), effort=Effort(seeds=1))
        assert [row.value for row in results.rows] == [row.value for row in point.results[0].rows]
        assert point.results[0].facts["fingerprint"] == model.fingerprint
    content = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert content["axes"] == ["variant"]
    assert [point["folder"] for point in content["points"][:2]] == [None, None]
    assert "adapted, [CLS]: after its first stage, cls pooling" in content["remarks"]


@pytest.mark.full
def test_finished_variants_are_not_trained_again(
    table: tuple[Path, list[SweepPoint], Path], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, points, world = table
    before = (out / "results.json").read_text(encoding="utf-8")
    monkeypatch.setattr(sweep_module, "train", lambda *_, **__: pytest.fail("trained again"))
    again = run_sweep(sweep(files, METHODS, "two"), corpus(), evaluation(world), out)
    assert [point.name for point in again] == [point.name for point in points]
    assert (out / "results.json").read_text(encoding="utf-8") == before


def test_command_selects_variants(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def record_call(sweep: Sweep, *_: Any, **__: Any) -> list[SweepPoint]:
        calls.append([variant.name for variant in sweep.variants])
        raise typer.Exit  # without training

    monkeypatch.setattr(sweep_module, "run_sweep", record_call)
    sweep(files, {"a": {}, "b": {"pooling": "cls"}, "c": {"pooling": "max"}})
    app = typer.Typer()
    app.command("sweep")(sweep_command)
    common = f"{files / 'sweep.yaml'} --corpus {corpus().stores[0].folder} --data {tmp_path} --out {tmp_path / 'out'}"
    for options in ("", " --variant c --variant a"):
        assert CliRunner().invoke(app, (common + options).split()).exit_code == 0
    assert calls == [["a", "b", "c"], ["a", "c"]]
