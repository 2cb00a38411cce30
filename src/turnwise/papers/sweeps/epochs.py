"""Evaluate every saved epoch of a run, and report the results over the epochs.

OUT/epochs/003/SUITE/    the results of an epoch, as `turnwise evaluate` writes them; epoch 0 is the untrained start
OUT/epochs/003/cache/    its outcomes and vectors
OUT/results.json, table.md, report.html, curves/    all epochs together
"""

from dataclasses import replace
from pathlib import Path

from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.models.backbone.source import Pooling
from turnwise.models.loading import ModelUnderTest, load_folder, wrap_model
from turnwise.papers.sweeps.points import EvaluationPlan, SweepPoint
from turnwise.papers.sweeps.report import write_experiment
from turnwise.papers.sweeps.run import load_untrained
from turnwise.training.checkpoint import EPOCHS, FIRST, saved_epochs
from turnwise.training.recipe import Recipe
from turnwise.training.recipe_loading import load_recipe


def evaluate_epochs(
    run: Path,
    evaluation: EvaluationPlan,
    out: Path,
    pooling: Pooling | None = None,
    progress: Progress = silent,
) -> list[SweepPoint]:
    """Evaluate the untrained start and every saved epoch of a run, and update one report in `out` after each.

    Existing results are reused: the same call continues an interrupted one, and evaluates epochs that were added.
    Differences refer to the first point, the untrained start if it is available. `pooling` replaces the models' own.
    Raises TrainingError if the run has no saved epochs.
    """
    evaluation.check()
    epochs = saved_epochs(run)
    remarks = [f"The models saved after the epochs of {run}; epoch 0 is the model that training started from."]
    points: list[SweepPoint] = []
    for epoch in (0, *epochs):
        name = f"epoch {epoch}"
        progress(f"evaluating: {name}", len(points), len(epochs) + 1)
        if epoch:
            model = load_folder(epochs[epoch], name, pooling)
        else:
            try:
                model = replace(_load_start(run, load_recipe(run / "recipe.yaml"), pooling), name=name)
            except TurnwiseError as error:
                remarks.append(f"Epoch 0 is missing: {error}")
                continue
        results = evaluation.evaluate(model, out / EPOCHS / f"{epoch:03d}", progress)
        points.append(SweepPoint(name, {"epoch": epoch}, epochs.get(epoch), results))
        write_experiment(points, ("epoch",), out, f"Epochs of {run}", remarks)
    progress("evaluating: done", len(epochs) + 1, len(epochs) + 1)
    return points


def _load_start(run: Path, recipe: Recipe, pooling: Pooling | None) -> ModelUnderTest:
    """Return the model that a run started from; raises a TurnwiseError if there is none to evaluate."""
    if recipe.reranks:
        raise TurnwiseError("the layers of a re-ranker do not exist before its training")
    if recipe.first is not None:
        return load_folder(run / FIRST, "", pooling)
    return wrap_model(load_untrained(recipe, pooling))
