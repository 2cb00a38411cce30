"""Conversations: what may be said next, conversations alike, and the turn that does not belong."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import ConfigDict, Field

from turnwise.assist.conversations.conversations import ConversationsError
from turnwise.serve.batching import Item
from turnwise.serve.errors import BODY_ERRORS, ServiceError, documented, not_configured
from turnwise.serve.models import Models
from turnwise.serve.routing import Noting, Serving, StrictRoute, as_json
from turnwise.serve.schemas import LIMIT, Name, Strict, Text, Turns, Whole, check_conversation, check_texts, turns_of

router = APIRouter(route_class=StrictRoute)

_EXAMPLE: list[Any] = [
    {"speaker": "system", "text": "How can I help?"},
    {"speaker": "user", "text": "Where is my parcel?"},
]

#: Answers and conversations that are given at most.
_MOST = 50

#: Turns that an added answer may be said to come after.
_CONTEXT = 20


# ---- what may be said next


class Where(Strict):
    """What an answer has to be of; each part may be left out."""

    source: Name | None = None
    split: Name | None = None
    speaker: Name | None = None
    dialogue: Name | None = None
    intent: Name | None = None


class RespondRequest(Strict):
    """What has been said so far."""

    model_config = ConfigDict(json_schema_extra={"example": {"conversation": _EXAMPLE, "top": 5}})

    conversation: Turns
    top: Whole = Field(5, ge=1, le=_MOST, description="How many answers to suggest at most.")
    where: Where = Field(default_factory=Where, description="Only answers that have these values.")


class SuggestionBody(Strict):
    """An answer, and where it was given."""

    text: str
    score: float
    similarity: float
    rerank: float | None
    count: int
    folded: list[str]
    dialogue: str | None
    turn: int | None
    speaker: str
    source: str | None
    split: str | None


class Suggestions(Strict):
    """Answers, the best first."""

    suggestions: list[SuggestionBody]


@router.post(
    "/respond",
    response_model=Suggestions,
    responses=documented(404, 409, *BODY_ERRORS),
    summary="What may be said next",
    tags=["answers"],
)
async def respond(asked: RespondRequest, service: Serving, tally: Noting) -> Response:
    """Suggests answers from those that were indexed; near-duplicates are folded into one, and those that fit anything damped."""
    check_conversation(asked.conversation, service.settings.limits, "conversation")
    tally.texts = len(asked.conversation)
    turns = turns_of(asked.conversation)
    with service.lease() as models:
        responder = models.responder
        if responder is None:
            not_configured("answers to suggest", "--responses TABLE")
        items: list[Item] = list(responder.inputs(turns))
        encoded = await service.encode(models.batcher, items, tally, max_length=responder.max_length)
        where = asked.where.model_dump(exclude_none=True) or None
        found = await service.in_thread(responder.suggest, turns, top=asked.top, where=where, vectors=encoded.vectors)
        return as_json({"suggestions": found})


class AnswerBody(Strict):
    """An answer that may be suggested."""

    text: Text
    after: list[Text] = Field(
        default_factory=list,
        max_length=_CONTEXT,
        fail_fast=True,
        description="What it answers, newest turn last; where this is empty, it is found by its own words.",
    )
    source: Name | None = None
    split: Name | None = None
    intent: Name | None = None


class AnswersRequest(Strict):
    """Answers to suggest from now on."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"answers": [{"text": "It comes tomorrow.", "source": "canned"}]}}
    )

    answers: list[AnswerBody] = Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT: "texts"})


class AnswersAdded(Strict):
    """What was added."""

    added: int = Field(description="How many of the answers are new.")


@router.post(
    "/respond/answers",
    response_model=AnswersAdded,
    responses=documented(404, 409, *BODY_ERRORS),
    summary="Adds answers to suggest",
    tags=["answers"],
)
async def add_answers(asked: AnswersRequest, service: Serving, tally: Noting) -> Response:
    """Adds answers; they are on disk before the answer comes. One that is there already is not added again."""
    check_texts([each.text for each in asked.answers], service.settings.limits, "answers")
    for number, each in enumerate(asked.answers):
        check_texts(each.after, service.settings.limits, f"answers.{number}.after", most=_CONTEXT)
    tally.texts = len(asked.answers)

    def added(models: Models) -> dict[str, int]:
        if models.responder is None:
            not_configured("answers to suggest", "--responses TABLE")
        from turnwise.assist.responses.answers import Answer

        answers = [Answer(each.text, tuple(each.after), each.source, each.split, each.intent) for each in asked.answers]
        return {"added": models.responder.add(answers).added}

    return as_json(await service.changed(added))


# ---- conversations alike


class SimilarRequest(Strict):
    """A conversation to find others like."""

    model_config = ConfigDict(json_schema_extra={"example": {"conversation": _EXAMPLE, "top": 5}})

    conversation: Turns
    top: Whole = Field(5, ge=1, le=_MOST, description="How many conversations to give at most.")


class TurnBody(Strict):
    """A turn as it was kept."""

    speaker: str
    text: str


class SimilarBody(Strict):
    """A conversation that is like the one given."""

    dialogue: str
    similarity: float
    source: str | None
    split: str | None
    turns: list[TurnBody]


class SimilarConversations(Strict):
    """Conversations, the most similar first."""

    conversations: list[SimilarBody]


@router.post(
    "/conversations/similar",
    response_model=SimilarConversations,
    responses=documented(404, 409, *BODY_ERRORS),
    summary="Conversations like this one",
    tags=["conversations"],
)
async def similar(asked: SimilarRequest, service: Serving, tally: Noting) -> Response:
    """Finds conversations that are like the one given."""
    check_conversation(asked.conversation, service.settings.limits, "conversation")
    tally.texts = len(asked.conversation)
    turns = turns_of(asked.conversation)
    with service.lease() as models:
        kept = models.conversations
        if kept is None:
            not_configured("conversations", "--conversations TABLE")
        encoded = await service.encode(models.batcher, list(kept.inputs(turns)), tally, max_length=kept.max_length)

        def found() -> Response:
            vector = kept.vector(turns, vectors=encoded.vectors)
            alike = [asdict(each) for each in kept.similar(turns, top=asked.top, vector=vector)]
            for each in alike:
                each["turns"] = [{"speaker": turn["speaker"], "text": turn["text"]} for turn in each["turns"]]
            return as_json({"conversations": alike})

        return await service.in_thread(found)


class DialogueBody(Strict):
    """A conversation that is indexed."""

    dialogue: str
    source: str | None
    split: str | None
    turns: list[TurnBody]


@router.get(
    "/conversations/dialogue",
    response_model=DialogueBody,
    responses=documented(404, 422),
    summary="A conversation by its id",
    tags=["conversations"],
)
async def dialogue(
    service: Serving,
    name: Annotated[Name, Query(alias="id", description="The dialogue's id.")],
    source: Annotated[Name | None, Query(description="Where it comes from, where ids repeat.")] = None,
) -> Response:
    """Gives a conversation that is indexed."""
    with service.lease() as models:
        if models.conversations is None:
            not_configured("conversations", "--conversations TABLE")
        try:
            found = await service.in_thread(models.conversations.dialogue, name, source)
        except ConversationsError as error:
            raise ServiceError(404, str(error), param="id", code="unknown_dialogue") from None
        turns = [{"speaker": turn.speaker, "text": turn.text} for turn in found.turns]
        return as_json({"dialogue": found.id, "source": found.source, "split": found.split, "turns": turns})


class ConversationClusterBody(Strict):
    """Conversations that are about the same."""

    number: int
    name: str
    words: list[str]
    size: int
    examples: list[str]


class ConversationClusters(Strict):
    """Clusters of conversations."""

    clusters: list[ConversationClusterBody]


@router.get(
    "/conversations/clusters",
    response_model=ConversationClusters,
    responses=documented(404, 409),
    summary="Clusters of conversations",
    tags=["conversations"],
)
async def clusters(service: Serving) -> Response:
    """Groups the conversations that were indexed; found once, and kept until they change."""
    with service.lease() as models:
        if models.conversations is None:
            not_configured("conversations", "--conversations TABLE")
        return as_json({"clusters": await service.at_leisure(models.conversations.clusters)})


# ---- the turn that does not belong


class CoherenceRequest(Strict):
    """A conversation to look at."""

    model_config = ConfigDict(json_schema_extra={"example": {"conversation": [*_EXAMPLE, "My cat is called Tom."]}})

    conversation: Annotated[Turns, Field(min_length=2)]


class Coherence(Strict):
    """How little each turn belongs."""

    scores: list[float] = Field(description="For each turn the probability that it does not belong.")
    index: int = Field(description="The turn that belongs least, from 0.")


@router.post(
    "/coherence",
    response_model=Coherence,
    responses=documented(404, 409, *BODY_ERRORS),
    summary="The turn that does not belong",
    tags=["conversations"],
)
async def coherence(asked: CoherenceRequest, service: Serving, tally: Noting) -> Response:
    """Says of each turn how likely it is of another conversation."""
    check_conversation(asked.conversation, service.settings.limits, "conversation")
    tally.texts = len(asked.conversation)
    with service.lease() as models:
        reranker = models.reranker
        if reranker is None or not reranker.finds_misfits:
            not_configured("re-ranker that was trained with deletion", "--reranker FOLDER")
        misfit = await service.in_thread(reranker.out_of_place, turns_of(asked.conversation))
        return as_json({"scores": misfit.scores, "index": misfit.index})
