"""The words of the interface: what a text, a turn and a conversation are over HTTP, and how limits come into the description."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from turnwise.core.conversation import conversation
from turnwise.core.dialogue import Turn
from turnwise.serve.errors import ServiceError
from turnwise.serve.settings import Limits

#: In the description of the interface this stands for a limit that is known when the service starts.
LIMIT = "x-limit"


def _with_a_word(text: str) -> str:
    if not text or text.isspace():
        raise ValueError("a text needs a word at least")
    if "\0" in text:
        raise ValueError("a text cannot hold a NUL character")
    return text


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 2.0 is 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Comes after the bounds of a number, which the description would not tell otherwise.
AS_WHOLE = BeforeValidator(_whole)

#: A whole number.
Whole = Annotated[int, AS_WHOLE]

#: What `_with_a_word` takes, in the words of a schema; programs differ in what `\s` is.
_PATTERN = r"^[^\u0000]*[^\u0000\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000][^\u0000]*$"

#: A text that somebody could have said.
Text = Annotated[
    str,
    Field(json_schema_extra={"minLength": 1, "pattern": _PATTERN, LIMIT: "characters"}),
    AfterValidator(_with_a_word),
]

#: A short text that names something.
Name = Annotated[
    str, Field(max_length=200, json_schema_extra={"minLength": 1, "pattern": _PATTERN}), AfterValidator(_with_a_word)
]


#: Fields of an object, more than any has.
_FIELDS = 50


class Strict(BaseModel):
    """A body that is taken as it is documented, or not at all."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, given: Any) -> Any:
        """Telling of every unknown one among 100,000 would keep others waiting."""
        if isinstance(given, dict) and len(given) > _FIELDS:
            raise ValueError(f"an object of {len(given):,} fields is none of those that are documented")
        return given


class Said(Strict):
    """A turn with its speaker."""

    speaker: Annotated[
        str,
        Field(
            pattern=r"^(user|system|speaker_[1-9][0-9]{0,5})$",
            max_length=16,
            description="Who says it.",
            examples=["user"],
        ),
    ]
    text: Text


#: A conversation, newest turn last.
Turns = Annotated[
    list[Text | Said],
    Field(
        min_length=1,
        fail_fast=True,  # here and elsewhere: telling of every wrong one among 100,000 would keep others waiting
        description="A conversation, newest turn last; a turn is a text, or an object with its speaker. Turns without speakers"
        " are taken to alternate, the newest being the user's.",
        json_schema_extra={LIMIT: "texts"},
        examples=[
            [{"speaker": "system", "text": "How can I help?"}, {"speaker": "user", "text": "Where is my parcel?"}]
        ],
    ),
]


def turns_of(said: Sequence[str | Said]) -> tuple[Turn, ...]:
    """A conversation's turns. Those without a speaker are taken to alternate from the newest, which is the user's."""
    named = conversation([turn if isinstance(turn, str) else turn.text for turn in said])
    assert not isinstance(named, str)  # every text has a word
    return tuple(
        guessed if isinstance(turn, str) else Turn(turn.speaker, turn.text)
        for turn, guessed in zip(said, named, strict=True)
    )


def check_texts(texts: Sequence[str], limits: Limits, where: str, most: int | None = None) -> None:
    """Makes sure that a request stays within the limits.

    Raises:
        ServiceError: if there are too many texts, or one is too long.
    """
    most = limits.texts if most is None else most
    if len(texts) > most:
        raise ServiceError(
            422,
            f"{where}: {len(texts):,} texts are more than {most:,}: send fewer at a time",
            code="too_many",
            param=where,
        )
    for number, text in enumerate(texts):
        if len(text) > limits.characters:
            place = f"{where}.{number}"
            message = f"{place}: {len(text):,} characters are more than {limits.characters:,}"
            raise ServiceError(422, message, code="too_long", param=place)


def check_conversation(said: Sequence[str | Said], limits: Limits, where: str) -> None:
    """Makes sure that a conversation stays within the limits.

    Raises:
        ServiceError: as in `check_texts`.
    """
    check_texts([turn if isinstance(turn, str) else turn.text for turn in said], limits, where)


@dataclass(frozen=True, slots=True)
class Known:
    """What a description of the interface tells of this service: its limits, and the model's vector size and number of tokens."""

    limits: Limits
    size: int | None = None
    tokens: int | None = None


def with_limits(schema: Any, known: Known) -> Any:
    """A description of the interface with the limits that hold for this service put in."""
    if isinstance(schema, list):
        return [with_limits(each, known) for each in schema]
    if not isinstance(schema, dict):
        return schema
    told = {key: with_limits(value, known) for key, value in schema.items() if key != LIMIT}
    match schema.get(LIMIT):
        case "texts":
            told["maxItems"] = known.limits.texts
        case "characters":
            told["maxLength"] = known.limits.characters
        case "tokens" if known.tokens is not None:
            told["maximum"] = known.tokens - 1
        case "size" if known.size is not None:
            told["anyOf"] = [{"type": "integer", "minimum": known.size, "maximum": known.size}, {"type": "null"}]
    return told
