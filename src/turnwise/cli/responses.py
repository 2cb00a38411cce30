"""`turnwise responses`: index past responses and suggest them in new conversations."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli.help import command_group
from turnwise.cli.options import AsJson, OptionalModel, Rebuild, Splits, TableOut, parse_key_values
from turnwise.cli.output import Block, excerpt, facts, lines, progress_bar, show
from turnwise.cli.project import model_or_default, project_command, project_part
from turnwise.core.imports import require

if TYPE_CHECKING:
    from turnwise.assist.responses.responder import Suggestion

responses_app = command_group("Suggest responses from past agent turns and canned answers.")


@responses_app.command("index", cls=project_command("store"))
def index_command(
    sources: Annotated[
        list[Path],
        Argument(
            help="Stores, or canned answers: .txt (one per line), .csv, .tsv, .jsonl or .parquet with a field 'text'."
        ),
    ],
    out: TableOut = None,
    model: OptionalModel = None,
    speaker: Annotated[
        list[str] | None,
        Option(metavar="SPEAKER", help="Index turns of this speaker, system by default; repeatable."),
    ] = None,
    split: Splits = None,
    rebuild: Rebuild = False,
    as_json: AsJson = False,
) -> None:
    """Add agent turns and canned answers to a table.

    Rows already present are skipped, so the same command continues after an interruption.

    A table works only with the encoder that it was built with; `--rebuild` replaces it.

    Canned answers may also have the fields 'after' (the turn before the answer), 'source', 'split' and 'intent'.

    Example: `turnwise responses index stores/our-logs answers.csv --out responses`
    """
    require("pyarrow", "lancedb", extra="serve")
    from turnwise.assist.responses.responder import IndexingResult, read_answers
    from turnwise.core.errors import CorpusError
    from turnwise.corpus.storage.store import is_store, require_speakers
    from turnwise.corpus.texts.table_files import TEXT_FILE_SUFFIXES

    table = out or str(project_part("responses", "--out"))
    stores = [source for source in sources if is_store(source)]
    files = [source for source in sources if source not in stores]
    for file in files:
        if not file.is_file():
            raise CorpusError(f"{file} is neither a store nor a file of answers ({', '.join(TEXT_FILE_SUFFIXES)})")
    answers = [answer for file in files for answer in read_answers(file)]
    corpus = turnwise.read_corpus(*stores, splits=split or None) if stores else None
    require_speakers([] if corpus is None else corpus.stores, speaker or ())
    with progress_bar() as progress:
        progress("loading the encoder", 0)
        encoder = turnwise.Encoder.load(model_or_default(model))
        if rebuild:
            turnwise.Responder.drop(table)
        responder = turnwise.Responder.open(table, encoder)
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


@responses_app.command("suggest", cls=project_command("responses"))
def suggest_command(
    table: Annotated[str, Argument(help="Table folder, or its URI on object storage.")],
    turns: Annotated[list[str], Argument(help="Conversation so far, one argument per turn; the last is the user's.")],
    model: OptionalModel = None,
    reranker: Annotated[
        str | None, Option(help="Re-ranker: turnwise-reranker, a model folder or a Hugging Face id.")
    ] = None,
    top: Annotated[int, Option(min=1, help="Number of suggestions.")] = 5,
    k: Annotated[int, Option("--k", min=1, help="Number of distinct answers to retrieve.")] = 50,
    where: Annotated[
        list[str] | None,
        Option(
            metavar="COLUMN=VALUE",
            help="Only answers with this value; repeatable, values of one column are alternatives.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Suggest responses in a conversation.

    Columns to filter by: speaker, dialogue, turn, source, split, intent, text.

    Example: `turnwise responses suggest responses "Where is my order?" --top 3 --where source=our-logs`
    """
    condition: dict[str, list[Any]] = {}
    for column, value in parse_key_values(where, "--where"):
        condition.setdefault(column, []).append(int(value) if column == "turn" and value.isdecimal() else value)
    if top > k:
        raise typer.BadParameter(f"{top} is more than the {k} retrieved answers", param_hint="--top")
    require("pyarrow", "lancedb", extra="serve")
    from turnwise.assist.responses.responder import TABLE
    from turnwise.assist.search.table import VectorTable
    from turnwise.core.errors import SearchError

    if not VectorTable.exists(table, TABLE):
        raise SearchError(f"{table} holds no responses: run `turnwise responses index STORE --out {table}` first")

    with progress_bar() as progress:
        progress("loading the models", 0)
        responder = turnwise.Responder.open(
            table,
            turnwise.Encoder.load(model_or_default(model)),
            None if reranker is None else turnwise.Reranker.load(reranker),
        )
        suggestions = responder.suggest(turns, top=top, k=k, where=condition or None)
    blocks = map(_suggestion_block, suggestions) if suggestions else ["no answer matches the filter"]
    show({"suggestions": [asdict(each) for each in suggestions]}, *blocks, as_json=as_json)


def _suggestion_block(suggestion: "Suggestion") -> Block:
    place = "canned" if suggestion.dialogue is None else f"{suggestion.dialogue}, turn {suggestion.turn}"
    times = "once" if suggestion.count == 1 else f"{suggestion.count:,} times"
    details = [place, f"similarity {suggestion.similarity:.3f}", f"used {times}"]
    if suggestion.folded:
        details.append(f"{len(suggestion.folded)} near-duplicates")
    return lines(
        (f"{suggestion.score:.3f}  {excerpt(suggestion.text)}", "bold"), (f"       {'; '.join(details)}", "dim")
    )
