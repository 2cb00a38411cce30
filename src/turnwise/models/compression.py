"""Semantic compression (TaDSE, Eq. 5): an utterance's vector is moved towards that of its template.

    repr = λ·t′ + (1 − λ)·u

u and t′ have length 1: the paper does not say so, but without it the meaning of λ would depend on how a layer on
templates changes their length. A template is made by the slots given with a turn or found by a detector (a text without
slots is its own template), or it is the nearest of the training corpus.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.functional import normalize

from turnwise.core.dialogue import USER, Slot, Turn
from turnwise.core.errors import ModelError
from turnwise.core.files import write_tensors
from turnwise.core.types import SupportsEncode, Vectors, normalise_vectors
from turnwise.corpus.slots.detectors import Detector, detector_from_json
from turnwise.corpus.slots.templates import template_text
from turnwise.models.backbone.source import COMPRESSION, Runtime, locate_model
from turnwise.models.backbone.stream import PoolerLayer
from turnwise.models.encoder import Encoder, Precision, encoder_fingerprint
from turnwise.models.identity import EncoderId, digest_model

#: Where a template comes from.
TemplateSource = Literal["given", "detected", "retrieved"]

#: The default λ: the middle of the three that the paper tries, and that of its best model for ATIS (Figure 10).
DEFAULT_TEMPLATE_WEIGHT = 0.2

_SIMILARITIES = 1 << 22  # number of similarities of utterances and templates that are in memory at a time

#: The only file, so that a change of settings is complete or not made at all.
_FILE = "compression.safetensors"


class Compression(nn.Module):
    """The templates of a training corpus with their t′ (templates, hidden), and how they are mixed with utterances.

    `layer` is M_A, if the model was trained with it, and `detector` the `to_json` of what finds slots. `set` changes λ
    (`template_weight`) and the source of templates.
    """

    vectors: Tensor

    def __init__(
        self,
        templates: Sequence[str],
        vectors: Tensor,
        layer: PoolerLayer | None = None,
        *,
        template_weight: float = DEFAULT_TEMPLATE_WEIGHT,
        source: TemplateSource = "retrieved",
        detector: dict[str, Any] | None = None,
        encoder_weights: str | None = None,
    ):
        super().__init__()
        self.layer = layer
        self.templates = tuple(templates)
        self.register_buffer("vectors", vectors)
        self.detector = detector
        self.template_weight = template_weight
        self.source: TemplateSource = source
        self._encoder_weights = encoder_weights  # a hash of those of its encoder; None: unknown
        self.set()

    @classmethod
    def of(cls, encoder: Encoder, templates: Sequence[str], layer: PoolerLayer | None = None) -> Self:
        """Encode the templates that an encoder was trained on, and `layer` (M_A) with it."""
        vectors = torch.from_numpy(encoder.encode(templates, normalise=False)).to(encoder.device)
        with torch.inference_mode():
            return cls(templates, _project(vectors, layer), layer, encoder_weights=_weights_of(encoder))

    @property
    def sources(self) -> tuple[TemplateSource, ...]:
        """The possible sources: there may be no detector, and no templates to retrieve."""
        possible: dict[TemplateSource, bool]
        possible = {"given": True, "detected": self.detector is not None, "retrieved": bool(self.templates)}
        return tuple(source for source, is_possible in possible.items() if is_possible)

    def set(self, *, template_weight: float | None = None, source: TemplateSource | None = None) -> None:
        """Change λ or the source of templates, and check them."""
        weight = self.template_weight if template_weight is None else template_weight
        if not 0 <= weight <= 1:
            raise ModelError(f"λ must be between 0 (the utterance alone) and 1 (the template alone), got {weight}")
        source = source or self.source
        if source not in self.sources:
            missing = {"detected": "detector", "retrieved": "templates"}.get(source, "such source")
            raise ModelError(
                f"templates cannot be {source}: the model has no {missing}; choose from {', '.join(self.sources)}"
            )
        self.template_weight, self.source = weight, source

    @cached_property
    def _detector(self) -> Detector:  # created on first use, because spaCy may not be installed
        return detector_from_json(self.detector or {})

    def templates_of(self, items: Sequence[Any], source: TemplateSource) -> list[Any]:
        """Return the templates of texts and conversations, by the slots given with turns or found by the detector."""
        turns = [turn for item in items for turn in ([item] if isinstance(item, str) else item)]
        slots: Iterable[tuple[Slot, ...]]
        if source == "given":
            slots = [turn.slots if isinstance(turn, Turn) else () for turn in turns]
        else:
            slots = self._detector.find_all([turn.text if isinstance(turn, Turn) else turn for turn in turns])
        templates = map(_template_of, turns, slots)
        return [next(templates) if isinstance(item, str) else [next(templates) for _ in item] for item in items]

    def retrieve(self, utterances: Vectors) -> Vectors:
        """Return t′ of the nearest template of the training corpus for each utterance's vector of length 1."""
        rows = max(1, _SIMILARITIES // len(self.templates))
        blocks = torch.from_numpy(utterances).to(self.vectors.device).split(rows)
        nearest = [self.vectors[(block @ self.vectors.T).argmax(1)] for block in blocks]
        return np.asarray(torch.cat(nearest).cpu())

    def project(self, templates: Vectors) -> Vectors:
        """Return t′ of templates' vectors (rows, hidden)."""
        with torch.inference_mode():
            return np.asarray(_project(torch.from_numpy(templates).to(self.vectors.device), self.layer).cpu())

    def digest(self, *settings: Any) -> str:
        """Return a hash of the stored templates, the layer, the detector and some settings, for fingerprints."""
        return digest_model(self, json.dumps([self.detector, *settings], sort_keys=True))

    def save(self, folder: Path) -> None:
        """Write the compression to a separate folder; one that is there is replaced completely or not at all."""
        tensors = {name: value.contiguous() for name, value in self.state_dict().items()}
        settings: dict[str, Any] = {"template_weight": self.template_weight, "source": self.source}
        settings |= {"layer": self.layer is not None, "detector": self.detector, "encoder": self._encoder_weights}
        settings["templates"] = self.templates
        folder.mkdir(exist_ok=True)
        write_tensors(folder / _FILE, tensors, {"settings": json.dumps(settings, ensure_ascii=False)})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` has written."""
        path = folder / _FILE
        if not path.is_file():
            raise ModelError(f"{folder} does not exist: it needs a model trained on templates (objective tadse)")
        with safe_open(path, "pt") as file:
            metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if "settings" not in (metadata or {}):
            raise ModelError(
                f"{path} was written by an older version: train the model on templates again, or remove {folder} to"
                " use the model without compression"
            )
        settings = json.loads(metadata["settings"])
        layer = PoolerLayer(tensors["vectors"].shape[1]) if settings.pop("layer") else None
        templates, weights = settings.pop("templates"), settings.pop("encoder")
        compression = cls(templates, tensors["vectors"], layer, encoder_weights=weights, **settings)
        compression.load_state_dict(tensors)
        return compression

    def fits(self, encoder: Encoder) -> bool:
        """Whether it was made with an encoder, or the model that the encoder was exported from."""
        return self._encoder_weights in (None, _weights_of(encoder))


def _weights_of(encoder: Encoder) -> str:
    return encoder.origin or encoder.weights_fingerprint()


def _template_of(turn: Turn | str, slots: tuple[Slot, ...]) -> Turn | str:
    if isinstance(turn, str):
        return template_text(Turn(USER, turn, slots=slots)) or turn
    return Turn(turn.speaker, template_text(Turn(USER, turn.text, slots=slots)) or turn.text)


def _project(vectors: Tensor, layer: PoolerLayer | None) -> Tensor:
    """Return t′ = M_A t, or t without such a layer, of length 1."""
    return normalize(vectors if layer is None else layer(vectors), dim=1)


def mix_vectors(utterances: Vectors, templates: Vectors, template_weight: float) -> Vectors:
    """Apply Eq. 5 to vectors of length 1 (rows, size)."""
    return np.asarray(template_weight * templates + (1 - template_weight) * utterances, np.float32)


class TemplateEncoder:
    """Encodes the templates of inputs: t′ of Eq. 5, from one source."""

    def __init__(self, encoder: Encoder, compression: Compression, source: TemplateSource):
        self._encoder = encoder
        self._compression = compression
        self._source: TemplateSource = source

    @property
    def description(self) -> str:
        """All that determines the vectors, for fingerprints."""
        return encoder_fingerprint(self._encoder) + self._compression.digest(self._source)

    def encode(
        self,
        inputs: Sequence[Any],
        *,
        normalise: bool | None = None,
        max_length: int | None = None,
        utterances: Vectors | None = None,
    ) -> Vectors:
        """Return vectors of length 1 (inputs, hidden); `utterances` are the inputs' own vectors, if known."""
        if self._source == "retrieved":
            if utterances is None:
                utterances = self._encoder.encode(inputs, normalise=True, max_length=max_length)
            return self._compression.retrieve(utterances)
        templates = self._compression.templates_of(inputs, self._source)
        return self._compression.project(self._encoder.encode(templates, normalise=False, max_length=max_length))


class CompressedEncoder(SupportsEncode):
    """An encoder with semantic compression: it mixes the vectors of utterances and of their templates.

    Attributes:
        encoder: encodes utterances and templates.
        compression: the weight and the source of templates, which `compression.set` changes.
    """

    reads_texts_only = False  # templates depend on slots

    def __init__(self, encoder: Encoder, compression: Compression):
        self.encoder = encoder
        self.compression = compression
        self.normalise = encoder.normalise
        self.device = encoder.device

    @classmethod
    def load(
        cls, name: str | Path, *, device: Any = None, precision: Precision = "float32", runtime: Runtime | None = None
    ) -> Self:
        """Load a model that was trained on templates, with its compression; see `Encoder.load`."""
        encoder = Encoder.load(name, device=device, precision=precision, runtime=runtime)
        return cls(encoder, read_compression(name, encoder))

    def save(self, folder: Path | str, card: str | None = None) -> None:
        """Write the encoder and its compression to a folder that `load` reads; see `Encoder.save`."""
        self.encoder.save(folder, card)
        self.compression.save(Path(folder) / COMPRESSION)

    @property
    def description(self) -> str:
        """All that determines the vectors, for fingerprints."""
        return encoder_fingerprint(self.encoder) + self._description

    @property
    def _description(self) -> str:
        return self.compression.digest(self.compression.source, self.compression.template_weight)

    def identify(self, max_length: int | None = None) -> EncoderId:
        """Return what identifies its vectors in an index; see `Encoder.identify`."""
        own = self.encoder.identify(max_length)
        return EncoderId(own.name, digest_model(None, own.fingerprint, self._description))

    def encode(
        self, inputs: str | Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> Vectors:
        """Return the mixed vectors (inputs, hidden) of texts and conversations, each turn of which has a template."""
        items: Sequence[Any] = [inputs] if isinstance(inputs, str) else inputs
        own = self.encoder.encode(items, normalise=True, max_length=max_length)
        templates = TemplateEncoder(self.encoder, self.compression, self.compression.source)
        others = templates.encode(items, max_length=max_length, utterances=own)
        vectors = mix_vectors(own, others, self.compression.template_weight)
        unit = self.normalise if normalise is None else normalise
        return normalise_vectors(vectors) if unit else vectors


def read_compression(model: str | Path, encoder: Encoder) -> Compression:
    """Read the compression of a model's folder, for the encoder of that folder."""
    folder = locate_model(model) / COMPRESSION
    compression = Compression.load(folder)
    if not compression.fits(encoder):
        raise ModelError(f"{folder} belongs to another model: train this one on templates, or remove the folder")
    return compression.to(encoder.device)
