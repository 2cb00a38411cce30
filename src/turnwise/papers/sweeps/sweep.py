"""Sweeps: which models are trained or taken as they are, at which points of a grid, and by which suites they are measured."""

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.pooling import Pooling
from turnwise.papers.sweeps.grid import Axis, changes, expect_distinct, parse_axis, product, slug
from turnwise.papers.sweeps.points import VARIANT
from turnwise.papers.sweeps.variants import Variant, chosen, parse_variants, settings_of
from turnwise.training.recipe import Recipe, load_recipe, packaged_yaml, read_yaml_text

#: Where the sweeps that come with turnwise lie.
_PACKAGE = "turnwise.papers.sweeps.presets"

_KEYS = ("describes", "recipe", "variants", "grid", "set", "suites")


class SweepError(TurnwiseError):
    """A sweep cannot be run as asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A point before it is made.

    Attributes:
        place: its value on every axis; the variant is the last of them.
        recipe: what is trained; of one that is not trained, what training would start from.
        trained: whether the recipe is trained.
        pooling: when it is judged; None: the model's own.
        postprocess: 'flow' or 'whitening'; None: neither.
        word_vectors: whether it is averaged word vectors instead of all that.
    """

    place: dict[str, Any]
    recipe: Recipe
    trained: bool = True
    pooling: Pooling | None = None
    postprocess: str | None = None
    word_vectors: bool = False

    @property
    def name(self) -> str:
        """What tables call it."""
        return named(self.place)

    @property
    def run(self) -> str:
        """The name of its run's folder: of a grid alone the point's, since its recipe is its own; else the recipe's."""
        return run_name(self.recipe) if VARIANT in self.place else slug(self.place)

    @property
    def model(self) -> tuple[Any, ...]:
        """What tells it from points that would give other figures."""
        recipe = self.recipe
        if self.word_vectors:
            return ("word vectors", self.postprocess)
        pooling = self.pooling or recipe.pooling
        if self.trained:
            return (recipe, pooling, self.postprocess)
        return (
            recipe.backbone,
            recipe.layers,
            pooling,
            self.postprocess,
            recipe.corpus_share if self.postprocess else None,
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """Which models are trained, and by which suites they are measured.

    Attributes:
        recipe: a packaged recipe's name, or a YAML file.
        axes: what changes between the points; the last changes fastest.
        settings: what is changed at all points, as `key=value`.
        suites: 'dse', 'diaeval', ….
        describes: what it is for.
        variants: the methods at every point of the grid; none: the recipe's own alone.
        overrides: what is changed at all points after what variants change.
    """

    recipe: str
    axes: tuple[Axis, ...]
    settings: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    describes: str = ""
    variants: tuple[Variant, ...] = ()
    overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        keys = [axis.key for axis in self.axes]
        fixed = {setting.partition("=")[0] for setting in self.everywhere} & set(keys)
        if fixed:
            key = min(fixed)
            raise SweepError(
                f"{key} is an axis and set for all points too: --grid {key}=VALUE alone gives it one value"
            )
        names = [variant.name for variant in self.variants]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise SweepError(f"two variants are called {twice!r}")
        for variant in self.variants:
            if keys and not variant.learns:
                raise SweepError(
                    f"{variant.name} is not trained, and a grid ({keys[0]}) needs variants that are: choose those by --variant"
                )
            if both := set(variant.keys) & set(keys):
                raise SweepError(
                    f"{variant.name}: {min(both)} is an axis and set by the variant too: leave one of them out"
                )

    @property
    def everywhere(self) -> tuple[str, ...]:
        """What is changed at all points."""
        return (*self.settings, *self.overrides)

    @property
    def keys(self) -> list[str]:
        """The axes by name; variants are the last of them."""
        return [axis.key for axis in self.axes] + ([VARIANT] if self.variants else [])

    def base(self) -> Recipe:
        """The recipe with what is changed at all points."""
        return load_recipe(self.recipe, self.everywhere)

    def plan(self) -> list[Planned]:
        """The points in their order.

        Raises:
            RecipeError: if there is no such recipe, or a setting of all points cannot be.
            SweepError: if a point's recipe cannot be, or it is the same as another point.
        """
        self.base()  # what is wrong everywhere is told without a point's name
        places = product(self.axes) if self.axes or not self.variants else [{}]
        found: list[Planned] = []
        for place, variant in itertools.product(places, self.variants or (Variant(""),)):
            point = self._planned(place, variant)
            other = next((other for other in found if other.model == point.model), None)
            if other is not None:
                raise SweepError(
                    f"{point.name} and {other.name} are one model, judged in one way: leave one of them out"
                )
            found.append(point)
        return found

    def _planned(self, changed: dict[str, Any], variant: Variant) -> Planned:
        place = {**changed, VARIANT: variant.name} if self.variants else changed
        settings = [*self.settings, *variant.settings, *self.overrides, *changes(changed)]
        try:
            recipe = load_recipe(variant.recipe or self.recipe, settings)
        except TurnwiseError as error:
            raise SweepError(f"{named(place)}: {error}") from error
        if variant.stage == "first":
            if recipe.first is None:
                raise SweepError(
                    f"{named(place)}: the recipe {variant.recipe or self.recipe} has no first stage (`first`)"
                )
            recipe = recipe.first
        return Planned(place, recipe, variant.learns, variant.pooling, variant.postprocess, variant.word_vectors)


def named(place: Mapping[str, Any]) -> str:
    """What tables call a point."""
    changed = changes({key: value for key, value in place.items() if key != VARIANT})
    return ", ".join([*([place[VARIANT]] if VARIANT in place else []), *changed]) or "untrained"


def run_name(recipe: Recipe) -> str:
    """A name for the folder of a recipe's run, the same for equal recipes alone: its objectives, and a hash of all that it says."""
    said = json.dumps([_told(stage) for stage in recipe.stages], sort_keys=True, ensure_ascii=False)
    return f"{'+'.join(recipe.objectives)}~{hashlib.sha256(said.encode()).hexdigest()[:12]}"


def _told(recipe: Recipe) -> dict[str, Any]:
    """A stage without what it is described by and the stages before it."""
    return {key: value for key, value in asdict(recipe).items() if key not in ("describes", "first")}


# ---- from names and files


def packaged_sweeps() -> list[str]:
    """The names of the sweeps that come with turnwise."""
    return packaged_yaml(_PACKAGE)


def load_sweep(
    name: str | Path,
    grid: Sequence[str] = (),
    settings: Sequence[str] = (),
    suites: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
) -> Sweep:
    """A sweep from a packaged name or a YAML file, or of a recipe along the axes that are given.

    Args:
        name: of a sweep or of a recipe; a file that has a key `grid` or `variants` is a sweep.
        grid: axes as `key=a,b,c`, in place of the sweep's own of that key, or besides them.
        settings: `key=value`, after the sweep's own and after those of its variants.
        suites: instead of the sweep's own; None: those.
        variants: the names of those to keep; None or none: all.

    Raises:
        SweepError: if the file is not a sweep's.
        GridError: if an axis cannot be read.
        VariantError: if a variant cannot be read, or there is none of a name.
    """
    tree = _read(name) or {"recipe": str(name)}
    unknown = [key for key in tree if key not in _KEYS]
    if unknown or not isinstance(tree.get("recipe"), str):
        what = f"no key {unknown[0]!r}" if unknown else "to name its recipe"
        raise SweepError(f"{name}: a sweep has {what}; it has {', '.join(_KEYS)}")
    given = [parse_axis(text) for text in grid]
    expect_distinct(given)  # before one replaces the other
    axes = {axis.key: axis for axis in (*_axes(name, tree.get("grid", {})), *given)}
    methods = parse_variants(tree["variants"]) if "variants" in tree else ()
    return Sweep(
        recipe=tree["recipe"],
        axes=tuple(axes.values()),
        settings=tuple(settings_of(tree.get("set"), name)),
        suites=tuple(_texts(name, "suites", tree.get("suites")) if suites is None else suites),
        describes=str(tree.get("describes", "")),
        variants=chosen(methods, variants) if variants else methods,
        overrides=tuple(settings),
    )


def _read(name: str | Path) -> dict[str, Any] | None:
    """What a sweep's file holds; None where the name is not a sweep's."""
    text = read_yaml_text(name, _PACKAGE)
    if text is None:
        return None
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SweepError(f"{name} is not valid YAML: {error}") from None
    return tree if isinstance(tree, dict) and tree.keys() & {"grid", "variants"} else None


def _axes(name: str | Path, grid: Any) -> list[Axis]:
    if not isinstance(grid, dict) or not all(isinstance(values, list) for values in grid.values()):
        raise SweepError(f"{name}: grid: expected keys, each with a list of values")
    return [Axis(str(key), tuple(values)) for key, values in grid.items()]


def _texts(name: str | Path, key: str, values: Any) -> list[str]:
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise SweepError(f"{name}: {key}: expected a list of texts")
    return values
