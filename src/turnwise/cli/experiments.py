"""`turnwise sweep` and `turnwise soup`: many models, evaluated and reported together."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli.options import (
    AsJson,
    Data,
    Datasets,
    EvaluationSeeds,
    EvaluationSteps,
    FineTuning,
    OptionalData,
    Overrides,
    Splits,
    Suites,
    Tasks,
    TrainingCorpora,
)
from turnwise.cli.output import Block, facts, lines, message, progress_bar, show
from turnwise.core.imports import require

if TYPE_CHECKING:
    from turnwise.papers.sweeps.experiment import SweepPoint


def _list_sweeps(requested: bool) -> None:
    if requested:
        from turnwise.papers.sweeps.plan import load_sweep, packaged_sweeps

        rows = [(name, load_sweep(name).description) for name in packaged_sweeps()]
        show(None, facts("Sweeps", rows))
        raise typer.Exit


def sweep_command(
    recipe: Annotated[str, Argument(help="Sweep name (see --list) or file, or a recipe together with --grid.")],
    corpus: TrainingCorpora,
    data: Data,
    out: Annotated[
        Path, Option(file_okay=False, help="Folder for the models, results.json, table.md and report.html.")
    ],
    grid: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUES", help="Recipe key and its values, as key=a,b,c or key=[1],[1,2]; repeatable."),
    ] = None,
    variant: Annotated[
        list[str] | None, Option(metavar="VARIANT", help="Only this variant of the sweep; repeatable.")
    ] = None,
    settings: Overrides = None,
    suite: Suites = None,
    task: Tasks = None,
    dataset: Datasets = None,
    split: Splits = None,
    seeds: EvaluationSeeds = None,
    steps: EvaluationSteps = None,
    fine_tuning: FineTuning = False,
    start: Annotated[bool, Option(help="Evaluate the untrained encoder first.")] = True,
    keep_checkpoints: Annotated[
        bool, Option("--keep-checkpoints", help="Keep the checkpoints of finished runs.")
    ] = False,
    as_json: AsJson = False,
    list_sweeps: Annotated[
        bool, Option("--list", callback=_list_sweeps, is_eager=True, help="List the packaged sweeps and exit.")
    ] = False,
) -> None:
    """Train and evaluate a recipe at every point of a grid.

    `--suite` and `--task` replace the suites that a packaged sweep names. After an interruption or failure the same
    command continues; the grid may grow in the meantime.

    Example: `turnwise sweep dse --grid learning_rate=3e-6,3e-5 --corpus store --suite dse --data data --out sweep`
    """
    require("torch", "pyarrow", extra="train")
    from turnwise.core.errors import TrainingError, TrainingInterruptedError
    from turnwise.evaluation.evaluation_protocols import Effort
    from turnwise.papers.sweeps.experiment import EvaluationPlan
    from turnwise.papers.sweeps.plan import load_sweep
    from turnwise.papers.sweeps.run import run_sweep

    suites = (suite or ()) if suite or task else None
    sweep = load_sweep(recipe, grid or (), settings or (), suites, variant or None)
    try:
        with progress_bar() as progress:
            points = run_sweep(
                sweep,
                turnwise.read_corpus(*corpus, splits=split or None),
                EvaluationPlan(data, sweep.suites, tuple(task or ()), dataset or (), fine_tuning, Effort(seeds, steps)),
                out,
                start=start,
                keep_checkpoints=keep_checkpoints,
                progress=progress,
            )
    except (TrainingInterruptedError, KeyboardInterrupt):
        message("interrupted; everything is saved. Run the same command to continue")
        raise typer.Exit(130) from None
    show_points(points, out, as_json, title=sweep.recipe)
    failures = [f"{point.name}: {point.failure}" for point in points if point.failure]
    if failures:
        raise TrainingError(
            f"{len(failures)} of {len(points)} points failed; the same command retries them. {'; '.join(failures)}"
        )


def soup_command(
    first: Annotated[
        str, Argument(help="Model at ratio 0: turnwise-small, minilm, a model folder or a Hugging Face id.")
    ],
    second: Annotated[str, Argument(help="Model at ratio 1, of the same shape.")],
    ratio: Annotated[str, Option(help="Weight of the second model, 0 to 1; several as 0,0.25,0.5,0.75,1.")],
    out: Annotated[
        Path, Option(file_okay=False, help="Model folder; with several ratios or evaluation, a folder of models.")
    ],
    suite: Suites = None,
    task: Tasks = None,
    data: OptionalData = None,
    dataset: Datasets = None,
    fine_tuning: FineTuning = False,
    seeds: EvaluationSeeds = None,
    steps: EvaluationSteps = None,
    as_json: AsJson = False,
) -> None:
    """Average the weights of two models, and evaluate the results.

    Example: `turnwise soup minilm model --ratio 0.5 --out half`

    Example: `turnwise soup minilm model --ratio 0,0.25,0.5,0.75,1 --suite dse --data data --out soups`

    Finished work is kept in OUT: the same command continues after an interruption.
    """
    ratios = _parse_ratios(ratio)
    if (suite or task) and data is None:
        raise typer.BadParameter("name the folder of data sets", param_hint="--data")
    if (dataset or seeds or steps or fine_tuning) and not (suite or task):
        raise typer.BadParameter("name what to evaluate", param_hint="--suite / --task")
    require("torch", "pyarrow", extra="train")
    from turnwise.evaluation.evaluation_protocols import Effort
    from turnwise.papers.sweeps.experiment import EvaluationPlan
    from turnwise.papers.sweeps.series import evaluate_soups, write_soup, write_soups

    with progress_bar() as progress:
        if data is not None and (suite or task):
            evaluation = EvaluationPlan(data, suite or (), task or (), dataset or (), fine_tuning, Effort(seeds, steps))
            points = evaluate_soups(first, second, ratios, evaluation, out, progress)
        elif len(ratios) == 1:
            write_soup(first, second, ratios[0], out)
            points, folders = [], {ratios[0]: out}
        else:
            points, folders = [], write_soups(first, second, ratios, out, progress)
    if points:
        show_points(points, out, as_json)
    else:
        models = [{"ratio": ratio, "model": str(folder)} for ratio, folder in folders.items()]
        show(models, lines(*((str(folder), "") for folder in folders.values())), as_json=as_json)


def _parse_ratios(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers from 0 to 1 separated by commas, got {text!r}") from None


def show_points(points: "Sequence[SweepPoint]", out: Path, as_json: bool, title: str = "") -> None:
    """Print the results of an experiment and the path of its report."""
    show(json.loads((out / "results.json").read_text(encoding="utf-8")), metric_lines(points, title), as_json=as_json)
    message(f"tables and curves: {out / 'report.html'}")


def metric_lines(points: "Sequence[SweepPoint]", title: str) -> Block:
    """One block per metric with one line per point, which fits any terminal width."""
    from turnwise.papers.sweeps.experiment import summary_table

    (_, *metrics), table = summary_table(points)
    width = max(len(name) for name, *_ in table)
    parts = [(title, "bold")] if title else []
    for column, metric in enumerate(metrics, 1):
        parts += [(metric, "bold"), *((f"  {row[0]:{width}}  {row[column]}", "") for row in table)]
    return lines(*parts)
