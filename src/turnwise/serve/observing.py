"""Around everything: a request's id, a line in the log, the counters, and an answer where the service itself fails.

Logs are JSON, a line a request, on standard error. What people write is not in them unless that is asked for; neither are the
messages of failures, which may quote it.
"""

import itertools
import json
import logging
import re
import secrets
import sys
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwise.serve.errors import refuse
from turnwise.serve.metrics import Metrics

_LOG = logging.getLogger("turnwise.serve")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")

#: What ids are made of: a random number for each process, and a count; another random number for each request would cost more.
_PREFIX, _NUMBERS = secrets.token_hex(6), itertools.count(1)

#: The methods that are told apart; a client may make up any other.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


@dataclass(slots=True)
class Tally:
    """What a request was found to be while it was answered.

    Attributes:
        request_id: its id, the client's own where it gave one.
        key: the name of the key that it came with.
        texts: how many texts it asked about.
        tokens: how many tokens were read for it.
        body: what was sent.
    """

    request_id: str
    key: str | None = None
    texts: int = 0
    tokens: int = 0
    body: bytes = b""


class Observe:
    """Handles what is the same for every request."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log_texts: bool):
        self.app = app
        self.metrics = metrics
        self.log_texts = log_texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        tally = scope["tally"] = Tally(_request_id(scope))
        start = time.perf_counter()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", tally.request_id.encode())]
            await send(message)

        failure: Exception | None = None
        try:
            await self.app(scope, receive, noting)
        except Exception as error:
            failure = error
            if status:
                raise  # the connection ends, as there is no other way to say so
            message = f"the service failed; its log has more under the request id {tally.request_id}"
            await refuse(scope, receive, noting, 500, message, "failed")
        finally:
            self._note(scope, tally, status, time.perf_counter() - start, failure)

    def _note(self, scope: Scope, tally: Tally, status: int, seconds: float, failure: Exception | None) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        path = getattr(scope.get("route"), "path", None) or "unknown"
        self.metrics.request(method, path, status, seconds, tally.texts, tally.tokens)
        line: dict[str, Any] = {
            "event": "request",
            "method": method,
            "path": path,
            "status": status,
            "milliseconds": round(1e3 * seconds, 2),
            "texts": tally.texts,
            "tokens": tally.tokens,
            "request_id": tally.request_id,
        }
        if tally.key is not None:
            line["key"] = tally.key
        if failure is not None:
            line |= _told(failure, self.log_texts)
        if self.log_texts:
            line["body"] = tally.body.decode(errors="replace")
        log(logging.ERROR if failure is not None else logging.INFO, **line)


def log(level: int, **line: Any) -> None:
    """Writes a line to the log."""
    if _LOG.isEnabledFor(level):
        _LOG.log(level, "%s", line.get("event", ""), extra={"line": line})


class JsonLines(logging.Formatter):
    """A record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = getattr(record, "line", None) or {"event": record.name, "message": record.getMessage()}
        now = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": now, "level": record.levelname.lower(), **line}, ensure_ascii=False, default=str)


def log_to_standard_error() -> None:
    """Has the service's lines and the server's own warnings written to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("turnwise.serve", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False


def _told(failure: Exception, log_texts: bool) -> dict[str, Any]:
    """What failed, and where."""
    frames = [
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(failure.__traceback__)
    ]
    told: dict[str, Any] = {"failure": type(failure).__name__, "where": frames[-12:]}
    if log_texts:
        told["message"] = str(failure)
    return told


def _request_id(scope: Scope) -> str:
    for key, value in scope["headers"]:
        if key == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode())
    return f"{_PREFIX}-{next(_NUMBERS):x}"
