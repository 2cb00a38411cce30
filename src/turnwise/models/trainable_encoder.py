"""The trainable encoder: a transformer and pooling, run by torch."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from turnwise.core.errors import ModelError
from turnwise.core.files import write_json
from turnwise.core.types import Vectors
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.inputs import TurnStyle
from turnwise.models.backbone.load import choose_device, evaluation_mode, load_backbone, place
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import Pooling, write_dense, write_modules
from turnwise.models.backbone.stream import PoolerLayer, TokenStream, pool
from turnwise.models.encoder import Architecture, Encoder, EncoderConfig
from turnwise.models.identity import digest_model, vocabulary_text

#: Tokens of one forward pass on a CPU, and at most on a GPU, where its states take an eighth of the memory.
_CPU_TOKENS, _GPU_TOKENS = 4096, 262_144


class TrainableEncoder(Encoder, nn.Module):
    """An encoder with weights; see `Encoder` for its other attributes.

    Attributes:
        backbone: the transformer.
        pooler: SimCSE's layer for the pooling 'cls-mlp'.
    """

    def __init__(
        self,
        backbone: Backbone,
        pooling: Pooling = "mean",
        max_length: int | None = None,
        normalise: bool = False,
        style: TurnStyle = "separator",
    ):
        nn.Module.__init__(self)
        longest = min(max_length or backbone.max_length, backbone.max_length)
        settings = EncoderConfig(pooling=pooling, normalise=normalise, style=style)
        Encoder.__init__(self, backbone.tokenizer, backbone.hidden, longest, settings)
        self.backbone = backbone
        self.pooler = PoolerLayer(backbone.hidden) if pooling == "cls-mlp" else None

    @property
    def device(self) -> str:
        """The device of the weights."""
        return str(self.backbone.device)

    @property
    def architecture(self) -> Architecture:
        """The type, layers and hidden units of the backbone."""
        return self.backbone.architecture

    def digest(self, settings: str, *texts: str) -> str:
        """Return a hash of all weights, of settings, the backbone's configuration, and texts."""
        return digest_model(self, settings, self.backbone.configuration(), *texts)

    def weights_fingerprint(self) -> str:
        """Return a hash of weights and vocabulary; see `Encoder`."""
        weights = digest_model(self.backbone, self.architecture[0], vocabulary_text(self.tokenizer))
        return digest_model(None, weights, digest_model(self.pooler))

    def forward(self, stream: TokenStream) -> torch.Tensor:
        """Return vectors (sequences, hidden) in input order."""
        states = self.backbone(stream, "first-last" if self.pooling == "first-last" else "last")
        vectors = pool(states, stream, self.pooling)
        return vectors if self.pooler is None else self.pooler(vectors)

    def _encoding_mode(self) -> AbstractContextManager[None]:
        return evaluation_mode(self)

    def _encode_batch(self, batch: RaggedTokens) -> Vectors:
        return np.asarray(self._compute(batch).cpu())

    def _compute(self, batch: RaggedTokens) -> torch.Tensor:
        """Return vectors (sequences, hidden) on the device, in 32 bits."""
        device, dtype = self.backbone.device.type, getattr(torch, self.precision)
        with torch.inference_mode(), torch.autocast(device, dtype, enabled=self.precision != "float32"):
            return torch.as_tensor(self(TokenStream.of(batch)).float())

    def _encode_batches(self, batches: Iterable[RaggedTokens], normalise: bool) -> Iterator[Vectors]:
        if self.backbone.device.type != "cuda":
            yield from super()._encode_batches(batches, normalise)
            return
        # vectors are copied while the GPU runs the next batch
        copies: deque[tuple[torch.Tensor, torch.cuda.Event]] = deque()
        for batch in batches:
            vectors = self._compute(batch)
            if normalise:
                vectors = nn.functional.normalize(vectors)
            copy = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
            copy.copy_(vectors, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
            copies.append((copy, copied))
            if len(copies) > 1:
                yield _wait(*copies.popleft())
        yield from (_wait(*each) for each in copies)

    @property
    def _batch_tokens(self) -> int:
        return default_batch_tokens(self.backbone)

    @classmethod
    def from_folder(
        cls, folder: Path, config: EncoderConfig, device: str | torch.device | None, pooling: Pooling | None
    ) -> "TrainableEncoder":
        """Load the transformer and its pooling."""
        chosen = choose_device(device)
        backbone = load_backbone(folder / config.path)
        encoder = cls(backbone, pooling or config.pooling, config.max_length, config.normalise, config.style)
        if encoder.pooler is not None and config.dense:
            weights = load_file(folder / config.dense / "model.safetensors")
            state = {key.removeprefix("linear."): value for key, value in weights.items()}
            encoder.pooler.linear.load_state_dict(state)
        return place(encoder, backbone, chosen)

    def save(self, folder: Path | str, card: str | None = None) -> None:
        """Write a sentence-transformers folder, which `SentenceTransformer(folder)` and `Encoder.load` both read."""
        if self.pooling == "first-last":
            raise ModelError("'first-last' pooling cannot be saved, only chosen at loading: save another pooling")
        super().save(folder, card)

    def _save_model(self, folder: Path) -> dict[str, Any]:
        self.backbone.save_transformer(folder, self.max_length)
        modules = ["Transformer", "Pooling"] + ["Dense"] * (self.pooler is not None) + ["Normalize"] * self.normalise
        write_modules(folder, [f"models.{name}" for name in modules])
        pooling = "cls" if self.pooling == "cls-mlp" else self.pooling
        modes = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "mean_sqrt_len_tokens": ""}
        settings = {f"pooling_mode_{mode}": name == pooling for mode, name in modes.items()}
        write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": self.hidden, **settings})
        if self.pooler is not None:
            write_dense(folder / "2_Dense", self.pooler.linear, "activation.Tanh")
        write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
        return {}


def _wait(copy: torch.Tensor, copied: torch.cuda.Event) -> Vectors:
    """Return a copy on the host when it is complete."""
    copied.synchronize()
    return np.asarray(copy)


def default_batch_tokens(backbone: Backbone) -> int:
    """Return how many tokens one forward pass has by default."""
    if backbone.device.type != "cuda":
        return _CPU_TOKENS
    memory = torch.cuda.get_device_properties(backbone.device).total_memory
    bytes_per_token = 3 * 4 * 4 * backbone.hidden  # three times the states between a layer's two products
    return max(_CPU_TOKENS, min(_GPU_TOKENS, memory // 8 // bytes_per_token))
