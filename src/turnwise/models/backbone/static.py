"""A backbone that is a table: a vector a token, and a text's vector is the mean of its tokens'. No transformer runs.

The folder is model2vec's: `model.safetensors`, `tokenizer.json`, `config.json`, and `modules.json`, by which sentence-transformers
reads it, too. Reading and running it takes nothing but safetensors and tokenizers.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from torch.nn.functional import embedding_bag
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from turnwise.core.files import write_json
from turnwise.models.backbone.pooled import PooledBackbone
from turnwise.models.backbone.source import STATIC, BackboneError
from turnwise.models.backbone.stream import TokenStream

#: The table's file, in a model's folder.
TABLE = "model.safetensors"

#: Tokens of a text at most where a folder says nothing, which is as many as anybody has.
_LONGEST = 1_000_000


_TOKENIZER = "tokenizer.json"
_MODULES = "sentence_transformers.models"


class StaticConfig(PreTrainedConfig):
    """What there is to say of a table, under the names that transformers has for it."""

    model_type = STATIC
    hidden_size: int = 0
    vocab_size: int = 0
    num_hidden_layers: int = 0


class StaticBackbone(PooledBackbone):
    """A table of token vectors.

    The unknown token stands for nothing and does not count: its row is zero.
    """

    kind = "static"
    described = "a static model (a table of token vectors)"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, table: npt.NDArray[np.float32], folder: Path):
        """Makes it of a tokenizer and a vector a token.

        Args:
            tokenizer: whose ids are the rows of the table.
            table: vectors (tokens, size).
            folder: where it was read from or is made of, for messages.

        Raises:
            BackboneError: if there is not a row a token.
        """
        rows, size = table.shape
        if rows != len(tokenizer):
            raise BackboneError(
                f"{folder} has {rows} token vectors, and its tokenizer {len(tokenizer)} tokens: export it again"
            )
        super().__init__(StaticConfig(hidden_size=size, vocab_size=rows, num_hidden_layers=0), tokenizer)
        self._place = folder
        counted = np.ones((rows, 1), np.float32)
        if tokenizer.unk_token_id is not None:
            counted[tokenizer.unk_token_id] = 0
        # the last column counts, so that one pass over the tokens gives their sum and their number
        self.register_buffer("table", torch.from_numpy(np.hstack([table * counted, counted])))
        self.table: torch.Tensor

    @classmethod
    def load(cls, name: str | Path, *_: Any, **__: Any) -> "StaticBackbone":
        """Loads a folder that `turnwise export --format static`, model2vec or sentence-transformers wrote.

        Raises:
            BackboneError: if a file is missing or damaged.
        """
        folder = Path(name)
        for part in (TABLE, _TOKENIZER):
            if not (folder / part).is_file():
                raise BackboneError(f"{folder / part} is missing: export the model again")
        try:
            tensors = load_file(folder / TABLE)
            backend = Tokenizer.from_file(str(folder / _TOKENIZER))
        except Exception as error:  # tokenizers' own errors have no class but this
            if isinstance(error, SafetensorError | OSError) or type(error) is Exception:
                raise BackboneError(f"cannot load the model {folder}: {str(error).strip().splitlines()[0]}") from error
            raise
        return cls(fast_tokenizer(backend), _table(folder, tensors), folder)

    def save(self, folder: Path, normalise: bool) -> None:
        """Writes the table, the tokenizer and what model2vec and sentence-transformers want to know."""
        unfinished = folder / f".writing-{TABLE}"
        save_file({"embeddings": np.ascontiguousarray(self.table[:, :-1].cpu().numpy())}, unfinished)
        unfinished.replace(folder / TABLE)
        self.tokenizer.backend_tokenizer.save(str(folder / _TOKENIZER))
        told = {
            "model_type": STATIC,
            "architectures": ["StaticModel"],
            "hidden_dim": self.hidden,
            "normalize": normalise,
        }
        write_json(folder / "config.json", {**told, "embedding_dtype": "float32", "seq_length": _LONGEST})
        modules = [("", "StaticEmbedding")] + [("1_Normalize", "Normalize")] * normalise
        if normalise:
            (folder / "1_Normalize").mkdir(exist_ok=True)
        write_json(
            folder / "modules.json",
            [
                {"idx": index, "name": str(index), "path": path, "type": f"{_MODULES}.{name}"}
                for index, (path, name) in enumerate(modules)
            ],
        )
        write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})

    @property
    def place(self) -> Path:
        """The folder that it was read from, or the model's that it was made of."""
        return self._place

    @property
    def longest(self) -> int:
        """How many tokens a sequence may have."""
        return _LONGEST

    @property
    def device(self) -> torch.device:
        """Where the table is."""
        return self.table.device

    def vectors(self, stream: TokenStream) -> torch.Tensor:
        """Pooled vectors (sequences, hidden), not scaled, in the order in which the sequences were given."""
        stream = stream.to(self.device)
        sums = embedding_bag(stream.ids, self.table, stream.starts()[:-1].to(self.device), mode="sum")
        return stream.restore(sums[:, :-1] / sums[:, -1:].clamp(min=1))


def fast_tokenizer(backend: Tokenizer) -> PreTrainedTokenizerFast:
    """A tokenizer as the rest of turnwise wants it, which knows what its unknown token is."""
    unknown = getattr(backend.model, "unk_token", None)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **({} if unknown is None else {"unk_token": unknown}))


def _table(folder: Path, tensors: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    """A vector a token, of what model2vec (which may share rows and weigh them) or sentence-transformers wrote."""
    found = tensors.get("embeddings", tensors.get("embedding.weight"))
    if found is None or found.ndim != 2:
        raise BackboneError(f"{folder / TABLE} holds no table of token vectors ('embeddings'): export the model again")
    table = found.astype(np.float32)
    if "mapping" in tensors:
        table = table[tensors["mapping"]]
    if "weights" in tensors:
        table = table * tensors["weights"].astype(np.float32)[:, None]
    return table
