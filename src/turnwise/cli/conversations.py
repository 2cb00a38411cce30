"""`turnwise conversations` and `turnwise responses`: tables of conversations and answers, and searches in them."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli import options
from turnwise.cli.help import command_group
from turnwise.cli.languages import check_language
from turnwise.cli.output import Block, excerpt, facts, lines, progress_bar, show
from turnwise.core.imports import require

if TYPE_CHECKING:
    from turnwise.assist.conversations import Conversations
    from turnwise.assist.responses.responder import Suggestion

conversations_app = command_group("Find similar conversations, and cluster them.")
responses_app = command_group("Suggest responses from past agent turns and canned answers.")

#: Number of examples to show per cluster.
_EXAMPLES = 3


@conversations_app.command("index", cls=options.project_command("store"))
def index_conversations_command(
    stores: Annotated[list[Path], Argument(help="Stores whose dialogues to index.")],
    out: options.TableOut = None,
    model: options.OptionalModel = None,
    split: options.Splits = None,
    rebuild: options.Rebuild = False,
    as_json: options.AsJson = False,
) -> None:
    """Add the dialogues of stores to a table, one vector each.

    Known dialogues are skipped, so the same command continues after an interruption. A table works only with the
    encoder that it was built with; `--rebuild` replaces it.

    Example: `turnwise conversations index stores/our-logs --out conversations`
    """
    require("pyarrow", "lancedb", extra="serve")
    folder = out or str(options.project_part("conversations", "--out"))
    corpus = turnwise.read_corpus(*stores, splits=split or None)
    from turnwise.assist.conversations import Conversations

    check_language(*corpus.stores, given=model, rebuild=True)
    with progress_bar() as progress:
        progress("loading the encoder", 0)
        encoder = turnwise.Encoder.load(options.model_or_default(model))
        if rebuild:
            Conversations.drop(folder)
        result = Conversations.open(folder, encoder).index(corpus, total=len(corpus), progress=progress)
    rows = [
        ("read", f"{result.read:,} dialogues"),
        ("added", f"{result.added:,}; {result.read - result.added:,} were already there"),
        ("holds", f"{result.dialogues:,} dialogues"),
    ]
    show(asdict(result), facts(folder, rows), as_json=as_json)


@conversations_app.command("similar", cls=options.project_command("conversations"))
def similar_command(
    table: options.Table,
    turns: Annotated[list[str] | None, Argument(help="Turns of the conversation; the last is the user's.")] = None,
    dialogue: Annotated[str | None, Option(help="Instead of turns: id of a dialogue in the table.")] = None,
    model: options.OptionalModel = None,
    top: Annotated[int, Option(min=1, help="Number of conversations.")] = 5,
    source: Annotated[str | None, Option(help="Only conversations of this source.")] = None,
    split: Annotated[str | None, Option(help="Only conversations of this split.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Find the conversations most similar to a given one.

    Example: `turnwise conversations similar conversations "Where is my order?" "Let me look." "It was due on Monday."`
    """
    if bool(turns) == (dialogue is not None):
        raise typer.BadParameter("give either the turns of a conversation or --dialogue", param_hint="TURNS")
    conversations = _open_conversations(table, model)
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


@conversations_app.command("clusters", cls=options.project_command("conversations"))
def clusters_command(
    table: options.Table,
    model: options.OptionalModel = None,
    min_cluster_size: options.MinClusterSize = None,
    method: options.Projection = "umap",
    seed: options.Seed = 0,
    top: Annotated[int, Option(min=1, help="Number of clusters to list.")] = 20,
    out: Annotated[Path | None, options.out_file(".csv", help="Write the cluster of each conversation.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Cluster the conversations of a table by topic.

    Example: `turnwise conversations clusters conversations --out clusters.csv`
    """
    conversations = _open_conversations(table, model)
    from turnwise.assist.map.reduction import MapSettings

    with progress_bar() as progress:
        result = conversations.cluster(MapSettings(method, min_cluster_size, seed=seed), progress=progress)
    clusters, count = result.clusters, len(conversations)
    outside = sum(cluster < 0 for _, _, cluster in result.assignments)
    if out is not None:
        from turnwise.core.files import csv_text, write_atomic

        write_atomic(out, csv_text(("dialogue", "source", "cluster"), result.assignments))
    blocks: list[Block] = [f"{count:,} conversations, {len(clusters):,} clusters, {outside:,} conversations in none"]
    for cluster in clusters[:top]:
        examples = list(zip(cluster.titles, cluster.examples, strict=True))[:_EXAMPLES]
        shown = ((f"  {title} ({dialogue})", "") for title, dialogue in examples)
        blocks.append(lines((f"{cluster.name}  {cluster.size:,} conversations", "bold"), *shown))
    if len(clusters) > top:
        blocks.append(f"{len(clusters) - top:,} more clusters: use --top or --out")
    data = {"conversations": count, "outside": outside, "clusters": [asdict(each) for each in clusters]}
    show(data, *blocks, as_json=as_json)


def _open_conversations(table: str, model: str | None) -> "Conversations":
    require("pyarrow", "lancedb", extra="serve")
    from turnwise.assist.conversations import Conversations

    _check_table(table, "conversations")
    with progress_bar() as progress:
        progress("loading the encoder", 0)
        return Conversations.open(table, turnwise.Encoder.load(options.model_or_default(model)))


def _check_table(table: str, name: str) -> None:
    """Raise an error if a folder does not hold the table of conversations or responses."""
    from turnwise.assist.search.table import VectorTable
    from turnwise.core.errors import SearchError

    if not VectorTable.exists(table, name):
        raise SearchError(f"{table} holds no {name}: run `turnwise {name} index STORE --out {table}` first")


@responses_app.command("index", cls=options.project_command("store"))
def index_responses_command(
    sources: Annotated[
        list[Path],
        Argument(
            help="Stores, or canned answers: .txt (one per line), .csv, .tsv, .xlsx, .jsonl, .parquet (field 'text')."
        ),
    ],
    out: options.TableOut = None,
    model: options.OptionalModel = None,
    speaker: Annotated[
        list[str] | None, Option(metavar="SPEAKER", help="Index turns of this speaker, by default system; repeatable.")
    ] = None,
    split: options.Splits = None,
    rebuild: options.Rebuild = False,
    as_json: options.AsJson = False,
) -> None:
    """Add agent turns and canned answers to a table.

    Rows already present are skipped, so the same command continues after an interruption. A table works only with the
    encoder that it was built with; `--rebuild` replaces it.

    Canned answers may also have the fields 'after' (the turn before the answer), 'source', 'split' and 'intent'.

    Example: `turnwise responses index stores/our-logs answers.csv --out responses`
    """
    require("pyarrow", "lancedb", extra="serve")
    from turnwise.assist.responses.responder import (
        IndexingResult,
        read_answers,
        read_canned_answers,
        record_canned_answers,
    )
    from turnwise.core.errors import CorpusError
    from turnwise.corpus.storage.store import is_store, require_speakers
    from turnwise.corpus.texts import TEXT_FILE_SUFFIXES

    project = None if out is not None else options.require_project("--out")
    table = str(project.part("responses")) if project is not None else str(out)
    stores = [source for source in sources if is_store(source)]
    files = [source for source in sources if source not in stores]
    for file in files:
        if not file.is_file():
            raise CorpusError(f"{file} is neither a store nor a file of answers ({', '.join(TEXT_FILE_SUFFIXES)})")
    answers = [answer for file in files for answer in read_answers(file)]
    corpus = turnwise.read_corpus(*stores, splits=split or None) if stores else None
    indexed_stores = [] if corpus is None else corpus.stores
    require_speakers(indexed_stores, speaker or ())
    check_language(*indexed_stores, [answer.text for answer in answers], given=model, rebuild=True)
    with progress_bar() as progress:
        progress("loading the encoder", 0)
        encoder = turnwise.Encoder.load(options.model_or_default(model))
        if rebuild:
            turnwise.Responder.drop(table)
        responder = turnwise.Responder.open(table, encoder)
        if project is not None:
            record_canned_answers(project.answers, answers)
            answers = read_canned_answers(project.answers)
        result = responder.add(answers, progress=progress)
        if corpus is not None:
            indexed = responder.index(corpus, speakers=speaker or ["system"], total=len(corpus), progress=progress)
            sums = zip(asdict(result).values(), asdict(indexed).values(), strict=True)
            result = IndexingResult(*(first + second for first, second in sums))
    index = responder.table.index
    search = "exact" if index is None else f"approximate, with a recall of {index.recall:.1%}"
    rows = [
        ("read", f"{result.dialogues:,} dialogues, {result.given:,} answers"),
        ("added", f"{result.added:,} answers; {result.present:,} were already there"),
        ("holds", f"{len(responder):,} answers; search is {search}"),
    ]
    data = asdict(result) | {"rows": len(responder), "index": None if index is None else asdict(index)}
    show(data, facts(table, rows), as_json=as_json)


@responses_app.command("suggest", cls=options.project_command("responses"))
def suggest_command(
    table: options.Table,
    turns: Annotated[list[str], Argument(help="Turns of the conversation so far; the last is the user's.")],
    model: options.OptionalModel = None,
    reranker: options.OptionalReranker = None,
    top: Annotated[int, Option(min=1, help="Number of suggestions.")] = 5,
    k: Annotated[int, Option("--k", min=1, help="Number of distinct answers to retrieve.")] = 50,
    where: Annotated[
        list[str] | None,
        Option(metavar="COLUMN=VALUE", help="Only such answers; repeatable, values of a column are alternatives."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Suggest responses in a conversation.

    Columns to filter by: speaker, dialogue, turn, source, split, intent, text.

    Example: `turnwise responses suggest responses "Where is my order?" --top 3 --where source=our-logs`
    """
    condition: dict[str, list[Any]] = {}
    for column, value in options.parse_key_values(where, "--where"):
        condition.setdefault(column, []).append(int(value) if column == "turn" and value.isdecimal() else value)
    if top > k:
        raise typer.BadParameter(f"{top} is more than the {k} retrieved answers", param_hint="--top")
    require("pyarrow", "lancedb", extra="serve")
    _check_table(table, "responses")
    with progress_bar() as progress:
        progress("loading the models", 0)
        encoder = turnwise.Encoder.load(options.model_or_default(model))
        loaded = None if reranker is None else turnwise.Reranker.load(reranker)
        suggestions = turnwise.Responder.open(table, encoder, loaded).suggest(
            turns, top=top, k=k, where=condition or None
        )
    blocks = map(_suggestion_block, suggestions) if suggestions else ["no answer matches the filter"]
    show({"suggestions": [asdict(each) for each in suggestions]}, *blocks, as_json=as_json)


@responses_app.command("test", cls=options.project_command("responses"))
def test_command(
    table: options.Table,
    reranker: Annotated[str, Argument(help="Re-ranker: turnwise-reranker or a folder.")],
    corpus: Annotated[Path | None, Option(help="Indexed store, by default the project's.")] = None,
    model: options.OptionalModel = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure on held-out turns whether a re-ranker improves suggestions.

    For turns in the splits valid and test, it compares the first suggestion from the other conversations with the
    actual answer, with and without the re-ranker. A project uses the re-ranker only if the suggestions are better.

    Example: `turnwise responses test responses turnwise-reranker --corpus store`
    """
    require("torch", "pyarrow", "lancedb", extra="serve")
    project = None if corpus is not None else options.require_project("--corpus")
    store = corpus if project is None else project.part("store")
    assert store is not None
    read = turnwise.read_corpus(store)
    _check_table(table, "responses")
    from turnwise.assist.responses.reranking import measure_reranking

    with progress_bar() as progress:
        progress("loading the models", 0)
        encoder = turnwise.Encoder.load(options.model_or_default(model))
        responder = turnwise.Responder.open(table, encoder)
        gain = measure_reranking(responder, turnwise.Reranker.load(reranker), read, progress=progress)
    if project is not None:
        project.update(reranker=reranker if gain.is_better else None)
    verdict = "better" if gain.is_better else "no clear gain"
    used = "" if project is None else "; the project uses it" if gain.is_better else "; the project does not use it"
    rows = [
        ("turns", f"{gain.turns:,}"),
        ("by similarity", f"{gain.without:.3f}"),
        ("re-ranked", f"{gain.reranked:.3f}"),
        ("difference", f"{gain.difference:+.3f} (95% interval {gain.low:+.3f} to {gain.high:+.3f}): {verdict}{used}"),
    ]
    title = "Similarity of the first suggestion to the actual answer"
    show(asdict(gain) | {"better": gain.is_better}, facts(title, rows), as_json=as_json)


def _suggestion_block(suggestion: "Suggestion") -> Block:
    place = "canned" if suggestion.dialogue is None else f"{suggestion.dialogue}, turn {suggestion.turn}"
    times = "once" if suggestion.count == 1 else f"{suggestion.count:,} times"
    details = f"{place}; similarity {suggestion.similarity:.3f}; used {times}"
    if suggestion.folded:
        details += f"; {len(suggestion.folded)} near-duplicates"
    return lines((f"{suggestion.score:.3f}  {excerpt(suggestion.text)}", "bold"), (f"       {details}", "dim"))
