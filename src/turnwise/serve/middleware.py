"""Middleware: API keys, limits on hosts, bodies and time, and security headers.

All of it is plain ASGI, so that nothing of a request is read before it is known to be within the limits.
"""

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwise.serve.errors import ServiceError
from turnwise.serve.settings import KeyStore, Limits

#: Paths that need no key: the page has to load, and monitoring has to see the service's state.
OPEN_PATHS = frozenset(("/", "/about", "/health", "/ready", "/openapi.json", "/favicon.ico"))
OPEN_PREFIX = "/page/"

#: Routes with a body that change nothing.
_READING_PATHS = frozenset(
    ("/embed", "/v1/embeddings", "/intents/predict", "/respond", "/conversations/similar", "/coherence")
)

#: Wrong keys that an address may send in this many seconds.
_WRONG_KEYS, _WRONG_KEY_SECONDS = 20, 60

#: Slow routes, which may take this many times the time limit.
_SLOW_PATHS = frozenset(("/conversations/clusters", "/map/fit", "/reload"))
_SLOW_FACTOR = 20

#: A body up to this many times too large is read and discarded: a sending client would not read the response.
_DISCARDED = 16

#: A lower-case host: a name or an IPv4 address, or an IPv6 address in brackets; and a port.
_HOST = re.compile(r"(?:(?P<name>[a-z0-9._-]*)|\[(?P<address>[0-9a-f:.]+)\])(?::[0-9]{1,5})?")

#: Headers of a request.
_MAX_HEADERS = 100

_CLOSE = {"connection": "close"}

_CONTENT_SECURITY_POLICY = (
    b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'; object-src 'none'"
)
_SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def is_open(path: str) -> bool:
    """Return whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)


class HttpMiddleware:
    """Base class of middleware: handles HTTP requests, and answers with the `ServiceError` that it raises."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or pass on what is not one."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            await self._handle(scope, receive, send)
        except ServiceError as error:
            await error.response()(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class KeyAuthentication(HttpMiddleware):
    """If the service has keys: rejects requests without a valid one (401), and changes by a read-only key (403).

    An address that has sent many wrong keys gets 429 for further ones; valid keys are always accepted.
    """

    def __init__(self, app: ASGIApp, keys: Callable[[], KeyStore | None]):
        super().__init__(app)
        self.keys = keys
        self._wrong_keys: Counter[str] = Counter()  # by address, in the current period
        self._period_end = 0.0

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        keys = self.keys()
        if keys is not None and not is_open(scope["path"]):
            headers = Headers(scope=scope)
            scheme, _, token = headers.get("authorization", "").partition(" ")
            given = headers.get("x-api-key", token if scheme.lower() == "bearer" else "").strip()
            key = keys.find(given) if given else None
            if key is None:
                if given:
                    self._count_wrong_key(scope)
                reason = "this key is not valid" if given else "a key is required"
                message = f"{reason}: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
                raise ServiceError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
            scope["record"].key = key.name
            if key.read_only and scope["method"] == "POST" and scope["path"] not in _READING_PATHS:
                message = f"the key {key.name!r} may only read: use a key that was created without `--read-only`"
                raise ServiceError(403, message, code="read_only_key")
        await self.app(scope, receive, send)

    def _count_wrong_key(self, scope: Scope) -> None:
        """Count a wrong key of a client's address; raise if there were too many."""
        now = time.monotonic()
        if now >= self._period_end:
            self._wrong_keys.clear()
            self._period_end = now + _WRONG_KEY_SECONDS
        address = scope["client"][0] if scope.get("client") else ""
        self._wrong_keys[address] += 1
        if self._wrong_keys[address] > _WRONG_KEYS:
            wait = {"retry-after": str(math.ceil(self._period_end - now))}
            raise ServiceError(429, "too many wrong keys came from this address", code="too_many_keys", headers=wait)


class HostCheck(HttpMiddleware):
    """Rejects requests for another host name (421).

    It protects a service on localhost against DNS rebinding: a page of another site can let its own name point to this
    machine, but the browser sends that name.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]):
        super().__init__(app)
        self.hosts = frozenset(host.lower() for host in hosts)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _HOST.fullmatch(Headers(scope=scope).get("host", "").lower())
        if match is None:
            raise ServiceError(400, "the header Host is not a host name with an optional port", code="not_http")
        host = match["address"] or match["name"]
        if self.hosts and host not in self.hosts:
            message = f"the host name {host!r} is not allowed: if it should be, start with `--allow-host {host}`"
            raise ServiceError(421, message, code="unknown_host")
        await self.app(scope, receive, send)


class BodyLimit(HttpMiddleware):
    """Reads a request's body before the application sees any of it.

    Rejects requests with too many headers (431) or an ambiguous length (400), and bodies that are too large (413), too
    slow (408), or not JSON by their content type (415): a page of another origin can send any other type, and no body,
    without a CORS preflight. If the client disconnects, a request that only reads is abandoned.
    """

    def __init__(self, app: ASGIApp, limits: Limits):
        super().__init__(app)
        self.limits = limits

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if len(headers) > _MAX_HEADERS:
            message = f"the request has more than {_MAX_HEADERS} headers: send fewer"
            raise ServiceError(431, message, code="too_many_headers", headers=_CLOSE)
        if "content-length" in headers and "transfer-encoding" in headers:
            message = "a request has either Content-Length or Transfer-Encoding, not both"
            raise ServiceError(400, message, code="not_http", headers=_CLOSE)
        has_body = "content-length" in headers or "transfer-encoding" in headers
        if scope["method"] in ("GET", "HEAD", "OPTIONS") and not has_body:
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                body = await self._read(headers, receive)
        except TimeoutError:
            message = f"the body was not received within {self.limits.body_seconds:g} s"
            raise ServiceError(408, message, code="slow_body", headers=_CLOSE) from None
        except ConnectionError:
            return  # nobody is there to be answered
        if body is None:
            message = f"the body has more than {self.limits.body:,} bytes: send less at a time"
            raise ServiceError(413, message, code="body_too_large", headers=_CLOSE)
        if (body or "origin" in headers) and not _is_json(headers):
            message = "the body must be JSON: send it with `Content-Type: application/json`, and not compressed"
            raise ServiceError(415, message, code="not_json")
        scope["record"].body = body
        is_read = False

        async def receive_body() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        work = self.app(scope, receive_body, send)
        # changes are completed, so that their outcome does not depend on the moment of a disconnection
        await (_run_until_disconnected(work, receive) if scope["path"] in _READING_PATHS else work)

    async def _read(self, headers: Headers, receive: Receive) -> bytes | None:
        """Return the body, or None if it is too large; raise `ConnectionError` if the client has disconnected."""
        limit = self.limits.body
        length = headers.get("content-length", "")
        announced = int(length) if length.isdigit() else 0
        if announced > limit and headers.get("expect", "").lower() == "100-continue":
            return None  # the client waits before it sends
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            part = message.get("body", b"")
            size += len(part)
            if max(size, announced) <= limit:
                parts.append(part)
            else:
                parts.clear()
            if size > limit * _DISCARDED:
                return None
            if not message.get("more_body", False):
                return b"".join(parts) if max(size, announced) <= limit else None


async def _run_until_disconnected(work: Awaitable[None], receive: Receive) -> None:
    """Run the work for a request whose body has been read, and cancel it if the client disconnects."""
    running = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((running, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        disconnected.cancel()
        running.cancel()


def _is_json(headers: Headers) -> bool:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" and headers.get("content-encoding", "").lower() in ("", "identity")


class TimeLimit(HttpMiddleware):
    """Answers 504 if the application takes too long; a response that has begun is cut off."""

    def __init__(self, app: ASGIApp, seconds: float):
        super().__init__(app)
        self.seconds = seconds

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False
        seconds = self.seconds * (_SLOW_FACTOR if scope["path"] in _SLOW_PATHS else 1)

        async def watched_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            async with asyncio.timeout(seconds):
                await self.app(scope, receive, watched_send)
        except TimeoutError:
            if has_begun:
                raise
            message = f"the request took longer than {seconds:g} s: send less at a time, or try again later"
            raise ServiceError(504, message, code="timeout") from None


class SecurityHeaders(HttpMiddleware):
    """Adds headers that keep browsers from loading foreign content, guessing content types, and storing data."""

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *_SECURITY_HEADERS]
                if not any(name == b"content-security-policy" for name, _ in headers):
                    headers.append((b"content-security-policy", _CONTENT_SECURITY_POLICY))
                # browsers check each time whether a file of the page has changed
                is_page = scope["path"] == "/" or scope["path"].startswith(OPEN_PREFIX)
                headers.append((b"cache-control", b"no-cache" if is_page else b"no-store"))
                message["headers"] = headers
            await send(message)

        await self.app(scope, receive, send_with_headers)
