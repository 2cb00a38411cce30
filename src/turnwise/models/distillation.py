"""Distilling an encoder into a table of token vectors, by model2vec's method: the static tier.

Each token of the vocabulary is encoded by itself, the vectors are brought to fewer dimensions by their principal components, and
weighed by how rare a token is, guessed from its rank in the vocabulary (Zipf's law, SIF weights). A text is then the mean of its
tokens' vectors. Words of a corpus may be added that the vocabulary lacks: they become tokens of their own. And where there are
texts of a corpus, the table is fitted to them: its means come as near as they can to what the encoder makes of the texts.
"""

import logging
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import cosine_similarity, embedding_bag
from transformers import PreTrainedTokenizerFast

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.core.text import tokenise_words
from turnwise.models.backbone.exported import StaticBackbone, wrap_tokenizer
from turnwise.models.backbone.inputs import tokenise
from turnwise.models.backbone.stream import Tokens
from turnwise.models.encoder import Encoder

#: The size of a vector, unless told; model2vec's own number.
DIMENSIONS = 256

#: How strongly frequent tokens count less; model2vec's own number.
_SIF = 1e-4

#: Tokens that no text has.
_UNUSED = re.compile(r"\[unused\d+\]")

#: The fit: passes over the texts, texts of a step at least and at most, and how far a step goes.
_PASSES, _LEAST, _MOST, _RATE = 10, 16, 256, 3e-4

#: How often a word of a corpus has to occur before it gets a vector of its own.
_OFTEN = 5


class DistillationError(TurnwiseError):
    """An encoder cannot be distilled; the message says why and what to do."""


def sample_corpus(
    dialogues: Iterable[Dialogue], words: int, texts: int, progress: Progress = silent
) -> tuple[list[str], list[str]]:
    """What a table is made for: the most frequent words of conversations, and texts drawn from all over them, each once.

    Args:
        dialogues: the conversations.
        words: how many words at most, most frequent first; those that occur five times at least.
        texts: how many turns are drawn; with repeated ones left out, fewer texts may remain.
        progress: told how many conversations are read.
    """
    counts: Counter[str] = Counter()
    drawn: list[str] = []
    chance, seen = random.Random(0), 0
    for read, dialogue in enumerate(dialogues):
        for turn in dialogue.turns:
            counts.update(word for word in tokenise_words(turn.text) if word[0].isalpha())
            seen += 1
            # every turn has the same chance to be among those kept, however many there are
            place = len(drawn) if len(drawn) < texts else chance.randrange(seen)
            if place < texts:
                drawn[place : place + 1] = [turn.text]
        if read % 256 == 0:
            progress("reading the corpus", read)
    return [word for word, count in counts.most_common(words) if count >= _OFTEN], list(dict.fromkeys(drawn))


def distil(
    encoder: Encoder,
    *,
    dimensions: int | None = DIMENSIONS,
    words: Sequence[str] = (),
    texts: Sequence[str] = (),
    progress: Progress = silent,
) -> Encoder:
    """An encoder whose vectors are means of token vectors; they have length 1 unless asked otherwise.

    Args:
        encoder: what to distil; it is left as it is.
        dimensions: the size of a vector; None, or more than there are: the encoder's own.
        words: to be tokens of their own, where they are none.
        texts: what the table is fitted to; none: it is left as model2vec makes it.
        progress: told how many tokens and texts are encoded, and how many steps of the fit are done.

    Raises:
        DistillationError: if model2vec is not installed, or the tokenizer is not one that it can change.
    """
    try:
        from model2vec.distill.inference import apply_pca, compute_weights
        from model2vec.tokenizer import clean_and_create_vocabulary
        from skeletoken import TokenizerModel
    except ImportError as error:
        raise DistillationError(f"{error.name} is not installed: pip install 'turnwise[static]'") from None
    config, tokenizer = encoder.backbone.config, encoder.backbone.tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise DistillationError(
            f"{config.model_type} has a tokenizer that is written in Python: it cannot be distilled"
        )
    with _quietly():
        known = TokenizerModel.from_transformers_tokenizer(tokenizer).prune_added_tokens()
        changed = clean_and_create_vocabulary(known, list(words), token_remove_regex=_UNUSED)
        tokens = changed.sorted_vocabulary
        vectors = _token_vectors(encoder, tokens, progress)
        size = min(dimensions or encoder.hidden, encoder.hidden)
        weights = compute_weights(len(tokens), _SIF)[:, None].astype(np.float32)
        own = wrap_tokenizer(changed.to_tokenizer())
        table = (
            _fitted(encoder, own, vectors, weights, size, texts, progress)
            if texts
            else apply_pca(vectors, size) * weights
        )
    static = StaticBackbone(own, table, Path(str(getattr(config, "name_or_path", ""))))
    # tokens have no places, so that who said what is lost: turns are joined by nothing
    return Encoder(static, "mean", encoder.max_length, normalise=True, marks=encoder.marks).eval()


def _token_vectors(encoder: Encoder, tokens: Sequence[str], progress: Progress) -> npt.NDArray[np.float32]:
    """What the encoder gives for each token by itself; a word that is none of its tokens is a text to it."""
    composer, ids = encoder.composer, encoder.backbone.tokenizer.get_vocab()
    texts = iter(encoder.tokenise([token for token in tokens if token not in ids]))
    sequences = [
        composer.history([np.array([ids[token]], np.int32)], ["user"], encoder.max_length)
        if token in ids
        else next(texts)
        for token in tokens
    ]
    return encoder.encode_sequences(sequences, normalise=False, progress=progress)


def _fitted(
    encoder: Encoder,
    tokenizer: PreTrainedTokenizerFast,
    vectors: npt.NDArray[np.float32],
    weights: npt.NDArray[np.float32],
    size: int,
    texts: Sequence[str],
    progress: Progress,
) -> npt.NDArray[np.float32]:
    """A table whose means over the tokens of texts point where the encoder's vectors of the texts do, around their mean."""
    wanted = encoder.encode(
        texts, normalise=True, progress=lambda _, done, total=None: progress("encoding texts", done, total)
    )
    wanted -= wanted.mean(0)
    # the directions in which texts, not tokens, differ most
    directions = np.linalg.eigh(wanted.T @ wanted)[1][:, ::-1][:, :size]
    first = (vectors - vectors.mean(0)) @ directions * weights
    start = torch.from_numpy(first / np.linalg.norm(first, axis=1).mean())
    return _descended(start, tokenise(tokenizer, texts), torch.from_numpy(wanted @ directions), progress)


def _descended(
    start: torch.Tensor, tokens: Sequence[Tokens], wanted: torch.Tensor, progress: Progress
) -> npt.NDArray[np.float32]:
    """A table, changed step by step so that its means over tokens point where they should; rows of other tokens stay."""
    table = nn.Parameter(start)
    optimiser = torch.optim.SparseAdam([table], lr=_RATE)
    said = np.array([row for row, each in enumerate(tokens) if len(each)])
    size = min(max(len(said) // 100, _LEAST), _MOST)
    generator, steps = np.random.default_rng(0), -(-len(said) // size)
    for number in range(_PASSES * steps):
        if number % steps == 0:
            order = generator.permutation(said)
        rows = order[number % steps * size :][:size]
        lengths = np.array([len(tokens[row]) for row in rows])
        ids, starts = np.concatenate([tokens[row] for row in rows]), np.cumsum(lengths) - lengths
        means = embedding_bag(torch.from_numpy(ids).long(), table, torch.from_numpy(starts), mode="mean", sparse=True)
        loss = 1 - cosine_similarity(means, wanted[rows]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        progress("fitting", number + 1, _PASSES * steps)
    return table.detach().numpy()


@contextmanager
def _quietly() -> Iterator[None]:
    """Keeps remarks on single words (known already, made of several) from users."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
