"""The FastAPI application: routes, middleware, the web page, and the OpenAPI description."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from turnwise.assist import map as assist_map
from turnwise.serve import middleware
from turnwise.serve.errors import install_handlers
from turnwise.serve.observability import RequestLogging, log, log_failure
from turnwise.serve.routes import conversations, embedding, intents, map, operations
from turnwise.serve.schemas import fill_limits
from turnwise.serve.service import Service
from turnwise.serve.settings import ServeSettings
from turnwise.version import __version__

PAGE = Path(__file__).parent / "page"
MAP_SCRIPT = Path(assist_map.__file__).parent / "map.js"

_DESCRIPTION = (
    "Dialogue representations as a service: vectors of texts and conversations, intent detection with abstention,"
    " suggested answers, similar conversations, coherence checks, and a map that can be labelled. Every error has the"
    " same shape; features that this service was started without answer 404 with the code `not_configured`."
)


def create_app(settings: ServeSettings, on_failure: Callable[[], None] = lambda: None) -> FastAPI:
    """Return the application, which loads its models as it starts (see `/ready`); on failure it calls `on_failure`."""
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
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    install_handlers(app)
    for routes in (embedding, intents, conversations, map, operations):
        app.include_router(routes.router)
    _add_page(app)
    _add_openapi(app, service)
    # The last one added is the first to handle a request.
    app.add_middleware(middleware.TimeLimit, seconds=settings.limits.seconds)
    app.add_middleware(middleware.BodyLimit, limits=settings.limits)
    app.add_middleware(middleware.KeyAuthentication, keys=lambda: service.keys)
    app.add_middleware(middleware.SecurityHeaders)
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors,
            allow_methods=("GET", "POST"),
            allow_headers=("authorization", "content-type", "x-api-key", "x-request-id"),
            expose_headers=("retry-after", "x-request-id"),
        )
    app.add_middleware(middleware.HostCheck, hosts=settings.hosts)
    app.add_middleware(RequestLogging, metrics=service.metrics, log_texts=settings.log_texts)
    return app


async def _load(service: Service, on_failure: Callable[[], None]) -> None:
    start = time.perf_counter()
    try:
        await service.start()
    except Exception as error:
        log_failure(error, "not_loaded")
        on_failure()
    else:
        log(logging.INFO, event="ready", seconds=round(time.perf_counter() - start, 2))


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html")

    @app.get("/page/map.js", include_in_schema=False)  # shared with the page that `turnwise map` writes
    async def map_script() -> Response:
        return FileResponse(MAP_SCRIPT, media_type="text/javascript")

    app.mount("/page", StaticFiles(directory=PAGE), name="page")


def _add_openapi(app: FastAPI, service: Service) -> None:
    """Add this service's limits and keys to the OpenAPI description."""

    def openapi() -> dict[str, Any]:
        schema = FastAPI.openapi(app)  # made once
        if service.keys is not None:
            schema["components"]["securitySchemes"] = {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            }
            for path, methods in schema["paths"].items():
                for operation in methods.values():
                    operation["security"] = [] if middleware.is_open(path) else [{"bearer": []}, {"header": []}]
        encoder = None if service.models is None else service.models.batcher.encoder
        sizes = (None, None) if encoder is None else (encoder.hidden, encoder.composer.vocabulary)
        filled: dict[str, Any] = fill_limits(schema, service.settings.limits, *sizes)
        return filled

    app.openapi = openapi  # type: ignore[method-assign]
