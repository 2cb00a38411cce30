"""`turnwise coherence`: the turns of a corpus that do not seem to belong where they stand."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.models.coherence import Survey, Suspect

_KINDS = (".csv", ".jsonl")


def coherence_command(
    store: Annotated[Path, typer.Argument(help="The store to look through.")],
    model: Annotated[
        str, typer.Option(help="A re-ranker that was trained with deletion: a folder, or a Hugging Face id.")
    ],
    top: Annotated[int, typer.Option(min=1, help="How many turns to list at most.")] = 20,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="List only turns with this score or more.")] = 0.0,
    split: Annotated[
        list[str] | None, typer.Option(help="Look only at dialogues of this split; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the list to this file: .csv or .jsonl.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Lists the turns of a corpus that belong least to their dialogues, the most suspicious first.

    A score is a re-ranker's probability that a turn is of another dialogue, given the turns around it; the turn before is shown
    with it. Dialogues of a single turn are passed over.

    Example: `turnwise coherence stores/our-logs --model reranker --top 50 --out suspects.csv`
    """
    # before what takes seconds to import, and long before all is read
    if out is not None and out.suffix not in _KINDS:
        raise typer.BadParameter(f"{out} is neither {' nor '.join(_KINDS)}", param_hint="--out")
    if out is not None and not out.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.absolute().parent}", param_hint="--out")
    from turnwise.corpus.intake import CorpusError
    from turnwise.corpus.store import is_store, read_corpus

    if not is_store(store):
        raise CorpusError(
            f"{store} is not a store: import a log first, by `turnwise corpus import table log.csv --out store`"
        )
    corpus = read_corpus(store, splits=split or None)
    quiet()
    from turnwise.models.coherence import survey
    from turnwise.models.reranker import Reranker

    with bar() as progress:
        progress("loading the re-ranker", 0)
        found = survey(Reranker.load(model), corpus, top=top, threshold=threshold, total=len(corpus), progress=progress)
    if out is not None:
        from turnwise.core.files import write_whole

        write_whole(out, _as_csv(found.suspects) if out.suffix == ".csv" else _as_lines(found.suspects))
    if as_json:
        print_json(asdict(found))
        return
    _print(store, found, out)


def _as_csv(suspects: "Sequence[Suspect]") -> str:
    from turnwise.models.coherence import Suspect

    file = io.StringIO()
    file.write("\ufeff")  # without a byte order mark spreadsheets take the texts for some other encoding
    writer = csv.DictWriter(file, [field.name for field in fields(Suspect)])
    writer.writeheader()
    writer.writerows(asdict(suspect) for suspect in suspects)
    return file.getvalue()


def _as_lines(suspects: "Sequence[Suspect]") -> str:
    return "".join(json.dumps(asdict(suspect), ensure_ascii=False) + "\n" for suspect in suspects)


def _print(store: Path, found: "Survey", out: Path | None) -> None:
    alone = f"; {found.passed_over:,} of a single turn passed over" if found.passed_over else ""
    rows = [("read", f"{found.dialogues:,} dialogues, {found.turns:,} turns scored{alone}")]
    if out is not None:
        rows.append(("written", f"{out}: {len(found.suspects):,} turns"))
    print_table(f"[bold]{store}", rows)
    if out is None:
        _print_suspects(found.suspects)


def _print_suspects(suspects: "Sequence[Suspect]") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for suspect in suspects:
        console.print()
        console.print(
            Text(f"{suspect.score:.3f}  {suspect.dialogue}, turn {suspect.turn}, {suspect.speaker}", style="bold")
        )
        if suspect.before is not None:
            console.print(Text(f"  {suspect.before}", style="dim"))
        console.print(Text(f"  {suspect.text}"))
