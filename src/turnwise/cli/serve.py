"""`turnwise start`, `serve` and `serve-key`: from a log to a running page, the HTTP service, and its API keys."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from turnwise.cli.corpus_import import (
    NO_CHANGE,
    SAMPLE,
    choose_reader,
    choose_regions,
    import_facts,
    show_preview,
    warn_of_losses,
)
from turnwise.cli.languages import repeat_command, warn_of_language
from turnwise.cli.options import (
    NAMES,
    MaskEntities,
    MaskLists,
    MaskPatterns,
    OptionalModel,
    OptionalReranker,
    Port,
    Pseudonyms,
    ReaderOptions,
    Regions,
    RuntimeName,
)
from turnwise.cli.output import facts, message, progress_bar, show
from turnwise.core.errors import TurnwiseError
from turnwise.core.files import temporary_folder
from turnwise.core.imports import require, without_garbage_collection
from turnwise.core.model_names import TURNWISE_SMALL_INT8
from turnwise.core.project import DESCRIPTION, Project
from turnwise.corpus.storage.rejections import NOT_READ, WITHOUT_ROLE

if TYPE_CHECKING:
    from turnwise.assist.projects import LogAddition
    from turnwise.core.project import Part

#: Names by which a service that listens on the loopback interface may be addressed.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

#: A project may take this many times the space of its log.
_SPACE_FACTOR = 3

#: The settings of a project that say how personal data is masked.
_MASKING = ("regions", "mask_patterns", "mask_lists", "mask_entities", "pseudonyms")

_MAX_GROUPS = 5  # new groups that are named


def serve_command(
    model: OptionalModel = None,
    runtime: RuntimeName = None,
    port: Port = 8000,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0: all interfaces.")] = "127.0.0.1",
    intents: Annotated[Path | None, Option(help="Folder written by `turnwise intents fit`.")] = None,
    responses: Annotated[str | None, Option(help="Table written by `turnwise responses index`.")] = None,
    conversations: Annotated[str | None, Option(help="Table written by `turnwise conversations index`.")] = None,
    reranker: OptionalReranker = None,
    map_folder: Annotated[Path | None, Option("--map", help="Folder written by `turnwise map`.")] = None,
    report: Annotated[Path | None, Option(help="Folder written by `turnwise evaluate`.")] = None,
    keys: Annotated[Path | None, Option(help="File of keys from `turnwise serve-key`; optional.")] = None,
    cors: Annotated[list[str] | None, Option(metavar="ORIGIN", help="Origin to allow; repeatable.")] = None,
    allow_host: Annotated[list[str] | None, Option(metavar="NAME", help="Host name to accept; repeatable.")] = None,
    log_format: Annotated[
        Literal["auto", "text", "json"], Option(help="Format of the log; auto: text on a terminal, otherwise json.")
    ] = "auto",
    log_texts: Annotated[bool, Option("--log-texts", help="Include the texts of requests in the log.")] = False,
    queue: Annotated[int, Option(min=1, help="Maximum number of texts waiting to be encoded.")] = 4_096,
    batch_tokens: Annotated[int, Option(min=1, help="Maximum tokens per forward pass.")] = 4_096,
    max_body: Annotated[int, Option(min=1, help="Maximum bytes per request.")] = 2_000_000,
    max_texts: Annotated[int, Option(min=1, help="Maximum texts per request.")] = 1_000,
    max_characters: Annotated[int, Option(min=1, help="Maximum characters of a request's texts.")] = 500_000,
    timeout: Annotated[float, Option(min=0.1, help="Maximum seconds per request.")] = 30.0,
) -> None:
    """Start the HTTP service with its web page.

    It serves an encoder, and optionally intents, responses, conversations and a map. Inside a project, the project's
    parts are the defaults. Without --host, only this machine can reach it. The log goes to standard error, one line per
    request. SIGTERM stops it after accepted requests are answered; SIGHUP reloads everything.

    Example: `turnwise serve --intents intents --port 8000`
    """
    with without_garbage_collection():
        from turnwise.serve.models import check_settings
        from turnwise.serve.server import run
        from turnwise.serve.settings import Limits, ServeSettings

    project = Project.find()
    settings = ServeSettings(
        project=None if project is None else project.folder,
        model=model or "",
        runtime=runtime,
        intents=intents,
        responses=responses,
        conversations=conversations,
        reranker=reranker,
        map=map_folder,
        report=report,
        keys=keys,
        cors=tuple(cors or ()),
        hosts=(*_LOOPBACK, *(allow_host or ())) if host in _LOOPBACK else (),
        log_texts=log_texts,
        limits=Limits(
            body=max_body,
            texts=max_texts,
            request_characters=max_characters,
            queue=queue,
            batch_tokens=batch_tokens,
            seconds=timeout,
        ),
    )
    check_settings(settings.resolved())
    run(settings, host, port, log_format)


def serve_key_command(
    name: Annotated[str, Argument(help="Owner of the key, for the log.")],
    keys: Annotated[Path, Option(dir_okay=False, help="File to add the hash of the key to.")],
    read_only: Annotated[bool, Option("--read-only", help="Create a key that cannot change anything.")] = False,
) -> None:
    """Create an API key for the service and print it.

    The file stores only a salted hash, so write the key down. A running service accepts it after a reload.

    Example: `turnwise serve-key monitoring --keys keys.txt`
    """
    from turnwise.serve.settings import add_key

    typer.echo(add_key(keys, name, read_only=read_only))


def start_command(
    log: Annotated[Path | None, Argument(help="Log: a file or folder of any common format, or a store.")] = None,
    out: Annotated[
        Path | None,
        Option(file_okay=False, help="Project folder; by default the current one, or one named after the log."),
    ] = None,
    reader: Annotated[str | None, Option(help="Reader (see `turnwise corpus list`); detected by default.")] = None,
    settings: ReaderOptions = None,
    step: Annotated[
        list[str] | None,
        Option(metavar="STEP", help="Hygiene step, as for `corpus import`; log by default; repeatable."),
    ] = None,
    mask: Annotated[bool, Option("--mask", help="Mask personal data, as do the options for it.")] = False,
    region: Regions = None,
    mask_pattern: MaskPatterns = None,
    mask_list: MaskLists = None,
    mask_entities: MaskEntities = None,
    pseudonyms: Pseudonyms = False,
    model: Annotated[
        str | None, Option(help=f"Encoder: {TURNWISE_SMALL_INT8} (default; English, fast on a CPU), {NAMES}.")
    ] = None,
    serve: Annotated[bool, Option(help="Serve the page when everything is ready.")] = True,
    port: Port = 8000,
) -> None:
    """Turn a chat log into a project, and serve its web page.

    It imports the log, maps what users say, indexes responses and conversations, and serves the page. All results are
    in the project folder. An interrupted command continues where it stopped. Inside a project, a newer log adds its new
    conversations, also while the project is served; without a log, missing parts are built and the page is served.

    Example: `turnwise start export.zip --out support --mask --region DE`
    """
    from turnwise.assist.projects import ProjectBuilder, remove_unfinished
    from turnwise.corpus.hygiene.steps import is_mask
    from turnwise.models.encoder import Encoder

    given: dict[str, Any] = {
        "reader": reader,
        "options": settings,
        "model": model,
        "regions": region,
        "mask_patterns": mask_pattern,
        "mask_lists": [_absolute(each) for each in mask_list or ()],
        "mask_entities": mask_entities,
        "pseudonyms": pseudonyms,
    }
    mask = mask or any(given[name] for name in _MASKING)
    if step or mask:
        given["steps"] = [*(step or ["log"]), *(["mask"] if mask and not any(map(is_mask, step or ())) else [])]
    project = _open_project(log, out, given)
    service = project.holder("serving") if project.folder.is_dir() else None
    if serve and service is None:
        _check_port(port)
    if log is not None:
        _check_log(project, log)
    unread: list[str] = []
    with project.lock("updating", f"process {os.getpid()}"):
        remove_unfinished(project)
        with progress_bar() as progress:
            progress("loading the encoder", 0)
            encoder = Encoder.load(project.model)
        if log is not None:
            project, addition = _add_log(project, log)
            # now that it has conversations; the model is that of the build in use
            settled = {name: getattr(project, name) for name in ("reader", "options", "steps", *_MASKING)}
            project.update(**settled)
            _show_addition(project, addition)
            unread = addition.manifest["facts"].get(NOT_READ, [])
        with progress_bar() as progress:
            made = ProjectBuilder(project, encoder, progress).build()
    project = Project.load(project.folder)
    _show_project(project, made)
    if unread:
        message("\n  ".join(["WARNING: the project lacks the conversations of files that were not read:", *unread]))
    if service is not None:
        message(f"{service} switches to what is new within seconds")
    elif serve:
        with without_garbage_collection():
            from turnwise.serve.server import run
            from turnwise.serve.settings import ServeSettings

        run(ServeSettings(project=project.folder, hosts=_LOOPBACK), _LOOPBACK[1], port)
    if unread:
        raise typer.Exit(1)


def _absolute(mask_list: str) -> str:
    """Return NAME=FILE with an absolute path, which newer logs are masked with from any folder."""
    kind, equals, file = mask_list.partition("=")
    return f"{kind}{equals}{Path(file).absolute() if file else ''}"


def _check_port(port: int) -> None:
    """Raise an error before any work if the page could not be served at its end."""
    require("fastapi", "uvicorn", extra="serve")
    from turnwise.serve.server import listen

    listen(_LOOPBACK[1], port).close()


def _check_log(project: Project, log: Path) -> None:
    """Raise an error if a log must not be added to a project, or there is too little space for it."""
    from turnwise.corpus.hygiene.steps import is_mask
    from turnwise.corpus.storage.store import is_store

    if is_store(log) and any(map(is_mask, project.steps)):
        raise TurnwiseError(
            f"{log} is a store, which is used as it is, and this project masks personal data: import the log itself"
        )
    size = sum(path.stat().st_size for path in (log.rglob("*") if log.is_dir() else (log,)))
    folder = next(each for each in (project.folder.absolute(), *project.folder.absolute().parents) if each.is_dir())
    free = shutil.disk_usage(folder).free
    if free < _SPACE_FACTOR * size:
        raise TurnwiseError(
            f"{folder} has {free / 1e6:,.0f} MB of free space, and a project of {log} ({size / 1e6:,.0f} MB) may take"
            f" {_SPACE_FACTOR} times as much as the log: free some, or choose another folder with --out"
        )


def _open_project(log: Path | None, out: Path | None, given: dict[str, Any]) -> Project:
    """Return the project to build, with the given settings; raise an error if they differ from an existing one's."""
    from turnwise.assist.projects import latest_store

    found = Project.find() if out is None else Project.load(out) if (out / DESCRIPTION).is_file() else None
    if log is None and found is None:
        raise TurnwiseError("name a log to import, such as `turnwise start chats.csv`, or change to a project's folder")
    if log is not None and not log.exists():
        raise TurnwiseError(f"{log} does not exist")
    changes: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in given.items() if value
    }
    if found is None:
        assert log is not None
        folder = Path(f"{log.absolute().name.split('.')[0]}-turnwise") if out is None else out
        return replace(Project(folder, model=TURNWISE_SMALL_INT8), **changes)
    for key in ("steps", *_MASKING):
        if latest_store(found) is not None and changes.get(key, getattr(found, key)) != getattr(found, key):
            raise TurnwiseError(
                f"the conversations in {found.folder} were made with {key}: {getattr(found, key)}, not {changes[key]}:"
                " leave the option out, or make another project with --out"
            )
    return replace(found, **changes)


def _add_log(project: Project, log: Path) -> "tuple[Project, LogAddition]":
    """Add a log to a project; return the project with the regions that were guessed, if any, and what was added."""
    from turnwise.assist.projects import add_log, add_store, latest_store, masking_of
    from turnwise.corpus.hygiene.steps import masks_phones, plan_steps
    from turnwise.corpus.importing.pipeline import read_sample
    from turnwise.corpus.storage.store import Store, is_store

    if is_store(log):
        return project, add_store(project, Store(log))
    masking = masking_of(project)
    with temporary_folder(project.folder) as folder:
        reader, options = choose_reader(project.reader, log, project.options, scratch=folder)
        sample = read_sample(reader, log, SAMPLE, scratch=folder, **options)
    if masks_phones(project.steps) and not project.regions and latest_store(project) is None:
        advice = "make another project: --out NEW --region COUNTRY"
        project = replace(project, regions=choose_regions(sample, advice))
        masking = masking_of(project)
    show_preview(sample, plan_steps(project.steps), masking)
    with progress_bar() as progress:
        return project, add_log(project, log, reader, options, progress=progress)


def _show_addition(project: Project, addition: "LogAddition") -> None:
    """Report the import of a log."""
    from turnwise.assist.projects import latest_store
    from turnwise.corpus.storage.store import Store

    folder = latest_store(project) or project.part("store")
    rows = [row for row in import_facts(addition.manifest, folder) if row[1] != NO_CHANGE]
    if (plan := addition.plan) is not None:
        new = f"{len(plan.new):,} conversations; {len(plan.unchanged):,} were already there"
        rows += [("new", new), ("", f"{plan.utterances:,} utterances, with those of updated conversations")]
        if plan.updated:
            rows.append(("updated", f"{len(plan.updated):,} conversations with other turns than before"))
        if plan.shorter:
            rows.append(("kept", f"the earlier, longer versions of {len(plan.shorter):,} conversations"))
    show(None, facts(folder, rows))
    warn_of_losses(addition.manifest)
    warn_of_language(Store(folder), model=project.model, command=repeat_command())
    if unknown := addition.manifest["facts"].get(WITHOUT_ROLE):
        message(
            f"HINT: {unknown:,} utterances are of speakers whose role is unknown, so none of theirs is suggested as an"
            " answer. To name the agents, start another project: --out NEW --set 'speakers=NAME=system,*=user'"
        )


def _show_project(project: Project, made: "list[Part]") -> None:
    """Report what a project holds, and what to do next."""
    from turnwise.assist.map.utterance_map import DESCRIPTION as MAP_DESCRIPTION
    from turnwise.core.files import read_json
    from turnwise.corpus.storage.store import Store

    store, map_facts = Store(project.part("store")), read_json(project.part("map") / MAP_DESCRIPTION)
    has_responses = project.part("responses").is_dir()
    contents = {
        "store": f"{len(store):,} conversations, {store.manifest['utterances']:,} utterances",
        "map": f"{len(map_facts['clusters']):,} groups of {map_facts['texts']:,} distinct texts",
        "responses": "the agents' turns, to suggest from"
        if has_responses
        else "none: no turn is an agent's (speaker system)",
        "conversations": "to find similar ones",
    }
    rows = [(part, text + " (no change)" * (part not in ("store", *made))) for part, text in contents.items()]
    if "map" in made and (since := map_facts["since"]):
        pairs = zip(map_facts["clusters"], since["before"], strict=True)
        new = [f"'{cluster['name']}'" for cluster, before in pairs if not before]
        more = f" and {len(new) - _MAX_GROUPS:,} more" * (len(new) > _MAX_GROUPS)
        rows.append(("new groups", (", ".join(new[:_MAX_GROUPS]) or "none") + more))
    if not project.part("intents").is_dir():
        rows.append(("next", "name groups on the page's map, or run `turnwise intents fit examples.csv` in the folder"))
    show(None, facts(project.folder, rows))
