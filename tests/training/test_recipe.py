"""Recipes: read, changed by dotted keys, checked; every packaged one runs."""

from pathlib import Path

import pytest
from tiny import backbone, corpus, folder

from turnwise.corpus.importing import import_corpus
from turnwise.corpus.store import read_corpus
from turnwise.errors import TurnwiseError
from turnwise.recipes import packaged
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe, RecipeError, from_tree, load_recipe


def test_overrides_reach_the_recipe_and_its_objectives() -> None:
    recipe = load_recipe("dse", ["batch_size=32", "learning_rate=3e-5", "temperature=0.1", "objectives.dse.weight=0.5", "steps=7"])
    assert (recipe.batch_size, recipe.learning_rate, recipe.steps) == (32, 3e-5, 7)
    assert recipe.objectives["dse"]["temperature"] == 0.1
    assert recipe.weight("dse") == 0.5


@pytest.mark.parametrize(
    ("own", "shared", "expected"),
    [(0.02, 0.03, 0.02), (None, 0.03, 0.03), (None, None, 0.01), (0.0, 0.03, 0.0), (None, 0.0, 0.0)],
)
def test_heads_learn_at_their_own_rate_or_the_recipes(own: float | None, shared: float | None, expected: float) -> None:
    """Nothing is what is not given; 0, at which heads do not learn, is a rate."""
    recipe = Recipe({"dse": {"head_learning_rate": own}}, head_learning_rate=shared, learning_rate=0.01)
    assert recipe.head_learning_rate_of("dse") == expected


def test_yaml_round_trip(tmp_path: Path) -> None:
    for name in packaged():
        recipe = load_recipe(name)
        path = tmp_path / f"{name}.yaml"
        path.write_text(recipe.to_yaml())
        assert load_recipe(path) == recipe


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["colour=red"], "neither the recipe nor its objectives"),
        (["batch_size=many"], "batch_size='many': expected int"),
        (["batch_size=1"], "too small"),
        (["schedule=random"], "expected 'constant'"),
        (["epochs"], "expected key=value"),
        (["objectives.dse.colour=red"], "has no option 'colour'"),
        (["objectives.magic.weight=1"], "there is no objective 'magic'"),
        (["warmup=2"], "shares"),
        (["keep=0"], "1 or more"),
    ],
)
def test_what_cannot_be_is_refused(changes: list[str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        load_recipe("dse", changes)


def test_unknown_recipes_and_broken_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="there is no recipe 'nonsense'"):
        load_recipe("nonsense")
    (tmp_path / "bad.yaml").write_text("a: [1")
    with pytest.raises(RecipeError, match="not valid YAML"):
        load_recipe(tmp_path / "bad.yaml")
    with pytest.raises(RecipeError, match="name at least one"):
        from_tree({"epochs": 1})
    with pytest.raises(RecipeError, match="no key 'epoch'"):
        from_tree({"epoch": 1})
    assert Recipe({"dse": {}}).make()


def test_paper_recipes_have_the_papers_numbers() -> None:
    paper = load_recipe("dse-paper")
    assert (paper.batch_size, paper.epochs, paper.learning_rate, paper.head_learning_rate) == (1024, 15, 3e-6, 3e-4)
    assert (paper.optimizer, paper.schedule, paper.max_length) == ("adam", "constant", 32)
    assert paper.objectives == {"dse": {"temperature": 0.05}}


def nli(form: str) -> Path:
    """A store of inference pairs or triplets."""
    place = folder() / f"nli-{form}"
    if not place.exists():
        file = folder() / "nli.tsv"
        rows = ["premise\thypothesis\tlabel"]
        for number in range(30):
            premise = f"where is parcel number {number} of mine ?"
            rows += [f"{premise}\tparcel {number} has not come yet\t0", f"{premise}\tI never ordered parcel {number}\t2"]
        file.write_text("\n".join(rows))
        import_corpus("nli", file, place, form=form)
    return place


@pytest.mark.parametrize("name", packaged())
def test_every_packaged_recipe_runs_two_steps(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(
        name, [f"backbone={backbone()}", "steps=2", "batch_size=4", "frozen_layers=1" if "siamese" in name else "frozen_layers=0"]
    )
    needs = dict.fromkeys(("simcse-supervised", "simcse-supervised-paper"), "triplets")
    needs |= dict.fromkeys(("pairsupcon", "pairsupcon-paper", "dse-dianli-paper"), "pairs")
    data = read_corpus(nli(needs[name])) if name in needs else corpus()
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
        *("objectives.dse.head_learning_rate=nan", "frozen_layers=-1", "layers=0", "corpus_share=0", "learning_rate=nan"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(change: str) -> None:
    with pytest.raises(RecipeError, match=change.partition("=")[0]):
        load_recipe("dse", [change])


@pytest.mark.parametrize("change", ["temperature=0", "temperature=-1"])
def test_a_temperature_is_above_nothing(change: str) -> None:
    with pytest.raises(TurnwiseError, match=r"temperature.*above 0"):
        load_recipe("wmdc", [change])


def test_what_would_change_nothing_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"every objective has its own; say objectives\.NAME\.head_learning_rate=1e-3"):
        load_recipe("combined", ["head_learning_rate=1e-3"])
    assert load_recipe("combined", ["objectives.dse.head_learning_rate=1e-3"]).head_learning_rate_of("dse") == 1e-3
    assert load_recipe("combined", ["batch_size=64"]).batch_of("wmdc") == 64


def test_a_recipe_made_in_python_is_the_one_that_is_read_back(tmp_path: Path) -> None:
    made = Recipe({"wmdc": {"windows": (1, 2), "weight": 1}})
    (tmp_path / "recipe.yaml").write_text(made.to_yaml())
    assert load_recipe(tmp_path / "recipe.yaml") == made
    with pytest.raises(RecipeError, match="weight"):
        Recipe({"wmdc": {"weight": "heavy"}})
