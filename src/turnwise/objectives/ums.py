"""UMS (Whang et al., 2021): response selection and three tasks on manipulated utterances train a re-ranker.

Response selection (Eq. 1) scores whether a response continues a context. A dialogue gives contexts with their true
responses; wrong ones are drawn each time: from other dialogues, from the same one, or from mined hard negatives. A
store of labelled responses (reader `labelled_responses`) has its own wrong ones, and nothing is drawn unless
`draw_for_labelled` is set: wrong responses that are all hard teach a re-ranker nothing about easy ones.

Insertion, deletion and search (Eq. 2) take k consecutive utterances of a dialogue's context, at random each time, and
ask for one of the marks between them. Its position is uniform, so that it cannot be guessed from the window.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from turnwise.core.dialogue import RIGHT_RESPONSE, SYSTEM, WRONG_RESPONSE, Dialogue
from turnwise.core.validation import NonNegative, PositiveInt, Rate
from turnwise.models.backbone.inputs import (
    END_OF_TURN,
    MARKS,
    WINDOW,
    AuxiliaryTask,
    MarkedInput,
    RerankerTask,
    marked_input,
    selection_input,
)
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.objectives.losses import binary_classification, mark_classification
from turnwise.objectives.objective import Arrays, Batch, Example, PreparedBatch, TokenObjective, TokenStates, Traits

#: Which turns of a dialogue are responses: every turn but the first, those of the system, or the last.
Responses = Literal["every", "system", "last"]

#: A window's turns after a manipulation, the task's target turn if it has one, and the number of the correct mark.
ManipulatedWindow = tuple[Sequence[int], int | None, int]

#: Labels of examples: a wrong response, a right one, and one whose wrong responses are drawn.
_WRONG, _RIGHT, _UNLABELLED = 0, 1, 2


def find_responses(dialogue: Dialogue, which: Responses) -> list[int]:
    """Return the turns of a dialogue that are responses."""
    last = len(dialogue.turns) - 1
    if which == "last":
        return [last] if last else []
    return [turn for turn in range(1, last + 1) if which == "every" or dialogue.turns[turn].speaker == SYSTEM]


def is_labelled(dialogue: Dialogue) -> bool:
    """Return whether the last turn of a dialogue is a response labelled as right or wrong."""
    return len(dialogue.turns) > 1 and dialogue.turns[-1].intent in (RIGHT_RESPONSE, WRONG_RESPONSE)


class RerankerObjective(TokenObjective):
    """An objective that scores marked positions of sequences by a linear layer, which is saved with the re-ranker."""

    __slots__ = ()

    head_dropout: float
    length: int
    task: ClassVar[RerankerTask]

    def make_heads(self, hidden: int) -> nn.Module:
        """Create dropout and a linear layer to one score, initialised as BERT's layers are."""
        layer = nn.Linear(hidden, 1)
        nn.init.normal_(layer.weight, std=0.02)
        nn.init.zeros_(layer.bias)
        return nn.Sequential(nn.Dropout(self.head_dropout), layer)

    def _longest(self, batch: Batch) -> int:
        return min(self.length, batch.longest)


def prepare_marked(marked: list[MarkedInput], rows: int, inputs: Arrays) -> PreparedBatch:
    """Return sequences with the positions that a head scores; each sequence is an item of the loss."""
    counts = [len(each.positions) for each in marked]
    positions = {
        "members": np.repeat(np.arange(len(marked)), counts),
        "positions": np.concatenate([each.positions for each in marked]),
    }
    return PreparedBatch(
        RaggedTokens.of([each.tokens for each in marked]),
        rows,
        positions | inputs,
        segments=RaggedTokens.of([each.segments for each in marked]),
        weights=np.ones(len(marked), np.int64),
    )


def score_marks(states: TokenStates, inputs: Arrays, heads: nn.Module) -> tuple[Tensor, npt.NDArray[np.bool_]]:
    """Return a head's scores at the marked positions of some sequences (marks,), and which positions these are."""
    selected, own = states.select(inputs)
    with torch.autocast(selected.device.type, enabled=False):  # which would round a score
        logits: Tensor = heads(selected.float())[:, 0]
    return logits, own


@dataclass(frozen=True, slots=True)
class ResponseSelection(RerankerObjective):
    """A context and a response, read together."""

    responses: Responses = "every"
    negatives: PositiveInt = 1  # wrong responses for each right one
    #: Proportions of wrong responses from other dialogues (of the same speaker if there are such), from the same
    #: dialogue, and of mined hard negatives (if a response has none, from another dialogue).
    random: NonNegative = 1.0
    in_dialogue: NonNegative = 0.0
    mined: NonNegative = 0.0
    mined_by: str = "minilm"  # the encoder that mines them: a packaged one, a folder, a Hugging Face id
    #: Draw wrong responses also for the right ones of a store of labelled responses, beside its own wrong ones.
    draw_for_labelled: bool = False
    length: PositiveInt = 512  # tokens of context and response together; the context loses its oldest tokens
    head_dropout: Rate = 0.2  # before the layer that scores

    task: ClassVar[Literal["selection"]] = "selection"

    def __post_init__(self) -> None:
        if not sum(self._proportions):
            raise ValueError("random, in_dialogue and mined are all 0: one of them must be positive")

    @property
    def _proportions(self) -> tuple[float, float, float]:
        return self.random, self.in_dialogue, self.mined

    @property
    def traits(self) -> Traits:
        """[EOT] ends utterances."""
        return Traits(special_tokens=(END_OF_TURN,), miner=self.mined_by if self.mined else None)

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Iterate over (context, response); a labelled response has its label."""
        if is_labelled(dialogue):
            last = len(dialogue.turns) - 1
            label = _RIGHT if dialogue.turns[last].intent == RIGHT_RESPONSE else _WRONG
            yield Example(((0, last), (last, last + 1)), label)
            return
        for turn in find_responses(dialogue, self.responses):
            yield Example(((0, turn), (turn, turn + 1)), _UNLABELLED)

    def prepare(self, batch: Batch) -> PreparedBatch:
        """Return each context with its response and with wrong ones."""
        marked: list[MarkedInput] = []
        labels: list[int] = []
        longest = self._longest(batch)
        for ((first, last), (response, _)), label in zip(batch.windows.tolist(), batch.labels.tolist(), strict=True):
            draws = label == _UNLABELLED or (label == _RIGHT and self.draw_for_labelled)
            wrong = [self._draw_wrong(batch, response) for _ in range(self.negatives)] if draws else []
            context = [batch.texts.tokens(turn) for turn in range(first, last)]
            marked += [
                selection_input(batch.composer, context, batch.texts.tokens(turn), longest)
                for turn in (response, *wrong)
            ]
            labels += [int(label != _WRONG), *(0 for _ in wrong)]
        return prepare_marked(marked, len(batch), {"labels": np.array(labels, np.int64)})

    def _draw_wrong(self, batch: Batch, response: int) -> int:
        texts = batch.texts
        proportions = np.array(self._proportions)
        kind = int(batch.random.choice(len(proportions), p=proportions / proportions.sum()))
        truth = texts.identity(response)
        candidates: list[int] = []
        if kind == 1:
            candidates = [turn for turn in batch.dialogue(response) if texts.identity(turn) != truth]
        elif kind == 2:
            candidates = texts.hard_negatives(response).tolist()
        if candidates:
            return candidates[int(batch.random.integers(len(candidates)))]
        return batch.random_negative(response, [truth], texts.speaker(response))

    def loss_sum(self, states: TokenStates, inputs: Arrays, heads: nn.Module, embeddings: nn.Module) -> Tensor:
        """Compute the binary cross-entropy of the first token's score, over some of the pairs."""
        logits, own = score_marks(states, inputs, heads)
        return binary_classification(logits, states.to_tensor(inputs["labels"][inputs["members"][own]]))


@dataclass(frozen=True, slots=True)
class UtteranceManipulation(RerankerObjective):
    """Base class of the three tasks on windows of utterances."""

    window: PositiveInt = WINDOW  # k, the number of consecutive utterances; of a shorter context, all
    with_response: bool = False  # whether the true response belongs to the context; in the paper it does not
    responses: Responses = "every"  # as in response selection: each has a context
    #: Of the loss: 'sigmoid' classifies every mark, as the paper does; 'softmax' chooses among a window's marks.
    form: Literal["sigmoid", "softmax"] = "sigmoid"
    length: PositiveInt = 512  # tokens of a sequence; the longest utterances lose their ends, marks are never lost
    head_dropout: Rate = 0.2  # before the layer that scores

    task: ClassVar[AuxiliaryTask]
    #: The smallest number of utterances for which the task is defined.
    least: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if self.window < self.least:
            raise ValueError(f"window must be {self.least} or more, got {self.window}")

    @property
    def traits(self) -> Traits:
        """[EOT] ends utterances, and each task has its mark."""
        return Traits(columns=1, special_tokens=(END_OF_TURN, MARKS[self.task]))

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Iterate over the contexts of true responses that are long enough."""
        labelled = is_labelled(dialogue)
        if labelled and dialogue.turns[-1].intent == WRONG_RESPONSE:
            return
        for turn in find_responses(dialogue, "last" if labelled else self.responses):
            utterances = turn + self.with_response
            if utterances >= self.least:
                yield Example(((0, utterances),))

    def prepare(self, batch: Batch) -> PreparedBatch:
        """Return a manipulated window of each context, and which of its marks is the target."""
        marked: list[MarkedInput] = []
        targets: list[npt.NDArray[np.bool_]] = []
        for first, last in batch.windows[:, 0].tolist():
            size = min(self.window, last - first)
            start = first + int(batch.random.integers(last - first - size + 1))
            turns, target, mark = self.manipulate(batch, range(start, start + size))
            tokens = [batch.texts.tokens(turn) for turn in turns]
            target_tokens = None if target is None else batch.texts.tokens(target)
            marked.append(marked_input(batch.composer, self.task, tokens, target_tokens, self._longest(batch)))
            targets.append(np.arange(len(marked[-1].positions)) == mark)
        return prepare_marked(marked, len(batch), {"targets": np.concatenate(targets)})

    @abstractmethod
    def manipulate(self, batch: Batch, turns: Sequence[int]) -> ManipulatedWindow:
        """Manipulate a window."""

    def loss_sum(self, states: TokenStates, inputs: Arrays, heads: nn.Module, embeddings: nn.Module) -> Tensor:
        """Compute the loss at the marks of some sequences."""
        logits, own = score_marks(states, inputs, heads)
        _, rows = np.unique(inputs["members"][own], return_inverse=True)
        return mark_classification(logits, states.to_tensor(rows), states.to_tensor(inputs["targets"][own]), self.form)


@dataclass(frozen=True, slots=True)
class Insertion(UtteranceManipulation):
    """Find where an utterance was removed: [INS] is before each of the others and after the last."""

    task: ClassVar[AuxiliaryTask] = "insertion"

    def manipulate(self, batch: Batch, turns: Sequence[int]) -> ManipulatedWindow:
        """Return the window without a turn, and that turn."""
        place = int(batch.random.integers(len(turns)))
        return [*turns[:place], *turns[place + 1 :]], turns[place], place


@dataclass(frozen=True, slots=True)
class Deletion(UtteranceManipulation):
    """Find an inserted utterance of another dialogue: [DEL] is before each utterance."""

    task: ClassVar[AuxiliaryTask] = "deletion"

    def manipulate(self, batch: Batch, turns: Sequence[int]) -> ManipulatedWindow:
        """Return the window with a turn of another dialogue."""
        place = int(batch.random.integers(len(turns) + 1))
        negative = batch.random_negative(turns[0], [batch.texts.identity(turn) for turn in turns])
        return [*turns[:place], negative, *turns[place:]], None, place


@dataclass(frozen=True, slots=True)
class Search(UtteranceManipulation):
    """All but the last utterance are shuffled: find the one that preceded the last. [SRCH] is before each."""

    task: ClassVar[AuxiliaryTask] = "search"
    least: ClassVar[int] = 3

    def manipulate(self, batch: Batch, turns: Sequence[int]) -> ManipulatedWindow:
        """Return the other turns of the window in random order, and its last turn."""
        *others, last = turns
        order = batch.random.permutation(len(others))
        predecessor = int(np.flatnonzero(order == len(others) - 1)[0])
        return [others[place] for place in order], last, predecessor
