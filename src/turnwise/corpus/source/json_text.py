"""JSON documents as text."""

import json
from typing import Any


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
        raise ValueError("the JSON is nested too deeply to be a dialogue") from None
