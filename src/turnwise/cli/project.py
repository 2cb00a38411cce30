"""Commands inside a project: its folders and its model are used where none are given."""

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand

from turnwise.core.model_names import DEFAULT_ENCODER
from turnwise.core.project import Part, Project


def project_part(part: Part, parameter: str) -> Path:
    """Return the folder of a project's part, for a parameter that was left out; outside a project that is an error."""
    project = Project.find()
    if project is None:
        raise typer.BadParameter("it must be given outside a project (see `turnwise start`)", param_hint=parameter)
    return project.part(part)


def model_or_default(given: str | None) -> str:
    """Return a model that was given, or else that of the project, or the default."""
    if given is not None:
        return given
    project = Project.find()
    return DEFAULT_ENCODER if project is None else project.model


def project_command(part: Part) -> type[TyperCommand]:
    """Return a class of commands whose first argument is a folder that may be left out inside a project.

    The folder of the project's part is inserted unless the first argument is an existing folder.
    """

    class ProjectCommand(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            project = None if ctx.resilient_parsing else Project.find()
            if project is not None and not self._names_folder(ctx, args):
                args = [str(project.part(part)), *args]
            return super().parse_args(ctx, args)

        def _names_folder(self, ctx: Any, args: list[str]) -> bool:
            """Return whether the first argument is an existing folder, or help is requested."""
            argument = next(each for each in self.params if isinstance(each, TyperArgument))
            values: dict[str, Any]
            values, _, _ = self.make_parser(ctx).parse_args(list(args))
            given = values.get(argument.name or "")
            if isinstance(given, list | tuple):
                given = given[0] if given else None
            return bool(values.get("help")) or (isinstance(given, str) and ("://" in given or Path(given).is_dir()))

    return ProjectCommand
