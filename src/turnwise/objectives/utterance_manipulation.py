"""UMS's three tasks beside response selection (Whang et al., 2021): insertion, deletion and search of utterances.

Each takes k consecutive utterances out of a dialogue's context and asks for one of the marks between them. They are drawn anew at
every visit; what they are drawn from is never changed. What stands in a window tells nothing of where the answer is: its place is
uniform.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from turnwise.core.dialogue import WRONG_RESPONSE, Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.inputs import (
    DELETE,
    END_OF_TURN,
    INSERT,
    SEARCH,
    WINDOW,
    MarkedInput,
    TurnStyle,
    deletion_input,
    insertion_input,
    search_input,
)
from turnwise.models.backbone.stream import Tokens
from turnwise.objectives.losses import marked_places
from turnwise.objectives.objective import Batch, Example, Prepared, TokenStates
from turnwise.objectives.reranking import (
    Responses,
    is_labelled,
    marked_batch,
    marked_logits,
    responses_of,
    scoring_head,
)


@dataclass(frozen=True, slots=True)
class UtteranceManipulation(ABC):
    """What the three tasks share.

    Attributes:
        window: k, consecutive utterances that are taken out; of a shorter context, all of it.
        with_response: whether the true response counts among a context's utterances; the paper takes the context alone.
        responses: which turns of a dialogue are responses, as in response selection: each has a context.
        form: of the loss: 'sigmoid' asks at every mark, as the paper does; 'softmax' which of a window's marks.
        length: tokens of a sequence; the longest utterances lose their ends, marks are never lost.
        head_dropout: before the layer that scores.
    """

    window: int = WINDOW
    with_response: bool = False
    responses: Responses = "every"
    form: Literal["sigmoid", "softmax"] = "sigmoid"
    length: int = 512
    head_dropout: float = 0.2

    needs: ClassVar[Literal["tokens"]] = "tokens"
    miner: ClassVar[None] = None
    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    columns: ClassVar[int] = 1
    style: ClassVar[TurnStyle] = "separator"
    slot_names: ClassVar[None] = None
    unique: ClassVar[bool] = False

    #: Utterances without which there is nothing to be asked.
    least: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if self.window < self.least:
            raise TurnwiseError(f"window={self.window}: this task needs {self.least} utterances or more")

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Contexts of true responses that are long enough."""
        labelled = is_labelled(dialogue)
        if labelled and dialogue.turns[-1].intent == WRONG_RESPONSE:
            return
        for turn in responses_of(dialogue, "last" if labelled else self.responses):
            utterances = turn + self.with_response
            if utterances >= self.least:
                yield Example(((0, utterances),))

    def heads(self, hidden: int) -> nn.Module:
        """The layer that scores."""
        return scoring_head(hidden, self.head_dropout)

    def prepare(self, batch: Batch) -> Prepared:
        """A window of each context, manipulated, and which of its marks is the answer."""
        marked: list[MarkedInput] = []
        targets: list[npt.NDArray[np.bool_]] = []
        for first, last in batch.windows[:, 0].tolist():
            size = min(self.window, last - first)
            start = first + int(batch.random.integers(last - first - size + 1))
            each, target = self.manipulated(batch, range(start, start + size))
            marked.append(each)
            targets.append(np.arange(len(each.positions)) == target)
        return marked_batch(marked, len(batch), {"targets": np.concatenate(targets)})

    @abstractmethod
    def manipulated(self, batch: Batch, turns: Sequence[int]) -> tuple[MarkedInput, int]:
        """What is read of a window, and the number of the mark that is the answer."""

    def _longest(self, batch: Batch) -> int:
        return min(self.length, batch.longest)

    def loss_sum(
        self, states: TokenStates, facts: dict[str, npt.NDArray[Any]], heads: nn.Module, embeddings: nn.Module
    ) -> torch.Tensor:
        """The loss at the marks of some sequences."""
        logits, members = marked_logits(states, facts, heads)
        _, rows = np.unique(members, return_inverse=True)
        mine = np.isin(facts["members"], states.members)
        device = logits.device
        targets = torch.as_tensor(facts["targets"][mine], device=device)
        return marked_places(logits, torch.as_tensor(rows, device=device), targets, self.form)


@dataclass(frozen=True, slots=True)
class Insertion(UtteranceManipulation):
    """One utterance is taken out: where does it belong? [INS] stands before each of the others and behind the last."""

    task: ClassVar[Literal["insertion"]] = "insertion"
    special_tokens: ClassVar[tuple[str, ...]] = (END_OF_TURN, INSERT)

    def manipulated(self, batch: Batch, turns: Sequence[int]) -> tuple[MarkedInput, int]:
        """The window without a turn, then that turn."""
        target = int(batch.random.integers(len(turns)))
        texts = _tokens(batch, turns)
        return insertion_input(
            batch.composer, texts[:target] + texts[target + 1 :], texts[target], self._longest(batch)
        ), target


@dataclass(frozen=True, slots=True)
class Deletion(UtteranceManipulation):
    """An utterance of another dialogue is put in, at any place: which one does not belong? [DEL] stands before each."""

    task: ClassVar[Literal["deletion"]] = "deletion"
    special_tokens: ClassVar[tuple[str, ...]] = (END_OF_TURN, DELETE)

    def manipulated(self, batch: Batch, turns: Sequence[int]) -> tuple[MarkedInput, int]:
        """The window with a turn that is not its own."""
        target = int(batch.random.integers(len(turns) + 1))
        stranger = batch.stranger(turns[0], [batch.texts.identity(turn) for turn in turns])
        mixed = [*turns[:target], stranger, *turns[target:]]
        return deletion_input(batch.composer, _tokens(batch, mixed), self._longest(batch)), target


@dataclass(frozen=True, slots=True)
class Search(UtteranceManipulation):
    """All but the last utterance are shuffled: which of them came right before it? [SRCH] stands before each."""

    task: ClassVar[Literal["search"]] = "search"
    special_tokens: ClassVar[tuple[str, ...]] = (END_OF_TURN, SEARCH)
    least: ClassVar[int] = 3

    def manipulated(self, batch: Batch, turns: Sequence[int]) -> tuple[MarkedInput, int]:
        """The others of the window in another order, then its last turn."""
        *others, last = turns
        order = batch.random.permutation(len(others))
        shuffled = [others[place] for place in order]
        predecessor = int(np.flatnonzero(order == len(others) - 1)[0])
        (target,) = _tokens(batch, [last])
        return search_input(batch.composer, _tokens(batch, shuffled), target, self._longest(batch)), predecessor


def _tokens(batch: Batch, turns: Sequence[int]) -> list[Tokens]:
    return [batch.texts.tokens(turn) for turn in turns]
