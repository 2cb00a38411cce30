"""Distillation of an encoder into a table of token vectors, by model2vec's method: the static model.

Each token is encoded by itself, the vectors are reduced by PCA and weighted by the token's rarity, estimated from its
rank in the vocabulary (Zipf's law, SIF weights). With texts of a corpus, the table is fitted to them:

1. Frequent phrases become tokens too. The vector of a phrase is the sum of its words' vectors and a difference of its
   own, which is 0 at first: so a phrase also learns from texts with its words.
2. Ridge regression from sums of token vectors to the encoder's vectors of the texts, and of random parts of them. It
   shrinks towards model2vec's table, so rows of rare tokens change little.
3. Gradient descent on the similarities: within a batch, the softmax of a text's cosines with the others approximates
   the encoder's. Half of a batch are near neighbours of each other, which are the hardest to tell apart.
"""

import logging
import random
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import nn
from torch.nn.functional import embedding_bag, kl_div, normalize

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError, ModelError
from turnwise.core.imports import explain_missing_packages
from turnwise.core.progress import Progress, silent
from turnwise.core.text import tokenise_words
from turnwise.core.types import Vectors
from turnwise.models.backbone.inputs import tokenise
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import STATIC
from turnwise.models.backbone.static_table import StaticTable
from turnwise.models.backbone.tokenizer import FastTokenizer
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

#: The fit of similarities: epochs, texts per batch, the temperature of the softmax, and the initial learning rate.
_EPOCHS, _BATCH, _TEMPERATURE, _LEARNING_RATE = 8, 1024, 0.05, 5e-4

#: Texts of a batch that are neighbours of one text, including itself.
_NEIGHBOURS = 16

#: Phrases that become tokens: the minimum number of occurrences, the maximum number of phrases, and of words in one.
_MIN_PHRASE_COUNT, _MAX_PHRASES, _MAX_PHRASE_WORDS = 10, 20_000, 4

#: A word of a phrase: letters, possibly with apostrophes between them.
_PHRASE_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def sample_corpora(
    corpora: Iterable[Iterable[Dialogue]],
    words: int,
    texts: int,
    *,
    speakers: Collection[str] = (),
    progress: Progress = silent,
) -> tuple[list[str], list[str]]:
    """Return the most frequent words of all corpora, and a random sample of the turns of each without duplicates.

    At most `words` words are returned, most frequent first; each occurs at least five times. `texts` turns of each
    corpus are sampled, so that a large corpus does not displace a small one. Only turns of `speakers` are used (none:
    of all); raise a CorpusError if they have none.
    """
    counts: Counter[str] = Counter()
    samples: list[str] = []
    generator, selected = random.Random(0), 0
    for corpus in corpora:
        sample: list[str] = []
        turns = (turn for each in corpus for turn in each.turns if not speakers or turn.speaker in speakers)
        for seen, turn in enumerate(turns, start=1):
            counts.update(word for word in tokenise_words(turn.text) if word[0].isalpha())
            # reservoir sampling
            index = len(sample) if len(sample) < texts else generator.randrange(seen)
            if index < texts:
                sample[index : index + 1] = [turn.text]
            if selected % 4096 == 0:
                progress("reading the corpus", selected)
            selected += 1
        samples += sample
    if speakers and not selected:
        raise CorpusError(f"no dialogue has a turn of {' or '.join(speakers)}: select another speaker or split")
    frequent = [word for word, count in counts.most_common(words) if count >= 5]
    return frequent, list(dict.fromkeys(samples))


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
        words: added as tokens if the vocabulary lacks them.
        texts: that the table is fitted to, and whose frequent phrases become tokens; none: the table stays as model2vec
            makes it.
        progress: reports the number of encoded tokens and texts, and the steps of the fit.
    """
    with explain_missing_packages():
        from model2vec.distill.inference import apply_pca, compute_weights
        from model2vec.tokenizer import clean_and_create_vocabulary
        from skeletoken import TokenizerModel
    tokenizer = getattr(encoder.tokenizer, "backend_tokenizer", None)
    if tokenizer is None:
        raise ModelError(f"{encoder.architecture[0]} has a tokenizer written in Python, which cannot be distilled")
    with silence_libraries():
        original = TokenizerModel.from_tokenizer(tokenizer)
        for name in {"unk_token", "pad_token"} & encoder.tokenizer.special_tokens_map.keys():
            setattr(original, name, encoder.tokenizer.special_tokens_map[name])
        original = original.prune_added_tokens()
        extended = clean_and_create_vocabulary(original, list(words), token_remove_regex=_UNUSED)
        tokens = extended.sorted_vocabulary
        vectors = _encode_tokens(encoder, tokens, progress)
        size = min(dimensions or encoder.hidden, encoder.hidden)
        weights = compute_weights(len(tokens), _SIF_COEFFICIENT)[:, None].astype(np.float32)
        static_tokenizer = FastTokenizer.plain(extended.to_tokenizer())
        if texts:
            table = _fit_to_texts(encoder, static_tokenizer, vectors, weights, size, texts, progress)
        else:
            table = apply_pca(vectors, size) * weights
    static = StaticTable(table, static_tokenizer, Path(encoder.name))
    # means do not depend on positions: speakers are lost, and turns are concatenated without a separator
    settings = EncoderConfig(max_length=encoder.max_length, normalise=True)
    return ExportedEncoder(static, static_tokenizer, settings, {"model_type": STATIC})


def _frequent_phrases(texts: Iterable[str]) -> list[str]:
    """Return the most frequent sequences of two to four words that nothing but a space separates."""
    counts: Counter[str] = Counter()
    for text in texts:
        words = text.lower().split(" ")
        is_word = [_PHRASE_WORD.fullmatch(word) is not None for word in words]
        for length in range(2, _MAX_PHRASE_WORDS + 1):
            spans = (slice(start, start + length) for start in range(len(words) - length + 1))
            counts.update(" ".join(words[span]) for span in spans if all(is_word[span]))
    return [phrase for phrase, count in counts.most_common(_MAX_PHRASES) if count >= _MIN_PHRASE_COUNT]


def _random_parts(texts: Iterable[str]) -> Iterator[str]:
    """Yield consecutive words of each text that has at least five: three or more, but not all."""
    generator = random.Random(0)
    for text in texts:
        words = text.split()
        if len(words) >= 5:
            length = generator.randint(3, len(words) - 1)
            start = generator.randint(0, len(words) - length)
            yield " ".join(words[start : start + length])


def _encode_tokens(encoder: TrainableEncoder, tokens: Sequence[str], progress: Progress) -> Vectors:
    """Encode each token by itself; an added word is encoded as a text."""
    composer, ids = encoder.composer, encoder.tokenizer.get_vocab()
    words = iter(encoder.tokenise([token for token in tokens if token not in ids]))
    numbers = [np.array([ids[token]], np.int32) if token in ids else None for token in tokens]
    sequences = [
        next(words) if number is None else composer.history([number], ["user"], encoder.max_length)
        for number in numbers
    ]
    return encoder.encode_sequences(sequences, normalise=False, progress=progress)


def _fit_to_texts(
    encoder: TrainableEncoder,
    tokenizer: FastTokenizer,
    vectors: Vectors,
    weights: Vectors,
    size: int,
    texts: Sequence[str],
    progress: Progress,
) -> Vectors:
    """Return a table by which texts have the similarities of the encoder's vectors; add phrases to the tokenizer."""
    parts = _add_phrases(tokenizer, _frequent_phrases(texts))
    texts = list(dict.fromkeys([*texts, *_random_parts(texts)]))
    targets = encoder.encode(
        texts, normalise=True, progress=lambda _, done, total=None: progress("encoding texts", done, total)
    )
    tokens = tokenise(tokenizer, texts).without(tokenizer.unk_token_id)
    rows = np.flatnonzero(tokens.lengths)
    tokens, targets = tokens.take(rows), targets[rows]
    # replace each phrase by its own row and those of its words
    expanded = parts.take(tokens.tokens)
    tokens = RaggedTokens(expanded.tokens, np.add.reduceat(expanded.lengths, tokens.starts))
    centred = targets - targets.mean(0)
    # principal components of the texts, not of the tokens
    components = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :size]
    initial = np.zeros((len(parts), size), np.float32)
    initial[: len(vectors)] = (vectors - vectors.mean(0)) @ components * weights
    table = _fit_vectors(initial, tokens, centred @ components)
    table = _fit_similarities(table, tokens, targets, encoder.device, progress)
    return np.add.reduceat(table[parts.tokens], parts.starts)


def _add_phrases(tokenizer: FastTokenizer, phrases: Sequence[str]) -> RaggedTokens:
    """Add phrases to a tokenizer; return for each token its row in the table and, for a phrase, those of its words."""
    words = tokenise(tokenizer, phrases).without(tokenizer.unk_token_id)
    own = np.arange(len(tokenizer) + len(phrases), dtype=np.int32)[:, None]
    known = len(tokenizer)
    tokenizer.add_phrases(phrases)
    added = [np.append(token, part) for token, part in zip(own[known:], words, strict=True)]
    return RaggedTokens.of([*own[:known], *added])


def _fit_vectors(initial: Vectors, tokens: RaggedTokens, targets: Vectors) -> Vectors:
    """Return the ridge regression from texts to targets; the penalty is the distance from the scaled initial table.

    A text is the sum of its tokens' vectors over the square root of their number, so that its length is about right.
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
    return np.asarray(start + change, np.float32)


def _fit_similarities(
    initial: Vectors, tokens: RaggedTokens, targets: Vectors, device: str, progress: Progress
) -> Vectors:
    """Fit a table so that the softmax of cosines with the other texts of a batch is that of targets of length 1."""
    table, expected = nn.Parameter(torch.tensor(initial, device=device)), torch.tensor(targets, device=device)
    optimiser = torch.optim.SparseAdam([table], lr=_LEARNING_RATE)
    batches = -(-len(tokens) // _BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 1e-3, _EPOCHS * batches)
    generator = np.random.default_rng(0)
    for epoch in range(_EPOCHS):
        for number, sample in enumerate(np.array_split(generator.permutation(len(tokens)), batches)):
            rows = _with_neighbours(sample, expected)
            batch = tokens.take(rows)
            ids, starts = (torch.from_numpy(each).long().to(device) for each in (batch.tokens, batch.starts))
            vectors = normalize(embedding_bag(ids, table, starts, mode="mean", sparse=True))
            own = expected[torch.from_numpy(rows).to(device)]
            loss = kl_div(_log_neighbours(vectors), _log_neighbours(own), reduction="batchmean", log_target=True)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            progress("fitting", epoch * batches + number + 1, _EPOCHS * batches)
    return np.asarray(table.detach().cpu())


def _with_neighbours(sample: npt.NDArray[np.int64], vectors: torch.Tensor) -> npt.NDArray[np.int64]:
    """Replace half of a sample of rows by the nearest neighbours of a few of them; return each row once."""
    centres = torch.from_numpy(sample[1 :: 2 * _NEIGHBOURS]).to(vectors.device)
    neighbours = (vectors[centres] @ vectors.T).topk(min(_NEIGHBOURS, len(vectors))).indices
    return np.union1d(sample[::2], neighbours.flatten().cpu().numpy())


def _log_neighbours(vectors: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of the softmax of each vector's cosines with the others; its own counts as very low."""
    return (vectors @ vectors.T / _TEMPERATURE).fill_diagonal_(-1e4).log_softmax(1)


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Suppress warnings and log messages of libraries about their own internals."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(action="ignore"):
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
