"""Vectors over HTTP equal the encoder's."""

import base64

import numpy as np
import openai
import pytest
from starlette.testclient import TestClient

from tests.helpers.served import is_error, served
from turnwise import Encoder
from turnwise.core.dialogue import Turn
from turnwise.serve.settings import Limits, ServeSettings


@pytest.fixture(scope="module")
def folder(tiny_folder) -> str:
    return str(tiny_folder("bert"))


@pytest.fixture(scope="module")
def client(folder: str) -> TestClient:
    with served(ServeSettings(model=folder, limits=Limits(texts=20, characters=300))) as client:
        yield client


@pytest.fixture(scope="module")
def encoder(folder: str) -> Encoder:
    return Encoder.load(folder)


TEXTS = ["Where is my parcel?", "I want to send it back, please.", "ça va — 你好 🙂", "x"]


def test_texts_and_conversations(client: TestClient, encoder: Encoder) -> None:
    conversation = [
        {"speaker": "system", "text": "How can I help?"},
        "It is broken.",
        {"speaker": "user", "text": "Quite."},
    ]
    answer = client.post("/embed", json={"inputs": [*TEXTS, conversation, ["one", "two", "three"]]})
    assert answer.status_code == 200
    body = answer.json()
    assert body["size"] == encoder.hidden
    expected = encoder.encode(
        [
            *TEXTS,
            [Turn("system", "How can I help?"), Turn("system", "It is broken."), Turn("user", "Quite.")],
            [Turn("user", "one"), Turn("system", "two"), Turn("user", "three")],
        ],
        normalise=True,
    )
    np.testing.assert_allclose(body["vectors"], expected, atol=1e-6)


def test_not_normalised(client: TestClient, encoder: Encoder) -> None:
    body = client.post("/embed", json={"inputs": TEXTS, "normalise": False}).json()
    np.testing.assert_allclose(body["vectors"], encoder.encode(TEXTS, normalise=False), atol=1e-5)


def test_openai_client(client: TestClient, encoder: Encoder) -> None:
    api = openai.OpenAI(base_url="http://testserver/v1", api_key="none", http_client=client, max_retries=0)
    expected = encoder.encode(TEXTS, normalise=True)
    for form in ("float", "base64", openai.NOT_GIVEN):
        answer = api.embeddings.create(model="text-embedding-3-small", input=TEXTS, encoding_format=form)
        assert [each.index for each in answer.data] == list(range(len(TEXTS)))
        vectors = [
            np.frombuffer(base64.b64decode(each.embedding), "<f4")
            if isinstance(each.embedding, str)
            else each.embedding
            for each in answer.data
        ]
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(len(each) for each in encoder.tokenise(TEXTS))
    one = api.embeddings.create(model="m", input=TEXTS[0], dimensions=encoder.hidden)
    np.testing.assert_allclose(one.data[0].embedding, expected[0], atol=1e-6)
    assert [model.id for model in api.models.list()] == [answer.model]
    with pytest.raises(openai.UnprocessableEntityError, match="cannot be shortened") as refused:
        api.embeddings.create(model="m", input="x", dimensions=2)
    assert refused.value.body["param"] == "dimensions"


def test_token_ids(client: TestClient, encoder: Encoder) -> None:
    ids = encoder.backbone.tokenizer("where is my parcel", add_special_tokens=False)["input_ids"]
    expected = encoder.encode(["where is my parcel"], normalise=True)[0]
    one = client.post("/v1/embeddings", json={"input": ids}).json()
    several = client.post("/v1/embeddings", json={"input": [ids, ids]}).json()
    np.testing.assert_allclose(
        [each["embedding"] for each in [*one["data"], *several["data"]]], [expected] * 3, atol=1e-6
    )
    beyond = client.post("/v1/embeddings", json={"input": [10**6]})
    assert is_error(beyond, 422, "invalid")
    assert "send texts" in beyond.json()["error"]["message"]


def test_invalid_requests(client: TestClient) -> None:
    inputs: list[object] = ["text", [], [""], [" \n\t"], ["a\0b"], [7], [None], [[]], [[["a"]]], [["a", ""]]]
    inputs += [["a"] * 21, [["a"] * 21], ["a" * 301], [["b", "a" * 301]]]
    inputs += [[[{"speaker": "nobody", "text": "a"}]], [[{"speaker": "user"}]]]
    inputs += [[[{"speaker": "user", "text": "a", "mood": "glad"}]]]
    bodies: list[object] = [None, [], "text", 7, {}, *({"inputs": each} for each in inputs)]
    bodies += [{"inputs": ["a"], **more} for more in ({"normalise": "yes"}, {"normalise": None}, {"more": 1})]
    for body in bodies:
        assert is_error(client.post("/embed", json=body), 422), body
    for given in ([], "", [[]], [-1], [1.5], ["a", 1], {"a": 1}, True, [2**80]):
        assert is_error(client.post("/v1/embeddings", json={"input": given}), 422), given
    for more in ({"encoding_format": "hex"}, {"dimensions": 0}, {"dimensions": "8"}):
        assert is_error(client.post("/v1/embeddings", json={"input": "a", **more}), 422), more


def test_error_path(client: TestClient) -> None:
    body = client.post("/embed", json={"inputs": ["fine", ["a", {"speaker": "user", "text": " "}]]}).json()["error"]
    assert body["param"] == "inputs.1.1.text"
    assert "must contain a word" in body["message"]
