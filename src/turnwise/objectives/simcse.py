"""SimCSE (Gao et al., 2021)."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.validation import NonNegativeInt, Positive
from turnwise.objectives import objective as base
from turnwise.objectives.losses import nt_xent


@dataclass(frozen=True, slots=True)
class SimCSE(base.PooledObjective):
    """SimCSE (Gao et al., 2021): a sentence twice under dropout, or NLI triplets with hard negatives."""

    supervised: bool = False  # from NLI triplets (premise, entailment, contradiction)
    temperature: Positive = 0.05  # τ
    minimum_words: NonNegativeInt = 0  # sentences have more words than this
    mask_equal: bool = False  # equal texts in a batch are not used as negatives of each other; the paper uses them
    head: bool = True  # a tanh layer in training only; without it the pooling 'cls-mlp' keeps its own layer

    @property
    def traits(self) -> base.Traits:
        """Sentence, positive and, if supervised, negative; otherwise each sentence is used once."""
        return base.Traits(columns=3 if self.supervised else 2, unique=not self.supervised)

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Iterate over the sentences, each paired with itself, or triplets."""
        if not self.supervised:
            for number, turn in enumerate(dialogue.turns):
                if base.count_words(turn.text) > self.minimum_words:
                    yield base.Example(((number, number + 1), (number, number + 1)))
        elif len(dialogue.turns) == 3:
            yield base.Example(((0, 1), (1, 2), (2, 3)))

    def make_heads(self, hidden: int) -> nn.Module:
        """Create the tanh layer on the pooled vector, which the authors drop at test time in the unsupervised form."""
        return nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh()) if self.head else nn.Identity()

    def loss(self, vectors: Tensor, inputs: base.Tensors, heads: nn.Module) -> tuple[Tensor, base.Metrics]:
        """Compute Eq. 1 (unsupervised) or Eq. 5 (supervised) of the paper."""
        anchors, positives, *negatives = heads(vectors)
        identities = inputs["identities"]
        same = identities[1][:, None] == identities[1:].flatten()[None, :]
        hard, masked = negatives[0] if self.supervised else None, same if self.mask_equal else None
        loss = nt_xent(anchors, positives, self.temperature, negatives=hard, same=masked)
        return loss, {"equal_texts": same.sum() - len(same)}
