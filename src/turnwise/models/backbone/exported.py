"""What exported models have in common: they return one vector per text, run on the CPU, and cannot be trained.

They need no torch and no transformers, but NumPy and the tokenizers library; see `onnx_graph` and `static_table`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import AddedToken, Tokenizer

from turnwise.core.errors import ModelError
from turnwise.core.files import read_json, write_json
from turnwise.core.types import Vectors
from turnwise.models.backbone.ragged import RaggedTokens

_TOKENIZER_FILE = "tokenizer.json"
_TOKENIZER_SETTINGS = "tokenizer_config.json"


class ExportedTokenizer:
    """A tokenizer of the tokenizers library, with that part of the interface of transformers that inputs need."""

    def __init__(self, backend: Tokenizer, settings: dict[str, Any]):
        """Wrap a tokenizer; `settings` has its special tokens, under the names of transformers."""
        backend.no_truncation()
        backend.no_padding()
        self.backend_tokenizer = backend
        self._settings = settings

    @classmethod
    def load(cls, folder: Path, *, special_tokens: bool = True) -> "ExportedTokenizer":
        """Load the tokenizer of a folder; without `special_tokens` it knows only its unknown token."""
        for name in (_TOKENIZER_FILE, _TOKENIZER_SETTINGS)[: 1 + special_tokens]:
            if not (folder / name).is_file():
                raise ModelError(f"{folder / name} is missing: export the model again")
        try:
            backend = Tokenizer.from_file(str(folder / _TOKENIZER_FILE))
        except Exception as error:
            if type(error) is not Exception:  # the errors of tokenizers have no other class
                raise
            raise ModelError(f"cannot load the model {folder}: {first_line(error)}") from error
        return cls(backend, read_json(folder / _TOKENIZER_SETTINGS)) if special_tokens else cls.plain(backend)

    @classmethod
    def plain(cls, backend: Tokenizer) -> "ExportedTokenizer":
        """Wrap a tokenizer that has no special tokens except the unknown token of its model."""
        unknown = getattr(backend.model, "unk_token", None)
        return cls(backend, {} if unknown is None else {"unk_token": unknown})

    def add_phrases(self, phrases: Iterable[str]) -> None:
        """Make each phrase a token, which replaces those of its words wherever the phrase occurs."""
        self.backend_tokenizer.add_tokens(
            # lstrip: no token remains for the space before it
            [AddedToken(phrase, single_word=True, lstrip=True, normalized=True) for phrase in phrases]
        )

    def save(self, folder: Path) -> None:
        """Write the tokenizer into an existing folder, where transformers can load it too."""
        self.backend_tokenizer.save(str(folder / _TOKENIZER_FILE))
        write_json(folder / _TOKENIZER_SETTINGS, self._settings)

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def __call__(self, text: str, pair: str | None = None, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        """Return the token ids of a text, or of a pair of texts, under the name 'input_ids'."""
        encoding = self.backend_tokenizer.encode(text, pair, add_special_tokens=add_special_tokens)
        return {"input_ids": encoding.ids}

    def get_vocab(self) -> dict[str, int]:
        """Return the ids of all tokens."""
        return dict(self.backend_tokenizer.get_vocab())

    def get_added_vocab(self) -> dict[str, int]:
        """Return the ids of the tokens that were added to the vocabulary of the model."""
        added = self.backend_tokenizer.get_added_tokens_decoder()
        return {token.content: number for number, token in sorted(added.items())}

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """Return the id of a token, or that of the unknown token."""
        number: int | None = self.backend_tokenizer.token_to_id(token)
        return self.unk_token_id if number is None else number

    @property
    def sep_token_id(self) -> int | None:
        """The id of the token between two texts; None if there is none."""
        return self._special("sep_token")

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token after a text; None if there is none."""
        return self._special("eos_token")

    @property
    def mask_token_id(self) -> int | None:
        """The id of the mask token; None if there is none."""
        return self._special("mask_token")

    @property
    def unk_token_id(self) -> int | None:
        """The id of the unknown token; None if there is none."""
        return self._special("unk_token")

    @property
    def model_max_length(self) -> float:
        """The number of tokens that a sequence may have; infinite if the settings name none."""
        limit = self._settings.get("model_max_length")
        return math.inf if limit is None else float(limit)

    def _special(self, name: str) -> int | None:
        token = self._settings.get(name)
        if isinstance(token, dict):  # with its settings, as transformers writes some tokens
            token = token["content"]
        return None if token is None else self.backend_tokenizer.token_to_id(token)


class ExportedModel(ABC):
    """A function from token ids to vectors; copies may share it, because it never changes."""

    kind: ClassVar[str]  # its name in `turnwise.json`
    hidden: int  # the size of a vector
    digest: str  # equal for equal models

    @property
    def configuration(self) -> str:
        """What determines vectors besides the digest."""
        return self.kind

    @abstractmethod
    def run(self, sequences: RaggedTokens) -> Vectors:
        """Return vectors (sequences, hidden), not normalised, of sequences that have at least one token each."""

    @abstractmethod
    def save(self, folder: Path, normalise: bool) -> None:
        """Write the model after `config.json` and the tokenizer."""


def first_line(error: Exception) -> str:
    """Return the first line of a library's error message."""
    return str(error).strip().splitlines()[0]
