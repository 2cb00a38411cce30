"""JSON documents, decoded one element at a time."""

import json
import re
from collections.abc import Collection, Generator, Iterator
from typing import Any

from turnwise.corpus.storage.rejections import EXCERPT_LENGTH

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_TOO_DEEP = "the JSON is nested too deeply to be a dialogue"
_decode = json.JSONDecoder().raw_decode


class JsonTextError(ValueError):
    """A document that is not valid JSON from some place on."""

    def __init__(self, reason: str, line: int, text: str | None = None):
        super().__init__(reason)
        self.line = line
        #: What stands there, if the place is known exactly.
        self.text = text


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

    Unlike `json.loads` this decodes one member at a time and yields those before an error.

    Args:
        text: the document.
        openings: '[', '{' or both: what the document may be.
        opened: keys whose values are opened: their own members are yielded instead, those of an array with that key.

    Raises:
        JsonTextError: at the first error.
    """
    members = _JsonMembers(text, opened)
    try:
        position = members.skip_space(0)
        if not text.startswith(tuple(openings), position):
            expected = " or ".join("array" if opening == "[" else "object" for opening in openings)
            raise json.JSONDecodeError(f"expected a JSON {expected}", text, position)
        position = yield from members.iterate(position, "")
        if (position := members.skip_space(position)) < len(text):
            raise json.JSONDecodeError("unexpected content after the end of the document", text, position)
    except json.JSONDecodeError as error:
        reason = f"not valid JSON from here on ({error.msg}, column {error.colno}); the rest was not read"
        raise JsonTextError(reason, error.lineno, text[error.pos : error.pos + EXCERPT_LENGTH]) from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise JsonTextError(f"not valid JSON from here on ({error}); the rest was not read", members.line) from None
    except RecursionError:
        raise JsonTextError(_TOO_DEEP, members.line) from None


class _JsonMembers:
    """Walks through the members of arrays and objects, and keeps the line."""

    def __init__(self, text: str, opened: Collection[str]):
        self._text = text
        self._opened = opened
        self._counted = 0
        self.line = 1

    def skip_space(self, position: int) -> int:
        match = _WHITESPACE.match(self._text, position)
        return match.end() if match else position

    def _skip_mark(self, mark: str, position: int, message: str) -> int:
        position = self.skip_space(position)
        if not self._text.startswith(mark, position):
            raise json.JSONDecodeError(message, self._text, position)
        return self.skip_space(position + 1)

    def iterate(self, position: int, key: str) -> Generator[tuple[int, str, Any], None, int]:
        """Yield the members of the array or object at a position; return the position behind it."""
        text = self._text
        is_object = text.startswith("{", position)
        closing = "}" if is_object else "]"
        position = self.skip_space(position + 1)
        at_end = text.startswith(closing, position)
        while not at_end:
            self.line, self._counted = self.line + text.count("\n", self._counted, position), position
            if is_object:
                key, position = _decode(text, position)
                if not isinstance(key, str):
                    raise json.JSONDecodeError("expected a key and ':'", text, self.skip_space(position))
                position = self._skip_mark(":", position, "expected a key and ':'")
            if is_object and key in self._opened and text.startswith(("[", "{"), position):
                position = yield from self.iterate(position, key)
            else:
                value, position = _decode(text, position)
                yield self.line, key, value
            position = self.skip_space(position)
            at_end = text.startswith(closing, position)
            if not at_end:
                position = self._skip_mark(",", position, "the file ends or breaks off here")
        return position + 1
