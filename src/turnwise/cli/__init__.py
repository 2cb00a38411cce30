"""The command line: one thin command per verb; the work is done elsewhere.

Exit codes: 0 done; 1 the input or the store cannot be used, and the message says why; 2 the command line is wrong;
130 interrupted.
"""

import sys
from typing import Annotated

import typer

from turnwise.cli.bench import bench_app
from turnwise.cli.coherence import coherence_command
from turnwise.cli.compress import compress_command
from turnwise.cli.conversations import conversations_app
from turnwise.cli.corpus import corpus_app
from turnwise.cli.embed import embed_command
from turnwise.cli.evaluation import annotate_app, compare_command, evaluate_command
from turnwise.cli.export import export_command
from turnwise.cli.glove import glove_command
from turnwise.cli.intents import intents_app
from turnwise.cli.intents_report import report_command
from turnwise.cli.labels import labels_app
from turnwise.cli.map import map_command
from turnwise.cli.responses import responses_app
from turnwise.cli.serve import serve_command, serve_key_command
from turnwise.cli.soup import soup_command
from turnwise.cli.sweep import sweep_command
from turnwise.cli.training import recipes_command, train_command
from turnwise.core.errors import TurnwiseError
from turnwise.version import __version__

app = typer.Typer(
    help="Dialogue representations from conversations: read logs, train, measure, put to work.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(corpus_app, name="corpus")
app.command("train")(train_command)
app.command("recipes")(recipes_command)
app.command("sweep")(sweep_command)
app.command("soup")(soup_command)
app.command("glove")(glove_command)
app.command("compress")(compress_command)
app.command("coherence")(coherence_command)
intents_app.command("report")(report_command)
app.add_typer(intents_app, name="intents")
app.command("map")(map_command)
app.add_typer(labels_app, name="labels")
app.add_typer(conversations_app, name="conversations")
app.add_typer(responses_app, name="responses")
app.command("embed")(embed_command)
app.command("export")(export_command)
app.command("evaluate")(evaluate_command)
app.command("compare")(compare_command)
app.command("serve")(serve_command)
app.command("serve-key")(serve_key_command)
app.add_typer(annotate_app, name="annotate")
app.add_typer(bench_app, name="bench")


def main() -> None:
    """Runs the command line; errors that a user can mend are told in a line, not in a traceback."""
    try:
        app()
    except TurnwiseError as error:
        typer.secho("error: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
        typer.echo(str(error), err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"turnwise {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Dialogue representations from conversations: read logs, train, measure, put to work.

    Start with `turnwise corpus list` to see what can be read, or `turnwise corpus sample --out sample` for a made-up world
    that needs no download.
    """
