"""The interface of objectives, between a paper's method and the loop that trains it.

An objective defines which turns of a dialogue make an example, how a batch of examples becomes token sequences, which
heads it adds, and how the loss is computed from the encodings. It never touches devices, optimisers or files. The loop
encodes the sequences as it likes (in one forward pass or in many, with cached gradients, on several processes):

    examples (once)  →  prepare (every step, on the CPU)  →  [the loop encodes]  →  loss
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import TurnwiseError
from turnwise.core.validation import STRICT
from turnwise.corpus.storage.corpus import Corpus
from turnwise.models.backbone.inputs import Composer, RerankerTask, TurnStyle
from turnwise.models.backbone.ragged import RaggedTokens, Tokens, span_indices
from turnwise.models.backbone.stream import TokenStream
from turnwise.models.encoder import Encoder

#: Consecutive turns of a dialogue [first, last).
Window = tuple[int, int]

#: Arrays that a loss needs besides the encodings, by name; the loop moves them to the device if the loss is over a
#: whole batch.
Arrays = dict[str, npt.NDArray[Any]]
Tensors = dict[str, Tensor]

#: Values for the log. Tensors stay on their device until they are logged, so that nothing waits for a GPU.
Metrics = dict[str, Tensor | float]

#: Numbers of prepared sequences.
Members = npt.NDArray[np.int64]

#: Random draws after which a negative that fits worse is accepted.
_MAX_DRAWS = 50


class Example(NamedTuple):
    """A training example: one window per column of the objective, and a label if it needs one."""

    windows: tuple[Window, ...]
    label: int = 0


class LabelSampling(NamedTuple):
    """How batches are drawn for an objective that compares labels (`intent_label`)."""

    examples: int  # of each label in a batch
    same_domain: float  # fraction of a batch's labels that are drawn domain by domain


#: Gives a turn a second text; None: its own. It is identified in caches by its name.
Rewriter = Callable[[Turn], str | None]


@dataclass(slots=True)
class TokenisedTexts:
    """Tokenised texts by number, in arrays that may be memory-mapped."""

    flat: npt.NDArray[np.int32]  # the tokens of all texts, without special tokens
    ends: npt.NDArray[np.int64]  # where each text ends in them, after a 0 (texts + 1,)
    identities: npt.NDArray[np.int64]  # a number that equal texts share, ignoring case and surrounding space (texts,)

    def tokens(self, number: int) -> Tokens:
        """Return the tokens of a text."""
        return self.flat[self.ends[number] : self.ends[number + 1]]

    def identity(self, number: int) -> int:
        """Return a number that equal texts share."""
        return int(self.identities[number])


@dataclass(slots=True)
class TurnTable(TokenisedTexts):
    """The tokenised turns of a corpus."""

    speakers: npt.NDArray[np.int16]  # (turns,), by their place in the names
    speaker_names: list[str]
    frequencies: npt.NDArray[np.int32]  # how often a turn's text is a response in the corpus (turns,)
    dialogue_starts: npt.NDArray[np.int64]  # the first turn of each dialogue, then the number of turns (dialogues + 1,)
    store_starts: npt.NDArray[np.int64]  # the first turn of each store, then the number of turns (stores + 1,)
    #: The second texts that an objective's rewriter gives, and each turn's number in them, or -1 (turns,).
    second_texts: TokenisedTexts | None = None
    second_numbers: npt.NDArray[np.int32] | None = None
    #: Turns that an encoder would answer with instead of a turn, nearest first and padded with -1 (turns, negatives).
    negatives: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.speakers)

    def gather(self, turns: npt.NDArray[np.int64]) -> RaggedTokens:
        """Return the tokens of several turns."""
        starts = np.asarray(self.ends[turns])
        lengths = np.asarray(self.ends[turns + 1]) - starts
        return RaggedTokens(np.asarray(self.flat[span_indices(starts, lengths)]), lengths)

    def speaker(self, turn: int) -> str:
        """Return the speaker of a turn."""
        return self.speaker_names[int(self.speakers[turn])]

    def rewritten(self, turn: int) -> tuple[Tokens, int]:
        """Return the tokens and the identity of a turn as the objective's rewriter gives it."""
        assert self.second_texts is not None and self.second_numbers is not None, "the objective has no rewriter"
        number = int(self.second_numbers[turn])
        texts, place = (self, turn) if number < 0 else (self.second_texts, number)
        return texts.tokens(place), texts.identity(place)

    def hard_negatives(self, turn: int) -> npt.NDArray[np.int64]:
        """Return turns that an encoder would answer with instead of this one, nearest first."""
        assert self.negatives is not None, "the objective has no miner"
        row = np.asarray(self.negatives[turn], np.int64)
        return row[row >= 0]


@dataclass(frozen=True, slots=True)
class Batch:
    """The examples of one step."""

    windows: npt.NDArray[np.int64]  # (examples, columns, 2), turns by number
    labels: npt.NDArray[np.int64]  # (examples,)
    texts: TurnTable
    composer: Composer
    max_length: int  # tokens of a sequence of one turn
    longest: int  # tokens of a sequence that the backbone accepts
    random: np.random.Generator  # depends on the seed and the step alone

    def __len__(self) -> int:
        return len(self.windows)

    def dialogue(self, turn: int) -> range:
        """Return the turns of a turn's dialogue."""
        return _part_with(turn, self.texts.dialogue_starts)

    def sequence(self, first: int, last: int, longest: int | None = None) -> Tokens:
        """Join the turns [first, last) into one sequence, which keeps the newest of several turns."""
        turns = range(first, last)
        return self.composer.history(
            [self.texts.tokens(turn) for turn in turns],
            [self.texts.speaker(turn) for turn in turns],
            min(longest or self.max_length * (last - first), self.longest),
        )

    def columns(self) -> RaggedTokens:
        """Return the sequences of all columns, column after column."""
        return RaggedTokens.concatenate([self.column(number) for number in range(self.windows.shape[1])])

    def column(self, number: int) -> RaggedTokens:
        """Return the sequences of one column."""
        windows = self.windows[:, number]
        counts = windows[:, 1] - windows[:, 0]
        if (counts == 1).all():
            return self.singles(windows[:, 0])
        if self.composer.roles:
            return RaggedTokens.of([self.sequence(first, last) for first, last in windows.tolist()])
        # without a loop, as in `singles`
        turns = self.texts.gather(span_indices(windows[:, 0], counts))
        return self.composer.histories(turns, counts, np.minimum(self.max_length * counts, self.longest))

    def singles(self, turns: npt.NDArray[np.int64]) -> RaggedTokens:
        """Return a sequence for each turn."""
        if self.composer.roles:
            return RaggedTokens.of([self.sequence(turn, turn + 1) for turn in turns.tolist()])
        # the most frequent case, vectorised: worker threads must not hold the interpreter's lock
        return self.composer.texts(self.texts.gather(turns), min(self.max_length, self.longest))

    def identities(self, number: int) -> npt.NDArray[np.int64]:
        """Return a number for each window of a column, which windows of equal text share."""
        windows = self.windows[:, number]
        counts = windows[:, 1] - windows[:, 0]
        identities = np.array(self.texts.identities[windows[:, 0]], np.int64)
        for count in np.unique(counts[counts != 1]).tolist():
            turns = windows[counts == count, :1] + np.arange(count)
            identities[counts == count] = _hash_rows(np.asarray(self.texts.identities[turns], np.int64))
        return identities

    def random_negative(self, turn: int, excluded: Sequence[int], speaker: str | None = None) -> int:
        """Draw a turn of another dialogue than a turn's own, whose text's identity is not excluded.

        It is of the same store, unless that has one dialogue only: a turn of another corpus is recognised by its style.
        A turn of the given speaker is preferred, so that the speaker does not give the negative away. A dialogue that
        differs from the turn's own only in its last turn does not count as another: labelled responses are stored so.
        """
        own = self.dialogue(turn)
        store = _part_with(turn, self.texts.store_starts)
        if len(store) == len(own):
            store = range(int(self.texts.dialogue_starts[-1]))
        others = len(store) - len(own)
        fallback = -1
        for _ in range(_MAX_DRAWS if others else 0):
            negative = store.start + int(self.random.integers(others))
            negative += len(own) * (negative >= own.start)
            if self.texts.identity(negative) in excluded or self._share_context(own, self.dialogue(negative)):
                continue
            if speaker is None or self.texts.speaker(negative) == speaker:
                return negative
            fallback = negative
        if fallback < 0:
            raise TurnwiseError("other dialogues have no other texts to draw negatives from: use a larger corpus")
        return fallback

    def _share_context(self, first: range, second: range) -> bool:
        """Return whether two dialogues differ in the last turn at most."""
        if len(first) != len(second) or len(first) < 2:
            return False
        identity = self.texts.identity
        return all(identity(one) == identity(other) for one, other in zip(first[:-1], second[:-1], strict=True))


def _part_with(turn: int, starts: npt.NDArray[np.int64]) -> range:
    """Return the turns of the part, of those that start at `starts`, to which a turn belongs."""
    number = int(np.searchsorted(starts, turn, "right"))
    return range(int(starts[number - 1]), int(starts[number]))


def _hash_rows(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a 64-bit hash of each row, by the mixing function of SplitMix64."""
    hashes = np.full(len(rows), rows.shape[1], np.uint64)
    for column in rows.astype(np.uint64).T:
        hashes = (hashes ^ column) + np.uint64(0x9E3779B97F4A7C15)
        hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes ^= hashes >> np.uint64(31)
    return hashes.astype(np.int64)


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch as sequences to encode, and the arrays that the loss needs besides."""

    #: For `PooledObjective` a grid, column after column of `rows` each; otherwise `inputs` says what they are.
    sequences: RaggedTokens
    rows: int  # the number of examples
    inputs: Arrays = field(default_factory=dict)
    segments: RaggedTokens | None = None  # token type ids of the sequences; None: all 0
    #: For `TokenObjective`, how many items of the loss (masked tokens, …) each sequence has (sequences,).
    weights: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class TokenStates:
    """Token states of some of a batch's sequences."""

    states: Tensor  # (tokens, hidden), in stream order
    stream: TokenStream
    #: The prepared sequences that the stream consists of, in the order given to it; -1 for those of other objectives.
    members: Members

    def at(self, sequences: Sequence[int], positions: Sequence[int]) -> Tensor:
        """Return the states at positions of prepared sequences (positions, hidden)."""
        starts = self.stream.starts().numpy()[np.argsort(self.stream.order)]  # in the order given to the stream
        start_of = dict(zip(self.members.tolist(), starts.tolist(), strict=True))
        rows = [start_of[sequence] + position for sequence, position in zip(sequences, positions, strict=True)]
        return self.states[torch.as_tensor(np.array(rows, np.int64), device=self.states.device)]

    def select(self, inputs: Arrays) -> tuple[Tensor, npt.NDArray[np.bool_]]:
        """Return the states at those (`members`, `positions`) that lie in these sequences, and which these are."""
        own = np.isin(inputs["members"], self.members)
        return self.at(inputs["members"][own].tolist(), inputs["positions"][own].tolist()), own

    def to_tensor(self, values: npt.NDArray[Any]) -> Tensor:
        """Move an array to the device of the states."""
        return torch.as_tensor(values, device=self.states.device)


@dataclass(frozen=True, slots=True)
class BatchStates:
    """Token states of all of a batch's sequences."""

    states: Tensor  # (tokens, hidden), one sequence after the other, in the order in which they were prepared
    lengths: Tensor  # tokens per sequence (sequences,)

    def padded(self) -> tuple[Tensor, Tensor]:
        """Return the states padded with zeros (sequences, longest, hidden), and the mask (sequences, longest)."""
        places = torch.arange(int(self.lengths.max()), device=self.lengths.device)
        mask = places < self.lengths[:, None]
        starts = self.lengths.cumsum(0) - self.lengths
        return self.states[torch.where(mask, starts[:, None] + places, 0)] * mask[..., None], mask


class Traits(NamedTuple):
    """What an objective asks of the data and of the loop."""

    columns: int = 2  # windows per example
    style: TurnStyle = "separator"  # how the turns of a window are joined
    special_tokens: tuple[str, ...] = ()  # tokens to add to the backbone, besides those of the style
    rewriter: Rewriter | None = None  # gives turns the second text that `TurnTable.rewritten` returns
    miner: str | None = None  # the encoder that mines its hard negatives
    unique: bool = False  # whether an example is dropped if the text of its first window occurred before
    labels_in_turn: tuple[int, ...] = ()  # labels of which each has its own batches; empty: batches mix labels
    label_sampling: LabelSampling | None = None  # how batches are drawn label by label; None: from all examples
    #: For a `PooledObjective`, an encoder whose vectors of the batch the loss gets as `teacher`; 'start': the one that
    #: training starts from.
    teacher: str | None = None


class Objective(ABC):
    """A training objective. Subclasses are frozen dataclasses whose fields are the options of a recipe."""

    __slots__ = ()
    __pydantic_config__: ClassVar = STRICT

    #: The head of a re-ranker that it trains, which is saved with the model; None: it trains no re-ranker.
    task: ClassVar[RerankerTask | None] = None

    @property
    def traits(self) -> Traits:
        """What it asks of the data and of the loop."""
        return Traits()

    def check_corpus(self, corpus: Corpus) -> None:  # noqa: B027  most can use every corpus
        """Raise an error if a corpus cannot be used."""

    @abstractmethod
    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Iterate over the examples of a dialogue."""

    def make_heads(self, hidden: int) -> nn.Module:
        """Create the layers that exist in training only, except those that are saved with the model."""
        return nn.Identity()

    def save_extras(self, folder: Path, encoder: Encoder, heads: nn.Module, corpus: Corpus) -> None:  # noqa: B027
        """Write what it adds to the folder of the trained model, if anything."""

    @abstractmethod
    def prepare(self, batch: Batch) -> PreparedBatch:
        """Turn a batch into token sequences."""


class PooledObjective(Objective):
    """An objective on one vector per sequence."""

    __slots__ = ()

    def prepare(self, batch: Batch) -> PreparedBatch:
        """Return the columns; `identities` (columns, examples) says which texts are equal."""
        identities = np.stack([batch.identities(column) for column in range(self.traits.columns)])
        return PreparedBatch(batch.columns(), len(batch), {"identities": identities})

    @abstractmethod
    def loss(self, vectors: Tensor, inputs: Tensors, heads: nn.Module) -> tuple[Tensor, Metrics]:
        """Return the loss over a whole batch from its vectors (columns, rows, hidden), and metrics for the log."""


class StatesObjective(Objective):
    """An objective on the token states of a whole batch."""

    __slots__ = ()

    @abstractmethod
    def loss(self, states: BatchStates, inputs: Tensors, heads: nn.Module) -> tuple[Tensor, Metrics]:
        """Return the loss over a whole batch from its token states, and metrics for the log."""


class TokenObjective(Objective):
    """An objective on token states whose loss is a sum over items of single sequences."""

    __slots__ = ()

    @property
    def replaces_tokens(self) -> bool:
        """Whether `replace_tokens` must be called before the backbone encodes the sequences."""
        return False

    def replace_tokens(
        self, stream: TokenStream, members: Members, inputs: Arrays, heads: nn.Module, embeddings: nn.Module
    ) -> tuple[TokenStream, Tensor]:
        """Return a stream with tokens replaced by the heads, and the loss of replacing them (a sum)."""
        raise NotImplementedError

    @abstractmethod
    def loss_sum(self, states: TokenStates, inputs: Arrays, heads: nn.Module, embeddings: nn.Module) -> Tensor:
        """Return the sum of the loss over the items of some sequences; the loop divides by those of the batch."""


def count_words(text: str) -> int:
    """Count the words between white space, by which the papers limit lengths."""
    return len(text.split())


#: Bits of an intent's label that do not depend on its domain.
_INTENT_BITS = 39


def intent_label(intent: str) -> int:
    """Return a number for an intent, whose upper bits are a number for its domain.

    The domain is what precedes a colon, a full stop or a slash ('banking: freeze card', 'banking.freeze_card'), if any.
    """
    domain, *rest = re.split("[:./]", intent, maxsplit=1)
    domain = domain if rest else ""
    return _hash(domain, 63 - _INTENT_BITS) << _INTENT_BITS | _hash(intent, _INTENT_BITS)


def label_domains(labels: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return the domains of labels made by `intent_label`, numbered from 0."""
    _, numbers = np.unique(np.asarray(labels) >> _INTENT_BITS, return_inverse=True)
    return np.asarray(numbers, np.int64)


def _hash(text: str, bits: int) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> (64 - bits)


def equal_texts(identities: Tensor) -> Tensor:
    """Return (texts, texts), true where two different places hold the same text."""
    return (identities[:, None] == identities).fill_diagonal_(False)
