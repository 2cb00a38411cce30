"""Runs that are too short to learn much: `min_steps` makes them longer, and others get a warning with advice."""

import logging
import math
from dataclasses import replace

from turnwise.training.recipe import Recipe

#: Fewer steps or examples than this get a warning.
FEW_STEPS = 200
FEW_EXAMPLES = 300

#: What smaller batches and further epochs aim at: steps per epoch and in all, without going below a batch size or above
#: a number of epochs.
_STEPS_PER_EPOCH, _STEPS = 50, 300
_SMALLEST_BATCH, _MOST_EPOCHS = 16, 20

_LOG = logging.getLogger(__name__)


def warn_of_short_run(recipe: Recipe, examples: int, steps: int, prefix: str = "") -> None:
    """Log a warning if a run has few examples, or few steps that the user has not asked for.

    `examples` are those of the first objective; `prefix` is that of the recipe's keys in an override, such as 'first.'.
    """
    name = next(iter(recipe.objectives))
    batch_size = recipe.batch_of(name)
    is_short = recipe.steps is None and steps < FEW_STEPS
    if not is_short and examples >= FEW_EXAMPLES:
        return
    epochs = "" if recipe.steps is not None else f", {recipe.epochs:g} epoch{'' if recipe.epochs == 1 else 's'}"
    advice = []
    if is_short and (overrides := _suggest(recipe, name, examples, prefix)):
        advice.append(f"for more steps, use {overrides}")
    if examples < FEW_EXAMPLES:
        advice.append("for more examples, add conversations")
    _LOG.warning(
        "%s has %s step%s (%s examples of %s in batches of %s%s), which is few: %s",
        "the first stage" if prefix else "this run",
        f"{steps:,}",
        "" if steps == 1 else "s",
        f"{examples:,}",
        name,
        f"{batch_size:,}",
        epochs,
        "; ".join(advice) or "a larger corpus gives more",
    )


def _suggest(recipe: Recipe, name: str, examples: int, prefix: str) -> str:
    """Return the options that give a run more steps; '' if the recipe has such values already."""
    before = recipe.batch_of(name)
    batch_size, epochs = suggest_batches(examples, before)
    key = f"objectives.{name}.batch_size" if "batch_size" in recipe.objectives[name] else "batch_size"
    options = [f"--set {prefix}{key}={batch_size}"] if batch_size != before else []
    if epochs > recipe.epochs:
        options.append(f"--set {prefix}epochs={epochs}")
    return " ".join(options)


def suggest_batches(examples: int, batch_size: int, steps: int = _STEPS) -> tuple[int, int]:
    """Return a batch size, at most the given one, and a number of epochs that make that many steps, if possible.

    The batch size is halved until an epoch has 50 steps, but not below 16; there are at most 20 epochs.
    """
    while batch_size >= 2 * _SMALLEST_BATCH and examples < _STEPS_PER_EPOCH * batch_size:
        batch_size //= 2
    return batch_size, _epochs_for(steps, math.ceil(examples / batch_size))


def _epochs_for(steps: int, steps_per_epoch: int) -> int:
    return min(_MOST_EPOCHS, math.ceil(steps / steps_per_epoch))


def fit_to_corpus(recipe: Recipe, examples: int, steps_per_epoch: int) -> Recipe:
    """Return a recipe with smaller batches and more epochs if it has `min_steps` and the corpus gives fewer steps.

    `examples` and `steps_per_epoch` are those of the first objective, whose own batch size is kept if it has one.
    """
    if recipe.min_steps is None or recipe.steps_of(steps_per_epoch) >= recipe.min_steps:
        return recipe
    name = next(iter(recipe.objectives))
    if "batch_size" in recipe.objectives[name]:
        batch_size, epochs = recipe.batch_size, _epochs_for(recipe.min_steps, steps_per_epoch)
    else:
        batch_size, epochs = suggest_batches(examples, recipe.batch_size, recipe.min_steps)
    return replace(recipe, batch_size=batch_size, epochs=max(epochs, recipe.epochs))


def report_fit(recipe: Recipe, fitted: Recipe, examples: int, steps: int) -> None:
    """Log that a recipe was fitted to a small corpus, with the number of steps."""
    _LOG.warning(
        "small corpus: %s examples of %s. This run has batch_size=%s and epochs=%s instead of %s and %s, which makes %s"
        " steps; to choose other values, use --set",
        f"{examples:,}",
        next(iter(recipe.objectives)),
        *(f"{value:,}" for value in (fitted.batch_size, fitted.epochs, recipe.batch_size, recipe.epochs, steps)),
    )
