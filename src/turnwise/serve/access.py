"""Who may ask, and what a browser may do with the answer."""

from collections.abc import Callable

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwise.serve.errors import refuse
from turnwise.serve.keys import Keys

#: What needs no key: the page has to start, and whoever watches the service has to see that it lives.
OPEN_PATHS = frozenset(("/", "/about", "/health", "/ready", "/openapi.json", "/favicon.ico"))
OPEN_PREFIX = "/page/"

#: Answers that are numbers, which compressing makes little smaller and much slower.
_NUMBERS = frozenset(("/embed", "/v1/embeddings"))

_POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'; object-src 'none'"

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)


class NeedsKey:
    """Refuses requests without a key, where the service has keys."""

    def __init__(self, app: ASGIApp, keys: Callable[[], Keys | None]):
        self.app = app
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        keys = self.keys()
        if scope["type"] != "http" or keys is None or is_open(scope["path"]):
            await self.app(scope, receive, send)
            return
        given = _given(scope)
        name = keys.name_of(given) if given else None
        if name is None:
            told = "this key is not known" if given else "a key is needed"
            message = f"{told}: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
            await refuse(scope, receive, send, 401, message, "invalid_api_key", www_authenticate="Bearer")
            return
        scope["tally"].key = name
        await self.app(scope, receive, send)


class Guarded:
    """Tells browsers to load nothing from elsewhere, and to take nothing for what it is not."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""

        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *_HEADERS]
                if not any(name == b"content-security-policy" for name, _ in headers):
                    headers.append((b"content-security-policy", _POLICY.encode()))
                message["headers"] = headers
            await send(message)

        await self.app(scope, receive, adding if scope["type"] == "http" else send)


class Compressed:
    """Compresses answers for clients that take them so."""

    def __init__(self, app: ASGIApp):
        self.app = app
        self.compressing = GZipMiddleware(app, minimum_size=2_000, compresslevel=5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        chosen = self.app if scope["type"] != "http" or scope["path"] in _NUMBERS else self.compressing
        await chosen(scope, receive, send)


def _given(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            return str(value.decode("latin-1").strip())
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                return str(key.strip())
    return ""
