"""JSON responses: every error has the same shape."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from turnwise.core.errors import ProjectError, TurnwiseError

T = TypeVar("T")

#: Types and descriptions of errors by status; the types are as clients of the OpenAI API know them.
_ERRORS = {
    400: ("invalid_request_error", "The request is not valid JSON or HTTP."),
    401: ("authentication_error", "A valid API key is required."),
    403: ("permission_error", "The API key may only read."),
    404: ("not_found_error", "Not found, or not configured in this service."),
    408: ("timeout_error", "The client sent the request too slowly."),
    409: ("invalid_request_error", "The request conflicts with the current state."),
    413: ("invalid_request_error", "The body is too large."),
    415: ("invalid_request_error", "The body is not `application/json`."),
    422: ("invalid_request_error", "The request does not match the schema."),
    429: ("rate_limit_error", "Too many wrong API keys came from this address."),
    431: ("invalid_request_error", "The request has too many headers."),
    503: ("overloaded_error", "The service is loading, stopping or overloaded; see `Retry-After`."),
    504: ("timeout_error", "The request took too long."),
}

#: The folders of an absolute path.
_FOLDERS = re.compile(r"(?<![^\s'\"`(=])/(?:[^/\s'\"`]+/)*")

#: Default error codes by status.
_CODES = {404: "not_found", 405: "method_not_allowed"}

#: Errors of every route, and of every route with a body.
COMMON_ERRORS = (400, 401, 429, 431, 503, 504)
BODY_ERRORS = (403, 408, 413, 415, 422)


class ErrorDetail(BaseModel, extra="forbid"):
    """What is wrong."""

    message: str = Field(description="What is wrong and what to do.")
    type: str = Field(description="The kind of error.")
    param: str | None = Field(description="The invalid part of the request, if any.")
    code: str | None = Field(description="The error as a code.")


class ErrorResponse(BaseModel, extra="forbid"):
    """The body of every error."""

    error: ErrorDetail = Field(description="The error.")


class ServiceError(HTTPException):
    """A request cannot be answered."""

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
        self.code = code or _CODES.get(status)
        self.param = param

    def response(self) -> Response:
        """Return the response that reports it."""
        other = "server_error" if self.status_code >= 500 else "invalid_request_error"
        error_type, _ = _ERRORS.get(self.status_code, (other, ""))
        body = {"error": {"message": self.detail, "type": error_type, "param": self.param, "code": self.code}}
        return Response(to_json(body), self.status_code, self.headers, media_type="application/json")


def public_message(error: object) -> str:
    """Return the message of an error without the folders of this machine; of a path, its last name is left."""
    return _FOLDERS.sub("", str(error))


def json_response(value: Any) -> Response:
    """Return a JSON response; NaN and infinity become null."""
    return Response(to_json(value, inf_nan_mode="null"), media_type="application/json")


def configured(value: T | None, feature: str, option: str) -> T:
    """Return a part of the service; raise 404 if it was started without it."""
    if value is None:
        message = f"this service has no {feature}: start it with `turnwise serve {option}`"
        raise ServiceError(404, message, code="not_configured")
    return value


def unavailable(message: str, code: str, seconds: int = 1) -> ServiceError:
    """Return the error for a service that is loading, stopping or overloaded."""
    return ServiceError(503, message, code=code, headers={"retry-after": str(seconds)})


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return errors of a route for its OpenAPI description."""
    return {status: {"model": ErrorResponse, "description": _ERRORS[status][1]} for status in statuses}


def text_response(media_type: str) -> dict[int | str, dict[str, Any]]:
    """Return the successful response of a route that sends text instead of JSON, for its OpenAPI description."""
    return {200: {"description": "The text.", "content": {media_type: {"schema": {"type": "string"}}}}}


def install_handlers(app: FastAPI) -> None:
    """Make an application answer every exception as an `ErrorResponse`."""

    @app.exception_handler(StarletteHTTPException)
    async def on_http_error(request: Request, error: StarletteHTTPException) -> Response:
        if isinstance(error, ServiceError):
            return error.response()
        no_route = f"there is no route {request.method} {request.url.path}: see /openapi.json"
        message = no_route if error.status_code == 404 else error.detail
        return ServiceError(error.status_code, message, headers=error.headers).response()

    @app.exception_handler(RequestValidationError)
    async def on_validation_error(_: Request, error: RequestValidationError) -> Response:
        message, param = _first_error(error.errors())
        return ServiceError(422, message, code="invalid", param=param).response()

    @app.exception_handler(TurnwiseError)
    async def on_turnwise_error(_: Request, error: TurnwiseError) -> Response:
        return ServiceError(409, public_message(error), code="refused").response()

    @app.exception_handler(ProjectError)
    async def on_journal_error(_: Request, error: ProjectError) -> Response:
        return unavailable(f"nothing was changed: {public_message(error)}", "not_written", seconds=60).response()


def _first_error(errors: Sequence[Any]) -> tuple[str, str | None]:
    """Return the message and the path of the most deeply nested error; union members are left out of the path."""
    deepest = max(errors, key=lambda each: len(_path(each["loc"])))
    if tuple(deepest["loc"]) == ("body",) and deepest["type"] == "missing":
        return "the request needs a JSON body", None
    path = ".".join(map(str, _path(deepest["loc"])))
    message = deepest["msg"].removeprefix("Value error, ")
    return (f"{path}: {message}" if path else message), path or None


def _path(location: Sequence[str | int]) -> list[str | int]:
    return [
        part
        for part in location[1:]
        if isinstance(part, int) or (part.isidentifier() and part.islower() and part not in ("str", "int"))
    ]
