"""Request ids, the log, and metrics for Prometheus.

The log contains neither request bodies, unless configured, nor messages of exceptions, which may quote them.
"""

import itertools
import json
import logging
import re
import secrets
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwise.serve.errors import ServiceError
from turnwise.serve.middleware import HttpMiddleware

_LOG = logging.getLogger("turnwise.serve")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

#: Request ids: a random prefix per process and a count, which costs less than a random number per request.
_PREFIX, _NUMBERS = secrets.token_hex(6), itertools.count(1)

#: Methods with their own metrics; clients may invent others.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

LogFormat = Literal["auto", "text", "json"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_POWERS = tuple(float(2**power) for power in range(13))


class ServiceMetrics:
    """Metrics of one application."""

    def __init__(self, waiting: Callable[[], float], is_ready: Callable[[], float]):
        """Take functions that return how many texts are waiting, and whether the service is ready."""
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self._requests = counter("turnwise_requests", "Requests that were answered.", ("method", "path", "status"))
        self._seconds = histogram("turnwise_request_seconds", "Duration of requests.", ("path",), buckets=_SECONDS)
        self._texts = counter("turnwise_texts", "Texts in requests.")
        self._tokens = counter("turnwise_tokens", "Tokens that were encoded.")
        self._passes = histogram("turnwise_pass_seconds", "Duration of forward passes.", buckets=_SECONDS)
        self._pass_texts = histogram("turnwise_pass_texts", "Texts per forward pass.", buckets=_POWERS)
        self.refused = counter("turnwise_refused", "Requests rejected because of overload.")
        self.recalibrations = counter("turnwise_recalibrations", "Recalibrations of served classifiers.", ("outcome",))
        self.reloads = counter("turnwise_reloads", "Reloads.", ("outcome",))
        gauge("turnwise_waiting_texts", "Texts waiting to be encoded.").set_function(waiting)
        gauge("turnwise_ready", "1 if the service is ready.").set_function(is_ready)

    def count_request(self, method: str, path: str, status: int, seconds: float, record: "RequestRecord") -> None:
        """Count a request."""
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        self._texts.inc(record.texts)
        self._tokens.inc(record.tokens)

    def count_pass(self, texts: int, seconds: float) -> None:
        """Count a forward pass."""
        self._passes.observe(seconds)
        self._pass_texts.observe(texts)


@dataclass(slots=True)
class RequestRecord:
    """What the log says about a request."""

    request_id: str  # the client's, or a new one
    key: str | None = None  # the name of the API key
    texts: int = 0
    tokens: int = 0
    characters: int = 0  # of its texts, for their limit
    body: bytes = b""


class RequestLogging(HttpMiddleware):
    """Middleware that logs and counts requests, sets the request id, and answers 500 if the service fails."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics, log_texts: bool):
        super().__init__(app)
        self.metrics = metrics
        self.log_texts = log_texts

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"{_PREFIX}-{next(_NUMBERS):x}"
        record = scope["record"] = RequestRecord(request_id)
        start = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", record.request_id.encode())]
            await send(message)

        failure: Exception | None = None
        try:
            await self.app(scope, receive, send_with_id)
        except Exception as error:
            failure = error
            if status:
                raise  # the response has begun: only closing the connection can report the failure
            message = f"the service failed: see its log for request id {record.request_id}"
            await ServiceError(500, message, code="failed").response()(scope, receive, send_with_id)
        finally:
            self._log(scope, record, status, time.perf_counter() - start, failure)

    def _log(self, scope: Scope, record: RequestRecord, status: int, seconds: float, failure: Exception | None) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        path = getattr(scope.get("route"), "path", None) or "unknown"
        self.metrics.count_request(method, path, status, seconds, record)
        fields: dict[str, Any] = {"event": "request", "method": method, "path": path, "status": status}
        fields["milliseconds"] = round(1e3 * seconds, 2)
        fields |= {"texts": record.texts, "tokens": record.tokens, "request_id": record.request_id}
        if record.key is not None:
            fields["key"] = record.key
        if failure is not None:
            fields |= describe_failure(failure)
            if self.log_texts:
                fields["message"] = str(failure)
        if self.log_texts:
            fields["body"] = record.body.decode(errors="replace")
        log(logging.ERROR if failure is not None else logging.INFO, **fields)


def log(level: int, **fields: Any) -> None:
    """Write a line to the log."""
    if _LOG.isEnabledFor(level):
        _LOG.log(level, "%s", fields.get("event", ""), extra={"fields": fields})


def log_failure(error: Exception, event: str) -> None:
    """Log a failure outside a request."""
    log(logging.ERROR, event=event, failure=type(error).__name__, message=str(error))


def describe_failure(failure: Exception) -> dict[str, Any]:
    """Return the type of an exception and where it was raised, without its message."""
    frames = traceback.extract_tb(failure.__traceback__)
    where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-12:]]
    return {"failure": type(failure).__name__, "where": where}


class JsonFormatter(logging.Formatter):
    """Formats a log record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = getattr(record, "fields", None) or {"event": record.name, "message": record.getMessage()}
        now = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": now, "level": record.levelname.lower(), **fields}, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Formats a log record for people, with the local time."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line, or several for the start of the service and for failures."""
        fields = dict(getattr(record, "fields", None) or {"event": "warning", "message": record.getMessage()})
        event = fields.pop("event")
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        if event == "listening":
            title = f"turnwise {fields.pop('version')} at {fields.pop('address')} (Ctrl+C stops it)"
            return "\n".join([title, *(f"  {name:14}{value}" for name, value in fields.items())])
        if event == "request":
            return f"{clock}  {self._format_request(fields)}"
        details = "; ".join(f"{name} {value}" for name, value in fields.items())
        if event == "ready":
            details = f"all models are loaded, after {fields['seconds']:.1f} s"
        return f"{clock}  {event.replace('_', ' ')}{': ' if details else ''}{details}"

    def _format_request(self, fields: dict[str, Any]) -> str:
        status, texts, tokens = fields.pop("status"), fields.pop("texts"), fields.pop("tokens")
        parts = [
            f"{fields.pop('method'):<4} {fields.pop('path'):<26}",
            str(status),
            f"{fields.pop('milliseconds'):>8.1f} ms",
            *([f"{texts:,} text{'' if texts == 1 else 's'}, {tokens:,} tokens"] if texts else []),
            *([f"key {fields.pop('key')}"] if "key" in fields else []),
        ]
        request_id, where = fields.pop("request_id"), fields.pop("where", [])
        if where:
            parts.append(f"{fields.pop('failure')}, request id {request_id}")
        # request bodies and messages, if they are logged, as JSON: a terminal must not interpret what they contain
        more = [*where, *(f"{name} {json.dumps(value)}" for name, value in fields.items())]
        return "\n".join(["  ".join(parts), *(f"          {each}" for each in more)])


def log_to_stderr(form: LogFormat = "auto") -> None:
    """Write the service's log and uvicorn's warnings to standard error; 'auto' is text on a terminal, else JSON."""
    handler = logging.StreamHandler(sys.stderr)
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    for name, level in (("turnwise.serve", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
