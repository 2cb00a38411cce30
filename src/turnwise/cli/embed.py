"""`turnwise embed`: vectors of many texts."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

#: `turnwise.embedding.FORMATS`, which takes seconds to import.
_FORMATS = (".npy", ".parquet", ".jsonl")


def embed_command(
    model: Annotated[str, typer.Argument(help="minilm, a model folder, a Hugging Face id, or what else `evaluate` takes.")],
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="A store; a .txt file, a text a line; a .csv, .tsv, .jsonl or .parquet file.")
    ],
    out: Annotated[Path, typer.Option(help="The file to write: .npy, an array; .parquet or .jsonl, with the texts.")],
    column: Annotated[str, typer.Option(help="The column of texts in a table.")] = "text",
    split: Annotated[list[str] | None, typer.Option(help="Of a store: dialogues of this split alone; may be repeated.")] = None,
    speaker: Annotated[list[str] | None, typer.Option(help="Of a store: turns by this speaker alone; may be repeated.")] = None,
    normalise: Annotated[
        bool | None,
        typer.Option(help="Whether to scale vectors to length 1; as the model does, if not said.", show_default=False),
    ] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="Tokens of a text, at most the model's own.")] = None,
    compressed: Annotated[
        bool, typer.Option("--compressed", help="Draw vectors towards those of templates (TaDSE), as the model's folder says how.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Writes a vector for each text, in their order.

    What is interrupted goes on where it stopped, if the same command is given again.

    Example: `turnwise embed minilm stores/our-logs --speaker user --out vectors.parquet`
    """
    # before what takes seconds to import
    if out.suffix not in _FORMATS:
        raise typer.BadParameter(f"{out} is none of {', '.join(_FORMATS)}", param_hint="--out")
    if not out.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.absolute().parent}", param_hint="--out")
    from turnwise.texts import read_texts

    texts = read_texts(source, column, split or (), speaker or ())
    quiet()
    from turnwise.embedding import embed
    from turnwise.evaluation.judged import load_model

    with bar() as progress:
        judged = load_model(model, compressed=compressed)
        found = embed(judged, texts, out, normalise=normalise, max_length=max_length, progress=progress)
    if as_json:
        print_json({"out": str(out), "texts": found.texts, "size": found.size, "resumed": found.resumed})
        return
    before = f", {found.resumed:,} of them by an earlier run" if found.resumed else ""
    print_table(f"[bold]{out}", [("texts", f"{found.texts:,}{before}"), ("size of a vector", str(found.size))])
