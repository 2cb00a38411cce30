"""The Python of docs/interoperability.md runs, and other libraries get the encoder's vectors."""

import importlib.util
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import ROOT
from tests.helpers.trial import listening
from turnwise import Encoder
from turnwise.serve.settings import ServeSettings

PAGE = (ROOT / "docs" / "interoperability.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN_ADDRESS = "http://localhost:8000"

TEXTS = ["Where is my parcel?", "I want my money back.\nPlease.", "ça va — 你好 🙂", "word " * 1_000]


def run_snippet(containing: str, address: str = SHOWN_ADDRESS) -> dict[str, Any]:
    """Run the code block of the page that contains a text, and return its variables."""
    (code,) = (snippet for snippet in SNIPPETS if containing in snippet)
    assert address == SHOWN_ADDRESS or SHOWN_ADDRESS in code
    variables: dict[str, Any] = {"__name__": "__main__"}
    exec(code.replace(SHOWN_ADDRESS, address), variables)
    return variables


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a service with the packaged model."""
    with listening(ServeSettings()) as address:
        yield address


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return Encoder.load("turnwise-small").encode(TEXTS, normalise=True)


def test_scikit_learn() -> None:
    pipeline = run_snippet("EncoderTransformer")["pipeline"]
    assert list(pipeline.predict(["is it on its way?", "stop the order, please"])) == ["track_order", "cancel_order"]


def test_openai_client(address: str, expected: np.ndarray) -> None:
    client = run_snippet("from openai", address)["client"]
    response = client.embeddings.create(model="turnwise-small", input=TEXTS)
    np.testing.assert_allclose([item.embedding for item in response.data], expected, atol=1e-6)


@pytest.mark.full
def test_langchain(address: str, expected: np.ndarray) -> None:
    pytest.importorskip("langchain_openai")
    embeddings = run_snippet("langchain_openai", address)["embeddings"]
    np.testing.assert_allclose(embeddings.embed_documents(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(embeddings.embed_query(TEXTS[1]), expected[1], atol=1e-6)
    sized = embeddings.model_copy(update={"dimensions": expected.shape[1], "chunk_size": 2})
    np.testing.assert_allclose(sized.embed_documents(TEXTS), expected, atol=1e-6)


@pytest.mark.full
def test_llama_index(address: str, expected: np.ndarray) -> None:
    pytest.importorskip("llama_index.embeddings.openai")
    embedding = run_snippet("llama_index", address)["embedding"]
    np.testing.assert_allclose(embedding.get_text_embedding_batch(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(embedding.get_query_embedding(TEXTS[1]), expected[1], atol=1e-6)


@pytest.mark.full
def test_mteb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    if importlib.util.find_spec("pytrec_eval") is None:  # only retrieval tasks use it
        monkeypatch.setitem(sys.modules, "pytrec_eval", types.ModuleType("pytrec_eval"))
    mteb = pytest.importorskip("mteb")
    from mteb.mocks.mock_tasks import MockClassificationTask

    monkeypatch.setattr(mteb, "get_tasks", lambda tasks: [MockClassificationTask()])  # the real one is downloaded
    monkeypatch.chdir(tmp_path)
    results = run_snippet("import mteb")["results"]
    assert results.model_name == "turnwise/turnwise-small"
    assert 0 <= results.task_results[0].get_score() <= 1
    assert list(Path("results").rglob("*.json"))
