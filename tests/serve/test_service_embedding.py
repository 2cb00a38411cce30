"""Vectors over HTTP are those that the encoder gives."""

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


def test_texts_and_conversations_in_order(client: TestClient, encoder: Encoder) -> None:
    talk = [{"speaker": "system", "text": "How can I help?"}, "It is broken.", {"speaker": "user", "text": "Quite."}]
    answer = client.post("/embed", json={"inputs": [*TEXTS, talk, ["one", "two", "three"]]})
    assert answer.status_code == 200
    told = answer.json()
    assert told["size"] == encoder.hidden
    right = encoder.encode(
        [
            *TEXTS,
            [Turn("system", "How can I help?"), Turn("system", "It is broken."), Turn("user", "Quite.")],
            [Turn("user", "one"), Turn("system", "two"), Turn("user", "three")],
        ],
        normalise=True,
    )
    np.testing.assert_allclose(told["vectors"], right, atol=1e-6)


def test_vectors_as_the_model_gives_them(client: TestClient, encoder: Encoder) -> None:
    told = client.post("/embed", json={"inputs": TEXTS, "normalise": False}).json()
    np.testing.assert_allclose(told["vectors"], encoder.encode(TEXTS, normalise=False), atol=1e-5)


def test_the_openai_client_works_by_changing_the_address(client: TestClient, encoder: Encoder) -> None:
    asking = openai.OpenAI(base_url="http://testserver/v1", api_key="none", http_client=client, max_retries=0)
    right = encoder.encode(TEXTS, normalise=True)
    for form in ("float", "base64", openai.NOT_GIVEN):
        answer = asking.embeddings.create(model="text-embedding-3-small", input=TEXTS, encoding_format=form)
        assert [each.index for each in answer.data] == list(range(len(TEXTS)))
        vectors = [
            np.frombuffer(base64.b64decode(each.embedding), "<f4")
            if isinstance(each.embedding, str)
            else each.embedding
            for each in answer.data
        ]
        np.testing.assert_allclose(vectors, right, atol=1e-6)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(len(each) for each in encoder.tokenise(TEXTS))
    one = asking.embeddings.create(model="m", input=TEXTS[0], dimensions=encoder.hidden)
    np.testing.assert_allclose(one.data[0].embedding, right[0], atol=1e-6)
    assert [model.id for model in asking.models.list()] == [answer.model]
    with pytest.raises(openai.UnprocessableEntityError, match="not cut") as refused:
        asking.embeddings.create(model="m", input="x", dimensions=2)
    assert refused.value.body["param"] == "dimensions"


def test_token_ids_are_the_models_own(client: TestClient, encoder: Encoder) -> None:
    ids = encoder.backbone.tokenizer("where is my parcel", add_special_tokens=False)["input_ids"]
    right = encoder.encode(["where is my parcel"], normalise=True)[0]
    one = client.post("/v1/embeddings", json={"input": ids}).json()
    several = client.post("/v1/embeddings", json={"input": [ids, ids]}).json()
    np.testing.assert_allclose([each["embedding"] for each in [*one["data"], *several["data"]]], [right] * 3, atol=1e-6)
    beyond = client.post("/v1/embeddings", json={"input": [10**6]})
    assert is_error(beyond, 422, "invalid")


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "text",
        7,
        {},
        {"inputs": []},
        {"inputs": "text"},
        {"inputs": [""]},
        {"inputs": [" \n\t"]},
        {"inputs": ["a\0b"]},
        {"inputs": [7]},
        {"inputs": [None]},
        {"inputs": [[]]},
        {"inputs": [[["a"]]]},
        {"inputs": [["a", ""]]},
        {"inputs": [[{"speaker": "nobody", "text": "a"}]]},
        {"inputs": [[{"speaker": "user"}]]},
        {"inputs": [[{"speaker": "user", "text": "a", "mood": "glad"}]]},
        {"inputs": ["a"], "normalise": "yes"},
        {"inputs": ["a"], "normalise": None},
        {"inputs": ["a"], "more": 1},
        {"inputs": ["a"] * 21},
        {"inputs": [["a"] * 21]},
        {"inputs": ["a" * 301]},
        {"inputs": [["b", "a" * 301]]},
    ],
    ids=lambda body: str(body)[:40],
)
def test_what_is_not_as_documented_is_refused(client: TestClient, body: object) -> None:
    assert is_error(client.post("/embed", json=body), 422)


@pytest.mark.parametrize(
    "body",
    [
        {"input": []},
        {"input": ""},
        {"input": [[]]},
        {"input": [-1]},
        {"input": [1.5]},
        {"input": ["a", 1]},
        {"input": {"a": 1}},
        {"input": True},
        {"input": "a", "encoding_format": "hex"},
        {"input": "a", "dimensions": 0},
        {"input": "a", "dimensions": "8"},
        {"input": [2**80]},
    ],
    ids=lambda body: str(body)[:40],
)
def test_what_openai_would_not_take_is_refused(client: TestClient, body: object) -> None:
    assert is_error(client.post("/v1/embeddings", json=body), 422)


def test_an_error_says_where(client: TestClient) -> None:
    told = client.post("/embed", json={"inputs": ["fine", ["a", {"speaker": "user", "text": " "}]]}).json()["error"]
    assert told["param"] == "inputs.1.1.text"
    assert "needs a word" in told["message"]
