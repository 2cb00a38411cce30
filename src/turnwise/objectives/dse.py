"""DSE (Zhou et al., 2022): consecutive utterances as positive pairs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.validation import NonNegativeInt, Positive, PositiveInt
from turnwise.objectives import objective as base
from turnwise.objectives.losses import Weighting, hard_negative_nt_xent


def contrastive_head(hidden: int, size: int) -> nn.Module:
    """Create the head of DSE's appendix A.2 (d×d, ReLU, d×size, no biases), initialised as transformers does."""
    layers = (nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, size, bias=False))
    for layer in layers:
        nn.init.normal_(layer.weight, std=0.02)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


@dataclass(frozen=True, slots=True)
class DSE(base.PooledObjective):
    """Consecutive utterances: each pair (uᵢ, uᵢ₊₁) once, whoever speaks first, if both are long enough."""

    temperature: Positive = 0.05  # τ
    #: Numbers of turns before the response that make a query: (1,) is DSE, (2,) and (3,) are DSE 2-1 and 3-1, (1, 2, 3)
    #: is DSE 123-1; turns are joined by the backbone's separator.
    query_turns: tuple[PositiveInt, ...] = (1,)
    #: 'consecutive' turns; 'dropout': the same unique sentence twice (DSE-dropout); 'entailment': the two texts of
    #: entailment pairs in an NLI file (DSE-dianli).
    positives: Literal["consecutive", "dropout", "entailment"] = "consecutive"
    minimum_words: NonNegativeInt = 3  # both sides have more words than this
    weighting: Weighting = "outside"  # the form of the loss (`losses.hard_negative_nt_xent`)
    mask_equal: bool = False  # equal texts in a batch are not used as negatives of each other; the paper uses them
    head_size: NonNegativeInt = 128  # of the vectors that the loss compares; 0: no head, the encoder's own vectors

    @property
    def traits(self) -> base.Traits:
        """DSE-dropout uses each sentence once."""
        return base.Traits(unique=self.positives == "dropout")

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Iterate over (query, response)."""
        long = [base.count_words(turn.text) > self.minimum_words for turn in dialogue.turns]
        if self.positives == "dropout":
            yield from (base.Example(((turn, turn + 1),) * 2) for turn, enough in enumerate(long) if enough)
            return
        if self.positives == "entailment":
            if dialogue.turns[1].intent == "entailment":
                yield base.Example(((0, 1), (1, 2)))
            return
        for response in range(1, len(long)):
            # words are counted in the turn next to the response, so that all variants have the same pairs
            if long[response - 1] and long[response]:
                for turns in self.query_turns:
                    if turns <= response:
                        yield base.Example(((response - turns, response), (response, response + 1)))

    def make_heads(self, hidden: int) -> nn.Module:
        """Create the contrastive head, which is used in training only."""
        return contrastive_head(hidden, self.head_size) if self.head_size else nn.Identity()

    def loss(self, vectors: Tensor, inputs: base.Tensors, heads: nn.Module) -> tuple[Tensor, base.Metrics]:
        """Compute Eqs. 1–3 on the heads' outputs."""
        same = base.equal_texts(inputs["identities"].flatten())
        masked = same if self.mask_equal and self.positives != "dropout" else None
        queries, responses = heads(vectors)
        loss = hard_negative_nt_xent(queries, responses, self.temperature, weighting=self.weighting, same=masked)
        return loss, {"equal_texts": same.sum() / 2}
