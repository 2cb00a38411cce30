"""Masked language modelling, which continues a backbone's own pre-training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.validation import Fraction, NonNegativeInt, PositiveInt
from turnwise.models.backbone.language_head import LanguageHead
from turnwise.models.backbone.ragged import RaggedTokens, Tokens
from turnwise.objectives import objective as base
from turnwise.objectives.losses import masked_language_model


@dataclass(frozen=True, slots=True)
class MaskedLanguage(base.TokenObjective):
    """15% of the tokens are to be predicted (Devlin et al., 2019): 80% are masked, 10% replaced, 10% left."""

    mask_fraction: Fraction = 0.15  # fraction of the tokens to be predicted
    max_masked: NonNegativeInt = 0  # predicted tokens of one sequence; 0: no limit
    #: A sequence is a 'turn' or a whole 'dialogue', which loses its oldest tokens if it is too long.
    unit: Literal["turn", "dialogue"] = "turn"
    roles: bool = False  # mark speakers by [SYS] and [USR], as TOD-BERT does
    length: PositiveInt = 256  # tokens of a dialogue's sequence

    @property
    def traits(self) -> base.Traits:
        """Single turns or dialogues, in which roles may be marked."""
        return base.Traits(columns=1, style="roles" if self.roles else "separator")

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Iterate over the turns, or yield the dialogue."""
        if self.unit == "dialogue":
            yield base.Example(((0, len(dialogue.turns)),))
        else:
            yield from (base.Example(((turn, turn + 1),)) for turn in range(len(dialogue.turns)))

    def make_heads(self, hidden: int) -> nn.Module:
        """Create BERT's prediction head; the input embeddings are its output layer."""
        return LanguageHead(hidden, hidden)

    def prepare(self, batch: base.Batch) -> base.PreparedBatch:
        """Return sequences with masked tokens, and the original tokens."""
        length = self.length if self.unit == "dialogue" else None
        sequences = [batch.sequence(first, last, length) for first, last in batch.windows[:, 0].tolist()]
        masked, inputs = mask_tokens(batch, sequences, self.mask_fraction, self.max_masked)
        return base.PreparedBatch(
            masked, len(batch), inputs, weights=np.bincount(inputs["members"], minlength=len(batch))
        )

    def loss_sum(
        self, states: base.TokenStates, inputs: base.Arrays, heads: nn.Module, embeddings: nn.Module
    ) -> Tensor:
        """Compute the cross-entropy at the masked positions."""
        return masked_language_model(*masked_token_logits(states, inputs, heads, embeddings))


def mask_tokens(
    batch: base.Batch, sequences: Sequence[Tokens], fraction: float, limit: int, *, mask_only: bool = False
) -> tuple[RaggedTokens, base.Arrays]:
    """Mask a fraction of each sequence's tokens that are not special, rounded, one at least and `limit` at most.

    With `mask_only` all chosen tokens are masked; otherwise 80% are masked, 10% are replaced by a random token, and 10%
    stay. Returned are the masked sequences, and the arrays `members` (a chosen token's sequence), `positions` in it,
    and `targets` (the token).
    """
    composer = batch.composer
    special = [*composer.prefix, *composer.middle, *composer.suffix, *composer.separator, *composer.roles.values()]
    if composer.mask < 0:
        raise TurnwiseError(
            "this backbone's tokenizer has no mask token such as [MASK]: use a backbone that was trained with one"
        )
    masked: list[Tokens] = []
    arrays: dict[str, list[npt.NDArray[np.integer]]] = {"members": [], "positions": [], "targets": []}
    for number, original in enumerate(sequences):
        maskable = np.flatnonzero(~np.isin(original, special))
        count = min(max(1, round(len(maskable) * fraction)), limit or len(maskable), len(maskable))
        chosen = np.sort(batch.random.choice(maskable, count, replace=False)) if count else maskable[:0]
        sequence = original.copy()
        sequence[chosen] = composer.mask if mask_only else _corrupt(batch, original[chosen])
        masked.append(sequence)
        arrays["members"].append(np.full(len(chosen), number))
        arrays["positions"].append(chosen)
        arrays["targets"].append(original[chosen])
    return RaggedTokens.of(masked), {name: np.concatenate(values).astype(np.int64) for name, values in arrays.items()}


def _corrupt(batch: base.Batch, tokens: Tokens) -> Tokens:
    chance = batch.random.random(len(tokens))
    random = batch.random.integers(batch.composer.vocabulary, size=len(tokens), dtype=np.int32)
    return np.where(chance < 0.8, np.int32(batch.composer.mask), np.where(chance < 0.9, random, tokens))


def masked_token_logits(
    states: base.TokenStates, inputs: base.Arrays, head: nn.Module, embeddings: nn.Module
) -> tuple[Tensor, Tensor]:
    """Return the logits of the masked tokens of some sequences (masked, vocabulary), and the tokens (masked,)."""
    selected, own = states.select(inputs)
    return head(selected, embeddings), states.to_tensor(inputs["targets"][own])
