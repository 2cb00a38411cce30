"""A tokenizer as `tokenizer.json` defines it, run by the tokenizers library without transformers."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from turnwise.core.errors import ModelError, first_line
from turnwise.core.files import read_json, write_json

TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"

#: Where older folders keep the special tokens that the settings do not name.
_SPECIAL_TOKENS_FILE = "special_tokens_map.json"

#: The special tokens of BERT, where a folder names none.
BERT_TOKENS = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}


class FastTokenizer:
    """A tokenizer of the tokenizers library, with that part of the interface of transformers that models need.

    `settings` has its special tokens, under the names of transformers.
    """

    def __init__(self, backend: Tokenizer, settings: dict[str, Any]):
        backend.no_truncation()
        backend.no_padding()
        self.backend_tokenizer = backend
        self.settings = settings
        ids = {name: backend.token_to_id(token) for name, token in self.special_tokens_map.items()}
        self.sep_token_id: int | None = ids.get("sep_token")
        self.eos_token_id: int | None = ids.get("eos_token")
        self.mask_token_id: int | None = ids.get("mask_token")
        self.unk_token_id: int | None = ids.get("unk_token")
        self.pad_token_id: int | None = ids.get("pad_token")

    @classmethod
    def load(cls, folder: Path, default_tokens: Mapping[str, str] | None = None) -> "FastTokenizer":
        """Load the tokenizer of a folder; `default_tokens` are special tokens that its settings may not name."""
        if not (folder / SETTINGS_FILE).is_file():
            raise ModelError(f"{folder / SETTINGS_FILE} is missing: save or export the model again")
        backend, settings = _read_tokenizer(folder), read_json(folder / SETTINGS_FILE)
        if (folder / _SPECIAL_TOKENS_FILE).is_file():
            settings = {**read_json(folder / _SPECIAL_TOKENS_FILE), **settings}
        for name, token in (default_tokens or {}).items():
            if backend.token_to_id(token) is not None:
                settings.setdefault(name, token)
        return cls(backend, settings)

    @classmethod
    def plain(cls, source: Tokenizer | Path) -> "FastTokenizer":
        """Wrap a tokenizer, or that of a folder, with no special tokens except the unknown token of its model."""
        backend = _read_tokenizer(source) if isinstance(source, Path) else source
        unknown = getattr(backend.model, "unk_token", None)
        return cls(backend, {} if unknown is None else {"unk_token": unknown})

    def add_phrases(self, phrases: Iterable[str]) -> None:
        """Make each phrase a token, which replaces those of its words wherever the phrase occurs."""
        self.backend_tokenizer.add_tokens(
            # lstrip: no token remains for the space before it
            [AddedToken(phrase, single_word=True, lstrip=True, normalized=True) for phrase in phrases]
        )

    def add_special_tokens(self, tokens: Iterable[str]) -> int:
        """Add tokens that no text is split into; return how many are new."""
        tokens = list(tokens)
        extra = self.settings.get("extra_special_tokens") or []
        self.settings["extra_special_tokens"] = [*extra, *(token for token in tokens if token not in extra)]
        return int(self.backend_tokenizer.add_special_tokens(tokens))

    def save_pretrained(self, folder: Path) -> None:
        """Write the tokenizer into a folder, where transformers can load it too."""
        folder.mkdir(parents=True, exist_ok=True)
        self.backend_tokenizer.save(str(folder / TOKENIZER_FILE))
        write_json(folder / SETTINGS_FILE, self.settings)

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
    def special_tokens_map(self) -> dict[str, str]:
        """The special tokens that settings name, such as 'sep_token'; some files have them with their settings."""
        tokens = {name: value for name, value in self.settings.items() if name.endswith("_token")}
        contents = {name: value["content"] if isinstance(value, dict) else value for name, value in tokens.items()}
        return {name: token for name, token in contents.items() if isinstance(token, str)}

    @property
    def model_max_length(self) -> float:
        """The number of tokens that a sequence may have; infinite if the settings name none."""
        limit = self.settings.get("model_max_length")
        return math.inf if limit is None else float(limit)


def _read_tokenizer(folder: Path) -> Tokenizer:
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise ModelError(f"{path} is missing: save or export the model again")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        if type(error) is not Exception:  # the errors of tokenizers have no other class
            raise
        raise ModelError(f"cannot load the model {folder}: {first_line(error)}") from error
