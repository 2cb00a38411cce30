"""`turnwise conversations`: index whole conversations, find similar ones, and cluster them."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli.help import command_group
from turnwise.cli.options import AsJson, OptionalModel, Rebuild, Seed, Splits, TableOut, out_file
from turnwise.cli.output import Block, excerpt, facts, lines, progress_bar, show
from turnwise.cli.project import model_or_default, project_command, project_part
from turnwise.core.imports import require

if TYPE_CHECKING:
    from turnwise.assist.conversations import Conversations

conversations_app = command_group("Find similar conversations, and cluster conversations.")

Table = Annotated[str, Argument(help="Table folder, or its URI on object storage.")]

#: Number of examples to show per cluster.
_EXAMPLES = 3


@conversations_app.command("index", cls=project_command("store"))
def index_command(
    stores: Annotated[list[Path], Argument(help="Stores whose dialogues to index.")],
    out: TableOut = None,
    model: OptionalModel = None,
    split: Splits = None,
    rebuild: Rebuild = False,
    as_json: AsJson = False,
) -> None:
    """Add the dialogues of stores to a table, one vector each.

    Known dialogues are skipped, so the same command continues after an interruption.

    A table works only with the encoder that it was built with; `--rebuild` replaces it.

    Example: `turnwise conversations index stores/our-logs --out conversations`
    """
    require("pyarrow", "lancedb", extra="serve")
    folder = out or str(project_part("conversations", "--out"))
    corpus = turnwise.read_corpus(*stores, splits=split or None)
    from turnwise.assist.conversations import Conversations

    with progress_bar() as progress:
        progress("loading the encoder", 0)
        encoder = turnwise.Encoder.load(model_or_default(model))
        if rebuild:
            Conversations.drop(folder)
        result = Conversations.open(folder, encoder).index(corpus, total=len(corpus), progress=progress)
    rows = [
        ("read", f"{result.read:,} dialogues"),
        ("added", f"{result.added:,}; {result.read - result.added:,} were already there"),
        ("holds", f"{result.dialogues:,} dialogues"),
    ]
    show(asdict(result), facts(folder, rows), as_json=as_json)


@conversations_app.command("similar", cls=project_command("conversations"))
def similar_command(
    table: Table,
    turns: Annotated[
        list[str] | None, Argument(help="Conversation, one argument per turn; the last is the user's.")
    ] = None,
    dialogue: Annotated[str | None, Option(help="Instead of turns: id of a dialogue in the table.")] = None,
    model: OptionalModel = None,
    top: Annotated[int, Option(min=1, help="Number of conversations.")] = 5,
    source: Annotated[str | None, Option(help="Only conversations of this source.")] = None,
    split: Annotated[str | None, Option(help="Only conversations of this split.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find the conversations most similar to a given one.

    Example: `turnwise conversations similar conversations "Where is my order?" "Let me look." "It was due on Monday."`
    """
    if bool(turns) == (dialogue is not None):
        raise typer.BadParameter("give either the turns of a conversation or --dialogue", param_hint="TURNS")
    conversations = _open(table, model)
    where = {name: value for name, value in (("source", source), ("split", split)) if value is not None}
    query = turns or [] if dialogue is None else conversations.dialogue(dialogue)
    data, blocks = [], []
    for each in conversations.similar(query, top=top, where=where or None):
        turns_as_json = [{"speaker": turn.speaker, "text": turn.text} for turn in each.turns]
        data.append(asdict(each) | {"title": each.title, "turns": turns_as_json})
        origin = " · ".join(part for part in (each.dialogue, each.source, each.split) if part)
        spoken = ((f"  {turn.speaker}: {excerpt(turn.text)}", "") for turn in each.turns)
        blocks.append(lines((f"{each.similarity:.3f}  {each.title}", "bold"), (f"       {origin}", "dim"), *spoken))
    show({"conversations": data}, *blocks, as_json=as_json)


@conversations_app.command("clusters", cls=project_command("conversations"))
def clusters_command(
    table: Table,
    model: OptionalModel = None,
    min_cluster_size: Annotated[
        int | None, Option(min=2, help="Conversations in the smallest cluster; by default depends on their number.")
    ] = None,
    method: Annotated[Literal["umap", "tsne"], Option(help="Dimensionality reduction.")] = "umap",
    seed: Seed = 0,
    top: Annotated[int, Option(min=1, help="Number of clusters to list.")] = 20,
    out: Annotated[
        Path | None, out_file(".csv", help="Write the cluster of every conversation to this .csv file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Cluster the conversations of a table by topic.

    Example: `turnwise conversations clusters conversations --out clusters.csv`
    """
    conversations = _open(table, model)
    from turnwise.assist.map.reduction import MapSettings

    settings = MapSettings(method, min_cluster_size, seed=seed)
    with progress_bar() as progress:
        result = conversations.cluster(settings, progress=progress)
    clusters = result.clusters
    outside = sum(cluster < 0 for _, _, cluster in result.assignments)
    if out is not None:
        from turnwise.core.files import csv_text, write_atomic

        write_atomic(out, csv_text(("dialogue", "source", "cluster"), result.assignments))
    count = len(conversations)
    blocks: list[Block] = [f"{count:,} conversations, {len(clusters):,} clusters, {outside:,} conversations in none"]
    for cluster in clusters[:top]:
        examples = list(zip(cluster.titles, cluster.examples, strict=True))[:_EXAMPLES]
        shown = ((f"  {title} ({dialogue})", "") for title, dialogue in examples)
        blocks.append(lines((f"{cluster.name}  {cluster.size:,} conversations", "bold"), *shown))
    if len(clusters) > top:
        blocks.append(f"{len(clusters) - top:,} more clusters: use --top or --out")
    data = {"conversations": count, "outside": outside, "clusters": [asdict(each) for each in clusters]}
    show(data, *blocks, as_json=as_json)


def _open(table: str, model: str | None) -> "Conversations":
    require("pyarrow", "lancedb", extra="serve")
    from turnwise.assist.conversations import TABLE, Conversations
    from turnwise.assist.search.table import VectorTable
    from turnwise.core.errors import SearchError

    if not VectorTable.exists(table, TABLE):
        raise SearchError(
            f"{table} holds no conversations: run `turnwise conversations index STORE --out {table}` first"
        )

    with progress_bar() as progress:
        progress("loading the encoder", 0)
        return Conversations.open(table, turnwise.Encoder.load(model_or_default(model)))
