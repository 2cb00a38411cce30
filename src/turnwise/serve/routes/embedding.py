"""Vectors: `/embed`, and `/v1/embeddings` as clients of OpenAI's interface ask for them."""

import base64
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field

from turnwise.serve.batching import Item, Vectors
from turnwise.serve.errors import BODY_ERRORS, ServiceError, documented
from turnwise.serve.routing import Noting, Serving, StrictRoute, as_json
from turnwise.serve.schemas import AS_WHOLE, LIMIT, Strict, Text, Turns, check_conversation, check_texts, turns_of
from turnwise.serve.service import Service

router = APIRouter(route_class=StrictRoute, tags=["vectors"])

#: Decimals of a number: more than single precision tells apart in vectors of length 1.
_DECIMALS = 9

#: The most that a token's number can be; the model's own vocabulary is smaller.
_LAST_TOKEN = 2**31 - 1


class EmbedRequest(Strict):
    """What to encode."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"inputs": ["Where is my parcel?", ["Hello.", "Hi, how can I help?"]]}}
    )

    inputs: list[Text | Turns] = Field(
        min_length=1,
        fail_fast=True,
        description="Texts and conversations; each gives one vector.",
        json_schema_extra={LIMIT: "texts"},
    )
    normalise: bool = Field(True, description="Whether vectors are scaled to length 1.")


class EmbedResponse(Strict):
    """Vectors, in the order of the inputs."""

    vectors: list[list[float]]
    size: int
    model: str


@router.post(
    "/embed",
    response_model=EmbedResponse,
    responses=documented(*BODY_ERRORS),
    summary="Vectors of texts and conversations",
)
async def embed(asked: EmbedRequest, service: Serving, tally: Noting) -> Response:
    """Encodes texts and conversations. The same input gives the same vector whatever else is asked with it, up to rounding."""
    limits = service.settings.limits
    check_texts(["" for _ in asked.inputs], limits, "inputs")
    for number, each in enumerate(asked.inputs):
        check_conversation([each] if isinstance(each, str) else each, limits, f"inputs.{number}")
    tally.texts = len(asked.inputs)
    items: list[Item] = [each if isinstance(each, str) else turns_of(each) for each in asked.inputs]
    with service.lease() as models:
        encoded = await service.encode(models.batcher, items, tally, normalise=asked.normalise)
        return as_json({"vectors": _rounded(encoded.vectors), "size": encoded.vectors.shape[1], "model": models.name})


_Token = Annotated[int, Field(ge=0, le=_LAST_TOKEN, json_schema_extra={LIMIT: "tokens"}), AS_WHOLE]


class EmbeddingsRequest(Strict):
    """What to encode, as clients of OpenAI's interface say it."""

    model_config = ConfigDict(json_schema_extra={"example": {"input": "Where is my parcel?", "model": "minilm"}})

    input: (
        Text
        | Annotated[list[Text], Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT: "texts"})]
        | Annotated[list[_Token], Field(min_length=1, max_length=8_192, fail_fast=True)]
        | Annotated[
            list[Annotated[list[_Token], Field(min_length=1, max_length=8_192, fail_fast=True)]],
            Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT: "texts"}),
        ]
    ) = Field(
        description="A text, texts, token ids of the model's own tokenizer without special tokens, or lists of such."
    )
    model: str | None = Field(None, max_length=500, description="Any name: the one model that is served answers.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="base64: of little-endian single-precision numbers."
    )
    dimensions: Annotated[int, Field(ge=1, le=1_000_000), AS_WHOLE] | None = Field(
        None, description="The size of the model's vectors, or nothing.", json_schema_extra={LIMIT: "size"}
    )
    user: str | None = Field(None, max_length=500, description="Not used.")


class _Embedding(Strict):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class _Usage(Strict):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(Strict):
    """Vectors of length 1, in the order of the input."""

    object: Literal["list"]
    data: list[_Embedding]
    model: str
    usage: _Usage


@router.post(
    "/v1/embeddings",
    response_model=EmbeddingsResponse,
    responses=documented(*BODY_ERRORS),
    summary="Vectors, as OpenAI's interface has them",
)
async def embeddings(asked: EmbeddingsRequest, service: Serving, tally: Noting) -> Response:
    """Encodes texts for clients of OpenAI's interface, which work by changing the address. Vectors have length 1."""
    given = asked.input
    with service.lease() as models:
        size = models.batcher.encoder.hidden
        if asked.dimensions not in (None, size):
            raise ServiceError(
                422,
                f"dimensions: vectors of {models.name} have {size} numbers, and are not cut",
                code="invalid",
                param="dimensions",
            )
        items = _items(given, service, models.batcher.encoder.composer.vocabulary if _has_tokens(given) else 0)
        tally.texts = len(items)
        encoded = await service.encode(models.batcher, items, tally)
        data = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(
                _base64(encoded.vectors) if asked.encoding_format == "base64" else _rounded(encoded.vectors)
            )
        ]
        usage = {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens}
        return as_json({"object": "list", "data": data, "model": models.name, "usage": usage})


class _Model(Strict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsResponse(Strict):
    """The one model that is served."""

    object: Literal["list"]
    data: list[_Model]


@router.get(
    "/v1/models",
    response_model=ModelsResponse,
    responses=documented(),
    summary="The model, as OpenAI's interface has it",
)
async def list_models(service: Serving) -> Response:
    """Names the model that `/v1/embeddings` answers with."""
    with service.lease() as models:
        return as_json(
            {"object": "list", "data": [{"id": models.name, "object": "model", "created": 0, "owned_by": "turnwise"}]}
        )


def _has_tokens(given: Any) -> bool:
    return not isinstance(given, str) and not isinstance(given[0], str)


def _items(given: Any, service: Service, vocabulary: int) -> list[Item]:
    if not _has_tokens(given):
        texts = [given] if isinstance(given, str) else given
        check_texts(texts, service.settings.limits, "input")
        return list(texts)
    lists = [given] if isinstance(given[0], int) else given
    check_texts(["" for _ in lists], service.settings.limits, "input")
    arrays = [np.array(each, np.int32) for each in lists]
    if max(int(each.max()) for each in arrays) >= vocabulary:
        raise ServiceError(422, f"input: the model has tokens 0 to {vocabulary - 1}", code="invalid", param="input")
    return list(arrays)


def _rounded(vectors: Vectors) -> list[list[float]]:
    rounded: list[list[float]] = np.round(vectors.astype(np.float64), _DECIMALS).tolist()
    return rounded


def _base64(vectors: Vectors) -> list[str]:
    return [base64.b64encode(vector.tobytes()).decode() for vector in vectors.astype("<f4")]
