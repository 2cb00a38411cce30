"""Variants: each is the recipe it says, trained once however many points need it, measured apart, and nothing is ignored."""

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
from turnwise.corpus.store import Corpus
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.models.encoder import Encoder
from turnwise.models.identity import encoder_fingerprint
from turnwise.models.loading import ModelUnderTest, load_model, postprocess_model, wrap_model
from turnwise.papers import baselines  # noqa: F401  registers models and post-processors
from turnwise.papers.sweeps import sweeping
from turnwise.papers.sweeps.grid import Axis
from turnwise.papers.sweeps.measures import Measures
from turnwise.papers.sweeps.points import Point
from turnwise.papers.sweeps.sweep import Sweep, SweepError, load_sweep, run_name
from turnwise.papers.sweeps.sweeping import run_sweep
from turnwise.papers.sweeps.variants import Variant, VariantError
from turnwise.training import TrainingError, loop
from turnwise.training.checkpoint import TRAINED
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe, load_recipe

#: Two steps of masked language modelling before two of DSE.
FIRST: dict[str, Any] = {"objectives": {"masked-language": {}}, "steps": 2, "batch_size": 8, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recipes: one.yaml of one stage, two.yaml of two, other.yaml of another objective."""
    place = tmp_path_factory.mktemp("recipes")
    tree = yaml.safe_load(recipe("dse", "steps=2").to_yaml())
    (place / "one.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    (place / "two.yaml").write_text(yaml.safe_dump({**tree, "first": FIRST}), encoding="utf-8")
    (place / "other.yaml").write_text(recipe("siamese", "steps=2").to_yaml(), encoding="utf-8")
    return place


def sweep(
    files: Path, variants: dict[str, Any], base: str = "one", *, given: dict[str, Any] | None = None, **keys: Any
) -> Sweep:
    """A sweep as its file would say it; recipes are named without their folder."""
    named = {
        name: {**options, "recipe": str(files / f"{options['recipe']}.yaml")}
        if options and "recipe" in options
        else options
        for name, options in variants.items()
    }
    place = files / "sweep.yaml"
    place.write_text(
        yaml.safe_dump({"recipe": str(files / f"{base}.yaml"), "variants": named, **keys}, sort_keys=False)
    )
    return load_sweep(place, **(given or {}))


# ---- what a file says


def test_the_variant_is_the_last_axis_and_every_point_is_its_own_recipe(files: Path) -> None:
    wanted = sweep(
        files,
        {"DSE": {}, "siamese, wide": {"recipe": "other", "set": {"context_turns": 2}}},
        grid={"learning_rate": [1e-3, 1e-2], "seed": [1, 2]},
        set={"steps": 3},
    )
    assert wanted.keys == ["learning_rate", "seed", "variant"]
    places = [(rate, seed, name) for rate in (1e-3, 1e-2) for seed in (1, 2) for name in ("DSE", "siamese, wide")]
    plan = wanted.plan()
    assert [tuple(each.place.values()) for each in plan] == places
    assert plan[3].name == "siamese, wide, learning_rate=0.001, seed=2"
    for each in plan:
        rate, seed, name = each.place.values()
        same = load_recipe(files / ("one.yaml" if name == "DSE" else "other.yaml"))
        if name != "DSE":
            same = replace(same, objectives={"siamese": {**same.objectives["siamese"], "context_turns": 2}})
        assert each.recipe == replace(same, learning_rate=rate, seed=seed, steps=3)
    assert len({each.run for each in plan}) == len(plan)


def test_without_a_grid_the_variants_alone_are_the_points(files: Path) -> None:
    plan = sweep(files, {"b": {"set": ["seed=2"]}, "a": None}).plan()
    assert [(each.name, each.place, each.recipe.seed) for each in plan] == [
        ("b", {"variant": "b"}, 2),
        ("a", {"variant": "a"}, 1),
    ]


def test_a_variant_comes_after_the_sweeps_settings_and_the_command_line_after_both(files: Path) -> None:
    def settled(*given: str) -> list[tuple[int | None, int]]:
        wanted = sweep(
            files, {"a": {}, "b": {"set": {"steps": 7}}}, set={"steps": 5, "batch_size": 6}, given={"settings": given}
        )
        return [(each.recipe.steps, each.recipe.batch_size) for each in wanted.plan()]

    assert settled() == [(5, 6), (7, 6)]
    with pytest.raises(SweepError, match="b and a are one model"):
        settled("steps=9")
    assert settled("batch_size=4") == [(5, 4), (7, 4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": True}, "x: a variant has no key 'train'; it has recipe, set, trained"),
        ("dse", "x: expected keys and values"),
        ({"pooling": "cls-mlp"}, "x: pooling='cls-mlp': expected 'cls' or 'mean' or 'max' or 'first-last'"),
        ({"postprocess": "flows"}, "x: postprocess='flows': expected 'flow' or 'whitening'"),
        ({"trained": "no"}, "x: trained='no': expected bool"),
        ({"stage": "second"}, "x: stage='second': expected 'first'"),
        ({"set": 5}, "x: set: expected a list of texts, or keys and values"),
        ({"word_vectors": True, "pooling": "cls"}, "x: word vectors have no pooling"),
        ({"word_vectors": True, "trained": False}, "x: word vectors have no trained"),
        ({"word_vectors": True, "set": {"seed": 2}}, "x: word vectors have no set"),
        ({"trained": False, "stage": "first"}, "x: stage=first belongs to a training"),
        ({"trained": False, "set": {"steps": 2}}, "x: steps changes nothing of a model that is not trained"),
        ({"trained": False, "set": {"corpus_share": 0.5}}, "x: corpus_share changes nothing"),
    ],
)
def test_bad_variants_are_refused(options: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump({"recipe": "dse", "variants": {"x": options}}), encoding="utf-8")
    with pytest.raises(VariantError, match=message):
        load_sweep(file)


@pytest.mark.parametrize("variants", [[], {}, ["a"], {1: {}}, {"": {}}, None])
def test_variants_are_names_with_what_they_are(variants: Any, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump({"recipe": "dse", "variants": variants}), encoding="utf-8")
    with pytest.raises(VariantError, match="variants: expected names"):
        load_sweep(file)


@pytest.mark.parametrize(
    ("variants", "grid", "message"),
    [
        (
            {"a": {}, "b": {"trained": False}},
            {"seed": [1]},
            "b is not trained, and a grid \\(seed\\) needs variants that are",
        ),
        (
            {"a": {}, "b": {"word_vectors": True}},
            {"seed": [1]},
            "b is not trained, and a grid \\(seed\\) needs variants that are",
        ),
        ({"a": {"set": {"seed": 2}}}, {"seed": [1]}, "a: seed is an axis and set by the variant too"),
        (
            {"a": {}, "b": {"recipe": "other"}},
            {"query_turns": [[1]]},
            r"b, query_turns=\[1\]: .*have a key 'query_turns'",
        ),
        ({"a": {}, "b": {"set": {"warmth": 2}}}, {}, "b: .*have a key 'warmth'"),
        ({"a": {"stage": "first"}}, {}, "a: the recipe .*one.yaml has no first stage"),
        ({"a": {}, "b": {"recipe": "one"}}, {}, "b and a are one model, judged in one way"),
        ({"a": {"pooling": "cls"}, "b": {"set": {"seed": 1}, "pooling": "cls"}}, {}, "b and a are one model"),
        ({"a": {"trained": False}, "b": {"trained": False, "recipe": "other"}}, {}, "b and a are one model"),
        ({"a": {"word_vectors": True}, "b": {"word_vectors": True}}, {}, "b and a are one model"),
        (
            {"a": {"recipe": "two", "stage": "first"}},
            {"temperature": [0.1, 0.2]},
            "a, temperature=0.2 and a, temperature=0.1 are",
        ),
    ],
)
def test_what_would_change_nothing_or_be_there_twice_is_refused(
    variants: dict[str, Any], grid: dict[str, Any], message: str, files: Path
) -> None:
    with pytest.raises(SweepError, match=message):
        sweep(files, variants, grid=grid).plan()


def test_two_variants_of_one_name_are_refused() -> None:
    with pytest.raises(SweepError, match="two variants are called 'a'"):
        Sweep("dse", (Axis("seed", (1,)),), variants=(Variant("a"), Variant("a", pooling="cls")))


def test_what_judges_one_model_in_two_ways_is_two_points(files: Path) -> None:
    ways: dict[str, Any] = {"own": {}, "cls": {"pooling": "cls"}, "white": {"postprocess": "whitening"}}
    ways |= {f"bare {name}": {**options, "trained": False} for name, options in ways.items()}
    share = {"trained": False, "postprocess": "whitening", "set": {"corpus_share": 0.5}}
    assert len(sweep(files, {**ways, "share": share}).plan()) == 7


def test_some_variants_alone(files: Path) -> None:
    three: dict[str, Any] = {name: {"set": {"seed": seed}} for seed, name in enumerate("abc")}
    assert [each.name for each in sweep(files, three, given={"variants": ["c", "a"]}).plan()] == ["a", "c"]
    with pytest.raises(VariantError, match="there is no variant 'd', 'e': choose from a, b, c"):
        sweep(files, three, given={"variants": ["d", "a", "e"]})
    with pytest.raises(VariantError, match="there is no variant 'a': this sweep has none"):
        load_sweep("wmdc-corpus", variants=["a"])


def test_runs_are_named_by_all_that_a_recipe_says(files: Path) -> None:
    two = load_recipe(files / "two.yaml")
    assert two.first is not None
    alike = [
        two,
        replace(two, describes="other words"),
        replace(two, first=replace(two.first, describes="other words")),
    ]
    assert len({run_name(each) for each in alike}) == 1
    other = [
        replace(two, seed=2),
        replace(two, first=None),
        replace(two, first=replace(two.first, steps=3)),
        two.first,
        two,
    ]
    assert len({run_name(each) for each in other}) == len(other)
    assert run_name(two).startswith("dse~")


# ---- what is trained, and where it is measured


@dataclass
class Followed:
    """What was trained and measured, without either being done.

    Attributes:
        trained: the folders and the recipes, in their order.
        begun: the first stages that they were given.
        measured: the names, fingerprints and folders.
        broken: what goes wrong with a training.
    """

    trained: list[tuple[str, Recipe]] = field(default_factory=list)
    begun: list[Path | None] = field(default_factory=list)
    measured: list[tuple[str, str | None, Path]] = field(default_factory=list)
    broken: Callable[[Recipe], BaseException | None] = lambda _: None


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Followed:
    seen = Followed()

    def training(wanted: Recipe, learnt: Corpus, out: Path, first: Path | None = None, **_: Any) -> None:
        seen.trained.append((out.name, wanted))
        seen.begun.append(first)
        if (error := seen.broken(wanted)) is not None:
            raise error
        encoder = Encoder.load(wanted.backbone, device="cpu", pooling=wanted.pooling)
        encoder.save(out)
        (out / TRAINED).touch()

    def measuring(self: Measures, model: ModelUnderTest, folder: Path, *_: Any) -> tuple[()]:
        seen.measured.append((model.name, model.fingerprint, folder))
        return ()

    monkeypatch.setattr(sweeping, "train", training)
    monkeypatch.setattr(sweeping, "release_memory", lambda: None)
    monkeypatch.setattr(Measures, "results", measuring)
    return seen


def run(wanted: Sweep, out: Path, **options: Any) -> list[Point]:
    return run_sweep(wanted, corpus(), out.parent, out, tasks=("nli",), **options)


def test_points_of_one_recipe_share_a_run_and_are_measured_apart(
    files: Path, tmp_path: Path, followed: Followed
) -> None:
    ways = {"own": {}, "cls": {"pooling": "cls"}, "other": {"recipe": "other"}, "max": {"pooling": "max"}}
    wanted = sweep(files, ways, grid={"seed": [1, 2]})
    points = run(wanted, tmp_path / "out")
    assert len(followed.trained) == 4  # two recipes, two seeds
    assert [point.name for point in points[:3]] == ["untrained", "own, seed=1", "cls, seed=1"]
    assert not any(point.failure for point in points)
    runs = {(point.place["variant"] == "other", point.place["seed"]): point.folder for point in points[1:]}
    assert [point.folder for point in points[1:]] == [
        runs[p.place["variant"] == "other", p.place["seed"]] for p in points[1:]
    ]
    folders = [folder for _, _, folder in followed.measured]
    assert len(set(folders)) == 9
    assert {folder.parent.parent for folder in folders[1:]} == {tmp_path / "out" / "points"}
    # the untouched backbone, pooled as asked
    pooled = {way: encoder_fingerprint(Encoder.load(backbone(), pooling=way)) for way in (None, "cls", "max")}  # type: ignore[arg-type]
    for point, (name, found, _) in zip(points[1:], followed.measured[1:], strict=True):
        assert point.name == name
        assert found == pooled[ways[point.place["variant"]].get("pooling")]
    written = yaml.safe_load((tmp_path / "out" / "sweep.yaml").read_text(encoding="utf-8"))
    assert [each["name"] for each in written["variants"]] == list(ways)
    followed.trained.clear()
    again = run(sweep(files, {**ways, "new": {"pooling": "first-last"}}, grid={"seed": [2]}), tmp_path / "out")
    assert [point.name for point in again[1:]] == [f"{name}, seed=2" for name in (*ways, "new")]
    assert followed.trained == []


def test_only_the_variants_that_are_asked_for_are_trained(files: Path, tmp_path: Path, followed: Followed) -> None:
    ways: dict[str, Any] = {"own": {}, "other": {"recipe": "other"}, "bare": {"trained": False, "pooling": "cls"}}
    points = run(sweep(files, ways, given={"variants": ["bare"]}), tmp_path / "out", start=False)
    assert [(point.name, point.folder, point.place) for point in points] == [("bare", None, {"variant": "bare"})]
    assert followed.trained == []
    run(sweep(files, ways), tmp_path / "out")
    assert [set(each.objectives) for _, each in followed.trained] == [{"dse"}, {"siamese"}]


def test_recipes_of_one_first_stage_share_it_and_say_so(files: Path, tmp_path: Path, followed: Followed) -> None:
    two = load_recipe(files / "two.yaml")
    assert two.first is not None
    points = run(load_sweep(files / "two.yaml", ["temperature=0.05,0.1,0.2"]), tmp_path / "out")
    first = tmp_path / "out" / "runs" / run_name(two.first)
    assert followed.trained[0] == (first.name, two.first)
    assert [(name, each.first, each.backbone) for name, each in followed.trained[1:]] == [
        (f"temperature={value}", two.first, two.backbone) for value in (0.05, 0.1, 0.2)
    ]
    assert followed.begun == [None, first, first, first]
    assert [point.folder for point in points[1:]] == [
        tmp_path / "out" / "runs" / f"temperature={v}" for v in (0.05, 0.1, 0.2)
    ]
    # what is measured first is the backbone of both stages
    assert followed.measured[0][1] == encoder_fingerprint(Encoder.load(backbone()))


def test_a_first_stage_is_judged_without_the_second(files: Path, tmp_path: Path, followed: Followed) -> None:
    two = load_recipe(files / "two.yaml")
    ways = {"adapted": {"stage": "first"}, "adapted, [CLS]": {"stage": "first", "pooling": "cls"}, "both": {}}
    adapted = run(sweep(files, ways, "two", given={"variants": list(ways)[:2]}), tmp_path / "out")
    assert [each for _, each in followed.trained] == [two.first]
    assert two.first is not None
    assert {point.folder for point in adapted[1:]} == {tmp_path / "out" / "runs" / run_name(two.first)}
    run(sweep(files, ways, "two"), tmp_path / "out")
    assert [set(each.objectives) for _, each in followed.trained] == [{"masked-language"}, {"dse"}]
    # by another recipe that is the same as the first stage, nothing is trained
    first = files / "first.yaml"
    first.write_text(two.first.to_yaml(), encoding="utf-8")
    run(sweep(files, {"alone": {"recipe": "first"}}, "two"), tmp_path / "out")
    assert len(followed.trained) == 2


@pytest.mark.parametrize(
    "error", [TrainingError("the loss is nan"), torch.OutOfMemoryError("tried to allocate 20 GiB")]
)
def test_what_cannot_be_trained_is_tried_once_and_fails_the_points_that_need_it(
    error: Exception, files: Path, tmp_path: Path, followed: Followed
) -> None:
    ways: dict[str, Any] = {
        "adapted": {"stage": "first"},
        "both": {},
        "warm": {"set": {"temperature": 0.5}},
        "one": {"set": {"first": None}},
        "bare": {"trained": False, "pooling": "max"},
    }
    followed.broken = lambda wanted: error if "masked-language" in wanted.objectives else None
    points = run(sweep(files, ways, "two"), tmp_path / "out", start=False)
    assert [str(error) in point.failure for point in points] == [True, True, True, False, False]
    assert [point.name for point in points if not point.failure] == ["one", "bare"]
    assert len(followed.trained) == 2  # the first stage once, and the recipe without one
    followed.broken = lambda _: None
    again = run(sweep(files, ways, "two"), tmp_path / "out", start=False)
    assert not any(point.failure for point in again)
    assert len(followed.trained) == 2 + 3


def test_the_start_is_left_out_where_a_variant_is_it(files: Path, tmp_path: Path, followed: Followed) -> None:
    def names(bare: dict[str, Any], place: str) -> list[str]:
        return [
            point.name for point in run(sweep(files, {"bare": {"trained": False, **bare}, "own": {}}), tmp_path / place)
        ]

    assert names({}, "a") == ["bare", "own"]
    assert names({"pooling": "mean"}, "b") == ["bare", "own"]  # which is the backbone's own
    assert names({"recipe": "other"}, "c") == ["bare", "own"]
    assert names({"pooling": "cls"}, "d") == ["untrained", "bare", "own"]
    assert names({"set": {"layers": 1}}, "e") == ["untrained", "bare", "own"]
    assert names({"postprocess": "whitening"}, "f") == ["untrained", "bare", "own"]


def test_word_vectors_are_trained_once_on_the_share_that_is_learnt_from(
    files: Path, tmp_path: Path, followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, int]] = []

    def counting(learnt: Corpus, out: Path, *, seed: int, **_: Any) -> None:
        asked.append((learnt.share, seed))
        words = sorted({word for dialogue in learnt for turn in dialogue.turns for word in turn.text.lower().split()})
        out.write_text(
            "".join(f"{word} {number}.0 {len(word)}.0 1.5\n" for number, word in enumerate(words)), encoding="utf-8"
        )

    monkeypatch.setattr(sweeping, "train_word_vectors", counting)
    ways: dict[str, Any] = {
        "GloVe": {"word_vectors": True},
        "GloVe, white": {"word_vectors": True, "postprocess": "whitening"},
    }
    for _ in range(2):
        points = run(sweep(files, ways, set={"corpus_share": 0.5, "seed": 4}), tmp_path / "out")
        assert [(point.name, point.failure) for point in points] == [
            ("untrained", ""),
            ("GloVe", ""),
            ("GloVe, white", ""),
        ]
    assert asked == [(0.5, 4)]
    assert len({found for _, found, _ in followed.measured}) == 3


# ---- end to end


#: Both stages, the first alone, the backbone, whitened, and word vectors.
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
) -> tuple[Path, list[Point], Path]:
    """Real models, measured."""
    out = tmp_path_factory.mktemp("table") / "out"
    world = sample_world(30)
    return (
        out,
        run_sweep(sweep(files, METHODS, "two"), corpus(), world, out, tasks=("nli",), effort=Effort(seeds=1)),
        world,
    )


def test_a_table_of_methods_is_what_train_and_evaluate_give(
    table: tuple[Path, list[Point], Path], files: Path, tmp_path: Path
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
    told = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert told["axes"] == ["variant"]
    assert [point["folder"] for point in told["points"][:2]] == [None, None]
    assert "adapted, [CLS]: after its first stage, pooled by cls" in told["remarks"]


def test_a_finished_table_run_again_trains_nothing(
    table: tuple[Path, list[Point], Path], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, points, world = table
    before = (out / "results.json").read_text(encoding="utf-8")
    monkeypatch.setattr(sweeping, "train", lambda *_, **__: pytest.fail("trained again"))
    again = run_sweep(sweep(files, METHODS, "two"), corpus(), world, out, tasks=("nli",), effort=Effort(seeds=1))
    assert [point.name for point in again] == [point.name for point in points]
    assert (out / "results.json").read_text(encoding="utf-8") == before


def test_the_command_takes_some_variants_alone(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def asking(wanted: Sweep, *_: Any, **__: Any) -> list[Point]:
        asked.append([variant.name for variant in wanted.variants])
        raise typer.Exit  # nothing is to be trained

    monkeypatch.setattr(sweeping, "run_sweep", asking)
    sweep(files, {"a": {}, "b": {"pooling": "cls"}, "c": {"pooling": "max"}})
    app = typer.Typer()
    app.command("sweep")(sweep_command)
    common = [
        files / "sweep.yaml",
        "--corpus",
        corpus().stores[0].folder,
        "--data",
        tmp_path,
        "--out",
        tmp_path / "out",
    ]
    for chosen in ([], ["--variant", "c", "--variant", "a"]):
        assert CliRunner().invoke(app, [str(each) for each in (*common, *chosen)]).exit_code == 0
    assert asked == [["a", "b", "c"], ["a", "c"]]
