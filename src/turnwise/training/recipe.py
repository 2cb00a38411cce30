"""Recipes: everything that a training run depends on besides its corpus, read from YAML, with dotted overrides.

`recipes/` holds the packaged ones: `NAME-paper` has the values that a paper prints, `NAME` is our recommendation.
"""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import yaml

from turnwise.core.errors import RecipeError, TurnwiseError, did_you_mean
from turnwise.core.options import OptionError, convert_option
from turnwise.corpus.storage.store import Store
from turnwise.models.backbone.inputs import RerankerTask
from turnwise.models.backbone.source import Pooling
from turnwise.objectives.objective import Objective
from turnwise.objectives.registry import make_objective, options_of
from turnwise.objectives.ums import RerankerObjective
from turnwise.training.recipe_files import ABOUT, read_recipe

Schedule = Literal["constant", "linear", "cosine", "one-cycle"]
Optimizer = Literal["adam", "adamw"]
Precision = Literal["auto", "fp32", "bf16"]
Compile = Literal["auto", True, False]

#: The smallest shuffle buffer, and the number of neighbouring examples that it reads at once.
SMALLEST_BUFFER = 64

#: Options of an objective's entry that the training loop reads: their type, and their minimum if they are numbers.
_LOOP_OPTIONS: dict[str, tuple[Any, float | None]] = {
    "objective": (str, None),
    "stores": (tuple[str, ...], None),
    "exclude_stores": (tuple[str, ...], None),
    "weight": (float, 0),
    "batch_size": (int, 2),
    "head_learning_rate": (float | None, 0),
}

#: Keys with a minimum; None is allowed where the key allows it.
_MINIMUM = {
    **dict.fromkeys(("steps", "log_every", "checkpoint_every", "keep", "workers", "max_length", "layers"), 1),
    **dict.fromkeys(("min_turns", "tokens_per_forward", "min_steps"), 1),
    **dict.fromkeys(("learning_rate", "head_learning_rate", "weight_decay", "seed"), 0),
    "batch_size": 2,
    "shuffle_buffer": SMALLEST_BUFFER,
}

#: Keys of probabilities, fractions and decay rates; None is allowed where the key allows it.
_BELOW_ONE = ("warmup", "ema", "start_fraction", "dropout", "attention_dropout")

#: Keys that decide how many steps a run has; `min_steps` changes the last two.
_NUMBER_OF_STEPS = ("steps", "epochs", "batch_size")

#: Keys that a first stage takes from the recipe that it belongs to unless it sets them: they describe the run, not the
#: method.
INHERITED = (
    *("backbone", "pooling", "corpus_fraction", "combine_turns", "min_turns", "max_length"),
    *("dropout", "attention_dropout", "layers", "precision", "compile", "cuda_graphs", "tokens_per_forward", "seed"),
    *("shuffle_buffer", "checkpoint_every", "keep", "log_every", "workers", "record_training_data"),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The configuration of a training run."""

    #: Name → options; `weight` (1) multiplies its loss, `batch_size` and `head_learning_rate` override the recipe's,
    #: `stores` are those that it reads (all), `exclude_stores` those that it does not read, by their folders' names or
    #: the readers that imported them. An objective that is used twice needs two names: `objective` is then which one it
    #: is.
    objectives: dict[str, dict[str, Any]]
    backbone: str = "minilm"  # the model to start from: a packaged model, a folder, a Hugging Face id
    pooling: Pooling | None = None  # how token states become vectors; None: the backbone's own, or the mean
    #: Fraction of the dialogues, sampled by their ids: a smaller fraction is a subset of a larger one.
    corpus_fraction: float = 1.0
    combine_turns: bool = False  # whether consecutive turns of one speaker are merged into one
    min_turns: int = 1  # shorter dialogues are not used; counted after turns are combined
    #: Passes over the first objective's examples, or a fraction of one: 0.5 is half of its batches.
    epochs: int | float = 1
    steps: int | None = None  # optimiser steps, instead of epochs
    #: A corpus that gives fewer steps is read in smaller batches and for more epochs (`short_runs`); None: the numbers
    #: are used as they are. Overrides of `steps`, `epochs` and `batch_size` set it to None.
    min_steps: int | None = None
    batch_size: int = 128  # examples per step over all processes; the loss sees them all, however they are encoded
    learning_rate: float = 3e-5  # of the encoder
    head_learning_rate: float | None = None  # of the heads; None: the encoder's
    optimizer: Optimizer = "adamw"
    weight_decay: float = 0.0  # of matrices, not of biases and norms
    schedule: Schedule = "constant"
    warmup: float = 0.0  # fraction of the steps in which the learning rate rises
    clip: float | None = None  # largest norm of the gradient; None: no limit
    max_length: int = 64  # tokens of a turn, including special tokens
    dropout: float | None = None  # on hidden states; None: the backbone's own, or that of the first stage
    attention_dropout: float | None = None  # on attention weights; None: likewise. 0 allows a GPU's fastest kernel
    layers: int | None = None  # transformer layers to keep, from the bottom; None: all
    frozen_layers: int | Literal["half"] = 0  # layers from the bottom that are not trained; 'half' is rounded down
    frozen_embeddings: bool = False  # whether the embeddings are not trained
    precision: Precision = "auto"  # 'bf16': all but the loss in half precision; 'auto': bf16 if the GPU supports it
    compile: Compile = "auto"  # whether torch compiles the backbone (a minute); 'auto': in long runs on a GPU
    #: Whether streams are padded to a few sizes and replayed as CUDA graphs; 'auto': for small backbones, where a GPU
    #: would wait for the host.
    cuda_graphs: Compile = "auto"
    #: Tokens encoded at once; for larger batches gradients are cached. None: as many as fit the machine.
    tokens_per_forward: int | None = None
    ema: float = 0.0  # decay of an exponential moving average of the weights, which is then what is saved; 0: none
    start_fraction: float = 0.0  # fraction of the starting weights that is averaged into the saved encoder
    seed: int = 1  # of all random numbers
    #: How many examples are shuffled together, in blocks of neighbours drawn from everywhere; None: all at once.
    shuffle_buffer: int | None = None
    checkpoint_every: int = 1000  # steps between checkpoints
    checkpoint_epochs: bool = False  # also save the model at the end of every epoch, in `epochs/`
    keep: int = 2  # number of checkpoints to keep
    #: Save filters of the texts with the model, by which leakage is found; whoever has them can test for known texts.
    record_training_data: bool = True
    log_every: int = 10  # steps between lines of `metrics.jsonl`
    #: Steps between evaluations of the probe, if one is given; 0: only before and after training.
    probe_every: int | Literal["epoch"] = 0
    keep_best: str | None = None  # a metric of the probe; the model with the highest value is saved in `best/`
    workers: int = 2  # threads that prepare batches; does not change the result
    #: A recipe that is trained before this one, which starts from its model; in YAML it inherits the keys `INHERITED`.
    first: "Recipe | None" = None
    describes: str = field(default="", compare=False)  # what the recipe is for

    def __post_init__(self) -> None:
        # in the form that YAML gives: a resumed run compares its recipe with the saved one
        object.__setattr__(self, "objectives", _check_objectives(self.objectives))
        if not self.objectives:
            raise RecipeError("objectives: name at least one")
        for key, minimum in _MINIMUM.items():
            value = getattr(self, key)
            if value is not None and value < minimum:
                raise RecipeError(f"{key} must be {minimum} or more{_or_null(key)}, got {value}")
        if not 0 < self.epochs < math.inf:
            raise RecipeError(f"epochs must be positive, got {self.epochs}")
        if self.clip is not None and self.clip <= 0:
            raise RecipeError(f"clip must be positive{_or_null('clip')}, got {self.clip}")
        for key, word in (("probe_every", "epoch"), ("frozen_layers", "half")):
            if getattr(self, key) != word and getattr(self, key) < 0:
                raise RecipeError(f"{key} must be 0 or more, or {word}; got {getattr(self, key)}")
        for key in _BELOW_ONE:
            value = getattr(self, key)
            if value is not None and not 0 <= value < 1:
                raise RecipeError(f"{key} must be at least 0 and below 1{_or_null(key)}, got {value}")
        if not 0 < self.corpus_fraction <= 1:
            raise RecipeError(f"corpus_fraction must be above 0 and at most 1, got {self.corpus_fraction}")
        if self.pooling == "first-last":
            raise RecipeError(
                "pooling=first-last cannot be saved with a model: train with mean, evaluate with --pooling first-last"
            )
        if self.first is not None:
            _check_first_stage(self.first, self)
        tasks = self._reranker_tasks()
        if tasks and "selection" not in tasks:
            raise RecipeError(
                f"objectives: {', '.join(sorted(map(str, tasks)))}: a re-ranker needs response-selection; add it"
            )

    def _reranker_tasks(self) -> set[RerankerTask]:
        """Return the tasks that a re-ranker is trained for; objectives of one task share its head, and must agree."""
        first: dict[RerankerTask, tuple[str, RerankerObjective]] = {}
        for name, objective in self.make().items():
            if not isinstance(objective, RerankerObjective):
                continue
            other, other_objective = first.setdefault(objective.task, (name, objective))
            same_rate = self.head_learning_rate_of(name) == self.head_learning_rate_of(other)
            if not same_rate or objective.head_dropout != other_objective.head_dropout:
                raise RecipeError(
                    f"objectives.{other} and objectives.{name} train the same head of a re-ranker: give both the same"
                    " head_learning_rate and head_dropout"
                )
        miners = {objective.miner for objective in self.make().values() if objective.miner is not None}
        if len(miners) > 1:
            raise RecipeError(f"mined_by: one encoder mines hard negatives for all objectives, not {sorted(miners)}")
        return set(first)

    def make(self) -> dict[str, Objective]:
        """Create the objectives."""
        return {
            name: make_objective(
                options.get("objective", name),
                {key: value for key, value in options.items() if key not in _LOOP_OPTIONS},
                name,
            )
            for name, options in self.objectives.items()
        }

    def selected_stores(self, stores: Sequence[Store]) -> dict[str, list[int]]:
        """Return the numbers of the stores that objectives read; those that read all are left out.

        Raises:
            RecipeError: if an objective names a store that is not given, or no store is left for it.
        """
        folders = [store.folder.resolve().name for store in stores]
        names = [{folder, store.manifest.get("reader")} for folder, store in zip(folders, stores, strict=True)]
        selected = {}
        for objective, options in self.objectives.items():
            wanted, excluded = options.get("stores"), options.get("exclude_stores")
            if wanted is None and excluded is None:
                continue
            for key, listed in (("stores", wanted or ()), ("exclude_stores", excluded or ())):
                missing = [each for each in listed if not any(each in known for known in names)]
                if missing:
                    raise RecipeError(
                        f"objectives.{objective}.{key}: no store or reader is named {', '.join(missing)}; this run"
                        f" reads {', '.join(folders)}. Add the store with --corpus"
                    )
            selected[objective] = [
                number
                for number, known in enumerate(names)
                if (wanted is None or known & set(wanted)) and not known & set(excluded or ())
            ]
            if not selected[objective]:
                raise RecipeError(
                    f"objectives.{objective}: no store is left to read, of {', '.join(folders)}. Add one with --corpus"
                )
        return selected

    def weight(self, objective: str) -> float:
        """Return the factor of an objective's loss."""
        return float(self.objectives[objective].get("weight", 1.0))

    def batch_of(self, objective: str) -> int:
        """Return an objective's batch size."""
        return int(self.objectives[objective].get("batch_size", self.batch_size))

    def head_learning_rate_of(self, objective: str) -> float:
        """Return the learning rate of an objective's heads."""
        rates = (self.objectives[objective].get("head_learning_rate"), self.head_learning_rate, self.learning_rate)
        return float(next(rate for rate in rates if rate is not None))

    def steps_of(self, steps_per_epoch: int) -> int:
        """Return the number of steps of a run."""
        # exact in decimals: 1.1 times ten steps are eleven, though the nearest float is a little more
        return self.steps or math.ceil(Fraction(str(self.epochs)) * steps_per_epoch)

    def started_as(self, requested: "Recipe") -> bool:
        """Whether a run of the requested recipe may have this one: only `min_steps` may have changed its numbers."""
        if requested.min_steps is not None:
            requested = dataclasses.replace(requested, batch_size=self.batch_size, epochs=self.epochs)
        return self == requested

    @property
    def reranks(self) -> bool:
        """Whether it trains a re-ranker."""
        return any(objective.task is not None for objective in self.make().values())

    @property
    def stages(self) -> "tuple[Recipe, ...]":
        """The recipes that are trained one after the other; the last is this one."""
        return (*(() if self.first is None else self.first.stages), self)

    def to_yaml(self) -> str:
        """Return the recipe with every key as YAML."""
        return yaml.safe_dump(dataclasses.asdict(self), sort_keys=False, allow_unicode=True)


def _or_null(key: str) -> str:
    """Return ', or null' if a key of a recipe may have no value, else ''."""
    return ", or null" if type(None) in typing.get_args(typing.get_type_hints(Recipe)[key]) else ""


def _check_first_stage(first: Recipe, recipe: Recipe) -> None:
    if (backbone := first.backbone) != recipe.backbone:
        raise RecipeError(f"first.backbone={backbone}: all stages use one backbone; set backbone={backbone}")
    if first.layers is not None and recipe.layers is not None and first.layers < recipe.layers:
        raise RecipeError(f"first.layers must be at least layers ({recipe.layers}), got {first.layers}")
    for key in ("probe_every", "keep_best"):
        if getattr(first, key):
            raise RecipeError(f"first.{key}={getattr(first, key)}: only the last stage is probed")


# ---- reading


def load_recipe(name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe from a file, or a packaged one by its name ('dse', 'dse-paper'), and apply overrides `key=value`.

    A key may be dotted (`objectives.dse.temperature=0.1`, `first.steps=100`). A key that the recipe does not have is
    set for the objectives that have it (`temperature=0.1`). A key of `INHERITED` is also set for the first stage unless
    that has its own value; `first=null` removes the first stage, and `objectives.NAME=false` an objective. A number of
    `steps`, `epochs` or `batch_size` is used as it is: it sets `min_steps` of its stage to null.

    Raises:
        RecipeError: if there is no such recipe, or it has an unknown key or an invalid value.
    """
    tree = read_recipe(name)
    tree.pop(ABOUT, None)
    _remove_inherited(tree, {each.name: each.default for each in dataclasses.fields(Recipe)})
    for override in sorted(overrides, key=lambda each: each.partition("=")[0].endswith("min_steps")):  # these last
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise RecipeError(f"{override!r}: expected key=value")
        _set(tree, key.split("."), parse_scalar(value), override)
    return from_tree(tree)


def from_tree(tree: Mapping[str, Any]) -> Recipe:
    """Create a recipe from parsed YAML, checking every key."""
    hints = typing.get_type_hints(Recipe)
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in hints:
            raise RecipeError(f"{key}: unknown key.{did_you_mean(key, hints)} A recipe has {', '.join(hints)}")
        values[key] = value if key in ("objectives", "first") else _check(key, hints[key], value)
    if "objectives" not in values:
        raise RecipeError("objectives: name at least one")
    if values.get("first") is not None:
        Recipe(**values | {"first": None})  # errors of keys that the first stage would inherit have their own name
        values["first"] = _first_stage(values["first"], {key: values[key] for key in INHERITED if key in values})
    return Recipe(**values)


def _first_stage(tree: Any, inherited: Mapping[str, Any]) -> Recipe:
    """Create a first stage from parsed YAML; errors have its dotted name."""
    if not isinstance(tree, Mapping):
        raise RecipeError(f"first={tree!r}: expected the keys of a recipe, or nothing")
    try:
        return from_tree({**inherited, **tree})
    except RecipeError as error:
        raise RecipeError(f"first.{error}") from None
    except TurnwiseError as error:
        raise RecipeError(f"first: {error}") from error


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


def _set(tree: dict[str, Any], keys: list[str], value: Any, override: str) -> None:
    """Apply an override to parsed YAML."""
    if len(keys) > 1 and keys[0] == "first":
        if not isinstance(tree.get("first"), dict):
            raise RecipeError(f"{override!r}: the recipe has no first stage")
        _set(tree["first"], keys[1:], value, override)
        return
    if keys[-1] in _NUMBER_OF_STEPS:
        tree["min_steps"] = None
    if len(keys) == 1 and keys[0] not in typing.get_type_hints(Recipe):
        entries = {name: options or {} for name, options in tree.get("objectives", {}).items() if options is not False}
        targets = [
            name
            for name, options in entries.items()
            if keys[0] in options_of(options.get("objective", name)) or keys[0] == "weight"
        ]
        if not targets:
            hint = f"; for its first stage use first.{override}" if tree.get("first") else ""
            options = {key for name, entry in entries.items() for key in options_of(entry.get("objective", name))}
            meant = did_you_mean(keys[0], {*typing.get_type_hints(Recipe), *options, *_LOOP_OPTIONS})
            raise RecipeError(
                f"{override!r}: neither the recipe nor its objectives have a key {keys[0]!r}{hint}.{meant}"
            )
        for name in targets:
            tree["objectives"][name] = {**entries[name], keys[0]: value}
        return
    own = [(options or {}).get(keys[0]) is not None for options in (tree.get("objectives") or {}).values()]
    if len(keys) == 1 and keys[0] in _LOOP_OPTIONS and own and all(own):
        instead = override.replace(keys[0], f"objectives.NAME.{keys[0]}", 1)
        raise RecipeError(f"{override!r} would change nothing: every objective sets its own; use {instead}")
    branch = tree
    for key in keys[:-1]:
        if not isinstance(branch.get(key), dict):
            branch[key] = {}
        branch = branch[key]
    branch[keys[-1]] = value


def _check_objectives(value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not all(
        isinstance(options, dict | None) or options is False for options in value.values()
    ):
        raise RecipeError("objectives: expected names, each with its options, or false to remove one")
    return {
        name: {key: _check_option(name, key, given) for key, given in (options or {}).items()}
        for name, options in value.items()
        if options is not False
    }


def _check_option(objective: str, key: str, value: Any) -> Any:
    """Check an option that the loop reads; the objective checks its own."""
    if key not in _LOOP_OPTIONS:
        return list(value) if isinstance(value, tuple) else value
    kind, minimum = _LOOP_OPTIONS[key]
    result = _check(f"objectives.{objective}.{key}", kind, value)
    if result is not None and minimum is not None and result < minimum:
        raise RecipeError(f"objectives.{objective}.{key} must be {minimum:g} or more, got {value}")
    return list(result) if isinstance(result, tuple) else result


def _check(key: str, kind: Any, value: Any) -> Any:
    try:
        return convert_option(key, kind, value)
    except OptionError as error:
        raise RecipeError(str(error)) from None
