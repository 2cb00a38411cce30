"""JSON documents, decoded one element at a time."""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from turnwise.corpus.storage.rejections import EXCERPT_LENGTH

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_TOO_DEEP = "the JSON is nested too deeply to be a dialogue"
_CLOSING = {"[": "]", "{": "}"}
_decode = json.JSONDecoder().raw_decode


class JsonTextError(ValueError):
    """A document that is not valid JSON from some place on."""

    def __init__(self, reason: str, line: int, text: str | None = None):
        super().__init__(reason)
        self.line = line
        self.text = text  # what stands there, if the place is known exactly


def parse_json(text: str) -> Any:
    """Return the value of a JSON document; raise a ValueError where it is invalid."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        position = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"not valid JSON: {error.msg}, {position}") from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise ValueError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def iterate_json(text: str, openings: str = "[{", opened: Collection[str] = ()) -> Iterator[tuple[int, str, Any]]:
    """Yield the members of a document that is one array or object: line, key ('' in an array) and value.

    Unlike `json.loads` this decodes one member at a time, and yields those before a `JsonTextError`. `openings` are
    '[', '{' or both: what the document may be. Of values under the keys `opened`, the members are yielded instead,
    those of an array with that key.
    """
    line, counted, position = 1, 0, _skip(text, 0)
    try:
        if not text.startswith(tuple(openings), position):
            expected = " or ".join("array" if opening == "[" else "object" for opening in openings)
            raise json.JSONDecodeError(f"expected a JSON {expected}", text, position)
        stack = [(_CLOSING[text[position]], "")]
        is_first, position = True, _skip(text, position + 1)
        while stack:
            closing, key = stack[-1]
            if text.startswith(closing, position):
                is_first, position = False, _skip(text, position + 1)
                stack.pop()
                continue
            if not is_first:
                position = _skip_mark(text, position, ",", "the file ends or breaks off here")
            line, counted = line + text.count("\n", counted, position), position
            if closing == "}":
                key, position = _decode(text, position)
                if not isinstance(key, str):
                    raise json.JSONDecodeError("expected a key and ':'", text, _skip(text, position))
                position = _skip_mark(text, position, ":", "expected a key and ':'")
            if closing == "}" and key in opened and text.startswith(("[", "{"), position):
                stack.append((_CLOSING[text[position]], key))
                is_first, position = True, _skip(text, position + 1)
                continue
            value, position = _decode(text, position)
            yield line, key, value
            is_first, position = False, _skip(text, position)
        if position < len(text):
            raise json.JSONDecodeError("unexpected content after the end of the document", text, position)
    except json.JSONDecodeError as error:
        reason = f"not valid JSON from here on ({error.msg}, column {error.colno}); the rest was not read"
        raise JsonTextError(reason, error.lineno, text[error.pos : error.pos + EXCERPT_LENGTH]) from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise JsonTextError(f"not valid JSON from here on ({error}); the rest was not read", line) from None
    except RecursionError:
        raise JsonTextError(_TOO_DEEP, line) from None


def _skip(text: str, position: int) -> int:
    """Return the position behind white space."""
    match = _WHITESPACE.match(text, position)
    return match.end() if match else position


def _skip_mark(text: str, position: int, mark: str, message: str) -> int:
    """Return the position behind a mark, which must be there, and white space around it."""
    position = _skip(text, position)
    if not text.startswith(mark, position):
        raise json.JSONDecodeError(message, text, position)
    return _skip(text, position + 1)
