"""Recipes: everything that a training run depends on besides its corpus.

`recipes/` holds the packaged ones: `NAME-paper` has the values that a paper prints, `NAME` is our recommendation.
`recipe_loading` reads them.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction as ExactFraction
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import Field, ModelWrapValidatorHandler, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from turnwise.core.errors import RecipeError
from turnwise.core.validation import (
    STRICT,
    InvalidKeyError,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Rate,
    explaining_errors,
)
from turnwise.corpus.storage.store import Store
from turnwise.models.backbone.inputs import RerankerTask
from turnwise.models.backbone.source import Pooling
from turnwise.objectives.objective import Objective
from turnwise.objectives.registry import make_objective
from turnwise.objectives.ums import RerankerObjective

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

BatchSize = Annotated[int, Field(ge=2)]


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


LOOP_OPTIONS = {field.name for field in dataclasses.fields(LoopOptions)}

_LOOP_OPTIONS = TypeAdapter(LoopOptions)


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
    pooling: Pooling | None = None  # how token states become vectors; None: the backbone's own, or the mean
    #: Fraction of the dialogues, sampled by their ids: a smaller fraction is a subset of a larger one.
    corpus_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    combine_turns: bool = False  # whether consecutive turns of one speaker are merged into one
    min_turns: PositiveInt = 1  # shorter dialogues are not used; counted after turns are combined
    #: Passes over the first objective's examples, or a fraction of one: 0.5 is half of its batches.
    epochs: Annotated[int | float, Field(gt=0, allow_inf_nan=False)] = 1
    steps: PositiveInt | None = None  # optimiser steps, instead of epochs
    #: A corpus that gives fewer steps is read in smaller batches and for more epochs (`short_runs`); None: the numbers
    #: are used as they are. Overrides of `steps`, `epochs` and `batch_size` set it to None.
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
    shuffle_buffer: Annotated[int, Field(ge=SMALLEST_BUFFER)] | None = None
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
        with explaining_errors(KEYS):
            return check(values)

    def __post_init__(self) -> None:
        if not self.objectives:
            raise InvalidKeyError("objectives", "is empty: name at least one")
        # as YAML gives them: a resumed run compares its recipe with the saved one
        for options in self.objectives.values():
            options.update({key: list(value) for key, value in options.items() if isinstance(value, tuple)})
        if self.pooling == "first-last":
            raise InvalidKeyError(
                "pooling",
                "cannot be first-last, which is not saved with a model: train with mean, and evaluate with --pooling"
                " first-last",
            )
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
        names = [{folder, store.manifest.get("reader")} for folder, store in zip(folders, stores, strict=True)]
        selected = {}
        for objective, (_, options) in self.entries.items():
            wanted, excluded = options.stores, options.exclude_stores or ()
            if wanted is None and not excluded:
                continue
            for key, listed in (("stores", wanted or ()), ("exclude_stores", excluded)):
                missing = [each for each in listed if not any(each in known for known in names)]
                if missing:
                    raise RecipeError(
                        f"objectives.{objective}.{key}: no store or reader is named {', '.join(missing)}; this run"
                        f" reads {', '.join(folders)}. Add the store with --corpus"
                    )
            selected[objective] = [
                number
                for number, known in enumerate(names)
                if (wanted is None or known & set(wanted)) and not known & set(excluded)
            ]
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
        """Whether a run of the requested recipe may have this one: only `min_steps` may have changed its numbers."""
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
        with explaining_errors(LOOP_OPTIONS):
            for_loop = _LOOP_OPTIONS.validate_python(own)
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
    miners = {entry.objective.miner for entry in recipe.entries.values() if entry.objective.miner is not None}
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
