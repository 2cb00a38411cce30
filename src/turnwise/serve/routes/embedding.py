"""Vectors: `/embed`, and `/v1/embeddings` compatible with the OpenAI API."""

import base64
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Response
from pydantic import Field

from turnwise.core.model_names import DEFAULT_ENCODER
from turnwise.core.types import Vectors
from turnwise.serve.batching import Item
from turnwise.serve.errors import ServiceError, json_response
from turnwise.serve.schemas import AS_INTEGER, ITEMS, LIMIT, Context, StrictModel, Text, Texts, Turns, make_router

router = make_router("vectors")


class EmbedResponse(StrictModel):
    """Vectors of texts and conversations."""

    vectors: list[list[float]] = Field(description="One vector per input.")
    size: int = Field(description="The number of dimensions.")
    model: str = Field(description="The name of the encoder.")


class InputEmbedding(StrictModel):
    """A vector, as in the OpenAI API."""

    object: Literal["embedding"] = Field(description="The kind of object.")
    index: int = Field(description="The position of the input.")
    embedding: list[float] | str = Field(description="The vector, as numbers or in base64.")


class Usage(StrictModel):
    """Numbers of tokens, as in the OpenAI API."""

    prompt_tokens: int = Field(description="The tokens that were encoded.")
    total_tokens: int = Field(description="The same.")


class EmbeddingsResponse(StrictModel):
    """Vectors of texts, as in the OpenAI API."""

    object: Literal["list"] = Field(description="The kind of object.")
    data: list[InputEmbedding] = Field(description="One vector per input.")
    model: str = Field(description="The name of the encoder.")
    usage: Usage = Field(description="The number of tokens.")


class Model(StrictModel):
    """A model, as in the OpenAI API."""

    id: str = Field(description="The name of the encoder.")
    object: Literal["model"] = Field(description="The kind of object.")
    created: int = Field(description="Always 0.")
    owned_by: str = Field(description="Always turnwise.")


class ModelsResponse(StrictModel):
    """The models of `/v1/embeddings`."""

    object: Literal["list"] = Field(description="The kind of object.")
    data: list[Model] = Field(description="The one model.")


class EmbedRequest(
    StrictModel, json_schema_extra={"example": {"inputs": ["Where is my parcel?", ["Hello.", "Hi, how can I help?"]]}}
):
    """Texts and conversations to encode."""

    inputs: Annotated[list[Text | Turns], ITEMS] = Field(description="Texts and conversations; each gets one vector.")
    normalise: bool = Field(True, description="Whether vectors are scaled to length 1.")


@router.post("/embed", response_model=EmbedResponse)
async def embed(body: EmbedRequest, context: Context) -> Response:
    """Encode texts and conversations. A vector does not depend on the other inputs, up to rounding."""
    context.check_texts(["" for _ in body.inputs], "inputs")
    items: list[Item] = []
    for number, each in enumerate(body.inputs):
        turns = context.read_turns([each] if isinstance(each, str) else each, f"inputs.{number}")
        items.append(each if isinstance(each, str) else turns)
    context.record.texts = len(items)
    with context.service.lease() as models:
        vectors = (await context.encode(models.batcher, items, normalise=body.normalise)).vectors
        return json_response({"vectors": _round(vectors), "size": vectors.shape[1], "model": models.name})


_Token = Annotated[int, Field(ge=0, le=2**31 - 1, json_schema_extra={LIMIT: "tokens"}), AS_INTEGER]
_Tokens = Annotated[list[_Token], Field(min_length=1, max_length=8_192, fail_fast=True)]


class EmbeddingsRequest(
    StrictModel, json_schema_extra={"example": {"input": "Where is my parcel?", "model": DEFAULT_ENCODER}}
):
    """Texts to encode, as in the OpenAI API."""

    input: Text | Texts | _Tokens | Annotated[list[_Tokens], ITEMS] = Field(
        description="A text, texts, token ids of the model's tokenizer without special tokens, or lists of token ids."
    )
    model: str | None = Field(None, max_length=500, description="Any name: the service has one model.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="base64: of little-endian single-precision numbers."
    )
    dimensions: Annotated[int, Field(ge=1, le=1_000_000), AS_INTEGER] | None = Field(
        None, description="The size of the model's vectors, or null.", json_schema_extra={LIMIT: "size"}
    )
    user: str | None = Field(None, max_length=500, description="Not used.")


@router.post("/v1/embeddings", response_model=EmbeddingsResponse)
async def create_embeddings(body: EmbeddingsRequest, context: Context) -> Response:
    """Encode texts as the OpenAI API does: its clients need only another base URL. Vectors have length 1."""
    with context.service.lease() as models:
        encoder = models.batcher.encoder
        if body.dimensions not in (None, encoder.hidden):
            message = f"dimensions: vectors of this model have {encoder.hidden} dimensions and cannot be shortened"
            raise ServiceError(422, message, code="invalid", param="dimensions")
        items = _to_items(body.input, context, encoder.composer.vocabulary if _has_tokens(body.input) else 0)
        context.record.texts = len(items)
        result = await context.encode(models.batcher, items)
        vectors: list[Any]
        if body.encoding_format == "base64":
            vectors = [base64.b64encode(vector.tobytes()).decode() for vector in result.vectors.astype("<f4")]
        else:
            vectors = _round(result.vectors)
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        usage = {"prompt_tokens": result.tokens, "total_tokens": result.tokens}
        return json_response({"object": "list", "data": data, "model": models.name, "usage": usage})


@router.get("/v1/models", response_model=ModelsResponse)
async def list_models(context: Context) -> Response:
    """Return the model of `/v1/embeddings`, as the OpenAI API does."""
    with context.service.lease() as models:
        model = {"id": models.name, "object": "model", "created": 0, "owned_by": "turnwise"}
        return json_response({"object": "list", "data": [model]})


def _has_tokens(value: Any) -> bool:
    return not isinstance(value, str) and not isinstance(value[0], str)


def _to_items(value: Any, context: Context, vocabulary: int) -> list[Item]:
    if not _has_tokens(value):
        texts = [value] if isinstance(value, str) else value
        context.check_texts(texts, "input")
        return list(texts)
    lists = [value] if isinstance(value[0], int) else value
    context.check_texts(["" for _ in lists], "input")
    arrays = [np.array(each, np.int32) for each in lists]
    if max(int(each.max()) for each in arrays) >= vocabulary:
        message = (
            f"input: token ids of this model are 0 to {vocabulary - 1}: send texts, or ids of its own tokenizer "
            "(LangChain: set check_embedding_ctx_length=False)"
        )
        raise ServiceError(422, message, code="invalid", param="input")
    return list(arrays)


def _round(vectors: Vectors) -> list[list[float]]:
    # more decimals than single precision distinguishes in unit vectors
    rounded: list[list[float]] = np.round(vectors.astype(np.float64), 9).tolist()
    return rounded
