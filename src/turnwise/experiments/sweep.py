"""Sweeps: a recipe trained at every point of a grid, each model measured alike, one report of all.

OUT/sweep.yaml                        what is run
OUT/start/evaluation/                 what the untrained encoder measures
OUT/runs/POINT/                       a point's model, as `turnwise train` writes it
OUT/runs/POINT/evaluation/            what it measures, as `Measures` writes it
OUT/tokens/                           the tokenised corpus, which all points share
OUT/results.json, table.md, report.html, curves/    all points together
"""

import gc
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from turnwise.corpus.store import Corpus
from turnwise.encoder import Encoder
from turnwise.errors import TurnwiseError
from turnwise.evaluation.judged import judged
from turnwise.evaluation.protocols import Effort
from turnwise.evaluation.results import Results
from turnwise.experiments.grid import Axis, changes, expect_distinct, parse_axis, product, slug
from turnwise.experiments.measures import Measures
from turnwise.experiments.points import Point
from turnwise.experiments.report import write_experiment
from turnwise.progress import Progress, silent
from turnwise.recipes import packaged, yaml_text
from turnwise.training.loop import TrainingInterruptedError, train
from turnwise.training.recipe import Recipe, from_tree, load_recipe
from turnwise.training.tokens import corpus_source

#: Keys that change what training starts from: along them there is no one start to compare with.
_STARTS = {"backbone", "layers", "pooling"}

#: In a run's folder once its training is over; the model's own files are there before they are whole.
_TRAINED = "trained"

#: What a machine says that has too little memory, on a GPU and off it.
_OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)

#: Where the sweeps that come with turnwise lie.
_PACKAGE = "turnwise.recipes.sweeps"

_KEYS = ("describes", "recipe", "grid", "set", "suites")


class SweepError(TurnwiseError):
    """A sweep cannot be run as asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Which models are trained, and by which suites they are measured.

    Attributes:
        recipe: a packaged recipe's name, or a YAML file.
        axes: what changes between the points; the last changes fastest.
        settings: what is changed at all points, as `key=value`.
        suites: 'dse', 'diaeval', ….
        describes: what it is for.
    """

    recipe: str
    axes: tuple[Axis, ...]
    settings: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    describes: str = ""

    def __post_init__(self) -> None:
        fixed = {setting.partition("=")[0] for setting in self.settings} & {axis.key for axis in self.axes}
        if fixed:
            key = min(fixed)
            raise SweepError(f"{key} is an axis and set for all points too: --grid {key}=VALUE alone gives it one value")

    def base(self) -> Recipe:
        """The recipe with what is changed at all points."""
        return load_recipe(self.recipe, self.settings)

    def recipes(self) -> list[tuple[dict[str, Any], Recipe]]:
        """The points in their order, and the recipe of each.

        Raises:
            RecipeError: if there is no such recipe, or a setting of all points cannot be.
            SweepError: if a point's recipe cannot be, or is another's.
        """
        self.base()  # what is wrong everywhere is told without a point's name
        found: list[tuple[dict[str, Any], Recipe]] = []
        for place in product(self.axes):
            try:
                recipe = load_recipe(self.recipe, [*self.settings, *changes(place)])
            except TurnwiseError as error:
                raise SweepError(f"{named(place)}: {error}") from error
            other = next((other for other, known in found if known == recipe), None)
            if other is not None:
                raise SweepError(f"{named(place)} and {named(other)} are one recipe: leave one of them out")
            found.append((place, recipe))
        return found


def named(place: Mapping[str, Any]) -> str:
    """What tables call a point."""
    return ", ".join(changes(place)) or "untrained"


# ---- from names and files


def packaged_sweeps() -> list[str]:
    """The names of the sweeps that come with turnwise."""
    return packaged(_PACKAGE)


def load_sweep(
    name: str | Path, grid: Sequence[str] = (), settings: Sequence[str] = (), suites: Sequence[str] | None = None
) -> Sweep:
    """A sweep from a packaged name or a YAML file, or of a recipe along the axes that are given.

    Args:
        name: of a sweep or of a recipe; a file that has a key `grid` is a sweep.
        grid: axes as `key=a,b,c`, in place of the sweep's own of that key, or besides them.
        settings: `key=value`, after the sweep's own.
        suites: instead of the sweep's own; None: those.

    Raises:
        SweepError: if the file is not a sweep's.
        GridError: if an axis cannot be read.
    """
    tree = _read(name) or {"recipe": str(name), "grid": {}}
    unknown = [key for key in tree if key not in _KEYS]
    if unknown or not isinstance(tree.get("recipe"), str):
        what = f"no key {unknown[0]!r}" if unknown else "to name its recipe"
        raise SweepError(f"{name}: a sweep has {what}; it has {', '.join(_KEYS)}")
    given = [parse_axis(text) for text in grid]
    expect_distinct(given)  # before one replaces the other
    axes = {axis.key: axis for axis in (*_axes(name, tree.get("grid")), *given)}
    return Sweep(
        recipe=tree["recipe"],
        axes=tuple(axes.values()),
        settings=(*_settings(name, tree.get("set")), *settings),
        suites=tuple(_texts(name, "suites", tree.get("suites")) if suites is None else suites),
        describes=str(tree.get("describes", "")),
    )


def _read(name: str | Path) -> dict[str, Any] | None:
    """What a sweep's file holds; None where the name is not a sweep's."""
    text = yaml_text(name, _PACKAGE)
    if text is None:
        return None
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SweepError(f"{name} is not valid YAML: {error}") from None
    return tree if isinstance(tree, dict) and "grid" in tree else None


def _axes(name: str | Path, grid: Any) -> list[Axis]:
    if not isinstance(grid, dict) or not all(isinstance(values, list) for values in grid.values()):
        raise SweepError(f"{name}: grid: expected keys, each with a list of values")
    return [Axis(str(key), tuple(values)) for key, values in grid.items()]


def _settings(name: str | Path, settings: Any) -> list[str]:
    return changes(settings) if isinstance(settings, dict) else _texts(name, "set", settings)


def _texts(name: str | Path, key: str, values: Any) -> list[str]:
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise SweepError(f"{name}: {key}: expected a list of texts")
    return values


# ---- running it


@dataclass(slots=True)
class _Running:
    """A sweep under way."""

    corpus: Corpus
    out: Path
    measures: Measures
    keep_checkpoints: bool
    progress: Progress
    report: Callable[[list[Point]], None]
    points: list[Point] = field(default_factory=list)

    def start(self, recipe: Recipe) -> None:
        """Measures what training starts from; what fails here would fail at every point, and nothing is trained yet."""
        encoder = Encoder.load(recipe.backbone, pooling=recipe.pooling)
        if recipe.layers is not None:
            encoder.backbone.keep_layers(recipe.layers)
        try:
            results = self.measures.results(judged(encoder, named({})), self.out / "start" / "evaluation", self.progress)
        except _OUT_OF_MEMORY as error:
            raise SweepError(f"{named({})}: {_exhausted(error, recipe, trained=True)}") from error
        self._add(Point(named({}), {}, None, results))

    def point(self, place: dict[str, Any], recipe: Recipe) -> None:
        """Trains and measures a point, as far as that was not done before."""
        name, folder = named(place), self.out / "runs" / slug(place)
        results: tuple[Results, ...] = ()
        failure = ""
        _release()
        try:
            self._train(recipe, folder)
            results = self.measures.results(judged(Encoder.load(folder), name), folder / "evaluation", self.progress)
        except TrainingInterruptedError as error:
            raise TrainingInterruptedError(f"interrupted at {name}; all is saved. The same sweep goes on from there") from error
        except TurnwiseError as error:
            failure = str(error)
        except _OUT_OF_MEMORY as error:
            failure = _exhausted(error, recipe, trained=(folder / _TRAINED).exists())
        self._add(Point(name, place, folder, results, failure))

    def _train(self, recipe: Recipe, folder: Path) -> None:
        if not (folder / _TRAINED).exists():
            train(recipe, self.corpus, folder, resume=True, cache=self.out / "tokens", progress=self.progress)
            (folder / _TRAINED).touch()
        if not self.keep_checkpoints:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)

    def _add(self, point: Point) -> None:
        self.points.append(point)
        self.report(self.points)


def _release() -> None:
    """Gives back what the last model held, finished or failed: a run chooses its chunks by how much memory is free."""
    gc.collect()
    torch.cuda.empty_cache()


def _exhausted(error: BaseException, recipe: Recipe, trained: bool) -> str:
    """What is said of a model for which memory did not suffice, and what to do."""
    said = str(error) or type(error).__name__
    if trained:
        return f"measuring it ran out of memory ({said}): make room on the machine, and run the same again"
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

    What is trained is not trained again, what is measured is not measured again, and points that failed are tried anew. The grid,
    the suites and the data may be others than before; the recipe, its settings and the corpus may not.

    Args:
        sweep: which points, and by which suites they are measured.
        corpus: what to learn from.
        data: a folder of data sets in their authors' layouts, or a sample world's.
        out: the sweep's folder.
        tasks: measured besides the suites: 'intents', 'responses', ….
        datasets: these alone; none: all that are there.
        fine_tuning: whether to measure what trains the encoder further, too.
        effort: less than the whole protocols; results say so.
        start: whether to measure the untrained encoder first; there is none where an axis changes it.
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
    base, recipes = sweep.base(), sweep.recipes()
    measures.check()
    _claim(Path(out), sweep, base, corpus, measures)
    keys = [axis.key for axis in sweep.axes]
    title = f"Sweep of {sweep.recipe}: {', '.join(keys)}"
    remarks = _remarks(sweep, measures)

    def report(points: list[Point]) -> None:
        write_experiment(points, keys, Path(out), title, remarks)

    running = _Running(corpus, Path(out), measures, keep_checkpoints, progress, report)
    first = start and not _STARTS & set(keys)
    total = len(recipes) + first
    if first:
        progress(f"sweep: {named({})}", 0, total)
        running.start(base)
    for place, recipe in recipes:
        progress(f"sweep: {named(place)}", len(running.points), total)
        running.point(place, recipe)
    progress("sweep: done", total, total)
    return running.points


def _remarks(sweep: Sweep, measures: Measures) -> list[str]:
    """What a reader of the report has to know."""
    said = [
        sweep.describes,
        f"At every point: {', '.join(sweep.settings)}." if sweep.settings else "",
        "" if measures.fine_tuning else "Nothing was measured that trains the encoder further.",
    ]
    return [text for text in said if text]


def _claim(out: Path, sweep: Sweep, base: Recipe, corpus: Corpus, measures: Measures) -> None:
    """Makes sure that the folder is this sweep's own, and writes down what is run."""
    place = out / "sweep.yaml"
    learns_from = corpus_source(corpus)
    if place.is_file():
        _compare(place, base, learns_from)
    elif out.is_dir() and any(out.iterdir()):
        raise SweepError(f"{out} holds other files: choose a new or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    content = {
        "describes": sweep.describes,
        "recipe": sweep.recipe,
        "set": list(sweep.settings),
        "grid": {axis.key: list(axis.values) for axis in sweep.axes},
        **{key: _plain(value) for key, value in asdict(measures).items()},
        "learns_from": learns_from,
        "base": asdict(base),
    }
    part = place.with_suffix(".part")
    part.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
    part.replace(place)


def _compare(place: Path, base: Recipe, learns_from: list[str]) -> None:
    try:
        before = yaml.safe_load(place.read_text(encoding="utf-8"))
        known, learnt_from = asdict(from_tree(before["base"])), before["learns_from"]
    except (yaml.YAMLError, KeyError, TypeError, TurnwiseError) as error:
        raise SweepError(f"{place} is not what a sweep wrote ({error}): choose another --out") from None
    here = {key: value for key, value in asdict(base).items() if key != "describes"}
    differing = [f"{key} is {known[key]!r} there and {value!r} here" for key, value in here.items() if known[key] != value]
    if differing:
        raise SweepError(
            f"{place.parent} holds a sweep of another recipe ({'; '.join(differing)}): choose another --out, or make it an axis"
        )
    if learnt_from != learns_from:
        raise SweepError(f"{place.parent} holds a sweep over another corpus or other splits of it: choose another --out")


def _plain(value: Any) -> Any:
    """The same as YAML has it: no paths, no tuples."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
