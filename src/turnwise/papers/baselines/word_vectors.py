"""Train GloVe word vectors (Pennington et al., 2014) on a corpus, for `turnwise evaluate glove:FILE`."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import coo_array, csr_array
from torch.nn import functional

from turnwise.core.errors import ModelError
from turnwise.core.files import replacing
from turnwise.core.progress import Progress, silent
from turnwise.core.text import tokenise_words
from turnwise.corpus.storage.corpus import Corpus

CHUNK_WORDS = 1 << 19  # number of words whose co-occurrences are counted at once
PROGRESS_INTERVAL = 2_000  # number of dialogues between two progress reports of counting

#: Number of batches per epoch, within these batch sizes: larger batches are faster, but make fewer steps.
BATCHES_PER_EPOCH = 200
MIN_BATCH_SIZE = 256
MAX_BATCH_SIZE = {"cpu": 4_096, "cuda": 65_536}

#: The paper's x_max and α: pairs that are counted less often than x_max have less weight.
MAX_COUNT = 100.0
EXPONENT = 0.75

LEARNING_RATE = 0.05  # of AdaGrad, as in GloVe's own program
_EPSILON = 1e-10  # prevents division by zero in AdaGrad, as in `torch.optim.Adagrad`


@dataclass(frozen=True, slots=True)
class WordVectorSummary:
    """Summary of a training."""

    words: int  # the number of words with a vector
    pairs: int  # the number of (word, context word) pairs that were counted; a pair and its reverse are two
    losses: tuple[float, ...]  # the mean loss per pair in each epoch, measured while the vectors change


def train_word_vectors(
    corpus: Corpus,
    out: Path,
    *,
    size: int = 100,
    window: int = 10,
    min_count: int = 5,
    epochs: int = 15,
    seed: int = 1,
    progress: Progress = silent,
) -> WordVectorSummary:
    """Train a vector for every frequent word of a corpus and write them to a file, the most frequent word first.

    A line of the file is `word v1 … vd`. The file is replaced atomically. On a CPU, equal arguments give equal files.

    The loss is Σ f(X_ij) (w_i·w̃_j + b_i + b̃_j − log X_ij)² over all pairs with X_ij > 0, where X_ij is the sum of
    1/distance over the occurrences of word j in the context of word i, and f(x) = min(1, (x/100)^¾). The vector of a
    word is w + w̃. AdaGrad makes a step for a batch of pairs, whereas GloVe's own program makes one for each pair.

    The window is the maximum distance of two words, to either side; contexts do not cross turns. Words that occur less
    often than `min_count` are removed before distances are measured.
    """
    if out.is_dir():
        raise ModelError(f"{out} is a folder: word vectors are one file, choose another --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{out} cannot be written ({error.strerror}): choose another --out") from None
    with replacing(out, durable=True) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        words = frequent_words(corpus, min_count, progress)
        pairs = count_pairs(corpus, words, window, progress)
        vectors, losses = fit_vectors(pairs, size, epochs, seed, progress)
        line = " ".join(["%s", *["%.6f"] * size]) + "\n"
        file.writelines(line % (word, *vector) for word, vector in zip(words, vectors.tolist(), strict=True))
    return WordVectorSummary(len(words), pairs.nnz, losses)


def frequent_words(corpus: Corpus, min_count: int, progress: Progress = silent) -> list[str]:
    """Return the case-folded words with a minimum count, by decreasing count and then alphabetically."""
    counts: Counter[str] = Counter()
    for text in _iterate_texts(corpus, "counting words", progress):
        counts.update(tokenise_words(text))
    if not counts or max(counts.values()) < min_count:
        raise ModelError(
            f"no word occurs {min_count} times in this corpus (at most {max(counts.values(), default=0)}):"
            " use a larger corpus, or a smaller --min-count"
        )
    return sorted(
        (word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word)
    )


def count_pairs(corpus: Corpus, words: Sequence[str], window: int, progress: Progress = silent) -> Any:
    """Return the co-occurrence counts, a symmetric sparse matrix: the sums of 1/distance of words within the window."""
    indices = {word: index for index, word in enumerate(words)}
    # only the half of the matrix with the more frequent word first
    half = csr_array((len(words), len(words)))
    for word_indices, lengths in _iterate_chunks(_iterate_texts(corpus, "counting pairs", progress), indices):
        half += _count_chunk(word_indices, lengths, window, len(words))
    if not half.nnz:
        raise ModelError(
            "no two frequent words occur in one turn: use a corpus of longer turns, or a smaller --min-count"
        )
    return (half + half.T).tocoo()


def _iterate_texts(corpus: Corpus, step: str, progress: Progress) -> Iterator[str]:
    total = len(corpus)
    for number, dialogue in enumerate(corpus, 1):
        for turn in dialogue.turns:
            yield turn.text
        if number % PROGRESS_INTERVAL == 0 or number == total:
            progress(step, number, total)


def _iterate_chunks(
    texts: Iterator[str], indices: dict[str, int]
) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
    """Yield the frequent words of many texts as one array of indices, with the number of words of each text."""
    words, lengths = array("i"), array("i")
    for text in texts:
        text_words = [indices[word] for word in tokenise_words(text) if word in indices]
        words.extend(text_words)
        lengths.append(len(text_words))
        if len(words) >= CHUNK_WORDS:
            yield np.array(words), np.array(lengths)
            words, lengths = array("i"), array("i")
    yield np.array(words), np.array(lengths)


def _count_chunk(words: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], window: int, size: int) -> Any:
    """Return what a chunk of texts adds to X, each unordered pair once, the smaller index first."""
    texts = np.repeat(np.arange(len(lengths)), lengths)
    rows, columns, values = [], [], []
    for distance in range(1, min(window, int(lengths.max(initial=1)) - 1) + 1):
        same_text = texts[:-distance] == texts[distance:]
        left, right = words[:-distance][same_text], words[distance:][same_text]
        rows.append(np.minimum(left, right))
        columns.append(np.maximum(left, right))
        values.append(np.full(len(left), 1 / distance))
    if not rows:
        return csr_array((size, size))
    # the conversion sums equal pairs
    return coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(size, size)
    ).tocsr()


class Factors:
    """The parameters of GloVe, and AdaGrad's sums of their squared gradients.

    A word's row is (w, b, 1) and a context's (w̃, 1, b̃), so that the product of two rows is w·w̃ + b + b̃; the ones are
    constant.
    """

    def __init__(self, words: int, size: int, seed: int, device: torch.device):
        generator = torch.Generator().manual_seed(seed)
        first, second = ((torch.rand(words, size + 2, generator=generator) - 0.5) / size for _ in range(2))
        first[:, size + 1] = 1
        second[:, size] = 1
        self.size = size
        #: (words, size + 2)
        self.words, self.contexts = first.to(device), second.to(device)
        self._squares = torch.zeros_like(self.words), torch.zeros_like(self.contexts)

    def step(self, words: torch.Tensor, contexts: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Make a step of AdaGrad on the summed loss of pairs with the counts X; return the loss before the step."""
        products = (self.words.index_select(0, words) * self.contexts.index_select(0, contexts)).sum(1)
        differences = products - counts.log()
        weighted = (counts / MAX_COUNT).pow(EXPONENT).clamp(max=1) * differences  # f(X)
        slopes = 2 * weighted
        # both gradients before either side changes
        word_gradients = _row_gradients(words, self.contexts, contexts, slopes)
        context_gradients = _row_gradients(contexts, self.words, words, slopes)
        _adagrad(self.words, self._squares[0], *word_gradients, self.size + 1)
        _adagrad(self.contexts, self._squares[1], *context_gradients, self.size)
        return (weighted * differences).sum()

    def vectors(self) -> npt.NDArray[np.float32]:
        """Return w + w̃ of every word (words, size)."""
        vectors: npt.NDArray[np.float32] = (self.words + self.contexts)[:, : self.size].cpu().numpy()
        return vectors


def _row_gradients(
    rows: torch.Tensor, others: torch.Tensor, columns: torch.Tensor, slopes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the distinct rows, and for each the sum of slope × other row over its pairs (a sparse matrix product)."""
    rows, order = rows.sort(stable=True)
    distinct, lengths = torch.unique_consecutive(rows, return_counts=True)
    starts = lengths.cumsum(0) - lengths
    gradients = functional.embedding_bag(columns[order], others, starts, mode="sum", per_sample_weights=slopes[order])
    return distinct, gradients


def _adagrad(
    values: torch.Tensor, squares: torch.Tensor, rows: torch.Tensor, gradients: torch.Tensor, fixed: int
) -> None:
    """Make AdaGrad's step for distinct rows; the column `fixed` stays constant."""
    gradients[:, fixed] = 0
    summed = squares.index_select(0, rows).addcmul_(gradients, gradients)
    squares.index_copy_(0, rows, summed)
    values.index_add_(0, rows, gradients / summed.sqrt_().add_(_EPSILON), alpha=-LEARNING_RATE)


def fit_vectors(
    pairs: Any, size: int, epochs: int, seed: int, progress: Progress = silent
) -> tuple[npt.NDArray[np.float32], tuple[float, ...]]:
    """Fit vectors (words, size) to a count matrix in coordinate form, and return them with the mean loss per epoch."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    words, contexts, counts = (
        torch.from_numpy(each).to(device) for each in (*pairs.coords, pairs.data.astype(np.float32))
    )
    factors = Factors(pairs.shape[0], size, seed, device)
    generator = torch.Generator().manual_seed(seed)
    batch_size = min(max(pairs.nnz // BATCHES_PER_EPOCH, MIN_BATCH_SIZE), MAX_BATCH_SIZE[device.type])
    losses: list[float] = []
    for epoch in range(1, epochs + 1):
        loss = torch.zeros((), dtype=torch.float64, device=device)
        for batch in torch.randperm(pairs.nnz, generator=generator).to(device).split(batch_size):
            # rows are stored as 32-bit integers to save memory
            loss += factors.step(words[batch].long(), contexts[batch].long(), counts[batch])
        losses.append(loss.item() / pairs.nnz)
        progress(f"training: loss {losses[-1]:.4f}", epoch, epochs)
    return factors.vectors(), tuple(losses)
