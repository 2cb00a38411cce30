"""The command line: one thin command per verb; the work is done by the other packages, all of which it may import.

Exit codes: 0 success; 1 the input cannot be used, and the message says why; 2 wrong usage; 130 interrupted.
"""

import errno
import sys
from typing import Annotated

import typer
from typer import Option

from turnwise.cli.bench import bench_app
from turnwise.cli.conversations import conversations_app, responses_app
from turnwise.cli.corpus import corpus_app
from turnwise.cli.evaluate import annotate_app, compare_command, evaluate_command
from turnwise.cli.help import MainGroup, command_group
from turnwise.cli.intents import intents_app
from turnwise.cli.map import labels_app, map_command
from turnwise.cli.models import coherence_command, compress_command, embed_command, export_command
from turnwise.cli.output import quiet_transformers
from turnwise.cli.serve import serve_command, serve_key_command, start_command
from turnwise.cli.train import glove_command, recipes_command, soup_command, sweep_command, train_command
from turnwise.core.errors import TurnwiseError
from turnwise.core.imports import explain_missing_packages
from turnwise.version import __version__

app = command_group(
    """Turn conversations into maps, intents, suggested responses, and models trained on them.

    Start with `turnwise start LOG`: it turns a chat log into a web page with a map, suggested responses and intents.
    `turnwise corpus sample --out sample` generates a synthetic corpus to try it on.
    """,
    MainGroup,  # a new command needs a place in `turnwise.cli.help.SECTIONS`
)
app.command("start")(start_command)
app.add_typer(corpus_app, name="corpus")
app.command("train")(train_command)
app.command("recipes")(recipes_command)
app.command("sweep")(sweep_command)
app.command("soup")(soup_command)
app.command("glove")(glove_command)
app.command("compress")(compress_command)
app.command("coherence")(coherence_command)
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
    """Run the command line; an error that the user can fix is printed as one line, without a traceback."""
    try:
        with explain_missing_packages():
            app()
    except TurnwiseError as error:
        _print_error(str(error))
        sys.exit(error.exit_status)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _print_error(f"the disk is full ({error}): free some space, and run the same command again")
            sys.exit(1)
        if error.filename is None:  # not about a file
            raise
        _print_error(f"{error.filename}: {error.strerror}")
        sys.exit(1)
    except SystemExit as stop:
        if stop.code == 130:  # typer's exit status after Ctrl-C
            typer.echo("interrupted", err=True)
        raise
    except (KeyboardInterrupt, RuntimeError) as error:
        # Python reports Ctrl-C while a class is created, as during imports, as the cause of a RuntimeError
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        typer.echo("interrupted", err=True)
        sys.exit(130)


def _print_error(message: str) -> None:
    typer.secho("error: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
    typer.echo(message, err=True)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"turnwise {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    quiet_transformers()
