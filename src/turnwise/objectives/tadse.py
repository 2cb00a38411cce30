"""TaDSE: utterances and their templates, each told apart from others, and which belongs to which.

From "TaDSE: Template-aware Dialogue Sentence Embeddings" (Oh et al.). The template of an utterance is its text with the slots'
values taken out. Utterances u and templates t are encoded twice under dropout (u, u⁺, t, t⁺); over a batch of N,

    Lᵗ    = −mean log( exp(cos(tᵢ, tᵢ⁺)/τ_t) / Σ_j exp(cos(tᵢ, t_j⁺)/τ_t) )                       (Eq. 1)
    Lᵘ    = −mean log( exp(cos(uᵢ, uᵢ⁺)/τ_u) / Σ_j exp(cos(uᵢ, u_j⁺)/τ_u) )                       (Eq. 2)
    Lᵖᵃⁱʳ = −mean log( exp(cos(tᵢ, uᵢ)/τ_pair) / Σ_j exp(cos(tᵢ, u_j)/τ_pair) )                   (Eq. 3)
    L     = λᵗ·Lᵗ + λᵘ·Lᵘ + λᵖᵃⁱʳ·Lᵖᵃⁱʳ                                                           (Eq. 4)

Templates may go through a layer of their own first, t′ = M_A t, which stays with the model: semantic compression uses it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.slots.template import slots_in_place
from turnwise.models.backbone.backbone import PoolerLayer
from turnwise.models.backbone.inputs import TurnStyle
from turnwise.models.backbone.stream import RaggedTokens
from turnwise.objectives.losses import nt_xent
from turnwise.objectives.objective import Batch, Example, Figures, ForEncoders, Prepared, equal_texts


@dataclass(frozen=True, slots=True)
class TaDSE(ForEncoders):
    """Templates, utterances, and pairs of them, contrasted.

    Attributes:
        temperature: τ_u, and that of the other two losses where they have none of their own.
        template_temperature: τ_t; None: as `temperature`.
        pair_temperature: τ_pair; None: as `temperature`.
        utterance_weight: λᵘ.
        template_weight: λᵗ.
        pair_weight: λᵖᵃⁱʳ.
        negatives: what a pair is told apart from: 'utterances', as printed, where each template is to find its utterance;
            'templates', the authors' code's own choice, where each utterance is to find its template; 'balanced', the mean of both.
        template_layer: whether templates go through M_A, linear and tanh.
        mask_equal: equal texts are no negatives of each other, nor is an utterance of a template that equals the anchor's. The
            paper leaves them in: of an augmented corpus many utterances of a batch share a template, and are pushed apart.
        least_slots: turns with fewer slots are no examples; the paper takes all, a turn without slots being its own template.
        slot_names: how many slots, the most frequent ones, have a token of their own in templates, `{name}`; all others are
            `{SLOT}`, as in the paper all are.
    """

    temperature: float = 0.05
    template_temperature: float | None = None
    pair_temperature: float | None = None
    utterance_weight: float = 1.0
    template_weight: float = 1.0
    pair_weight: float = 0.5
    negatives: Literal["utterances", "templates", "balanced"] = "utterances"
    template_layer: bool = False
    mask_equal: bool = False
    least_slots: int = 0
    slot_names: int = 0

    needs: ClassVar[Literal["pooled"]] = "pooled"
    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    columns: ClassVar[int] = 1
    style: ClassVar[TurnStyle] = "separator"
    special_tokens: ClassVar[tuple[str, ...]] = ()
    unique: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for key in ("template_temperature", "pair_temperature"):
            if getattr(self, key) is not None and getattr(self, key) <= 0:
                raise TurnwiseError(f"{key}={getattr(self, key)}: needs to be above 0")
        for key in ("utterance_weight", "template_weight", "pair_weight", "least_slots", "slot_names"):
            if getattr(self, key) < 0:
                raise TurnwiseError(f"{key}={getattr(self, key)}: needs to be 0 or more")
        if not self.utterance_weight + self.template_weight + self.pair_weight:
            raise TurnwiseError(
                "utterance_weight, template_weight and pair_weight are all 0: there is nothing to learn"
            )

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Each turn that has slots enough."""
        for turn, said in enumerate(dialogue.turns):
            if not self.least_slots or len(slots_in_place(said)) >= self.least_slots:
                yield Example(((turn, turn + 1),))

    def heads(self, hidden: int) -> nn.Module:
        """M_A, where it is wanted."""
        return PoolerLayer(hidden) if self.template_layer else nn.Identity()

    @property
    def _views(self) -> tuple[str, ...]:
        """What is encoded: of utterances and templates as many views as a loss that counts compares."""
        utterances = 2 if self.utterance_weight else 1 if self.pair_weight else 0
        templates = 2 if self.template_weight else 1 if self.pair_weight else 0
        return ("utterance",) * utterances + ("template",) * templates

    def prepare(self, batch: Batch) -> Prepared:
        """Utterances, and again, then templates, and again; what is not compared is not encoded."""
        turns = batch.windows[:, 0, 0].tolist()
        longest = min(batch.max_length, batch.longest)
        templates = [
            batch.composer.history([batch.texts.template(turn)], [batch.texts.speaker(turn)], longest) for turn in turns
        ]
        made = {"utterance": batch.column(0), "template": RaggedTokens.of(templates)}
        facts = {
            "utterances": batch.identities(0),
            "templates": np.array([batch.texts.template_identity(turn) for turn in turns], np.int64),
        }
        return Prepared(RaggedTokens.concatenate([made[view] for view in self._views]), len(turns), facts)

    def loss(
        self, vectors: torch.Tensor, facts: dict[str, torch.Tensor], heads: nn.Module
    ) -> tuple[torch.Tensor, Figures]:
        """Eq. 4; each of its losses goes to the log as well."""
        first_template = self._views.count("utterance")
        utterances, templates = vectors[:first_template], heads(vectors[first_template:])
        equal_templates = equal_texts(facts["templates"])
        losses: dict[str, torch.Tensor] = {}
        if self.utterance_weight:
            same = equal_texts(facts["utterances"]) if self.mask_equal else None
            losses["utterance"] = nt_xent(utterances[0], utterances[1], self.temperature, same=same)
        if self.template_weight:
            same = equal_templates if self.mask_equal else None
            temperature = self.template_temperature or self.temperature
            losses["template"] = nt_xent(templates[0], templates[1], temperature, same=same)
        if self.pair_weight:
            same = equal_templates if self.mask_equal else None
            losses["pair"] = self._pair_loss(utterances[0], templates[0], same)
        total = torch.stack([self._weight(name) * loss for name, loss in losses.items()]).sum()
        figures: Figures = {f"{name}_loss": loss.detach() for name, loss in losses.items()}
        return total, figures | {"equal_templates": equal_templates.sum()}

    def _pair_loss(self, utterances: torch.Tensor, templates: torch.Tensor, same: torch.Tensor | None) -> torch.Tensor:
        """Eq. 3, or with the other side's negatives, or half of each."""
        temperature = self.pair_temperature or self.temperature
        sides = []
        if self.negatives != "templates":
            sides.append(nt_xent(templates, utterances, temperature, same=same))
        if self.negatives != "utterances":
            sides.append(nt_xent(utterances, templates, temperature, same=same))
        return torch.stack(sides).mean()

    def _weight(self, name: str) -> float:
        return {"utterance": self.utterance_weight, "template": self.template_weight, "pair": self.pair_weight}[name]
