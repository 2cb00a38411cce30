"""Recipes as files, by their names; needs neither torch nor the objectives."""

import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from turnwise.core.errors import RecipeError, did_you_mean

#: Where the packaged recipes are.
_PACKAGE = f"{__package__}.recipes"

#: The keys of a packaged recipe with the fields of `RecipeSummary`, which a run does not depend on.
SUMMARY = ("describes", "about")


def packaged_recipes() -> list[str]:
    """Return the names of the packaged recipes."""
    return packaged_yaml(_PACKAGE)


@dataclass(frozen=True, slots=True)
class RecipeSummary:
    """What a packaged recipe is for; a recommended recipe says when to use it."""

    name: str
    describes: str
    method: str  # the paper, method or purpose that it belongs to
    use: str = ""  # what the trained model is for
    data: str = ""  # what the corpus must contain
    time: str = ""  # how much training there is

    @property
    def recommended(self) -> bool:
        """Whether it is one of the few recipes to start with."""
        return bool(self.use)


def summarise_recipes() -> list[RecipeSummary]:
    """Return what the packaged recipes are for."""
    trees = {name: parse_recipe(*read_recipe_text(name)) for name in packaged_recipes()}
    return [RecipeSummary(name, tree["describes"], **tree["about"]) for name, tree in trees.items()]


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


def read_recipe_text(name: str | Path) -> tuple[Path, str]:
    """Return the text of a recipe, a packaged one or a file, and its path for messages."""
    text = read_yaml_text(name, _PACKAGE)
    if text is None:
        raise RecipeError(
            f"there is no recipe {str(name)!r}.{did_you_mean(str(name), packaged_recipes())} Give a YAML file, or a"
            " name that `turnwise recipes --all` lists"
        )
    return Path(name) if Path(name).is_file() else Path(f"{name}.yaml"), text


def parse_recipe(path: Path, text: str) -> dict[str, Any]:
    """Return the keys and values of a recipe; they are not checked yet."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(tree, dict):
        raise RecipeError(f"{path} must contain keys and values")
    return tree


def find_line(text: str, keys: Sequence[str]) -> int | None:
    """Return the line of a nested key in a YAML text, or that of the nearest parent in it; None if there is none."""
    node, line = yaml.compose(text, yaml.SafeLoader), None
    for key in keys:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        found = next(((name, value) for name, value in pairs if name.value == key), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line
