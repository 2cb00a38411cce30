"""`turnwise serve`: the models over HTTP, with a page; and the keys of those who may use them."""

from pathlib import Path
from typing import Annotated

import typer

#: Names by which a service that listens on this machine alone may be addressed.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def serve_command(
    model: Annotated[str, typer.Option(help="The encoder: 'minilm', a folder, or a Hugging Face id.")] = "minilm",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Where to listen; 0: on a port that is free.")] = 8000,
    host: Annotated[
        str, typer.Option(help="On which address to listen; 0.0.0.0: on all of this machine's.")
    ] = "127.0.0.1",
    intents: Annotated[Path | None, typer.Option(help="A folder that `turnwise intents fit` wrote.")] = None,
    responses: Annotated[
        str | None, typer.Option(help="A table that `turnwise responses index` wrote: a folder or s3://….")
    ] = None,
    conversations: Annotated[
        str | None, typer.Option(help="A table that `turnwise conversations index` wrote.")
    ] = None,
    reranker: Annotated[
        str | None, typer.Option(help="A re-ranker's folder: for suggested answers, and the turn that does not belong.")
    ] = None,
    map_folder: Annotated[
        Path | None, typer.Option("--map", help="A folder that `turnwise map` wrote; it can be labelled.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="A folder that `turnwise evaluate` wrote, with report.html.")
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="A file of hashed keys, made by `turnwise serve-key`; without it none is needed."),
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="An origin whose pages may use the service; may be repeated.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name by which a service on localhost may be addressed; may be repeated."),
    ] = None,
    log_texts: Annotated[bool, typer.Option(help="Have the log hold what people write.")] = False,
    queue: Annotated[int, typer.Option(min=1, help="Texts that may wait to be encoded.")] = 4_096,
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of one forward pass.")] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 2_000_000,
    max_texts: Annotated[int, typer.Option(min=1, help="Texts of a request.")] = 1_000,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a request may take.")] = 30.0,
) -> None:
    """Serves an encoder, and whatever is given besides, over HTTP, with a page at /.

    Only this machine can reach it unless --host says otherwise. Logs go to standard error, a line of JSON a request. SIGTERM ends
    it once what was accepted is answered; SIGHUP has everything loaded anew.

    Example: `turnwise serve --model minilm --intents intents --port 8000`
    """
    from turnwise.serve.settings import Limits, Settings, check_installed

    check_installed()
    from turnwise.cli.terminal import quiet

    quiet()
    from turnwise.serve.loading import check
    from turnwise.serve.running import run

    limits = Limits(body=max_body, texts=max_texts, queue=queue, batch_tokens=batch_tokens, seconds=timeout)
    settings = Settings(
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
        limits=limits,
    )
    check(settings)
    run(settings, host, port)


def serve_key_command(
    name: Annotated[str, typer.Argument(help="Whose key it is, for the log.")],
    keys: Annotated[Path, typer.Option(dir_okay=False, help="The file that its hash is added to.")],
) -> None:
    """Makes a key for the service and prints it; the file holds its salted hash alone, so note it down.

    A service that runs takes it once it is reloaded.

    Example: `turnwise serve-key monitoring --keys keys.txt`
    """
    from turnwise.serve.keys import add_key

    typer.echo(add_key(keys, name))
