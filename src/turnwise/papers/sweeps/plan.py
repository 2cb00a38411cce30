"""Sweep definitions: a recipe, the hyperparameter grid and the variants, and the runs that follow from them."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from turnwise.core import registry
from turnwise.core.errors import TrainingError, TurnwiseError
from turnwise.core.validation import InvalidKeyError, validate
from turnwise.training.recipe import Recipe
from turnwise.training.recipe_files import packaged_yaml, read_yaml_text
from turnwise.training.recipe_loading import load_recipe, parse_scalar

#: The axis of a sweep's variants; always the last one.
VARIANT = "variant"

#: Recipe keys that determine the untrained model.
BACKBONE_KEYS = frozenset({"backbone", "layers", "pooling"})

#: The sweeps that come with turnwise.
_PRESETS = f"{__package__}.presets"

_SWEEP_KEYS = ("describes", "recipe", "variants", "grid", "set", "suites")

#: The keys of a variant in a sweep file, besides its name, and their types.
_VARIANT_KEYS: dict[str, Any] = {
    "recipe": str,
    "set": object,
    "trained": bool,
    "stage": Literal["first"],
    "pooling": Literal["cls", "mean", "max", "first-last"],
    "postprocess": str,
    "word_vectors": bool,
}

#: Characters that folder names keep; lower case only, because some file systems ignore case.
_SAFE_CHARACTERS = re.compile(r"[a-z0-9._-]+")
_MAX_FOLDER_NAME = 80


# ---- the grid


@dataclass(frozen=True, slots=True)
class Axis:
    """A recipe key and the values it takes."""

    key: str  # as `load_recipe` takes it: `learning_rate`, `objectives.dse.temperature`, or short `temperature`
    values: tuple[Any, ...]  # in order; strings that recipes read as numbers, such as '1e-5', become numbers

    def __post_init__(self) -> None:
        if not self.key or not self.values:
            raise TrainingError(f"the axis {self.key!r} has no {'values' if self.key else 'name'}: write key=a,b,…")
        try:
            plain = json.loads(json.dumps(self.values, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise TrainingError(
                f"{self.key}: values must be numbers, strings, true, false, null, or lists of these ({error})"
            ) from None
        values = [parse_scalar(format_value(value)) for value in plain]
        if not all(math.isfinite(value) for value in values if isinstance(value, float)):
            raise TrainingError(f"{self.key}: values must be finite")
        if (duplicate := _first_duplicate([format_value(value) for value in values])) is not None:
            raise TrainingError(f"{self.key}: {duplicate} occurs twice")
        object.__setattr__(self, "values", tuple(values))


def parse_axis(text: str) -> Axis:
    """Parse an axis from the command line: `key=a,b,c`, where the values are the items of a YAML flow list.

    Example:
        >>> parse_axis("windows=[1],[1, 2]").values
        ([1], [1, 2])
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip():
        raise TrainingError(f"{text!r}: expected key=value,value,…")
    try:
        items = yaml.safe_load(f"[{values}]")
    except yaml.YAMLError as error:
        raise TrainingError(
            f"{text!r}: the values cannot be parsed ({str(error).splitlines()[0]}); write a,b or [1],[1,2], and quote"
            " values that contain a comma or a bracket"
        ) from None
    return Axis(key.strip(), tuple(items))


def grid_points(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Return every combination of values, the last axis changing fastest."""
    if not axes:
        raise TrainingError("a grid needs an axis: --grid key=value,value,…")
    _check_distinct_keys(axes)
    keys = [axis.key for axis in axes]
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*(axis.values for axis in axes))]


def _check_distinct_keys(axes: Sequence[Axis]) -> None:
    if (duplicate := _first_duplicate([axis.key for axis in axes])) is not None:
        raise TrainingError(f"two axes have the key {duplicate!r}: give all its values at once")


def _first_duplicate(names: Sequence[str]) -> str | None:
    return next((name for number, name in enumerate(names) if name in names[:number]), None)


def format_value(value: Any) -> str:
    """Return a value as one line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def recipe_settings(parameters: Mapping[str, Any]) -> list[str]:
    """Return parameters as the `key=value` settings that `load_recipe` takes."""
    return [f"{key}={format_value(value)}" for key, value in parameters.items()]


def folder_name(parameters: Mapping[str, Any]) -> str:
    """Return a folder name for parameters, whatever their order; with a hash if something was cut or replaced."""
    pairs = [(key, format_value(value)) for key, value in sorted(parameters.items())]
    cleaned = ",".join(f"{_clean(key)}={_clean(text)}" for key, text in pairs)
    if len(cleaned) <= _MAX_FOLDER_NAME and cleaned == ",".join(f"{key}={text}" for key, text in pairs):
        return cleaned
    # names without a hash contain no tilde, so the two kinds cannot collide
    digest = hashlib.sha256(format_value(dict(parameters)).encode()).hexdigest()
    return f"{cleaned[:_MAX_FOLDER_NAME]}~{digest[:8]}"


def _clean(text: str) -> str:
    return "-".join(_SAFE_CHARACTERS.findall(text.lower()))


# ---- variants


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the methods that a sweep compares."""

    name: str  # for tables and plots
    recipe: str | None = None  # a packaged recipe's name or a YAML file; None: the sweep's recipe
    settings: tuple[str, ...] = ()  # changes to the recipe, as `key=value`
    trained: bool = True  # False evaluates the backbone without training
    #: 'first' evaluates the model after the recipe's first stage instead of the finished one.
    stage: Literal["first"] | None = None
    pooling: Literal["cls", "mean", "max", "first-last"] | None = None  # in evaluation; None: the model's own
    postprocess: str | None = None  # a post-processor by name, fitted on the corpus
    word_vectors: bool = False  # averaged word vectors, trained on the corpus, instead of an encoder

    def __post_init__(self) -> None:
        postprocessors = registry.known_names("post-processor")
        if self.postprocess not in (None, *postprocessors):
            raise TrainingError(
                f"{self.name}: there is no post-processor {self.postprocess!r}: choose from {', '.join(postprocessors)}"
            )
        if self.word_vectors:
            excluded = {"recipe": self.recipe, "set": self.settings, "stage": self.stage, "pooling": self.pooling}
            if given := [key for key, value in {**excluded, "trained": not self.trained}.items() if value]:
                raise TrainingError(f"{self.name}: word_vectors and {given[0]} exclude each other; remove one of them")
        if self.trained:
            return
        if self.stage is not None:
            raise TrainingError(f"{self.name}: stage={self.stage} needs training; remove it, or trained: false")
        effective = BACKBONE_KEYS | ({"corpus_fraction"} if self.postprocess else set())
        if idle := [key for key in self.keys if key not in effective]:
            raise TrainingError(f"{self.name}: {idle[0]} has no effect without training; remove it, or trained: false")

    @property
    def keys(self) -> list[str]:
        """The recipe keys that it changes."""
        return [setting.partition("=")[0] for setting in self.settings]

    @property
    def needs_training(self) -> bool:
        """Whether a recipe is trained for it."""
        return self.trained and not self.word_vectors

    def describe(self) -> str:
        """Return a one-line description for reports."""
        parts = [
            "averaged word vectors" if self.word_vectors else "",
            f"recipe {self.recipe}" if self.recipe else "",
            *self.settings,
            "" if self.trained else "not trained",
            f"after its {self.stage} stage" if self.stage else "",
            f"{self.pooling} pooling" if self.pooling else "",
            f"post-processed by {self.postprocess}" if self.postprocess else "",
        ]
        return f"{self.name}: {', '.join(part for part in parts if part) or 'the unchanged recipe'}"


def _parse_variants(tree: Any) -> tuple[Variant, ...]:
    if not isinstance(tree, dict) or not tree or not all(isinstance(name, str) and name.strip() for name in tree):
        raise TrainingError("variants: expected a mapping from names to options")
    return tuple(_parse_variant(name, {} if options is None else options) for name, options in tree.items())


def _parse_variant(name: str, options: Any) -> Variant:
    if not isinstance(options, dict):
        raise TrainingError(f"{name}: expected keys and values; a variant has {', '.join(_VARIANT_KEYS)}")
    if unknown := [key for key in options if key not in _VARIANT_KEYS]:
        raise TrainingError(f"{name}: a variant has no key {unknown[0]!r}; it has {', '.join(_VARIANT_KEYS)}")
    try:
        values = {key: validate(key, _VARIANT_KEYS[key], value) for key, value in options.items()}
    except InvalidKeyError as error:
        raise TrainingError(f"{name}: {error}") from None
    return Variant(name, settings=tuple(_parse_settings(values.pop("set", None), name)), **values)


def _select_variants(variants: Sequence[Variant], names: Sequence[str]) -> tuple[Variant, ...]:
    known = [variant.name for variant in variants]
    if unknown := [name for name in names if name not in known]:
        hint = f"choose from {', '.join(known)}" if known else "this sweep has none"
        raise TrainingError(f"there is no variant {', '.join(map(repr, unknown))}: {hint}")
    return tuple(variant for variant in variants if variant.name in names)


# ---- sweeps


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A point of a sweep before it is trained and evaluated."""

    parameters: dict[str, Any]  # its value on every axis, the variant last
    recipe: Recipe  # what is trained; without training, the recipe whose backbone is evaluated
    variant: Variant  # how it is trained and evaluated

    @property
    def name(self) -> str:
        """Its name in tables."""
        return point_name(self.parameters)

    @property
    def run_folder(self) -> str:
        """The folder name of its training run; variants with equal recipes share a run."""
        return run_name(self.recipe) if VARIANT in self.parameters else folder_name(self.parameters)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Whatever determines its results: runs of equal identity are the same model, evaluated in the same way."""
        variant, recipe = self.variant, self.recipe
        if variant.word_vectors:
            return ("word vectors", variant.postprocess)
        pooling = variant.pooling or recipe.pooling
        if variant.trained:
            return (recipe, pooling, variant.postprocess)
        share = recipe.corpus_fraction if variant.postprocess else None
        return (recipe.backbone, recipe.layers, pooling, variant.postprocess, share)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Which models are trained, and which suites evaluate them."""

    recipe: str  # a packaged recipe's name, or a YAML file
    axes: tuple[Axis, ...]  # what changes between the points; the last one changes fastest
    settings: tuple[str, ...] = ()  # changes at all points, as `key=value`
    suites: tuple[str, ...] = ()  # 'dse', 'diaeval', …
    description: str = ""  # its purpose, for reports
    variants: tuple[Variant, ...] = ()  # the methods at every point of the grid; none: the recipe alone
    overrides: tuple[str, ...] = ()  # changes at all points, applied after those of the variants

    def __post_init__(self) -> None:
        keys = [axis.key for axis in self.axes]
        if fixed := {setting.partition("=")[0] for setting in self.common_settings} & set(keys):
            raise TrainingError(
                f"{min(fixed)} is an axis and also set for all points: use --grid {min(fixed)}=VALUE for one value"
            )
        if (duplicate := _first_duplicate([variant.name for variant in self.variants])) is not None:
            raise TrainingError(f"two variants are called {duplicate!r}")
        for variant in self.variants:
            if keys and not variant.needs_training:
                raise TrainingError(
                    f"{variant.name} is not trained, but a grid ({keys[0]}) needs trained variants: use --variant"
                )
            if both := set(variant.keys) & set(keys):
                raise TrainingError(f"{variant.name}: {min(both)} is an axis and also set by the variant: remove one")

    @property
    def common_settings(self) -> tuple[str, ...]:
        """The changes at all points."""
        return (*self.settings, *self.overrides)

    @property
    def axis_names(self) -> list[str]:
        """The names of the axes; that of the variants comes last."""
        return [axis.key for axis in self.axes] + ([VARIANT] if self.variants else [])

    def base_recipe(self) -> Recipe:
        """Load the recipe with the changes at all points."""
        return load_recipe(self.recipe, self.common_settings)

    def plan(self) -> list[PlannedRun]:
        """Return the points in order.

        Raises:
            RecipeError: if there is no such recipe, or a common setting is invalid.
            TrainingError: if a point's recipe is invalid, or the point is the same as another one.
        """
        self.base_recipe()  # reports what is wrong at all points without naming one
        grid = grid_points(self.axes) if self.axes or not self.variants else [{}]
        runs: list[PlannedRun] = []
        for parameters, variant in itertools.product(grid, self.variants or (Variant(""),)):
            run = self._plan_run(parameters, variant)
            same = next((other for other in runs if other.identity == run.identity), None)
            if same is not None:
                raise TrainingError(f"{run.name} and {same.name} are the same model in the same evaluation: remove one")
            runs.append(run)
        return runs

    def _plan_run(self, grid_point: dict[str, Any], variant: Variant) -> PlannedRun:
        parameters = {**grid_point, VARIANT: variant.name} if self.variants else grid_point
        name = variant.recipe or self.recipe
        settings = [*self.settings, *variant.settings, *self.overrides, *recipe_settings(grid_point)]
        try:
            recipe = load_recipe(name, settings)
        except TurnwiseError as error:
            raise TrainingError(f"{point_name(parameters)}: {error}") from error
        if variant.stage == "first":
            if recipe.first is None:
                raise TrainingError(f"{point_name(parameters)}: the recipe {name} has no first stage (`first`)")
            recipe = recipe.first
        return PlannedRun(parameters, recipe, variant)


def point_name(parameters: Mapping[str, Any]) -> str:
    """Return the name of a point in tables."""
    settings = recipe_settings({key: value for key, value in parameters.items() if key != VARIANT})
    return ", ".join([*([parameters[VARIANT]] if VARIANT in parameters else []), *settings]) or "untrained"


def run_name(recipe: Recipe) -> str:
    """Return a folder name that only equal recipes share: the objectives and a hash of everything else."""
    stages = [
        {key: value for key, value in asdict(stage).items() if key not in ("first", "record_training_data")}
        for stage in recipe.stages
    ]
    content = json.dumps(stages, sort_keys=True, ensure_ascii=False)
    return f"{'+'.join(recipe.objectives)}~{hashlib.sha256(content.encode()).hexdigest()[:12]}"


# ---- files


def packaged_sweeps() -> list[str]:
    """Return the names of the sweeps that come with turnwise."""
    return packaged_yaml(_PRESETS)


def load_sweep(
    name: str | Path,
    grid: Sequence[str] = (),
    settings: Sequence[str] = (),
    suites: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
) -> Sweep:
    """Load a packaged sweep or a YAML file, or define a sweep of a recipe.

    Args:
        name: a sweep or a recipe; a file with a key `grid` or `variants` is a sweep.
        grid: axes as `key=a,b,c`; they replace the sweep's axes with the same key, or are added to them.
        settings: `key=value`, applied after the sweep's settings and those of its variants.
        suites: replace the sweep's suites; None: keep them.
        variants: names of the variants to keep; None or empty: all.
    """
    tree = _read_sweep(name) or {"recipe": str(name)}
    unknown = [key for key in tree if key not in _SWEEP_KEYS]
    if unknown or not isinstance(tree.get("recipe"), str):
        problem = f"unknown key {unknown[0]!r}" if unknown else "no recipe"
        raise TrainingError(f"{name}: {problem}; a sweep has the keys {', '.join(_SWEEP_KEYS)}")
    given_axes = [parse_axis(text) for text in grid]
    _check_distinct_keys(given_axes)  # before one replaces the other
    axes = {axis.key: axis for axis in (*_parse_grid(tree.get("grid", {}), name), *given_axes)}
    all_variants = _parse_variants(tree["variants"]) if "variants" in tree else ()
    own_suites = _string_list(tree.get("suites"), f"{name}: suites: expected a list of strings")
    return Sweep(
        recipe=tree["recipe"],
        axes=tuple(axes.values()),
        settings=tuple(_parse_settings(tree.get("set"), name)),
        suites=tuple(own_suites if suites is None else suites),
        description=str(tree.get("describes", "")),
        variants=_select_variants(all_variants, variants) if variants else all_variants,
        overrides=tuple(settings),
    )


def _read_sweep(name: str | Path) -> dict[str, Any] | None:
    """Return the content of a sweep file; None if the name is not a sweep's."""
    text = read_yaml_text(name, _PRESETS)
    if text is None:
        return None
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise TrainingError(f"{name} is not valid YAML: {error}") from None
    return tree if isinstance(tree, dict) and tree.keys() & {"grid", "variants"} else None


def _parse_grid(grid: Any, where: str | Path) -> list[Axis]:
    if not isinstance(grid, dict) or not all(isinstance(values, list) for values in grid.values()):
        raise TrainingError(f"{where}: grid: expected keys, each with a list of values")
    return [Axis(str(key), tuple(values)) for key, values in grid.items()]


def _parse_settings(settings: Any, where: str | Path) -> list[str]:
    """Return the content of a `set` key, a mapping or a list of `key=value` strings, as such strings."""
    if isinstance(settings, Mapping):
        return recipe_settings(settings)
    return _string_list(settings, f"{where}: set: expected keys and values, or a list of strings")


def _string_list(values: Any, message: str) -> list[str]:
    values = [] if values is None else values
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TrainingError(message)
    return values
