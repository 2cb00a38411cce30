"""`turnwise serve` and `turnwise serve-key`: the HTTP service and its API keys."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from turnwise.cli.options import Model
from turnwise.core.model_names import DEFAULT_ENCODER

#: Names by which a service that listens on the loopback interface may be addressed.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def serve_command(
    model: Model = DEFAULT_ENCODER,
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
    cors: Annotated[list[str] | None, Option(help="Origin whose pages may call the service; repeatable.")] = None,
    allow_host: Annotated[
        list[str] | None, Option(help="Additional host name for a service on localhost; repeatable.")
    ] = None,
    log_texts: Annotated[bool, Option(help="Include the texts of requests in the log.")] = False,
    queue: Annotated[int, Option(min=1, help="Maximum number of texts waiting to be encoded.")] = 4_096,
    batch_tokens: Annotated[int | None, Option(min=1, help="Maximum tokens per forward pass.")] = None,
    max_body: Annotated[int, Option(min=1, help="Maximum bytes per request.")] = 2_000_000,
    max_texts: Annotated[int, Option(min=1, help="Maximum texts per request.")] = 1_000,
    timeout: Annotated[float, Option(min=0.1, help="Maximum seconds per request.")] = 30.0,
) -> None:
    """Serve an encoder, and optionally intents, responses, conversations and a map, over HTTP with a page at /.

    Only this machine can reach it unless --host says otherwise. Logs go to standard error, one line of JSON per
    request. SIGTERM stops it after accepted requests are answered; SIGHUP reloads everything.

    Example: `turnwise serve --intents intents --port 8000`
    """
    from turnwise.serve.models import check_settings
    from turnwise.serve.server import run
    from turnwise.serve.settings import Limits, ServeSettings

    settings = ServeSettings(
        model=model,
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
        limits=Limits(body=max_body, texts=max_texts, queue=queue, batch_tokens=batch_tokens, seconds=timeout),
    )
    check_settings(settings)
    run(settings, host, port)


def serve_key_command(
    name: Annotated[str, Argument(help="Owner of the key, for the log.")],
    keys: Annotated[Path, Option(dir_okay=False, help="File that the hash of the key is added to.")],
) -> None:
    """Create an API key and print it; the file stores only its salted hash, so write the key down.

    A running service accepts it after a reload.

    Example: `turnwise serve-key monitoring --keys keys.txt`
    """
    from turnwise.serve.settings import add_key

    typer.echo(add_key(keys, name))
