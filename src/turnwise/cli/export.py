"""`turnwise export`: a model as an ONNX graph."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.backbone.pooling import Pooling
    from turnwise.exporting import Format

#: `turnwise.exporting.FORMATS` and `turnwise.backbone.pooling.POOLINGS`, which take seconds to import.
_FORMATS = ("onnx", "onnx-int8")
_POOLINGS = ("mean", "cls", "cls-mlp", "max", "first-last")


def export_command(
    model: Annotated[str, typer.Argument(help="minilm, a model folder, or a Hugging Face id.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Where to write it: a new folder, or that of an earlier export.")],
    kind: Annotated[str, typer.Option("--format", help="onnx: 32-bit numbers; onnx-int8: eight-bit weights.")] = "onnx",
    pooling: Annotated[str | None, typer.Option(help="mean, cls, max, first-last, instead of the model's own.")] = None,
    compressed: Annotated[
        bool, typer.Option("--compressed", help="Keep with it what draws vectors towards templates (TaDSE).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Writes a model as an ONNX graph, pooling inside, with its tokenizer: a folder that every command takes for a model.

    It is compared with the model before it is written. It cannot be trained any further.

    Example: `turnwise export minilm --format onnx-int8 --out minilm-int8`
    """
    # before what takes seconds to import
    if kind not in _FORMATS:
        raise typer.BadParameter(f"{kind!r}: choose from {', '.join(_FORMATS)}", param_hint="--format")
    if pooling is not None and pooling not in _POOLINGS:
        raise typer.BadParameter(f"{pooling!r}: choose from {', '.join(_POOLINGS)}", param_hint="--pooling")
    quiet()
    from turnwise.encoder import Encoder
    from turnwise.exporting import export

    with bar() as progress:
        encoder = Encoder.load(model, device="cpu", pooling=cast("Pooling | None", pooling), compressed=compressed)
        found = export(encoder, out, cast("Format", kind), progress=progress)
    if as_json:
        told = {"folder": str(found.folder), "format": kind, "bytes": found.size}
        print_json({**told, "greatest_difference": found.difference, "least_cosine": found.cosine})
        return
    rows = [
        ("format", kind),
        ("graph", f"{found.size / 2**20:,.1f} MiB"),
        ("greatest difference", f"{found.difference:.2g}"),
        ("least cosine", f"{found.cosine:.6f}"),
    ]
    print_table(f"[bold]{out}", rows)
