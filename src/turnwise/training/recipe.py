"""Recipes: everything that a training run depends on besides its corpus, as a dataclass, from YAML, with dotted overrides."""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import yaml

from turnwise.core.errors import TurnwiseError
from turnwise.core.options import OptionError, checked
from turnwise.models.backbone.pooling import Pooling
from turnwise.objectives.objective import Objective
from turnwise.objectives.registry import make_objective, options_of
from turnwise.training.order import NEIGHBOURS
from turnwise.training.recipes import packaged, yaml_text

Schedule = Literal["constant", "linear", "cosine", "one-cycle"]
Optimizer = Literal["adam", "adamw"]
Precision = Literal["auto", "fp32", "bf16"]

#: Whether the backbone is compiled before it is trained.
Compiling = Literal["auto", True, False]

#: What an objective's entry may say to the loop, its kind, and the least it may be.
_LOOP_OPTIONS: dict[str, tuple[Any, float]] = {
    "weight": (float, 0),
    "batch_size": (int, 2),
    "head_learning_rate": (float | None, 0),
}

#: What a first stage takes from the recipe that it belongs to, unless it says otherwise: what describes the run, not the method.
INHERITED = (
    *(
        "backbone",
        "pooling",
        "corpus_share",
        "combine_turns",
        "least_turns",
        "max_length",
        "dropout",
        "attention_dropout",
    ),
    *("layers", "precision", "compile", "tokens_per_forward", "seed", "shuffle_buffer"),
    *("checkpoint_every", "keep", "log_every", "workers"),
)


class RecipeError(TurnwiseError):
    """A recipe says something that cannot be; the message says which key and what it may be."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A training run.

    Attributes:
        objectives: name → options; `weight` (1) is what its loss counts, `batch_size` and `head_learning_rate` its own where they
            differ from the recipe's.
        backbone: what to start from: 'minilm', a folder, a Hugging Face id.
        pooling: how token states become vectors; None: the backbone's own, or the mean.
        corpus_share: of the dialogues that are learnt from, drawn by their ids: a smaller share is part of a larger one.
        combine_turns: whether consecutive turns of one speaker are read as one turn.
        least_turns: dialogues of fewer turns are not learnt from; counted after turns are combined.
        epochs: passes over the first objective's examples, or a part of one: 0.5 is half of its batches; ignored where `steps` is
            given.
        steps: optimiser steps.
        batch_size: examples of a step, over all processes: the loss sees them all at once, however they are encoded.
        learning_rate: of the encoder.
        head_learning_rate: of the heads; None: the encoder's.
        optimizer: 'adam' or 'adamw'.
        weight_decay: of matrices, not of biases and norms.
        schedule: 'constant', 'linear', 'cosine' or 'one-cycle'.
        warmup: share of the steps in which the rate rises.
        clip: largest norm of the gradient; None: no limit.
        max_length: tokens of a turn, special ones included.
        dropout: on hidden states; None: the backbone's own, or what a first stage had.
        attention_dropout: on attention weights; None: likewise. 0 lets the fastest kernel run on a GPU.
        layers: transformer layers that are kept, from the bottom; None: all.
        frozen_layers: transformer layers, from the bottom, that are not trained; 'half': half of them, rounded down.
        frozen_embeddings: whether the embeddings are not trained.
        precision: 'bf16' computes in half precision with the loss in full; 'auto': on a GPU that can.
        compile: true has torch compile the backbone, about a minute's work that pays in long runs on a GPU; 'auto': in those.
        tokens_per_forward: tokens encoded at once; beyond it gradients are cached. None: what fits the machine.
        ema: decay of a moving average of the weights, which is then what is saved; 0: none.
        seed: of everything that chance decides.
        shuffle_buffer: how many examples are shuffled together, in blocks of neighbours drawn from everywhere; None: all at once.
        checkpoint_every: steps between checkpoints that a run can go on from.
        checkpoint_epochs: also keep the model at the end of every epoch, in `epochs/`.
        keep: how many checkpoints stay.
        log_every: steps between lines of `metrics.jsonl`.
        probe_every: steps between evaluations of the probe, where one is given, or 'epoch'; 0: only before and after.
        keep_best: a figure of the probe; the model with the highest is kept in `best/`.
        workers: threads that prepare batches; does not change the result.
        first: a recipe that is trained before this one, which then starts from its model; one that is read from YAML takes the keys
            of `INHERITED` that it does not give from this one.
    """

    objectives: dict[str, dict[str, Any]]
    backbone: str = "minilm"
    pooling: Pooling | None = None
    corpus_share: float = 1.0
    combine_turns: bool = False
    least_turns: int = 1
    epochs: int | float = 1
    steps: int | None = None
    batch_size: int = 128
    learning_rate: float = 3e-5
    head_learning_rate: float | None = None
    optimizer: Optimizer = "adamw"
    weight_decay: float = 0.0
    schedule: Schedule = "constant"
    warmup: float = 0.0
    clip: float | None = None
    max_length: int = 64
    dropout: float | None = None
    attention_dropout: float | None = None
    layers: int | None = None
    frozen_layers: int | Literal["half"] = 0
    frozen_embeddings: bool = False
    precision: Precision = "auto"
    compile: Compiling = "auto"
    tokens_per_forward: int | None = None
    ema: float = 0.0
    seed: int = 1
    shuffle_buffer: int | None = None
    checkpoint_every: int = 1000
    checkpoint_epochs: bool = False
    keep: int = 2
    log_every: int = 10
    probe_every: int | Literal["epoch"] = 0
    keep_best: str | None = None
    workers: int = 2
    first: "Recipe | None" = None
    describes: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        # as YAML would read it back: a resumed run compares
        object.__setattr__(self, "objectives", _objectives(self.objectives))
        if not self.objectives:
            raise RecipeError("objectives: name at least one")
        for key, value in (("steps", self.steps), ("batch_size", self.batch_size)):
            if value is not None and value < (2 if key == "batch_size" else 1):
                raise RecipeError(f"{key}={value}: too small")
        if not 0 < self.epochs < math.inf:
            raise RecipeError(f"epochs={self.epochs}: needs to be above 0")
        for key in ("log_every", "checkpoint_every", "keep", "workers", "max_length", "layers", "least_turns"):
            if getattr(self, key) is not None and getattr(self, key) < 1:
                raise RecipeError(f"{key}={getattr(self, key)}: needs to be 1 or more")
        if self.probe_every != "epoch" and self.probe_every < 0:
            raise RecipeError(f"probe_every={self.probe_every}: needs to be 0 or more, or epoch")
        if self.frozen_layers != "half" and self.frozen_layers < 0:
            raise RecipeError(f"frozen_layers={self.frozen_layers}: needs to be 0 or more, or half")
        for key in ("warmup", "ema"):
            if not 0 <= getattr(self, key) < 1:
                raise RecipeError(f"{key}={getattr(self, key)}: a share from 0 to below 1")
        if self.shuffle_buffer is not None and self.shuffle_buffer < NEIGHBOURS:
            raise RecipeError(
                f"shuffle_buffer={self.shuffle_buffer}: needs to be {NEIGHBOURS} or more; null shuffles everything"
            )
        if not 0 < self.corpus_share <= 1:
            raise RecipeError(f"corpus_share={self.corpus_share}: a share from above 0 to 1")
        if self.pooling == "first-last":
            raise RecipeError(
                "pooling=first-last: a model folder cannot say so; train with mean, evaluate with --pooling first-last"
            )
        if self.first is not None:
            _check_first(self.first, self)
        tasks = {objective.task for objective in self.make().values()} - {None}
        if tasks and "selection" not in tasks:
            raise RecipeError(
                f"objectives: {', '.join(sorted(map(str, tasks)))}: a re-ranker scores nothing without response-selection; add that"
            )

    def make(self) -> dict[str, Objective]:
        """The objectives, made."""
        return {name: make_objective(name, _own(options)) for name, options in self.objectives.items()}

    def weight(self, objective: str) -> float:
        """What an objective's loss counts."""
        return float(self.objectives[objective].get("weight", 1.0))

    def batch_of(self, objective: str) -> int:
        """An objective's examples of a step."""
        return int(self.objectives[objective].get("batch_size", self.batch_size))

    def head_learning_rate_of(self, objective: str) -> float:
        """The learning rate of an objective's heads."""
        rates = (self.objectives[objective].get("head_learning_rate"), self.head_learning_rate, self.learning_rate)
        return float(next(rate for rate in rates if rate is not None))

    def steps_of(self, steps_per_epoch: int) -> int:
        """How many steps a run takes whose pass over the examples takes so many."""
        # exact in decimals: 1.1 times ten steps are eleven, though the nearest float is a little more
        return self.steps or math.ceil(Fraction(str(self.epochs)) * steps_per_epoch)

    @property
    def reranks(self) -> bool:
        """Whether it trains a re-ranker."""
        return any(objective.task is not None for objective in self.make().values())

    @property
    def stages(self) -> "tuple[Recipe, ...]":
        """What is trained one after the other: the first stage and what goes before it, then the recipe itself."""
        return (*(() if self.first is None else self.first.stages), self)

    def to_yaml(self) -> str:
        """The recipe with every key, as YAML."""
        return yaml.safe_dump(dataclasses.asdict(self), sort_keys=False, allow_unicode=True)


def _own(options: Mapping[str, Any]) -> dict[str, Any]:
    """An objective's own options, without those of the loop."""
    return {key: value for key, value in options.items() if key not in _LOOP_OPTIONS}


def _check_first(first: Recipe, recipe: Recipe) -> None:
    """Refuses what a first stage cannot have beside the recipe that goes on from it."""
    if first.backbone != recipe.backbone:
        raise RecipeError(f"first.backbone={first.backbone}: both stages start from one; say backbone={first.backbone}")
    if first.layers is not None and recipe.layers is not None and first.layers < recipe.layers:
        raise RecipeError(f"first.layers={first.layers}: too few for layers={recipe.layers} of what goes on from it")
    for key in ("probe_every", "keep_best"):
        if getattr(first, key):
            raise RecipeError(f"first.{key}={getattr(first, key)}: only the last stage is probed")


def load_recipe(name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from a file, or a packaged one by its name ('dse', 'dse-paper'), with overrides `key=value` applied.

    A key may be dotted (`objectives.dse.temperature=0.1`, `first.steps=100`). One that the recipe itself does not have, but its
    objectives do, is set for those (`temperature=0.1`). A key of `INHERITED` is set for the first stage, too, unless that has
    another value of its own; `first=null` leaves that stage out, and `objectives.NAME=false` an objective.

    Raises:
        RecipeError: if there is no such recipe, or a key or value that cannot be.
    """
    tree = _read(name)
    _leave_to_inherit(tree, {each.name: each.default for each in dataclasses.fields(Recipe)})
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise RecipeError(f"{override!r}: expected key=value")
        _set(tree, key.split("."), parse_scalar(value), override)
    return from_tree(tree)


def from_tree(tree: Mapping[str, Any]) -> Recipe:
    """A recipe from what YAML holds, every key checked."""
    hints = typing.get_type_hints(Recipe)
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in hints:
            raise RecipeError(f"{key}: a recipe has no such key; it has {', '.join(hints)}")
        values[key] = value if key in ("objectives", "first") else _checked(key, hints[key], value)
    if "objectives" not in values:
        raise RecipeError("objectives: name at least one")
    if values.get("first") is not None:
        Recipe(**{**values, "first": None})  # what the first stage would inherit is told by the recipe's own name
        values["first"] = _first(values["first"], {key: values[key] for key in INHERITED if key in values})
    return Recipe(**values)


def _first(tree: Any, inherited: Mapping[str, Any]) -> Recipe:
    """A first stage from what YAML holds; what is wrong with it is said by its dotted name."""
    if not isinstance(tree, Mapping):
        raise RecipeError(f"first={tree!r}: expected the keys of a recipe, or nothing")
    try:
        return from_tree({**inherited, **tree})
    except RecipeError as error:
        raise RecipeError(f"first.{error}") from None
    except TurnwiseError as error:
        raise RecipeError(f"first: {error}") from error


def _leave_to_inherit(tree: Mapping[str, Any], inherited: Mapping[str, Any]) -> None:
    """Takes out of a first stage what it would inherit anyway, so that an override of it reaches all stages."""
    first = tree.get("first")
    if isinstance(first, dict):
        here = {key: tree.get(key, inherited[key]) for key in INHERITED}
        _leave_to_inherit(first, here)
        for key in INHERITED:
            if key in first and first[key] == here[key]:
                del first[key]


def _read(name: str | Path) -> dict[str, Any]:
    text = yaml_text(name)
    if text is None:
        raise RecipeError(f"there is no recipe {str(name)!r}: name a YAML file, or one of {', '.join(packaged())}")
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"{name} is not valid YAML: {error}") from None
    if not isinstance(tree, dict):
        raise RecipeError(f"{name} holds no keys")
    return tree


def parse_scalar(value: str) -> Any:
    """What a text on the command line stands for, as YAML reads it; `3e-5` is a number."""
    try:
        parsed = yaml.safe_load(value) if value else value
    except yaml.YAMLError as error:
        raise RecipeError(f"{value!r} is not valid YAML: {str(error).splitlines()[0]}") from None
    if isinstance(parsed, str):  # YAML 1.1 takes 3e-5 for a text
        try:
            return float(parsed)
        except ValueError:
            return parsed
    return parsed


def _set(tree: dict[str, Any], keys: list[str], value: Any, override: str) -> None:
    if len(keys) > 1 and keys[0] == "first":
        if not isinstance(tree.get("first"), dict):
            raise RecipeError(f"{override!r}: the recipe has no first stage")
        _set(tree["first"], keys[1:], value, override)
        return
    if len(keys) == 1 and keys[0] not in typing.get_type_hints(Recipe):
        taking_part = [name for name, options in tree.get("objectives", {}).items() if options is not False]
        having = [name for name in taking_part if keys[0] in options_of(name) or keys[0] == "weight"]
        if not having:
            hint = f"; its first stage is asked by first.{override}" if tree.get("first") else ""
            raise RecipeError(f"{override!r}: neither the recipe nor its objectives have a key {keys[0]!r}{hint}")
        for name in having:
            tree["objectives"][name] = {**(tree["objectives"][name] or {}), keys[0]: value}
        return
    given = [(options or {}).get(keys[0]) is not None for options in (tree.get("objectives") or {}).values()]
    if len(keys) == 1 and keys[0] in _LOOP_OPTIONS and given and all(given):
        instead = override.replace(keys[0], f"objectives.NAME.{keys[0]}", 1)
        raise RecipeError(f"{override!r} would change nothing: every objective has its own; say {instead}")
    branch = tree
    for key in keys[:-1]:
        if not isinstance(branch.get(key), dict):
            branch[key] = {}
        branch = branch[key]
    branch[keys[-1]] = value


def _objectives(value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not all(
        isinstance(options, dict | None) or options is False for options in value.values()
    ):
        raise RecipeError("objectives: expected names, each with its options, or false to leave one out")
    return {
        name: {key: _loop_option(name, key, given) for key, given in (options or {}).items()}
        for name, options in value.items()
        if options is not False
    }


def _loop_option(objective: str, key: str, value: Any) -> Any:
    """An option as the loop takes it; those of the objective itself are for it to check."""
    if key not in _LOOP_OPTIONS:
        return list(value) if isinstance(value, tuple) else value
    kind, least = _LOOP_OPTIONS[key]
    found = _checked(f"objectives.{objective}.{key}", kind, value)
    if found is not None and found < least:
        raise RecipeError(f"objectives.{objective}.{key}={value}: needs to be {least:g} or more")
    return found


def _checked(key: str, kind: Any, value: Any) -> Any:
    try:
        return checked(key, kind, value)
    except OptionError as error:
        raise RecipeError(str(error)) from None
