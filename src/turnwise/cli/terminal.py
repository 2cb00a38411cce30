"""What commands share: options they have in common, and how they speak to a terminal.

Nothing but the answer goes to standard output; bars and messages go to standard error.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.core.progress import Progress

if TYPE_CHECKING:
    from turnwise.papers.sweeps.points import Point

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


@contextmanager
def bar() -> Iterator[Progress]:
    """A bar on standard error; nothing at all where that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int | None = None) -> None:
            name, _, _ = what.partition(":")  # what follows the colon changes while the bar goes on
            if name not in tasks:
                tasks[name] = bar.add_task(what, total=total)
            bar.update(tasks[name], description=what, completed=done, total=total)

        yield progress


def print_json(value: Any) -> None:
    """An answer for programs."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(title: str, rows: list[tuple[str, str]]) -> None:
    """An answer for people: names and values."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows:
        table.add_row(name, Text(value))
    Console().print(table)


def print_figures(points: "Sequence[Point]", title: str = "") -> None:
    """An answer for people: an experiment's figures one below the other, a line a point: any terminal is wide enough for that."""
    from rich.console import Console
    from rich.text import Text

    from turnwise.papers.sweeps.report import figure_lines

    (_, *figures), lines = figure_lines(points)
    width = max(len(name) for name, *_ in lines)
    console = Console()
    if title:
        console.print(Text(title, style="bold"))
    for number, figure in enumerate(figures, 1):
        console.print(Text(figure, style="bold"))
        for line in lines:
            console.print(Text(f"  {line[0]:{width}}  {line[number]}"))


def quiet() -> None:
    """Keeps transformers' own bars and advice off the terminal: ours tell what a user needs."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
