"""Distillation of an encoder into a table of token vectors, by model2vec's method: the static model.

Each token of the vocabulary is encoded by itself, the vectors are reduced by PCA and weighted by the token's rarity,
estimated from its rank in the vocabulary (Zipf's law, SIF weights). A text's vector is the mean of its tokens'. Words
of a corpus that the vocabulary lacks can be added as tokens. With texts of a corpus, the table is fitted to them: the
means approximate the encoder's vectors of the texts.
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
from torch import nn
from torch.nn.functional import cosine_similarity, embedding_bag
from transformers import PreTrainedTokenizerFast

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.imports import explain_missing_packages
from turnwise.core.progress import Progress, silent
from turnwise.core.text import tokenise_words
from turnwise.core.types import Vectors
from turnwise.models.backbone.exported import ExportedTokenizer, StaticTable
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

#: The fit: epochs, the smallest and largest batch, and the learning rate.
_EPOCHS, _MIN_BATCH, _MAX_BATCH, _LEARNING_RATE = 10, 16, 256, 3e-4

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
    """Return a static encoder, whose vectors are means of token vectors and have length 1 by default.

    Args:
        encoder: to distil; it is not changed.
        dimensions: the size of a vector; None, or more than the encoder's: the encoder's own.
        words: become tokens if they are none yet.
        texts: that the table is fitted to; none: the table stays as model2vec makes it.
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
        if texts:
            table = _fit_to_texts(encoder, static_tokenizer, vectors, weights, size, texts, progress)
        else:
            table = apply_pca(vectors, size) * weights
    folder = Path(str(getattr(config, "name_or_path", "")))
    static = StaticTable(table, static_tokenizer, folder)
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
) -> Vectors:
    """Return a table whose means over the tokens of texts have the directions of the encoder's centred vectors."""
    targets = encoder.encode(
        texts, normalise=True, progress=lambda _, done, total=None: progress("encoding texts", done, total)
    )
    targets -= targets.mean(0)
    # principal components of the texts, not of the tokens
    components = np.linalg.eigh(targets.T @ targets)[1][:, ::-1][:, :size]
    initial = (vectors - vectors.mean(0)) @ components * weights
    table = torch.from_numpy(initial / np.linalg.norm(initial, axis=1).mean())
    return _optimise(table, tokenise(tokenizer, texts), torch.from_numpy(targets @ components), progress)


def _optimise(initial: torch.Tensor, tokens: RaggedTokens, targets: torch.Tensor, progress: Progress) -> Vectors:
    """Maximise the cosine of token means with their targets; rows of tokens that no text has do not change."""
    table = nn.Parameter(initial)
    optimiser = torch.optim.SparseAdam([table], lr=_LEARNING_RATE)
    non_empty = np.flatnonzero(tokens.lengths)
    size = min(max(len(non_empty) // 100, _MIN_BATCH), _MAX_BATCH)
    generator, steps = np.random.default_rng(0), -(-len(non_empty) // size)
    for number in range(_EPOCHS * steps):
        if number % steps == 0:
            order = generator.permutation(non_empty)
        rows = order[number % steps * size :][:size]
        batch = tokens.take(rows)
        ids, starts = torch.from_numpy(batch.tokens).long(), torch.from_numpy(batch.starts)
        means = embedding_bag(ids, table, starts, mode="mean", sparse=True)
        loss = 1 - cosine_similarity(means, targets[rows]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        progress("fitting", number + 1, _EPOCHS * steps)
    return table.detach().numpy()


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
