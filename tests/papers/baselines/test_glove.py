"""Averaged word vectors: agreement with a loop, file layouts, malformed files."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.dialogue import Turn
from turnwise.core.errors import ModelError
from turnwise.papers.baselines.glove import GloVe

VECTORS = {"taxi": (1, 0, 2), "train": (0, 3, 1), "i": (0.5, -1, 0), "?": (0, 0, -4), "café": (2, 2, 2), "_": (9, 9, 9)}


def write(path: Path, vectors: dict[str, tuple[float, ...]] = VECTORS, header: str = "", end: str = "\n") -> Path:
    lines = [" ".join([word, *map(str, numbers)]) for word, numbers in vectors.items()]
    path.write_bytes((header + "".join(line + end for line in lines)).encode())
    return path


@pytest.fixture(scope="module")
def glove(tmp_path_factory: pytest.TempPathFactory) -> GloVe:
    return GloVe(write(tmp_path_factory.mktemp("glove") / "vectors.txt"))


def mean_vector(words: list[str]) -> npt.NDArray[np.float64]:
    known = [VECTORS[word] for word in words if word in VECTORS]
    return np.mean(known, axis=0) if known else np.zeros(3)


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from([*VECTORS, "boat", "."]), max_size=8), max_size=6))
def test_vectors_are_means_of_the_known_words(glove: GloVe, texts: list[list[str]]) -> None:
    vectors = glove.encode([" ".join(words) for words in texts])
    assert vectors.shape == (len(texts), 3)
    assert vectors.dtype == np.float32
    for vector, words in zip(vectors, texts, strict=True):
        np.testing.assert_allclose(vector, mean_vector(words), atol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Taxi?", ["taxi", "?"]),
        ("TAXI, train; I", ["taxi", "train", "i"]),
        ("taxi??", ["taxi", "?", "?"]),
        ("CAFÉ\ttaxi\n", ["café", "taxi"]),
        ("taxis i'm taxi_train", ["i"]),
        ("", []),
        (" \n", []),
        ("boat 😀", []),
    ],
)
def test_texts_are_split_into_words_and_punctuation(glove: GloVe, text: str, words: list[str]) -> None:
    np.testing.assert_allclose(glove.encode([text])[0], mean_vector(words), atol=1e-6)


def test_chinese_is_read_with_and_without_spaces(tmp_path: Path) -> None:
    vectors = {"快递": (1, 0), "快": (0, 9), "到": (0, 1), "了": (2, 2), "ems": (5, 0), "e": (9, 9)}
    glove = GloVe(write(tmp_path / "vectors.txt", vectors))
    segmented, unsegmented = glove.encode(["EMS 快递 什么 时候 到 了 ？", "EMS快递什么时候到了？"])
    np.testing.assert_allclose(segmented, np.mean([vectors[word] for word in ("ems", "快递", "到", "了")], axis=0))
    np.testing.assert_allclose(unsegmented, segmented)
    assert glove.encode(["到快递"], max_length=1).tolist() == [[0, 1]]  # of words, not of runs


def test_conversations_average_the_words_of_all_turns(glove: GloVe) -> None:
    expected = glove.encode(["taxi i train ?"])
    np.testing.assert_allclose(glove.encode([["taxi I", "train?"]]), expected, atol=1e-6)
    np.testing.assert_allclose(glove.encode([[Turn("user", "taxi I"), Turn("system", "train?")]]), expected, atol=1e-6)
    np.testing.assert_allclose(glove.encode("taxi i train ?"), expected, atol=1e-6)


def test_texts_are_truncated_at_the_end_and_conversations_at_the_start(glove: GloVe) -> None:
    vectors = glove.encode(["boat taxi train", ["boat", "taxi train ?"], ["boat taxi train"]], max_length=2)
    np.testing.assert_allclose(
        vectors, [mean_vector(["taxi"]), mean_vector(["train", "?"]), mean_vector(["taxi"])], atol=1e-6
    )


def test_cosine_without_known_words_is_zero(glove: GloVe) -> None:
    vectors = glove.encode(["boat", "taxi", "taxi taxi"], normalise=True)
    np.testing.assert_allclose(vectors @ vectors.T, [[0, 0, 0], [0, 1, 1], [0, 1, 1]], atol=1e-6)


@pytest.mark.parametrize(("header", "end"), [("", "\n"), ("6 3\n", "\n"), ("6 3 \r\n", " \r\n"), ("", " \n")])
def test_file_layouts(glove: GloVe, header: str, end: str, tmp_path: Path) -> None:
    loaded = GloVe(write(tmp_path / "vectors.txt", header=header, end=end))
    assert loaded.words == glove.words
    assert np.array_equal(loaded.vectors, glove.vectors)
    assert loaded.description == glove.description


def test_case_is_folded_and_the_first_line_of_a_word_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "vectors.txt", {"Taxi": (1, 2), "taxi": (3, 4), "TAXI": (5, 6), "Straße": (7, 8)})
    np.testing.assert_allclose(GloVe(path).encode(["taxi", "TAXI", "STRASSE"]), [[1, 2], [1, 2], [7, 8]])


def test_words_may_contain_spaces(tmp_path: Path) -> None:
    path = write(tmp_path / "vectors.txt", {"taxi": (1, 2), ". . .": (3, 4), "at someone": (5, 6), "train": (7, 8)})
    assert list(GloVe(path).words) == ["taxi", ". . .", "at someone", "train"]
    np.testing.assert_allclose(GloVe(path).encode(["taxi . train"]), [[4, 5]])


def test_descriptions_of_different_vectors_differ(glove: GloVe, tmp_path: Path) -> None:
    other = GloVe(write(tmp_path / "other.txt", {**VECTORS, "taxi": (1, 0, 3)}))
    renamed = GloVe(
        write(tmp_path / "renamed.txt", {"bus" if word == "taxi" else word: row for word, row in VECTORS.items()})
    )
    assert len({glove.description, other.description, renamed.description}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no word vectors"),
        ("2 3\n", "contains no word vectors"),
        ("taxi 1 2\ntrain 1\n", "line 2: expected a word and 2 values"),
        ("taxi 1 2\ntrain 1 2 3\n", "line 2: expected a word and 2 values"),
        ("taxi 1 2\n\n", "line 2: expected a word and 2 values"),
        ("taxi 1 2\n 1 2\n", "line 2: expected a word and 2 values"),
        ("taxi 1 2\ntrain  1 2\n", "line 2: expected a word and 2 values"),
        ("taxi\n", "line 1: expected a word and its values"),
        ("1 2\ntaxi 1\n", "line 2: expected a word and 2 values"),
        ("taxi 1 2\ntrain 1 two\n", "line 2: could not convert string to float"),
        ("taxi 1 2\ntrain 1 nan\n", "line 2: a value is not finite"),
        ("taxi 1 2\ntrain 1 1e60\n", "line 2: a value is not finite"),
        ("3 2\ntaxi 1 2\ntrain 3 4\n", "has 2 words, but 3 by its first line"),
    ],
)
def test_malformed_files_are_rejected_with_the_line_number(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(text)
    with pytest.raises(ModelError, match=message) as caught:
        GloVe(path)
    assert str(path) in str(caught.value)


def test_binary_and_missing_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "vectors.bin").write_bytes(b"taxi 1 2\n\xff\xfe\x00\n")
    with pytest.raises(ModelError, match="line 2: not UTF-8"):
        GloVe(tmp_path / "vectors.bin")
    with pytest.raises(ModelError, match=r"missing\.txt cannot be read \(No such file or directory\)"):
        GloVe(tmp_path / "missing.txt")
