"""Recipes: everything that a training run depends on besides its corpus; read from YAML with overrides `key=value`.

`recipes/` holds the packaged ones: `NAME-paper` has the values that a paper prints, `NAME` is our recommendation.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction as ExactFraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from turnwise.core.errors import RecipeError, did_you_mean
from turnwise.core.validation import (
    STRICT,
    Integer,
    InvalidKeyError,
    NonNegative,
    NonNegativeInt,
    Number,
    Positive,
    PositiveInt,
    Rate,
    check_keys,
    explaining_errors,
    refuse_truth_value,
)
from turnwise.corpus.storage.store import Store
from turnwise.models.backbone.inputs import RerankerTask
from turnwise.models.backbone.source import SavedPooling
from turnwise.objectives.objective import Objective
from turnwise.objectives.registry import make_objective, options_of
from turnwise.objectives.ums import RerankerObjective
from turnwise.training.recipe_files import SUMMARY, find_line, parse_recipe, read_recipe_text

Schedule = Literal["constant", "linear", "cosine", "one-cycle"]
Precision = Literal["auto", "fp32", "bf16"]
Switch = Literal["auto", True, False]

#: The smallest shuffle buffer, and the number of neighbouring examples that it reads at once.
SMALLEST_BUFFER = 64

#: Keys that a first stage takes from the recipe that it belongs to unless it sets them: they describe the run, not the
#: method.
INHERITED = (
    *("backbone", "pooling", "corpus_fraction", "combine_turns", "min_turns", "max_length"),
    *("dropout", "attention_dropout", "layers", "precision", "compile", "cuda_graphs", "tokens_per_forward", "seed"),
    *("shuffle_buffer", "checkpoint_every", "log_every", "workers", "record_training_data"),
)

BatchSize = Annotated[Integer, Field(ge=2)]


@dataclasses.dataclass(frozen=True, slots=True)
class LoopOptions:
    """The options of an objective's entry that the training loop reads."""

    __pydantic_config__ = STRICT

    objective: str | None = None  # which one it is; None: that of the entry's name
    stores: tuple[str, ...] | None = None  # those that it reads, by folder name or reader; None: all
    exclude_stores: tuple[str, ...] | None = None  # those that it does not read
    weight: NonNegative = 1.0  # factor of its loss
    batch_size: BatchSize | None = None  # None: the recipe's
    head_learning_rate: NonNegative | None = None  # None: the recipe's


LOOP_OPTIONS = tuple(field.name for field in dataclasses.fields(LoopOptions))


class ObjectiveEntry(NamedTuple):
    """An objective of a recipe, and its options for the training loop."""

    objective: Objective
    options: LoopOptions


@dataclass(frozen=True, config=STRICT)
class Recipe:
    """The configuration of a training run."""

    #: Name → options: those of the objective, and of `LoopOptions`.
    objectives: dict[str, dict[str, Any]]
    backbone: str = "minilm"  # the model to start from: a packaged model, a folder, a Hugging Face id
    pooling: SavedPooling | None = None  # how token states become vectors; None: the backbone's own, or the mean
    #: Fraction of the dialogues, sampled by their ids: a smaller fraction is a subset of a larger one.
    corpus_fraction: Annotated[Number, Field(gt=0, le=1)] = 1.0
    combine_turns: bool = False  # whether consecutive turns of one speaker are merged into one
    min_turns: PositiveInt = 1  # shorter dialogues are not used; counted after turns are combined
    #: Passes over the first objective's examples, or a fraction of one: 0.5 is half of its batches.
    epochs: Annotated[int | float, BeforeValidator(refuse_truth_value), Field(gt=0, allow_inf_nan=False)] = 1
    steps: PositiveInt | None = None  # optimiser steps, instead of epochs
    #: A corpus that gives fewer steps is read in smaller batches and for more epochs (`setup.fit_to_corpus`); None: the
    #: numbers are used as they are. Overrides of `steps`, `epochs` and `batch_size` set it to None.
    min_steps: PositiveInt | None = None
    batch_size: BatchSize = 128  # examples per step over all processes; the loss sees them all
    learning_rate: Positive = 3e-5  # of the encoder
    head_learning_rate: NonNegative | None = None  # of the heads; None: the encoder's
    optimizer: Literal["adam", "adamw"] = "adamw"
    weight_decay: NonNegative = 0.0  # of matrices, not of biases and norms
    schedule: Schedule = "constant"
    warmup: Rate = 0.0  # fraction of the steps in which the learning rate rises
    clip: Positive | None = None  # largest norm of the gradient; None: no limit
    max_length: PositiveInt = 64  # tokens of a turn, including special tokens
    dropout: Rate | None = None  # on hidden states; None: the backbone's own, or that of the first stage
    attention_dropout: Rate | None = None  # on attention weights; None: likewise. 0 allows a GPU's fastest kernel
    layers: PositiveInt | None = None  # transformer layers to keep, from the bottom; None: all
    #: Layers from the bottom that are not trained; 'half' is rounded down.
    frozen_layers: NonNegativeInt | Literal["half"] = 0
    frozen_embeddings: bool = False  # whether the embeddings are not trained
    precision: Precision = "auto"  # 'bf16': all but the loss in half precision; 'auto': bf16 if the GPU supports it
    compile: Switch = "auto"  # whether torch compiles the backbone (a minute); 'auto': in long runs on a GPU
    #: Whether streams are padded to a few sizes and replayed as CUDA graphs; 'auto': for small backbones, where a GPU
    #: would wait for the host.
    cuda_graphs: Switch = "auto"
    #: Tokens encoded at once; for larger batches gradients are cached. None: as many as fit the machine.
    tokens_per_forward: PositiveInt | None = None
    start_fraction: Rate = 0.0  # fraction of the starting weights that is averaged into the saved encoder
    seed: NonNegativeInt = 1  # of all random numbers
    #: How many examples are shuffled together, in blocks of neighbours drawn from everywhere; None: all at once.
    shuffle_buffer: Annotated[Integer, Field(ge=SMALLEST_BUFFER)] | None = None
    checkpoint_every: PositiveInt = 1000  # steps between checkpoints
    checkpoint_epochs: bool = False  # also save the model at the end of every epoch, in `epochs/`
    #: Save filters of the texts with the model, by which leakage is found; whoever has them can test for known texts.
    record_training_data: bool = True
    log_every: PositiveInt = 10  # steps between lines of `metrics.jsonl`
    #: Steps between evaluations of the probe, if one is given; 0: only before and after training.
    probe_every: NonNegativeInt | Literal["epoch"] = 0
    keep_best: str | None = None  # a metric of the probe; the model with the highest value is saved in `best/`
    workers: PositiveInt = 2  # threads that prepare batches; does not change the result
    #: A recipe that is trained before this one, which starts from its model; in YAML it inherits the keys `INHERITED`.
    first: "Recipe | None" = None

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, values: Any, check: "ModelWrapValidatorHandler[Recipe]") -> "Recipe":
        with explaining_errors():
            return check(values)

    def __post_init__(self) -> None:
        if not self.objectives:
            raise InvalidKeyError("objectives", "is empty: name at least one")
        # as YAML gives them: a resumed run compares its recipe with the saved one
        for options in self.objectives.values():
            options.update({key: list(value) for key, value in options.items() if isinstance(value, tuple)})
        if self.first is not None:
            _check_first_stage(self.first, self)
        _check_entries(self)

    @cached_property
    def entries(self) -> dict[str, ObjectiveEntry]:
        """The objectives by the names of their entries."""
        return {name: _make_entry(name, options) for name, options in self.objectives.items()}

    def selected_stores(self, stores: Sequence[Store]) -> dict[str, list[int]]:
        """Return the numbers of the stores that objectives read; those that read all are left out.

        Raises:
            RecipeError: if an objective names a store that is not given, or no store is left for it.
        """
        folders = [store.folder.resolve().name for store in stores]
        names = [
            {folder, store.manifest.get("reader") or folder} for folder, store in zip(folders, stores, strict=True)
        ]
        selected = {}
        for objective, (_, options) in self.entries.items():
            if options.stores is None and not options.exclude_stores:
                continue
            wanted = set().union(*names) if options.stores is None else set(options.stores)
            excluded = set(options.exclude_stores or ())
            for key, listed in (("stores", wanted), ("exclude_stores", excluded)):
                if missing := sorted(listed.difference(*names)):
                    raise RecipeError(
                        f"objectives.{objective}.{key}: no store or reader is named {', '.join(missing)}; this run"
                        f" reads {', '.join(folders)}. Add the store with --corpus"
                    )
            selected[objective] = [n for n, known in enumerate(names) if known & wanted and not known & excluded]
            if not selected[objective]:
                raise RecipeError(
                    f"objectives.{objective}: no store is left to read, of {', '.join(folders)}. Add one with --corpus"
                )
        return selected

    def batch_of(self, objective: str) -> int:
        """Return an objective's batch size."""
        return self.entries[objective].options.batch_size or self.batch_size

    def head_learning_rate_of(self, objective: str) -> float:
        """Return the learning rate of an objective's heads."""
        own = self.entries[objective].options.head_learning_rate
        return next(rate for rate in (own, self.head_learning_rate, self.learning_rate) if rate is not None)

    def steps_of(self, steps_per_epoch: int) -> int:
        """Return the number of steps of a run."""
        # exact in decimals: 1.1 times ten steps are eleven, though the nearest float is a little more
        return self.steps or math.ceil(ExactFraction(str(self.epochs)) * steps_per_epoch)

    def started_as(self, requested: "Recipe") -> bool:
        """Whether a run of the requested recipe may have this one: `min_steps` may have changed its numbers.

        The number of workers and the log do not change the result.
        """
        requested = dataclasses.replace(requested, workers=self.workers, log_every=self.log_every)
        if self.first is not None and requested.first is not None and self.first.started_as(requested.first):
            requested = dataclasses.replace(requested, first=self.first)
        if requested.min_steps is not None:
            requested = dataclasses.replace(requested, batch_size=self.batch_size, epochs=self.epochs)
        return self == requested

    @property
    def reranks(self) -> bool:
        """Whether it trains a re-ranker."""
        return any(entry.objective.task is not None for entry in self.entries.values())

    @property
    def stages(self) -> "tuple[Recipe, ...]":
        """The recipes that are trained one after the other; the last is this one."""
        return (*(() if self.first is None else self.first.stages), self)

    def to_yaml(self) -> str:
        """Return the recipe with every key as YAML."""
        return yaml.safe_dump(dataclasses.asdict(self), sort_keys=False, allow_unicode=True)


KEYS = tuple(field.name for field in dataclasses.fields(Recipe))


def _make_entry(name: str, options: Mapping[str, Any]) -> ObjectiveEntry:
    """Create an objective and the options of its entry."""
    own = {key: value for key, value in options.items() if key in LOOP_OPTIONS}
    others = {key: value for key, value in options.items() if key not in LOOP_OPTIONS}
    try:
        with explaining_errors():
            for_loop = TypeAdapter(LoopOptions).validate_python(own)
        check_keys(options, (*options_of(for_loop.objective or name), *LOOP_OPTIONS))
        return ObjectiveEntry(make_objective(for_loop.objective or name, others), for_loop)
    except InvalidKeyError as error:
        raise error.under(f"objectives.{name}") from None


def _check_entries(recipe: Recipe) -> None:
    """Check that the objectives of a recipe fit each other: those of one re-ranker's task share its head."""
    heads: dict[RerankerTask, tuple[str, RerankerObjective]] = {}
    for name, (objective, _) in recipe.entries.items():
        if not isinstance(objective, RerankerObjective):
            continue
        other, same_task = heads.setdefault(objective.task, (name, objective))
        same_rate = recipe.head_learning_rate_of(name) == recipe.head_learning_rate_of(other)
        if not same_rate or objective.head_dropout != same_task.head_dropout:
            raise RecipeError(
                f"objectives.{other} and objectives.{name} train the same head of a re-ranker: give both the same"
                " head_learning_rate and head_dropout"
            )
    if heads and "selection" not in heads:
        raise InvalidKeyError(
            "objectives", f"has {', '.join(sorted(heads))}: a re-ranker needs response-selection; add it"
        )
    miners = {miner for entry in recipe.entries.values() if (miner := entry.objective.traits.miner)}
    if len(miners) > 1:
        raise RecipeError(f"mined_by: one encoder mines hard negatives for all objectives, not {sorted(miners)}")


def _check_first_stage(first: Recipe, recipe: Recipe) -> None:
    if (backbone := first.backbone) != recipe.backbone:
        raise InvalidKeyError("first.backbone", f"is {backbone}: all stages use one backbone; set backbone={backbone}")
    if first.layers is not None and recipe.layers is not None and first.layers < recipe.layers:
        raise InvalidKeyError("first.layers", f"must be at least layers ({recipe.layers}), got {first.layers}")
    for key in ("probe_every", "keep_best"):
        if getattr(first, key):
            raise InvalidKeyError(f"first.{key}", f"is {getattr(first, key)}: only the last stage is probed")


#: Keys that decide how many steps a run has; `min_steps` changes the last two.
_LENGTH_KEYS = ("steps", "epochs", "batch_size")


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
    _remove_inherited(tree, {field.name: field.default for field in dataclasses.fields(Recipe)})
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
    check_keys(tree, KEYS)
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
    if keys[-1] in _LENGTH_KEYS:
        tree["min_steps"] = None
    entries = {name: options or {} for name, options in tree.get("objectives", {}).items() if options is not False}
    if len(keys) == 1 and keys[0] not in KEYS:
        known = {name: options_of(entry.get("objective", name)) for name, entry in entries.items()}
        targets = [name for name, options in known.items() if keys[0] in {*options, "weight"}]
        if not targets:
            hint = f"; for its first stage use first.{override}" if tree.get("first") else ""
            meant = did_you_mean(keys[0], {*KEYS, "weight"}.union(*known.values()))
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
