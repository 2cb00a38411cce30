"""Whitening: covariance and mean, agreement with the paper's formula and scikit-learn, rejected input."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from tests.helpers.vector_table import VectorTable
from turnwise.core.errors import ModelError
from turnwise.papers.baselines.postprocessing import WhiteningPostprocessor, encode_for_fitting


def anisotropic(count: int, size: int, seed: int = 0) -> npt.NDArray[np.float64]:
    """Return vectors far from zero with very different variances."""
    random = np.random.default_rng(seed)
    rotation = np.linalg.qr(random.normal(size=(size, size)))[0]  # a random mixture could be nearly singular
    scaled = random.normal(size=(count, size)) * np.geomspace(1, 0.05, size)
    return scaled @ rotation + random.normal(scale=5, size=size)


def texts(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]


@given(size=st.integers(1, 12), more=st.integers(1, 60), seed=st.integers(0, 1000))
def test_fitted_texts_have_zero_mean_and_identity_covariance(size: int, more: int, seed: int) -> None:
    count = 3 * size + more
    white = WhiteningPostprocessor(VectorTable(anisotropic(count, size, seed)), texts(0, count)).encode(texts(0, count))
    assert white.shape == (count, size)
    assert white.dtype == np.float32
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(np.cov(white, rowvar=False).reshape(size, size), np.eye(size), atol=1e-5)


def test_new_texts_agree_with_the_formula_and_scikit_learn() -> None:
    """Up to the signs of the axes."""
    rows = anisotropic(200, 8).astype(np.float32)
    whitened = WhiteningPostprocessor(VectorTable(rows), texts(0, 120)).encode(texts(120, 200))
    fitted = rows[:120].astype(np.float64)
    left, values, _ = np.linalg.svd(np.cov(fitted, rowvar=False))
    plain = (rows[120:] - fitted.mean(0)) @ left @ np.diag(1 / np.sqrt(values))
    np.testing.assert_allclose(np.abs(whitened), np.abs(plain), atol=1e-4)
    np.testing.assert_allclose(whitened @ whitened.T, plain @ plain.T, atol=1e-3)
    by_pca = PCA(whiten=True, svd_solver="full").fit(fitted).transform(rows[120:])
    np.testing.assert_allclose(np.abs(whitened), np.abs(by_pca), atol=1e-4)


def test_directions_without_variance_are_dropped() -> None:
    """With fewer texts than dimensions, or with linearly dependent dimensions."""
    few = WhiteningPostprocessor(VectorTable(anisotropic(6, 10)), texts(0, 6))
    assert few.encode(texts(0, 6)).shape == (6, 5)
    np.testing.assert_allclose(np.cov(few.encode(texts(0, 6)), rowvar=False), np.eye(5), atol=1e-5)
    rows = anisotropic(100, 4)
    doubled = WhiteningPostprocessor(VectorTable(np.concatenate([rows, rows, np.ones((100, 1))], 1)), texts(0, 100))
    assert doubled.encode(texts(0, 100)).shape == (100, 4)
    # equal to whitening without the redundant dimensions
    white = WhiteningPostprocessor(VectorTable(rows), texts(0, 100)).encode(texts(0, 100))
    np.testing.assert_allclose(np.abs(doubled.encode(texts(0, 100))), np.abs(white), atol=1e-4)


def test_descriptions_of_different_maps_differ() -> None:
    encoder = VectorTable(anisotropic(50, 4))
    same = [WhiteningPostprocessor(encoder, texts(0, 40)).description for _ in range(2)]
    assert same[0] == same[1] != WhiteningPostprocessor(encoder, texts(0, 50)).description
    assert same[0].startswith("whitening, 4 dimensions, statistics ")


def test_unsuitable_vectors_are_rejected() -> None:
    encoder = VectorTable(np.concatenate([anisotropic(50, 4), np.full((2, 4), np.nan)]))
    with pytest.raises(ModelError, match="1 texts are too few"):
        WhiteningPostprocessor(encoder, ["0"])
    with pytest.raises(ModelError, match="have the same vector"):
        WhiteningPostprocessor(encoder, ["3", "3", "3"])
    with pytest.raises(ModelError, match="vector of text 1 is not finite"):
        encode_for_fitting(encoder, ["0", "50"])
