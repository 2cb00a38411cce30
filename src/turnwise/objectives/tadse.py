"""TaDSE: contrast utterances, their templates, and pairs of both.

From "TaDSE: Template-aware Dialogue Sentence Embeddings" (Oh et al.). The template of an utterance is its text without
the slots' values. Utterances u and templates t are encoded twice under dropout (u, u⁺, t, t⁺); over a batch of N,

    Lᵗ    = −mean log( exp(cos(tᵢ, tᵢ⁺)/τ_t) / Σ_j exp(cos(tᵢ, t_j⁺)/τ_t) )                       (Eq. 1)
    Lᵘ    = −mean log( exp(cos(uᵢ, uᵢ⁺)/τ_u) / Σ_j exp(cos(uᵢ, u_j⁺)/τ_u) )                       (Eq. 2)
    Lᵖᵃⁱʳ = −mean log( exp(cos(tᵢ, uᵢ)/τ_pair) / Σ_j exp(cos(tᵢ, u_j)/τ_pair) )                   (Eq. 3)
    L     = λᵗ·Lᵗ + λᵘ·Lᵘ + λᵖᵃⁱʳ·Lᵖᵃⁱʳ                                                           (Eq. 4)

Templates may go through a layer first, t′ = M_A t, which is saved with the model: semantic compression uses it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.validation import NonNegative, NonNegativeInt, Positive
from turnwise.corpus.slots.templates import SLOT, non_overlapping_slots, require_named_splits, template_text
from turnwise.corpus.storage.corpus import Corpus
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import COMPRESSION
from turnwise.models.backbone.stream import PoolerLayer
from turnwise.models.compression import Compression
from turnwise.models.encoder import Encoder
from turnwise.objectives import objective as base
from turnwise.objectives.losses import nt_xent


@dataclass(frozen=True, slots=True)
class TaDSE(base.PooledObjective):
    """Templates, utterances, and pairs of them, contrasted."""

    temperature: Positive = 0.05  # τ_u, and that of the other two losses unless they have their own
    template_temperature: Positive | None = None  # τ_t
    pair_temperature: Positive | None = None  # τ_pair
    utterance_weight: NonNegative = 1.0  # λᵘ
    template_weight: NonNegative = 1.0  # λᵗ
    pair_weight: NonNegative = 0.5  # λᵖᵃⁱʳ
    #: Of a pair: 'utterances', as printed, where each template has to find its utterance; 'templates', as in the
    #: authors' code, where each utterance has to find its template; 'balanced', the mean of both.
    negatives: Literal["utterances", "templates", "balanced"] = "utterances"
    template_layer: bool = False  # whether templates go through M_A, linear and tanh
    #: Equal texts are not used as negatives of each other, nor are utterances whose template equals the anchor's. The
    #: paper uses them, and pushes apart the many utterances of an augmented corpus that share a template.
    mask_equal: bool = False
    #: Turns with fewer slots are not used; 0, as in the paper: they are their own templates.
    min_slots: NonNegativeInt = 0

    traits: ClassVar = base.Traits(columns=1, unique=True, special_tokens=(SLOT,), rewriter=template_text)

    def __post_init__(self) -> None:
        if not self.utterance_weight + self.template_weight + self.pair_weight:
            raise ValueError(
                "utterance_weight, template_weight and pair_weight are all 0: one of them must be positive"
            )

    def check_corpus(self, corpus: Corpus) -> None:
        """Raise an error if splits are read without a request, or no turn has a slot."""
        require_named_splits(corpus)
        if not any(turn.slots for dialogue in corpus for turn in dialogue.turns):
            raise TurnwiseError(
                "no turn of this corpus has a slot, so there are no templates: use a corpus with slots (turnwise corpus"
                " stats counts them), detect them with turnwise corpus detect, or remove the objective with --set"
                " objectives.tadse=false"
            )

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Iterate over the turns with enough slots."""
        for number, turn in enumerate(dialogue.turns):
            if not self.min_slots or len(non_overlapping_slots(turn)) >= self.min_slots:
                yield base.Example(((number, number + 1),))

    def make_heads(self, hidden: int) -> nn.Module:
        """Create M_A, if it is used."""
        return PoolerLayer(hidden) if self.template_layer else nn.Identity()

    def save_extras(self, folder: Path, encoder: Encoder, heads: nn.Module, corpus: Corpus) -> None:
        """Write the semantic compression towards the templates of the examples."""
        turns = (dialogue.turns[first] for dialogue in corpus for ((first, _),), _ in self.examples(dialogue))
        templates = dict.fromkeys(template_text(turn) or turn.text for turn in turns)
        layer = heads if isinstance(heads, PoolerLayer) else None
        Compression.of(encoder, list(templates), layer).save(folder / COMPRESSION)

    @property
    def _views(self) -> tuple[str, ...]:
        """The sequences of an example: as many of utterance and template as the losses compare."""
        utterances = 2 if self.utterance_weight else 1 if self.pair_weight else 0
        templates = 2 if self.template_weight else 1 if self.pair_weight else 0
        return ("utterance",) * utterances + ("template",) * templates

    def prepare(self, batch: base.Batch) -> base.PreparedBatch:
        """Return the views: utterances (once or twice), then templates (once or twice)."""
        turns = batch.windows[:, 0, 0].tolist()
        longest = min(batch.max_length, batch.longest)
        rewritten, identities = zip(*map(batch.texts.rewritten, turns), strict=True)
        templates = [
            batch.composer.history([tokens], [batch.texts.speaker(turn)], longest)
            for tokens, turn in zip(rewritten, turns, strict=True)
        ]
        sequences = {"utterance": batch.column(0), "template": RaggedTokens.of(templates)}
        inputs = {"utterances": batch.identities(0), "templates": np.array(identities, np.int64)}
        return base.PreparedBatch(
            RaggedTokens.concatenate([sequences[view] for view in self._views]), len(turns), inputs
        )

    def loss(self, vectors: Tensor, inputs: base.Tensors, heads: nn.Module) -> tuple[Tensor, base.Metrics]:
        """Compute Eq. 4; the metrics are its single losses."""
        first_template = self._views.count("utterance")
        utterances, templates = vectors[:first_template], heads(vectors[first_template:])
        equal_templates = base.equal_texts(inputs["templates"])
        same = equal_templates if self.mask_equal else None
        losses: dict[str, Tensor] = {}
        if self.utterance_weight:
            equal_utterances = base.equal_texts(inputs["utterances"]) if self.mask_equal else None
            losses["utterance"] = nt_xent(utterances[0], utterances[1], self.temperature, same=equal_utterances)
        if self.template_weight:
            temperature = self.template_temperature or self.temperature
            losses["template"] = nt_xent(templates[0], templates[1], temperature, same=same)
        if self.pair_weight:
            losses["pair"] = self._pair_loss(utterances[0], templates[0], same)
        weights = {"utterance": self.utterance_weight, "template": self.template_weight, "pair": self.pair_weight}
        total = torch.stack([weights[name] * loss for name, loss in losses.items()]).sum()
        metrics: base.Metrics = {f"{name}_loss": loss.detach() for name, loss in losses.items()}
        return total, metrics | {"equal_templates": equal_templates.sum()}

    def _pair_loss(self, utterances: Tensor, templates: Tensor, same: Tensor | None) -> Tensor:
        """Compute Eq. 3, or its variant with the other side's negatives, or the mean of both."""
        temperature = self.pair_temperature or self.temperature
        sides = {"utterances": [(templates, utterances)], "templates": [(utterances, templates)]}
        pairs = sides[self.negatives] if self.negatives != "balanced" else [*sides["utterances"], *sides["templates"]]
        return torch.stack([nt_xent(one, other, temperature, same=same) for one, other in pairs]).mean()
