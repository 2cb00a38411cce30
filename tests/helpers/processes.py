"""Processes forked from one that has imported the package, so that they start without delay."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["turnwise.training.loop", "turnwise.serve.app", "transformers.models.bert.modeling_bert"]
)


def start(task: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process that calls `task(*arguments)`."""
    process = _CONTEXT.Process(target=task, args=arguments)
    process.start()
    return process


def start_command(log: Path, *arguments: object, folder: Path | None = None) -> BaseProcess:
    """Start a process that runs `turnwise ARGUMENTS…` in a folder and writes its standard error to a file."""
    log.touch()
    return start(_run_command, log, [str(argument) for argument in arguments], folder)


def redirect_stderr(path: Path) -> None:
    """Write the standard error of this process to a file."""
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)


def _run_command(log: Path, arguments: list[str], folder: Path | None) -> None:
    from turnwise.cli import main

    redirect_stderr(log)
    if folder is not None:
        os.chdir(folder)
    sys.argv = ["turnwise", *arguments]
    main()
