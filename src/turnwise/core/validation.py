"""Types with limits for settings that people write, and readable messages for what pydantic finds wrong with them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from turnwise.core.errors import RecipeError, did_you_mean

STRICT = ConfigDict(extra="forbid")  # of classes whose keys are fixed


def refuse_truth_value(value: Any) -> Any:
    """Refuse true and false, which pydantic would read as 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("number_type", "must be a number")
    return value


Number = Annotated[float, BeforeValidator(refuse_truth_value)]
Integer = Annotated[int, BeforeValidator(refuse_truth_value)]
Positive = Annotated[Number, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[Number, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[Number, Field(ge=0, le=1)]  # a proportion, 0 and 1 included
Rate = Annotated[Number, Field(ge=0, lt=1)]  # a proportion below 1, such as a dropout rate
PositiveInt = Annotated[Integer, Field(ge=1)]
NonNegativeInt = Annotated[Integer, Field(ge=0)]

#: Messages by the kinds of pydantic's errors, with fields of their context.
_MESSAGES = {
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be {ge:g} or more",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    "string_type": "must be a text",
    "tuple_type": "must be a list",
    "dict_type": "must consist of keys and values",
}


class InvalidKeyError(RecipeError):
    """A key has an invalid value, or does not exist."""

    def __init__(self, key: str, message: str):
        super().__init__(f"{key} {message}" if key else message)
        self.key = key  # dotted; empty for the whole
        self.message = message

    def under(self, parent: str) -> "InvalidKeyError":
        """Return the error for the key under a parent."""
        return InvalidKeyError(f"{parent}.{self.key}" if self.key else parent, self.message)


def check_keys(tree: Iterable[Any], known: Sequence[str]) -> None:
    """Raise `InvalidKeyError` for the first key that is not among the known ones."""
    for key in tree:
        if key not in known:
            suggestion = did_you_mean(str(key), known)
            raise InvalidKeyError(str(key), f"is unknown.{suggestion} The keys are {', '.join(known)}")


@contextmanager
def explaining_errors() -> Iterator[None]:
    """Raise `InvalidKeyError` for the first thing that pydantic finds wrong."""
    try:
        yield
    except ValidationError as error:
        raise _explain(error) from None


def validate(key: str, kind: Any, value: Any) -> Any:
    """Return the value of a key as a type; raise `InvalidKeyError` if it has another one."""
    try:
        with explaining_errors():
            return TypeAdapter(kind).validate_python(value)
    except InvalidKeyError as error:
        raise error.under(key) from None


def _explain(error: ValidationError) -> InvalidKeyError:
    errors = error.errors(include_url=False)
    first = errors[0]
    place = first["loc"][:1]
    key = "".join(map(str, place))
    if first["loc"][-1:] == ("[key]",):
        return InvalidKeyError(key, f"has the key {first['input']!r}, which is not a text")
    if first["type"] == "missing":
        return InvalidKeyError(key, "is missing")
    if first["type"] == "value_error":
        return InvalidKeyError(key, str(first["ctx"]["error"]))
    alternatives = [each for each in errors if each["loc"][:1] == place]  # of a union
    message = " or ".join(dict.fromkeys(map(_message, alternatives))).replace(" or must be ", " or ")
    return InvalidKeyError(key, f"{message}, got {first['input']!r}")


def _message(error: Any) -> str:
    context: dict[str, Any] = error.get("ctx", {})
    if error["type"] == "greater_than" and context["gt"] == 0:
        return "must be positive"
    message: str = _MESSAGES.get(error["type"], error["msg"])
    return message.format(**context)
