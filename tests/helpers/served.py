"""A service in the test's own process: an application with its models loaded, and a client for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.testclient import TestClient

from turnwise.serve.app import create_app
from turnwise.serve.settings import ServeSettings


@contextmanager
def served(settings: ServeSettings, **client: object) -> Iterator[TestClient]:
    """A client of a service that is ready."""
    app = create_app(settings)
    with TestClient(app, raise_server_exceptions=False, **client) as asking:  # type: ignore[arg-type]
        deadline = time.monotonic() + 60
        while asking.get("/ready").status_code != 200:
            assert app.state.service.failure is None, app.state.service.failure
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield asking


def is_error(answer, status: int, code: str | None = None) -> bool:
    """Whether an answer is an error of the one shape."""
    told = answer.json()
    assert set(told) == {"error"}, told
    assert set(told["error"]) == {"message", "type", "param", "code"}
    assert told["error"]["message"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    return answer.status_code == status and code in (None, told["error"]["code"])
