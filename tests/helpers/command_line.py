"""The command line, run in this process, which has everything imported already."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

from turnwise.cli import main


@dataclass(frozen=True)
class Answer:
    """What a command printed."""

    stdout: str
    stderr: str


def run(*arguments: object, code: int = 0, columns: int = 240) -> Answer:
    """Run a command and expect an exit code."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["turnwise", *map(str, arguments)]),
        patch.dict(os.environ, {"COLUMNS": str(columns), "NO_COLOR": "1"}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        exit_code: object = 0
        try:
            main()
        except SystemExit as stop:
            exit_code = stop.code or 0
    assert exit_code == code, err.getvalue() + out.getvalue()
    return Answer(out.getvalue(), err.getvalue())
