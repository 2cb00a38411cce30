"""The map, and the labels that its groups are given; every change is on disk before it is acknowledged."""

import gzip
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ConfigDict, Field
from pydantic_core import to_json

from turnwise.assist.labelling.labelling import Labelling
from turnwise.serve.errors import BODY_ERRORS, documented, not_configured
from turnwise.serve.fitting import fit_beside, take_into_use
from turnwise.serve.models import Models
from turnwise.serve.routes.operations import Nothing
from turnwise.serve.routing import Noting, Serving, StrictRoute, as_json
from turnwise.serve.schemas import AS_WHOLE, Name, Strict, Whole
from turnwise.serve.service import Service

router = APIRouter(route_class=StrictRoute, tags=["map"], prefix="/map")

_Group = Annotated[int, Field(ge=0, le=2**31 - 1, description="The number of a group."), AS_WHOLE]
_Row = Annotated[int, Field(ge=0, le=2**31 - 1, description="The row of an utterance, from 0."), AS_WHOLE]


class GroupBody(Strict):
    """Utterances that belong together."""

    number: int
    name: str | None = Field(description="What a person called it; null: nothing yet.")
    suggested: str
    size: int = Field(description="How many different utterances it holds.")
    utterances: int = Field(description="How often these were said.")
    words: list[str]
    representatives: list[int] = Field(description="Rows of utterances that stand for it.")


class LabelState(Strict):
    """What the labels are now."""

    groups: list[int] = Field(description="The group of each utterance; -1: none.")
    labels: list[str | None]
    clusters: list[GroupBody]
    changes: int
    can_undo: bool
    can_redo: bool


class MapBody(LabelState):
    """A map with its labels: a place in the lists is an utterance."""

    points: list[list[float]]
    texts: list[str]
    counts: list[int]
    new: list[bool] | None


@router.get("", response_model=MapBody, responses=documented(404), summary="The map and its labels")
async def whole_map(request: Request, service: Serving) -> Response:
    """Every utterance with its place, its group and its label."""
    with service.lease() as models:
        labelling = _labelling(models)

        def told() -> Response:
            drawn = labelling.map
            body = {
                "points": drawn.points.round(4).tolist(),
                "texts": drawn.texts,
                "counts": drawn.counts.tolist(),
                "new": None if drawn.new is None else drawn.new.tolist(),
                **_state(labelling),
            }
            return _packed(to_json(body), "gzip" in request.headers.get("accept-encoding", ""))

        return await service.in_thread(told)


class NameRequest(Strict):
    """A group's name."""

    model_config = ConfigDict(json_schema_extra={"example": {"group": 0, "name": "track_order"}})

    group: _Group
    name: Name


@router.post("/name", response_model=LabelState, responses=documented(404, 409, *BODY_ERRORS), summary="Names a group")
async def name(asked: NameRequest, service: Serving) -> Response:
    """Names a group: that is the label of its utterances."""
    return await _changed(service, lambda labelling: labelling.name(asked.group, asked.name))


class MergeRequest(Strict):
    """Groups to make one of."""

    model_config = ConfigDict(json_schema_extra={"example": {"groups": [0, 1], "name": "track_order"}})

    groups: list[_Group] = Field(min_length=2, max_length=10_000, fail_fast=True)
    name: Name | None = None


@router.post("/merge", response_model=LabelState, responses=documented(404, 409, *BODY_ERRORS), summary="Merges groups")
async def merge(asked: MergeRequest, service: Serving) -> Response:
    """Makes one group of several; the first takes the others in."""
    return await _changed(service, lambda labelling: labelling.merge(asked.groups, asked.name))


class SplitRequest(Strict):
    """A group to make several of."""

    model_config = ConfigDict(json_schema_extra={"example": {"group": 0, "parts": 2}})

    group: _Group
    parts: Whole = Field(2, ge=2, le=50)


@router.post(
    "/split", response_model=LabelState, responses=documented(404, 409, *BODY_ERRORS), summary="Splits a group"
)
async def split(asked: SplitRequest, service: Serving) -> Response:
    """Splits a group into parts that are alike; the largest keeps number and name."""
    return await _changed(service, lambda labelling: labelling.split(asked.group, asked.parts))


class LabelRequest(Strict):
    """Utterances to label by themselves."""

    model_config = ConfigDict(json_schema_extra={"example": {"rows": [3, 7], "name": "track_order"}})

    rows: list[_Row] = Field(min_length=1, max_length=100_000, fail_fast=True)
    name: Name | None = Field(description="Their label; null: none.")


@router.post(
    "/label", response_model=LabelState, responses=documented(404, 409, *BODY_ERRORS), summary="Labels utterances"
)
async def label(asked: LabelRequest, service: Serving) -> Response:
    """Labels utterances by themselves: they move to the group of that name."""
    return await _changed(service, lambda labelling: labelling.label(asked.rows, asked.name))


@router.post(
    "/undo", response_model=LabelState, responses=documented(404, 409, *BODY_ERRORS), summary="Takes a change back"
)
async def undo(_: Nothing, service: Serving) -> Response:
    """Takes the newest change back."""
    return await _changed(service, lambda labelling: labelling.undo())


@router.post(
    "/redo", response_model=LabelState, responses=documented(404, 409, *BODY_ERRORS), summary="Makes a change again"
)
async def redo(_: Nothing, service: Serving) -> Response:
    """Makes the change again that was taken back last."""
    return await _changed(service, lambda labelling: labelling.redo())


class QuestionBody(Strict):
    """An utterance whose label would help."""

    row: int
    text: str
    guess: str | None
    reason: str


class Questions(Strict):
    """Utterances to be labelled next, the most helpful first."""

    questions: list[QuestionBody]


@router.get("/next", response_model=Questions, responses=documented(404, 422), summary="What to label next")
async def following(service: Serving, count: Annotated[int, Query(ge=1, le=100)] = 5) -> Response:
    """The utterances whose label helps most."""
    with service.lease() as models:
        return as_json({"questions": await service.in_thread(_labelling(models).ask, count)})


@router.get(
    "/labels.csv",
    response_class=Response,
    responses=documented(404, media_type="text/csv"),
    summary="The labels as a file",
)
async def labels(service: Serving) -> Response:
    """A line an utterance, with its label where it has one."""
    with service.lease() as models:
        told = await service.in_thread(_labelling(models).csv)
        return Response(
            told, media_type="text/csv", headers={"content-disposition": 'attachment; filename="labels.csv"'}
        )


class Fitted(Strict):
    """The classifier that is in use now."""

    intents: int
    examples: int
    folder: str


@router.post(
    "/fit", response_model=Fitted, responses=documented(404, 409, *BODY_ERRORS), summary="Fits intents on the labels"
)
async def fit(_: Nothing, service: Serving, tally: Noting) -> Response:
    """Fits a classifier of intents on the labels, writes it beside the map, and takes it into use."""
    with service.lease() as models:
        labelling = _labelling(models)

        folder = await service.at_leisure(fit_beside, labelling, models)
        observe = service.metrics.forward_pass
        classifier = await service.changed(lambda now: take_into_use(folder, now, service.settings, observe))
    tally.texts = len(classifier.texts_)
    return as_json({"intents": len(classifier.classes_), "examples": tally.texts, "folder": str(folder)})


def _labelling(models: Models) -> Labelling:
    if models.labelling is None:
        not_configured("map", "--map FOLDER")
    return models.labelling


async def _changed(service: Service, change: Callable[[Labelling], object]) -> Response:
    """Makes a change, and tells what the labels are now."""

    def done(models: Models) -> Response:
        labelling = _labelling(models)
        change(labelling)
        return as_json(_state(labelling))

    return await service.changed(done)


def _state(labelling: Labelling) -> dict[str, Any]:
    return {
        "groups": labelling.rows.tolist(),
        "labels": labelling.labels(),
        "clusters": labelling.groups,
        "changes": labelling.changes,
        "can_undo": labelling.can_undo,
        "can_redo": labelling.can_redo,
    }


def _packed(body: bytes, takes_gzip: bool) -> Response:
    """A large answer, compressed here and not where it would keep others waiting."""
    if not takes_gzip:
        return Response(body, media_type="application/json")
    packed = gzip.compress(body, 5)
    return Response(
        packed, media_type="application/json", headers={"content-encoding": "gzip", "vary": "Accept-Encoding"}
    )
