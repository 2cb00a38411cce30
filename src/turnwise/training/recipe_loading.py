"""Reading of recipes from YAML, with overrides `key=value`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from turnwise.core.errors import RecipeError, did_you_mean
from turnwise.core.validation import InvalidKeyError
from turnwise.objectives.registry import options_of
from turnwise.training.recipe import INHERITED, KEYS, LOOP_OPTIONS, Recipe
from turnwise.training.recipe_files import SUMMARY, find_line, parse_recipe, read_recipe_text

#: Keys that decide how many steps a run has; `min_steps` changes the last two.
_NUMBER_OF_STEPS = ("steps", "epochs", "batch_size")

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Recipe)}


def load_recipe(name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe from a file, or a packaged one by its name ('dse', 'dse-paper'), and apply overrides `key=value`.

    A key may be dotted (`objectives.dse.temperature=0.1`, `first.steps=100`). A key that the recipe does not have is
    set for the objectives that have it (`temperature=0.1`). A key of `INHERITED` is also set for the first stage unless
    that has its own value; `first=null` removes the first stage, and `objectives.NAME=false` an objective. A number of
    `steps`, `epochs` or `batch_size` is used as it is: it sets `min_steps` of its stage to null.

    Raises:
        RecipeError: if there is no such recipe, or it has an unknown key or an invalid value.
    """
    path, text = read_recipe_text(name)
    tree = parse_recipe(path, text)
    for key in SUMMARY:
        tree.pop(key, None)
    _remove_inherited(tree, _DEFAULTS)
    sources: dict[str, str] = {}  # override by dotted key
    for override in sorted(overrides, key=lambda each: each.partition("=")[0].endswith("min_steps")):  # these last
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise RecipeError(f"{override!r}: expected key=value")
        for changed in _set(tree, key.split("."), parse_scalar(value), override):
            sources[changed] = override
    try:
        return from_tree(tree)
    except InvalidKeyError as error:
        override = next((each for key, each in sources.items() if f"{error.key}.".startswith(f"{key}.")), "")
        line = find_line(text, error.key.split("."))
        where = f"--set {override}" if override else f"{path.name}:{line}" if line else path.name
        raise RecipeError(f"{error} ({where})") from None


def from_tree(tree: Mapping[str, Any]) -> Recipe:
    """Create a recipe from parsed YAML, checking every key."""
    values = dict(tree)
    objectives = values.setdefault("objectives", {})
    if isinstance(objectives, dict):
        values["objectives"] = {
            name: {} if options is None else options for name, options in objectives.items() if options is not False
        }
    if values.get("first") is not None:
        first = values["first"]
        if not isinstance(first, Mapping):
            raise InvalidKeyError("first", f"must consist of the keys of a recipe, got {first!r}")
        Recipe(**values | {"first": None})  # errors of keys that the first stage would inherit have their own name
        inherited = {key: values[key] for key in INHERITED if key in values}
        try:
            values["first"] = from_tree({**inherited, **first})
        except InvalidKeyError as error:
            raise error.under("first") from None
    return Recipe(**values)


def _remove_inherited(tree: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Remove from first stages the keys that they would inherit, so that an override reaches all stages."""
    first = tree.get("first")
    if isinstance(first, dict):
        inherited = {key: tree.get(key, defaults[key]) for key in INHERITED}
        _remove_inherited(first, inherited)
        for key in INHERITED:
            if key in first and first[key] == inherited[key]:
                del first[key]


def parse_scalar(value: str) -> Any:
    """Parse a value of the command line as YAML; `3e-5` is a number."""
    try:
        parsed = yaml.safe_load(value) if value else value
    except yaml.YAMLError as error:
        raise RecipeError(f"{value!r} is not valid YAML: {str(error).splitlines()[0]}") from None
    if isinstance(parsed, str):  # YAML 1.1 reads 3e-5 as a string
        try:
            return float(parsed)
        except ValueError:
            return parsed
    return parsed


def _set(tree: dict[str, Any], keys: list[str], value: Any, override: str) -> list[str]:
    """Apply an override to parsed YAML; return the dotted keys that it changes."""
    if len(keys) > 1 and keys[0] == "first":
        if not isinstance(tree.get("first"), dict):
            raise RecipeError(f"{override!r}: the recipe has no first stage")
        return [f"first.{key}" for key in _set(tree["first"], keys[1:], value, override)]
    if keys[-1] in _NUMBER_OF_STEPS:
        tree["min_steps"] = None
    entries = {name: options or {} for name, options in tree.get("objectives", {}).items() if options is not False}
    if len(keys) == 1 and keys[0] not in KEYS:
        known = {name: options_of(entry.get("objective", name)) for name, entry in entries.items()}
        targets = [name for name, options in known.items() if keys[0] in {*options, "weight"}]
        if not targets:
            hint = f"; for its first stage use first.{override}" if tree.get("first") else ""
            meant = did_you_mean(keys[0], {*KEYS, *LOOP_OPTIONS}.union(*known.values()))
            raise RecipeError(
                f"{override!r}: neither the recipe nor its objectives have a key {keys[0]!r}{hint}.{meant}"
            )
        for name in targets:
            tree["objectives"][name] = {**entries[name], keys[0]: value}
        return [f"objectives.{name}.{keys[0]}" for name in targets]
    own = [keys[0] in LOOP_OPTIONS and entry.get(keys[0]) is not None for entry in entries.values()]
    if len(keys) == 1 and own and all(own):
        instead = override.replace(keys[0], f"objectives.NAME.{keys[0]}", 1)
        raise RecipeError(f"{override!r} would change nothing: every objective sets its own; use {instead}")
    branch = tree
    for key in keys[:-1]:
        if not isinstance(branch.get(key), dict):
            branch[key] = {}
        branch = branch[key]
    branch[keys[-1]] = value
    return [".".join(keys)]
