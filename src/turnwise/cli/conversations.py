"""`turnwise conversations`: whole conversations in a table, the ones like a given one, and clusters of them."""

import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.assist.conversations.conversations import Conversations, SimilarConversation
    from turnwise.core.dialogue import Turn

conversations_app = typer.Typer(
    help="Find conversations like a given one, and clusters of conversations.", no_args_is_help=True
)

Model = Annotated[str, typer.Option(help="The encoder: 'minilm', a folder, or a Hugging Face id.")]
Table = Annotated[str, typer.Argument(help="The table's folder, or its place on object storage.")]

_METHODS = ("umap", "tsne")

#: Examples that are shown of a cluster.
_EXAMPLES = 3


@conversations_app.command("index")
def index_command(
    stores: Annotated[list[Path], typer.Argument(help="Stores whose dialogues to index.")],
    out: Annotated[str, typer.Option(help="The table's folder, or its place on object storage (s3://…, gs://…).")],
    model: Model = "minilm",
    split: Annotated[
        list[str] | None, typer.Option(help="Index only dialogues of this split; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Puts the dialogues of stores into a table, a vector each. What is there is passed over: a run that was stopped goes on.

    Example: `turnwise conversations index stores/our-logs --out conversations`
    """
    from turnwise.corpus.intake import CorpusError
    from turnwise.corpus.store import is_store, read_corpus

    for store in stores:
        if not is_store(store):
            raise CorpusError(
                f"{store} is not a store: import a log first, by `turnwise corpus import table log.csv --out store`"
            )
    corpus = read_corpus(*stores, splits=split or None)
    quiet()
    from turnwise.assist.conversations.conversations import Conversations
    from turnwise.models.encoder import Encoder

    with bar() as progress:
        progress("loading the encoder", 0)
        kept = Conversations.open(out, Encoder.load(model))
        done = kept.index(corpus, total=len(corpus), progress=progress)
    if as_json:
        print_json(asdict(done))
        return
    rows = [
        ("read", f"{done.read:,} dialogues"),
        ("added", f"{done.added:,}; {done.read - done.added:,} were there before"),
        ("holds", f"{done.dialogues:,} dialogues"),
    ]
    print_table(f"[bold]{out}", rows)


@conversations_app.command("similar")
def similar_command(
    table: Table,
    turns: Annotated[
        list[str] | None, typer.Argument(help="The conversation, an argument a turn, newest last and the user's.")
    ] = None,
    dialogue: Annotated[str | None, typer.Option(help="Instead of turns: the id of a dialogue in the table.")] = None,
    model: Model = "minilm",
    top: Annotated[int, typer.Option(min=1, help="How many to give.")] = 5,
    source: Annotated[str | None, typer.Option(help="Only conversations of this source.")] = None,
    split: Annotated[str | None, typer.Option(help="Only conversations of this split.")] = None,
    as_json: AsJson = False,
) -> None:
    """Finds the conversations that are most like one.

    Example: `turnwise conversations similar conversations "Where is my order?" "Let me look." "It was due on Monday."`
    """
    if bool(turns) == (dialogue is not None):
        raise typer.BadParameter("give the turns of a conversation, or --dialogue, and not both")
    kept = _open(table, model)
    where = {name: value for name, value in (("source", source), ("split", split)) if value is not None}
    found = kept.similar(turns or [] if dialogue is None else kept.dialogue(dialogue), top=top, where=where or None)
    if as_json:
        print_json({"conversations": [_as_json(each) for each in found]})
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for each in found:
        whence = " · ".join(part for part in (each.source, each.split) if part)
        console.print(Text(f"{each.similarity:.3f}  {each.dialogue}", style="bold"), Text(whence, style="dim"))
        for turn in each.turns:
            console.print(Text(f"  {turn.speaker}: {turn.text}"))
        console.print()


@conversations_app.command("clusters")
def clusters_command(
    table: Table,
    model: Model = "minilm",
    least: Annotated[
        int | None, typer.Option(min=2, help="Conversations of the smallest cluster; by their number.")
    ] = None,
    method: Annotated[str, typer.Option(help="How dimensions are reduced: umap or tsne.")] = "umap",
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")] = 0,
    top: Annotated[int, typer.Option(min=1, help="How many clusters to list.")] = 20,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the cluster of every conversation to this .csv file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Groups the conversations of a table by what they are about.

    Example: `turnwise conversations clusters conversations --out clusters.csv`
    """
    if method not in _METHODS:
        raise typer.BadParameter(f"{method!r} is neither {' nor '.join(_METHODS)}", param_hint="--method")
    if out is not None and out.suffix != ".csv":
        raise typer.BadParameter(f"{out} is not a .csv file", param_hint="--out")
    if out is not None and not out.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.absolute().parent}", param_hint="--out")
    kept = _open(table, model)
    settings: dict[str, Any] = {"least": least, "method": method, "seed": seed}
    with bar() as progress:
        found = kept.clusters(**settings, progress=progress)
    placed = kept.cluster_of(**settings)
    outside = sum(each.cluster < 0 for each in placed)
    if out is not None:
        from turnwise.core.files import write_whole

        write_whole(
            out,
            _as_csv(
                [("dialogue", "source", "cluster"), *((each.dialogue, each.source, each.cluster) for each in placed)]
            ),
        )
    if as_json:
        print_json({"conversations": len(kept), "outside": outside, "clusters": [asdict(each) for each in found]})
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    console.print(Text(f"{len(kept):,} conversations, {len(found):,} clusters, {outside:,} conversations in none"))
    for cluster in found[:top]:
        console.print()
        console.print(Text(cluster.name, style="bold"), Text(f"{cluster.size:,} conversations", style="dim"))
        console.print(Text(f"  such as {', '.join(cluster.examples[:_EXAMPLES])}"))
    if len(found) > top:
        console.print(f"\n{len(found) - top:,} more clusters: give --top, or --out")


def _open(table: str, model: str) -> "Conversations":
    from turnwise.assist.conversations.conversations import TABLE, Conversations, ConversationsError
    from turnwise.assist.search.table import VectorTable

    if not VectorTable.exists(table, TABLE):
        raise ConversationsError(
            f"{table} holds no conversations: index a store first, by `turnwise conversations index STORE --out {table}`"
        )
    quiet()
    from turnwise.models.encoder import Encoder

    with bar() as progress:
        progress("loading the encoder", 0)
        return Conversations.open(table, Encoder.load(model))


def _as_json(found: "SimilarConversation") -> dict[str, Any]:
    return asdict(found) | {"turns": [_said(turn) for turn in found.turns]}


def _said(turn: "Turn") -> dict[str, str]:
    return {"speaker": turn.speaker, "text": turn.text}


def _as_csv(lines: list[tuple[Any, ...]]) -> str:
    file = io.StringIO()
    file.write("\ufeff")  # without a byte order mark spreadsheets take the texts for some other encoding
    csv.writer(file).writerows(lines)
    return file.getvalue()
