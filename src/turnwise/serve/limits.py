"""Limits around the application: bodies are counted while they come in, and neither slow clients nor slow answers are waited for.

All of these are plain ASGI, so that nothing of a request is read before it is known to be within the limits.
"""

import asyncio
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwise.serve.errors import refuse
from turnwise.serve.settings import Limits

#: Of a body that is too large so many times the limit is read and thrown away: a client that still sends would not read the answer.
_THROWN_AWAY = 16


#: What takes its time whoever asks, and how many times the limit it may take.
_PATIENT = frozenset(("/conversations/clusters", "/map/fit", "/reload"))
_PATIENCE = 20


class TimeLimit:
    """Answers 504 where an answer takes too long; one that has begun is cut off."""

    def __init__(self, app: ASGIApp, seconds: float):
        self.app = app
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_begun = False
        seconds = self.seconds * (_PATIENCE if scope["path"] in _PATIENT else 1)

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            async with asyncio.timeout(seconds):
                await self.app(scope, receive, noting)
        except TimeoutError:
            if has_begun:
                raise
            message = f"this took longer than {seconds:g} s: ask for less at a time, or try again when less is asked by others"
            await refuse(scope, receive, send, 504, message, "timeout")


class BodyLimit:
    """Reads a request's body before the application sees any of it.

    Refused are bodies that are too large (413), come too slowly (408), or are not JSON by their content type (415): a page of
    another origin can send any other type without asking first.
    """

    def __init__(self, app: ASGIApp, limits: Limits):
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http" or not _has_body(scope):
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                body = await self._read(scope, receive)
        except TimeoutError:
            message = f"the body did not come within {self.limits.body_seconds:g} s"
            await refuse(scope, receive, send, 408, message, "slow_body", connection="close")
            return
        except ConnectionError:
            return  # nobody is there to be answered
        if body is None:
            message = f"the body has more than {self.limits.body:,} bytes: send less at a time"
            await refuse(scope, receive, send, 413, message, "body_too_large", connection="close")
            return
        if body and not _is_json(scope):
            message = "the body is to be JSON: send it with `Content-Type: application/json`, and not compressed"
            await refuse(scope, receive, send, 415, message, "not_json")
            return
        if "tally" in scope:
            scope["tally"].body = body
        is_read = False

        async def again() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body; None where it is too large.

        Raises:
            ConnectionError: if the client has gone.
        """
        most = self.limits.body
        told = _header(scope, b"content-length")
        announced = int(told) if told.isdigit() else 0
        if announced > most and _header(scope, b"expect").lower() == b"100-continue":
            return None  # it waits to be told to go on
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            part = message.get("body", b"")
            size += len(part)
            if max(size, announced) <= most:
                parts.append(part)
            else:
                parts.clear()
            if size > most * _THROWN_AWAY:
                return None
            if not message.get("more_body", False):
                return b"".join(parts) if max(size, announced) <= most else None


class KnownHosts:
    """Refuses requests that address the service by a name that is not its own.

    A page of another site can have its own name lead to this machine and then read what a service on localhost answers; the name
    that the browser sends gives it away.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]):
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] == "http" and self.hosts:
            host = _host_name(_header(scope, b"host").decode("latin-1").lower())
            if host not in self.hosts:
                message = (
                    f"this service does not go by the name {host!r}: if it should, start it with `--allow-host {host}`"
                )
                await refuse(scope, receive, send, 421, message, "unknown_host")
                return
        await self.app(scope, receive, send)


def _host_name(host: str) -> str:
    """A host without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lstrip("[")
    return host.rpartition(":")[0] if ":" in host else host


def _header(scope: Scope, name: bytes) -> bytes:
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


def _has_body(scope: Scope) -> bool:
    return scope["method"] not in ("GET", "HEAD", "OPTIONS") or any(
        key in (b"content-length", b"transfer-encoding") for key, _ in scope["headers"]
    )


def _is_json(scope: Scope) -> bool:
    kind = _header(scope, b"content-type").partition(b";")[0].strip().lower()
    return kind == b"application/json" and _header(scope, b"content-encoding").lower() in (b"", b"identity")
