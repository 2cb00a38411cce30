"""`turnwise soup`: models between two others."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.terminal import AsJson, bar, print_figures, print_json, quiet


def soup_command(
    first: Annotated[str, typer.Argument(help="The model at ratio 0: minilm, a folder, a Hugging Face id.")],
    second: Annotated[str, typer.Argument(help="The model at ratio 1, of the same shape.")],
    ratio: Annotated[
        str, typer.Option(help="How much of the second, from 0 to 1; several by commas: 0,0.25,0.5,0.75,1.")
    ],
    out: Annotated[
        Path, typer.Option(file_okay=False, help="The model's folder; of several ratios, or of measured ones, all.")
    ],
    suite: Annotated[
        list[str] | None, typer.Option(help="Measure by a paper's suite: dse, diaeval, …; may be repeated.")
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="Measure by a task: intents, responses, …; may be repeated.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="TURNWISE_DATA", help="A folder of data sets, or a sample world.")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="These data sets alone; may be repeated.")] = None,
    fine_tuning: Annotated[bool, typer.Option(help="Whether to run what trains the encoder.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Fewer runs than the protocol has; results say so.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Fewer steps of whatever is trained; results say so.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Makes the models between two others, by weighting their weights, and measures them over the ratio.

    Example: `turnwise soup minilm model --ratio 0.5 --out half`

    Example: `turnwise soup minilm model --ratio 0,0.25,0.5,0.75,1 --suite dse --data data --out soups`

    What was made or measured once is kept in OUT: the same command goes on where it was interrupted.
    """
    # before what takes seconds to import
    ratios = _ratios(ratio)
    if (suite or task) and data is None:
        raise typer.BadParameter("say where the data sets are", param_hint="--data")
    if (dataset or seeds or steps or fine_tuning) and not (suite or task):
        raise typer.BadParameter("say by what to measure", param_hint="--suite / --task")
    quiet()
    from turnwise.evaluation.evaluation_protocols import Effort
    from turnwise.papers.sweeps.soup import soup_curve, write_soup, write_soups

    if data is not None and (suite or task):
        with bar() as progress:
            points = soup_curve(
                first,
                second,
                ratios,
                data,
                out,
                suites=suite or (),
                tasks=task or (),
                datasets=dataset or (),
                fine_tuning=fine_tuning,
                effort=Effort(seeds, steps),
                progress=progress,
            )
        if as_json:
            typer.echo((out / "results.json").read_text(encoding="utf-8"), nl=False)
        else:
            print_figures(points)
        typer.echo(f"{out / 'report.html'} has the curves", err=True)
        return
    if len(ratios) == 1:
        write_soup(first, second, ratios[0], out)
        folders = {ratios[0]: out}
    else:
        with bar() as progress:
            folders = write_soups(first, second, ratios, out, progress)
    if as_json:
        print_json([{"ratio": ratio, "model": str(folder)} for ratio, folder in folders.items()])
    else:
        for folder in folders.values():
            typer.echo(folder)


def _ratios(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r}: numbers from 0 to 1, by commas", param_hint="--ratio") from None
