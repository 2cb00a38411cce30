"""`turnwise responses`: answers that were given before, kept in a table and suggested again."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.assist.responses.ranking import Suggestion

responses_app = typer.Typer(
    help="Suggest what to say next, from agent turns of a store and canned answers in a LanceDB table.",
    no_args_is_help=True,
)

Model = Annotated[str, typer.Option(help="The encoder that finds answers: 'minilm', a folder, or a Hugging Face id.")]


@responses_app.command("index")
def index_command(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Stores; or canned answers: .txt (one a line), .csv, .tsv, .jsonl or .parquet with a field 'text'."
        ),
    ],
    out: Annotated[str, typer.Option(help="The table's folder, or its place on object storage (s3://…, gs://…).")],
    model: Model = "minilm",
    speaker: Annotated[
        list[str] | None, typer.Option(help="Whose turns to index; may be repeated. Without it: system.")
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option(help="Index only dialogues of this split; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Puts agent turns and canned answers into a table. What is there already is passed over: a run that was stopped goes on.

    A table of canned answers may also have the fields 'after' (what the answer answers), 'source', 'split' and 'intent'.

    Example: `turnwise responses index stores/our-logs answers.csv --out responses`
    """
    from turnwise.assist.responses.answer_files import KINDS, read_answers
    from turnwise.corpus.intake import CorpusError
    from turnwise.corpus.store import is_store, read_corpus

    stores = [source for source in sources if is_store(source)]
    files = [source for source in sources if source not in stores]
    for file in files:
        if not file.is_file():
            raise CorpusError(f"{file} is neither a store nor a file of answers ({', '.join(KINDS)})")
    # before what takes minutes
    answers = [answer for file in files for answer in read_answers(file)]
    corpus = read_corpus(*stores, splits=split or None) if stores else None
    quiet()
    from turnwise.assist.responses.responder import Ingested, Responder
    from turnwise.models.encoder import Encoder

    with bar() as progress:
        progress("loading the encoder", 0)
        responder = Responder.open(out, Encoder.load(model))
        done = responder.add(answers, progress=progress)
        if corpus is not None:
            indexed = responder.index(corpus, speakers=speaker or ["system"], total=len(corpus), progress=progress)
            done = Ingested(
                *(one + other for one, other in zip(asdict(done).values(), asdict(indexed).values(), strict=True))
            )
    index = responder.table.index
    if as_json:
        print_json(asdict(done) | {"rows": len(responder), "index": None if index is None else asdict(index)})
        return
    how = "exact" if index is None else f"by an index, which finds {index.recall:.1%} of the nearest"
    rows = [
        ("read", f"{done.dialogues:,} dialogues, {done.given:,} answers"),
        ("added", f"{done.added:,} answers; {done.present:,} were there before"),
        ("holds", f"{len(responder):,} answers; search is {how}"),
    ]
    print_table(f"[bold]{out}", rows)


@responses_app.command("suggest")
def suggest_command(
    table: Annotated[str, typer.Argument(help="The table's folder, or its place on object storage.")],
    turns: Annotated[
        list[str], typer.Argument(help="The conversation so far, an argument a turn, newest last; the user's.")
    ],
    model: Model = "minilm",
    reranker: Annotated[
        str | None, typer.Option(help="A re-ranker that puts them in order: a folder, or an id.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many to suggest.")] = 5,
    k: Annotated[int, typer.Option("--k", min=1, help="How many different answers to retrieve.")] = 50,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Only answers with this value: COLUMN=VALUE; may be repeated, a column's values are alternatives."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Suggests what to say next in a conversation.

    Columns to filter by: speaker, dialogue, turn, source, split, intent, text.

    Example: `turnwise responses suggest responses "Where is my order?" --top 3 --where source=our-logs`
    """
    condition = _condition(where or [])
    if top > k:
        raise typer.BadParameter(f"{top} is more than the {k} that are retrieved", param_hint="--top")
    from turnwise.assist.responses.responder import TABLE, Responder, ResponderError
    from turnwise.assist.search.table import VectorTable

    if not VectorTable.exists(table, TABLE):
        raise ResponderError(
            f"{table} holds no responses: index a store first, by `turnwise responses index STORE --out {table}`"
        )
    quiet()
    from turnwise.models.encoder import Encoder
    from turnwise.models.reranker import Reranker

    with bar() as progress:
        progress("loading the models", 0)
        responder = Responder.open(table, Encoder.load(model), None if reranker is None else Reranker.load(reranker))
        found = responder.suggest(turns, top=top, k=k, where=condition or None)
    if as_json:
        print_json({"suggestions": [asdict(each) for each in found]})
        return
    _print(found)


def _condition(where: list[str]) -> dict[str, Any]:
    condition: dict[str, Any] = {}
    for each in where:
        column, mark, value = each.partition("=")
        if not mark or not column:
            raise typer.BadParameter(f"{each!r} is not COLUMN=VALUE", param_hint="--where")
        condition.setdefault(column, []).append(int(value) if column == "turn" and value.isdecimal() else value)
    return condition


def _print(suggestions: "list[Suggestion]") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    if not suggestions:
        console.print("no answer fulfils the condition")
    for suggestion in suggestions:
        console.print(Text(f"{suggestion.score:.3f}  {suggestion.text}", style="bold"))
        place = "canned" if suggestion.dialogue is None else f"{suggestion.dialogue}, turn {suggestion.turn}"
        often = "once" if suggestion.count == 1 else f"{suggestion.count:,} times"
        parts = [place, f"similarity {suggestion.similarity:.3f}", f"given {often}"]
        if suggestion.folded:
            parts.append(f"{len(suggestion.folded)} more that say the same")
        console.print(Text(f"       {'; '.join(parts)}", style="dim"))
