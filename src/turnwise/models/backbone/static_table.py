"""Static tables: one vector per token; a text's vector is the mean of its tokens'.

The folder is model2vec's, and also readable by sentence-transformers.
"""

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from turnwise.core.errors import ModelError, first_line
from turnwise.core.files import replacing, write_json, write_tensors
from turnwise.core.types import Vectors
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import STATIC, write_modules
from turnwise.models.backbone.tokenizer import FastTokenizer

#: The file of a table in a model's folder.
STATIC_FILE = "model.safetensors"

#: Rows of a table that are hashed at a time.
_DIGEST_ROWS = 4_096

#: The maximum length of a text in a static model: no limit.
UNLIMITED = 1_000_000


class StaticTable:
    """A table of token vectors (tokens, size); the unknown token does not count.

    Its rows are the ids of a tokenizer; `folder` is for messages.
    """

    kind = configuration = "static"

    def __init__(self, table: Vectors, tokenizer: FastTokenizer, folder: Path):
        rows, self.hidden = table.shape
        if rows != len(tokenizer):
            raise ModelError(f"{folder} has {rows} token vectors for {len(tokenizer)} tokens: export it again")
        self._table = table
        self._unknown = tokenizer.unk_token_id

    @cached_property
    def digest(self) -> str:
        """A hash of the table, as if it had zeros for the unknown token and a last column of 0 for it, 1 for others."""
        digest = hashlib.sha256()
        for first in range(0, len(self._table), _DIGEST_ROWS):
            rows = self._table[first : first + _DIGEST_ROWS]
            rows = np.hstack([rows, np.ones((len(rows), 1), np.float32)])
            if self._unknown is not None and first <= self._unknown < first + len(rows):
                rows[self._unknown - first] *= 0
            digest.update(rows.tobytes())
        return digest.hexdigest()

    @classmethod
    def load(cls, folder: Path, tokenizer: FastTokenizer) -> "StaticTable":
        """Load the table of a folder that turnwise, model2vec (with shared, weighted rows) or others wrote."""
        tensors = _load_tensors(folder / STATIC_FILE)
        embeddings = tensors.get("embeddings", tensors.get("embedding.weight"))
        if embeddings is None or embeddings.ndim != 2:
            raise ModelError(f"{folder / STATIC_FILE} holds no table of token vectors: export the model again")
        table = embeddings.astype(np.float32, copy=False)
        if "mapping" in tensors:
            table = table[tensors["mapping"]]
        if "weights" in tensors:
            table = table * tensors["weights"].astype(np.float32)[:, None]
        return cls(table, tokenizer, folder)

    def run(self, sequences: RaggedTokens) -> Vectors:
        """Return vectors (sequences, hidden), not normalised."""
        known = sequences.without(self._unknown)
        # add the first tokens of all sequences, then the second ones, and so on: the sums stay in the processor's cache
        order = np.argsort(-known.lengths, kind="stable")
        starts, lengths = known.starts[order], known.lengths[order]
        sums = np.zeros((len(known), self.hidden), np.float32)
        for position in range(int(lengths[0])):
            longer = int(np.searchsorted(-lengths, -position))
            sums[:longer] += self._table[known.tokens[starts[:longer] + position]]
        vectors = np.empty_like(sums)
        vectors[order] = sums / np.maximum(lengths, 1)[:, None].astype(np.float32)
        return vectors

    def save(self, folder: Path, normalise: bool) -> None:
        """Write the table, and the files that model2vec and sentence-transformers need."""
        table = self._table.copy()
        if self._unknown is not None:
            table[self._unknown] *= 0
        with replacing(folder / STATIC_FILE) as part:
            write_tensors(part, {"embeddings": table})
        settings = {"model_type": STATIC, "architectures": ["StaticModel"], "hidden_dim": self.hidden}
        settings |= {"normalize": normalise, "embedding_dtype": "float32", "seq_length": UNLIMITED}
        write_json(folder / "config.json", settings)
        write_modules(folder, ["models.StaticEmbedding"] + ["models.Normalize"] * normalise)
        write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})


def _load_tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a safetensors file; those of float32 are views of the mapped file, not copies."""
    if not path.is_file():
        raise ModelError(f"{path} is missing: export the model again")
    try:
        with safe_open(path, "np") as file:  # checks the whole header
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names if file.get_slice(name).get_dtype() != "F32"}
    except (SafetensorError, OSError) as error:
        raise ModelError(f"cannot load the model {path.parent}: {first_line(error)}") from error
    with path.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        data = np.asarray(np.memmap(path, np.uint8, "r"))[stream.tell() :]
    for name in set(names) - set(tensors):
        start, end = header[name]["data_offsets"]
        tensors[name] = data[start:end].view("<f4").reshape(header[name]["shape"])
    return tensors
