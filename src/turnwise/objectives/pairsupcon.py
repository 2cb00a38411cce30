"""PairSupCon (Zhang et al., 2021): NLI pairs, DSE's predecessor."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from turnwise.core.dialogue import Dialogue
from turnwise.core.validation import NonNegative, Positive, PositiveInt
from turnwise.objectives import objective as base
from turnwise.objectives.dse import contrastive_head
from turnwise.objectives.losses import hard_negative_nt_xent


@dataclass(frozen=True, slots=True)
class PairSupCon(base.PooledObjective):
    """PairSupCon (Zhang et al., 2021): contrast of entailment pairs, and their distinction from contradictions."""

    temperature: Positive = 0.05  # τ of the contrastive loss
    #: Of the loss that distinguishes entailment from contradiction by [u, v, |u − v|].
    classification_weight: NonNegative = 1.0
    head_size: PositiveInt = 128  # of the vectors that the contrastive loss compares

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Yield an entailment (label 1) or a contradiction (label 0); neutral pairs are not used."""
        if len(dialogue.turns) == 2 and dialogue.turns[1].intent in ("entailment", "contradiction"):
            yield base.Example(((0, 1), (1, 2)), int(dialogue.turns[1].intent == "entailment"))

    def make_heads(self, hidden: int) -> nn.Module:
        """Create DSE's contrastive head and a classifier without bias."""
        contrast = contrastive_head(hidden, self.head_size)
        return nn.ModuleDict({"contrast": contrast, "classify": nn.Linear(3 * hidden, 2, bias=False)})

    def prepare(self, batch: base.Batch) -> base.PreparedBatch:
        """Return premises, then hypotheses."""
        return base.PreparedBatch(batch.columns(), len(batch), {"entails": batch.labels})

    def loss(self, vectors: Tensor, inputs: base.Tensors, heads: nn.Module) -> tuple[Tensor, base.Metrics]:
        """Compute the contrastive loss over entailment pairs plus the weighted classification loss over all pairs."""
        assert isinstance(heads, nn.ModuleDict)
        entails = inputs["entails"]
        first, second = vectors
        logits = heads["classify"](torch.cat([first, second, (first - second).abs()], dim=1))
        classification = cross_entropy(logits.float(), entails)
        queries, responses = heads["contrast"](vectors)
        contrast = hard_negative_nt_xent(queries, responses, self.temperature, is_pair=entails == 1)
        metrics: base.Metrics = {"contrast": contrast.detach(), "classification": classification.detach()}
        return contrast + self.classification_weight * classification, metrics
