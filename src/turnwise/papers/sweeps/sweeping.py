"""Running a sweep: every point trained, as far as it is, and measured alike; one report of all; what was done is not done again.

OUT/sweep.yaml                        what is run
OUT/start/evaluation/                 what the untrained encoder measures
OUT/runs/RUN/                         a model, as `turnwise train` writes it; RUN is the point, or a recipe's objectives and a hash
OUT/runs/POINT/evaluation/            what it measures, as `Measures` writes it
OUT/points/POINT/evaluation/          the same of a point that is one of several variants, which may share a run
OUT/word-vectors.txt                  word vectors, where a variant is made of them
OUT/tokens/                           the tokenised corpus, which all points share
OUT/results.json, table.md, report.html, curves/    all points together
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from turnwise.core.errors import TurnwiseError
from turnwise.core.files import write_whole
from turnwise.core.progress import Progress, silent
from turnwise.corpus.store import Corpus
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.probe import make_probe
from turnwise.evaluation.results import Results
from turnwise.models.backbone.pooling import Pooling
from turnwise.models.encoder import Encoder
from turnwise.models.loading import ModelUnderTest, load_folder, load_model, postprocess_model, wrap_model
from turnwise.papers import baselines  # noqa: F401  registers models and post-processors
from turnwise.papers.baselines.word_vectors import train_word_vectors
from turnwise.papers.sweeps.grid import slug
from turnwise.papers.sweeps.measures import Measures
from turnwise.papers.sweeps.points import VARIANT, Point
from turnwise.papers.sweeps.report import write_experiment
from turnwise.papers.sweeps.sweep import Planned, Sweep, SweepError, named, run_name
from turnwise.papers.sweeps.variants import STARTS
from turnwise.training import TrainingInterruptedError
from turnwise.training.checkpoint import BEST, CHECKPOINTS, TRAINED
from turnwise.training.disk_cache import corpus_identity
from turnwise.training.loop import Probe, release_memory, train
from turnwise.training.recipe import Recipe, from_tree

#: What a machine says that has too little memory, on a GPU and off it.
_OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)


@dataclass(slots=True)
class _Running:
    """A sweep under way.

    Attributes:
        failed: why the training in a folder failed: other points that need it fail alike, without trying it anew.
    """

    corpus: Corpus
    out: Path
    measures: Measures
    keep_checkpoints: bool
    progress: Progress
    report: Callable[[list[Point]], None]
    points: list[Point] = field(default_factory=list)
    failed: dict[Path, str] = field(default_factory=dict)

    def start(self, recipe: Recipe) -> None:
        """Measures what training starts from; what fails here would fail at every point, and nothing is trained yet."""
        encoder = _untrained(recipe)
        try:
            results = self.measures.results(
                wrap_model(encoder, named({})), self.out / "start" / "evaluation", self.progress
            )
        except _OUT_OF_MEMORY as error:
            raise SweepError(f"{named({})}: {_not_measured(error)}") from error
        self._add(Point(named({}), {}, None, results))

    def point(self, planned: Planned) -> None:
        """Makes and measures a point, as far as that was not done before."""
        results: tuple[Results, ...] = ()
        failure = ""
        release_memory()
        try:
            results = self.measures.results(self._model(planned), self._evaluation(planned), self.progress)
        except TrainingInterruptedError as error:
            raise TrainingInterruptedError(
                f"interrupted at {planned.name}; all is saved. The same sweep goes on from there"
            ) from error
        except TurnwiseError as error:
            failure = str(error)
        except _OUT_OF_MEMORY as error:
            failure = _not_measured(error)
        folder = self._run(planned.run) if planned.trained else None
        self._add(Point(planned.name, planned.place, folder, results, failure))

    def _run(self, name: str) -> Path:
        return self.out / "runs" / name

    def _evaluation(self, planned: Planned) -> Path:
        # points that share a run are measured apart
        folder = self.out / "points" / slug(planned.place) if VARIANT in planned.place else self._run(planned.run)
        return folder / "evaluation"

    # ---- the models

    def _model(self, planned: Planned) -> ModelUnderTest:
        """What is judged at a point, trained if it has to be."""
        recipe = planned.recipe
        if planned.word_vectors:
            found = load_model(f"glove:{self._word_vectors(recipe)}")
        elif planned.trained:
            found = load_folder(_kept(recipe, self._trained(recipe, planned.run)), planned.name, planned.pooling)
        else:
            found = wrap_model(_untrained(recipe, planned.pooling))
        if planned.postprocess is not None:
            sampled = self.corpus.sampled(recipe.corpus_share)
            texts = (turn.text for dialogue in sampled for turn in dialogue.turns)
            found = postprocess_model(found, planned.postprocess, texts)
        return replace(found, name=planned.name)

    def _probe(self, recipe: Recipe) -> Probe | None:
        """What chooses the model that is kept, where the recipe wants the best one: held-out data beside what is measured on."""
        return make_probe(self.measures.data, recipe.reranks) if recipe.keep_best else None

    def _trained(self, recipe: Recipe, name: str) -> Path:
        """The folder of a recipe's model; recipes that have the same first stage share it."""
        folder = self._run(name)
        if folder in self.failed:
            raise SweepError(self.failed[folder])
        if not (folder / TRAINED).exists():
            try:
                first = self._first(recipe)
                train(
                    recipe,
                    self.corpus,
                    folder,
                    resume=True,
                    probe=self._probe(recipe),
                    cache=self.out / "tokens",
                    first=first,
                    progress=self.progress,
                )
            except TrainingInterruptedError:
                raise
            except (TurnwiseError, *_OUT_OF_MEMORY) as error:
                self.failed[folder] = str(error) if isinstance(error, TurnwiseError) else _not_trained(error, recipe)
                raise SweepError(self.failed[folder]) from error
        if not self.keep_checkpoints:
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        return folder

    def _first(self, recipe: Recipe) -> Path | None:
        """The folder of a recipe's first stage, where it has one."""
        if recipe.first is None:
            return None
        folder = self._trained(recipe.first, run_name(recipe.first))
        release_memory()
        return folder

    def _word_vectors(self, recipe: Recipe) -> Path:
        """The file of the corpus' word vectors."""
        place = self.out / "word-vectors.txt"
        if not place.exists():
            train_word_vectors(
                self.corpus.sampled(recipe.corpus_share), place, seed=recipe.seed, progress=self.progress
            )
        return place

    def _add(self, point: Point) -> None:
        self.points.append(point)
        self.report(self.points)


def _kept(recipe: Recipe, folder: Path) -> Path:
    """The folder of the model that a run is judged by: its best, where the recipe keeps that, else its last."""
    return folder / BEST if recipe.keep_best else folder


def _untrained(recipe: Recipe, pooling: Pooling | None = None) -> Encoder:
    """What training starts from."""
    encoder = Encoder.load(recipe.backbone, pooling=pooling or recipe.pooling)
    if recipe.layers is not None:
        encoder.backbone.keep_layers(recipe.layers)
    return encoder


def _has_start(base: Recipe, plan: Sequence[Planned]) -> bool:
    """Whether a point is what training starts from, as it is."""
    taken = [each for each in plan if not (each.trained or each.word_vectors or each.postprocess)]
    same = [each for each in taken if (each.recipe.backbone, each.recipe.layers) == (base.backbone, base.layers)]
    return bool(same) and _untrained(base).pooling in [_untrained(each.recipe, each.pooling).pooling for each in same]


def _not_measured(error: BaseException) -> str:
    """What is said of a model for whose measuring memory did not suffice, and what to do."""
    said = str(error) or type(error).__name__
    return f"measuring it ran out of memory ({said}): make room on the machine, and run the same again"


def _not_trained(error: BaseException, recipe: Recipe) -> str:
    """What is said of a model for whose training memory did not suffice, and what to do."""
    said = str(error) or type(error).__name__
    fewer = f"less than {recipe.tokens_per_forward}" if recipe.tokens_per_forward else "such as 4096"
    return (
        f"training it ran out of memory ({said}): make room on the machine and run the same again, or have fewer tokens encoded at "
        f"once (--set tokens_per_forward=N, {fewer}) and, since that is another recipe, in another --out"
    )


def run_sweep(
    sweep: Sweep,
    corpus: Corpus,
    data: Path | str,
    out: Path | str,
    *,
    tasks: Sequence[str] = (),
    datasets: Sequence[str] = (),
    fine_tuning: bool = False,
    effort: Effort | None = None,
    start: bool = True,
    keep_checkpoints: bool = False,
    progress: Progress = silent,
) -> list[Point]:
    """Trains and measures every point of a sweep; run again, it goes on where it stopped.

    What is trained is not trained again, what is measured is not measured again, and points that failed are tried anew. Points of
    one recipe share its run, recipes of one first stage share that. The grid, the variants, the suites and the data may be others
    than before; the recipe, its settings and the corpus may not.

    Args:
        sweep: which points, and by which suites they are measured.
        corpus: what to learn from.
        data: a folder of data sets in their authors' layouts, or a sample world's.
        out: the sweep's folder.
        tasks: measured besides the suites: 'intents', 'responses', ….
        datasets: these alone; none: all that are there.
        fine_tuning: whether to measure what trains the encoder further, too.
        effort: less than the whole protocols; results say so.
        start: whether to measure the untrained encoder first; there is none where an axis changes it or a variant is it.
        keep_checkpoints: whether finished runs keep theirs; each is three times its model.
        progress: told what is under way.

    Returns:
        The points, the untrained one first; one that failed has no results, but says why.

    Raises:
        SweepError: if a point's recipe cannot be, or the folder holds another sweep; nothing is trained then.
        EvaluationError: if nothing can be measured by these suites and tasks, or not on that data; nothing is trained then.
        TrainingInterruptedError: if somebody asked it to stop; all is saved.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SweepError("a sweep runs in one process: start it without torchrun or accelerate launch")
    measures = Measures(Path(data), sweep.suites, tuple(tasks), tuple(datasets), fine_tuning, effort or Effort())
    base, plan = sweep.base(), sweep.plan()
    measures.check()
    _claim(Path(out), sweep, base, corpus, measures)
    title = f"Sweep of {sweep.recipe}: {', '.join(sweep.keys)}"
    remarks = _remarks(sweep, measures)

    def report(points: list[Point]) -> None:
        write_experiment(points, sweep.keys, Path(out), title, remarks)

    running = _Running(corpus, Path(out), measures, keep_checkpoints, progress, report)
    first = start and not STARTS & set(sweep.keys) and not _has_start(base, plan)
    total = len(plan) + first
    if first:
        progress(f"sweep: {named({})}", 0, total)
        running.start(base)
    for planned in plan:
        progress(f"sweep: {planned.name}", len(running.points), total)
        running.point(planned)
    progress("sweep: done", total, total)
    return running.points


def _remarks(sweep: Sweep, measures: Measures) -> list[str]:
    """What a reader of the report has to know."""
    said = [
        sweep.describes,
        f"At every point: {', '.join(sweep.everywhere)}." if sweep.everywhere else "",
        *(variant.description() for variant in sweep.variants),
        "" if measures.fine_tuning else "Nothing was measured that trains the encoder further.",
    ]
    return [text for text in said if text]


def _claim(out: Path, sweep: Sweep, base: Recipe, corpus: Corpus, measures: Measures) -> None:
    """Makes sure that the folder is this sweep's own, and writes down what is run."""
    place = out / "sweep.yaml"
    learns_from = corpus_identity(corpus)
    if place.is_file():
        _compare(place, base, learns_from)
    elif out.is_dir() and any(out.iterdir()):
        raise SweepError(f"{out} holds other files: choose a new or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    content = {
        "describes": sweep.describes,
        "recipe": sweep.recipe,
        "set": list(sweep.everywhere),
        "variants": [{key: _plain(value) for key, value in asdict(variant).items()} for variant in sweep.variants],
        "grid": {axis.key: list(axis.values) for axis in sweep.axes},
        **{key: _plain(value) for key, value in asdict(measures).items()},
        "learns_from": learns_from,
        "base": asdict(base),
    }
    write_whole(place, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def _compare(place: Path, base: Recipe, learns_from: list[str]) -> None:
    try:
        before = yaml.safe_load(place.read_text(encoding="utf-8"))
        known, learnt_from = from_tree(before["base"]), before["learns_from"]
    except (yaml.YAMLError, KeyError, TypeError, TurnwiseError) as error:
        raise SweepError(f"{place} is not what a sweep wrote ({error}): choose another --out") from None
    pairs = {
        each.name: (getattr(known, each.name), getattr(base, each.name)) for each in fields(Recipe) if each.compare
    }
    differing = [f"{key} is {there!r} there and {here!r} here" for key, (there, here) in pairs.items() if there != here]
    if differing:
        raise SweepError(
            f"{place.parent} holds a sweep of another recipe ({'; '.join(differing)}): choose another --out, or make it an axis"
        )
    if learnt_from != learns_from:
        raise SweepError(
            f"{place.parent} holds a sweep over another corpus or other splits of it: choose another --out"
        )


def _plain(value: Any) -> Any:
    """The same as YAML has it: no paths, no tuples."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
