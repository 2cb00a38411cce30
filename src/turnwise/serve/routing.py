"""How routes read and write JSON: strictly, and fast."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json, to_json

from turnwise.serve.errors import ServiceError
from turnwise.serve.observing import Tally
from turnwise.serve.service import Service


class StrictRequest(Request):
    """A request whose body is JSON as RFC 8259 has it: UTF-8, no NaN, no lone surrogates, nested to a depth that can be read."""

    async def json(self) -> Any:
        """The body.

        Raises:
            ServiceError: if it is not JSON.
        """
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise ServiceError(400, f"the body is not JSON: {error}", code="not_json") from None


class StrictRoute(APIRoute):
    """A route whose requests are read strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What handles a request."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly


def as_json(value: Any) -> Response:
    """An answer; numbers that JSON cannot hold are null."""
    return Response(to_json(value, inf_nan_mode="null"), media_type="application/json")


async def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def _tally(request: Request) -> Tally:
    found: Tally = request.scope["tally"]
    return found


#: What a route speaks to, and what it notes for the log.
Serving = Annotated[Service, Depends(_service)]
Noting = Annotated[Tally, Depends(_tally)]
