"""A service in the test's process, and a client for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.testclient import TestClient

from tests.helpers import HANG_SECONDS
from turnwise.serve.app import create_app
from turnwise.serve.settings import ServeSettings


@contextmanager
def served(settings: ServeSettings, **client: object) -> Iterator[TestClient]:
    """Yield a client of a service that is ready."""
    app = create_app(settings)
    with TestClient(app, raise_server_exceptions=False, **client) as test_client:  # type: ignore[arg-type]
        deadline = time.monotonic() + HANG_SECONDS
        while test_client.get("/ready").status_code != 200:
            assert app.state.service.failure is None, app.state.service.failure
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield test_client


def is_error(response, status: int, code: str | None = None) -> bool:
    """Check the shape of an error response, and return whether it has this status and code."""
    body = response.json()
    assert set(body) == {"error"}, body
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    return response.status_code == status and code in (None, body["error"]["code"])
