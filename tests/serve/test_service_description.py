"""The description of the interface is true: what it allows is taken, and limits are this service's own."""

import re

import jsonschema
import pytest
from starlette.testclient import TestClient

from tests.helpers.served import served
from turnwise.serve.schemas import _PATTERN, LIMIT, _with_a_word
from turnwise.serve.settings import Limits, ServeSettings

LIMITS = Limits(texts=7, characters=40)


@pytest.fixture(scope="module")
def client(tiny_folder) -> TestClient:
    with served(ServeSettings(model=str(tiny_folder("bert")), limits=LIMITS)) as client:
        yield client


@pytest.fixture(scope="module")
def described(client: TestClient) -> dict:
    return client.get("/openapi.json").json()


def operations(described: dict):
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            yield path, method, told


def test_every_route_says_what_it_does_and_how_it_refuses(described: dict) -> None:
    seen = set()
    for path, method, told in operations(described):
        seen.add(f"{method.upper()} {path}")
        assert told["summary"] and told["description"] and told["tags"], path
        assert {"400", "401", "503", "504"} <= set(told["responses"]), path
        assert method == "get" or {"408", "413", "415", "422"} <= set(told["responses"]), path
        for status, response in told["responses"].items():
            if status != "200":
                assert response["content"] == {
                    "application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}
                }, path
    expected = """GET /about, POST /embed, POST /v1/embeddings, GET /v1/models, GET /intents, POST /intents/predict,
        GET /intents/{intent}/examples, POST /intents/examples, POST /intents/examples/remove, POST /respond, POST /respond/answers,
        POST /conversations/similar, GET /conversations/clusters,
        GET /conversations/dialogue, POST /coherence, GET /map, POST /map/name, POST /map/merge,
        POST /map/split, POST /map/label, POST /map/undo, POST /map/redo, GET /map/next, GET /map/labels.csv, POST /map/fit,
        GET /report, GET /health, GET /ready, GET /metrics, POST /reload"""
    assert seen == {" ".join(each.split()) for each in expected.split(",")}


def test_objects_hold_what_is_documented_and_nothing_else(described: dict) -> None:
    for name, schema in described["components"]["schemas"].items():
        if name in ("HTTPValidationError", "ValidationError"):
            continue
        assert schema["additionalProperties"] is False, name


def test_the_limits_are_this_services_own(described: dict, client: TestClient) -> None:
    schemas = described["components"]["schemas"]
    inputs = schemas["EmbedRequest"]["properties"]["inputs"]
    assert inputs["maxItems"] == 7
    assert inputs["items"]["anyOf"][0]["maxLength"] == 40
    assert LIMIT not in str(described)
    size = client.get("/about").json()["size"]
    own = schemas["EmbeddingsRequest"]["properties"]["dimensions"]["anyOf"][0]
    assert (own["minimum"], own["maximum"]) == (size, size)


def test_examples_are_as_described_and_taken(described: dict, client: TestClient) -> None:
    tried = 0
    for path, method, told in operations(described):
        if method != "post":
            continue
        name = told["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        schema = described["components"]["schemas"][name]
        example = schema["example"]
        jsonschema.validate(example, {**schema, "components": described["components"]})
        answer = client.post(path, json=example)
        assert answer.status_code == 200 or answer.json()["error"]["code"] == "not_configured", (path, answer.text)
        tried += 1
    assert tried == 17


def test_the_pattern_of_a_text_is_what_is_taken() -> None:
    pattern = re.compile(_PATTERN)

    def is_taken(text: str) -> bool:
        try:
            return bool(_with_a_word(text))
        except ValueError:
            return False

    for number in [*range(0xD800), *range(0xE000, 0x10000), 0x1F642]:
        character = chr(number)
        assert bool(pattern.search(character)) == is_taken(character), hex(number)
    for text in ("", " a ", "a\0", "\0a", " \n ", "\na\n"):
        assert bool(pattern.search(text)) == is_taken(text)


def test_a_whole_number_may_be_written_with_a_point(client: TestClient) -> None:
    taken = client.post(
        "/v1/embeddings", content=b'{"input": [1.0, 2e0]}', headers={"content-type": "application/json"}
    )
    assert taken.status_code == 200
    for number in (b"1.5", b"true", b"1e400", b"-1.0"):
        body = b'{"input": [%s]}' % number
        refused = client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
        assert refused.status_code in (400, 422), number
