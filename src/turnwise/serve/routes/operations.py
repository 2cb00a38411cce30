"""Operating the service: its features, health, metrics, reload, and the evaluation report."""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from fastapi import Response
from prometheus_client import generate_latest
from pydantic import Field
from starlette.responses import HTMLResponse

from turnwise.assist.intents.examples import IntentPair
from turnwise.assist.labelling.labelling import Labelling
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import TurnwiseError
from turnwise.serve.errors import (
    ServiceError,
    configured,
    error_responses,
    json_response,
    public_message,
    text_response,
    unavailable,
)
from turnwise.serve.models import REPORT
from turnwise.serve.observability import log, log_failure
from turnwise.serve.schemas import Context, EmptyBody, StrictModel, make_router
from turnwise.version import __version__

router = make_router("operations")


class ServiceInfo(StrictModel):
    """What is served."""

    version: str = Field(description="The version of turnwise.")
    model: str = Field(description="The name of the encoder.")
    size: int | None = Field(description="The number of dimensions; null while models are loading.")
    intents: bool = Field(description="Whether intents are served.")
    responses: bool = Field(description="Whether responses are served.")
    conversations: bool = Field(description="Whether conversations are served.")
    reranker: bool = Field(description="Whether there is a re-ranker.")
    map: bool = Field(description="Whether a map is served.")
    labelling: bool = Field(description="Whether the map can be labelled.")
    report: bool = Field(description="Whether there is an evaluation report.")
    needs_key: bool = Field(description="Whether requests need a key.")


class IntentsOverview(StrictModel):
    """Sizes of the intents."""

    intents: int = Field(description="The number of intents.")
    examples: int = Field(description="The number of examples.")
    largest: str = Field(description="The intent with the most examples.")
    largest_examples: int = Field(description="The number of its examples.")
    example: str = Field(description="One of its examples.")


class GroupOverview(StrictModel):
    """A group of a map."""

    group: int = Field(description="The number of the group.")
    title: str = Field(description="Its name, or else its characteristic words.")
    utterances: int = Field(description="The number of its utterances.")


class MapOverview(StrictModel):
    """Sizes of the map."""

    texts: int = Field(description="The number of distinct texts.")
    utterances: int = Field(description="The number of utterances.")
    groups: int = Field(description="The number of groups.")
    named: int = Field(description="The number of groups with names.")
    largest: GroupOverview | None = Field(description="The largest group, if there is one.")


class Overview(StrictModel):
    """Sizes of what is served; null: not served."""

    intents: IntentsOverview | None = Field(description="Sizes of the intents.")
    answers: int | None = Field(description="The number of answers.")
    conversations: int | None = Field(description="The number of conversations.")
    map: MapOverview | None = Field(description="Sizes of the map.")


class Status(StrictModel):
    """The state of the service."""

    status: Literal["ok", "ready"] = Field(description="ok: the process listens; ready: models are loaded.")


class ReloadResponse(StrictModel):
    """The result of a reload."""

    model: str = Field(description="The name of the encoder.")
    size: int = Field(description="The number of dimensions.")
    seconds: float = Field(description="How long it took.")


#: A report contains its own script and styles, and may use nothing else.
_REPORT_POLICY = (
    "sandbox allow-scripts allow-popups; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'"
)

#: Features that depend on a setting alone.
_FEATURES = ("responses", "conversations", "reranker", "map", "report")


@router.get("/about", response_model=ServiceInfo)
async def about(context: Context) -> Response:
    """Return what is served; needs no key, as the page has to know."""
    settings, models = context.service.settings, context.service.models
    return json_response(
        {
            "version": __version__,
            "model": settings.model,
            "size": None if models is None else models.batcher.encoder.hidden,
            "intents": (settings.intents if models is None else models.intents) is not None,
            "labelling": settings.map is not None,
            **{name: getattr(settings, name) is not None for name in _FEATURES},
            "needs_key": context.service.keys is not None,
        }
    )


@router.get("/overview", response_model=Overview)
async def overview(context: Context) -> Response:
    """Return the sizes of what is served, for the introduction of the page."""
    with context.service.lease() as models:

        def measure() -> Response:
            sizes = {
                "intents": None if models.intents is None else _intents_overview(models.intents.folder.examples),
                "answers": None if models.responder is None else len(models.responder),
                "conversations": None if models.conversations is None else len(models.conversations),
                "map": None if models.labelling is None else _map_overview(models.labelling),
            }
            return json_response(sizes)

        return await context.service.in_thread(measure)


def _intents_overview(examples: Sequence[IntentPair]) -> dict[str, Any]:
    counts = Counter(intent for _, intent in examples if intent != OUT_OF_SCOPE)
    largest, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return {
        "intents": len(counts),
        "examples": counts.total(),
        "largest": largest,
        "largest_examples": count,
        "example": next(text for text, intent in examples if intent == largest),
    }


def _map_overview(labelling: Labelling) -> dict[str, Any]:
    groups = labelling.groups
    largest = None
    if groups:
        first = groups[0]
        largest = {"group": first.number, "title": first.name or first.suggested, "utterances": first.utterances}
    return {
        "texts": len(labelling.map),
        "utterances": int(labelling.map.counts.sum()),
        "groups": len(groups),
        "named": sum(group.name is not None for group in groups),
        "largest": largest,
    }


@router.get("/health", response_model=Status)
async def health() -> Response:
    """Respond as soon as the process listens."""
    return json_response({"status": "ok"})


@router.get("/ready", response_model=Status)
async def ready(context: Context) -> Response:
    """Return 200 if requests are answered, 503 while models are loading and during shutdown."""
    if context.service.state != "ready":
        raise unavailable(f"the service is {context.service.state}", context.service.state)
    return json_response({"status": "ready"})


@router.get("/metrics", response_class=Response, responses=text_response("text/plain"))
async def metrics(context: Context) -> Response:
    """Return metrics in Prometheus' text format."""
    content = generate_latest(context.service.metrics.registry)
    return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post("/reload", response_model=ReloadResponse, responses=error_responses(409))
async def reload(_: EmptyBody, context: Context) -> Response:
    """Load models, tables, keys and folders again.

    Requests in progress finish with the old models; if anything cannot be loaded, the old models stay.
    """
    start = time.perf_counter()
    try:
        models = await context.service.reload()
    except TurnwiseError as error:
        log_failure(error, "not_reloaded")
        message = f"nothing was reloaded: {public_message(error)}"
        raise ServiceError(409, message, code="not_reloaded") from None
    seconds = round(time.perf_counter() - start, 3)
    log(logging.INFO, event="reloaded", model=models.name, seconds=seconds)
    return json_response({"model": models.name, "size": models.batcher.encoder.hidden, "seconds": seconds})


@router.get("/report", response_class=Response, responses=error_responses(404) | text_response("text/html"))
async def report(context: Context) -> Response:
    """Return the report that `turnwise evaluate` wrote."""
    folder = configured(context.service.settings.report, "evaluation report", "--report FOLDER")
    page = await context.service.in_thread((folder / REPORT).read_bytes)
    return HTMLResponse(page, headers={"content-security-policy": _REPORT_POLICY})
