"""The training loop: any objectives, any backbone, one machine or several; exact and resumable.

Random numbers depend on (seed, step) alone, so a killed and resumed run ends with the same weights as an uninterrupted
one.
"""

import contextlib
import gc
import hashlib
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from turnwise.core.errors import TrainingError, TrainingInterruptedError
from turnwise.core.files import write_atomic
from turnwise.core.progress import Progress, silent
from turnwise.corpus.storage.corpus import Corpus
from turnwise.training import checkpoint
from turnwise.training.batches import prepare_ahead
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.distributed import PROCESS_TIMEOUT, Processes
from turnwise.training.metrics import MetricsLog, StepMetrics, ThroughputMeter
from turnwise.training.recipe import Recipe, load_recipe
from turnwise.training.setup import Model, TrainingSetup, report_size, select_corpus, set_up
from turnwise.training.step import TrainingStep

_LOG = logging.getLogger(__name__)

#: Steps after which a long run on a CPU reports how long it will take, and the shortest such run in seconds.
_TIMED_STEPS, _LONG_RUN = 3, 600

_SAVED = "the state is saved. Resume with the same command and --resume"

#: Evaluates a model; returns metrics by name.
Probe = Callable[[Any], dict[str, float]]


@dataclass(frozen=True, slots=True)
class _Options:
    """The arguments of `train` that all stages share."""

    processes: Processes
    progress: Progress
    resume: bool
    tensorboard: bool
    cache: Path
    prefix: str = ""  # of the stage's keys in overrides, such as 'first.'


def train(
    recipe: Recipe | str | Path,
    corpus: Corpus,
    out: Path | str,
    *,
    resume: bool = False,
    probe: Probe | None = None,
    progress: Progress = silent,
    tensorboard: bool = False,
    cache: Path | str | None = None,
    first: Path | str | None = None,
    process_timeout: float = PROCESS_TIMEOUT,
) -> Model:
    """Train an encoder, or a re-ranker if the recipe has objectives of one.

    The model is saved in `out`, with `checkpoints/`, `metrics.jsonl`, `curves.svg` and `recipe.yaml`. If the recipe has
    a first stage, it is trained before in the same way, in `out/first`. A run with few steps or examples logs a
    warning.

    Args:
        recipe: the configuration, or what `load_recipe` takes: the name of a packaged recipe, or a YAML file.
        corpus: the training data.
        out: the folder; must be new or empty, or that of a run that failed without a checkpoint, unless `resume`.
        resume: continue from the newest checkpoint in `out`, or start if there is none.
        probe: evaluates the model before, after and every `probe_every` steps; not in the first stage.
        progress: receives the number of steps done.
        tensorboard: also write TensorBoard's files, into `tensorboard/`.
        cache: folder of tokenised texts and examples, which several runs over one corpus may share; None: `out/tokens`.
        first: folder of the recipe's first stage, which several runs may share; None: it is trained in `out/first`.
        process_timeout: with several processes, seconds without a heartbeat after which a process counts as lost.

    Raises:
        TrainingError: if `out` is not empty, a run is resumed with another recipe or corpus, the loss is not a number,
            the run was interrupted (its state is saved), or a process was lost.
    """
    out = Path(out)
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    with Processes(process_timeout) as processes:
        report = progress if processes.main else silent
        options = _Options(processes, report, resume, tensorboard, Path(cache or out / checkpoint.TOKENS))
        return _train_stage(recipe, corpus, out, options, Path(first) if first else None, probe).setup.model


def _train_stage(
    recipe: Recipe, corpus: Corpus, out: Path, options: _Options, first: Path | None = None, probe: Probe | None = None
) -> "Trainer":
    """Train the stages before a recipe, unless `first` is given, and then the recipe itself."""
    selected = TrainingCorpus(select_corpus(recipe, corpus), options.cache)
    processes = options.processes
    is_new = False
    with processes.together():
        if processes.main:  # only: another process would take what this one has just written for an earlier run
            is_new = checkpoint.claim_folder(out, recipe, options.resume)
    try:
        start: str | Path = recipe.backbone
        if recipe.first is not None:
            start = first or _train_first_stage(recipe.first, corpus, out / checkpoint.FIRST, options)
            checkpoint.expect_finished(start, recipe.first, corpus)
        recipe = checkpoint.saved_recipe(out, recipe) or recipe  # a resumed run keeps its numbers
        setup = set_up(recipe, selected, start, processes, options.progress)
        if processes.main:
            if setup.recipe != recipe:
                write_atomic(out / checkpoint.RECIPE, setup.recipe.to_yaml())
            report_size(recipe, setup.recipe, len(setup.loaders[0].examples), setup.steps, options.prefix)
        trainer = Trainer(setup, out, options)
        trainer.fit(probe)
        trainer.finish()
    except BaseException:
        if is_new:
            checkpoint.release_folder(out)
        raise
    return trainer


def _train_first_stage(recipe: Recipe, corpus: Corpus, out: Path, options: _Options) -> Path:
    """Train a first stage, unless it is finished; return its folder."""
    if options.resume and (out / checkpoint.TRAINED).is_file():
        return out

    def report(what: str, done: int, total: int | None = None) -> None:
        options.progress(f"first stage: {what}", done, total)

    processes, describe_position = options.processes, options.processes.describe_position
    trainer = _train_stage(recipe, corpus, out, replace(options, progress=report, prefix=f"{options.prefix}first."))
    if trainer.interrupted:  # at its last step: the stage is finished, but the run is not
        raise TrainingInterruptedError(f"interrupted after the first stage; {_SAVED}")
    processes.describe_position = describe_position  # the stage's own would keep it in memory
    del trainer
    release_memory()
    return out


class Trainer:
    """Makes the steps of one stage, logs them, evaluates the probe, and saves checkpoints and models."""

    def __init__(self, setup: TrainingSetup, out: Path, options: _Options):
        self.setup = setup
        self.step = TrainingStep(setup)
        self.folder = checkpoint.RunFolder(out, setup, self.step)
        #: Whether the user asked to stop at the last step.
        self.interrupted = False
        self._progress = options.progress
        self._done, self._best = 0, None  # type: tuple[int, float | None]
        self._processes = setup.processes
        with self._processes.together():
            if options.resume:
                self._done, self._best = self.folder.restore()
            self._log = MetricsLog(out, self._done, self._processes.main, options.tensorboard)
        self._processes.expect_equal(self._state_to_agree_on())
        self._processes.describe_position = self._describe_position
        self.step.start()

    def _state_to_agree_on(self) -> dict[str, bytes]:
        """Return what must be equal in all processes, by the name that an error message uses."""
        weights = hashlib.sha256()
        if self._processes.world > 1:  # takes seconds for a large model
            for value in self.step.parameters.values():
                weights.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
        return {
            "a recipe": self.setup.recipe.to_yaml().encode(),
            "a corpus": "\n".join(self.setup.corpus.identity).encode(),
            "examples": str([len(loader.examples) for loader in self.setup.loaders]).encode(),
            "a first step": str(self._done).encode(),
            "initial weights": weights.digest(),
        }

    def _describe_position(self) -> str:
        saved = self.folder.describe_last_checkpoint()
        return f"at step {self._done} of {self.setup.steps}; {saved}. Resume with the same command and --resume"

    def fit(self, probe: Probe | None = None) -> None:
        """Make all steps that are left."""
        setup, recipe, steps = self.setup, self.setup.recipe, self.setup.steps
        probe_every = setup.steps_per_epoch if recipe.probe_every == "epoch" else recipe.probe_every
        setup.encoder.train()
        if probe and self._done == 0:
            self._in_main_process(lambda: self._evaluate(probe))
        throughput = ThroughputMeter(self._processes.device)
        first, start = self._done, time.perf_counter()
        with _catch_interrupts() as interrupted, self.folder.checkpoints as checkpoints:
            previous: StepMetrics | None = None
            for batches in prepare_ahead(setup.loaders, self._done, steps, recipe.workers):
                current = StepMetrics(self._done + 1, self.step.run(self._done, batches), batches)
                self._done += 1
                if self._done == first + _TIMED_STEPS:
                    self._report_time((time.perf_counter() - start) / _TIMED_STEPS)
                # a step is logged while the next one runs, so that the GPU never waits
                if previous is not None:
                    self._log_step(previous, throughput)
                previous = current
                is_last = self._done == steps
                stop = self._processes.any(interrupted() or checkpoints.failed)
                evaluates = bool(probe and probe_every and self._done % probe_every == 0 and not is_last)
                ends_epoch = recipe.checkpoint_epochs and self._done % setup.steps_per_epoch == 0
                saves = self._done % recipe.checkpoint_every == 0 or is_last or stop
                if evaluates or ends_epoch or saves:  # not before it is known that the loss is a number
                    self._log_step(current, throughput)
                    previous = None
                if probe and evaluates:
                    self._in_main_process(lambda: self._evaluate(probe))
                if ends_epoch:
                    self._in_main_process(self._save_epoch)
                if saves:
                    self._in_main_process(partial(self._save_checkpoint, wait=is_last or stop))
                if stop and not is_last:
                    raise TrainingInterruptedError(f"interrupted at step {self._done} of {steps}; {_SAVED}")
            self.interrupted = self._processes.any(interrupted())
        if probe:
            self._in_main_process(lambda: self._evaluate(probe))

    def _report_time(self, seconds: float) -> None:
        """Report how long the run will take on a CPU, given the seconds per step, unless it is short."""
        left = (self.setup.steps - self._done) * seconds
        if self._processes.device.type == "cpu" and self._processes.main and left > _LONG_RUN:
            hours, minutes = divmod(round(left / 60), 60)
            _LOG.warning(
                "%s more steps of %.1f seconds take about %d h %02d min on this CPU. Ctrl-C stops and saves the run",
                *(f"{self.setup.steps - self._done:,}", seconds, hours, minutes),
            )

    def _log_step(self, step: StepMetrics, throughput: ThroughputMeter) -> None:
        """Log a step if it is due; raise TrainingError if its loss is not a number."""
        throughput.count(step.batches)
        metrics = step.values()
        if not math.isfinite(metrics["loss"]):
            with contextlib.suppress(TrainingError):  # of the two errors, report the loss
                self.folder.checkpoints.wait()
            raise TrainingError(
                f"the loss is {metrics['loss']} at step {step.step}; {self.folder.describe_last_checkpoint()}. A"
                " smaller learning_rate, clip=1, or precision=fp32 often helps"
            )
        if step.step % self.setup.recipe.log_every == 0 or step.step == self.setup.steps:
            metrics |= throughput.read(step.batches)
            self._log.write(step.step, metrics)
            message = f"training: loss {metrics['loss']:.3f}, {metrics['examples_per_second']:,.0f} examples/s"
            self._progress(message, step.step, self.setup.steps)

    def _evaluate(self, probe: Probe) -> None:
        """Evaluate the probe, and save the model if it is the best so far."""
        with self.step.averaged_parameters():
            metrics = probe(self.setup.model)
            self._log.write(self._done, {f"probe.{name}": value for name, value in metrics.items()})
            name = self.setup.recipe.keep_best
            if name is not None and name not in metrics:
                raise TrainingError(f"keep_best={name!r}: the probe's metrics are {', '.join(metrics)}")
            if name is not None and (self._best is None or metrics[name] > self._best):
                self._best = metrics[name]
                self.folder.save_model(self.folder.path / checkpoint.BEST)
        self.setup.encoder.train()

    def _save_epoch(self) -> None:
        number = self._done // self.setup.steps_per_epoch
        with self.step.averaged_parameters():
            self.folder.save_model(self.folder.path / checkpoint.EPOCHS / f"{number:03d}")

    def _save_checkpoint(self, *, wait: bool) -> None:
        self.folder.save_checkpoint(self._done, self._best)
        if wait:
            self.folder.checkpoints.wait()

    def finish(self) -> None:
        """Save the finished model, with the averages that the recipe asks for."""
        self._log.close()
        self.step.finish()
        self.step.use_average()
        self.setup.model.eval()
        self._in_main_process(self.folder.save_finished)

    def _in_main_process(self, act: Callable[[], None]) -> None:
        """Have the main process do something while the others wait."""
        with self._processes.together():
            if self._processes.main:
                act()


def release_memory() -> None:
    """Free the memory of a finished or failed run: the next run chooses its chunk size by how much memory is free."""
    gc.collect()
    torch.cuda.empty_cache()


@contextlib.contextmanager
def _catch_interrupts() -> Iterator[Callable[[], bool]]:
    """Return a function that tells whether Ctrl-C or SIGTERM was received; a second Ctrl-C stops at once."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    previous = {}
    with contextlib.suppress(ValueError):  # not the main thread, which handles signals
        previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
