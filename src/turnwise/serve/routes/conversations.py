"""Conversations: suggested answers, similar conversations, and coherence checks."""

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import Field

from turnwise.assist.conversations import ConversationCluster, Conversations, conversation_title
from turnwise.assist.responses.responder import Answer, Responder, Suggestion
from turnwise.core.dialogue import Turn
from turnwise.core.errors import SearchError
from turnwise.serve.errors import ServiceError, configured, error_responses, json_response, public_message
from turnwise.serve.models import LoadedModels
from turnwise.serve.schemas import EXAMPLE_TURNS, ITEMS, Context, Integer, Name, StrictModel, Text, Turns, make_router

router = make_router("conversations")


class Suggestions(StrictModel):
    """Suggested answers."""

    suggestions: list[Suggestion] = Field(description="The answers, best first.")


class AddedAnswers(StrictModel):
    """The result of adding answers."""

    added: int = Field(description="The number of new answers.")


class TurnBody(StrictModel):
    """A turn."""

    speaker: str = Field(description="Who says it.")
    text: str = Field(description="What is said.")


class DialogueBody(StrictModel):
    """An indexed conversation."""

    dialogue: str = Field(description="The id of the conversation.")
    title: str = Field(description="The user's first request.")
    source: str | None = Field(description="The corpus that it is from.")
    split: str | None = Field(description="Its split.")
    turns: list[TurnBody] = Field(description="Its turns, oldest first.")


class SimilarDialogue(DialogueBody):
    """An indexed conversation, with its similarity to the requested one."""

    similarity: float = Field(description="The cosine similarity.")


class SimilarConversations(StrictModel):
    """Similar conversations."""

    conversations: list[SimilarDialogue] = Field(description="The conversations, most similar first.")


class ConversationClusters(StrictModel):
    """Clusters of the indexed conversations."""

    clusters: list[ConversationCluster] = Field(description="The clusters, largest first.")


class CoherenceResponse(StrictModel):
    """How well the turns of a conversation belong together."""

    scores: list[float] = Field(description="For each turn the probability that it is out of place.")
    index: int = Field(description="The index of the highest probability.")


#: Answers and conversations per response.
_MAX_TOP = 50

#: Turns that an added answer may follow.
_MAX_CONTEXT = 20


class AnswerFilter(StrictModel):
    """Values that an answer must have; null: any."""

    source: Name | None = None
    split: Name | None = None
    speaker: Name | None = None
    dialogue: Name | None = None
    intent: Name | None = None


class RespondRequest(StrictModel, json_schema_extra={"example": {"conversation": EXAMPLE_TURNS, "top": 5}}):
    """A conversation so far."""

    conversation: Turns
    top: Integer = Field(5, ge=1, le=_MAX_TOP, description="Answers to suggest at most.")
    where: AnswerFilter = Field(default_factory=AnswerFilter, description="Only answers with these values.")


@router.post("/respond", response_model=Suggestions, responses=error_responses(404, 409))
async def suggest_answers(body: RespondRequest, context: Context) -> Response:
    """Suggest answers from the index; near-duplicates are folded into one, and generic answers are ranked lower."""
    turns = context.read_turns(body.conversation)
    context.record.texts = len(turns)
    with context.service.lease() as models:
        responder = _get_responder(models)
        inputs = list(responder.inputs(turns))
        result = await context.encode(models.batcher, inputs, max_length=responder.max_length)
        where = body.where.model_dump(exclude_none=True) or None
        service = context.service
        run = service.in_thread if responder.reranker is None else service.in_reranking_thread
        suggestions = await run(responder.suggest, turns, top=body.top, where=where, vectors=result.vectors)
        return json_response({"suggestions": suggestions})


class AnswerInput(StrictModel):
    """An answer to suggest."""

    text: Text
    after: list[Text] = Field(
        default_factory=list,
        max_length=_MAX_CONTEXT,
        fail_fast=True,
        description="The turns that it answers, newest last; empty: it is found by its own words.",
    )
    source: Name | None = None
    split: Name | None = None
    intent: Name | None = None


class AddAnswersRequest(
    StrictModel, json_schema_extra={"example": {"answers": [{"text": "It comes tomorrow.", "source": "canned"}]}}
):
    """Answers to add."""

    answers: Annotated[list[AnswerInput], ITEMS]


@router.post("/respond/answers", response_model=AddedAnswers, responses=error_responses(404, 409))
async def add_answers(body: AddAnswersRequest, context: Context) -> Response:
    """Add answers that are not in the index yet; they are on disk when the response is sent."""
    context.check_texts([each.text for each in body.answers], "answers")
    for number, each in enumerate(body.answers):
        context.check_texts(each.after, f"answers.{number}.after", _MAX_CONTEXT)
    context.record.texts = len(body.answers)

    def add(models: LoadedModels) -> dict[str, int]:
        answers = [Answer(each.text, tuple(each.after), each.source, each.split, each.intent) for each in body.answers]
        return {"added": models.add_answers(_get_responder(models), answers)}

    return json_response(await context.service.change(add))


class SimilarRequest(StrictModel, json_schema_extra={"example": {"conversation": EXAMPLE_TURNS, "top": 5}}):
    """A conversation to find similar ones of."""

    conversation: Turns
    top: Integer = Field(5, ge=1, le=_MAX_TOP, description="Conversations to return at most.")


@router.post("/conversations/similar", response_model=SimilarConversations, responses=error_responses(404, 409))
async def find_similar(body: SimilarRequest, context: Context) -> Response:
    """Find similar conversations."""
    turns = context.read_turns(body.conversation)
    context.record.texts = len(turns)
    with context.service.lease() as models:
        index = _get_conversations(models)
        result = await context.encode(models.batcher, list(index.inputs(turns)), max_length=index.max_length)

        def search() -> Response:
            similar = [
                _dialogue_body(each.dialogue, each.source, each.split, each.turns) | {"similarity": each.similarity}
                for each in index.similar(turns, top=body.top, vectors=result.vectors)
            ]
            return json_response({"conversations": similar})

        return await context.service.in_thread(search)


@router.get("/conversations/dialogue", response_model=DialogueBody, responses=error_responses(404, 422))
async def get_dialogue(
    context: Context,
    name: Annotated[Name, Query(alias="id", description="The dialogue's id.")],
    source: Annotated[Name | None, Query(description="Its source, if several have this id.")] = None,
) -> Response:
    """Return an indexed conversation."""
    with context.service.lease() as models:
        try:
            dialogue = await context.service.in_thread(_get_conversations(models).dialogue, name, source)
        except SearchError as error:
            raise ServiceError(404, public_message(error), param="id", code="unknown_dialogue") from None
        return json_response(_dialogue_body(dialogue.id, dialogue.source, dialogue.split, dialogue.turns))


@router.get("/conversations/clusters", response_model=ConversationClusters, responses=error_responses(404, 409))
async def list_clusters(context: Context) -> Response:
    """Return clusters of the indexed conversations; they are cached until the index changes."""
    with context.service.lease() as models:
        clustering = await context.service.in_slow_thread(_get_conversations(models).cluster)
        return json_response({"clusters": clustering.clusters})


class CoherenceRequest(
    StrictModel, json_schema_extra={"example": {"conversation": [*EXAMPLE_TURNS, "My cat is called Tom."]}}
):
    """A conversation to check."""

    conversation: Annotated[Turns, Field(min_length=2)]


@router.post("/coherence", response_model=CoherenceResponse, responses=error_responses(404, 409))
async def check_coherence(body: CoherenceRequest, context: Context) -> Response:
    """Return for each turn how likely it is from another conversation."""
    turns = context.read_turns(body.conversation)
    context.record.texts = len(turns)
    with context.service.lease() as models:
        reranker = models.reranker if models.reranker is not None and "deletion" in models.reranker.heads else None
        reranker = configured(reranker, "re-ranker that was trained with deletion", "--reranker FOLDER")
        result = await context.service.in_reranking_thread(reranker.out_of_place, turns)
        return json_response({"scores": result.scores, "index": result.index})


def _get_responder(models: LoadedModels) -> Responder:
    return configured(models.responder, "answers to suggest", "--responses TABLE")


def _get_conversations(models: LoadedModels) -> Conversations:
    return configured(models.conversations, "conversations", "--conversations TABLE")


def _dialogue_body(name: str, source: str | None, split: str | None, turns: tuple[Turn, ...]) -> dict[str, Any]:
    bodies = [{"speaker": turn.speaker, "text": turn.text} for turn in turns]
    return {
        "dialogue": name,
        "title": conversation_title(turns),
        "source": source,
        "split": split,
        "turns": bodies,
    }
