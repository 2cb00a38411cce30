"""Sweep definitions: a recipe, the hyperparameter grid and the variants, and the runs that follow from them."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from turnwise.core import registry
from turnwise.core.errors import TrainingError, TurnwiseError
from turnwise.core.validation import STRICT, InvalidKeyError, check_keys, explaining_errors
from turnwise.training.recipe import Recipe, load_recipe, parse_scalar
from turnwise.training.recipe_files import packaged_yaml, parse_recipe, read_yaml_text

VARIANT = "variant"  # the axis of a sweep's variants; always the last one
BACKBONE_KEYS = frozenset({"backbone", "layers", "pooling"})  # recipe keys that determine the untrained model
_PRESETS = f"{__package__}.presets"  # the sweeps that come with turnwise

_SWEEP_KEYS = ("describes", "recipe", "variants", "grid", "set", "suites")
_VARIANT_KEYS = ("recipe", "set", "trained", "stage", "pooling", "postprocess", "word_vectors")

#: Characters that folder names keep; lower case only, because some file systems ignore case.
_SAFE_CHARACTERS = re.compile(r"[a-z0-9._-]+")
_MAX_FOLDER_NAME = 80


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """Parse `key=a,b,c`: a recipe key, and its values, which are the items of a YAML flow list.

    Example:
        >>> parse_axis("windows=[1],[1, 2]")
        ('windows', [[1], [1, 2]])
    """
    key, _, values = text.partition("=")
    try:
        items = yaml.safe_load(f"[{values}]")
    except yaml.YAMLError as error:
        raise TrainingError(
            f"{text!r}: the values cannot be parsed ({str(error).splitlines()[0]}); write a,b or [1],[1,2], and quote"
            " values that contain a comma or a bracket"
        ) from None
    if not key.strip() or not items:
        raise TrainingError(f"{text!r}: expected key=value,value,…")
    return key.strip(), items


def format_value(value: Any) -> str:
    """Return a value as one line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def recipe_settings(parameters: Mapping[str, Any]) -> list[str]:
    """Return parameters as the `key=value` settings that `load_recipe` takes."""
    return [f"{key}={format_value(value)}" for key, value in parameters.items()]


def point_name(parameters: Mapping[str, Any]) -> str:
    """Return the name of a point in tables."""
    settings = recipe_settings({key: value for key, value in parameters.items() if key != VARIANT})
    return ", ".join([*([parameters[VARIANT]] if VARIANT in parameters else []), *settings]) or "untrained"


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


def run_name(recipe: Recipe) -> str:
    """Return a folder name that only equal recipes share: the objectives and a hash of everything else."""
    stages = [
        {key: value for key, value in asdict(stage).items() if key not in ("first", "record_training_data")}
        for stage in recipe.stages
    ]
    content = json.dumps(stages, sort_keys=True, ensure_ascii=False)
    return f"{'+'.join(recipe.objectives)}~{hashlib.sha256(content.encode()).hexdigest()[:12]}"


#: Changes to a recipe as `key=value`; in a file, keys and values, or a list of such strings.
_Settings = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: recipe_settings(value) if isinstance(value, dict) else value)
]


@dataclass(frozen=True, config=STRICT)
class Variant:
    """One of the methods that a sweep compares."""

    name: str = ""  # for tables and plots
    recipe: str | None = None  # a packaged recipe's name or a YAML file; None: the sweep's recipe
    settings: _Settings = Field(default=(), alias="set")
    trained: bool = True  # False evaluates the backbone without training
    stage: Literal["first"] | None = None  # evaluates the model after the recipe's first stage
    pooling: Literal["cls", "mean", "max", "first-last"] | None = None  # in evaluation; None: the model's own
    postprocess: str | None = None  # a post-processor by name, fitted on the corpus
    word_vectors: bool = False  # averaged word vectors, trained on the corpus, instead of an encoder

    def __post_init__(self) -> None:
        if self.postprocess is not None:
            registry.check_name("post-processor", self.postprocess)
        given = [key for key in ("recipe", "settings", "stage", "pooling") if getattr(self, key)]
        if self.word_vectors and (given or not self.trained):
            raise TrainingError(f"word_vectors excludes {(given or ['trained: false'])[0]}; remove one of them")
        effective = BACKBONE_KEYS | ({"corpus_fraction"} if self.postprocess else set())
        idle = [*(key for key in self.keys if key not in effective), *(["stage"] if self.stage else [])]
        if idle and not self.trained:
            raise TrainingError(f"{idle[0]} has no effect without training; remove it, or trained: false")

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
        return f"{self.name}: {', '.join(filter(None, parts)) or 'the unchanged recipe'}"


class PlannedRun(NamedTuple):
    """A point of a sweep before it is trained and evaluated."""

    parameters: dict[str, Any]  # its value on every axis, the variant last
    recipe: Recipe  # what is trained; without training, the recipe whose backbone is evaluated
    variant: Variant  # how it is trained and evaluated

    @property
    def name(self) -> str:
        """Its name in tables."""
        return point_name(self.parameters)


def _parse_variants(tree: Any) -> Any:
    if not isinstance(tree, dict) or not tree or not all(isinstance(name, str) and name.strip() for name in tree):
        raise TrainingError("variants: expected a mapping from names to options")
    variants = []
    for name, options in tree.items():
        if not isinstance(options, dict | None):
            raise TrainingError(f"{name}: expected keys and values; a variant has {', '.join(_VARIANT_KEYS)}")
        try:
            check_keys(options or {}, _VARIANT_KEYS)
            with explaining_errors():
                variants.append(Variant(name, **options or {}))
        except TurnwiseError as error:
            raise TrainingError(f"{name}: {error}") from None
    return tuple(variants)


def _parse_values(values: list[Any]) -> list[Any]:
    """Read strings such as '1e-5' as numbers, as recipes do."""
    parsed = [parse_scalar(format_value(value)) for value in values]
    names = [format_value(value) for value in parsed]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise ValueError(f"has {twice[0]} twice on an axis")
    return parsed


@dataclass(frozen=True, config=STRICT)
class Sweep:
    """Which models are trained, and which suites evaluate them."""

    recipe: str  # a packaged recipe's name, or a YAML file
    #: The values of recipe keys; the last key changes fastest.
    grid: dict[str, Annotated[list[Any], Field(min_length=1), AfterValidator(_parse_values)]] = field(
        default_factory=dict
    )
    settings: _Settings = Field(default=(), alias="set")  # changes at all points
    suites: tuple[str, ...] = ()  # 'dse', 'diaeval', …
    description: str = Field(default="", alias="describes")  # its purpose, for reports
    #: The methods at every point of the grid; none: the recipe alone.
    variants: Annotated[tuple[Variant, ...], BeforeValidator(_parse_variants)] = ()
    overrides: tuple[str, ...] = ()  # changes at all points, applied after those of the variants

    @property
    def common_settings(self) -> tuple[str, ...]:
        """The changes at all points."""
        return (*self.settings, *self.overrides)

    @property
    def axis_names(self) -> list[str]:
        """The names of the axes; that of the variants comes last."""
        return [*self.grid, *([VARIANT] if self.variants else [])]

    def base_recipe(self) -> Recipe:
        """Load the recipe with the changes at all points."""
        return load_recipe(self.recipe, self.common_settings)

    def plan(self) -> list[PlannedRun]:
        """Return the points in order; raises a TurnwiseError if a recipe or a combination is invalid."""
        self.base_recipe()  # reports what is wrong at all points without naming one
        if not self.grid and not self.variants:
            raise TrainingError("a grid needs an axis: --grid key=value,value")
        variants = self.variants or (Variant(),)
        if self.grid and (untrained := [variant.name for variant in variants if not variant.needs_training]):
            raise TrainingError(f"{untrained[0]} is not trained, but a grid needs trained variants: use --variant")
        points = itertools.product(*self.grid.values(), variants)
        return [self._plan_run(dict(zip(self.grid, values, strict=True)), variant) for *values, variant in points]

    def _plan_run(self, grid_point: dict[str, Any], variant: Variant) -> PlannedRun:
        parameters = {**grid_point, VARIANT: variant.name} if self.variants else grid_point
        settings = (*self.settings, *variant.settings, *self.overrides)
        try:
            if both := grid_point.keys() & {setting.partition("=")[0] for setting in settings}:
                raise TrainingError(f"{min(both)} is an axis and also set: use --grid {min(both)}=VALUE for one value")
            recipe = load_recipe(variant.recipe or self.recipe, [*settings, *recipe_settings(grid_point)])
            if variant.stage == "first":
                if recipe.first is None:
                    raise TrainingError("its recipe has no first stage (`first`)")
                recipe = recipe.first
        except TurnwiseError as error:
            raise TrainingError(f"{point_name(parameters)}: {error}") from error
        return PlannedRun(parameters, recipe, variant)


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
    text = read_yaml_text(name, _PRESETS)
    tree = {} if text is None else parse_recipe(Path(name), text)
    if not tree.keys() & {"grid", "variants"}:
        tree = {"recipe": str(name)}
    if variants:
        known = dict(tree.get("variants", {}))
        if unknown := [variant for variant in variants if variant not in known]:
            hint = f"choose from {', '.join(known)}" if known else "this sweep has none"
            raise TrainingError(f"there is no variant {', '.join(map(repr, unknown))}: {hint}")
        tree["variants"] = {variant: options for variant, options in known.items() if variant in variants}
    axes = [parse_axis(axis) for axis in grid]
    if len(dict(axes)) < len(axes):
        raise TrainingError("two axes have the same key: give all its values at once")
    if isinstance(own := tree.get("grid", {}), dict):
        tree["grid"] = {**own, **dict(axes)}
    if suites is not None:
        tree["suites"] = suites
    try:
        check_keys(tree, _SWEEP_KEYS)
        with explaining_errors():
            return Sweep(**tree, overrides=tuple(settings))
    except InvalidKeyError as error:
        raise TrainingError(f"{name}: {error}") from None
