"""Checkpoints: everything that a run needs to go on, written whole or not at all.

A checkpoint is a folder `checkpoints/step-000123/`: tensors as safetensors (no pickles), the rest as JSON, and a manifest with the
hash of every file. It is written under another name and renamed when it is on disk; what is there under its name is whole.
"""

import contextlib
import json
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file

from turnwise.core.errors import TurnwiseError
from turnwise.core.files import sha256, sync
from turnwise.corpus.store import Corpus
from turnwise.training import TrainingError
from turnwise.training.disk_cache import corpus_identity
from turnwise.training.recipe import Recipe, load_recipe

#: In a model's folder: the model of the recipe's first stage.
FIRST = "first"

#: In a model's folder: the model that was best by the probe, where the recipe says by what.
BEST = "best"

#: In a run's folder: what it goes on from.
CHECKPOINTS = "checkpoints"

#: In a run's folder once its training is over, with what it learnt from; the model's own files are there before they are whole.
TRAINED = "trained"

_MANIFEST = "manifest.json"
_UNFINISHED = ".writing"


class CheckpointError(TurnwiseError):
    """A checkpoint cannot be written or read."""


#: Files of tensors, by name.
Tensors = dict[str, dict[str, torch.Tensor]]


class Checkpoints:
    """Writes the checkpoints of a run beside it, one at a time: to hash a gigabyte and to see it on disk takes seconds.

    Leave it as a context, and nothing is being written any more.

    Args:
        folder: where they lie.
        keep: how many stay: the newest.
    """

    def __init__(self, folder: Path, keep: int):
        self._folder = folder
        self._keep = keep
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.nullcontext() if error is None else contextlib.suppress(CheckpointError):
            self.wait()

    @property
    def failed(self) -> bool:
        """Whether the last one could not be written; `wait` and `save` say why."""
        return self._writing is not None and self._writing.done() and self._writing.exception() is not None

    def save(self, step: int, tensors: Tensors, state: dict[str, Any]) -> None:
        """Begins to write a checkpoint of what the tensors are now, once the one before is on disk.

        Args:
            step: how many steps are done.
            tensors: files of tensors by name.
            state: anything that JSON can hold.

        Raises:
            CheckpointError: if the one before could not be written.
        """
        self.wait()
        now = {
            name: {key: value.detach().to("cpu", copy=True).contiguous() for key, value in content.items()}
            for name, content in tensors.items()
        }
        self._writing = self._writer.submit(_write, self._folder, step, now, state, self._keep)

    def wait(self) -> None:
        """Waits until the last one is on disk.

        Raises:
            CheckpointError: if it cannot be written (a full disk); what was there before stays.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def _write(folder: Path, step: int, tensors: Tensors, state: dict[str, Any], keep: int) -> None:
    """Writes a checkpoint and then removes all but the newest `keep`."""
    unfinished = folder / _UNFINISHED
    place = folder / f"step-{step:09d}"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for name, content in tensors.items():
            save_file(content, unfinished / f"{name}.safetensors")
        (unfinished / "state.json").write_text(json.dumps({"step": step, **state}, indent=2))
        hashes = {path.name: sha256(path) for path in sorted(unfinished.iterdir())}
        (unfinished / _MANIFEST).write_text(json.dumps(hashes, indent=2))
        for path in (*unfinished.iterdir(), unfinished):
            sync(path)
        shutil.rmtree(place, ignore_errors=True)
        unfinished.rename(place)
        sync(folder)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        last = latest_checkpoint(folder)
        kept = f"the last good one is {last}" if last else "there is none yet"
        raise CheckpointError(
            f"the checkpoint at step {step} could not be written ({error}); {kept}. Make room and resume"
        ) from error
    for old in _checkpoints(folder)[:-keep]:
        shutil.rmtree(old)


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint, if there is one."""
    found = _checkpoints(folder)
    return found[-1] if found else None


def load_checkpoint(place: Path) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the state of a checkpoint.

    Raises:
        CheckpointError: if it is not what was written.
    """
    try:
        hashes = json.loads((place / _MANIFEST).read_text())
        for name, expected in hashes.items():
            if sha256(place / name) != expected:
                raise ValueError(f"{name} has changed")
        tensors = {path.stem: load_file(path) for path in place.glob("*.safetensors")}
        return tensors, json.loads((place / "state.json").read_text())
    except (OSError, ValueError) as error:
        others = [other for other in _checkpoints(place.parent) if other != place]
        way = f"remove it to go on from {others[-1]}" if others else "remove it to start anew"
        raise CheckpointError(f"the checkpoint {place} is damaged ({error}): {way}") from error


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if path.is_dir()) if folder.is_dir() else []


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
    return corpus.sample(recipe.corpus_share).prepare(recipe.combine_turns, recipe.least_turns)


def expect_trained(place: Path, recipe: Recipe, corpus: Corpus) -> None:
    """Makes sure that a folder holds the finished model of a first stage.

    Raises:
        TrainingError: if it does not.
    """
    if not (place / TRAINED).is_file() or load_recipe(place / "recipe.yaml") != recipe:
        raise TrainingError(
            f"{place} does not hold the finished first stage of the recipe: train that first, or leave it out"
        )
    if (place / TRAINED).read_text(encoding="utf-8") != "\n".join(corpus_identity(reading(recipe, corpus))):
        raise TrainingError(
            f"{place} learnt from another corpus: a run goes on with the stores and splits it began with"
        )
