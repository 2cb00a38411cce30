"""What a service is told when it starts: what to serve, to whom, and within which limits."""

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path

from turnwise.core.errors import TurnwiseError

#: What the service is made of besides the core.
_NEEDED = ("fastapi", "uvicorn", "prometheus_client")


class ServeError(TurnwiseError):
    """The service cannot start or reload as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a client may ask for.

    Attributes:
        body: bytes of a request's body.
        texts: texts of a request, and turns of a conversation.
        characters: of a text.
        queue: texts that may wait to be encoded; a request that would have more wait is refused with 503.
        batch_tokens: tokens of one forward pass; None: what suits the device.
        seconds: that a request may take.
        body_seconds: that a client may take to send a body.
        header_seconds: that a client may take to send a request's head.
        connections: that may be open at once.
    """

    body: int = 2_000_000
    texts: int = 1_000
    characters: int = 20_000
    queue: int = 4_096
    batch_tokens: int | None = None
    seconds: float = 30.0
    body_seconds: float = 10.0
    header_seconds: float = 10.0
    connections: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is served.

    Attributes:
        model: the encoder: 'minilm', a folder, or a Hugging Face id.
        intents: the folder of an `IntentClassifier`.
        responses: where a `Responder` has its table: a folder, or an address on object storage.
        conversations: where `Conversations` have theirs.
        reranker: the folder of a `Reranker`.
        map: the folder of a map, which can be labelled.
        report: the folder of an evaluation, with report.html.
        keys: a file of hashed keys; None: whoever reaches the service may use it.
        cors: origins whose pages may use the service; none unless told.
        hosts: names by which the service may be addressed; none: any.
        log_texts: whether logs hold what people wrote.
        limits: how much a client may ask for.
    """

    model: str = "minilm"
    intents: Path | None = None
    responses: str | None = None
    conversations: str | None = None
    reranker: str | None = None
    map: Path | None = None
    report: Path | None = None
    keys: Path | None = None
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    log_texts: bool = False
    limits: Limits = field(default_factory=Limits)


def check_installed() -> None:
    """Says what to install where a part of the service is missing.

    Raises:
        ServeError: if so.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ServeError(f"the service needs {', '.join(missing)}: install it by `pip install 'turnwise[serve]'`")
