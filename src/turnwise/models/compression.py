"""Semantic compression (TaDSE, Eq. 5): an utterance's vector drawn towards that of its template.

    repr = λ·t′ + (1 − λ)·u

u and t′ have length 1: the paper does not say, its code has it as an option, and without it λ would mean another thing wherever a
layer on templates changes their length. A template comes from one of three places: the slots that a turn was given with, those that
a detector finds in it, or the nearest template of the training corpus. A text without slots is its own template.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import normalize

from turnwise.core.dialogue import USER, Turn
from turnwise.core.errors import TurnwiseError
from turnwise.core.files import write_atomic
from turnwise.corpus.slots.detector import Detector
from turnwise.corpus.slots.kinds import detector_from
from turnwise.corpus.slots.template import SlotMarks, Template
from turnwise.models.backbone.backbone import PoolerLayer

#: Where a template comes from.
TemplateSource = Literal["given", "detected", "retrieved"]
TEMPLATE_SOURCES: tuple[str, ...] = get_args(TemplateSource)

#: λ before anybody has chosen one: the middle of the three that the paper tries, and that of its best model for ATIS (Figure 10).
DEFAULT_TEMPLATE_WEIGHT = 0.2

#: Utterances and templates that are compared at a time.
_BLOCK = 4_096

Vectors = npt.NDArray[np.float32]

_SETTINGS = "compression.json"
_TENSORS = "compression.safetensors"


class CompressionError(TurnwiseError):
    """Vectors cannot be drawn towards templates; the message says why and what to do."""


def _turns(item: Any) -> Sequence[Any]:
    return [item] if isinstance(item, str) else item


def project_templates(vectors: torch.Tensor, layer: PoolerLayer | None) -> torch.Tensor:
    """Templates' vectors t as the mixture takes them: t′ = M_A t where there is such a layer, of length 1."""
    return normalize(vectors if layer is None else layer(vectors), dim=1)


def mix_vectors(utterances: Vectors, templates: Vectors, template_weight: float) -> Vectors:
    """Eq. 5, from vectors of length 1 (rows, size)."""
    vectors: Vectors = (template_weight * templates + (1 - template_weight) * utterances).astype(np.float32)
    return vectors


class Compression(nn.Module):
    """What it takes to draw utterances towards their templates.

    Attributes:
        marks: what stands for slots in the templates that the model has learnt.
        share: λ, from 0 (the utterance alone) to 1 (the template alone).
        source: where templates come from.
        layer: the layer on templates' vectors (M_A), where the model was trained with one.
        templates: of the training corpus, to retrieve from.
        vectors: of these, behind the layer, of length 1 (templates, hidden).
        detector: finds slots, where templates are 'detected'; what it was written as is enough, and it is made when it is needed,
            since a spaCy model may not be installed where nobody asks for it.
    """

    vectors: torch.Tensor

    def __init__(
        self,
        marks: SlotMarks,
        templates: Sequence[str],
        vectors: torch.Tensor,
        layer: PoolerLayer | None = None,
        *,
        template_weight: float = DEFAULT_TEMPLATE_WEIGHT,
        source: TemplateSource = "retrieved",
        detector: Detector | Mapping[str, Any] | None = None,
    ):
        super().__init__()
        if len(templates) != len(vectors):
            raise ValueError(f"{len(templates)} templates have {len(vectors)} vectors")
        self.marks = marks
        self.layer = layer
        self.templates = tuple(templates)
        self.register_buffer("vectors", vectors)
        self._detector = detector
        self.template_weight = DEFAULT_TEMPLATE_WEIGHT
        self.source: TemplateSource = "given"
        self.set(template_weight=template_weight, source=source)

    @property
    def detector(self) -> Detector | None:
        """What finds slots, where templates are 'detected'."""
        if isinstance(self._detector, Mapping):
            self._detector = detector_from(dict(self._detector))
        return self._detector

    @detector.setter
    def detector(self, detector: Detector) -> None:
        self._detector = detector

    @property
    def _detector_as_json(self) -> Mapping[str, Any] | None:
        return (
            self._detector
            if self._detector is None or isinstance(self._detector, Mapping)
            else self._detector.to_json()
        )

    def set(self, *, template_weight: float | None = None, source: TemplateSource | None = None) -> None:
        """Changes λ or where templates come from.

        Raises:
            CompressionError: if λ is no share, or what the source needs is not there.
        """
        weight, source = self.template_weight if template_weight is None else template_weight, source or self.source
        if not 0 <= weight <= 1:
            raise CompressionError(f"λ = {weight}: a share from 0, the utterance alone, to 1, the template alone")
        if source not in TEMPLATE_SOURCES:
            raise CompressionError(f"templates cannot be {source!r}: choose from {', '.join(TEMPLATE_SOURCES)}")
        if source not in self.sources:
            raise CompressionError(
                f"templates cannot be {source}: the model has no {'detector' if source == 'detected' else 'templates'}; "
                f"choose from {', '.join(self.sources)}"
            )
        self.template_weight, self.source = weight, source

    # ---- Eq. 5

    def given_templates(self, items: Sequence[Any]) -> list[Any]:
        """The templates of texts and conversations, as the model reads them, by the slots that turns come with."""
        return [
            item
            if isinstance(item, str)
            else [
                Turn(turn.speaker, self.marks.text(Template.of(turn)))
                if isinstance(turn, Turn)
                else turn  # a plain string
                for turn in item
            ]
            for item in items
        ]

    def detected_templates(self, items: Sequence[Any]) -> list[Any]:
        """The same by the slots that the detector finds."""
        if self.detector is None:
            raise CompressionError("templates cannot be detected: the model has no detector")
        texts = [turn.text if isinstance(turn, Turn) else turn for item in items for turn in _turns(item)]
        found = zip(texts, self.detector.find_all(texts), strict=True)

        def told(turn: Any) -> Any:
            text, slots = next(found)
            marked = self.marks.text(Template.of(Turn(USER, text, slots=slots))) if slots else text
            return Turn(turn.speaker, marked) if isinstance(turn, Turn) else marked

        return [told(item) if isinstance(item, str) else [told(turn) for turn in item] for item in items]

    def nearest(self, utterances: torch.Tensor) -> torch.Tensor:
        """Of each utterance's vector (of length 1) the nearest template's, of the training corpus."""
        best = torch.full((len(utterances),), -torch.inf, device=utterances.device)
        place = torch.zeros(len(utterances), dtype=torch.long, device=utterances.device)
        for first in range(0, len(self.vectors), _BLOCK):
            for start in range(0, len(utterances), _BLOCK):
                rows = slice(start, start + _BLOCK)
                cosines, which = (utterances[rows] @ self.vectors[first : first + _BLOCK].T).max(1)
                nearer = cosines > best[rows]
                best[rows] = torch.where(nearer, cosines, best[rows])
                place[rows] = torch.where(nearer, which + first, place[rows])
        return self.vectors[place]

    @property
    def sources(self) -> tuple[TemplateSource, ...]:
        """Where templates can come from: there may be no detector, and nothing to retrieve from."""
        possible: dict[TemplateSource, bool] = {
            "given": True,
            "detected": self._detector is not None,
            "retrieved": bool(self.templates),
        }
        return tuple(source for source, there in possible.items() if there)

    # ---- on disk

    def description(self) -> str:
        """All that determines the mixture besides tensors, for fingerprints."""
        return json.dumps([self.template_weight, self.source, self.templates_description()])

    def templates_description(self) -> str:
        """All that determines what templates of inputs are, whatever their source and share."""
        return json.dumps([self.marks.names, self._detector_as_json], sort_keys=True)

    def save(self, folder: Path) -> None:
        """Writes it into a folder of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"vectors": self.vectors.contiguous()}
        if self.layer is not None:
            tensors |= {f"layer.{name}": value.contiguous() for name, value in self.layer.state_dict().items()}
        save_file(tensors, folder / _TENSORS)
        settings = {
            "share": self.template_weight,
            "source": self.source,
            "names": self.marks.names,
            "layer": self.layer is not None,
            "detector": self._detector_as_json,
            "templates": self.templates,
        }
        write_atomic(folder / _SETTINGS, json.dumps(settings, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Compression":
        """Reads what `save` has written.

        Raises:
            CompressionError: if nothing is there.
        """
        if not (folder / _SETTINGS).is_file():
            raise CompressionError(
                f"{folder} does not exist: only a model trained on templates (objective tadse) can draw vectors towards them"
            )
        settings = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
        tensors = load_file(folder / _TENSORS)
        layer = None
        if settings["layer"]:
            layer = PoolerLayer(tensors["vectors"].shape[1])
            layer.load_state_dict(
                {name.removeprefix("layer."): value for name, value in tensors.items() if name != "vectors"}
            )
        return cls(
            SlotMarks(tuple(settings["names"])),
            settings["templates"],
            tensors["vectors"],
            layer,
            template_weight=settings["share"],
            source=settings["source"],
            detector=settings["detector"],
        )
