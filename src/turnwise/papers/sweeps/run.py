"""Run a sweep: train and evaluate every point, and report all of them together.

OUT/sweep.yaml                        the sweep
OUT/start/evaluation/                 results of the untrained encoder
OUT/runs/RUN/                         a model, as `turnwise train` writes it; RUN is the point, or objectives and a hash
OUT/runs/POINT/evaluation/            its results
OUT/points/POINT/evaluation/          results of a variant; variants with equal recipes share a run
OUT/word-vectors.txt                  word vectors, if a variant uses them
OUT/tokens/                           the tokenised corpus, shared by all points
OUT/results.json, table.md, report.html, curves/    all points together
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from turnwise.core.errors import TrainingError, TrainingInterruptedError, TurnwiseError
from turnwise.core.files import write_atomic
from turnwise.core.progress import Progress, silent
from turnwise.corpus.storage.corpus import Corpus
from turnwise.evaluation.probe import make_probe
from turnwise.evaluation.results import Results
from turnwise.models.backbone.source import Pooling, locate_model
from turnwise.models.encoder import EncoderConfig
from turnwise.models.loading import ModelUnderTest, load_model, postprocess_model, wrap_model
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.papers.baselines.word_vectors import train_word_vectors
from turnwise.papers.sweeps.experiment import EvaluationPlan, SweepPoint, write_experiment
from turnwise.papers.sweeps.plan import BACKBONE_KEYS, VARIANT, PlannedRun, Sweep, folder_name, point_name, run_name
from turnwise.training.checkpoint import BEST, CHECKPOINTS, TRAINED
from turnwise.training.disk_cache import corpus_identity
from turnwise.training.loop import release_memory, train
from turnwise.training.recipe import Recipe, from_tree

_UNTRAINED = point_name({})

_OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)  # what running out of memory raises, on a GPU and on the CPU


def run_sweep(
    sweep: Sweep,
    corpus: Corpus,
    evaluation: EvaluationPlan,
    out: Path | str,
    *,
    start: bool = True,
    keep_checkpoints: bool = False,
    progress: Progress = silent,
) -> list[SweepPoint]:
    """Train and evaluate every point of a sweep; the same call continues an interrupted sweep.

    Finished trainings and evaluations are not repeated, and failed points are tried again. The grid, the variants, the
    suites and the data may change between calls; the recipe, its settings and the corpus may not.

    Args:
        sweep: the points.
        corpus: the training corpus.
        evaluation: how every model is evaluated, normally by the sweep's suites.
        out: the sweep's folder.
        start: evaluate the untrained encoder first, unless an axis changes it or a variant is the same.
        keep_checkpoints: keep the checkpoints of finished runs.
        progress: called with the current step.

    Returns:
        The points, the untrained one first; a failed one has no results, but says why.

    Raises:
        TurnwiseError: if a recipe, the suites or the data are invalid, or the folder holds another sweep; nothing is
            trained then.
        TrainingInterruptedError: if a signal stopped the training; everything is saved.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise TrainingError("a sweep runs in one process: start it without torchrun or accelerate launch")
    out = Path(out)
    base, runs = sweep.base_recipe(), sweep.plan()
    evaluation.check()
    _claim_folder(out, sweep, base, corpus, evaluation)
    title = f"Sweep of {sweep.recipe}: {', '.join(sweep.axis_names)}"
    remarks = [
        sweep.description,
        f"At every point: {', '.join(sweep.common_settings)}." if sweep.common_settings else "",
        *(variant.describe() for variant in sweep.variants),
        "" if evaluation.fine_tuning else "Protocols that train the encoder were left out.",
    ]

    def report(points: list[SweepPoint]) -> None:
        write_experiment(points, sweep.axis_names, out, title, [*filter(None, remarks)])

    runner = _SweepRunner(corpus, out, evaluation, keep_checkpoints, progress, report)
    start = start and not BACKBONE_KEYS & set(sweep.axis_names) and not _includes_untrained(runs, base)
    total = len(runs) + start
    if start:
        progress(f"sweep: {_UNTRAINED}", 0, total)
        runner.evaluate_untrained(base)
    for run in runs:
        progress(f"sweep: {run.name}", len(runner.points), total)
        runner.train_and_evaluate(run)
    progress("sweep: done", total, total)
    return runner.points


@dataclass(slots=True)
class _SweepRunner:
    """Trains and evaluates points."""

    corpus: Corpus
    out: Path
    evaluation: EvaluationPlan
    keep_checkpoints: bool
    progress: Progress
    report: Callable[[list[SweepPoint]], None]
    points: list[SweepPoint] = field(default_factory=list)  # the finished ones
    #: Error messages by run folder, so that points which share a failed training fail with it.
    training_failures: dict[Path, str] = field(default_factory=dict)

    def evaluate_untrained(self, recipe: Recipe) -> None:
        """Evaluate the untrained encoder; a failure here would recur at every point, so it stops the sweep."""
        model = wrap_model(load_untrained(recipe), _UNTRAINED)
        try:
            results = self.evaluation.evaluate(model, self.out / "start" / "evaluation", self.progress)
        except _OUT_OF_MEMORY as error:
            raise TrainingError(f"{_UNTRAINED}: {_memory_message('evaluation', error)}") from error
        self._add(SweepPoint(_UNTRAINED, {}, None, results))

    def train_and_evaluate(self, run: PlannedRun) -> None:
        """Train and evaluate a point, unless that was done before."""
        results: tuple[Results, ...] = ()
        failure = ""
        folder = run_folder = self.out / "runs" / folder_name(run.parameters)
        if VARIANT in run.parameters:  # variants with equal recipes share a run, so their results are elsewhere
            run_folder = self.out / "runs" / run_name(run.recipe)
            folder = self.out / "points" / folder_name(run.parameters)
        release_memory()
        try:
            results = self.evaluation.evaluate(self._load_model(run, run_folder), folder / "evaluation", self.progress)
        except TrainingInterruptedError as error:
            raise TrainingInterruptedError(
                f"interrupted at {run.name}; everything is saved. Run the same sweep again to continue"
            ) from error
        except TurnwiseError as error:
            failure = str(error)
        except _OUT_OF_MEMORY as error:
            failure = _memory_message("evaluation", error)
        model_folder = run_folder if run.variant.needs_training else None
        self._add(SweepPoint(run.name, run.parameters, model_folder, results, failure))

    def _load_model(self, run: PlannedRun, run_folder: Path) -> ModelUnderTest:
        """Return the model of a point, after training it if necessary."""
        recipe, variant = run.recipe, run.variant
        if variant.word_vectors:
            path = self.out / "word-vectors.txt"
            if not path.exists():
                corpus = self.corpus.sample(recipe.corpus_fraction)
                train_word_vectors(corpus, path, seed=recipe.seed, progress=self.progress)
            model = load_model(f"glove:{path}")
        elif variant.trained:
            folder = self._train(recipe, run_folder)
            model = load_model(folder / BEST if recipe.keep_best else folder, variant.pooling, title=run.name)
        else:
            model = wrap_model(load_untrained(recipe, variant.pooling))
        if variant.postprocess is not None:
            corpus = self.corpus.sample(recipe.corpus_fraction)
            texts = (turn.text for dialogue in corpus for turn in dialogue.turns)
            model = postprocess_model(model, variant.postprocess, texts)
        return replace(model, name=run.name)

    def _train(self, recipe: Recipe, folder: Path) -> Path:
        """Train a recipe unless its run is finished, and return the folder; equal first stages are trained once."""
        if folder in self.training_failures:
            raise TrainingError(self.training_failures[folder])
        if not (folder / TRAINED).exists():
            try:
                first = None
                if recipe.first is not None:
                    first = self._train(recipe.first, self.out / "runs" / run_name(recipe.first))
                    release_memory()
                train(
                    recipe,
                    self.corpus,
                    folder,
                    resume=True,
                    probe=make_probe(self.evaluation.data, recipe.reranks) if recipe.keep_best else None,
                    cache=self.out / "tokens",
                    first=first,
                    progress=self.progress,
                )
            except TrainingInterruptedError:
                raise
            except (TurnwiseError, *_OUT_OF_MEMORY) as error:
                message = str(error)
                if not isinstance(error, TurnwiseError):
                    message = (
                        f"{_memory_message('training', error)}, or use --set tokens_per_forward=N and another --out"
                    )
                self.training_failures[folder] = message
                raise TrainingError(message) from error
        if not self.keep_checkpoints:
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        return folder

    def _add(self, point: SweepPoint) -> None:
        self.points.append(point)
        self.report(self.points)


def load_untrained(recipe: Recipe, pooling: Pooling | None = None) -> TrainableEncoder:
    """Return the encoder that a recipe without a first stage starts from."""
    encoder = TrainableEncoder.load(recipe.backbone, pooling=pooling or recipe.pooling)
    if recipe.layers is not None:
        encoder.backbone.keep_layers(recipe.layers)
    return encoder


def _includes_untrained(runs: list[PlannedRun], base: Recipe) -> bool:
    """Return whether a point is the untrained encoder itself."""

    def pooling_of(recipe: Recipe, pooling: Pooling | None = None) -> Pooling:
        return pooling or recipe.pooling or EncoderConfig.read(locate_model(recipe.backbone)).pooling

    return any(
        pooling_of(run.recipe, run.variant.pooling) == pooling_of(base)
        for run in runs
        if not (run.variant.trained or run.variant.postprocess)
        and (run.recipe.backbone, run.recipe.layers) == (base.backbone, base.layers)
    )


def _memory_message(step: str, error: BaseException) -> str:
    return f"{step} ran out of memory ({str(error) or type(error).__name__}): free memory and run the sweep again"


def _claim_folder(out: Path, sweep: Sweep, base: Recipe, corpus: Corpus, evaluation: EvaluationPlan) -> None:
    """Check that the folder is empty or this sweep's own, and write the sweep's definition."""
    path = out / "sweep.yaml"
    source = corpus_identity(corpus)
    if path.is_file():
        _check_same_sweep(path, base, source)
    elif out.is_dir() and any(out.iterdir()):
        raise TrainingError(f"{out} contains other files: choose a new or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    content = {
        "describes": sweep.description,
        "recipe": sweep.recipe,
        "set": list(sweep.common_settings),
        "variants": [_yaml_values(asdict(variant)) for variant in sweep.variants],
        "grid": sweep.grid,
        **_yaml_values(asdict(evaluation)),
        "learns_from": source,
        "base": asdict(base),
    }
    write_atomic(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def _check_same_sweep(path: Path, base: Recipe, source: list[str]) -> None:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        old_base, old_source = from_tree(content["base"]), content["learns_from"]
    except (yaml.YAMLError, KeyError, TypeError, TurnwiseError) as error:
        raise TrainingError(f"{path} is not a sweep definition ({error}): choose another --out") from None
    keys = [each.name for each in fields(Recipe) if each.compare]
    values = [(key, getattr(old_base, key), getattr(base, key)) for key in keys]
    if changed := [f"{key} was {old!r}, now {new!r}" for key, old, new in values if old != new]:
        raise TrainingError(
            f"{path.parent} holds a sweep of another recipe ({'; '.join(changed)}): choose another --out or add an axis"
        )
    if old_source != source:
        raise TrainingError(
            f"{path.parent} holds a sweep over another corpus or other splits of it: choose another --out"
        )


def _yaml_values(values: dict[str, Any]) -> dict[str, Any]:
    """Replace paths by strings and tuples by lists."""
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}
