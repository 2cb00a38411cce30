"""Recipes as files, by their names; needs neither torch nor the objectives."""

import importlib.resources
from pathlib import Path
from typing import Any

import yaml

from turnwise.core.errors import TurnwiseError, did_you_mean

#: Where the packaged recipes are.
_PACKAGE = f"{__package__}.recipes"


class RecipeError(TurnwiseError):
    """A recipe has an unknown key or an invalid value."""


def packaged_recipes() -> list[str]:
    """Return the names of the packaged recipes."""
    return packaged_yaml(_PACKAGE)


def packaged_yaml(package: str) -> list[str]:
    """Return the names of the YAML files in a package, without their suffix."""
    files = importlib.resources.files(package).iterdir()
    return sorted(path.name.removesuffix(".yaml") for path in files if path.name.endswith(".yaml"))


def read_yaml_text(name: str | Path, package: str) -> str | None:
    """Read a YAML file by its path, or by its name in a package; None if there is neither."""
    if Path(name).is_file():
        return Path(name).read_text(encoding="utf-8")
    if str(name) in packaged_yaml(package):
        return (importlib.resources.files(package) / f"{name}.yaml").read_text(encoding="utf-8")
    return None


def read_recipe(name: str | Path) -> dict[str, Any]:
    """Return the keys and values of a recipe, a packaged one or a file; they are not checked yet."""
    text = read_yaml_text(name, _PACKAGE)
    if text is None:
        raise RecipeError(
            f"there is no recipe {str(name)!r}: give a YAML file, or one of {', '.join(packaged_recipes())}."
            f"{did_you_mean(str(name), packaged_recipes())}"
        )
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"{name} is not valid YAML: {error}") from None
    if not isinstance(tree, dict):
        raise RecipeError(f"{name} must contain keys and values")
    return tree
