"""Intent detection, and the examples that it learns from."""

import asyncio
from collections import Counter
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Any

from fastapi import Path, Response
from pydantic import Field, model_validator

from turnwise.assist.intents.context import split_turns
from turnwise.assist.intents.decision import Decision
from turnwise.assist.intents.storage import ExampleChange
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.serve.errors import ServiceError, configured, error_responses, json_response, unavailable
from turnwise.serve.example_changes import RecordedChange
from turnwise.serve.models import LoadedModels, ServedIntents
from turnwise.serve.schemas import ITEMS, Context, Integer, Name, StrictModel, UtteranceInput, make_router

router = make_router("intents")


_PENDING = Field(description="Examples that were added or removed, but that predictions do not take into account yet.")


class IntentCount(StrictModel):
    """An intent with its number of examples."""

    intent: str = Field(description="The name of the intent.")
    examples: int = Field(description="The number of its examples on disk.")


class IntentList(StrictModel):
    """The intents of the classifier."""

    intents: list[IntentCount] = Field(description="All intents, sorted by name.")
    out_of_scope: int = Field(description="The number of examples to abstain from.")
    head: str = Field(description="The classification head.")
    false_rejection: float | None = Field(description="The target false-rejection rate; null: it never abstains.")
    pending: int = _PENDING
    failure: str | None = Field(description="Why the last recalibration failed; null: it did not.")


class Predictions(StrictModel):
    """Decisions about texts."""

    predictions: list[Decision] = Field(description="One decision per text.")
    pending: int = _PENDING


class ExampleList(StrictModel):
    """The examples of an intent."""

    intent: str = Field(description="The name of the intent.")
    examples: list[str | list[str]] = Field(description="The texts of its examples; with context, a list of turns.")


class AddedExamples(StrictModel):
    """The result of adding examples."""

    added: int = Field(description="The number of new examples.")
    intents: int = Field(description="The number of intents afterwards.")
    pending: int = _PENDING


class RemovedExamples(StrictModel):
    """The result of removing examples."""

    removed: int = Field(description="The number of examples that were removed.")
    pending: int = _PENDING


_WAIT = Field(False, description="Whether to respond only when predictions take the change into account.")


@router.get("/intents", response_model=IntentList, responses=error_responses(404))
async def list_intents(context: Context) -> Response:
    """Return all intents, sorted by name, with the number of their examples on disk.

    `pending` examples were added or removed, but predictions do not take them into account yet.
    """
    with context.service.lease() as models:
        served = _get_intents(models)
        counts = Counter(intent for _, intent in served.folder.examples)
        out_of_scope = counts.pop(OUT_OF_SCOPE, 0)
        return json_response(
            {
                "intents": [{"intent": intent, "examples": counts[intent]} for intent in sorted(counts)],
                "out_of_scope": out_of_scope,
                "head": served.folder.classifier.head_,
                "false_rejection": served.folder.classifier.false_rejection,
                "pending": served.folder.pending,
                "failure": served.failure,
            }
        )


class PredictRequest(StrictModel, json_schema_extra={"example": {"texts": ["Where is my parcel?"], "neighbours": 3}}):
    """Texts, or conversations whose last turns are the texts, whose intents to detect."""

    texts: Annotated[list[UtteranceInput], ITEMS]
    neighbours: Integer = Field(3, ge=0, le=20, description="Nearest examples to return with each decision.")
    several: bool = Field(False, description="Whether to look for several intents in a text.")


@router.post("/intents/predict", response_model=Predictions, responses=error_responses(404))
async def predict_intents(body: PredictRequest, context: Context) -> Response:
    """Detect the intent of each text, or abstain; with score, runner-up, nearest examples and a reason.

    `pending` examples were added or removed, but these predictions do not take them into account yet.
    """
    texts = context.read_utterances(body.texts, "texts")
    context.record.texts = len(texts)
    with context.service.lease() as models:
        served = _get_intents(models)
        classifier = served.folder.classifier
        inputs = await context.service.in_thread(partial(classifier.inputs, texts, several=body.several))
        if body.several:
            context.check_parts(inputs)
        result = await context.encode(served.batcher, inputs, max_length=classifier.input_length)

        def decide() -> Response:
            pending = served.folder.pending
            decisions = classifier.decide(
                texts, neighbours=body.neighbours, several=body.several, vectors=result.vectors
            )
            return json_response({"predictions": decisions, "pending": pending})

        return await context.service.in_thread(decide)


class IntentExample(StrictModel):
    """A text, or a conversation whose last turn is the text, and its intent."""

    text: UtteranceInput
    intent: Name


@router.get("/intents/{intent}/examples", response_model=ExampleList, responses=error_responses(404, 422))
async def list_examples(
    intent: Annotated[str, Path(min_length=1, max_length=200, examples=["track_order"])], context: Context
) -> Response:
    """Return the examples of an intent; those of `out_of_scope` are texts to abstain from."""
    with context.service.lease() as models:
        examples = _get_intents(models).folder.examples
        texts = [turns if len(turns := split_turns(text)) > 1 else text for text, other in examples if other == intent]
        if not texts:
            raise ServiceError(404, f"there is no intent {intent!r}: see GET /intents", code="no_such_intent")
        return json_response({"intent": intent, "examples": texts})


class AddExamplesRequest(
    StrictModel, json_schema_extra={"example": {"examples": [{"text": "Where is my parcel?", "intent": "track_order"}]}}
):
    """Examples to add."""

    examples: Annotated[list[IntentExample], ITEMS]
    wait: bool = _WAIT


@router.post("/intents/examples", response_model=AddedExamples, responses=error_responses(404, 409))
async def add_examples(body: AddExamplesRequest, context: Context) -> Response:
    """Add examples, also of new intents, without retraining; they are on disk when the response is sent.

    Examples of the intent `out_of_scope` are texts to abstain from. Predictions take new examples into account once
    the classifier has been recalibrated in the background, usually within seconds; `wait` waits for that.
    """
    change = ExampleChange.addition(_read_examples(body.examples, context))
    recorded, pending = await _change(context, change, wait=body.wait)
    return json_response({"added": recorded.count, "intents": recorded.intents, "pending": pending})


class RemoveExamplesRequest(
    StrictModel,
    json_schema_extra={
        "example": {"examples": [{"text": "Where is my parcel?", "intent": "track_order"}]},
        "oneOf": [{"required": ["examples"]}, {"required": ["intent"]}],
    },
):
    """Examples to remove, or an intent with all of its examples."""

    examples: Annotated[list[IntentExample], ITEMS] = Field(default_factory=list)
    intent: Annotated[str, Field(max_length=200)] = ""
    wait: bool = _WAIT

    @model_validator(mode="before")
    @classmethod
    def _check_exactly_one(cls, data: Any) -> Any:
        if isinstance(data, dict) and ("examples" in data) == ("intent" in data):
            raise ValueError("give either examples or an intent")
        return data


@router.post("/intents/examples/remove", response_model=RemovedExamples, responses=error_responses(404, 409))
async def remove_examples(body: RemoveExamplesRequest, context: Context) -> Response:
    """Remove examples, or an intent with all of them; the change is on disk when the response is sent.

    Predictions take it into account once the classifier has been recalibrated in the background; `wait` waits for that.
    """
    change = ExampleChange.removal(_read_examples(body.examples, context), body.intent or None)
    recorded, pending = await _change(context, change, wait=body.wait)
    return json_response({"removed": recorded.count, "pending": pending})


def _read_examples(examples: list[IntentExample], context: Context) -> list[tuple[Any, str]]:
    context.record.texts = len(examples)
    texts = context.read_utterances([each.text for each in examples], "examples")
    return [(text, each.intent) for text, each in zip(texts, examples, strict=True)]


async def _change(context: Context, change: ExampleChange, *, wait: bool) -> tuple[RecordedChange, int]:
    """Write a change to disk, and return it with the number of pending examples."""

    def submit(models: LoadedModels) -> tuple[ServedIntents, Future[RecordedChange]]:
        served = _get_intents(models)
        if served.folder.pending > context.service.settings.limits.queue:
            context.service.metrics.refused.inc()
            raise unavailable("too many examples are waiting to be encoded: try again in 1 s", "queue_full")
        return served, served.submit(change)

    served, submitted = await context.service.change(submit)
    recorded = await asyncio.wrap_future(submitted)
    if wait:
        try:
            await asyncio.shield(asyncio.wrap_future(recorded.applied))  # others wait for the same recalibration
        except Exception as error:
            message = (
                "the change is on disk, but the classifier could not be recalibrated: see `failure` in GET /intents"
            )
            raise ServiceError(500, message, code="not_recalibrated") from error
    return recorded, served.folder.pending


def _get_intents(models: LoadedModels) -> ServedIntents:
    return configured(models.intents, "intents", "--intents FOLDER")
