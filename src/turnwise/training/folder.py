"""The folder of a run: whose it is, what lies in it, and whether it is finished."""

from pathlib import Path

from turnwise.corpus.store import Corpus
from turnwise.training.cache import corpus_source
from turnwise.training.errors import TrainingError
from turnwise.training.recipe import Recipe, load_recipe

#: In a model's folder: the model of the recipe's first stage.
FIRST = "first"

#: In a model's folder: the model that was best by the probe, where the recipe says by what.
BEST = "best"

#: In a run's folder: what it goes on from.
CHECKPOINTS = "checkpoints"

#: In a run's folder once its training is over, with what it learnt from; the model's own files are there before they are whole.
TRAINED = "trained"


def claim(out: Path, recipe: Recipe, resume: bool) -> None:
    """Makes sure that the folder is this run's own.

    Raises:
        TrainingError: if it holds something else.
    """
    place = out / "recipe.yaml"
    if place.is_file():
        if not resume:
            raise TrainingError(f"{out} holds a run already: go on with --resume, or choose another --out")
        if load_recipe(place) != recipe:
            raise TrainingError(
                f"{place} is another recipe than the one given: a run goes on with the recipe it began with"
            )
        return
    if out.is_dir() and any(out.iterdir()):
        raise TrainingError(f"{out} holds other files: choose a new or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    place.write_text(recipe.to_yaml(), encoding="utf-8")


def reading(recipe: Recipe, corpus: Corpus) -> Corpus:
    """The corpus as the recipe reads it."""
    return corpus.sampled(recipe.corpus_share).prepared(recipe.combine_turns, recipe.least_turns)


def expect_trained(place: Path, recipe: Recipe, corpus: Corpus) -> None:
    """Makes sure that a folder holds the finished model of a first stage.

    Raises:
        TrainingError: if it does not.
    """
    if not (place / TRAINED).is_file() or load_recipe(place / "recipe.yaml") != recipe:
        raise TrainingError(
            f"{place} does not hold the finished first stage of the recipe: train that first, or leave it out"
        )
    if (place / TRAINED).read_text(encoding="utf-8") != "\n".join(corpus_source(reading(recipe, corpus))):
        raise TrainingError(
            f"{place} learnt from another corpus: a run goes on with the stores and splits it began with"
        )
