"""Word vectors learnt from a corpus by GloVe (Pennington et al., 2014); averaged, they are what sentence encoders have to beat.

How often words stand near one another is counted in a stream over the corpus; the vectors are then fitted to the logarithms of the
counts. What is written is a text file such as GloVe's authors give away, for `turnwise evaluate glove:FILE`.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import coo_array, csr_array
from torch.nn import functional

from turnwise.core.errors import TurnwiseError
from turnwise.core.files import sync_to_disk
from turnwise.core.progress import Progress, silent
from turnwise.core.text import tokenise_words
from turnwise.corpus.store import Corpus

#: Words whose neighbours are counted at once: what is held besides the distinct pairs.
CHUNK_WORDS = 1 << 19

#: Dialogues between two reports of how far the counting is.
DIALOGUES = 2_000

#: An epoch is cut into about so many batches, within these sizes: larger ones are faster, but each is one step for its pairs.
BATCHES = 200
SMALLEST_BATCH = 256
LARGEST_BATCH = {"cpu": 4_096, "cuda": 65_536}

#: The paper's x_max and α: pairs that are counted less often than the first weigh less.
FULL_WEIGHT = 100.0
EXPONENT = 0.75

#: Keeps AdaGrad from dividing by zero, as in `torch.optim.Adagrad`.
_EPSILON = 1e-10


class WordVectorError(TurnwiseError):
    """Word vectors cannot be learnt or written as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What was learnt.

    Attributes:
        words: how many words have a vector.
        pairs: how many pairs of a word and another in its context were counted; a pair and its reverse are two.
        losses: the mean loss of a pair in each epoch, measured while the vectors change.
    """

    words: int
    pairs: int
    losses: tuple[float, ...]


def train_word_vectors(
    corpus: Corpus,
    out: Path,
    *,
    size: int = 100,
    window: int = 10,
    least: int = 5,
    epochs: int = 15,
    learning_rate: float = 0.05,
    seed: int = 1,
    progress: Progress = silent,
) -> Summary:
    """Learns a vector for every frequent word of a corpus and writes them to a file, most frequent word first.

    A line of the file is `word v1 … vd`. The file takes its name when it is whole; one that is there is replaced then. Without a
    GPU, equal arguments give equal files.

    What is made small is Σ f(X_ij) (w_i·w̃_j + b_i + b̃_j − log X_ij)² over all pairs with X_ij > 0, where X_ij is the sum of
    1/distance over the places where word j stands in the context of word i, and f(x) = min(1, (x/100)^¾). The vector that is
    written is w + w̃. AdaGrad goes through all pairs in each epoch, in a new order. Pairs of one batch are updated together: their
    gradients are taken at the same vectors and summed before the step; GloVe's own program takes a step for each pair. A batch is a
    200th of the pairs, but at least 256 and at most 4,096 (65,536 on a GPU). AdaGrad's sums of squares begin at zero, and numbers
    are first drawn uniformly from ±0.5/size. A word that never stands near another keeps its first, tiny vector.

    Args:
        corpus: what to learn from.
        out: the file to write; its folder is made if need be.
        size: numbers in a vector.
        window: how far apart two words of a turn may be, to either side; a context never crosses into another turn.
        least: words that occur fewer times are left out, before distances are measured.
        epochs: passes over all pairs.
        learning_rate: of AdaGrad.
        seed: of the first vectors and the order of pairs.
        progress: told how far it is.

    Raises:
        WordVectorError: if no word is frequent enough, no two words stand together, an argument is of no use, the file cannot be
            written, or the vectors grow beyond all bounds.
    """
    for name, value in (("size", size), ("window", window), ("least", least), ("epochs", epochs)):
        if value < 1:
            raise WordVectorError(f"{name}={value}: expected 1 or more")
    if not learning_rate > 0:
        raise WordVectorError(f"learning_rate={learning_rate}: expected more than 0")
    with _replacing(out) as file:
        words = frequent_words(corpus, least, progress)
        pairs = count_pairs(corpus, words, window, progress)
        vectors, losses = fit(pairs, size, epochs, learning_rate, seed, progress)
        line = " ".join(["%s", *["%.6f"] * size]) + "\n"
        file.writelines(line % (word, *vector) for word, vector in zip(words, vectors.tolist(), strict=True))
    return Summary(len(words), pairs.nnz, losses)


@contextmanager
def _replacing(out: Path) -> Iterator[TextIO]:
    """A file to write that takes its name when it is whole; what cannot be written is refused before the work begins."""
    if out.is_dir():
        raise WordVectorError(f"{out} is a folder: word vectors are one file, choose another --out")
    part = out.with_name(f".writing-{out.name}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        file = part.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise WordVectorError(f"{out} cannot be written ({error.strerror}): choose another --out") from None
    try:
        with file:
            yield file
        sync_to_disk(part)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


# ---- counting


def frequent_words(corpus: Corpus, least: int, progress: Progress = silent) -> list[str]:
    """The words, case folded, that occur at least so many times; most frequent first, equals in alphabetical order.

    Raises:
        WordVectorError: if there is none.
    """
    counts: Counter[str] = Counter()
    for text in _texts(corpus, "counting words", progress):
        counts.update(tokenise_words(text))
    if not counts or max(counts.values()) < least:
        raise WordVectorError(
            f"no word occurs {least} times in this corpus (its most frequent one: {max(counts.values(), default=0)}):"
            " take a larger corpus, or a smaller --min-count"
        )
    return sorted((word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word))


def count_pairs(corpus: Corpus, words: Sequence[str], window: int, progress: Progress = silent) -> Any:
    """X, how often words stand near one another: a symmetric sparse matrix in coordinate form, by the words' places in the list.

    Two places of one turn, at most `window` apart, add 1/distance to their words' entry, in both directions; other words are taken
    out of the turn first. Memory grows with the distinct pairs, not with the corpus.

    Raises:
        WordVectorError: if no two of the words stand together.
    """
    numbers = {word: number for number, word in enumerate(words)}
    # a pair is kept with the more frequent word first: half of the matrix
    half = csr_array((len(words), len(words)))
    for places, lengths in _chunks(_texts(corpus, "counting pairs", progress), numbers):
        half += _pairs_of(places, lengths, window, len(words))
    if not half.nnz:
        raise WordVectorError(
            "no two words that are frequent enough stand in one turn: take a corpus of longer turns, or a smaller --min-count"
        )
    return (half + half.T).tocoo()


def _texts(corpus: Corpus, what: str, progress: Progress) -> Iterator[str]:
    total = len(corpus)
    for number, dialogue in enumerate(corpus, 1):
        for turn in dialogue.turns:
            yield turn.text
        if number % DIALOGUES == 0 or number == total:
            progress(what, number, total)


def _chunks(
    texts: Iterator[str], numbers: dict[str, int]
) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
    """The known words of many texts end to end, as numbers, and how many each text has."""
    words, lengths = array("i"), array("i")
    for text in texts:
        known = [numbers[word] for word in tokenise_words(text) if word in numbers]
        words.extend(known)
        lengths.append(len(known))
        if len(words) >= CHUNK_WORDS:
            yield np.array(words), np.array(lengths)
            words, lengths = array("i"), array("i")
    yield np.array(words), np.array(lengths)


def _pairs_of(words: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], window: int, size: int) -> Any:
    """The entries that some texts add to X, each unordered pair once, the smaller number first."""
    texts = np.repeat(np.arange(len(lengths)), lengths)
    rows, columns, values = [], [], []
    for distance in range(1, min(window, int(lengths.max(initial=1)) - 1) + 1):
        together = texts[:-distance] == texts[distance:]
        left, right = words[:-distance][together], words[distance:][together]
        rows.append(np.minimum(left, right))
        columns.append(np.maximum(left, right))
        values.append(np.full(len(left), 1 / distance))
    if not rows:
        return csr_array((size, size))
    # equal pairs are summed in the conversion
    return coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(size, size)
    ).tocsr()


# ---- fitting


def pair_weights(counts: torch.Tensor) -> torch.Tensor:
    """f(X), what a pair weighs in the loss: min(1, (x/100)^¾)."""
    return (counts / FULL_WEIGHT).pow(EXPONENT).clamp(max=1)


class Factors:
    """The numbers that GloVe learns, and AdaGrad's sums of their squared gradients.

    A word's row is (w, b, 1) and a context's (w̃, 1, b̃), so that the product of two rows is w·w̃ + b + b̃; the ones stay as they are.

    Attributes:
        words: (words, size + 2).
        contexts: (words, size + 2).
    """

    def __init__(self, words: int, size: int, seed: int, device: torch.device):
        generator = torch.Generator().manual_seed(seed)
        first, second = ((torch.rand(words, size + 2, generator=generator) - 0.5) / size for _ in range(2))
        first[:, size + 1] = 1
        second[:, size] = 1
        self.size = size
        self.words, self.contexts = first.to(device), second.to(device)
        self._squares = torch.zeros_like(self.words), torch.zeros_like(self.contexts)

    def step(
        self, words: torch.Tensor, contexts: torch.Tensor, counts: torch.Tensor, learning_rate: float
    ) -> torch.Tensor:
        """One step of AdaGrad on the summed loss of some pairs; gives that loss as it was before.

        Args:
            words: the pairs' words (pairs,), as row numbers.
            contexts: the words in their contexts (pairs,).
            counts: X of each pair (pairs,); more than 0.
            learning_rate: the step's size before AdaGrad scales it.
        """
        products = (self.words.index_select(0, words) * self.contexts.index_select(0, contexts)).sum(1)
        differences = products - counts.log()
        weighted = pair_weights(counts) * differences
        slopes = 2 * weighted
        # both gradients before either side changes
        of_words = _row_gradients(words, self.contexts, contexts, slopes)
        of_contexts = _row_gradients(contexts, self.words, words, slopes)
        _adagrad(self.words, self._squares[0], *of_words, self.size + 1, learning_rate)
        _adagrad(self.contexts, self._squares[1], *of_contexts, self.size, learning_rate)
        return (weighted * differences).sum()

    def vectors(self) -> npt.NDArray[np.float32]:
        """The sum w + w̃ of every word (words, size)."""
        found: npt.NDArray[np.float32] = (self.words + self.contexts)[:, : self.size].cpu().numpy()
        return found


def _row_gradients(
    rows: torch.Tensor, others: torch.Tensor, columns: torch.Tensor, slopes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows that occur, each once, and for each the sum of slope × other row over its pairs: a product with a sparse matrix."""
    rows, order = rows.sort(stable=True)
    distinct, lengths = torch.unique_consecutive(rows, return_counts=True)
    starts = lengths.cumsum(0) - lengths
    gradients = functional.embedding_bag(columns[order], others, starts, mode="sum", per_sample_weights=slopes[order])
    return distinct, gradients


def _adagrad(
    values: torch.Tensor,
    squares: torch.Tensor,
    rows: torch.Tensor,
    gradients: torch.Tensor,
    fixed: int,
    learning_rate: float,
) -> None:
    """AdaGrad's step for some rows, each given once; the column `fixed` stays as it is."""
    gradients[:, fixed] = 0
    summed = squares.index_select(0, rows).addcmul_(gradients, gradients)
    squares.index_copy_(0, rows, summed)
    values.index_add_(0, rows, gradients / summed.sqrt_().add_(_EPSILON), alpha=-learning_rate)


def fit(
    pairs: Any, size: int, epochs: int, learning_rate: float, seed: int, progress: Progress = silent
) -> tuple[npt.NDArray[np.float32], tuple[float, ...]]:
    """The vectors (words, size) for a matrix of counts in coordinate form, and each epoch's mean loss of a pair.

    Raises:
        WordVectorError: if they grow beyond all bounds.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    words, contexts, counts = (
        torch.from_numpy(each).to(device) for each in (*pairs.coords, pairs.data.astype(np.float32))
    )
    factors = Factors(pairs.shape[0], size, seed, device)
    generator = torch.Generator().manual_seed(seed)
    batch = min(max(pairs.nnz // BATCHES, SMALLEST_BATCH), LARGEST_BATCH[device.type])
    losses: list[float] = []
    for epoch in range(1, epochs + 1):
        loss = torch.zeros((), dtype=torch.float64, device=device)
        for chosen in torch.randperm(pairs.nnz, generator=generator).to(device).split(batch):
            # row numbers are kept as 32-bit ones, which take half of the memory
            loss += factors.step(words[chosen].long(), contexts[chosen].long(), counts[chosen], learning_rate)
        losses.append(loss.item() / pairs.nnz)
        progress(f"learning: loss {losses[-1]:.4f}", epoch, epochs)
    vectors = factors.vectors()
    if not np.isfinite(vectors).all():
        raise WordVectorError(
            f"the vectors grow beyond all bounds at a learning rate of {learning_rate:g}: take a smaller one"
        )
    return vectors, tuple(losses)
