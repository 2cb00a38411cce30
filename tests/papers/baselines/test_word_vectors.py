"""Training of word vectors: counts and steps against loops, convergence, files, the command."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.helpers.tiny import divided
from turnwise.cli import app
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import ModelError
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.papers.baselines import word_vectors
from turnwise.papers.baselines.glove import GloVe
from turnwise.papers.baselines.word_vectors import Factors, count_pairs, frequent_words, train_word_vectors

FRUITS = ("apple", "pear", "plum")
DAYS = ("monday", "friday", "sunday")


def write_corpus(folder: Path, *dialogues: list[str]) -> Corpus:
    """Write a corpus of conversations given by their texts."""
    with StoreWriter(folder) as writer:
        for number, texts in enumerate(dialogues):
            writer.write(Dialogue(str(number), tuple(Turn("user", text) for text in texts)))
        writer.commit({"reader": "test", "licence": "none"})
    return read_corpus(folder)


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A corpus in which fruits share their contexts, and so do days."""
    eaten = [f"i ate a ripe {fruit} with cream" for fruit in FRUITS] + [f"the {fruit} tastes sweet" for fruit in FRUITS]
    met = [f"we open on {day} at nine" for day in DAYS] + [f"see you next {day} then" for day in DAYS]
    return write_corpus(tmp_path_factory.mktemp("market") / "store", *([each] for each in (eaten + met) * 10))


@given(
    texts=st.lists(
        st.lists(st.sampled_from(["a", "B", "c,", "d", "Rare"]), min_size=1, max_size=12), min_size=1, max_size=8
    ),
    window=st.integers(1, 14),
    chunk=st.sampled_from([1, 7, 1000]),
)
def test_counts_equal_those_of_a_loop(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], window: int, chunk: int
) -> None:
    corpus = write_corpus(tmp_path_factory.mktemp("texts"), [" ".join(words) for words in texts])
    words = ["a", "b", ",", "c", "d"]
    expected: defaultdict[tuple[int, int], float] = defaultdict(float)
    for text in texts:
        known = [word for piece in text for word in {"c,": ["c", ","]}.get(piece, [piece.lower()]) if word in words]
        for i, one in enumerate(known):
            for j, other in enumerate(known):
                if 0 < abs(i - j) <= window:
                    expected[words.index(one), words.index(other)] += 1 / abs(i - j)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_vectors, "CHUNK_WORDS", chunk)
        if not expected:
            with pytest.raises(ModelError, match="no two frequent words"):
                count_pairs(corpus, words, window)
            return
        pairs = count_pairs(corpus, words, window)
    counts = dict(zip(zip(*(each.tolist() for each in pairs.coords), strict=True), pairs.data.tolist(), strict=True))
    assert counts == pytest.approx(expected)


def test_words_are_counted_and_sorted(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "store", ["B b a a, c", "C b"], ["ß SS d,"])
    assert frequent_words(corpus, 2) == ["b", ",", "a", "c", "ss"]
    assert frequent_words(corpus, 3) == ["b"]
    with pytest.raises(ModelError, match=r"no word occurs 4 times .*at most 3\): .*smaller --min-count"):
        frequent_words(corpus, 4)


def step_by_loops(
    words: npt.NDArray[np.float64],
    contexts: npt.NDArray[np.float64],
    squares: list[npt.NDArray[np.float64]],
    pairs: list[tuple[int, int, float]],
    rate: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]:
    """Compute Pennington et al.'s equation 8 and its gradient pair by pair; each side has one bias column."""
    size = words.shape[1] - 2
    gradients = [np.zeros_like(words), np.zeros_like(contexts)]
    loss = 0.0
    for i, j, count in pairs:
        weight = (count / 100) ** 0.75 if count < 100 else 1.0
        difference = words[i, :size] @ contexts[j, :size] + words[i, size] + contexts[j, size + 1] - np.log(count)
        loss += weight * difference**2
        gradients[0][i, :size] += 2 * weight * difference * contexts[j, :size]
        gradients[1][j, :size] += 2 * weight * difference * words[i, :size]
        gradients[0][i, size] += 2 * weight * difference
        gradients[1][j, size + 1] += 2 * weight * difference
    for summed, gradient in zip(squares, gradients, strict=True):
        summed += gradient**2
    steps = [rate * gradient / (np.sqrt(summed) + 1e-10) for gradient, summed in zip(gradients, squares, strict=True)]
    return words - steps[0], contexts - steps[1], loss


@settings(max_examples=30, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.1, 500)), min_size=1, max_size=20),
        min_size=1,
        max_size=3,
    ),
    seed=st.integers(0, 100),
)
def test_steps_equal_those_of_a_loop(batches: list[list[tuple[int, int, float]]], seed: int) -> None:
    # in double precision: AdaGrad's first step is the sign of the gradient, which rounding may flip
    torch.set_default_dtype(torch.float64)
    try:
        factors = Factors(6, 4, seed, torch.device("cpu"))
    finally:
        torch.set_default_dtype(torch.float32)
    words, contexts = factors.words.numpy().copy(), factors.contexts.numpy().copy()
    squares = [np.zeros_like(words), np.zeros_like(contexts)]
    for pairs in batches:
        i, j, counts = (torch.from_numpy(np.array(each)) for each in zip(*pairs, strict=True))
        loss = factors.step(i, j, counts)
        words, contexts, expected = step_by_loops(words, contexts, squares, pairs, 0.05)
        assert loss.item() == pytest.approx(expected)
        np.testing.assert_allclose(factors.words.numpy(), words, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(factors.contexts.numpy(), contexts, rtol=1e-6, atol=1e-9)
    assert (factors.words[:, 5] == 1).all() and (factors.contexts[:, 4] == 1).all()
    np.testing.assert_allclose(factors.vectors(), words[:, :4] + contexts[:, :4], rtol=1e-6, atol=1e-9)


def test_words_with_equal_contexts_become_similar(market: Corpus, tmp_path: Path) -> None:
    steps: list[tuple[str, int, int | None]] = []
    summary = train_word_vectors(
        market,
        tmp_path / "v.txt",
        size=20,
        epochs=30,
        progress=lambda step, done, total=None: steps.append((step, done, total)),
    )
    glove = GloVe(tmp_path / "v.txt")
    vectors = glove.encode([*FRUITS, *DAYS], normalise=True)
    cosines = vectors @ vectors.T
    same_kind = np.kron(np.eye(2), np.ones((3, 3))).astype(bool)
    assert cosines[same_kind].min() > cosines[~same_kind].max() + 0.2
    assert summary.words == len(glove.words)
    assert len(summary.losses) == 30 and summary.losses[-1] < summary.losses[0] / 10
    assert [each[0].partition(":")[0] for each in steps] == ["counting words", "counting pairs", *["training"] * 30]
    assert all(done == total for step, done, total in steps if step.startswith("counting"))


def test_file_has_the_most_frequent_word_first(tmp_path: Path) -> None:
    texts = ["7 Trains, 7 TAXIS?", "7 trains… straße", "taxis 7 😀 Straße"]
    out = tmp_path / "new" / "folder" / "vectors.txt"
    summary = train_word_vectors(write_corpus(tmp_path / "store", texts), out, size=1, min_count=2)
    glove = GloVe(out)
    assert list(glove.words) == ["7", "strasse", "taxis", "trains"]
    assert glove.vectors.shape == (4, 1)
    assert (summary.words, summary.pairs) == (4, 13)  # every word with every other, and 7 with itself
    assert [path.name for path in out.parent.iterdir()] == ["vectors.txt"]


def test_equal_seeds_give_equal_files(market: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "MIN_BATCH_SIZE", 8)  # so that the order of pairs matters
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train_word_vectors(market, tmp_path / name, size=5, epochs=2, seed=seed)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"min_count": 1000}, "no word occurs 1000 times"), ({"window": 0}, "no two frequent words occur")],
)
def test_failed_training_keeps_the_existing_file(
    market: Corpus, tmp_path: Path, changes: dict[str, float], message: str
) -> None:
    (tmp_path / "v.txt").write_text("before")
    with pytest.raises(ModelError, match=message):
        train_word_vectors(market, tmp_path / "v.txt", **{"size": 5, "epochs": 2, **changes})  # type: ignore[arg-type]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"v.txt": "before"}


def test_unwritable_paths_are_rejected_before_counting(market: Corpus, tmp_path: Path) -> None:
    def fail(step: str, done: int, total: int | None = None) -> None:
        raise AssertionError("counting has started")

    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"v\.txt cannot be written .*another --out"):
        train_word_vectors(market, tmp_path / "file" / "v.txt", progress=fail)
    with pytest.raises(ModelError, match="is a folder: word vectors are one file"):
        train_word_vectors(market, tmp_path, progress=fail)


def test_command_trains_on_a_split(tmp_path: Path) -> None:
    store = divided().stores[0].folder
    common = ["glove", "--corpus", str(store), "--dimensions", "4", "--epochs", "2", "--out"]
    whole = CliRunner().invoke(
        app, [*common, str(tmp_path / "whole.txt")], env={"COLUMNS": "200"}, catch_exceptions=False
    )
    assert "that occur at least 5 times" in whole.stdout
    part = CliRunner().invoke(
        app, [*common, str(tmp_path / "part.txt"), "--split", "test", "--min-count", "2", "--window", "1", "--json"]
    )
    answer = json.loads(part.stdout)
    expected = frequent_words(read_corpus(store, splits=["test"]), 2)
    assert list(GloVe(tmp_path / "part.txt").words) == expected
    assert answer["words"] == len(expected)
    assert answer["pairs"] == count_pairs(read_corpus(store, splits=["test"]), expected, 1).nnz
    assert len(answer["losses"]) == 2
