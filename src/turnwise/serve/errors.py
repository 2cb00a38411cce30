"""How the service says no: one shape for every error, whoever finds it."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnwise.core.errors import TurnwiseError
from turnwise.core.journal import JournalError

#: What kind of error a status is, in the words that clients of OpenAI's interface know.
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

#: Error codes for statuses that say all by themselves.
_CODES = {404: "not_found", 405: "method_not_allowed"}


class Fault(BaseModel):
    """What is wrong."""

    model_config = ConfigDict(extra="forbid")

    message: str = Field(description="What is wrong and what to do, in a sentence or two.")
    type: str = Field(description="The kind of error.")
    param: str | None = Field(description="The part of the request that is at fault, where one is.")
    code: str | None = Field(description="The error in a word, for programs.")


class ErrorBody(BaseModel):
    """What every error looks like."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "error": {
                    "message": "texts.0: a text needs a word at least",
                    "type": "invalid_request_error",
                    "param": "texts.0",
                    "code": "invalid",
                }
            }
        },
    )

    error: Fault


class ServiceError(HTTPException):
    """A request cannot be answered as asked."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(status, message, dict(headers) if headers else None)
        self.code = code
        self.param = param


def error_response(
    status: int,
    message: str,
    *,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error as it is sent."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    body = {"error": {"message": message, "type": kind, "param": param, "code": code or _CODES.get(status)}}
    return Response(to_json(body), status, headers, media_type="application/json")


async def refuse(
    scope: Scope, receive: Receive, send: Send, status: int, message: str, code: str, **headers: str
) -> None:
    """Sends an error from where there is no route yet; an underscore in a header's name stands for a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    await error_response(status, message, code=code, headers=named)(scope, receive, send)


def not_configured(what: str, option: str) -> NoReturn:
    """Refuses what the service was not given.

    Raises:
        ServiceError: always.
    """
    raise ServiceError(
        404, f"this service has no {what}: start it with `turnwise serve {option}`", code="not_configured"
    )


def documented(*statuses: int, media_type: str | None = None) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for its description: those named and those that any route may give.

    Args:
        statuses: of errors that the route may give besides.
        media_type: of what it gives where all is well, if that is text and not JSON.
    """
    told = {
        400: "The request is not JSON, or not what HTTP allows.",
        401: "A key is needed, and this is none.",
        404: "There is no such thing, or the service was not given it.",
        408: "The request came too slowly.",
        409: "The request does not fit the present state.",
        413: "The body is too large.",
        415: "The body is not `application/json`.",
        422: "The request is JSON, but not of the form that is documented here.",
        503: "The service is loading, stopping, or has too much waiting; `Retry-After` says when to ask again.",
        504: "The answer took too long.",
    }
    responses: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorBody, "description": told[status]} for status in sorted({400, 401, 503, 504, *statuses})
    }
    if media_type is not None:
        responses[200] = {"description": "The text.", "content": {media_type: {"schema": {"type": "string"}}}}
    return responses


#: The errors of routes that take a body.
BODY_ERRORS = (408, 413, 415, 422)


def install_handlers(app: FastAPI) -> None:
    """Has an application answer every error in the one shape."""

    @app.exception_handler(AnyHTTPException)
    async def on_http(request: Request, error: AnyHTTPException) -> Response:
        code, param = getattr(error, "code", None), getattr(error, "param", None)
        message = error.detail
        if error.status_code == 404 and code is None:
            message = f"there is no {request.method} {request.url.path} here: /openapi.json says what there is"
        return error_response(error.status_code, message, code=code, param=param, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        message, param = _told(error.errors())
        return error_response(422, message, code="invalid", param=param)

    @app.exception_handler(TurnwiseError)
    async def on_refused(_: Request, error: TurnwiseError) -> Response:
        return error_response(409, str(error), code="refused")

    @app.exception_handler(JournalError)
    async def on_unwritten(_: Request, error: JournalError) -> Response:
        return error_response(503, f"nothing was changed: {error}", code="not_written", headers={"retry-after": "60"})


def _told(errors: Sequence[Any]) -> tuple[str, str | None]:
    """The first thing that is wrong with a request, and where; the branches of a choice are left out of the place."""
    deepest = max(errors, key=lambda each: len(_place(each["loc"])))
    if tuple(deepest["loc"]) == ("body",) and deepest["type"] == "missing":
        return "a body is needed: send JSON", None
    place = ".".join(map(str, _place(deepest["loc"])))
    message = deepest["msg"].removeprefix("Value error, ")
    return (f"{place}: {message}" if place else message), place or None


def _place(location: Sequence[str | int]) -> list[str | int]:
    kept: list[str | int] = []
    for part in location[1:]:
        if isinstance(part, int) or (part.isidentifier() and part.islower() and part not in ("str", "int")):
            kept.append(part)
    return kept
