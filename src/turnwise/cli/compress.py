"""`turnwise compress`: how far a model's vectors are drawn towards those of templates."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.evaluation.compressing import Choice
    from turnwise.models.compression import Compression, Source

#: `turnwise.models.compression.SOURCES`, which takes seconds to import.
_SOURCES = ("given", "detected", "retrieved")


def compress_command(
    model: Annotated[
        Path, typer.Argument(help="The folder of a model that was trained on templates (objective tadse).")
    ],
    data: Annotated[
        Path | None, typer.Option(envvar="TURNWISE_DATA", help="A folder of data sets, or a sample world.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="Whose validation utterances λ is chosen by; may be repeated.")
    ] = None,
    share: Annotated[float | None, typer.Option(min=0, max=1, help="λ itself, instead of choosing it.")] = None,
    source: Annotated[str | None, typer.Option(help="Where templates come from: given, detected or retrieved.")] = None,
    detector: Annotated[
        Path | None, typer.Option(help="A store that `corpus detect` wrote, whose detector the model is to keep.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Chooses λ of TaDSE's semantic compression on validation utterances, or sets it, and writes it into the model's folder.

    `turnwise evaluate MODEL --compressed` and `Encoder.load(MODEL, compressed=True)` then use it; nothing else does.

    Example: `turnwise compress model --data data --dataset snips --source given`

    Example: `turnwise compress model --share 0.2 --source detected --detector stores/clinc150-slots`
    """
    # before what takes seconds to import
    if share is not None and dataset:
        raise typer.BadParameter("λ is either given or chosen on a data set", param_hint="--share / --dataset")
    if share is None and source is None and detector is None and not dataset:
        raise typer.BadParameter("say which λ, or which data set it is chosen on", param_hint="--share / --dataset")
    if dataset and data is None:
        raise typer.BadParameter("say where the data sets are", param_hint="--data")
    if source is not None and source not in _SOURCES:
        raise typer.BadParameter(f"{source!r}: choose from {', '.join(_SOURCES)}", param_hint="--source")
    quiet()
    from turnwise.evaluation.compressing import choose_share, set_compression

    wanted, curve = cast("Source | None", source), dict[float, float]()
    found: Compression | Choice
    if data is not None and dataset:
        with bar() as progress:
            found = choose_share(model, data, dataset, wanted, detector, progress)
        curve = found.curve
    else:
        found = set_compression(model, share=share, source=wanted, detector=detector)
    if as_json:
        points = [{"share": key, "accuracy": value} for key, value in curve.items()]
        print_json({"share": found.share, "source": found.source, "curve": points})
        return
    print_table(f"[bold]{model}", [("λ", f"{found.share:g}"), ("templates", found.source)])
    if curve:
        typer.echo()
        print_table(
            "[bold]Accuracy on validation utterances by λ",
            [(f"{key:g}", f"{value:.2f}") for key, value in curve.items()],
        )
        if curve[0.0] > curve[found.share]:
            typer.echo("without compression (λ = 0) it is higher: leave compression off for this data", err=True)
