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
from typing import Any

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
    composer, longest = encoder.composer, encoder.backbone.max_length
    loaders = []
    for name, objective in objectives.items():
        config = LoaderConfig(recipe.batch_of(name), recipe.max_length, longest, recipe.seed, recipe.shuffle_buffer)
        loaders.append(BatchLoader(name, objective, examples[name], texts, composer, config))
    return loaders


@dataclass(frozen=True, slots=True)
class LoaderConfig:
    """How batches are built; see `Recipe`."""

    batch_size: int
    max_length: int
    longest: int  # tokens that the backbone accepts
    seed: int
    shuffle_buffer: int | None = None


class BatchLoader:
    """Prepares the batches of one objective; objectives of one run have different random numbers, by their names."""

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

    def _sampler(self, label: int | None) -> "ShuffledSampler | BufferedSampler":
        """Create the sampler of all examples, or of those with a label."""
        place = () if label is None else (label,)
        buffer = self._config.shuffle_buffer
        if buffer is None:
            members = len(self.examples) if label is None else np.flatnonzero(self.examples.labels == label)
            return ShuffledSampler(members, lambda epoch: self._random(epoch, 0, *place))

        def read_next(ranges: list[tuple[int, int]]) -> None:
            self.texts.read_next(self.examples.read_next(ranges))

        return BufferedSampler(
            self.examples.labels, label, buffer, lambda epoch, *part: self._random(epoch, 2, *place, *part), read_next
        )

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


# ---- the order of examples


class ShuffledSampler:
    """Samples given examples, or all numbers below `examples`, in random order."""

    def __init__(self, examples: npt.NDArray[Any] | int, random: MakeRandom):
        # four bytes per number if possible; the order does not depend on it
        largest = examples if isinstance(examples, int) else int(examples.max(initial=0))
        dtype = np.int32 if largest <= np.iinfo(np.int32).max else np.int64
        self._examples = examples if isinstance(examples, int) else examples.astype(dtype)
        self._dtype = dtype
        self._random = random
        # the current epoch, and the next one, which threads may already prepare
        self._shuffled = lru_cache(2)(self._shuffle)

    def __len__(self) -> int:
        return self._examples if isinstance(self._examples, int) else len(self._examples)

    def rows(self, epoch: int, first: int, last: int) -> Rows:
        """Return the examples at the places [first, last) of an epoch."""
        return np.asarray(self._shuffled(epoch)[first:last], np.int64)

    def _shuffle(self, epoch: int) -> npt.NDArray[Any]:
        members = self._examples
        order = np.arange(members, dtype=self._dtype) if isinstance(members, int) else members.copy()
        self._random(epoch).shuffle(order)
        return order


class BufferedSampler:
    """Samples all examples, or those with a label, from blocks of neighbours in a random order.

    As many blocks as a buffer of `buffer` examples holds are shuffled together. `random` returns random numbers of an
    epoch, or of a buffer in it; `read_next` receives the ranges of examples that a buffer is about to be filled with.
    """

    def __init__(
        self,
        labels: npt.NDArray[np.int8],
        label: int | None,
        buffer: int,
        random: MakeRandom,
        read_next: Callable[[list[tuple[int, int]]], None],
    ):
        self._labels = labels
        self._label = label
        self._random = random
        self._read_next = read_next
        self._size = block_size(buffer)
        blocks = -(-len(labels) // self._size)
        self._counts = np.fromiter((len(self._members(*self._range(block))) for block in range(blocks)), np.int64)
        self._examples = int(self._counts.sum())
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
        buffers = np.array_split(self._random(epoch).permutation(len(self._counts)), self._buffers)
        return buffers, np.cumsum([self._counts[blocks].sum() for blocks in buffers])

    def _fill(self, epoch: int, buffer: int) -> Rows:
        # in the order on disk: they are shuffled below
        ranges = [self._range(block) for block in np.sort(self._epoch(epoch)[0][buffer]).tolist()]
        self._read_next(ranges)
        examples = np.concatenate([self._members(first, last) for first, last in ranges])
        self._random(epoch, buffer).shuffle(examples)
        return examples

    def _range(self, block: int) -> tuple[int, int]:
        return block * self._size, min(len(self._labels), (block + 1) * self._size)

    def _members(self, first: int, last: int) -> Rows:
        """Return the sampled examples of a block."""
        if self._label is None:
            return np.arange(first, last)
        return first + np.flatnonzero(self._labels[first:last] == self._label)


def block_size(buffer: int) -> int:
    """Return the number of neighbours in a block, for a buffer of some examples."""
    return max(SMALLEST_BUFFER, buffer // BLOCKS)
