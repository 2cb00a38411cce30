"""Types that requests share, strict JSON parsing, and the limits in the OpenAPI description."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import from_json

from turnwise.core.dialogue import SYSTEM, USER, Turn, context_turns
from turnwise.serve.batching import Batcher, EncodingResult, Item, QueueFullError
from turnwise.serve.errors import BODY_ERRORS, COMMON_ERRORS, ServiceError, error_responses, unavailable
from turnwise.serve.observability import RequestRecord
from turnwise.serve.service import Service
from turnwise.serve.settings import Limits

#: Schema keyword that stands for a limit, which is known when the service runs; see `fill_limits`.
LIMIT = "x-limit"


def _check_text(text: str) -> str:
    if not text or text.isspace():
        raise ValueError("a text must contain a word")
    if "\0" in text:
        raise ValueError("a text must not contain a NUL character")
    return text


def _to_integer(value: Any) -> Any:
    """JSON has one type of number: 2.0 is 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Comes after the bounds of a number, which would be missing from the schema otherwise.
AS_INTEGER = BeforeValidator(_to_integer)

Integer = Annotated[int, AS_INTEGER]

#: What `_check_text` accepts as a regular expression; implementations differ in what `\s` matches.
_PATTERN = (
    r"^[^\u0000]*[^\u0000\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
    r"[^\u0000]*$"
)

#: A text that is not blank.
Text = Annotated[
    str,
    Field(json_schema_extra={"minLength": 1, "pattern": _PATTERN, LIMIT: "characters"}),
    AfterValidator(_check_text),
]

#: A short text that names something.
Name = Annotated[
    str, Field(max_length=200, json_schema_extra={"minLength": 1, "pattern": _PATTERN}), AfterValidator(_check_text)
]

#: A list of at least one element, and at most as many as the service's limit of texts. All lists fail fast: reporting
#: every error among 100,000 would block the service.
ITEMS = Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT: "texts"})
Texts = Annotated[list[Text], ITEMS]


class StrictModel(BaseModel):
    """A body without unknown fields or type conversions; docstrings of attributes describe the fields."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _check_field_count(cls, data: Any) -> Any:
        """Reject huge objects: reporting each of 100,000 unknown fields would block the service."""
        if isinstance(data, dict) and len(data) > 50:
            raise ValueError(f"an object has {len(data):,} fields, at most 50 are allowed")
        return data


class EmptyObject(StrictModel, json_schema_extra={"example": {}}):
    """An empty object."""


#: The body of a request without fields, which may be missing.
EmptyBody = Annotated[EmptyObject, Body(default_factory=EmptyObject)]


class TurnInput(StrictModel):
    """A turn with its speaker."""

    speaker: str = Field(
        pattern=r"^(user|system|speaker_[1-9][0-9]{0,5})$",
        max_length=16,
        description="Who says it.",
        examples=["user"],
    )
    text: Text


class ChatMessage(StrictModel):
    """A message of a chat-completion log; only those of users and assistants are turns."""

    role: Literal["user", "assistant", "system", "developer", "tool"] = Field(description="Who says it.")
    content: Text

    def as_turn(self) -> TurnInput | None:
        """Return the turn of a user or an assistant; None for other roles."""
        speaker = {"user": USER, "assistant": SYSTEM}.get(self.role)
        return None if speaker is None else TurnInput(speaker=speaker, text=self.content)


EXAMPLE_TURNS: list[Any] = [
    {"speaker": "system", "text": "How can I help?"},
    {"speaker": "user", "text": "Where is my parcel?"},
]

#: A conversation, newest turn last.
Turns = Annotated[
    list[Text | TurnInput | ChatMessage],
    ITEMS,
    Field(
        description="A conversation, newest turn last; a turn is a text, or an object with its speaker or role."
        " Speakers of bare texts alternate, and the newest is the user.",
        examples=[EXAMPLE_TURNS],
    ),
]


#: A text, or a conversation whose last turn is the text.
UtteranceInput = Text | Turns


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The service, and the log record of the current request."""

    service: Service
    record: RequestRecord

    def check_texts(self, texts: Sequence[str], path: str, limit: int | None = None) -> None:
        """Raise 422 if a request has too many texts (`limit`, else the service's limit), or they are too long."""
        limits = self.service.settings.limits
        limit = limits.texts if limit is None else limit
        if len(texts) > limit:
            message = f"{path}: {len(texts):,} texts, at most {limit:,} are allowed: send fewer at a time"
            raise ServiceError(422, message, code="too_many", param=path)
        for number, text in enumerate(texts):
            if len(text) > limits.characters:
                message = f"{path}.{number}: {len(text):,} characters, at most {limits.characters:,} are allowed"
                raise ServiceError(422, message, code="too_long", param=f"{path}.{number}")
        self.record.characters += sum(map(len, texts))
        if self.record.characters > limits.request_characters:
            message = (
                f"{path}: the texts have more than {limits.request_characters:,} characters together"
                " (--max-characters): send fewer at a time"
            )
            raise ServiceError(422, message, code="too_long", param=path)

    def check_parts(self, inputs: Sequence[Any]) -> None:
        """Raise 422 if texts and their parts are too many."""
        if len(inputs) > (limit := self.service.settings.limits.parts):
            message = (
                f"texts: they have {len(inputs):,} parts to search for several intents, at most {limit:,} are allowed:"
                " send fewer texts at a time, or without `several`"
            )
            raise ServiceError(422, message, code="too_many", param="texts")

    def read_turns(
        self, inputs: Sequence[str | TurnInput | ChatMessage], path: str = "conversation"
    ) -> tuple[Turn, ...]:
        """Check and return a conversation's turns; speakers of bare texts alternate, and the newest is the user."""
        turns = [each if isinstance(each, str | TurnInput) else each.as_turn() for each in inputs]
        given = [each for each in turns if each is not None]
        if not given:
            raise ServiceError(422, f"{path}: no message is of a user or an assistant", code="invalid", param=path)
        texts = [each if isinstance(each, str) else each.text for each in given]
        self.check_texts(texts, path)
        alternating = context_turns(texts)
        assert not isinstance(alternating, str)  # no text is blank
        return tuple(
            turn if isinstance(each, str) else Turn(each.speaker, each.text)
            for each, turn in zip(given, alternating, strict=True)
        )

    def read_utterances(self, inputs: Sequence[Any], path: str) -> list[str | tuple[Turn, ...]]:
        """Check and return texts and conversations."""
        self.check_texts([each for each in inputs if isinstance(each, str)], path)
        if len(inputs) > (limit := self.service.settings.limits.texts):
            message = f"{path}: {len(inputs):,} texts, at most {limit:,} are allowed: send fewer at a time"
            raise ServiceError(422, message, code="too_many", param=path)
        return [
            each if isinstance(each, str) else self.read_turns(each, f"{path}.{number}")
            for number, each in enumerate(inputs)
        ]

    async def encode(
        self, batcher: Batcher, items: Sequence[Item], *, max_length: int | None = None, normalise: bool = True
    ) -> EncodingResult:
        """Return the vectors of the request's inputs; raise 503 if the queue is full."""
        try:
            result = await batcher.encode(items, max_length=max_length, normalise=normalise)
        except QueueFullError as error:
            self.service.metrics.refused.inc()
            message = f"too many texts are waiting to be encoded: try again in {error.seconds} s"
            raise unavailable(message, "queue_full", error.seconds) from None
        if not np.isfinite(result.vectors).all():
            raise FloatingPointError("the encoder returned vectors that are not finite")
        self.record.tokens += result.tokens
        return result


def fill_limits(schema: Any, limits: Limits, size: int | None, vocabulary: int | None) -> Any:
    """Return an OpenAPI description with the limits of a service, and the model's sizes if known."""
    if isinstance(schema, list):
        return [fill_limits(each, limits, size, vocabulary) for each in schema]
    if not isinstance(schema, dict):
        return schema
    filled = {key: fill_limits(value, limits, size, vocabulary) for key, value in schema.items() if key != LIMIT}
    if schema.get("type") == "object" and "properties" in schema:
        filled["additionalProperties"] = False  # dataclasses of responses do not say so
    match schema.get(LIMIT):
        case "texts":
            filled["maxItems"] = limits.texts
        case "characters":
            filled["maxLength"] = limits.characters
        case "tokens" if vocabulary is not None:
            filled["maximum"] = vocabulary - 1
        case "size" if size is not None:
            filled["anyOf"] = [{"type": "integer", "minimum": size, "maximum": size}, {"type": "null"}]
    return filled


class StrictRequest(Request):
    """A request whose body is JSON as in RFC 8259: UTF-8, no NaN, no lone surrogates, limited nesting."""

    async def json(self) -> Any:
        """Return the parsed body; raise `ServiceError` (400) if it is not JSON."""
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise ServiceError(400, f"the body is not JSON: {error}", code="not_json") from None


class StrictRoute(APIRoute):
    """A route that parses requests strictly and documents the errors of every route."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any):
        errors = COMMON_ERRORS + (BODY_ERRORS if "POST" in options["methods"] else ())
        options["responses"] = error_responses(*errors) | (options["responses"] or {})
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that handles a request."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


async def _get_context(request: Request) -> RequestContext:
    return RequestContext(request.app.state.service, request.scope["record"])


#: The dependency of routes.
Context = Annotated[RequestContext, Depends(_get_context)]


def make_router(tag: str, prefix: str = "") -> APIRouter:
    """Return a router of strict routes."""
    return APIRouter(route_class=StrictRoute, tags=[tag], prefix=prefix)
