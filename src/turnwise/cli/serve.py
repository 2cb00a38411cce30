"""`turnwise serve` and `turnwise serve-key`: the HTTP service and its API keys."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from turnwise.cli.options import OptionalModel, RuntimeName
from turnwise.cli.project import model_or_default
from turnwise.core.imports import without_garbage_collection
from turnwise.core.project import Project

#: Names by which a service that listens on the loopback interface may be addressed.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def serve_command(
    model: OptionalModel = None,
    runtime: RuntimeName = None,
    port: Annotated[int, Option(min=0, max=65_535, help="Port to listen on; 0: any free port.")] = 8000,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0: all interfaces.")] = "127.0.0.1",
    intents: Annotated[Path | None, Option(help="Folder written by `turnwise intents fit`.")] = None,
    responses: Annotated[
        str | None, Option(help="Table written by `turnwise responses index`: a folder or s3://….")
    ] = None,
    conversations: Annotated[str | None, Option(help="Table written by `turnwise conversations index`.")] = None,
    reranker: Annotated[
        str | None,
        Option(
            help="Re-ranker for response suggestions and the coherence check: turnwise-reranker, a model folder or a "
            "Hugging Face id."
        ),
    ] = None,
    map_folder: Annotated[
        Path | None, Option("--map", help="Folder written by `turnwise map`; it can be labelled on the page.")
    ] = None,
    report: Annotated[Path | None, Option(help="Folder written by `turnwise evaluate`.")] = None,
    keys: Annotated[
        Path | None, Option(help="File of hashed API keys, from `turnwise serve-key`; without it, no key is needed.")
    ] = None,
    cors: Annotated[
        list[str] | None, Option(metavar="ORIGIN", help="Origin whose pages may call the service; repeatable.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, Option(metavar="NAME", help="Additional host name for a service on localhost; repeatable.")
    ] = None,
    log_format: Annotated[
        Literal["auto", "text", "json"], Option(help="Format of the log; auto: text on a terminal, otherwise json.")
    ] = "auto",
    log_texts: Annotated[bool, Option("--log-texts", help="Include the texts of requests in the log.")] = False,
    queue: Annotated[int, Option(min=1, help="Maximum number of texts waiting to be encoded.")] = 4_096,
    batch_tokens: Annotated[int | None, Option(min=1, help="Maximum tokens per forward pass.")] = None,
    max_body: Annotated[int, Option(min=1, help="Maximum bytes per request.")] = 2_000_000,
    max_texts: Annotated[int, Option(min=1, help="Maximum texts per request.")] = 1_000,
    timeout: Annotated[float, Option(min=0.1, help="Maximum seconds per request.")] = 30.0,
) -> None:
    """Start the HTTP service with its web page.

    It serves an encoder, and optionally intents, responses, conversations and a map. Inside a project, what is not
    given is the project's.

    Only this machine can reach it unless --host says otherwise. The log goes to standard error, one line per
    request. SIGTERM stops it after accepted requests are answered; SIGHUP reloads everything.

    Example: `turnwise serve --intents intents --port 8000`
    """
    with without_garbage_collection():
        from turnwise.serve.models import check_settings
        from turnwise.serve.server import run
        from turnwise.serve.settings import Limits, ServeSettings

    parts = project_parts(Project.find())
    settings = ServeSettings(
        model=model_or_default(model),
        runtime=runtime,
        intents=intents or parts.get("intents"),
        responses=responses or parts.get("responses"),
        conversations=conversations or parts.get("conversations"),
        reranker=reranker or parts.get("reranker"),
        map=map_folder or parts.get("map"),
        report=report,
        keys=keys,
        cors=tuple(cors or ()),
        hosts=(*_LOOPBACK, *(allow_host or ())) if host in _LOOPBACK else (),
        log_texts=log_texts,
        limits=Limits(body=max_body, texts=max_texts, queue=queue, batch_tokens=batch_tokens, seconds=timeout),
    )
    check_settings(settings)
    run(settings, host, port, log_format)


def serve_project(project: Project, port: int) -> None:
    """Serve everything in a project on this machine."""
    with without_garbage_collection():
        from turnwise.serve.server import run
        from turnwise.serve.settings import ServeSettings

    run(ServeSettings(model=project.model, hosts=_LOOPBACK, **project_parts(project)), _LOOPBACK[1], port)


def project_parts(project: Project | None) -> dict[str, Any]:
    """Return what a project has to serve, by the names of `ServeSettings`; nothing outside a project."""
    if project is None:
        return {}
    parts: dict[str, Any] = {}
    for name in ("responses", "conversations"):
        if project.part(name).is_dir():
            parts[name] = str(project.part(name))
    if project.part("map").is_dir():
        parts["map"] = project.part("map")
    if (intents := _latest_intents(project)) is not None:
        parts["intents"] = intents
    if project.reranker is not None:
        parts["reranker"] = project.reranker
    return parts


def _latest_intents(project: Project) -> Path | None:
    """Return the classifier that was fitted last, on the command line or on the page."""
    folders = [project.part("intents"), *project.part("map").glob("intents*")]
    fitted = [folder / "intents.json" for folder in folders if (folder / "intents.json").is_file()]
    return max(fitted, key=lambda file: file.stat().st_mtime).parent if fitted else None


def serve_key_command(
    name: Annotated[str, Argument(help="Owner of the key, for the log.")],
    keys: Annotated[Path, Option(dir_okay=False, help="File that the hash of the key is added to.")],
    read_only: Annotated[
        bool, Option("--read-only", help="The key may not change examples, labels or answers.")
    ] = False,
) -> None:
    """Create an API key for the service and print it.

    The file stores only a salted hash, so write the key down.

    A running service accepts it after a reload.

    Example: `turnwise serve-key monitoring --keys keys.txt`
    """
    from turnwise.serve.settings import add_key

    typer.echo(add_key(keys, name, read_only=read_only))
