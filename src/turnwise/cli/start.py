"""`turnwise start`: from a log to a running page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from turnwise.cli.corpus_import import NO_CHANGE, choose_reader, import_facts, show_preview, warn_of_losses
from turnwise.cli.output import facts, progress_bar, show
from turnwise.cli.serve import serve_project
from turnwise.core.errors import TurnwiseError
from turnwise.core.model_names import TURNWISE_SMALL_INT8
from turnwise.core.project import DESCRIPTION, Project

if TYPE_CHECKING:
    from turnwise.assist.projects import LogAddition


def start_command(
    log: Annotated[
        Path | None, Argument(help="Log to import: a file or folder of any common format, or a store.")
    ] = None,
    out: Annotated[
        Path | None,
        Option(file_okay=False, help="Project folder; by default the current one, or a new one named after the log."),
    ] = None,
    reader: Annotated[
        str | None, Option(help="Reader, from `turnwise corpus list`; by default the format is recognised.")
    ] = None,
    settings: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Option of the reader; repeatable.")
    ] = None,
    step: Annotated[
        list[str] | None,
        Option(metavar="STEP", help="Hygiene step, as for `corpus import`; repeatable. By default: log."),
    ] = None,
    mask: Annotated[bool, Option("--mask", help="Mask personal data.")] = False,
    region: Annotated[
        list[str] | None,
        Option(metavar="COUNTRY", help="Mask personal data, with the phone numbers of this country, such as DE."),
    ] = None,
    model: Annotated[
        str | None,
        Option(
            help="Encoder: turnwise-small-int8 (default; fast on a CPU), turnwise-small, minilm, a model folder "
            "or a Hugging Face id."
        ),
    ] = None,
    serve: Annotated[bool, Option(help="Serve the page when everything is ready.")] = True,
    port: Annotated[int, Option(min=0, max=65_535, help="Port of the page; 0: any free port.")] = 8000,
) -> None:
    """Go from a chat log to a web page with one command.

    It imports the log, maps what users say, indexes responses and conversations, and serves the page. Everything is in
    one project folder. An interrupted command continues where it stopped. In a project, a newer log adds what is new;
    without a log, what is missing is made and the page is served.

    Examples: `turnwise start chats.csv`

    `turnwise start export.zip --out support --mask --region DE`
    """
    from turnwise.assist.projects import ProjectBuilder

    project = _open_project(log, out, reader, settings, step, mask, region, model)
    if log is not None:
        _show_addition(project, _add_log(project, log))
    with progress_bar() as progress:
        made = ProjectBuilder(project, progress).build()
    show(None, facts(project.folder, _describe(project, made)))
    if serve:
        serve_project(project, port)


def _open_project(
    log: Path | None,
    out: Path | None,
    reader: str | None,
    settings: list[str] | None,
    steps: list[str] | None,
    mask: bool,
    regions: list[str] | None,
    model: str | None,
) -> Project:
    """Return the project to build, with the given settings; raise an error if they differ from an existing one's."""
    from turnwise.corpus.storage.store import is_store

    found = Project.find() if out is None else Project.load(out) if (out / DESCRIPTION).is_file() else None
    if log is None and found is None:
        raise TurnwiseError("name a log to import, such as `turnwise start chats.csv`, or change to a project's folder")
    if log is not None and not log.exists():
        raise TurnwiseError(f"{log} does not exist")
    given: dict[str, Any] = {"reader": reader, "options": settings, "model": model, "regions": regions}
    if steps or mask or regions:
        given["steps"] = [*(steps or ["log"]), *(["mask"] if mask or regions else [])]
    changes: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in given.items() if value
    }
    if found is None:
        assert log is not None
        folder = Path(f"{log.absolute().name.split('.')[0]}-turnwise") if out is None else out
        return replace(Project(folder, model=TURNWISE_SMALL_INT8), **changes)
    for key in ("steps", "regions", "model"):
        if is_store(found.part("store")) and changes.get(key, getattr(found, key)) != getattr(found, key):
            raise TurnwiseError(
                f"the conversations in {found.folder} were made with {key}: {getattr(found, key)}, not {changes[key]}:"
                " leave the option out, or make another project with --out"
            )
    return replace(found, **changes)


def _add_log(project: Project, log: Path) -> "LogAddition":
    """Import a log into a project, which is saved once it has conversations."""
    from turnwise.assist.projects import add_log, add_store, masking_of
    from turnwise.corpus.hygiene.steps import is_mask
    from turnwise.corpus.storage.store import Store, is_store

    if is_store(log):
        if any(map(is_mask, project.steps)):
            raise TurnwiseError(
                f"{log} is a store, which is used as it is, and this project masks personal data: import the log itself"
            )
        addition = add_store(project, Store(log))
        project.save()
        return addition
    reader, options = choose_reader(project.reader, log, project.options)
    show_preview(reader, log, project.steps, masking=masking_of(project), **options)
    with progress_bar() as progress:
        addition = add_log(project, log, reader, options, progress=progress)
    project.save()
    return addition


def _show_addition(project: Project, addition: "LogAddition") -> None:
    """Report the import of a log."""
    folder = project.part("store")
    rows = [row for row in import_facts(addition.manifest, folder) if row[1] != NO_CHANGE]
    if (plan := addition.plan) is not None:
        rows.append(("new", f"{len(plan.new):,} conversations; {len(plan.unchanged):,} were already there"))
        if plan.replaced:
            rows.append(("updated", f"{len(plan.replaced):,} conversations with other turns than before"))
        if plan.shorter:
            rows.append(("kept", f"the earlier, longer versions of {len(plan.shorter):,} conversations"))
    show(None, facts(folder, rows))
    warn_of_losses(addition.manifest)


def _describe(project: Project, made: Sequence[str]) -> list[tuple[str, str]]:
    """Return what a project holds, and what to do next."""
    from turnwise.assist.map.utterance_map import DESCRIPTION as MAP_DESCRIPTION
    from turnwise.core.files import read_json
    from turnwise.corpus.storage.store import Store

    store, map_facts = Store(project.part("store")), read_json(project.part("map") / MAP_DESCRIPTION)
    contents = {
        "store": f"{len(store):,} conversations, {store.manifest['utterances']:,} utterances",
        "map": f"{len(map_facts['clusters']):,} groups of {map_facts['texts']:,} distinct texts",
        "responses": "the agents' turns, to suggest from",
        "conversations": "to find similar ones",
    }
    if not project.part("responses").is_dir():
        contents["responses"] = "none: no turn is an agent's (speaker system)"
    rows = [
        (part, text if part in made or part == "store" else f"{text} (no change)") for part, text in contents.items()
    ]
    if not project.part("intents").is_dir():
        rows.append(("next", "name groups on the page's map, or run `turnwise intents fit examples.csv` in the folder"))
    return rows
