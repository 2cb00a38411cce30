"""Distillation of an encoder into a table of token vectors, by model2vec's method: the static model.

Each token of the vocabulary is encoded by itself, the vectors are reduced by PCA and weighted by the token's rarity,
estimated from its rank in the vocabulary (Zipf's law, SIF weights). A text's vector is the mean of its tokens'. Words
of a corpus that the vocabulary lacks can be added as tokens. With texts of a corpus, the table is fitted to them in two
steps:

1. Ridge regression from sums of token vectors to the encoder's vectors of the texts. It shrinks towards model2vec's
   table, so rows of rare tokens change little.
2. Two layers are put over the mean, which change nothing at first. Then gradient descent on the similarities: within a
   batch, the distribution of a text over the other texts (the softmax of cosines) approximates the encoder's.
"""

import logging
import random
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from torch import nn
from torch.nn.functional import embedding_bag, kl_div, normalize, relu
from transformers import PreTrainedTokenizerFast

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.imports import explain_missing_packages
from turnwise.core.progress import Progress, silent
from turnwise.core.text import tokenise_words
from turnwise.core.types import Vectors
from turnwise.models.backbone.exported import ExportedTokenizer, Layers, StaticTable
from turnwise.models.backbone.inputs import tokenise
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import STATIC
from turnwise.models.encoder import EncoderConfig
from turnwise.models.exported_encoder import ExportedEncoder
from turnwise.models.trainable_encoder import TrainableEncoder

#: The size of a vector, and how strongly frequent tokens are weighted down: model2vec's defaults.
DIMENSIONS = 256
_SIF_COEFFICIENT = 1e-4

#: Tokens that no text has.
_UNUSED = re.compile(r"\[unused\d+\]")

#: The ridge regression: its penalty, and the iterations of conjugate gradients.
_RIDGE_PENALTY, _RIDGE_ITERATIONS = 0.5, 10

#: The fit of similarities: epochs, texts per batch, and the temperature of the softmax.
_EPOCHS, _BATCH, _TEMPERATURE = 8, 1024, 0.05

#: The initial learning rates of the table and of the layers, and the units between the layers for each dimension.
_TABLE_RATE, _LAYER_RATE, _UNITS = 5e-4, 3e-3, 4

#: The least number of occurrences of a corpus word that becomes a token.
_MIN_COUNT = 5


class DistillationError(TurnwiseError):
    """An encoder cannot be distilled."""


def sample_corpus(
    dialogues: Iterable[Dialogue], words: int, texts: int, progress: Progress = silent
) -> tuple[list[str], list[str]]:
    """Return the most frequent words of conversations, and a random sample of their distinct texts.

    At most `words` words are returned, most frequent first; each occurs at least five times. `texts` turns are sampled,
    of which duplicates are removed.
    """
    counts: Counter[str] = Counter()
    sample: list[str] = []
    generator, seen = random.Random(0), 0
    for read, dialogue in enumerate(dialogues):
        for turn in dialogue.turns:
            counts.update(word for word in tokenise_words(turn.text) if word[0].isalpha())
            seen += 1
            # reservoir sampling
            index = len(sample) if len(sample) < texts else generator.randrange(seen)
            if index < texts:
                sample[index : index + 1] = [turn.text]
        if read % 256 == 0:
            progress("reading the corpus", read)
    frequent = [word for word, count in counts.most_common(words) if count >= _MIN_COUNT]
    return frequent, list(dict.fromkeys(sample))


def distil(
    encoder: TrainableEncoder,
    *,
    dimensions: int | None = DIMENSIONS,
    words: Sequence[str] = (),
    texts: Sequence[str] = (),
    progress: Progress = silent,
) -> ExportedEncoder:
    """Return a static encoder, whose vectors have length 1 by default.

    Args:
        encoder: to distil; it is not changed. The table is fitted on its device.
        dimensions: the size of a vector; None, or more than the encoder's: the encoder's own.
        words: become tokens if they are none yet.
        texts: that table and layers are fitted to; none: the table stays as model2vec makes it, without layers.
        progress: reports the number of encoded tokens and texts, and the steps of the fit.
    """
    with explain_missing_packages():
        from model2vec.distill.inference import apply_pca, compute_weights
        from model2vec.tokenizer import clean_and_create_vocabulary
        from skeletoken import TokenizerModel
    config, tokenizer = encoder.backbone.config, encoder.tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise DistillationError(f"{config.model_type} has a tokenizer written in Python, which cannot be distilled")
    with silence_libraries():
        original = TokenizerModel.from_transformers_tokenizer(tokenizer).prune_added_tokens()
        extended = clean_and_create_vocabulary(original, list(words), token_remove_regex=_UNUSED)
        tokens = extended.sorted_vocabulary
        vectors = _encode_tokens(encoder, tokens, progress)
        size = min(dimensions or encoder.hidden, encoder.hidden)
        weights = compute_weights(len(tokens), _SIF_COEFFICIENT)[:, None].astype(np.float32)
        static_tokenizer = ExportedTokenizer.plain(extended.to_tokenizer())
        layers = None
        if texts:
            table, layers = _fit_to_texts(encoder, static_tokenizer, vectors, weights, size, texts, progress)
        else:
            table = apply_pca(vectors, size) * weights
    folder = Path(str(getattr(config, "name_or_path", "")))
    static = StaticTable(table, static_tokenizer, folder, layers)
    # means do not depend on positions: speakers are lost, and turns are joined by nothing
    settings = EncoderConfig(max_length=encoder.max_length, normalise=True, marks=encoder.marks)
    return ExportedEncoder(static, static_tokenizer, settings, {"model_type": STATIC}, folder)


def _encode_tokens(encoder: TrainableEncoder, tokens: Sequence[str], progress: Progress) -> Vectors:
    """Encode each token by itself; an added word is encoded as a text."""
    composer, ids = encoder.composer, encoder.tokenizer.get_vocab()
    words = iter(encoder.tokenise([token for token in tokens if token not in ids]))
    sequences = [
        composer.history([np.array([ids[token]], np.int32)], ["user"], encoder.max_length)
        if token in ids
        else next(words)
        for token in tokens
    ]
    return encoder.encode_sequences(sequences, normalise=False, progress=progress)


def _fit_to_texts(
    encoder: TrainableEncoder,
    tokenizer: ExportedTokenizer,
    vectors: Vectors,
    weights: Vectors,
    size: int,
    texts: Sequence[str],
    progress: Progress,
) -> tuple[Vectors, Layers]:
    """Return a table and layers, by which texts have the similarities of the encoder's vectors."""
    targets = encoder.encode(
        texts, normalise=True, progress=lambda _, done, total=None: progress("encoding texts", done, total)
    )
    tokens = tokenise(tokenizer, texts).without(tokenizer.unk_token_id)
    rows = np.flatnonzero(tokens.lengths)
    tokens, targets = tokens.take(rows), targets[rows]
    centred = targets - targets.mean(0)
    # principal components of the texts, not of the tokens
    components = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :size]
    initial = (vectors - vectors.mean(0)) @ components * weights
    table = _fit_vectors(initial, tokens, centred @ components)
    return _fit_similarities(table, tokens, targets, encoder.device, progress)


def _fit_vectors(initial: Vectors, tokens: RaggedTokens, targets: Vectors) -> Vectors:
    """Return the ridge regression from texts to targets; the penalty is the distance from the scaled initial table.

    A text is the sum of its tokens' vectors over the square root of their number. This is between the mean, by which
    long texts would have too short vectors, and the sum, by which they would have too long ones.
    """
    scale = np.repeat(1 / np.sqrt(tokens.lengths), tokens.lengths).astype(np.float32)
    ends = np.append(tokens.starts, len(tokens.tokens))
    texts = sparse.csr_array((scale, tokens.tokens, ends), shape=(len(tokens), len(initial)))
    columns = texts.T.tocsr()
    predicted = texts @ initial
    start = initial * ((predicted * targets).sum() / max((predicted**2).sum(), 1e-12))
    # conjugate gradients for (XᵀX + penalty) change = Xᵀ(targets - X start), preconditioned by the diagonal
    change = np.zeros_like(start)
    residual = columns @ (targets - texts @ start)
    diagonal = (columns**2).sum(1)[:, None] + _RIDGE_PENALTY
    direction = residual / diagonal
    error = (residual * direction).sum(0)
    for _ in range(_RIDGE_ITERATIONS):
        product = columns @ (texts @ direction) + _RIDGE_PENALTY * direction
        step = error / np.maximum((direction * product).sum(0), 1e-12)
        change += step * direction
        residual -= step * product
        scaled = residual / diagonal
        before, error = error, (residual * scaled).sum(0)
        direction = scaled + error / np.maximum(before, 1e-12) * direction
    table: Vectors = (start + change).astype(np.float32)
    return table


def _fit_similarities(
    initial: Vectors, tokens: RaggedTokens, targets: Vectors, device: str, progress: Progress
) -> tuple[Vectors, Layers]:
    """Fit a table and layers so that the cosines of texts are those of targets of length 1.

    The loss is the Kullback-Leibler divergence of the softmax over the other texts of a batch. Rows of tokens that no
    text has do not change.
    """
    table, expected = nn.Parameter(torch.tensor(initial, device=device)), torch.tensor(targets, device=device)
    inner, outer = (nn.Parameter(weight.to(device)) for weight in _identity_layers(initial.shape[1]))
    optimisers = (
        torch.optim.SparseAdam([table], lr=_TABLE_RATE),
        torch.optim.Adam([inner, outer], lr=_LAYER_RATE),
    )
    batches = -(-len(tokens) // _BATCH)
    schedules = [torch.optim.lr_scheduler.LinearLR(each, 1, 1e-3, _EPOCHS * batches) for each in optimisers]
    generator = np.random.default_rng(0)
    for epoch in range(_EPOCHS):
        for number, rows in enumerate(np.array_split(generator.permutation(len(tokens)), batches)):
            batch = tokens.take(rows)
            ids, starts = (torch.from_numpy(each).long().to(device) for each in (batch.tokens, batch.starts))
            means = embedding_bag(ids, table, starts, mode="mean", sparse=True)
            vectors = normalize(relu(means @ inner.T) @ outer.T)
            own = expected[torch.from_numpy(rows).to(device)]
            loss = kl_div(_log_neighbours(vectors), _log_neighbours(own), reduction="batchmean", log_target=True)
            table.grad = inner.grad = outer.grad = None
            loss.backward()
            for optimiser, schedule in zip(optimisers, schedules, strict=True):
                optimiser.step()
                schedule.step()
            progress("fitting", epoch * batches + number + 1, _EPOCHS * batches)
    fitted, *weights = (each.detach().cpu().numpy() for each in (table, inner, outer))
    return fitted, Layers(*weights)


def _identity_layers(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights of two layers that change no vector, since x is relu(x) - relu(-x).

    The other units have random weights, and do not count at first.
    """
    generator = torch.Generator().manual_seed(0)
    identity = torch.eye(size)
    inner = torch.randn(_UNITS * size, size, generator=generator) * (2 / size) ** 0.5
    inner[: 2 * size] = torch.cat([identity, -identity])
    outer = torch.zeros(size, _UNITS * size)
    outer[:, : 2 * size] = torch.cat([identity, -identity], dim=1)
    return inner, outer


def _log_neighbours(vectors: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of the softmax of each vector's cosines with the others; its own counts as very low."""
    similarities = vectors @ vectors.T / _TEMPERATURE
    return similarities.fill_diagonal_(-1e4).log_softmax(1)


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Suppress warnings and log messages of libraries about their own internals."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
