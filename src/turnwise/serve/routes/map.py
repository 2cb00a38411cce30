"""The map of utterances and the labels of its groups; every change is on disk before it is acknowledged."""

import gzip
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import Field
from pydantic_core import to_json

from turnwise.assist.labelling.labelling import LabelGroup, Labelling, Question
from turnwise.serve.errors import configured, error_responses, json_response, text_response
from turnwise.serve.models import LoadedModels
from turnwise.serve.schemas import AS_INTEGER, Context, EmptyBody, Integer, Name, StrictModel, make_router

router = make_router("map", "/map")


class QuestionList(StrictModel):
    """Utterances to label next, each with similar ones."""

    questions: list[Question] = Field(description="The questions, most informative first.")


class FitResponse(StrictModel):
    """A classifier that was fitted on labels."""

    intents: int = Field(description="The number of its intents.")
    examples: int = Field(description="The number of its examples.")
    names: int = Field(description="How many names of intents it was fitted on as well.")
    log_texts: int = Field(description="How many other utterances of the map it was fitted on as well.")
    reason: str = Field(description="Why names and other utterances are used or not, with accuracies if compared.")
    folder: str = Field(description="The folder that it was written to.")


class LabelState(StrictModel):
    """The current labels; lists have one value per utterance."""

    groups: list[int] = Field(description="The group of each utterance; -1: none.")
    labels: list[str | None] = Field(description="The label of each utterance; null: none.")
    clusters: list[LabelGroup] = Field(description="The groups, largest first, but small talk last.")
    changes: int = Field(description="The number of changes so far.")
    can_undo: bool = Field(description="Whether a change can be undone.")
    can_redo: bool = Field(description="Whether a change can be redone.")


class MapBody(LabelState):
    """A map with its labels."""

    points: list[list[float]] = Field(description="The position of each utterance.")
    texts: list[str] = Field(description="The text of each utterance.")
    counts: list[int] = Field(description="How often each utterance occurs.")
    new: list[bool] | None = Field(description="Whether an earlier map lacks the utterance; null: there is none.")


_Group = Annotated[int, Field(ge=0, le=2**31 - 1, description="The number of a group."), AS_INTEGER]
_Row = Annotated[int, Field(ge=0, le=2**31 - 1, description="The row of an utterance, from 0."), AS_INTEGER]

_CHANGE_ERRORS = error_responses(404, 409)


@router.get("", response_model=MapBody, responses=error_responses(404))
async def get_map(request: Request, context: Context) -> Response:
    """Return every utterance with its position, group and label."""
    with context.service.lease() as models:
        labelling = _get_labelling(models)

        def respond() -> Response:
            utterance_map = labelling.map
            body = to_json(
                {
                    "points": utterance_map.points.round(4).tolist(),
                    "texts": utterance_map.texts,
                    "counts": utterance_map.counts.tolist(),
                    "new": None if utterance_map.new is None else utterance_map.new.tolist(),
                    **_label_state(labelling),
                }
            )
            if "gzip" not in request.headers.get("accept-encoding", ""):
                return Response(body, media_type="application/json")
            headers = {"content-encoding": "gzip", "vary": "Accept-Encoding"}
            return Response(gzip.compress(body, 5), media_type="application/json", headers=headers)

        return await context.service.in_thread(respond)


class NameRequest(StrictModel, json_schema_extra={"example": {"group": 0, "name": "track_order"}}):
    """A group's name."""

    group: _Group
    name: Name


@router.post("/name", response_model=LabelState, responses=_CHANGE_ERRORS)
async def name_group(body: NameRequest, context: Context) -> Response:
    """Name a group: the name is the label of its utterances."""
    return await _change(context, lambda labelling: labelling.name(body.group, body.name))


class MergeRequest(StrictModel, json_schema_extra={"example": {"groups": [0, 1], "name": "track_order"}}):
    """Groups to merge."""

    groups: list[_Group] = Field(min_length=2, max_length=10_000, fail_fast=True)
    name: Name | None = None


@router.post("/merge", response_model=LabelState, responses=_CHANGE_ERRORS)
async def merge_groups(body: MergeRequest, context: Context) -> Response:
    """Merge groups into the first of them."""
    return await _change(context, lambda labelling: labelling.merge(body.groups, body.name))


class SplitRequest(StrictModel, json_schema_extra={"example": {"group": 0, "parts": 2}}):
    """A group to split."""

    group: _Group
    parts: Integer = Field(2, ge=2, le=50)


@router.post("/split", response_model=LabelState, responses=_CHANGE_ERRORS)
async def split_group(body: SplitRequest, context: Context) -> Response:
    """Split a group into parts of similar utterances; the largest keeps number and name."""
    return await _change(context, lambda labelling: labelling.split(body.group, body.parts))


class LabelRequest(StrictModel, json_schema_extra={"example": {"rows": [3, 7], "name": "track_order"}}):
    """Utterances to label individually."""

    rows: list[_Row] = Field(min_length=1, max_length=100_000, fail_fast=True)
    name: Name | None = Field(description="Their label; null: none.")


@router.post("/label", response_model=LabelState, responses=_CHANGE_ERRORS)
async def label_utterances(body: LabelRequest, context: Context) -> Response:
    """Label utterances individually: they move to the group of that name."""
    return await _change(context, lambda labelling: labelling.label(body.rows, body.name))


@router.post("/undo", response_model=LabelState, responses=_CHANGE_ERRORS)
async def undo(_: EmptyBody, context: Context) -> Response:
    """Undo the last change."""
    return await _change(context, lambda labelling: labelling.undo())


@router.post("/redo", response_model=LabelState, responses=_CHANGE_ERRORS)
async def redo(_: EmptyBody, context: Context) -> Response:
    """Redo the last change that was undone."""
    return await _change(context, lambda labelling: labelling.redo())


@router.get("/next", response_model=QuestionList, responses=error_responses(404, 422))
async def next_questions(context: Context, count: Annotated[int, Query(ge=1, le=100)] = 5) -> Response:
    """Return the utterances whose labels would be most informative, with similar ones to label together."""
    with context.service.lease() as models:
        select = _get_labelling(models).select_questions
        return json_response({"questions": await context.service.in_thread(select, count)})


@router.get("/labels.csv", response_class=Response, responses=error_responses(404) | text_response("text/csv"))
async def download_labels(context: Context) -> Response:
    """Return a CSV file with one utterance per line and its label, if any."""
    with context.service.lease() as models:
        csv = await context.service.in_thread(_get_labelling(models).to_csv)
        headers = {"content-disposition": 'attachment; filename="labels.csv"'}
        return Response(csv, media_type="text/csv", headers=headers)


@router.post("/fit", response_model=FitResponse, responses=_CHANGE_ERRORS)
async def fit_classifier(_: EmptyBody, context: Context) -> Response:
    """Fit an intent classifier on the labels, write it to a new folder, and use it."""
    with context.service.lease() as models:
        folder = await context.service.in_slow_thread(models.fit_intents, _get_labelling(models))
        classifier = await context.service.change(lambda current: context.service.use_classifier(current, folder))
    context.record.texts = len(classifier.model_.examples.labels)
    response = {"intents": len(classifier.classes_), "examples": context.record.texts, "folder": str(folder)}
    support = classifier.support_selection_
    names, texts, reason = (support.names, support.log_texts, support.reason) if support else (0, 0, "")
    return json_response(response | {"names": names, "log_texts": texts, "reason": reason})


def _get_labelling(models: LoadedModels) -> Labelling:
    return configured(models.labelling, "map", "--map FOLDER")


async def _change(context: Context, change: Callable[[Labelling], object]) -> Response:
    """Make a change and respond with the new labels."""

    def apply(models: LoadedModels) -> Response:
        labelling = _get_labelling(models)
        change(labelling)
        return json_response(_label_state(labelling))

    return await context.service.change(apply)


def _label_state(labelling: Labelling) -> dict[str, Any]:
    return {
        "groups": labelling.row_groups.tolist(),
        "labels": labelling.labels(),
        "clusters": labelling.groups,
        **labelling.history,
    }
