"""What an objective is, and what it is handed: the seam between a paper's idea and the loop that trains it.

An objective says which turns of a dialogue make an example, how a batch of examples becomes token sequences, which heads it adds,
and how the loss comes of the encodings. It never touches devices, optimisers or files. The work is cut in two so that the loop
may do the middle part as it likes (in one forward pass or in many, with cached gradients, on several processes):

    examples (once)  →  prepare (every step, on the host)  →  [the loop encodes]  →  loss
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.inputs import Composer, RerankerTask, TurnStyle
from turnwise.models.backbone.stream import RaggedTokens, Tokens, TokenStream

#: Consecutive turns of a dialogue: the first, and the one behind the last.
Window = tuple[int, int]

#: Drawings after which a turn that is like the one wanted will do.
_PATIENCE = 50


class Example(NamedTuple):
    """What a dialogue gives to learn from: as many windows as the objective has columns, and a label where it needs one."""

    windows: tuple[Window, ...]
    label: int = 0


#: What an objective says of a batch for the log. Tensors stay where they are until somebody reads them: a GPU is not waited for.
Figures = dict[str, torch.Tensor | float]


class Texts(Protocol):
    """Tokenised turns, by number."""

    def tokens(self, turn: int) -> Tokens:
        """The tokens of a turn, without special ones."""

    def gather(self, turns: npt.NDArray[np.int64]) -> RaggedTokens:
        """The tokens of some turns, without special ones."""

    @property
    def identities(self) -> npt.NDArray[np.int64]:
        """For each turn, a number that turns of equal text share (turns,)."""

    def speaker(self, turn: int) -> str:
        """Who speaks it."""

    def identity(self, turn: int) -> int:
        """A number that turns of equal text share."""

    def frequency(self, turn: int) -> int:
        """How often the corpus answers with its text."""

    def template(self, turn: int) -> Tokens:
        """The tokens of a turn's template, without special ones; those of the turn where it has no slots."""

    def template_identity(self, turn: int) -> int:
        """A number that turns of equal templates share."""

    def hard_negatives(self, turn: int) -> npt.NDArray[np.int64]:
        """Turns that an encoder would answer with in place of this one, nearest first."""

    @property
    def dialogue_starts(self) -> npt.NDArray[np.int64]:
        """The first turn of each dialogue, and behind the last one the number of all turns (dialogues + 1,)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples of one step.

    Attributes:
        windows: (examples, columns, 2), turns by number.
        labels: (examples,).
        texts: the turns.
        composer: puts token sequences together.
        max_length: tokens of a sequence of one turn.
        longest: tokens of a sequence that the backbone can take.
        random: the step's own source of chance; the same step draws the same whatever went before.
    """

    windows: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    texts: Texts
    composer: Composer
    max_length: int
    longest: int
    random: np.random.Generator

    def __len__(self) -> int:
        return len(self.windows)

    def sequence(self, first: int, last: int, longest: int | None = None) -> Tokens:
        """The turns from `first` to before `last` as one sequence; of several turns the newest are kept."""
        turns = range(first, last)
        return self.composer.history(
            [self.texts.tokens(turn) for turn in turns],
            [self.texts.speaker(turn) for turn in turns],
            min(longest or self.max_length * (last - first), self.longest),
        )

    def columns(self) -> RaggedTokens:
        """The sequences of all columns, column after column."""
        return RaggedTokens.concatenate([self.column(number) for number in range(self.windows.shape[1])])

    def column(self, number: int) -> RaggedTokens:
        """The sequences of one column."""
        windows = self.windows[:, number]
        if (np.diff(windows) != 1).any():
            return RaggedTokens.of([self.sequence(first, last) for first, last in windows.tolist()])
        return self.singles(windows[:, 0])

    def singles(self, turns: npt.NDArray[np.int64]) -> RaggedTokens:
        """Turns, each as a sequence of its own."""
        if self.composer.roles:
            return RaggedTokens.of([self.sequence(turn, turn + 1) for turn in turns.tolist()])
        # the most frequent case, all at once: threads that prepare must not keep the interpreter from the loop
        return self.composer.texts(self.texts.gather(turns), min(self.max_length, self.longest))

    def stranger(self, turn: int, unlike: Sequence[int], speaker: str | None = None) -> int:
        """A turn of another dialogue than a turn's own, drawn at random.

        A dialogue that differs from the own one in its last turn alone is none: that is how labelled responses are stored.

        Args:
            turn: whose dialogue is passed over.
            unlike: identities of texts that are passed over.
            speaker: whose turn is preferred, or it could be known by who speaks; None: anybody's.

        Raises:
            TurnwiseError: if there is none.
        """
        starts = self.texts.dialogue_starts
        here = int(np.searchsorted(starts, turn, "right"))
        first, last = int(starts[here - 1]), int(starts[here])
        others = int(starts[-1]) - (last - first)
        found = -1
        for _ in range(_PATIENCE if others else 0):
            drawn = int(self.random.integers(others))
            drawn += (last - first) * (drawn >= first)
            if self.texts.identity(drawn) in unlike or self._same_context(drawn, first, last):
                continue
            if speaker is None or self.texts.speaker(drawn) == speaker:
                return drawn
            found = drawn
        if found < 0:
            raise TurnwiseError(
                "other dialogues hold no other texts: no wrong answer can be drawn from them; take a larger corpus"
            )
        return found

    def _same_context(self, turn: int, first: int, last: int) -> bool:
        """Whether a turn's dialogue begins as that from `first` to before `last`, and differs from it in the last turn at most."""
        starts, identity = self.texts.dialogue_starts, self.texts.identity
        there = int(np.searchsorted(starts, turn, "right"))
        start = int(starts[there - 1])
        if int(starts[there]) - start != last - first:
            return False
        return (
            all(identity(start + place) == identity(first + place) for place in range(last - first - 1))
            and last - first > 1
        )

    def identities(self, number: int) -> npt.NDArray[np.int64]:
        """A number for each window of a column; equal texts share it."""
        windows = self.windows[:, number]
        found = np.array(self.texts.identities[windows[:, 0]], np.int64)
        for row in np.flatnonzero(np.diff(windows)[:, 0] != 1):
            first, last = windows[row]
            found[row] = hash(tuple(self.texts.identities[first:last].tolist()))
        return found


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a batch has become: sequences to encode, and what the loss has to know besides.

    For objectives on pooled vectors the sequences form a grid, column after column, `rows` each. For objectives on the states of a
    batch they are what `facts` says of them, and `rows` is the number of examples. For objectives on token states each sequence
    stands alone, and `weights` says how many items (masked tokens) of the loss it holds.
    """

    sequences: RaggedTokens
    rows: int
    facts: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    segments: RaggedTokens | None = None
    weights: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class TokenStates:
    """Token states of some of a batch's sequences.

    Attributes:
        states: (tokens, hidden), in stream order.
        stream: whose states they are.
        members: which of the prepared sequences the stream was made of, in the order given to it; -1 for those of others.
    """

    states: torch.Tensor
    stream: TokenStream
    members: npt.NDArray[np.int64]

    def at(self, sequences: Sequence[int], places: Sequence[int]) -> torch.Tensor:
        """The states at places of prepared sequences (places, hidden)."""
        stream_places = np.argsort(self.stream.order)  # of a member, by its number in the stream as given
        number = {int(member): index for index, member in enumerate(self.members)}
        starts = self.stream.starts().numpy()
        rows = [
            starts[stream_places[number[sequence]]] + place for sequence, place in zip(sequences, places, strict=True)
        ]
        return self.states[torch.as_tensor(np.array(rows, np.int64), device=self.states.device)]


@dataclass(frozen=True, slots=True)
class BatchStates:
    """Token states of all of a batch's sequences.

    Attributes:
        states: (tokens, hidden), one sequence behind the other, in the order in which they were prepared.
        lengths: their tokens (sequences,).
    """

    states: torch.Tensor
    lengths: torch.Tensor

    def padded(self) -> tuple[torch.Tensor, torch.Tensor]:
        """States (sequences, longest, hidden), zero behind a sequence's end, and where there is a token (sequences, longest)."""
        places = torch.arange(int(self.lengths.max()), device=self.lengths.device)
        mask = places < self.lengths[:, None]
        starts = self.lengths.cumsum(0) - self.lengths
        return self.states[torch.where(mask, starts[:, None] + places, 0)] * mask[..., None], mask


class ForEncoders:
    """What an objective says of re-rankers that trains none."""

    __slots__ = ()

    task: ClassVar[None] = None
    miner: ClassVar[None] = None


class _Objective(Protocol):
    """What every objective says."""

    @property
    def columns(self) -> int:
        """How many windows an example has."""

    @property
    def style(self) -> TurnStyle:
        """How the turns of a window are joined."""

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Tokens that the backbone has to learn."""

    @property
    def slot_names(self) -> int | None:
        """How many slots, the most frequent ones, have a token of their own in templates; None: it reads no templates.

        The heads of an objective that does are a layer on templates' vectors, and stay with the model.
        """

    @property
    def task(self) -> RerankerTask | None:
        """The head of a re-ranker that it trains, and that stays with the model; None: it trains no re-ranker."""

    @property
    def miner(self) -> str | None:
        """The encoder that finds wrong answers for it which are hard to tell from right ones; None: it wants none of them."""

    @property
    def unique(self) -> bool:
        """Whether an example whose first window's text was there before is passed over."""

    @property
    def labels_in_turn(self) -> tuple[int, ...]:
        """Labels of which a batch holds one alone, taken in turn; none: what labels a batch has makes no difference."""

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """The examples that a dialogue gives."""

    def heads(self, hidden: int) -> nn.Module:
        """The layers that training adds and evaluation drops, unless they are for templates."""

    def prepare(self, batch: Batch) -> Prepared:
        """Sequences to encode: a column after the other, or single ones with their weights."""


class PooledObjective(_Objective, Protocol):
    """An objective on one vector a sequence; gradient caching serves it."""

    needs: Literal["pooled"]

    def loss(
        self, vectors: torch.Tensor, facts: dict[str, torch.Tensor], heads: nn.Module
    ) -> tuple[torch.Tensor, Figures]:
        """The loss over a whole batch from its vectors (columns, rows, hidden), and figures for the log."""


class BatchObjective(_Objective, Protocol):
    """An objective on the token states of several sequences at once; gradient caching serves it, too."""

    needs: Literal["states"]

    def loss(
        self, states: BatchStates, facts: dict[str, torch.Tensor], heads: nn.Module
    ) -> tuple[torch.Tensor, Figures]:
        """The loss over a whole batch from its sequences' token states, and figures for the log."""


class TokenObjective(_Objective, Protocol):
    """An objective on token states, whose loss is a sum over items of single sequences."""

    needs: Literal["tokens"]

    def loss_sum(
        self, states: TokenStates, facts: dict[str, npt.NDArray[Any]], heads: nn.Module, embeddings: nn.Module
    ) -> torch.Tensor:
        """The sum of the loss over the items of some sequences; the loop divides by the batch's weight."""


class ReplacingObjective(_Objective, Protocol):
    """An objective on token states whose heads put tokens into the sequences before the backbone reads them."""

    needs: Literal["replaced"]

    def replaced(
        self,
        stream: TokenStream,
        members: npt.NDArray[np.int64],
        facts: dict[str, npt.NDArray[Any]],
        heads: nn.Module,
        embeddings: nn.Module,
    ) -> tuple[TokenStream, torch.Tensor]:
        """The stream of some sequences as the backbone is to read it, and what the replacing itself adds to the sum of the loss."""

    def loss_sum(
        self, states: TokenStates, facts: dict[str, npt.NDArray[Any]], heads: nn.Module, embeddings: nn.Module
    ) -> torch.Tensor:
        """The sum of the loss over the items of some sequences, read as replaced; the loop divides by the batch's weight."""


Objective = PooledObjective | BatchObjective | TokenObjective | ReplacingObjective


def words(text: str) -> int:
    """White-space words of a text, which the papers' length limits count."""
    return len(text.split())


def equal_texts(identities: torch.Tensor) -> torch.Tensor:
    """(texts, texts), true where two different places hold the same text."""
    same = identities[:, None] == identities[None, :]
    return same.fill_diagonal_(False)
