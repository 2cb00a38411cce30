"""Terminal output: results go to standard output, progress bars and messages to standard error."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from turnwise.core.progress import Progress
from turnwise.core.text import shorten_text

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Characters of a text in a result: at most three lines of a terminal with 80 columns.
_EXCERPT_LENGTH = 200

#: A part of a result that rich can print; rich is imported only when something is printed.
Block: TypeAlias = "RenderableType"


def show(data: Any, *blocks: Block, as_json: bool = False) -> None:
    """Print a result: `data` as JSON for programs, or `blocks` as text for people, separated by blank lines."""
    if as_json:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console()
    for number, block in enumerate(blocks):
        if number:
            console.print()
        console.print(block)


def facts(title: object, rows: Iterable[tuple[str, str]]) -> Block:
    """Return a block with a bold title and one line per name and value."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(str(title), "bold"), title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Block:
    """Return a block with a header row; all columns but the first are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(header):
        table.add_column(Text(name), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def lines(*parts: tuple[str, str]) -> Block:
    """Return a block with one line per text and style, such as `("a title", "bold")`."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(text, style) for text, style in parts))


def excerpt(text: str) -> str:
    """Return a text of a corpus on one line, cut off with an ellipsis; `--json` prints whole texts."""
    return shorten_text(text, _EXCERPT_LENGTH)


def message(text: str) -> None:
    """Print a message to standard error."""
    typer.echo(text, err=True)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yield a progress callback that draws bars on standard error; it draws nothing outside a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    description = TextColumn("{task.description}")
    columns = (description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int | None = None) -> None:
            name, _, _ = what.partition(":")  # the part after the colon changes while the bar advances
            if name not in tasks:
                tasks[name] = bars.add_task(what, total=total)
            bars.update(tasks[name], description=what, completed=done, total=total)

        yield progress


def quiet_transformers() -> None:
    """Silence the progress bars and advice of transformers, which reads these variables when it is imported."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
