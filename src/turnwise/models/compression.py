"""Semantic compression (TaDSE, Eq. 5): an utterance's vector is moved towards that of its template.

    repr = λ·t′ + (1 − λ)·u

u and t′ have length 1: the paper does not say so and its code has it as an option, but without it the meaning of λ
would depend on how a layer on templates changes their length. A template has one of three sources: the slots given with
a turn, slots found by a detector, or the nearest template of the training corpus. A text without slots is its own
template.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from turnwise.core.dialogue import USER, Slot, Turn
from turnwise.core.errors import ModelError
from turnwise.core.files import read_json, write_atomic, write_tensors
from turnwise.core.types import Vectors
from turnwise.corpus.slots.detectors import Detector, detector_from_json
from turnwise.corpus.slots.template import SlotMarks, Template
from turnwise.models.backbone.modules import PoolerLayer

#: Where a template comes from.
TemplateSource = Literal["given", "detected", "retrieved"]
TEMPLATE_SOURCES: tuple[str, ...] = get_args(TemplateSource)

#: The default λ: the middle of the three that the paper tries, and that of its best model for ATIS (Figure 10).
DEFAULT_TEMPLATE_WEIGHT = 0.2

#: Utterances and templates that are compared at a time.
_BLOCK = 4_096

_SETTINGS_FILE = "compression.json"
_TENSORS_FILE = "compression.safetensors"


def project_templates(vectors: Tensor, layer: PoolerLayer | None) -> Tensor:
    """Return t′ = M_A t, or t without such a layer, of length 1."""
    return normalize(vectors if layer is None else layer(vectors), dim=1)


def mix_vectors(utterances: Vectors, templates: Vectors, template_weight: float) -> Vectors:
    """Apply Eq. 5 to vectors of length 1 (rows, size)."""
    vectors: Vectors = (template_weight * templates + (1 - template_weight) * utterances).astype(np.float32)
    return vectors


class Compression(nn.Module):
    """The parts of semantic compression."""

    vectors: Tensor  # of the templates, after the layer, of length 1 (templates, hidden)

    def __init__(
        self,
        marks: SlotMarks,
        templates: Sequence[str],
        vectors: Tensor,
        layer: PoolerLayer | None = None,
        *,
        template_weight: float = DEFAULT_TEMPLATE_WEIGHT,
        source: TemplateSource = "retrieved",
        detector: Detector | Mapping[str, Any] | None = None,
    ):
        super().__init__()
        if len(templates) != len(vectors):
            raise ValueError(f"{len(templates)} templates have {len(vectors)} vectors")
        self.marks = marks  # of the templates that the model was trained on
        self.layer = layer  # on templates' vectors (M_A), if the model was trained with one
        self.templates = tuple(templates)  # of the training corpus, to retrieve from
        self.register_buffer("vectors", vectors)
        self._detector = detector
        self.template_weight = template_weight  # λ
        self.source: TemplateSource = source
        self.set()

    @property
    def detector(self) -> Detector | None:
        """Finds slots for the source 'detected'; created on first use, because spaCy may not be installed."""
        if isinstance(self._detector, Mapping):
            self._detector = detector_from_json(dict(self._detector))
        return self._detector

    @detector.setter
    def detector(self, detector: Detector) -> None:
        self._detector = detector

    @property
    def sources(self) -> tuple[TemplateSource, ...]:
        """The possible sources: there may be no detector, and no templates to retrieve."""
        detected: tuple[TemplateSource, ...] = ("detected",) if self._detector is not None else ()
        retrieved: tuple[TemplateSource, ...] = ("retrieved",) if self.templates else ()
        return ("given", *detected, *retrieved)

    def set(self, *, template_weight: float | None = None, source: TemplateSource | None = None) -> None:
        """Change λ or the source of templates, and check them."""
        weight, source = self.template_weight if template_weight is None else template_weight, source or self.source
        if not 0 <= weight <= 1:
            raise ModelError(f"λ must be between 0 (the utterance alone) and 1 (the template alone), got {weight}")
        if source not in TEMPLATE_SOURCES:
            raise ModelError(f"templates cannot be {source!r}: choose from {', '.join(TEMPLATE_SOURCES)}")
        if source not in self.sources:
            missing = "detector" if source == "detected" else "templates"
            raise ModelError(
                f"templates cannot be {source}: the model has no {missing}; choose from {', '.join(self.sources)}"
            )
        self.template_weight, self.source = weight, source

    # ---- templates

    def templates_of(self, items: Sequence[Any], source: Literal["given", "detected"]) -> list[Any]:
        """Return the templates of texts and conversations, by the slots given with turns or found by the detector."""
        turns = [turn for item in items for turn in ([item] if isinstance(item, str) else item)]
        slots: Iterable[tuple[Slot, ...]]
        if source == "given":
            slots = [turn.slots if isinstance(turn, Turn) else () for turn in turns]
        elif self.detector is None:
            raise ModelError("templates cannot be detected: the model has no detector")
        else:
            slots = self.detector.find_all([turn.text if isinstance(turn, Turn) else turn for turn in turns])
        templates = map(self._template, turns, slots)
        return [next(templates) if isinstance(item, str) else [next(templates) for _ in item] for item in items]

    def _template(self, turn: Turn | str, slots: tuple[Slot, ...]) -> Turn | str:
        text = turn.text if isinstance(turn, Turn) else turn
        template = self.marks.text(Template.from_turn(Turn(USER, text, slots=slots))) if slots else text
        return Turn(turn.speaker, template) if isinstance(turn, Turn) else template

    def nearest(self, utterances: Tensor) -> Tensor:
        """Return the vector of the nearest template of the training corpus for each utterance's vector of length 1."""
        best = torch.full((len(utterances),), -torch.inf, device=utterances.device)
        indices = torch.zeros(len(utterances), dtype=torch.long, device=utterances.device)
        for first in range(0, len(self.vectors), _BLOCK):
            for start in range(0, len(utterances), _BLOCK):
                rows = slice(start, start + _BLOCK)
                cosines, columns = (utterances[rows] @ self.vectors[first : first + _BLOCK].T).max(1)
                nearer = cosines > best[rows]
                best[rows] = torch.where(nearer, cosines, best[rows])
                indices[rows] = torch.where(nearer, columns + first, indices[rows])
        return self.vectors[indices]

    # ---- vectors

    def retrieve(self, utterances: Vectors) -> Vectors:
        """Return what `nearest` returns, for arrays."""
        vectors: Vectors = self.nearest(torch.from_numpy(utterances).to(self.vectors.device)).cpu().numpy()
        return vectors

    def project(self, templates: Vectors) -> Vectors:
        """Return t′ of templates' vectors (rows, hidden), of length 1."""
        with torch.inference_mode():
            vectors = project_templates(torch.from_numpy(templates).to(self.vectors.device), self.layer)
            projected: Vectors = vectors.cpu().numpy()
        return projected

    def mix(self, utterances: Vectors, templates: Vectors) -> Vectors:
        """Return the vectors of utterances, moved towards those of their templates."""
        return mix_vectors(utterances, templates, self.template_weight)

    # ---- on disk

    @property
    def _detector_json(self) -> Mapping[str, Any] | None:
        if self._detector is None or isinstance(self._detector, Mapping):
            return self._detector
        return self._detector.to_json()

    def description(self) -> str:
        """Return all that determines the mixture besides tensors, for fingerprints."""
        return json.dumps([self.template_weight, self.source, self.templates_description()])

    def templates_description(self) -> str:
        """Return all that determines the templates of inputs, whatever their source and weight."""
        return json.dumps([self.marks.names, self._detector_json], sort_keys=True)

    def save(self, folder: Path) -> None:
        """Write it to a folder of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"vectors": self.vectors.contiguous()}
        if self.layer is not None:
            tensors |= {name: value.contiguous() for name, value in self.layer.state_dict(prefix="layer.").items()}
        write_tensors(folder / _TENSORS_FILE, tensors)
        settings = {
            "share": self.template_weight,
            "source": self.source,
            "names": self.marks.names,
            "layer": self.layer is not None,
            "detector": self._detector_json,
            "templates": self.templates,
        }
        write_atomic(folder / _SETTINGS_FILE, json.dumps(settings, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Compression":
        """Read what `save` has written."""
        if not (folder / _SETTINGS_FILE).is_file():
            raise ModelError(
                f"{folder} does not exist: semantic compression needs a model trained on templates (objective tadse)"
            )
        settings = read_json(folder / _SETTINGS_FILE)
        tensors = load_file(folder / _TENSORS_FILE)
        layer = None
        if settings["layer"]:
            layer = PoolerLayer(tensors["vectors"].shape[1])
            state = {name.removeprefix("layer."): value for name, value in tensors.items() if name != "vectors"}
            layer.load_state_dict(state)
        return cls(
            SlotMarks(tuple(settings["names"])),
            settings["templates"],
            tensors["vectors"],
            layer,
            template_weight=settings["share"],
            source=settings["source"],
            detector=settings["detector"],
        )
