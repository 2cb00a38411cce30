"""`turnwise export`: a model as an ONNX graph, or as a table of token vectors."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.models.backbone.pooling import Pooling
    from turnwise.models.export import Format

#: `turnwise.models.export.FORMATS`, `turnwise.models.backbone.pooling.POOLINGS` and `turnwise.models.distillation.DIMENSIONS`, which take seconds to
#: import.
_FORMATS = ("onnx", "onnx-int8", "static")
_POOLINGS = ("mean", "cls", "cls-mlp", "max", "first-last")
_DIMENSIONS = 256

#: What is taken of a corpus, unless told.
_WORDS, _TEXTS = 10_000, 20_000


def export_command(
    model: Annotated[str, typer.Argument(help="minilm, a model folder, or a Hugging Face id.")],
    out: Annotated[
        Path,
        typer.Option(
            file_okay=False, help="Where to write it: a new folder, or that of an earlier export of this kind."
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--format", help="onnx: 32-bit numbers; onnx-int8: eight-bit weights; static: a table of token vectors."
        ),
    ] = "onnx",
    pooling: Annotated[str | None, typer.Option(help="mean, cls, max, first-last, instead of the model's own.")] = None,
    compressed: Annotated[
        bool, typer.Option("--compressed", help="Keep with it what draws vectors towards templates (TaDSE).")
    ] = False,
    dimensions: Annotated[
        int | None,
        typer.Option(help=f"static: numbers of a vector, at most the model's own; {_DIMENSIONS} unless told.", min=2),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="static: a store to fit the table to: its frequent words, its texts.")
    ] = None,
    words: Annotated[
        int | None,
        typer.Option(help=f"Words of --corpus that become tokens of their own; {_WORDS:,} unless told.", min=0),
    ] = None,
    texts: Annotated[
        int | None, typer.Option(help=f"Texts of --corpus that the table is fitted to; {_TEXTS:,} unless told.", min=0)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Writes a model as an ONNX graph or a table of token vectors: a folder that every command takes for a model.

    A graph is compared with the model before it is written. Neither can be trained any further.

    Example: `turnwise export minilm --format onnx-int8 --out minilm-int8`
    """
    # before what takes seconds to import
    if kind not in _FORMATS:
        raise typer.BadParameter(f"{kind!r}: choose from {', '.join(_FORMATS)}", param_hint="--format")
    if pooling is not None and pooling not in _POOLINGS:
        raise typer.BadParameter(f"{pooling!r}: choose from {', '.join(_POOLINGS)}", param_hint="--pooling")
    for name, given in (("--dimensions", dimensions), ("--corpus", corpus), ("--words", words), ("--texts", texts)):
        if given is not None and kind != "static":
            raise typer.BadParameter(f"it is for --format static, and this is {kind}", param_hint=name)
    for name, given in (("--words", words), ("--texts", texts)):
        if given is not None and corpus is None:
            raise typer.BadParameter("of what? Name a store by --corpus", param_hint=name)
    quiet()
    from turnwise.corpus.store import read_corpus
    from turnwise.models.distillation import survey
    from turnwise.models.encoder import Encoder
    from turnwise.models.export import export

    with bar() as progress:
        encoder = Encoder.load(model, device="cpu", pooling=cast("Pooling | None", pooling), compressed=compressed)
        static: dict[str, Any] = {"dimensions": dimensions or _DIMENSIONS}
        if corpus is not None:
            asked = (_WORDS if words is None else words, _TEXTS if texts is None else texts)
            static["words"], static["texts"] = survey(read_corpus(corpus), *asked, progress)
        found = export(encoder, out, cast("Format", kind), **static, progress=progress)
    if as_json:
        told = {"folder": str(found.folder), "format": kind, "bytes": found.size, "tokens": found.tokens}
        print_json({**told, "greatest_difference": found.difference, "least_cosine": found.cosine})
        return
    rows = [("format", kind), ("size", f"{found.size / 2**20:,.1f} MiB")]
    if found.tokens is not None:
        rows.append(("tokens", f"{found.tokens:,}"))
    if found.difference is not None:
        rows.append(("greatest difference", f"{found.difference:.2g}"))
    if found.cosine is not None:
        rows.append(("least cosine", f"{found.cosine:.6f}"))
    print_table(f"[bold]{out}", rows)
