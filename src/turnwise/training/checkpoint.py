"""The folder of a run: its recipe, its checkpoints and its models.

A checkpoint is a folder `checkpoints/step-000000123/`: tensors as safetensors (no pickles), the rest as JSON, and a
manifest with the hash of every file. It is written under another name and renamed when it is complete and on disk.
"""

import contextlib
import dataclasses
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors.torch import load_file

from turnwise.core.errors import RecipeError, TrainingError
from turnwise.core.files import read_json, replacing, sha256, write_atomic, write_json, write_tensors
from turnwise.core.plots import write_chart
from turnwise.corpus.storage.corpus import Corpus
from turnwise.corpus.training_data import TrainingData
from turnwise.training.data_record import describe_training
from turnwise.training.disk_cache import corpus_identity
from turnwise.training.metrics import model_card, plot_curves
from turnwise.training.recipe import Recipe, load_recipe
from turnwise.training.setup import TrainingSetup, select_corpus
from turnwise.training.step import TrainingStep

#: Folders inside a run's folder: the model of the recipe's first stage, the best model by the probe, the models of the
#: epochs, the checkpoints, and tokenised texts, which the next run in the folder can use.
FIRST, BEST, EPOCHS, CHECKPOINTS, TOKENS = "first", "best", "epochs", "checkpoints", "tokens"

#: A file with the corpus's identity, written when training is finished and the model's files are complete.
TRAINED = "trained"

#: The recipe of a run, and its name once the run has failed without a checkpoint.
RECIPE, FAILED = "recipe.yaml", "failed.yaml"

#: What a run that failed without a checkpoint may have written, besides `TOKENS`.
_LEFTOVERS = (FAILED, "metrics.jsonl", "tensorboard", CHECKPOINTS, BEST)

#: How many checkpoints are kept.
_KEPT = 2

#: Files of tensors, by name.
TensorFiles = dict[str, dict[str, torch.Tensor]]


def claim_folder(out: Path, recipe: Recipe, resume: bool) -> bool:
    """Create the folder of a run and write its recipe, or check that it is the folder of the run to resume.

    Return whether the run is new. What is left of a run that failed without a checkpoint is removed.
    """
    path = out / RECIPE
    if path.is_file():
        has_progress = _has_progress(out)
        if not resume:
            raise TrainingError(
                f"{out} already contains a run: continue it with --resume, or choose another --out"
                if has_progress
                else f"{out} contains a run that has no checkpoint yet: if it is not running any more, start again with"
                " --resume, also with another recipe"
            )
        if saved_recipe(out, recipe):
            return False
        if has_progress:
            raise TrainingError(f"{path} differs from the given recipe: resume a run with the recipe it started with")
        release_folder(out)
    names = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
    if names and not (FAILED in names and names <= {*_LEFTOVERS, TOKENS}):
        raise TrainingError(f"{out} contains other files: choose a new or empty folder")
    for leftover in (out / name for name in names - {TOKENS}):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(recipe.to_yaml(), encoding="utf-8")
    return True


def saved_recipe(out: Path, requested: Recipe) -> Recipe | None:
    """Return the recipe of the run in a folder if it was started with the requested one; workers and log may differ."""
    try:
        recipe = load_recipe(out / RECIPE) if (out / RECIPE).is_file() else None
    except RecipeError as error:
        raise TrainingError(
            f"the run in {out} was made by another version of turnwise, or its recipe was changed: {error}. Start it"
            " again with a new --out"
        ) from error
    if recipe is None or not recipe.started_as(requested):
        return None
    return dataclasses.replace(recipe, workers=requested.workers, log_every=requested.log_every)


def release_folder(out: Path) -> None:
    """Let another run use the folder of one that has failed, unless there is a checkpoint to resume from."""
    if not _has_progress(out):
        with contextlib.suppress(OSError):  # of the two errors, report why the run failed
            (out / RECIPE).replace(out / FAILED)
        shutil.rmtree(out / FIRST, ignore_errors=True)


def _has_progress(out: Path) -> bool:
    """Return whether a run, or its first stage, has saved a state that it can be resumed from, or a model."""
    saved = latest_checkpoint(out / CHECKPOINTS) is not None or any((out / name).exists() for name in (TRAINED, EPOCHS))
    return saved or ((out / FIRST).is_dir() and _has_progress(out / FIRST))


def expect_finished(folder: Path, recipe: Recipe, corpus: Corpus) -> None:
    """Raise TrainingError unless a folder contains the finished model of a first stage on a corpus."""
    if not (folder / TRAINED).is_file() or not saved_recipe(folder, recipe):
        raise TrainingError(
            f"{folder} does not contain the finished first stage of the recipe: train it first, or remove it"
        )
    if (folder / TRAINED).read_text(encoding="utf-8") != "\n".join(corpus_identity(select_corpus(recipe, corpus))):
        raise TrainingError(f"{folder} was trained on another corpus: use the stores and splits of its first stage")


def saved_epochs(run: Path) -> dict[int, Path]:
    """Return the model folders that a run saved after its epochs; raises TrainingError if there are none."""
    if not (run / RECIPE).is_file():
        raise TrainingError(f"{run} is not the folder of a run: give one that `turnwise train` wrote")
    folders = {int(folder.name): folder for folder in (run / EPOCHS).glob("*") if folder.name.isdigit()}
    if not folders:
        advice = "train with --set checkpoint_epochs=true, which saves the model after each"
        if load_recipe(run / RECIPE).checkpoint_epochs:
            advice = "its first epoch is not finished; resume the run"
        raise TrainingError(f"{run} has no saved epochs: {advice}")
    return dict(sorted(folders.items()))


class RunFolder:
    """Saves and restores the state and the models of a run."""

    def __init__(self, path: Path, setup: TrainingSetup, step: TrainingStep):
        self.path = path
        self.checkpoints = CheckpointWriter(path / CHECKPOINTS)
        self._setup = setup
        self._step = step

    def save_checkpoint(self, step: int, best: float | None) -> None:
        """Start to write a checkpoint; it needs no random state, since random numbers depend on (seed, step)."""
        parameters, states = self._step.parameters, self._step.optimizer.state
        tensors: TensorFiles = {
            "parameters": {name: value.detach() for name, value in parameters.items()},
            "optimizer": {
                f"{name}.{key}": value
                for name, parameter in parameters.items()
                for key, value in states.get(parameter, {}).items()
            },
        }
        state = {"steps": self._setup.steps, "best": best, "corpus": self._setup.corpus.identity}
        self.checkpoints.save(step, tensors, state)

    def restore(self) -> tuple[int, float | None]:
        """Restore the newest checkpoint; return the number of steps done and the best value of the probe so far."""
        folder = latest_checkpoint(self.path / CHECKPOINTS)
        if folder is None:
            return 0, None
        tensors, state = load_checkpoint(folder)
        if state.get("corpus") != self._setup.corpus.identity:
            raise TrainingError(
                f"{folder} was trained on another corpus: resume a run with the stores and splits it started with"
            )
        parameters, states = self._step.parameters, self._step.optimizer.state
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(tensors["parameters"][name])
        for key, value in tensors["optimizer"].items():
            name, _, field = key.rpartition(".")
            states[parameters[name]][field] = value.to(parameters[name].device)
        return int(state["step"]), state["best"]

    def describe_last_checkpoint(self) -> str:
        """Return a clause for error messages."""
        last = latest_checkpoint(self.path / CHECKPOINTS)
        return f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"

    def save_model(self, folder: Path, card: str | None = None) -> None:
        """Save the model as it is, with its training data and what its objectives add to it."""
        self._setup.model.training_data = self._training_data
        self._setup.model.save(folder, card)
        for part in self._setup.parts:
            part.objective.save_extras(folder, self._setup.encoder, part.heads, self._setup.corpus.dialogues)

    @cached_property
    def _training_data(self) -> TrainingData | None:
        """The data of this run, of its start and of its teachers; None if the recipe does not record it."""
        return describe_training(self._setup) if self._setup.recipe.record_training_data else None

    def save_finished(self) -> None:
        """Save the finished model, unless that was done before: its folder may have been changed since."""
        if (self.path / TRAINED).is_file():
            return
        setup = self._setup
        card = model_card(setup.recipe, setup.corpus.dialogues, setup.loaders[0].texts, self.path)
        self.save_model(self.path, card)
        setup.encoder.name = str(self.path)
        write_chart(self.path / "curves.svg", lambda: plot_curves(self.path / "metrics.jsonl"))
        write_atomic(self.path / TRAINED, "\n".join(setup.corpus.identity))


class CheckpointWriter:
    """Writes checkpoints in the background, one at a time, and keeps the newest: hashing a gigabyte takes seconds.

    As a context manager it waits for the last one at its end.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.nullcontext() if error is None else contextlib.suppress(TrainingError):
            self.wait()

    @property
    def failed(self) -> bool:
        """Whether the last one could not be written; `wait` and `save` raise the error."""
        return self._pending is not None and self._pending.done() and self._pending.exception() is not None

    def save(self, step: int, tensors: TensorFiles, state: dict[str, Any]) -> None:
        """Copy the tensors and start to write a checkpoint, after waiting for the previous one."""
        self.wait()
        copies = {
            name: {key: value.detach().to("cpu", copy=True).contiguous() for key, value in content.items()}
            for name, content in tensors.items()
        }
        self._pending = self._executor.submit(_write, self._folder, step, copies, state)

    def wait(self) -> None:
        """Wait until the last one is on disk; raise TrainingError if it cannot be written, as on a full disk."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def _write(folder: Path, step: int, tensors: TensorFiles, state: dict[str, Any]) -> None:
    """Write a checkpoint and then remove all but the newest."""
    try:
        with replacing(folder / f"step-{step:09d}", durable=True) as part:
            part.mkdir(parents=True)
            for name, content in tensors.items():
                write_tensors(part / f"{name}.safetensors", content)
            write_json(part / "state.json", {"step": step, **state})
            write_json(part / "manifest.json", {path.name: sha256(path) for path in sorted(part.iterdir())})
    except OSError as error:
        last = latest_checkpoint(folder)
        previous = f"the last good one is {last}" if last else "there is none yet"
        raise TrainingError(
            f"the checkpoint at step {step} could not be written ({error}); {previous}. Free disk space and resume"
        ) from error
    for old in _list_checkpoints(folder)[:-_KEPT]:
        shutil.rmtree(old)


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint, if there is one."""
    checkpoints = _list_checkpoints(folder)
    return checkpoints[-1] if checkpoints else None


def load_checkpoint(folder: Path) -> tuple[TensorFiles, dict[str, Any]]:
    """Load the tensors and the state of a checkpoint; raise TrainingError if a file differs from its hash."""
    try:
        for name, expected in read_json(folder / "manifest.json").items():
            if sha256(folder / name) != expected:
                raise ValueError(f"{name} has changed")
        tensors = {path.stem: load_file(path) for path in folder.glob("*.safetensors")}
        return tensors, read_json(folder / "state.json")
    except (OSError, ValueError) as error:
        others = [other for other in _list_checkpoints(folder.parent) if other != folder]
        remedy = f"remove it to resume from {others[-1]}" if others else "remove it to start again"
        raise TrainingError(f"the checkpoint {folder} is damaged ({error}): {remedy}") from error


def _list_checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if path.is_dir()) if folder.is_dir() else []
