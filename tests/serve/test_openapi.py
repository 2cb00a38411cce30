"""The OpenAPI description: complete, strict, with the limits of the service, and examples that are accepted."""

import re

import jsonschema
import pytest
from starlette.testclient import TestClient

from tests.helpers.served import served
from turnwise.serve.schemas import _PATTERN, LIMIT, _check_text
from turnwise.serve.settings import Limits, ServeSettings

LIMITS = Limits(texts=7, characters=40)


@pytest.fixture(scope="module")
def client(tiny_folder) -> TestClient:
    with served(ServeSettings(model=str(tiny_folder("bert")), limits=LIMITS)) as client:
        yield client


@pytest.fixture(scope="module")
def description(client: TestClient) -> dict:
    return client.get("/openapi.json").json()


def operations(description: dict):
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_route_documents_itself_and_its_errors(description: dict) -> None:
    routes = set()
    for path, method, operation in operations(description):
        routes.add(f"{method.upper()} {path}")
        assert operation["summary"] and operation["description"] and operation["tags"], path
        assert {"400", "401", "503", "504"} <= set(operation["responses"]), path
        assert method == "get" or {"408", "413", "415", "422"} <= set(operation["responses"]), path
        for status, response in operation["responses"].items():
            if status != "200":
                assert response["content"] == {
                    "application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}
                }, path
    expected = """GET /about, POST /embed, POST /v1/embeddings, GET /v1/models, GET /intents, POST /intents/predict,
        GET /intents/{intent}/examples, POST /intents/examples, POST /intents/examples/remove, POST /respond,
        POST /respond/answers,
        POST /conversations/similar, GET /conversations/clusters,
        GET /conversations/dialogue, POST /coherence, GET /map, POST /map/name, POST /map/merge,
        POST /map/split, POST /map/label, POST /map/undo, POST /map/redo, GET /map/next, GET /map/labels.csv,
        POST /map/fit,
        GET /report, GET /overview, GET /health, GET /ready, GET /metrics, POST /reload"""
    assert routes == {" ".join(each.split()) for each in expected.split(",")}


def test_objects_have_no_additional_properties(description: dict) -> None:
    for name, schema in description["components"]["schemas"].items():
        if name in ("HTTPValidationError", "ValidationError"):
            continue
        assert schema["additionalProperties"] is False, name


def test_fields_of_responses_are_described(description: dict) -> None:
    schemas = description["components"]["schemas"]
    used, names = set(), ["ErrorResponse"]
    for path, _, operation in operations(description):
        schema = next(iter(operation["responses"]["200"]["content"].values()))["schema"]
        assert "$ref" in schema or schema == {"type": "string"}, path  # an object, or a text such as CSV
        names += re.findall(r"#/components/schemas/(\w+)", str(schema))
    while names:
        name = names.pop()
        used.add(name)
        assert schemas[name]["description"], name
        for field, schema in schemas[name]["properties"].items():
            assert schema.get("description"), (name, field)
            names += set(re.findall(r"#/components/schemas/(\w+)", str(schema))) - used
    assert len(used) > 30


def test_limits_of_the_service(description: dict, client: TestClient) -> None:
    schemas = description["components"]["schemas"]
    inputs = schemas["EmbedRequest"]["properties"]["inputs"]
    assert inputs["maxItems"] == 7
    assert inputs["items"]["anyOf"][0]["maxLength"] == 40
    assert LIMIT not in str(description)
    size = client.get("/about").json()["size"]
    own = schemas["EmbeddingsRequest"]["properties"]["dimensions"]["anyOf"][0]
    assert (own["minimum"], own["maximum"]) == (size, size)


def test_examples_are_valid_and_accepted(description: dict, client: TestClient) -> None:
    count = 0
    for path, method, operation in operations(description):
        if method != "post":
            continue
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        schema = description["components"]["schemas"][name]
        example = schema["example"]
        jsonschema.validate(example, {**schema, "components": description["components"]})
        answer = client.post(path, json=example)
        assert answer.status_code == 200 or answer.json()["error"]["code"] == "not_configured", (path, answer.text)
        count += 1
    assert count == 17


def test_text_pattern_matches_validation() -> None:
    pattern = re.compile(_PATTERN)

    def is_accepted(text: str) -> bool:
        try:
            return bool(_check_text(text))
        except ValueError:
            return False

    for number in [*range(0xD800), *range(0xE000, 0x10000), 0x1F642]:
        character = chr(number)
        assert bool(pattern.search(character)) == is_accepted(character), hex(number)
    for text in ("", " a ", "a\0", "\0a", " \n ", "\na\n"):
        assert bool(pattern.search(text)) == is_accepted(text)


def test_integers_written_as_floats(client: TestClient) -> None:
    taken = client.post(
        "/v1/embeddings", content=b'{"input": [1.0, 2e0]}', headers={"content-type": "application/json"}
    )
    assert taken.status_code == 200
    for number in (b"1.5", b"true", b"1e400", b"-1.0"):
        body = b'{"input": [%s]}' % number
        refused = client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
        assert refused.status_code in (400, 422), number
