"""What the tests of sweeps share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.tiny import recipe
from turnwise.papers.sweeps import experiment
from turnwise.papers.sweeps.plan import Sweep, load_sweep

#: Two steps of masked language modelling before two steps of DSE.
FIRST_STAGE: dict[str, Any] = {
    "objectives": {"masked-language": {}},
    "steps": 2,
    "batch_size": 8,
    "learning_rate": 1e-3,
}

#: Loads a sweep of variants: `load_variants(options by name, recipe, given=arguments of load_sweep, keys of the file)`.
LoadVariants = Callable[..., Sweep]


@pytest.fixture(scope="session")
def world(sample_world: Callable[[int], Path]) -> Path:
    """A small sample world."""
    return sample_world(200)


@pytest.fixture(scope="module")
def no_curves() -> Iterator[None]:
    """Draw no curves: a sweep draws all of them anew after every point."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "line_chart", lambda *_, **__: "<svg/>")
        yield


@pytest.fixture(scope="session")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recipes: one.yaml has one stage, two.yaml two, other.yaml another objective."""
    folder = tmp_path_factory.mktemp("recipes")
    tree = yaml.safe_load(recipe("dse", "steps=2").to_yaml())
    (folder / "one.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    (folder / "two.yaml").write_text(yaml.safe_dump({**tree, "first": FIRST_STAGE}), encoding="utf-8")
    (folder / "other.yaml").write_text(recipe("siamese", "steps=2").to_yaml(), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def load_variants(recipes: Path) -> LoadVariants:
    """Load a sweep from a file; recipes are named without their folder."""

    def load(variants: dict[str, Any], base: str = "one", *, given: dict[str, Any] | None = None, **keys: Any) -> Sweep:
        resolved = {
            name: {**options, "recipe": str(recipes / f"{options['recipe']}.yaml")}
            if options and "recipe" in options
            else options
            for name, options in variants.items()
        }
        content = {"recipe": str(recipes / f"{base}.yaml"), "variants": resolved, **keys}
        (recipes / "sweep.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return load_sweep(recipes / "sweep.yaml", **(given or {}))

    return load
