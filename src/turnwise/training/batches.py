"""From a corpus to the batches of every step.

The examples of a step depend on the seed and the step alone, so a run can start anywhere, and it does not matter how
many threads prepare batches or how far ahead they are.

Examples are shuffled all at once, or in a buffer. Shuffling all needs a number in memory for every example, and reads
the corpus from disk in random order. A buffer needs memory for itself alone: the examples are cut into blocks of
neighbours, the blocks of all stores are put in a random order, and as many of them as the buffer holds are read and
shuffled together; then the next ones. Neighbouring examples are then more often in one batch than otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.slots.template import SlotMarks
from turnwise.models.backbone.inputs import Composer
from turnwise.models.encoder import Encoder
from turnwise.objectives.objective import Batch, Objective, PreparedBatch
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.examples import ExampleTable, extract_examples
from turnwise.training.hard_negatives import mine_hard_negatives
from turnwise.training.recipe import SMALLEST_BUFFER, Recipe
from turnwise.training.tokens import TokenTable, tokenise_corpus

#: Batches that are prepared ahead of the step that needs them.
AHEAD = 4

#: Blocks that a buffer mixes.
BLOCKS = 256

Rows = npt.NDArray[np.int64]

#: Returns random numbers for a place in the order: an epoch, and a part of it.
MakeRandom = Callable[..., np.random.Generator]


def make_loaders(
    recipe: Recipe,
    corpus: TrainingCorpus,
    objectives: Mapping[str, Objective],
    encoder: Encoder,
    marks: SlotMarks | None,
    progress: Progress = silent,
) -> "list[BatchLoader]":
    """Tokenise a corpus, extract the objectives' examples, mine hard negatives, and return a loader per objective.

    What is in the corpus's cache is not computed again.
    """
    texts = tokenise_corpus(corpus, encoder.backbone.tokenizer, progress, marks)
    examples = extract_examples(corpus, texts, objectives, progress)
    for objective in objectives.values():
        if objective.miner is not None:
            texts.hard_negative_table = mine_hard_negatives(corpus, texts, objective.miner, progress)
    composer = encoder.composer
    return [
        BatchLoader(name, objective, examples[name], texts, composer, LoaderConfig.of(recipe, name, encoder))
        for name, objective in objectives.items()
    ]


@dataclass(frozen=True, slots=True)
class LoaderConfig:
    """How batches are built.

    Attributes:
        batch_size: examples per step.
        max_length: tokens of a turn.
        longest: tokens that the backbone accepts.
        seed: of the run.
        shuffle_buffer: how many examples are shuffled together; None: all.
    """

    batch_size: int
    max_length: int
    longest: int
    seed: int
    shuffle_buffer: int | None = None

    @classmethod
    def of(cls, recipe: Recipe, objective: str, encoder: Encoder) -> "LoaderConfig":
        """Return the configuration of a recipe's objective."""
        longest = encoder.backbone.max_length
        return cls(recipe.batch_of(objective), recipe.max_length, longest, recipe.seed, recipe.shuffle_buffer)


class BatchLoader:
    """Prepares the batches of one objective.

    Args:
        name: of the objective; objectives of one run have different random numbers.
        objective: turns examples into sequences.
        examples: all examples.
        texts: the turns.
        composer: builds token sequences.
        config: how batches are built.
    """

    def __init__(
        self,
        name: str,
        objective: Objective,
        examples: ExampleTable,
        texts: TokenTable,
        composer: Composer,
        config: LoaderConfig,
    ):
        self.name = name
        self.objective = objective
        self.examples = examples
        self.texts = texts
        self._composer = composer
        self._config = config
        #: One per label if labels take turns, else one.
        self.samplers = [self._sampler(label) for label in _labels_in_turn(name, objective, examples)]

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a pass over all examples, without a last batch of one example, which has no negatives."""
        return sum(self._batches(len(sampler)) for sampler in self.samplers)

    def rows(self, step: int) -> Rows:
        """Return the numbers of a step's examples.

        If labels take turns, each gets an equal part of an epoch's steps, and one with fewer examples starts its next
        pass while others are still in theirs.
        """
        turn, group = divmod(step, len(self.samplers))
        sampler = self.samplers[group]
        epoch, place = divmod(turn, self._batches(len(sampler)))
        size = self._config.batch_size
        return sampler.rows(epoch, place * size, (place + 1) * size)

    def _batches(self, examples: int) -> int:
        whole, rest = divmod(examples, self._config.batch_size)
        return max(1, whole + (rest > 1))

    def _sampler(self, label: int | None) -> "Sampler":
        """Create the sampler of all examples, or of those with a label."""
        place = () if label is None else (label,)
        buffer = self._config.shuffle_buffer
        if buffer is None:
            members = len(self.examples) if label is None else _with_label(self.examples, label)
            return ShuffledSampler(members, lambda epoch: self._random(epoch, 0, *place))
        blocks = ExampleBlocks.of(self.examples.labels, label, block_size(buffer))
        return BufferedSampler(
            blocks, buffer, lambda epoch, *part: self._random(epoch, 2, *place, *part), self._read_next
        )

    def _read_next(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read the examples of a buffer from disk, a block of neighbours at a time."""
        self.texts.read_next(self.examples.read_next(ranges))

    def _random(self, *place: int) -> np.random.Generator:
        return np.random.default_rng([self._config.seed, *self.name.encode(), *place])

    def batch(self, step: int) -> Batch:
        """Return the examples of a step."""
        config = self._config
        windows, labels = self.examples.rows(self.rows(step))
        random = self._random(step, 1)
        return Batch(windows, labels, self.texts, self._composer, config.max_length, config.longest, random)

    def prepare(self, step: int) -> PreparedBatch:
        """Return the prepared batch of a step."""
        return self.objective.prepare(self.batch(step))


def prepare_ahead(loaders: Sequence[BatchLoader], first: int, last: int, workers: int) -> Iterator[list[PreparedBatch]]:
    """Iterate over the prepared batches of the steps [first, last), one per loader, which threads prepare ahead."""
    with ThreadPoolExecutor(workers, thread_name_prefix="prepare") as pool:
        pending: list[list[Future[PreparedBatch]]] = []
        try:
            for step in range(first, last):
                pending.append([pool.submit(loader.prepare, step) for loader in loaders])
                if len(pending) > AHEAD:
                    yield [future.result() for future in pending.pop(0)]
            for futures in pending:
                yield [future.result() for future in futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _labels_in_turn(name: str, objective: Objective, examples: ExampleTable) -> Sequence[int | None]:
    """Return the labels that have their own batches; None if batches are drawn from all examples."""
    for label in objective.labels_in_turn:
        count = np.count_nonzero(examples.labels == label)
        if count < 2:
            raise TurnwiseError(
                f"objective {name} finds {count} examples of size {label} in this corpus, and a batch needs two: remove"
                " that size, or use longer dialogues"
            )
    return objective.labels_in_turn or (None,)


def _with_label(examples: ExampleTable, label: int) -> npt.NDArray[np.integer]:
    """Return the numbers of the examples with a label, in four bytes each if possible."""
    rows = np.flatnonzero(examples.labels == label)
    return rows.astype(np.int32) if len(examples) <= np.iinfo(np.int32).max else rows


# ---- the order of examples


class Sampler(Protocol):
    """Examples in an order that differs from epoch to epoch and can be entered anywhere."""

    def __len__(self) -> int:
        """Return the number of examples."""

    def rows(self, epoch: int, first: int, last: int) -> Rows:
        """Return the examples at the places [first, last) of an epoch."""


class ShuffledSampler:
    """All examples, shuffled.

    Args:
        examples: their numbers, or how many there are if these are all numbers below that.
        random: random numbers of an epoch.
    """

    def __init__(self, examples: npt.NDArray[np.integer] | int, random: MakeRandom):
        self._examples = examples
        self._random = random
        # the current epoch, and the next one, which threads may already prepare
        self._shuffled = lru_cache(2)(self._shuffle)

    def __len__(self) -> int:
        return self._examples if isinstance(self._examples, int) else len(self._examples)

    def rows(self, epoch: int, first: int, last: int) -> Rows:
        """Return the examples at the places [first, last) of an epoch."""
        return np.asarray(self._shuffled(epoch)[first:last], np.int64)

    def _shuffle(self, epoch: int) -> npt.NDArray[np.integer]:
        # four bytes per number if possible; the order does not depend on it
        dtype = np.int32 if len(self) <= np.iinfo(np.int32).max else np.int64
        members = self._examples
        order: npt.NDArray[np.integer] = np.arange(members, dtype=dtype) if isinstance(members, int) else members.copy()
        self._random(epoch).shuffle(order)
        return order


@dataclass(frozen=True, slots=True)
class ExampleBlocks:
    """Blocks of neighbouring examples, restricted to a label or not.

    Attributes:
        labels: of all examples.
        label: of the members; None: all examples are members.
        size: neighbours of a block, members or not.
        counts: members of each block (blocks,).
    """

    labels: npt.NDArray[np.int8]
    label: int | None
    size: int
    counts: Rows

    @classmethod
    def of(cls, labels: npt.NDArray[np.int8], label: int | None, size: int) -> "ExampleBlocks":
        """Cut examples into blocks."""
        starts = range(0, len(labels), size)
        if label is None:
            counts = np.minimum(size, len(labels) - np.array(starts))
        else:
            members = (np.count_nonzero(labels[start : start + size] == label) for start in starts)
            counts = np.fromiter(members, np.int64, len(starts))
        return cls(labels, label, size, counts)

    def range(self, block: int) -> tuple[int, int]:
        """Return the examples [first, last) of a block."""
        return block * self.size, min(len(self.labels), (block + 1) * self.size)

    def members(self, block: int) -> Rows:
        """Return the numbers of a block's members."""
        first, last = self.range(block)
        if self.label is None:
            return np.arange(first, last)
        return first + np.flatnonzero(self.labels[first:last] == self.label)


class BufferedSampler:
    """Blocks of neighbours in a random order, shuffled as many at a time as a buffer holds.

    Args:
        blocks: the examples.
        buffer: how many examples are shuffled together.
        random: random numbers of an epoch, or of a buffer in it.
        read_next: receives the ranges of examples that a buffer is about to be filled with.
    """

    def __init__(
        self,
        blocks: ExampleBlocks,
        buffer: int,
        random: MakeRandom,
        read_next: Callable[[list[tuple[int, int]]], None],
    ):
        self._blocks = blocks
        self._random = random
        self._read_next = read_next
        self._examples = int(blocks.counts.sum())
        # buffers of about equal size: a small last one would mix badly
        self._buffers = max(1, -(-self._examples // buffer))
        self._epoch = lru_cache(2)(self._order_blocks)
        self._buffer = lru_cache(3)(self._fill)

    def __len__(self) -> int:
        return self._examples

    def rows(self, epoch: int, first: int, last: int) -> Rows:
        """Return the examples at the places [first, last) of an epoch."""
        _, ends = self._epoch(epoch)
        last = min(last, self._examples)
        parts = []
        for buffer in range(int(np.searchsorted(ends, first, "right")), int(np.searchsorted(ends, last, "left")) + 1):
            start = int(ends[buffer - 1]) if buffer else 0
            parts.append(self._buffer(epoch, buffer)[max(0, first - start) : last - start])
        return np.concatenate(parts)

    def _order_blocks(self, epoch: int) -> tuple[list[Rows], Rows]:
        """Return the blocks of each buffer, and the place at which each buffer ends."""
        order = self._random(epoch).permutation(len(self._blocks.counts))
        buffers = np.array_split(order, self._buffers)
        return buffers, np.cumsum([self._blocks.counts[blocks].sum() for blocks in buffers])

    def _fill(self, epoch: int, buffer: int) -> Rows:
        blocks = np.sort(self._epoch(epoch)[0][buffer]).tolist()  # in the order on disk: they are shuffled below
        self._read_next([self._blocks.range(block) for block in blocks])
        examples = np.concatenate([self._blocks.members(block) for block in blocks])
        self._random(epoch, buffer).shuffle(examples)
        return examples


def block_size(buffer: int) -> int:
    """Return the number of neighbours in a block, for a buffer of some examples."""
    return max(SMALLEST_BUFFER, buffer // BLOCKS)
