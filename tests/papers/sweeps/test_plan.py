"""Sweep definitions: axes, folder names, files, variants, and the points that follow from them."""

import math
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.papers.sweeps.conftest import LoadVariants
from turnwise.core.errors import RecipeError, TrainingError, TurnwiseError
from turnwise.core.registry import known_names
from turnwise.papers.sweeps.plan import (
    Sweep,
    folder_name,
    format_value,
    load_sweep,
    packaged_sweeps,
    parse_axis,
    recipe_settings,
    run_name,
)
from turnwise.training.recipe import Recipe, load_recipe, parse_scalar
from turnwise.training.recipe_files import packaged_recipes

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(string.ascii_letters + string.digits + " ,[]{}'\"=:#&*!|>%@é—", max_size=12)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3)
KEYS = st.text(string.ascii_lowercase + "_.-", min_size=1, max_size=12)


def is_number(value: Any) -> bool:
    """Return whether recipes parse a string as a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return isinstance(value, str)


def same(first: Any, second: Any) -> bool:
    """Compare by representation: 1, 1.0 and true are three values."""
    return repr(first) == repr(second)


@given(st.lists(VALUES.filter(lambda value: not is_number(value)), min_size=1, max_size=4, unique_by=repr))
def test_axis_values_round_trip_through_yaml(values: list[Any]) -> None:
    """The text between the brackets of a YAML list is parsed as its items, so brackets and quotes protect commas."""
    text = yaml.safe_dump(values, default_flow_style=True, width=math.inf, allow_unicode=True).strip()[1:-1]
    axis = parse_axis(f"key={text}")
    assert same(axis, ("key", values))
    assert same(list(Sweep("dse", dict([axis])).grid.values()), [values])
    # values reach the recipe unchanged
    assert all(same(parse_scalar(format_value(value)), value) for value in values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("learning_rate=1e-5,3e-5", [1e-5, 3e-5]),
        ("windows=[1],[1,2],[1,2,3]", [[1], [1, 2], [1, 2, 3]]),
        ("reweight=true,false", [True, False]),
        ("backbone=minilm,/models/a=b,'one, two',\"three\"", ["minilm", "/models/a=b", "one, two", "three"]),
        ("clip=null,1", [None, 1]),
        ("objectives={dse: {}},{simcse: {temperature: 0.1}}", [{"dse": {}}, {"simcse": {"temperature": 0.1}}]),
    ],
)
def test_common_axes_are_parsed(text: str, values: list[Any]) -> None:
    assert load_sweep("dse", [text]).grid == {text.partition("=")[0]: values}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windows", r"'windows': expected key=value,value"),
        (" =1", r"expected key=value,value"),
        ("windows=", r"expected key=value,value"),
        ("windows=[1", r"'windows=\[1': the values cannot be parsed"),
        ("windows=a,,b", r"the values cannot be parsed"),
        ("steps=5,6,5", r"has 5 twice on an axis"),
        ("rate=1e-5,0.00001", r"has 1.0e-05 twice on an axis"),
    ],
)
def test_invalid_axes_are_rejected(text: str, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        load_sweep("dse", [text])


PARAMETERS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


@given(PARAMETERS, PARAMETERS)
def test_folder_names_are_safe_and_unique_whatever_the_order_of_axes(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    names = folder_name(first), folder_name(second)
    alike = first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    assert (names[0] == names[1]) == alike
    for name in names:
        assert set(name) <= set(string.ascii_lowercase + string.digits + ".,=_-~")
        assert len(name) <= 100
    assert names[0] == folder_name(dict(reversed(first.items())))


def test_folder_names_are_readable() -> None:
    assert folder_name({"learning_rate": 3e-5, "reweight": True}) == "learning_rate=3.0e-05,reweight=true"
    assert folder_name({"windows": [1, 2]}).startswith("windows=1-2~")
    names = ("BERT", "bert", "b/ert", "b-ert", "é" * 300, "é" * 301)
    assert len({folder_name({"backbone": name}) for name in names}) == 6


def test_parameters_reach_the_recipe() -> None:
    parameters = {"query_turns": [1, 2], "learning_rate": 1e-5, "schedule": "cosine", "clip": None, "mask_equal": False}
    recipe = load_recipe("dse", recipe_settings(parameters))
    assert (recipe.learning_rate, recipe.schedule, recipe.clip) == (1e-5, "cosine", None)
    assert recipe.objectives["dse"]["query_turns"] == [1, 2]
    assert recipe.objectives["dse"]["mask_equal"] is False


def test_run_names_depend_on_the_whole_recipe(recipes: Path) -> None:
    two = load_recipe(recipes / "two.yaml")
    assert two.first is not None
    unrecorded = replace(two, first=replace(two.first, record_training_data=not two.first.record_training_data))
    assert run_name(unrecorded) == run_name(two)
    fewer = replace(two, first=replace(two.first, steps=3))
    other = [replace(two, seed=2), replace(two, first=None), fewer, two.first, two]
    assert len({run_name(each) for each in other}) == len(other)
    assert run_name(two).startswith("dse~")


def recipe_keys(recipe: Recipe | None) -> dict[str, Any]:
    return {} if recipe is None else yaml.safe_load(recipe.to_yaml())


def differences(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a recipe that differ from another one's; null: it does not have the key."""
    changed = {key: new.get(key) for key in new | old if new.get(key) != old.get(key)}
    return {
        key: differences(value, old[key]) if isinstance(value, dict) and isinstance(old.get(key), dict) else value
        for key, value in changed.items()
    }


@pytest.mark.parametrize("name", packaged_sweeps())
def test_packaged_sweeps_have_the_papers_points(name: str) -> None:
    """`packaged_sweeps.yaml` lists every point: how its recipe differs from the packaged one, and its variant."""
    expected = yaml.safe_load((Path(__file__).parent / "packaged_sweeps.yaml").read_text("utf-8"))[name]
    sweep = load_sweep(name)
    points = {}
    for run in sweep.plan():
        variant = run.variant
        own = load_recipe(variant.recipe or sweep.recipe)
        compared = own.first if variant.stage else own
        keys = ("recipe", "stage", "pooling", "postprocess", "word_vectors")
        options: dict[str, Any] = {key: value for key in keys if (value := getattr(variant, key))}
        if not variant.trained:
            options["trained"] = False
        points[run.name] = options | differences(recipe_keys(run.recipe), recipe_keys(compared))
    assert {"recipe": sweep.recipe, "suites": list(sweep.suites), "points": points} == expected
    assert sweep.description
    assert set(sweep.suites) <= set(known_names("suite"))
    assert name not in packaged_recipes()


def test_baselines_with_the_papers_numbers_share_one_first_stage() -> None:
    recipes = {run.name: run.recipe for run in load_sweep("dialoguecse-baselines").plan()}
    first = [recipe.first for name, recipe in recipes.items() if name.endswith("the paper's numbers")]
    assert first == [recipes["adapted-avg"]] * 4


def test_arguments_replace_and_extend_a_sweep_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "describes: mine\nrecipe: dse\ngrid:\n  learning_rate: [1e-5, 3.0e-5]\n  seed: [1, 2]\n"
        "set: [steps=5, batch_size=8]\nsuites: [dse, diaeval]\n",
        encoding="utf-8",
    )
    plain = load_sweep(file)
    assert plain.grid == {"learning_rate": [1e-5, 3e-5], "seed": [1, 2]}
    assert (plain.settings, plain.suites) == (("steps=5", "batch_size=8"), ("dse", "diaeval"))
    changed = load_sweep(file, ["seed=7", "start_fraction=0,0.2"], ["steps=9"], ["ums"])
    assert changed.grid == {"learning_rate": [1e-5, 3e-5], "seed": [7], "start_fraction": [0, 0.2]}
    assert changed.suites == ("ums",)
    assert {(each.recipe.steps, each.recipe.batch_size, each.recipe.seed) for each in changed.plan()} == {(9, 8, 7)}
    assert load_sweep(file, suites=[]).suites == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recipe: dse\ngrid: {seed: [1]}\nsuite: dse\n", "suite is unknown. Did you mean suites?"),
        ("grid: {seed: [1]}\n", "recipe is missing"),
        ("recipe: dse\ngrid: {seed: [1]}\noverrides: []\n", "overrides is unknown"),
        ("recipe: dse\nvariants: {x: {1: 2}}\n", "x: 1 is unknown"),
        ("recipe: dse\ngrid: {seed: 1}\n", "grid .* valid list, got 1"),
        ("recipe: dse\ngrid: [seed]\n", "grid must consist of keys and values"),
        ("recipe: dse\ngrid: {seed: []}\n", "grid List should have at least 1 item"),
        ("recipe: dse\ngrid: {seed: [1]}\nsuites: dse\n", "suites must be a list, got 'dse'"),
        ("recipe: dse\ngrid: {seed: [1]}\nset: 5\n", "set must be a list, got 5"),
        ("recipe: dse\ngrid: {seed: [1]}\nset: {seed: 2}\n", "seed=1: seed is an axis and also set"),
        ("recipe: [dse\n", "is not valid YAML"),
        *(
            (f"recipe: dse\nvariants: {tree}\n", "variants: expected a mapping")
            for tree in ("[]", "{}", "[a]", "{1: {}}", "{'': {}}", "null")
        ),
        *(
            (f"recipe: dse\nvariants: {{x: {options}}}\n", message)
            for options, message in (
                ("{train: true}", "x: train is unknown. Did you mean trained?"),
                ("dse", "x: expected keys and values"),
                ("{pooling: cls-mlp}", "x: pooling must be 'cls', 'mean', 'max' or 'first-last', got 'cls-mlp'"),
                ("{postprocess: flows}", "x: there is no post-processor 'flows': choose from flow, whitening"),
                ("{trained: perhaps}", "x: trained must be true or false, got .perhaps."),
                ("{stage: second}", "x: stage must be 'first', got 'second'"),
                ("{set: 5}", "x: set must be a list, got 5"),
                ("{word_vectors: true, pooling: cls}", "x: word_vectors excludes pooling"),
                ("{word_vectors: true, trained: false}", "x: word_vectors excludes trained: false"),
                ("{trained: false, stage: first}", "x: stage has no effect without training"),
                ("{trained: false, set: {steps: 2}}", "x: steps has no effect without training"),
                ("{trained: false, set: {corpus_fraction: 0.5}}", "x: corpus_fraction has no effect"),
                ("{stage: first}", "x: its recipe has no first stage"),
                ("{set: {warmth: 2}}", "x: .*have a key 'warmth'"),
            )
        ),
    ],
)
def test_invalid_files_are_rejected(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(TurnwiseError, match=message):
        load_sweep(tmp_path / "bad.yaml").plan()


def test_unknown_recipes_and_empty_grids_are_rejected() -> None:
    with pytest.raises(RecipeError, match="there is no recipe 'nothing'"):
        load_sweep("nothing", ["seed=1"]).plan()
    with pytest.raises(TrainingError, match="needs an axis"):
        load_sweep("dse").plan()
    with pytest.raises(TrainingError, match="two axes have the same key"):
        load_sweep("wmdc-windows", ["seed=1", "seed=2"])


def test_variant_is_the_last_axis(load_variants: LoadVariants, recipes: Path) -> None:
    definition = load_variants(
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
        expected = load_recipe(recipes / ("one.yaml" if name == "DSE" else "other.yaml"))
        if name != "DSE":
            expected = replace(expected, objectives={"siamese": {**expected.objectives["siamese"], "context_turns": 2}})
        assert each.recipe == replace(expected, learning_rate=rate, seed=seed, steps=3)


def test_variants_without_a_grid_are_the_points(load_variants: LoadVariants) -> None:
    plan = load_variants({"b": {"set": ["seed=2"]}, "a": None}).plan()
    assert [(each.name, each.parameters, each.recipe.seed) for each in plan] == [
        ("b", {"variant": "b"}, 2),
        ("a", {"variant": "a"}, 1),
    ]


def test_settings_are_overridden_by_variants_and_those_by_arguments(load_variants: LoadVariants) -> None:
    def steps_and_batch_sizes(*given: str) -> list[tuple[int | None, int]]:
        variants = {"a": {}, "b": {"set": {"steps": 7}}}
        definition = load_variants(variants, set={"steps": 5, "batch_size": 6}, given={"settings": given})
        return [(each.recipe.steps, each.recipe.batch_size) for each in definition.plan()]

    assert steps_and_batch_sizes() == [(5, 6), (7, 6)]
    assert steps_and_batch_sizes("steps=9") == [(9, 6), (9, 6)]


@pytest.mark.parametrize(
    ("variants", "grid", "message"),
    [
        ({"a": {}, "b": {"trained": False}}, {"seed": [1]}, "b is not trained, but a grid needs trained variants"),
        ({"a": {}, "b": {"word_vectors": True}}, {"seed": [1]}, "b is not trained, but a grid needs trained"),
        ({"a": {"set": {"seed": 2}}}, {"seed": [1]}, "a, seed=1: seed is an axis and also set"),
        ({"a": {}, "b": {"recipe": "other"}}, {"query_turns": [[1]]}, r"b, query_turns=\[1\]: .*a key 'query_turns'"),
    ],
)
def test_variants_that_do_not_suit_the_grid_are_rejected(
    variants: dict[str, Any], grid: dict[str, Any], message: str, load_variants: LoadVariants
) -> None:
    with pytest.raises(TrainingError, match=message):
        load_variants(variants, grid=grid).plan()


def test_variants_can_be_selected(load_variants: LoadVariants) -> None:
    three: dict[str, Any] = {name: {"set": {"seed": seed}} for seed, name in enumerate("abc")}
    assert [each.name for each in load_variants(three, given={"variants": ["c", "a"]}).plan()] == ["a", "c"]
    with pytest.raises(TrainingError, match="there is no variant 'd', 'e': choose from a, b, c"):
        load_variants(three, given={"variants": ["d", "a", "e"]})
    with pytest.raises(TrainingError, match="there is no variant 'a': this sweep has none"):
        load_sweep("wmdc-corpus", variants=["a"])
