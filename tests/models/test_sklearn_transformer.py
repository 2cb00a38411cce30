"""The transformer behaves as scikit-learn's own do, and its vectors are the encoder's."""

import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from tests.helpers.encoders import RandomEncoder
from turnwise import Encoder, EncoderTransformer
from turnwise.models.trainable_encoder import TrainableEncoder

TEXTS = ["where is my parcel", "has it been shipped", "cancel my order", "I no longer want it"]
LABELS = ["track", "track", "cancel", "cancel"]


@pytest.fixture(scope="module")
def folder(tiny_folder) -> str:
    return str(tiny_folder("bert"))


@pytest.fixture(scope="module")
def encoder(folder: str) -> Encoder:
    return Encoder.load(folder)


@pytest.mark.filterwarnings("ignore:Can't test estimator")  # most checks need numbers as input
def test_scikit_learn_checks() -> None:
    results = check_estimator(EncoderTransformer(RandomEncoder()), on_fail="raise")
    assert any(each["status"] == "passed" for each in results)


@pytest.mark.parametrize("container", [list, tuple, iter, np.array, pd.Series, lambda texts: np.array(texts, object)])
def test_vectors_are_the_encoders(folder: str, encoder: Encoder, container) -> None:
    vectors = EncoderTransformer(folder).transform(container(TEXTS))
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, encoder.encode(TEXTS))


def test_conversations_and_options(folder: str, encoder: Encoder) -> None:
    inputs = [["hello", "how can I help?", "where is my parcel?"], "hello"]
    transformer = EncoderTransformer(folder, normalise=True, max_length=6)
    np.testing.assert_array_equal(
        transformer.fit_transform(inputs), encoder.encode(inputs, normalise=True, max_length=6)
    )


def test_parameters_and_clones(folder: str) -> None:
    transformer = EncoderTransformer(folder, max_length=8).fit(TEXTS)
    assert transformer.get_params() == {"encoder": folder, "normalise": None, "max_length": 8}
    copy = clone(transformer).set_params(normalise=True)
    assert (copy.max_length, copy.normalise, transformer.normalise) == (8, True, None)
    given = RandomEncoder()
    assert clone(EncoderTransformer(given)).encoder is given


@pytest.mark.parametrize("options", [{"max_length": 0}, {"max_length": "8"}, {"normalise": "yes"}])
def test_invalid_parameters(options: dict, folder: str) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        EncoderTransformer(folder, **options).transform(TEXTS)


def test_each_transformer_loads_the_model_that_is_in_the_folder_now(folder: str, tmp_path: Path) -> None:
    for seed in (0, 1):
        encoder = TrainableEncoder.load(folder, device="cpu")
        torch.nn.init.normal_(encoder.backbone.embeddings().word_embeddings.weight, generator=torch.manual_seed(seed))
        encoder.save(tmp_path / "model")
        transformer = EncoderTransformer(str(tmp_path / "model"))
        np.testing.assert_allclose(transformer.transform(TEXTS), encoder.encode(TEXTS), atol=1e-5)


def test_feature_names_and_pandas_output(folder: str, encoder: Encoder) -> None:
    transformer = EncoderTransformer(folder)
    names = transformer.get_feature_names_out()
    assert list(names) == [f"encodertransformer{number}" for number in range(encoder.hidden)]
    table = transformer.set_output(transform="pandas").fit_transform(pd.Series(TEXTS, index=[3, 1, 4, 5]))
    assert list(table.columns) == list(names) and list(table.index) == [3, 1, 4, 5]


def test_pickles_hold_the_name_and_not_the_weights(folder: str, tmp_path: Path) -> None:
    transformer = EncoderTransformer(folder).fit(TEXTS)
    assert len(pickle.dumps(transformer)) < 10_000
    joblib.dump(transformer, tmp_path / "transformer")
    loaded = joblib.load(tmp_path / "transformer")
    np.testing.assert_array_equal(loaded.transform(TEXTS), transformer.transform(TEXTS))


def test_pipelines(folder: str) -> None:
    pipeline = make_pipeline(EncoderTransformer(folder), StandardScaler(), LogisticRegression(C=100)).fit(TEXTS, LABELS)
    assert list(pipeline.predict(TEXTS)) == LABELS
    table = pd.DataFrame({"text": TEXTS, "length": [len(text) for text in TEXTS]})
    columns = make_column_transformer((EncoderTransformer(RandomEncoder(6)), "text"), ("passthrough", ["length"]))
    assert columns.fit_transform(table).shape == (4, 7)
    union = make_union(EncoderTransformer(RandomEncoder(6)), EncoderTransformer(RandomEncoder(5)))
    assert union.fit_transform(TEXTS).shape == (4, 11)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a single text", "give \\[text\\]"),
        (np.array([["a", "b"]]), "select one column"),
        (pd.DataFrame({"text": ["a"]}), "select one column"),
    ],
)
def test_wrong_inputs(texts, message: str) -> None:
    transformer = EncoderTransformer(RandomEncoder())
    for method in (transformer.fit, transformer.transform):
        with pytest.raises(ValueError, match=message):
            method(texts)


def test_importing_turnwise_imports_no_scikit_learn() -> None:
    code = "import sys, turnwise; assert 'EncoderTransformer' in dir(turnwise); sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
