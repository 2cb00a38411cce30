"""Recipes: reading, overrides and checks; every packaged recipe runs."""

import dataclasses
import functools
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.tiny import backbone, corpus, folder
from turnwise.core.errors import RecipeError
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.training.loop import train
from turnwise.training.recipe import INHERITED, Recipe, from_tree, load_recipe
from turnwise.training.recipe_files import packaged_recipes


def test_overrides_reach_the_recipe_and_its_objectives() -> None:
    recipe = load_recipe(
        "dse", ["batch_size=32", "learning_rate=3e-5", "temperature=0.1", "objectives.dse.weight=0.5", "steps=7"]
    )
    assert (recipe.batch_size, recipe.learning_rate, recipe.steps) == (32, 3e-5, 7)
    assert recipe.objectives["dse"]["temperature"] == 0.1
    assert recipe.entries["dse"].options.weight == 0.5


@pytest.mark.parametrize(
    ("own", "shared", "expected"),
    [(0.02, 0.03, 0.02), (None, 0.03, 0.03), (None, None, 0.01), (0.0, 0.03, 0.0), (None, 0.0, 0.0)],
)
def test_head_learning_rate_defaults_to_the_recipes(own: float | None, shared: float | None, expected: float) -> None:
    """None means not set; 0 is a learning rate."""
    recipe = Recipe({"dse": {"head_learning_rate": own}}, head_learning_rate=shared, learning_rate=0.01)
    assert recipe.head_learning_rate_of("dse") == expected


def test_yaml_round_trip(tmp_path: Path) -> None:
    for name in packaged_recipes():
        recipe = load_recipe(name)
        path = tmp_path / f"{name}.yaml"
        path.write_text(recipe.to_yaml())
        assert load_recipe(path) == recipe


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["colour=red"], "neither the recipe nor its objectives"),
        (["batch_size=true"], "batch_size must be a number, got True"),
        (["epochs=false"], "epochs must be a number, got False"),
        (["pooling=first-last"], "pooling must be 'mean', 'cls', 'cls-mlp' or 'max', got 'first-last'"),
        (["batch_size=many"], r"batch_size must be a whole number, got 'many' \(--set batch_size=many\)"),
        (["batch_size=1"], "batch_size must be 2 or more, got 1"),
        (["steps=-3"], "steps must be 1 or more, got -3"),
        (["learning_rate=-1e-5"], "learning_rate must be positive, got -1e-05"),
        (["head_learning_rate=-1"], "head_learning_rate must be 0 or more, got -1"),
        (["weight_decay=-1"], "weight_decay must be 0 or more, got -1"),
        (["tokens_per_forward=0"], "tokens_per_forward must be 1 or more, got 0"),
        (["seed=-1"], "seed must be 0 or more, got -1"),
        (["clip=0"], "clip must be positive, got 0"),
        (["dropout=1"], "dropout must be below 1, got 1"),
        (["schedule=random"], "schedule must be 'constant', 'linear', 'cosine' or 'one-cycle', got 'random'"),
        (["epochs"], "expected key=value"),
        (["temprature=0.1"], r"Did you mean temperature\?"),
        (["lerning_rate=0.1"], r"Did you mean learning_rate\?"),
        (["objectives.dse.colour=red"], "objectives.dse.colour is unknown"),
        (["objectives.magic.weight=1"], "objectives.magic has no objective 'magic'"),
        (["warmup=2"], "warmup must be below 1, got 2"),
        (["start_fraction=1"], "start_fraction must be below 1, got 1"),
        (["min_turns=0"], "1 or more"),
        (["frozen_layers=most"], "frozen_layers must be a whole number or 'half', got 'most'"),
        (["combine_turns=yes please"], "combine_turns must be true or false"),
        (["first=masked-language"], "first must consist of the keys of a recipe, got 'masked-language'"),
        (["first.steps=1"], "the recipe has no first stage"),
    ],
)
def test_invalid_overrides_are_rejected(changes: list[str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        load_recipe("dse", changes)


def test_unknown_recipes_and_invalid_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="there is no recipe 'nonsense'"):
        load_recipe("nonsense")
    (tmp_path / "bad.yaml").write_text("a: [1")
    with pytest.raises(RecipeError, match="not valid YAML"):
        load_recipe(tmp_path / "bad.yaml")
    with pytest.raises(RecipeError, match="name at least one"):
        from_tree({"epochs": 1})
    with pytest.raises(RecipeError, match=r"epoch is unknown\. Did you mean epochs\? The keys are objectives"):
        from_tree({"objectives": {"dse": {}}, "epoch": 1})
    for tree in ({"objectives": {"dse": {}}, 1: 2}, {"objectives": {"dse": {1: 2}}}):
        with pytest.raises(RecipeError, match=r"^1 is unknown|has the key 1, which is not a text"):
            from_tree(tree)
    assert set(Recipe({"dse": {}}).entries) == {"dse"}


def test_errors_name_the_line_or_the_override(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    text = (
        "objectives:\n  dse:\n    temperature: 0.1\nlearning_rate: {}\n"
        "first:\n  objectives: {{simcse: {{}}}}\n  steps: {}\n"
    )
    for rate, steps, override, message in (
        (-1, 3, (), r"learning_rate must be positive, got -1 \(recipe.yaml:4\)"),
        (1, 0, (), r"first.steps must be 1 or more, got 0 \(recipe.yaml:7\)"),
        (1, 3, ("temperature=0",), r"objectives.dse.temperature must be positive, got 0 \(--set temperature=0\)"),
        (-1, 3, ("temperature=1",), r"\(recipe.yaml:4\)"),
    ):
        file.write_text(text.format(rate, steps))
        with pytest.raises(RecipeError, match=message):
            load_recipe(file, override)


def test_paper_recipes_have_the_papers_values() -> None:
    paper = load_recipe("dse-paper")
    assert (paper.batch_size, paper.epochs, paper.learning_rate, paper.head_learning_rate) == (1024, 15, 3e-6, 3e-4)
    assert (paper.optimizer, paper.schedule, paper.max_length) == ("adam", "constant", 32)
    assert paper.objectives == {"dse": {"temperature": 0.05}}


def nli(form: str) -> Path:
    """Return a store of NLI pairs or triplets."""
    place = folder() / f"nli-{form}"
    if not place.exists():
        file = folder() / "nli.tsv"
        rows = ["premise\thypothesis\tlabel"]
        for number in range(30):
            premise = f"where is parcel number {number} of mine ?"
            rows += [
                f"{premise}\tparcel {number} has not come yet\t0",
                f"{premise}\tI never ordered parcel {number}\t2",
            ]
        file.write_text("\n".join(rows))
        import_corpus("nli", file, place, form=form)
    return place


@functools.cache
def store_named(name: str) -> Path:
    """Return a store of that name with the tiny corpus."""
    with StoreWriter(folder() / "named" / name) as writer:
        for dialogue in corpus():
            writer.write(dialogue)
        writer.commit({"reader": name})
    return folder() / "named" / name


#: Packaged recipes that differ in more than numbers; the others are trained with these objectives elsewhere.
DIFFERENT = (
    *("adapt", "combined", "dialoguecse", "dialoguecse-ecd-paper", "dse-123-1-paper", "dse-dianli-paper"),
    *("dse-dropout-paper", "pairsupcon", "post-training", "post-training-electra", "siamese-m-paper", "simcse"),
    *("simcse-supervised-paper", "tod-bert", "turnwise-reranker", "turnwise-small", "ums-post-trained-paper"),
)


@pytest.mark.parametrize("name", DIFFERENT)
def test_packaged_recipes_run_two_steps(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(
        name,
        [
            *(f"backbone={backbone()}", "steps=2", "batch_size=4"),
            *(("frozen_layers=1",) if "siamese" in name else ()),
            *(("objectives.labelled.batch_size=24",) if name == "turnwise-small" else ()),
            *(("first.steps=1", "first.batch_size=4") if load_recipe(name).first else ()),
        ],
    )
    needs = dict.fromkeys(("simcse-supervised", "simcse-supervised-paper"), "triplets")
    needs |= dict.fromkeys(("pairsupcon", "pairsupcon-paper", "dse-dianli-paper"), "pairs")
    data = read_corpus(nli(needs[name])) if name in needs else corpus()
    stores = {store for options in recipe.objectives.values() for store in options.get("stores", ())}
    if stores:
        others = {"logs"} if any("exclude_stores" in options for options in recipe.objectives.values()) else set()
        data = read_corpus(*[store_named(store) for store in sorted(stores | others)])
    train(recipe, data, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert len((tmp_path / "model" / "metrics.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    "change",
    [
        *(
            "objectives.dse.weight=heavy",
            "objectives.dse.weight=-1",
            "objectives.dse.batch_size=1",
            "objectives.dse.batch_size=2.5",
        ),
        *(
            "objectives.dse.head_learning_rate=nan",
            "frozen_layers=-1",
            "layers=0",
            "corpus_fraction=0",
            "learning_rate=nan",
        ),
        *("epochs=0", "epochs=-0.5", "epochs=.nan", "epochs=.inf", "epochs=few"),
    ],
)
def test_invalid_values_are_rejected_by_name(change: str) -> None:
    with pytest.raises(RecipeError, match=change.partition("=")[0]):
        load_recipe("dse", [change])


def test_overrides_without_effect_are_rejected(tmp_path: Path) -> None:
    both = tmp_path / "both.yaml"
    both.write_text("objectives: {dse: {head_learning_rate: 1.0e-4}, wmdc: {head_learning_rate: 1.0e-5}}")
    with pytest.raises(
        RecipeError, match=r"every objective sets its own; use objectives\.NAME\.head_learning_rate=1e-3"
    ):
        load_recipe(both, ["head_learning_rate=1e-3"])
    assert load_recipe("combined", ["objectives.dse.head_learning_rate=1e-3"]).head_learning_rate_of("dse") == 1e-3
    assert load_recipe("combined", ["batch_size=64"]).batch_of("wmdc") == 64


def test_a_recipe_made_in_python_survives_a_round_trip(tmp_path: Path) -> None:
    recipe = Recipe({"wmdc": {"windows": (1, 2), "weight": 1}})
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    assert load_recipe(tmp_path / "recipe.yaml") == recipe
    with pytest.raises(RecipeError, match="weight"):
        Recipe({"wmdc": {"weight": "heavy"}})


# ---- parts of an epoch


def test_epochs_may_be_fractions(tmp_path: Path) -> None:
    assert [load_recipe("dse", [f"epochs={epochs}"]).epochs for epochs in ("2", "2.0", "0.5")] == [2, 2, 0.5]
    assert "\nepochs: 3\n" in load_recipe("dse", ["epochs=3"]).to_yaml()


@given(st.integers(1, 400), st.integers(1, 10_000))
def test_steps_are_epochs_rounded_up(hundredths: int, steps: int) -> None:
    """Exact in integers."""
    actual = Recipe({"dse": {}}, epochs=hundredths / 100).steps_of(steps)
    assert actual >= 1
    assert (actual - 1) * 100 < hundredths * steps <= actual * 100
    assert Recipe({"dse": {}}, epochs=hundredths / 100, steps=7).steps_of(steps) == 7


# ---- a stage before

STAGES = {
    "objectives": {"dse": {"temperature": 0.1}},
    "steps": 20,
    "max_length": 32,
    "learning_rate": 1e-4,
    "first": {"objectives": {"masked-language": {"mask_fraction": 0.2}}, "epochs": 0.5, "seed": 7},
}


def staged(tmp_path: Path, *changes: str, **given: object) -> Recipe:
    (tmp_path / "stages.yaml").write_text(yaml.safe_dump({**STAGES, **given}))
    return load_recipe(tmp_path / "stages.yaml", changes)


#: Values other than the defaults.
OTHERS = {
    "backbone": "another",
    "pooling": "cls",
    "corpus_fraction": 0.5,
    "combine_turns": True,
    "min_turns": 3,
    "max_length": 99,
    "dropout": 0.2,
    "attention_dropout": 0.3,
    "layers": 3,
    "precision": "fp32",
    "compile": False,
    "cuda_graphs": False,
    "tokens_per_forward": 5,
    "seed": 9,
    "record_training_data": False,
    "shuffle_buffer": 640,
    "checkpoint_every": 8,
    "log_every": 3,
    "workers": 5,
}


def test_a_first_stage_inherits_the_run_and_not_the_method(tmp_path: Path) -> None:
    assert set(OTHERS) == set(INHERITED)
    method = {"batch_size": 99, "optimizer": "adam", "frozen_layers": 2, "clip": 2.0, "probe_every": 3}
    recipe = from_tree({**STAGES, **OTHERS, **method})
    first = recipe.first
    assert first is not None
    assert {key: getattr(first, key) for key in INHERITED} == {**OTHERS, "seed": 7}
    plain = from_tree(STAGES["first"])
    for each in dataclasses.fields(Recipe):
        if each.name not in INHERITED:
            assert getattr(first, each.name) == getattr(plain, each.name), each.name
    assert recipe.stages == (first, recipe)


def test_a_recipe_of_stages_survives_a_round_trip(tmp_path: Path) -> None:
    recipe = staged(tmp_path, "first.first={objectives: {simcse: {}}, steps: 3}")
    assert recipe.first is not None
    assert recipe.first.first is not None
    assert (recipe.first.first.seed, recipe.first.first.max_length, recipe.first.first.steps) == (7, 32, 3)
    assert recipe.stages == (recipe.first.first, recipe.first, recipe)
    (tmp_path / "again.yaml").write_text(recipe.to_yaml())
    assert load_recipe(tmp_path / "again.yaml") == recipe
    assert from_tree(dataclasses.asdict(recipe)) == recipe
    recipe = Recipe({"dse": {}}, first=Recipe({"masked-language": {}}, seed=4))
    (tmp_path / "made.yaml").write_text(recipe.to_yaml())
    assert load_recipe(tmp_path / "made.yaml") == recipe


@pytest.mark.parametrize("written_out", [False, True])
def test_overrides_reach_their_stages(written_out: bool, tmp_path: Path) -> None:
    """Also in a file with every key, as runs write it: equal values of the stages stay equal."""

    def changed(*changes: str) -> tuple[Recipe, Recipe]:
        (tmp_path / "whole.yaml").write_text(staged(tmp_path).to_yaml())
        recipe = load_recipe(tmp_path / "whole.yaml", changes) if written_out else staged(tmp_path, *changes)
        assert recipe.first is not None
        return recipe, recipe.first

    recipe, first = changed(
        "max_length=100", "seed=3", "backbone=other", "steps=10", "temperature=0.2", "learning_rate=3e-6"
    )
    assert (recipe.max_length, recipe.backbone, recipe.seed, recipe.steps, recipe.learning_rate) == (
        100,
        "other",
        3,
        10,
        3e-6,
    )
    assert recipe.objectives == {"dse": {"temperature": 0.2}}
    # its own seed stays, and so does what belongs to the method
    assert (first.max_length, first.backbone, first.seed) == (100, "other", 7)
    assert (first.steps, first.epochs, first.learning_rate, first.objectives) == (
        None,
        0.5,
        3e-5,
        {"masked-language": {"mask_fraction": 0.2}},
    )
    recipe, first = changed(
        "first.learning_rate=1e-5", "first.steps=10", "first.mask_fraction=0.3", "first.max_length=64", "max_length=16"
    )
    assert (first.learning_rate, first.steps, first.max_length) == (1e-5, 10, 64)
    assert first.objectives == {"masked-language": {"mask_fraction": 0.3}}
    assert (recipe.learning_rate, recipe.steps, recipe.max_length) == (1e-4, 20, 16)
    _, first = changed("first.objectives.masked-language.weight=0.5")
    assert first.entries["masked-language"].options.weight == 0.5


def test_a_first_stage_can_be_removed_or_added(tmp_path: Path) -> None:
    alone = staged(tmp_path, "first=null")
    assert alone.first is None
    assert alone == dataclasses.replace(staged(tmp_path), first=None)
    added = staged(tmp_path, "first=null", "seed=5", "first={objectives: {masked-language: {}}}", "first.steps=3")
    assert added.first == Recipe({"masked-language": {}}, seed=5, steps=3, max_length=32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["first.colour=red"], "'first.colour=red': neither the recipe nor its objectives have a key 'colour'"),
        (["first.steps=many"], "first.steps must be a whole number, got 'many'"),
        (["first.batch_size=1"], "first.batch_size must be 2 or more, got 1"),
        (
            ["first.objectives.masked-language.weight=heavy"],
            "first.objectives.masked-language.weight must be a number, got 'heavy'",
        ),
        (["first.objectives.masked-language.colour=red"], "first.objectives.masked-language.colour is unknown"),
        (["first.backbone=other"], "first.backbone is other: all stages use one backbone; set backbone=other"),
        (["layers=4", "first.layers=2"], r"first.layers must be at least layers \(4\), got 2"),
        (["first.keep_best=score"], "first.keep_best is score: only the last stage is probed"),
        (["first.probe_every=1"], "first.probe_every is 1"),
        (["first=null", "first.steps=1"], "'first.steps=1': the recipe has no first stage"),
        (["first.first.steps=1"], "'first.first.steps=1': the recipe has no first stage"),
        (["first.first={steps: 1}"], "first.first.objectives is empty: name at least one"),
        (["first.first={objectives: {dse: {}}, colour: red}"], "first.first.colour is unknown"),
        (
            ["first.objectives.masked-language.batch_size=4", "first.batch_size=8"],
            "use first.objectives.NAME.batch_size=8",
        ),
    ],
)
def test_invalid_first_stages_are_rejected_by_dotted_name(changes: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=message):
        staged(tmp_path, *changes)
    with pytest.raises(RecipeError, match=r"first\.epoch is unknown"):
        from_tree({**STAGES, "first": {**STAGES["first"], "epoch": 1}})  # type: ignore[dict-item]


def test_an_objective_can_be_removed() -> None:
    run_recipe = load_recipe("combined", ["objectives.tadse=false", "temperature=0.2"])
    assert set(run_recipe.objectives) == {"dse", "wmdc", "dialoguecse"}
    assert all(options["temperature"] == 0.2 for options in run_recipe.objectives.values())
    with pytest.raises(RecipeError, match="name at least one"):
        load_recipe("dse", ["objectives.dse=false"])
    with pytest.raises(RecipeError, match="objectives must consist of keys and values"):
        load_recipe("combined", ["objectives.tadse=true"])
