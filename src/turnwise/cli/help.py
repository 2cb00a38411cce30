"""Help texts: commands in sections, one whole line each, and no words broken at hyphens."""

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

#: The sections of `turnwise --help`, with their commands in the order in which they are listed.
SECTIONS = {
    "Your data": ("start", "corpus", "coherence"),
    "Intents and answers": ("intents", "map", "labels", "responses", "conversations", "serve", "serve-key"),
    "Train and use models": ("train", "recipes", "soup", "embed", "export"),
    "Evaluate": ("evaluate", "compare"),
    "Research": ("sweep", "compress", "glove", "annotate", "bench"),
}

#: Help uses the width of the terminal up to this many columns; click's own limit is 80.
_WIDEST = 110

#: Stands for a hyphen while lines are wrapped: click breaks lines after hyphens, also in names of commands and options.
_UNBREAKABLE = "\N{NON-BREAKING HYPHEN}"


class _Formatter(typer.Context.formatter_class):  # type: ignore[misc, valid-type]
    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _UNBREAKABLE))

    def write_dl(self, rows: Any, *arguments: Any, **named: Any) -> None:
        super().write_dl([(first, second.replace("-", _UNBREAKABLE)) for first, second in rows], *arguments, **named)

    def getvalue(self) -> str:
        return str(super().getvalue()).replace(_UNBREAKABLE, "-")


TyperGroup.context_class.formatter_class = _Formatter  # of all contexts


class CommandGroup(TyperGroup):
    """A group of commands whose help lists the first sentence of each, never shortened."""

    sections: Mapping[str, Sequence[str]] | None = None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        helps = {name: command.get_short_help_str(10_000) for name, command in self.commands.items()}
        width = max(map(len, helps), default=0)
        for title, names in (self.sections or {"Commands": list(helps)}).items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), helps[name]) for name in names])


class MainGroup(CommandGroup):
    """`turnwise` itself."""

    sections = SECTIONS


def command_group(help: str, cls: type[CommandGroup] = CommandGroup) -> typer.Typer:
    """Return an application that prints its help if it is called without a command.

    Help texts are plain: typer's rich formatting takes longer to import than all commands together.
    """
    return typer.Typer(
        cls=cls,
        help=help,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"max_content_width": _WIDEST},
    )
