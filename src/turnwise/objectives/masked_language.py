"""Masked language modelling (Devlin et al., 2019): continued pre-training on dialogues, alone or beside another objective."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from turnwise.backbone.compose import ROLE_TOKENS, TurnStyle
from turnwise.dialogue import Dialogue
from turnwise.losses import masked_language_model
from turnwise.objectives.objective import Batch, Example, Prepared, TokenStates


@dataclass(frozen=True, slots=True)
class MaskedLanguage:
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
        return nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden))

    def prepare(self, batch: Batch) -> Prepared:
        """Sequences with some of their tokens hidden, and what they were."""
        sequences, members, places, targets = [], [], [], []
        special = {*batch.composer.prefix, *batch.composer.suffix, *batch.composer.separator, *batch.composer.roles.values()}
        weights = np.zeros(len(batch), np.int64)
        for number, (first, last) in enumerate(batch.windows[:, 0].tolist()):
            sequence = batch.sequence(first, last, self.length if self.unit == "dialogue" else None).copy()
            free = np.array([place for place, token in enumerate(sequence) if token not in special], np.int64)
            wanted = min(max(1, round(len(free) * self.share)), self.most or len(free), len(free))
            chosen = np.sort(batch.random.choice(free, wanted, replace=False)) if wanted else free[:0]
            members += [number] * len(chosen)
            places += chosen.tolist()
            targets += sequence[chosen].tolist()
            sequence[chosen] = self._hidden(batch, sequence[chosen])
            sequences.append(sequence)
            weights[number] = len(chosen)
        facts = {
            name: np.array(values, np.int64)
            for name, values in zip(("members", "places", "targets"), (members, places, targets), strict=True)
        }
        return Prepared(sequences, len(batch), facts, weights=weights)

    @staticmethod
    def _hidden(batch: Batch, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        chance = batch.random.random(len(tokens))
        random = batch.random.integers(batch.composer.vocabulary, size=len(tokens), dtype=np.int32)
        return np.where(chance < 0.8, np.int32(batch.composer.mask), np.where(chance < 0.9, random, tokens))

    def loss_sum(
        self, states: TokenStates, facts: dict[str, npt.NDArray[Any]], heads: nn.Module, embeddings: nn.Module
    ) -> torch.Tensor:
        """Cross-entropy at the hidden places, through the input embeddings as output layer."""
        mine = np.isin(facts["members"], states.members)
        found = heads(states.at(facts["members"][mine].tolist(), facts["places"][mine].tolist()))
        weight = embeddings.weight
        assert isinstance(weight, torch.Tensor)
        targets = torch.as_tensor(facts["targets"][mine], device=found.device)
        return masked_language_model(found @ weight.T, targets)
