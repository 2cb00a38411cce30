"""The application: routes, and around them the limits, keys, logs and counters."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from turnwise.assist import map as drawn
from turnwise.serve.access import Compressed, Guarded, NeedsKey, is_open
from turnwise.serve.errors import install_handlers
from turnwise.serve.limits import BodyLimit, KnownHosts, TimeLimit
from turnwise.serve.observing import Observe
from turnwise.serve.routes import conversations, embedding, intents, map, operations
from turnwise.serve.schemas import Known, with_limits
from turnwise.serve.service import Service, log_failure
from turnwise.serve.settings import Settings
from turnwise.version import __version__

PAGE = Path(__file__).parent / "page"
DRAWING = Path(drawn.__file__).parent / "map.js"

_DESCRIPTION = (
    "Dialogue representations put to work: vectors of texts and conversations, intents that abstain, suggested answers,"
    " conversations alike, the turn that does not belong, and a map that can be labelled. Every error has the same shape; what this"
    " service was not given answers 404 with the code `not_configured`."
)


def create_app(settings: Settings, on_failure: Callable[[], None] = lambda: None) -> FastAPI:
    """The application, for any ASGI server; models are loaded once it starts, and `/ready` says when they are.

    Args:
        settings: what is served.
        on_failure: called where the models cannot be loaded; `app.state.service.failure` says why.

    Raises:
        ServeError: if the keys cannot be read.
    """
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(_load(service, on_failure))
        yield
        await loading
        await service.stop()

    app = FastAPI(
        title="turnwise",
        summary="Dialogue representations over HTTP.",
        description=_DESCRIPTION,
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    install_handlers(app)
    for routes in (embedding, intents, conversations, map, operations):
        app.include_router(routes.router)
    _add_page(app)
    _describe(app, service)
    # the last one added is the first to see a request
    app.add_middleware(TimeLimit, seconds=settings.limits.seconds)
    app.add_middleware(BodyLimit, limits=settings.limits)
    app.add_middleware(NeedsKey, keys=lambda: service.keys)
    app.add_middleware(Compressed)
    app.add_middleware(Guarded)
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors,
            allow_methods=("GET", "POST"),
            allow_headers=("authorization", "content-type", "x-api-key", "x-request-id"),
            expose_headers=("retry-after", "x-request-id"),
        )
    app.add_middleware(KnownHosts, hosts=settings.hosts)
    app.add_middleware(Observe, metrics=service.metrics, log_texts=settings.log_texts)
    return app


async def _load(service: Service, on_failure: Callable[[], None]) -> None:
    try:
        await service.start()
    except Exception as error:
        log_failure(error, "not_loaded")
        on_failure()


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/page/map.js", include_in_schema=False)  # the map draws itself here as on a page of its own
    async def drawing() -> Response:
        return FileResponse(DRAWING, media_type="text/javascript", headers={"cache-control": "no-cache"})

    app.mount("/page", _Files(directory=PAGE), name="page")


class _Files(StaticFiles):
    """The page's files; browsers ask each time whether one has changed."""

    def file_response(self, *arguments: Any, **named: Any) -> Response:
        """A file, or that it is as it was."""
        response = super().file_response(*arguments, **named)
        response.headers["cache-control"] = "no-cache"
        return response


def _describe(app: FastAPI, service: Service) -> None:
    """Has the description of the interface tell this service's limits, and where a key is needed."""
    described: dict[Known, dict[str, Any]] = {}

    def openapi() -> dict[str, Any]:
        known = _known(service)
        if known not in described:
            told = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=app.description,
                routes=app.routes,
            )
            if service.keys is not None:
                told["components"]["securitySchemes"] = {
                    "bearer": {"type": "http", "scheme": "bearer"},
                    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                }
                for path, methods in told["paths"].items():
                    for operation in methods.values():
                        operation["security"] = [] if is_open(path) else [{"bearer": []}, {"header": []}]
            described[known] = with_limits(told, known)
        return described[known]

    app.openapi = openapi  # type: ignore[method-assign]


def _known(service: Service) -> Known:
    limits, models = service.settings.limits, service.models
    if models is None:
        return Known(limits)
    encoder = models.batcher.encoder
    return Known(limits, encoder.hidden, encoder.composer.vocabulary)
