"""`MtebEncoder` has the interface that mteb documents for encoders, and mteb's tasks accept it."""

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity
from torch.utils.data import DataLoader

from turnwise import Encoder, MtebEncoder

TEXTS = [f"text number {number}" for number in range(7)]


@pytest.fixture(scope="module")
def encoder(tiny_folder) -> Encoder:
    return Encoder.load(tiny_folder("bert"))


def test_vectors_of_batches(encoder: Encoder) -> None:
    model = MtebEncoder(encoder)
    batches = DataLoader([{"text": text, "title": "", "id": text} for text in TEXTS], batch_size=3)
    vectors = model.encode(
        batches,
        task_metadata=object(),
        hf_split="test",
        hf_subset="default",
        prompt_type="query",
        batch_size=3,
        show_progress_bar=False,
    )
    np.testing.assert_array_equal(vectors, encoder.encode(TEXTS))


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_similarities_are_cosines(encoder: Encoder, convert) -> None:
    model = MtebEncoder(encoder)
    first, second = np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)
    expected = cosine_similarity(first, second)
    np.testing.assert_allclose(model.similarity(convert(first), convert(second)), expected, atol=1e-6)
    np.testing.assert_allclose(model.similarity(convert(first[0]), convert(second)), expected[:1], atol=1e-6)
    pairs = model.similarity_pairwise(convert(first), convert(second))
    np.testing.assert_allclose(pairs, np.diag(expected), atol=1e-6)


def test_names(encoder: Encoder, tiny_folder) -> None:
    assert MtebEncoder(tiny_folder("bert")).name == "turnwise/bert"
    assert MtebEncoder(encoder, name="acme/support").name == "acme/support"
    with pytest.raises(ValueError, match="ORGANISATION/MODEL"):
        MtebEncoder(encoder, name="support")


def test_other_precisions_are_rejected(encoder: Encoder) -> None:
    with pytest.raises(ValueError, match="float32, not int8"):
        MtebEncoder(encoder).encode([], task_metadata=None, hf_split="test", hf_subset="default", precision="int8")


@pytest.fixture
def mteb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The package; pytrec_eval, which only retrieval metrics need and which must be compiled, may be missing."""
    pytest.importorskip("polars")
    if importlib.util.find_spec("pytrec_eval") is None:
        monkeypatch.setitem(sys.modules, "pytrec_eval", types.ModuleType("pytrec_eval"))
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path))
    return pytest.importorskip("mteb")


@pytest.mark.full
def test_scores_equal_those_of_sentence_transformers(mteb: Any, tiny_folder) -> None:
    """The same folder, evaluated by mteb with sentence-transformers and with turnwise."""
    from mteb.mocks import mock_tasks
    from mteb.models.models_protocols import EncoderProtocol
    from sentence_transformers import SentenceTransformer

    folder = tiny_folder("bert")
    model = MtebEncoder(folder)
    assert isinstance(model, EncoderProtocol)
    for task in (
        mock_tasks.MockClassificationTask,
        mock_tasks.MockMultilabelClassification,
        mock_tasks.MockPairClassificationTask,
        mock_tasks.MockSTSTask,
        mock_tasks.MockBitextMiningTask,
    ):
        ours, theirs = (
            mteb.evaluate(each, task(), cache=None, show_progress_bar=False).task_results[0].get_score()
            for each in (model, SentenceTransformer(str(folder), device="cpu"))
        )
        assert ours == pytest.approx(theirs, abs=1e-6), task.__name__


@pytest.mark.full
def test_results_are_cached_by_name_and_weights(mteb: Any, tiny_folder, tmp_path: Path) -> None:
    from mteb.mocks.mock_tasks import MockClassificationTask

    cache = mteb.ResultCache(tmp_path)
    model = MtebEncoder(tiny_folder("bert"), name="acme/support")
    meta = model.mteb_model_meta
    assert (meta.name, meta.embed_dim) == ("acme/support", model.encoder.hidden)
    mteb.evaluate(model, MockClassificationTask(), cache=cache, show_progress_bar=False)
    assert list(tmp_path.rglob(f"acme__support/{meta.revision}/*.json"))
    assert MtebEncoder(tiny_folder("roberta"), name="acme/support").mteb_model_meta.revision != meta.revision
