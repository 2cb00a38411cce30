"""Running the service: what it is, whether it lives, what it counts, and taking new models into use."""

import logging
import time
from typing import Literal

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field
from starlette.responses import HTMLResponse

from turnwise.core.errors import TurnwiseError
from turnwise.serve.errors import BODY_ERRORS, ServiceError, documented, not_configured
from turnwise.serve.loading import REPORT
from turnwise.serve.observing import log
from turnwise.serve.routing import Serving, StrictRoute, as_json
from turnwise.serve.schemas import Strict
from turnwise.version import __version__

router = APIRouter(route_class=StrictRoute, tags=["running"])

#: A report holds its own script and styles, and may use nothing else.
_REPORT_POLICY = (
    "sandbox allow-scripts allow-popups; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:;"
    " frame-ancestors 'self'"
)


class About(Strict):
    """What this service is and has."""

    version: str
    model: str
    size: int | None = Field(description="The size of a vector; null while the model is loading.")
    intents: bool
    responses: bool
    conversations: bool
    reranker: bool
    map: bool
    labelling: bool
    report: bool
    needs_key: bool


@router.get("/about", response_model=About, responses=documented(), summary="What this service has")
async def about(service: Serving) -> Response:
    """Says what is served, also without a key: the page needs to know."""
    settings, models = service.settings, service.models
    return as_json(
        {
            "version": __version__,
            "model": settings.model,
            "size": None if models is None else models.batcher.encoder.hidden,
            "intents": settings.intents is not None if models is None else models.intents is not None,
            "responses": settings.responses is not None,
            "conversations": settings.conversations is not None,
            "reranker": settings.reranker is not None,
            "map": settings.map is not None,
            "labelling": settings.map is not None,
            "report": settings.report is not None,
            "needs_key": service.keys is not None,
        }
    )


class Health(Strict):
    """That the process answers."""

    status: Literal["ok"]


@router.get("/health", response_model=Health, responses=documented(), summary="Whether the process answers")
async def health() -> Response:
    """Answers as soon as the process listens."""
    return as_json({"status": "ok"})


class Ready(Strict):
    """That requests are answered."""

    status: Literal["ready"]


@router.get("/ready", response_model=Ready, responses=documented(), summary="Whether models are loaded")
async def ready(service: Serving) -> Response:
    """200 where requests are answered; 503 while models are loading, and once the service is stopping."""
    if service.state != "ready":
        raise ServiceError(503, f"the service is {service.state}", code=service.state, headers={"retry-after": "1"})
    return as_json({"status": "ready"})


@router.get(
    "/metrics",
    response_class=Response,
    responses=documented(media_type="text/plain"),
    summary="Counters for Prometheus",
)
async def metrics(service: Serving) -> Response:
    """Counters and histograms in Prometheus' text format."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


class Nothing(Strict):
    """No settings: an empty object."""

    model_config = ConfigDict(json_schema_extra={"example": {}})


class Reloaded(Strict):
    """What is in use now."""

    model: str
    size: int
    seconds: float


@router.post(
    "/reload", response_model=Reloaded, responses=documented(409, *BODY_ERRORS), summary="Loads everything anew"
)
async def reload(_: Nothing, service: Serving) -> Response:
    """Loads models, tables, keys and folders anew.

    Requests that are under way finish with what they began with; if anything cannot be loaded, all stays as it was.
    """
    start = time.perf_counter()
    try:
        models = await service.reload()
    except TurnwiseError as error:
        raise ServiceError(409, f"nothing was reloaded: {error}", code="not_reloaded") from None
    seconds = round(time.perf_counter() - start, 3)
    log(logging.INFO, event="reloaded", model=models.name, seconds=seconds)
    return as_json({"model": models.name, "size": models.batcher.encoder.hidden, "seconds": seconds})


@router.get(
    "/report",
    response_class=Response,
    responses=documented(404, media_type="text/html"),
    summary="The evaluation report",
)
async def report(service: Serving) -> Response:
    """The page that `turnwise evaluate` wrote."""
    folder = service.settings.report
    if folder is None:
        not_configured("evaluation report", "--report FOLDER")
    page = await service.in_thread((folder / REPORT).read_bytes)
    return HTMLResponse(page, headers={"content-security-policy": _REPORT_POLICY})
