"""Intents: what an utterance asks for, and the examples by which that is told."""

from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import ConfigDict, Field, model_validator

from turnwise.assist.intents.examples import OUT_OF_SCOPE
from turnwise.assist.intents.storage import IntentFolder
from turnwise.serve.errors import BODY_ERRORS, ServiceError, documented, not_configured
from turnwise.serve.models import Models, ServedIntents
from turnwise.serve.routing import Noting, Serving, StrictRoute, as_json
from turnwise.serve.schemas import LIMIT, Name, Strict, Text, Whole, check_texts

router = APIRouter(route_class=StrictRoute, tags=["intents"])


class IntentCount(Strict):
    """An intent, and how many examples it has."""

    intent: str
    examples: int


class Intents(Strict):
    """The intents that are told apart."""

    intents: list[IntentCount]
    out_of_scope: int = Field(description="How many examples show what to abstain from.")
    head: str
    false_rejection: float | None = Field(
        description="The share of utterances in scope that may be rejected; null: it never abstains."
    )


@router.get("/intents", response_model=Intents, responses=documented(404), summary="The intents that are told apart")
async def list_intents(service: Serving) -> Response:
    """Every intent with the number of its examples, by name."""
    with service.lease() as models:
        classifier = _folder(models).classifier
        counts = Counter(str(intent) for intent in classifier.labels_)
        return as_json(
            {
                "intents": [{"intent": intent, "examples": counts[intent]} for intent in sorted(counts)],
                "out_of_scope": len(classifier.examples_of(OUT_OF_SCOPE)),
                "head": classifier.head,
                "false_rejection": classifier.false_rejection,
            }
        )


class PredictRequest(Strict):
    """Whose intents to tell."""

    model_config = ConfigDict(json_schema_extra={"example": {"texts": ["Where is my parcel?"], "neighbours": 3}})

    texts: list[Text] = Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT: "texts"})
    neighbours: Whole = Field(
        3, ge=0, le=20, description="How many of the nearest examples to give with each decision."
    )
    several: bool = Field(False, description="Whether to look for more than one intent in an utterance.")


class RankedIntent(Strict):
    """An intent of which a text may be."""

    intent: str
    score: float = Field(description="How like its examples the text is, on the scale of the threshold.")
    probability: float = Field(description="That it is this one, if it is any.")


class NearExample(Strict):
    """An example that is like a text."""

    text: str
    intent: str
    similarity: float


class DecisionBody(Strict):
    """What is decided about a text, and why."""

    text: str
    intent: str | None = Field(description="Null where the classifier abstains.")
    score: float
    threshold: float | None = Field(description="What a score has to reach; null where the classifier never abstains.")
    abstained: bool
    reason: str
    intents: list[str]
    runner_up: RankedIntent | None
    ranked: list[RankedIntent]
    nearest: list[NearExample]


class Predictions(Strict):
    """A decision a text, in order."""

    predictions: list[DecisionBody]


@router.post(
    "/intents/predict",
    response_model=Predictions,
    responses=documented(404, *BODY_ERRORS),
    summary="What utterances ask for",
)
async def predict(asked: PredictRequest, service: Serving, tally: Noting) -> Response:
    """Decides what each text asks for, or abstains; with the score, the runner-up, the nearest examples and a reason in words."""
    check_texts(asked.texts, service.settings.limits, "texts")
    tally.texts = len(asked.texts)
    with service.lease() as models:
        served = _served(models)
        classifier = served.folder.classifier
        encoded = await service.encode(served.batcher, list(asked.texts), tally, max_length=classifier.max_length)

        def decided() -> Response:
            found = classifier.decide(
                asked.texts, neighbours=asked.neighbours, several=asked.several, vectors=encoded.vectors
            )
            return as_json({"predictions": found})

        return await service.in_thread(decided)


class Example(Strict):
    """A text, and what it asks for."""

    text: Text
    intent: Name


class Examples(Strict):
    """The examples of an intent."""

    intent: str
    examples: list[str]


@router.get(
    "/intents/{intent}/examples",
    response_model=Examples,
    responses=documented(404, 422),
    summary="The examples of an intent",
)
async def examples(
    intent: Annotated[str, Path(min_length=1, max_length=200, examples=["track_order"])], service: Serving
) -> Response:
    """The texts by which an intent is told; those of `out_of_scope` show what to abstain from."""
    with service.lease() as models:
        classifier = _folder(models).classifier
        found = [text for text, _ in classifier.examples_of(intent)]
        if not found:
            raise ServiceError(
                404, f"there is no intent {intent!r}: GET /intents lists those that there are", code="no_such_intent"
            )
        return as_json({"intent": intent, "examples": found})


class AddRequest(Strict):
    """Examples to learn from."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"examples": [{"text": "Where is my parcel?", "intent": "track_order"}]}}
    )

    examples: list[Example] = Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT: "texts"})


class Added(Strict):
    """What was added."""

    added: int = Field(description="How many of the examples are new.")
    intents: int = Field(description="How many intents there are now.")


@router.post(
    "/intents/examples",
    response_model=Added,
    responses=documented(404, 409, *BODY_ERRORS),
    summary="Adds examples of intents",
)
async def add(asked: AddRequest, service: Serving, tally: Noting) -> Response:
    """Adds examples, of new intents too, without retraining; they are on disk before the answer comes.

    Examples of the intent `out_of_scope` show what to abstain from.
    """
    check_texts([each.text for each in asked.examples], service.settings.limits, "examples")
    tally.texts = len(asked.examples)

    def added(models: Models) -> dict[str, int]:
        folder = _folder(models)
        new = folder.add([(each.text, each.intent) for each in asked.examples])
        return {"added": new, "intents": len(folder.classifier.classes_)}

    return as_json(await service.changed(added))


class RemoveRequest(Strict):
    """Examples to forget, or an intent with all of its examples."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"examples": [{"text": "Where is my parcel?", "intent": "track_order"}]},
            "oneOf": [{"required": ["examples"]}, {"required": ["intent"]}],
        }
    )

    examples: Annotated[list[Example], Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT: "texts"})] = Field(
        default_factory=list
    )
    intent: Annotated[str, Field(max_length=200)] = ""

    @model_validator(mode="before")
    @classmethod
    def _one_of_both(cls, given: Any) -> Any:
        if isinstance(given, dict) and ("examples" in given) == ("intent" in given):
            raise ValueError("give either examples or an intent")
        return given


class Removed(Strict):
    """What was removed."""

    removed: int


@router.post(
    "/intents/examples/remove",
    response_model=Removed,
    responses=documented(404, 409, *BODY_ERRORS),
    summary="Removes examples of intents",
)
async def remove(asked: RemoveRequest, service: Serving, tally: Noting) -> Response:
    """Removes examples, or an intent with all of them. That is on disk before the answer comes."""
    check_texts([each.text for each in asked.examples], service.settings.limits, "examples")
    tally.texts = len(asked.examples)

    def removed(models: Models) -> dict[str, int]:
        folder = _folder(models)
        if asked.examples:
            return {"removed": folder.remove([(each.text, each.intent) for each in asked.examples])}
        return {"removed": folder.remove(intent=asked.intent)}

    return as_json(await service.changed(removed))


def _served(models: Models) -> ServedIntents:
    if models.intents is None:
        not_configured("intents", "--intents FOLDER")
    return models.intents


def _folder(models: Models) -> IntentFolder:
    return _served(models).folder
