"""`turnwise sweep`: a recipe at many points, measured and reported together."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.terminal import AsJson, bar, print_figures, print_table, quiet


def _list(wanted: bool) -> None:
    if wanted:
        from turnwise.papers.sweeps.sweep import load_sweep, packaged_sweeps

        print_table("[bold]Sweeps", [(each, load_sweep(each).describes) for each in packaged_sweeps()])
        raise typer.Exit


def sweep_command(
    recipe: Annotated[str, typer.Argument(help="A sweep's name (see --list) or file, or a recipe's with --grid.")],
    corpus: Annotated[list[Path], typer.Option(help="A store to learn from; may be repeated.")],
    data: Annotated[
        Path, typer.Option(envvar="TURNWISE_DATA", help="A folder of data sets to measure on, or a sample world.")
    ],
    out: Annotated[
        Path, typer.Option(file_okay=False, help="The sweep's folder: models, results.json, table.md, report.html.")
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(help="A key of the recipe and its values, as key=a,b,c or key=[1],[1,2]; may be repeated."),
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="These of the sweep's variants alone; may be repeated.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key at all points, as key=value; may be repeated.")
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(help="Measure by dse, diaeval, …, and not by the sweep's own suites; may be repeated."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            help="Measure by intents, …, besides --suite, and not by the sweep's own suites; may be repeated."
        ),
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="These data sets alone; may be repeated.")] = None,
    split: Annotated[
        list[str] | None, typer.Option(help="Learn only from dialogues of this split; may be repeated.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Fewer runs than the protocols have; results say so.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, help="Fewer steps of whatever measuring trains; results say so. The recipe's own: --set steps=N."
        ),
    ] = None,
    fine_tuning: Annotated[bool, typer.Option(help="Whether to measure what trains the encoder further, too.")] = False,
    start: Annotated[bool, typer.Option(help="Whether to measure the untrained encoder first.")] = True,
    keep_checkpoints: Annotated[bool, typer.Option("--keep-checkpoints", help="Keep those of finished runs.")] = False,
    as_json: AsJson = False,
    list_them: Annotated[
        bool,
        typer.Option("--list", callback=_list, is_eager=True, help="Show the sweeps that come with turnwise and stop."),
    ] = False,
) -> None:
    """Trains a recipe and its variants at every point of a grid, measures each model, and reports them together.

    Killed, interrupted or with failed points, the same command goes on; the grid may grow meanwhile.

    Example: `turnwise sweep dse --grid learning_rate=3e-6,3e-5 --corpus store --suite dse --data data --out sweep`
    """
    quiet()
    from turnwise.corpus.store import read_corpus
    from turnwise.evaluation.evaluation_protocols import Effort
    from turnwise.papers.sweeps.sweep import SweepError, load_sweep
    from turnwise.papers.sweeps.sweeping import run_sweep
    from turnwise.training.errors import TrainingInterruptedError

    own = not suite and not task  # either of them replaces what the sweep names
    wanted = load_sweep(recipe, grid or (), settings or (), None if own else suite or (), variant or None)
    try:
        with bar() as progress:
            points = run_sweep(
                wanted,
                read_corpus(*corpus, splits=split or None),
                data,
                out,
                tasks=task or (),
                datasets=dataset or (),
                fine_tuning=fine_tuning,
                effort=Effort(seeds, steps),
                start=start,
                keep_checkpoints=keep_checkpoints,
                progress=progress,
            )
    except (TrainingInterruptedError, KeyboardInterrupt):
        typer.echo("interrupted; all is saved. Go on with the same command", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo((out / "results.json").read_text(encoding="utf-8"), nl=False)
    else:
        print_figures(points, wanted.recipe)
    typer.echo(f"{out / 'report.html'} has the tables and curves", err=True)
    failed = [f"{point.name}: {point.failure}" for point in points if point.failure]
    if failed:
        said = "; ".join(failed)
        raise SweepError(f"{len(failed)} of {len(points)} points failed, and the same command tries them again. {said}")
