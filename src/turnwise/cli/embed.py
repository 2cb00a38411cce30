"""`turnwise embed`: vectors of many texts."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.assist.search.embedding.embedded import Embedded

#: By engine: of `local`, `turnwise.assist.search.embedding.local.FORMATS`, which takes seconds to import.
_FORMATS = {"local": (".npy", ".parquet", ".jsonl"), "ray": (".lance",)}


class Engine(StrEnum):
    """What does the work."""

    LOCAL = "local"
    RAY = "ray"


def embed_command(
    model: Annotated[
        str, typer.Argument(help="minilm, a model folder, a Hugging Face id, or what else `evaluate` takes.")
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A store; a .txt file, a text a line; a .csv, .tsv, .jsonl or .parquet file. "
            "With --engine ray: a store, a .parquet file, or a folder of them, which may be the URI of one on object storage.",
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            help="The file to write: .npy, an array; .parquet or .jsonl, with the texts. "
            "With --engine ray: a .lance table, which may be a URI on object storage."
        ),
    ],
    column: Annotated[str, typer.Option(help="The column of texts in a table.")] = "text",
    split: Annotated[
        list[str] | None, typer.Option(help="Of a store: dialogues of this split alone; may be repeated.")
    ] = None,
    speaker: Annotated[
        list[str] | None, typer.Option(help="Of a store: turns by this speaker alone; may be repeated.")
    ] = None,
    normalise: Annotated[
        bool | None,
        typer.Option(help="Whether to scale vectors to length 1; as the model does, if not said.", show_default=False),
    ] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="Tokens of a text, at most the model's own.")] = None,
    compressed: Annotated[
        bool,
        typer.Option(
            "--compressed", help="Draw vectors towards those of templates (TaDSE), as the model's folder says how."
        ),
    ] = False,
    engine: Annotated[
        Engine, typer.Option(help="What does the work: this process, or the workers of a Ray cluster.")
    ] = Engine.LOCAL,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of Ray: how many encode at the same time; as many as there are GPUs, or cores, if not said."
        ),
    ] = None,
    block_rows: Annotated[int | None, typer.Option(min=1, help="Of Ray: texts of a block; 16384, if not said.")] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Of Ray: a running cluster; if not said, what RAY_ADDRESS names, else one on this machine for a while."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Writes a vector for each text, in their order.

    What is interrupted goes on where it stopped, if the same command is given again.

    Example: `turnwise embed minilm stores/our-logs --speaker user --out vectors.parquet`
    """
    _expect_possible(out, engine, {"--workers": workers, "--block-rows": block_rows, "--address": address})
    options = {"normalise": normalise, "max_length": max_length}
    chosen = (column, split or (), speaker or ())
    if engine is Engine.LOCAL:
        found = _locally(model, Path(source), Path(out), chosen, compressed, options)
    else:
        found = _on_ray(model, source, out, chosen, workers, block_rows, address, {**options, "compressed": compressed})
    if as_json:
        print_json({"out": out, "texts": found.texts, "size": found.size, "resumed": found.resumed})
        return
    before = f", {found.resumed:,} of them by an earlier run" if found.resumed else ""
    print_table(f"[bold]{out}", [("texts", f"{found.texts:,}{before}"), ("size of a vector", str(found.size))])


def _expect_possible(out: str, engine: Engine, of_ray: dict[str, Any]) -> None:
    """Tells what cannot be, before what takes seconds to import."""
    if not out.endswith(_FORMATS[engine]):
        (other,) = set(Engine) - {engine}
        instead = f"; --engine {other} writes that" if out.endswith(_FORMATS[other]) else ""
        raise typer.BadParameter(f"{out} is none of {', '.join(_FORMATS[engine])}{instead}", param_hint="--out")
    if "://" not in out and not Path(out).absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {Path(out).absolute().parent}", param_hint="--out")
    for name, value in of_ray.items():
        if engine is not Engine.RAY and value is not None:
            raise typer.BadParameter("only --engine ray has it", param_hint=name)


def _locally(
    model: str,
    source: Path,
    out: Path,
    chosen: tuple[str, Sequence[str], Sequence[str]],
    compressed: bool,
    options: dict[str, Any],
) -> "Embedded":
    from turnwise.corpus.text_sources import read_texts

    texts = read_texts(source, *chosen)
    quiet()
    from turnwise.assist.search.embedding.local import embed
    from turnwise.models.loading import load_model
    from turnwise.papers import baselines  # noqa: F401  registers models and post-processors

    with bar() as progress:
        return embed(load_model(model, compressed=compressed), texts, out, progress=progress, **options)


def _on_ray(
    model: str,
    source: str,
    out: str,
    chosen: tuple[str, Sequence[str], Sequence[str]],
    workers: int | None,
    block_rows: int | None,
    address: str | None,
    options: dict[str, Any],
) -> "Embedded":
    quiet()
    from turnwise.assist.search.embedding.cluster import BLOCK_ROWS, embed_on_ray

    column, splits, speakers = chosen
    # Ray tells of workers that died, on standard output, which is for our answer
    with redirect_stdout(sys.stderr), bar() as progress:
        return embed_on_ray(
            model,
            source,
            out,
            column=column,
            splits=splits,
            speakers=speakers,
            workers=workers,
            block_rows=block_rows or BLOCK_ROWS,
            address=address,
            progress=progress,
            **options,
        )
