"""Intent detection, and the examples that it learns from."""

from collections import Counter
from typing import Annotated, Any

from fastapi import Path, Response
from pydantic import Field, model_validator

from turnwise.assist.intents.decision import Decision
from turnwise.assist.intents.storage import IntentFolder
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.serve.errors import ServiceError, configured, error_responses
from turnwise.serve.models import LoadedModels, ServedIntents
from turnwise.serve.schemas import (
    ITEMS,
    Context,
    Integer,
    Name,
    StrictModel,
    Text,
    Texts,
    json_response,
    make_router,
    response_schema,
)

router = make_router("intents")

#: The numbers of examples per intent, and the target false rejection rate; null: the classifier never abstains.
_IntentCount: Any = response_schema("IntentCount", intent=str, examples=int)
IntentList = response_schema(
    "IntentList", intents=list[_IntentCount], out_of_scope=int, head=str, false_rejection=float | None
)
Predictions = response_schema("Predictions", predictions=list[Decision])
ExampleList = response_schema("ExampleList", intent=str, examples=list[str])
AddedExamples = response_schema("AddedExamples", added=int, intents=int)  # new examples, and all intents
RemovedExamples = response_schema("RemovedExamples", removed=int)


@router.get("/intents", response_model=IntentList, responses=error_responses(404))
async def list_intents(context: Context) -> Response:
    """Return all intents, sorted by name, with the number of their examples."""
    with context.service.lease() as models:
        classifier = _get_folder(models).classifier
        counts = Counter(str(intent) for intent in classifier.labels_)
        return json_response(
            {
                "intents": [{"intent": intent, "examples": counts[intent]} for intent in sorted(counts)],
                "out_of_scope": len(classifier.examples_of(OUT_OF_SCOPE)),
                "head": classifier.head_,
                "false_rejection": classifier.false_rejection,
            }
        )


class PredictRequest(StrictModel, json_schema_extra={"example": {"texts": ["Where is my parcel?"], "neighbours": 3}}):
    """Texts whose intents to detect."""

    texts: Texts
    neighbours: Integer = Field(3, ge=0, le=20, description="Nearest examples to return with each decision.")
    several: bool = Field(False, description="Whether to look for several intents in a text.")


@router.post("/intents/predict", response_model=Predictions, responses=error_responses(404))
async def predict_intents(body: PredictRequest, context: Context) -> Response:
    """Detect the intent of each text, or abstain; with score, runner-up, nearest examples and a reason."""
    context.check_texts(body.texts, "texts")
    context.record.texts = len(body.texts)
    with context.service.lease() as models:
        served = _get_intents(models)
        classifier = served.folder.classifier
        result = await context.encode(served.batcher, list(body.texts), max_length=classifier.max_length)

        def decide() -> Response:
            decisions = classifier.decide(
                body.texts, neighbours=body.neighbours, several=body.several, vectors=result.vectors
            )
            return json_response({"predictions": decisions})

        return await context.service.in_thread(decide)


class IntentExample(StrictModel):
    """A text and its intent."""

    text: Text
    intent: Name


@router.get("/intents/{intent}/examples", response_model=ExampleList, responses=error_responses(404, 422))
async def list_examples(
    intent: Annotated[str, Path(min_length=1, max_length=200, examples=["track_order"])], context: Context
) -> Response:
    """Return the examples of an intent; those of `out_of_scope` are texts to abstain from."""
    with context.service.lease() as models:
        texts = [text for text, _ in _get_folder(models).classifier.examples_of(intent)]
        if not texts:
            raise ServiceError(404, f"there is no intent {intent!r}: see GET /intents", code="no_such_intent")
        return json_response({"intent": intent, "examples": texts})


class AddExamplesRequest(
    StrictModel, json_schema_extra={"example": {"examples": [{"text": "Where is my parcel?", "intent": "track_order"}]}}
):
    """Examples to add."""

    examples: Annotated[list[IntentExample], ITEMS]


@router.post("/intents/examples", response_model=AddedExamples, responses=error_responses(404, 409))
async def add_examples(body: AddExamplesRequest, context: Context) -> Response:
    """Add examples, also of new intents, without retraining; they are on disk when the response is sent.

    Examples of the intent `out_of_scope` are texts to abstain from.
    """
    context.check_texts([each.text for each in body.examples], "examples")
    context.record.texts = len(body.examples)

    def add(models: LoadedModels) -> dict[str, int]:
        folder = _get_folder(models)
        added = folder.add([(each.text, each.intent) for each in body.examples])
        return {"added": added, "intents": len(folder.classifier.classes_)}

    return json_response(await context.service.change(add))


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

    @model_validator(mode="before")
    @classmethod
    def _check_exactly_one(cls, data: Any) -> Any:
        if isinstance(data, dict) and ("examples" in data) == ("intent" in data):
            raise ValueError("give either examples or an intent")
        return data


@router.post("/intents/examples/remove", response_model=RemovedExamples, responses=error_responses(404, 409))
async def remove_examples(body: RemoveExamplesRequest, context: Context) -> Response:
    """Remove examples, or an intent with all of them; the change is on disk when the response is sent."""
    context.check_texts([each.text for each in body.examples], "examples")
    context.record.texts = len(body.examples)

    def remove(models: LoadedModels) -> dict[str, int]:
        folder = _get_folder(models)
        if body.examples:
            return {"removed": folder.remove([(each.text, each.intent) for each in body.examples])}
        return {"removed": folder.remove(intent=body.intent)}

    return json_response(await context.service.change(remove))


def _get_intents(models: LoadedModels) -> ServedIntents:
    return configured(models.intents, "intents", "--intents FOLDER")


def _get_folder(models: LoadedModels) -> IntentFolder:
    return _get_intents(models).folder
