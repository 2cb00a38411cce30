"""The recipes that come with turnwise; `NAME-paper` has every number that a paper prints, `NAME` is what we recommend."""

import importlib.resources
from pathlib import Path


def packaged(package: str = __name__) -> list[str]:
    """The names of the YAML files that come in a package: these recipes, or the sweeps of them."""
    return sorted(
        path.name.removesuffix(".yaml")
        for path in importlib.resources.files(package).iterdir()
        if path.name.endswith(".yaml")
    )


def yaml_text(name: str | Path, package: str = __name__) -> str | None:
    """What a YAML file holds, or a packaged one by its name; None where there is neither."""
    if Path(name).is_file():
        return Path(name).read_text(encoding="utf-8")
    if str(name) in packaged(package):
        return (importlib.resources.files(package) / f"{name}.yaml").read_text(encoding="utf-8")
    return None
