"""The bodies of successful responses, as the OpenAPI description explains them."""

from typing import Literal

from pydantic import Field

from turnwise.assist.conversations import ConversationCluster
from turnwise.assist.intents.decision import Decision
from turnwise.assist.labelling.labelling import LabelGroup, Question
from turnwise.assist.responses.responder import Suggestion
from turnwise.serve.schemas import StrictModel

_PENDING = Field(description="Examples that were added or removed, but that predictions do not take into account yet.")


# ---- vectors


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


# ---- intents


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
    examples: list[str] = Field(description="The texts of its examples.")


class AddedExamples(StrictModel):
    """The result of adding examples."""

    added: int = Field(description="The number of new examples.")
    intents: int = Field(description="The number of intents afterwards.")
    pending: int = _PENDING


class RemovedExamples(StrictModel):
    """The result of removing examples."""

    removed: int = Field(description="The number of examples that were removed.")
    pending: int = _PENDING


# ---- conversations


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


# ---- map


class QuestionList(StrictModel):
    """Utterances to label next."""

    questions: list[Question] = Field(description="The utterances, most informative first.")


class FitResponse(StrictModel):
    """A classifier that was fitted on labels."""

    intents: int = Field(description="The number of its intents.")
    examples: int = Field(description="The number of its examples.")
    folder: str = Field(description="The folder that it was written to.")


class LabelState(StrictModel):
    """The current labels; lists have one value per utterance."""

    groups: list[int] = Field(description="The group of each utterance; -1: none.")
    labels: list[str | None] = Field(description="The label of each utterance; null: none.")
    clusters: list[LabelGroup] = Field(description="The groups, largest first.")
    changes: int = Field(description="The number of changes so far.")
    can_undo: bool = Field(description="Whether a change can be undone.")
    can_redo: bool = Field(description="Whether a change can be redone.")


class MapBody(LabelState):
    """A map with its labels."""

    points: list[list[float]] = Field(description="The position of each utterance.")
    texts: list[str] = Field(description="The text of each utterance.")
    counts: list[int] = Field(description="How often each utterance occurs.")
    new: list[bool] | None = Field(description="Whether an earlier map lacks the utterance; null: there is none.")


# ---- operations


class ServiceInfo(StrictModel):
    """What is served."""

    version: str = Field(description="The version of turnwise.")
    model: str = Field(description="The name of the encoder.")
    size: int | None = Field(description="The number of dimensions; null while models are loading.")
    intents: bool = Field(description="Whether intents are served.")
    responses: bool = Field(description="Whether responses are served.")
    conversations: bool = Field(description="Whether conversations are served.")
    reranker: bool = Field(description="Whether there is a re-ranker.")
    map: bool = Field(description="Whether a map is served.")
    labelling: bool = Field(description="Whether the map can be labelled.")
    report: bool = Field(description="Whether there is an evaluation report.")
    needs_key: bool = Field(description="Whether requests need a key.")


class IntentsOverview(StrictModel):
    """Sizes of the intents."""

    intents: int = Field(description="The number of intents.")
    examples: int = Field(description="The number of examples.")
    largest: str = Field(description="The intent with the most examples.")
    largest_examples: int = Field(description="The number of its examples.")
    example: str = Field(description="One of its examples.")


class GroupOverview(StrictModel):
    """A group of a map."""

    group: int = Field(description="The number of the group.")
    title: str = Field(description="Its name, or else its characteristic words.")
    utterances: int = Field(description="The number of its utterances.")


class MapOverview(StrictModel):
    """Sizes of the map."""

    texts: int = Field(description="The number of distinct texts.")
    utterances: int = Field(description="The number of utterances.")
    groups: int = Field(description="The number of groups.")
    named: int = Field(description="The number of groups with names.")
    largest: GroupOverview | None = Field(description="The largest group, if there is one.")


class Overview(StrictModel):
    """Sizes of what is served; null: not served."""

    intents: IntentsOverview | None = Field(description="Sizes of the intents.")
    answers: int | None = Field(description="The number of answers.")
    conversations: int | None = Field(description="The number of conversations.")
    map: MapOverview | None = Field(description="Sizes of the map.")


class Status(StrictModel):
    """The state of the service."""

    status: Literal["ok", "ready"] = Field(description="ok: the process listens; ready: models are loaded.")


class ReloadResponse(StrictModel):
    """The result of a reload."""

    model: str = Field(description="The name of the encoder.")
    size: int = Field(description="The number of dimensions.")
    seconds: float = Field(description="How long it took.")
