"""Masked language modelling (Devlin et al., 2019): continued pre-training on dialogues, alone or beside another objective."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.inputs import ROLE_TOKENS, TurnStyle
from turnwise.models.backbone.stream import RaggedTokens, Tokens
from turnwise.objectives.losses import masked_language_model
from turnwise.objectives.objective import Batch, Example, ForEncoders, Prepared, TokenStates


@dataclass(frozen=True, slots=True)
class MaskedLanguage(ForEncoders):
    """15% of the tokens are to be found again: 80% of them are masked, 10% replaced by any token, 10% left.

    Attributes:
        share: of the tokens to be found.
        most: of them in one sequence; 0: no limit.
        unit: a 'turn' a sequence, or the whole 'dialogue', cut from its head.
        roles: mark speakers by [SYS] and [USR], as TOD-BERT does.
        length: tokens of a dialogue's sequence.
    """

    share: float = 0.15
    most: int = 0
    unit: Literal["turn", "dialogue"] = "turn"
    roles: bool = False
    length: int = 256

    needs: ClassVar[Literal["tokens"]] = "tokens"
    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    columns: ClassVar[int] = 1
    unique: ClassVar[bool] = False
    slot_names: ClassVar[None] = None

    @property
    def style(self) -> TurnStyle:
        """How the turns of a dialogue are joined."""
        return "roles" if self.roles else "separator"

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The speakers' marks, where they are wanted."""
        return tuple(ROLE_TOKENS.values()) if self.roles else ()

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Each turn, or the dialogue."""
        if self.unit == "dialogue":
            yield Example(((0, len(dialogue.turns)),))
        else:
            yield from (Example(((turn, turn + 1),)) for turn in range(len(dialogue.turns)))

    def heads(self, hidden: int) -> nn.Module:
        """BERT's transform before the embeddings serve as output layer."""
        return language_head(hidden, hidden)

    def prepare(self, batch: Batch) -> Prepared:
        """Sequences with some of their tokens hidden, and what they were."""
        composer = batch.composer
        kept = [*composer.prefix, *composer.suffix, *composer.separator, *composer.roles.values()]
        length = self.length if self.unit == "dialogue" else None
        whole = [batch.sequence(first, last, length) for first, last in batch.windows[:, 0].tolist()]
        sequences, facts = hide(batch, whole, kept, self.share, self.most)
        return Prepared(sequences, len(batch), facts, weights=np.bincount(facts["members"], minlength=len(batch)))

    def loss_sum(
        self, states: TokenStates, facts: dict[str, npt.NDArray[Any]], heads: nn.Module, embeddings: nn.Module
    ) -> torch.Tensor:
        """Cross-entropy at the hidden places, through the input embeddings as output layer."""
        return masked_language_model(*hidden_logits(states, facts, heads, embeddings))


# ---- what all that hides tokens shares


def language_head(width: int, hidden: int) -> nn.Sequential:
    """BERT's transform, from states of some width to what the embeddings are multiplied with."""
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.LayerNorm(hidden))


def hide(
    batch: Batch,
    sequences: Sequence[Tokens],
    kept: Sequence[int],
    share: float,
    most: int = 0,
    *,
    masked_alone: bool = False,
) -> tuple[RaggedTokens, dict[str, npt.NDArray[Any]]]:
    """Hides some tokens of each sequence: a share of those that may be hidden, rounded, and one at the least.

    Args:
        batch: its chance and its composer.
        sequences: what is to be hidden in; they are not changed.
        kept: tokens that are never hidden.
        share: of the others.
        most: tokens of one sequence; 0: no limit.
        masked_alone: all are masked; else 80% are, 10% are replaced by any token, and 10% left.

    Returns:
        The sequences with their tokens hidden, and as facts `members` (the number of a token's sequence), `places` in it, and
        `targets` (the token itself).

    Raises:
        TurnwiseError: if the backbone's tokenizer has no token that hides another.
    """
    if batch.composer.mask < 0:
        raise TurnwiseError(
            "this backbone's tokenizer has no token such as [MASK]: take a backbone that was trained with one"
        )
    found: list[Tokens] = []
    facts: dict[str, list[npt.NDArray[Any]]] = {"members": [], "places": [], "targets": []}
    for number, whole in enumerate(sequences):
        free = np.flatnonzero(~np.isin(whole, kept))
        wanted = min(max(1, round(len(free) * share)), most or len(free), len(free))
        chosen = np.sort(batch.random.choice(free, wanted, replace=False)) if wanted else free[:0]
        sequence = whole.copy()
        sequence[chosen] = batch.composer.mask if masked_alone else _disguised(batch, whole[chosen])
        found.append(sequence)
        facts["members"].append(np.full(len(chosen), number))
        facts["places"].append(chosen)
        facts["targets"].append(whole[chosen])
    return RaggedTokens.of(found), {name: np.concatenate(values).astype(np.int64) for name, values in facts.items()}


def _disguised(batch: Batch, tokens: Tokens) -> Tokens:
    chance = batch.random.random(len(tokens))
    random = batch.random.integers(batch.composer.vocabulary, size=len(tokens), dtype=np.int32)
    return np.where(chance < 0.8, np.int32(batch.composer.mask), np.where(chance < 0.9, random, tokens))


def hidden_logits(
    states: TokenStates, facts: dict[str, npt.NDArray[Any]], transform: nn.Module, embeddings: nn.Module
) -> tuple[torch.Tensor, torch.Tensor]:
    """What is said of the hidden tokens of some sequences, (hidden, vocabulary), and what they are, (hidden,)."""
    mine = np.isin(facts["members"], states.members)
    found = transform(states.at(facts["members"][mine].tolist(), facts["places"][mine].tolist()))
    targets = torch.as_tensor(facts["targets"][mine], device=found.device)
    return found @ word_vectors(embeddings, found.shape[1]).T, targets


def word_vectors(embeddings: nn.Module, hidden: int) -> torch.Tensor:
    """The backbone's input embeddings (vocabulary, hidden), which serve as output layer, too.

    Raises:
        TurnwiseError: if they are not as wide as the backbone's states.
    """
    weight = embeddings.weight
    assert isinstance(weight, torch.Tensor)
    if weight.shape[1] != hidden:
        raise TurnwiseError(
            f"this backbone's embeddings have {weight.shape[1]} numbers and its states {hidden}: hidden tokens can be found again"
            " only where the two are as wide; take another backbone"
        )
    return weight
