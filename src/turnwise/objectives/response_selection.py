"""Response selection (Whang et al., 2021, Eq. 1): does this response go on from this context? What a re-ranker is for.

A dialogue gives contexts with their true responses; wrong ones are drawn at every visit: from other dialogues, from the same one,
or from what an encoder would have answered instead. A store of labelled responses (reader `labelled_responses`) has wrong ones of
its own, and nothing is drawn.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from turnwise.core.dialogue import RIGHT_RESPONSE, Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.inputs import END_OF_TURN, MarkedInput, TurnStyle, selection_input
from turnwise.models.backbone.stream import Tokens
from turnwise.objectives.losses import relevance
from turnwise.objectives.objective import Batch, Example, Prepared, TokenStates
from turnwise.objectives.reranking import (
    Responses,
    is_labelled,
    marked_batch,
    marked_logits,
    responses_of,
    scoring_head,
)

#: Labels of examples: a wrong response, a right one, and one whose wrong ones are to be drawn.
_WRONG, _RIGHT, _ALONE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ResponseSelection:
    """A context and a response, read together.

    Attributes:
        responses: which turns of a dialogue are responses: every one that answers another, those of the system, or the last alone.
        negatives: wrong responses for each right one.
        random: a share of the wrong ones, beside the next two: turns of other dialogues, of the same speaker where there are such.
        in_dialogue: other turns of the same dialogue.
        mined: what an encoder would have answered; a turn of another dialogue where it finds nothing.
        mined_by: that encoder: 'minilm', a folder, a Hugging Face id.
        length: tokens of context and response together; the context is cut at its head.
        head_dropout: before the layer that scores.
    """

    responses: Responses = "every"
    negatives: int = 1
    random: float = 1.0
    in_dialogue: float = 0.0
    mined: float = 0.0
    mined_by: str = "minilm"
    length: int = 512
    head_dropout: float = 0.2

    needs: ClassVar[Literal["tokens"]] = "tokens"
    task: ClassVar[Literal["selection"]] = "selection"
    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    columns: ClassVar[int] = 2
    style: ClassVar[TurnStyle] = "separator"
    special_tokens: ClassVar[tuple[str, ...]] = (END_OF_TURN,)
    slot_names: ClassVar[None] = None
    unique: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.negatives < 1:
            raise TurnwiseError(f"objectives.response-selection.negatives={self.negatives}: needs to be 1 or more")
        if min(self._shares) < 0 or not sum(self._shares):
            raise TurnwiseError(
                "objectives.response-selection: random, in_dialogue and mined are shares, and not all of them 0"
            )

    @property
    def _shares(self) -> tuple[float, float, float]:
        return self.random, self.in_dialogue, self.mined

    @property
    def miner(self) -> str | None:
        """The encoder that finds wrong answers, where they are wanted."""
        return self.mined_by if self.mined else None

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Contexts with their responses; where these are labelled, that label."""
        if is_labelled(dialogue):
            last = len(dialogue.turns) - 1
            yield Example(
                ((0, last), (last, last + 1)), _RIGHT if dialogue.turns[last].intent == RIGHT_RESPONSE else _WRONG
            )
            return
        for turn in responses_of(dialogue, self.responses):
            yield Example(((0, turn), (turn, turn + 1)), _ALONE)

    def heads(self, hidden: int) -> nn.Module:
        """The layer that scores."""
        return scoring_head(hidden, self.head_dropout)

    def prepare(self, batch: Batch) -> Prepared:
        """Each context with its response and with wrong ones."""
        marked: list[MarkedInput] = []
        labels: list[int] = []
        for ((first, last), (response, _)), label in zip(batch.windows.tolist(), batch.labels.tolist(), strict=True):
            wrong = [self._wrong(batch, response) for _ in range(self.negatives)] if label == _ALONE else []
            context = [batch.texts.tokens(turn) for turn in range(first, last)]
            marked += [self._marked(batch, context, turn) for turn in (response, *wrong)]
            labels += [int(label != _WRONG), *(0 for _ in wrong)]
        return marked_batch(marked, len(batch), {"labels": np.array(labels, np.int64)})

    def _marked(self, batch: Batch, context: list[Tokens], response: int) -> MarkedInput:
        return selection_input(batch.composer, context, batch.texts.tokens(response), min(self.length, batch.longest))

    def _wrong(self, batch: Batch, response: int) -> int:
        """A turn that is no answer here."""
        texts = batch.texts
        shares = np.array(self._shares)
        kind = int(batch.random.choice(len(shares), p=shares / shares.sum()))
        truth = texts.identity(response)
        others: list[int] = []
        if kind == 1:
            here = int(np.searchsorted(texts.dialogue_starts, response, "right"))
            own = range(int(texts.dialogue_starts[here - 1]), int(texts.dialogue_starts[here]))
            others = [turn for turn in own if texts.identity(turn) != truth]
        elif kind == 2:
            others = texts.hard_negatives(response).tolist()
        if others:
            return others[int(batch.random.integers(len(others)))]
        return batch.stranger(response, [truth], texts.speaker(response))

    def loss_sum(
        self, states: TokenStates, facts: dict[str, npt.NDArray[Any]], heads: nn.Module, embeddings: nn.Module
    ) -> torch.Tensor:
        """Binary cross-entropy of the first token's score, over some of the pairs."""
        logits, members = marked_logits(states, facts, heads)
        return relevance(logits, torch.as_tensor(facts["labels"][members], device=logits.device))
