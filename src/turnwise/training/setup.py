"""The set-up of a run: the model that it starts from, the heads of its objectives, and their batches."""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import nn

from turnwise.core.errors import TrainingError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.storage.corpus import Corpus
from turnwise.models.backbone.inputs import ROLE_TOKENS, WINDOW, RerankerTask
from turnwise.models.backbone.language_head import LanguageHead, read_language_head, word_embeddings
from turnwise.models.backbone.source import is_reranker, locate_model
from turnwise.models.reranker import Reranker
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.objectives.objective import Objective
from turnwise.objectives.ums import ResponseSelection, UtteranceManipulation
from turnwise.training.batches import BatchLoader, make_loaders
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.distributed import Processes
from turnwise.training.recipe import Recipe
from turnwise.training.teacher import Teacher

#: The result of training.
Model = TrainableEncoder | Reranker

#: Fewer steps or examples than this get a warning.
FEW_STEPS, FEW_EXAMPLES = 200, 300

#: What `min_steps` does: steps per epoch that smaller batches aim at, the smallest batch, and the most epochs.
_STEPS_PER_EPOCH, _SMALLEST_BATCH, _MOST_EPOCHS = 50, 16, 20

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainedObjective:
    """An objective in a run, with its heads and the weight of its loss."""

    name: str
    objective: Objective
    heads: nn.Module
    weight: float
    teacher: Teacher | None = None


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """Everything that a run needs before its first step."""

    recipe: Recipe
    corpus: TrainingCorpus
    processes: Processes
    encoder: TrainableEncoder
    parts: list[TrainedObjective]
    loaders: list[BatchLoader]  # one per objective
    model: Model  # the encoder, or a re-ranker that shares its weights and those of the heads
    steps: int

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a pass over the first objective's examples."""
        return self.loaders[0].steps_per_epoch


def select_corpus(recipe: Recipe, corpus: Corpus) -> Corpus:
    """Return the corpus as a recipe reads it."""
    return corpus.sample(recipe.corpus_fraction).prepare(recipe.combine_turns, recipe.min_turns)


def set_up(
    recipe: Recipe, corpus: TrainingCorpus, start: str | Path, processes: Processes, progress: Progress = silent
) -> TrainingSetup:
    """Load the model, prepare the data and create the heads.

    `corpus` is as the recipe reads it (`select_corpus`). `start` is the folder of an encoder, a re-ranker or a
    backbone, a packaged model, or a Hugging Face id. The recipe of the result has the batch size and epochs that
    `min_steps` leads to on this corpus.
    """
    torch.manual_seed(recipe.seed)
    objectives = {name: entry.objective for name, entry in recipe.entries.items()}
    for objective in objectives.values():
        objective.check_corpus(corpus.dialogues)
    folder = locate_model(start)
    encoder, pretrained_heads = _load(recipe, folder)
    _adapt(encoder, recipe, objectives)
    encoder.to(processes.device)
    with processes.main_first():
        loaders = make_loaders(recipe, corpus, objectives, encoder, progress)
        fitted = fit_to_corpus(recipe, len(loaders[0].examples), loaders[0].steps_per_epoch)
        if fitted != recipe:
            recipe = fitted
            loaders = make_loaders(recipe, corpus, objectives, encoder, progress)
    parts = []
    teachers: dict[str, Teacher] = {}  # which objectives share
    task_heads: dict[RerankerTask, nn.Module] = {}  # which objectives of one task share
    for name, objective in objectives.items():
        task, teacher = objective.task, objective.traits.teacher
        heads = task_heads.get(task) if task is not None else None
        if heads is None:
            heads = _make_heads(objective, encoder, folder)
        if task is not None:
            task_heads[task] = heads
            if task in pretrained_heads:
                _linear(heads).load_state_dict(pretrained_heads[task].state_dict())
        if teacher is not None and teacher not in teachers:
            teachers[teacher] = Teacher.load(name, teacher, encoder)
        own = None if teacher is None else teachers[teacher]
        parts.append(TrainedObjective(name, objective, heads, recipe.entries[name].options.weight, own))
    steps = recipe.steps_of(loaders[0].steps_per_epoch)
    return TrainingSetup(recipe, corpus, processes, encoder, parts, loaders, _build_model(encoder, parts), steps)


def fit_to_corpus(recipe: Recipe, examples: int, steps_per_epoch: int) -> Recipe:
    """Return a recipe with smaller batches and more epochs if it has `min_steps` and the corpus gives fewer steps.

    The batch size is halved until an epoch has 50 steps, but not below 16; there are at most 20 epochs. `examples` and
    `steps_per_epoch` are those of the first objective, whose own batch size is kept if it has one.
    """
    if recipe.min_steps is None or recipe.steps_of(steps_per_epoch) >= recipe.min_steps:
        return recipe
    batch_size = recipe.batch_size
    if "batch_size" not in next(iter(recipe.objectives.values())):
        while batch_size >= 2 * _SMALLEST_BATCH and examples < _STEPS_PER_EPOCH * batch_size:
            batch_size //= 2
        steps_per_epoch = math.ceil(examples / batch_size)
    epochs = min(_MOST_EPOCHS, math.ceil(recipe.min_steps / steps_per_epoch))
    return replace(recipe, batch_size=batch_size, epochs=max(epochs, recipe.epochs))


def report_size(given: Recipe, recipe: Recipe, examples: int, steps: int, prefix: str = "") -> None:
    """Log that a recipe was fitted to a small corpus, and warn of few examples or steps that nobody asked for.

    `examples` are those of the first objective; `prefix` is that of the recipe's keys in an override, such as 'first.'.
    """
    name = next(iter(recipe.objectives))
    if recipe != given:
        _LOG.warning(
            "small corpus: %s examples of %s. This run has batch_size=%s and epochs=%s instead of %s and %s, which"
            " makes %s steps; to choose other values, use --set",
            *(f"{examples:,}", name, recipe.batch_size, recipe.epochs),
            *(f"{given.batch_size:,}", given.epochs, f"{steps:,}"),
        )
    is_short = recipe.steps is None and steps < FEW_STEPS
    if is_short or examples < FEW_EXAMPLES:
        _LOG.warning(
            "%s has %s step%s (%s examples of %s in batches of %s), which is few: %sadd conversations",
            "the first stage" if prefix else "this run",
            *(f"{steps:,}", "" if steps == 1 else "s", f"{examples:,}", name, f"{recipe.batch_of(name):,}"),
            f"use --set {prefix}min_steps={FEW_STEPS}, or " if is_short and recipe.epochs < _MOST_EPOCHS else "",
        )


def _load(recipe: Recipe, folder: Path) -> tuple[TrainableEncoder, Mapping[RerankerTask | None, nn.Module]]:
    """Load an encoder, and the heads by task if it is a re-ranker's."""
    heads: Mapping[RerankerTask | None, nn.Module] = {}
    if is_reranker(folder):
        reranker = Reranker.load(folder, device="cpu")
        encoder = TrainableEncoder(reranker.backbone, recipe.pooling or "mean")
        encoder.training_data = reranker.training_data
        heads = {cast(RerankerTask, task): head for task, head in reranker.heads.items()}
    else:
        encoder = TrainableEncoder.load(folder, device="cpu", pooling=recipe.pooling)
    for parameter in encoder.parameters():  # laid out for inference on a CPU; restored checkpoints are contiguous
        parameter.data = parameter.data.contiguous()
    return encoder, heads


def _make_heads(objective: Objective, encoder: TrainableEncoder, folder: Path) -> nn.Module:
    """Create the heads of an objective; one that predicts tokens starts from the checkpoint's own, if it has one."""
    heads = objective.make_heads(encoder.hidden)
    for head in heads.modules():
        if isinstance(head, LanguageHead):
            config = encoder.backbone.config
            epsilon = float(getattr(config, "layer_norm_eps", None) or getattr(config, "norm_eps", None) or 1e-12)
            vocabulary = len(word_embeddings(encoder.backbone.token_embeddings(), encoder.hidden))
            head.start(vocabulary, read_language_head(folder), epsilon)
    return heads.to(encoder.backbone.device)


def _adapt(encoder: TrainableEncoder, recipe: Recipe, objectives: Mapping[str, Objective]) -> None:
    """Set an encoder's layers, special tokens, turn style and dropout."""
    if recipe.layers is not None:
        encoder.backbone.keep_layers(recipe.layers)
    traits = [objective.traits for objective in objectives.values()]
    styles = {each.style for each in traits}
    if len(styles) > 1:
        raise TrainingError(
            "the objectives of a run must join turns in the same way; these mix [SYS]/[USR] marks and separators"
        )
    roles = ROLE_TOKENS.values() if "roles" in styles else ()
    if tokens := dict.fromkeys((*roles, *(token for each in traits for token in each.special_tokens))):
        encoder.backbone.add_tokens(tuple(tokens))
    encoder.style = styles.pop()
    if recipe.dropout is not None or recipe.attention_dropout is not None:
        encoder.backbone.set_dropout(recipe.dropout, recipe.attention_dropout)


def _build_model(encoder: TrainableEncoder, parts: Iterable[TrainedObjective]) -> Model:
    """Return the encoder, or a re-ranker if objectives train its heads; weights are shared, not copied."""
    heads = {part.objective.task: _linear(part.heads) for part in parts if part.objective.task is not None}
    if not heads:
        return encoder
    objectives = [part.objective for part in parts]
    longest = max(objective.length for objective in objectives if isinstance(objective, ResponseSelection))
    windows = [objective.window for objective in objectives if isinstance(objective, UtteranceManipulation)]
    reranker = Reranker(encoder.backbone, heads, longest, max(windows, default=WINDOW))
    return reranker.train(encoder.training)


def _linear(head: nn.Module) -> nn.Linear:
    """Return the layer of a re-ranker's head that is saved with the model."""
    assert isinstance(head, nn.Sequential) and isinstance(head[-1], nn.Linear)
    return head[-1]
