"""Whitening: identity covariance and zero mean on what it was fitted on, equal to plain statements, and what is refused."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from turnwise.papers.baselines.flow import Flowed
from turnwise.papers.baselines.registry import KINDS, postprocess
from turnwise.papers.baselines.vectors import PostprocessingError, digest, fitting_vectors, unit
from turnwise.papers.baselines.whitening import Whitened


class Rows:
    """An encoder of which a test knows every vector: the text is the number of its row."""

    def __init__(self, rows: npt.NDArray[Any]):
        self.rows = rows.astype(np.float32)
        self.asked: list[tuple[bool | None, int | None]] = []

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        self.asked.append((normalise, max_length))
        return self.rows[[int(text) for text in inputs]]


def anisotropic(count: int, size: int, seed: int = 0) -> npt.NDArray[np.float64]:
    """Vectors far from zero, whose directions vary by very different amounts."""
    random = np.random.default_rng(seed)
    mixed = random.normal(size=(count, size)) @ random.normal(size=(size, size)) * np.geomspace(1, 0.05, size)
    return mixed + random.normal(scale=5, size=size)


def numbers(first: int, behind: int) -> list[str]:
    return [str(number) for number in range(first, behind)]


@settings(deadline=None, max_examples=30)
@given(size=st.integers(1, 12), more=st.integers(1, 60), seed=st.integers(0, 1000))
def test_what_it_was_fitted_on_is_white(size: int, more: int, seed: int) -> None:
    """Zero mean, and the identity as covariance."""
    count = 3 * size + more
    white = Whitened(Rows(anisotropic(count, size, seed)), numbers(0, count)).encode(numbers(0, count))
    assert white.shape == (count, size)
    assert white.dtype == np.float32
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(np.cov(white, rowvar=False).reshape(size, size), np.eye(size), atol=1e-5)


@pytest.mark.parametrize("dimensions", [None, 1, 5])
def test_new_texts_go_by_the_statistics_of_the_fitted_ones(dimensions: int | None) -> None:
    """Against the paper's formula by SVD, and scikit-learn's PCA; axes may point the other way."""
    rows = anisotropic(200, 8).astype(np.float32)
    found = Whitened(Rows(rows), numbers(0, 120), dimensions=dimensions).encode(numbers(120, 200))
    fitted = rows[:120].astype(np.float64)
    left, values, _ = np.linalg.svd(np.cov(fitted, rowvar=False))
    kernel = (left @ np.diag(1 / np.sqrt(values)))[:, :dimensions]
    plain = (rows[120:] - fitted.mean(0)) @ kernel
    np.testing.assert_allclose(np.abs(found), np.abs(plain), atol=1e-4)
    np.testing.assert_allclose(found @ found.T, plain @ plain.T, atol=1e-3)
    by_pca = PCA(dimensions, whiten=True, svd_solver="full").fit(fitted).transform(rows[120:])
    np.testing.assert_allclose(np.abs(found), np.abs(by_pca), atol=1e-4)


def test_directions_that_do_not_vary_are_dropped() -> None:
    """Fewer texts than numbers, or numbers that depend on others: noise is not blown up."""
    few = Whitened(Rows(anisotropic(6, 10)), numbers(0, 6))
    assert few.encode(numbers(0, 6)).shape == (6, 5)
    np.testing.assert_allclose(np.cov(few.encode(numbers(0, 6)), rowvar=False), np.eye(5), atol=1e-5)
    rows = anisotropic(100, 4)
    doubled = Whitened(Rows(np.concatenate([rows, rows, np.ones((100, 1))], 1)), numbers(0, 100))
    assert doubled.encode(numbers(0, 100)).shape == (100, 4)
    # as if the rest had not been there
    white = Whitened(Rows(rows), numbers(0, 100)).encode(numbers(0, 100))
    np.testing.assert_allclose(np.abs(doubled.encode(numbers(0, 100))), np.abs(white), atol=1e-4)


def test_the_encoder_is_asked_for_raw_vectors_and_vectors_are_normalised_behind() -> None:
    encoder = Rows(anisotropic(50, 4))
    whitened = Whitened(encoder, numbers(0, 50), max_length=7)
    raw = whitened.encode(numbers(0, 50))
    scaled = whitened.encode(numbers(0, 50), normalise=True, max_length=9)
    assert encoder.asked == [(False, 7), (False, None), (False, 9)]
    np.testing.assert_allclose(scaled, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)
    assert whitened.encode([]).shape == (0, 4)


def test_the_description_tells_different_maps_apart() -> None:
    encoder = Rows(anisotropic(50, 4))
    same = [Whitened(encoder, numbers(0, 40)).description for _ in range(2)]
    others = [
        Whitened(encoder, numbers(0, 50)).description,
        Whitened(encoder, numbers(0, 40), dimensions=2).description,
    ]
    assert same[0] == same[1]
    assert len({same[0], *others}) == 3
    assert same[0].startswith("whitening, 4 dimensions, statistics ")


def test_what_cannot_be_fitted_is_refused() -> None:
    encoder = Rows(np.concatenate([anisotropic(50, 4), np.full((2, 4), np.nan)]))
    for dimensions in (0, 5):
        with pytest.raises(PostprocessingError, match=r"vary in 4 directions; ask for 1 to 4"):
            Whitened(encoder, numbers(0, 50), dimensions=dimensions)
    with pytest.raises(PostprocessingError, match="1 texts are too few"):
        Whitened(encoder, ["0"])
    with pytest.raises(PostprocessingError, match="have the same vector"):
        Whitened(encoder, ["3", "3", "3"])
    with pytest.raises(PostprocessingError, match="vector of text 1 holds numbers that are not finite"):
        fitting_vectors(encoder, ["0", "50"], None)


def test_zeros_stay_zeros() -> None:
    vectors = np.array([[3, 4], [0, 0]], np.float32)
    np.testing.assert_allclose(unit(vectors), [[0.6, 0.8], [0, 0]])


def test_the_hash_sees_shapes_types_and_contents() -> None:
    arrays = [np.zeros(4, np.float32), np.zeros((2, 2), np.float32), np.zeros(2, np.float64), np.ones(4, np.float32)]
    assert len({digest(array) for array in arrays}) == 4
    assert digest(arrays[1].T) == digest(arrays[1])


@pytest.mark.parametrize(("kind", "expected"), [("whitening", Whitened), ("flow", Flowed)])
def test_post_processing_by_name(kind: str, expected: type) -> None:
    encoder = Rows(anisotropic(40, 4))
    found = postprocess(encoder, kind, numbers(0, 40), max_length=5)
    assert isinstance(found, expected)
    assert encoder.asked == [(False, 5)]
    assert found.description == expected(encoder, numbers(0, 40)).description


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(PostprocessingError, match=f"no post-processing 'bleaching': choose from {', '.join(KINDS)}"):
        postprocess(Rows(anisotropic(40, 4)), "bleaching", numbers(0, 40))
