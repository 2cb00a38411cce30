"""Which examples a step sees, and the threads that prepare them ahead of it.

A step's examples depend on the seed and the step alone, so a run can begin anywhere, and it does not matter how many threads
prepare or how far ahead they are.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.inputs import Composer
from turnwise.objectives.objective import Batch, Objective, Prepared
from turnwise.training.examples import ExampleTable
from turnwise.training.order import Blocks, BufferedOrder, Order, WholeOrder, block_size
from turnwise.training.tokens import TokenTable

#: Batches that are prepared ahead of the step that needs them.
AHEAD = 4


class Feed:
    """The batches of one objective.

    Args:
        name: of the objective; objectives of one run draw apart.
        objective: what prepares them.
        examples: all there are.
        texts: the turns.
        composer: puts token sequences together.
        batch_size: examples of a step.
        max_length: tokens of a turn.
        longest: tokens that the backbone can take.
        seed: of the run.
        shuffle_buffer: how many examples are shuffled together; None: all.
    """

    def __init__(
        self,
        name: str,
        objective: Objective,
        examples: ExampleTable,
        texts: TokenTable,
        composer: Composer,
        batch_size: int,
        max_length: int,
        longest: int,
        seed: int,
        shuffle_buffer: int | None = None,
    ):
        self.name = name
        self.objective = objective
        self.examples = examples
        self._texts = texts
        self._composer = composer
        self._batch_size = batch_size
        self._max_length = max_length
        self._longest = longest
        self._seed = seed
        self._buffer = shuffle_buffer
        self._orders = [self._order(label) for label in _labels(name, objective, examples)]

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a pass over all examples; a last batch of one example, which has no negatives, is left out."""
        return sum(self._batches(len(order)) for order in self._orders)

    def rows(self, step: int) -> npt.NDArray[np.int64]:
        """The examples of a step: a new order every pass.

        Where batches hold one label, the labels take turns, whatever they have: of an epoch's steps each label gets an equal share,
        and one with fewer examples begins its next pass while others are still in theirs.
        """
        turn, group = divmod(step, len(self._orders))
        order = self._orders[group]
        passed, place = divmod(turn, self._batches(len(order)))
        return order.rows(passed, place * self._batch_size, (place + 1) * self._batch_size)

    def _batches(self, examples: int) -> int:
        whole, rest = divmod(examples, self._batch_size)
        return max(1, whole + (rest > 1))

    def _order(self, label: int | None) -> Order:
        """The order of all examples, or of those with a label."""
        which = () if label is None else (label,)
        if self._buffer is None:
            every = len(self.examples) if label is None else _rows(self.examples, label)
            return WholeOrder(every, lambda passed: self._random(passed, 0, *which))
        blocks = Blocks.of(self.examples.labels, label, block_size(self._buffer))
        return BufferedOrder(
            blocks, self._buffer, lambda *place: self._random(place[0], 2, *which, *place[1:]), self._read_next
        )

    def _read_next(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Has the examples that a buffer is filled with read from disk, a block of neighbours at a time."""
        self._texts.read_next(self.examples.read_next(ranges))

    def _random(self, *place: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *self.name.encode(), *place])

    def prepare(self, step: int) -> Prepared:
        """What the objective makes of a step's examples."""
        windows, labels = self.examples.rows(self.rows(step))
        random = self._random(step, 1)
        return self.objective.prepare(
            Batch(windows, labels, self._texts, self._composer, self._max_length, self._longest, random)
        )


def _labels(name: str, objective: Objective, examples: ExampleTable) -> Sequence[int | None]:
    """The labels that have batches of their own; None where batches are drawn from all examples."""
    for label in objective.labels_in_turn:
        found = np.count_nonzero(examples.labels == label)
        if found < 2:
            raise TurnwiseError(
                f"objective {name} finds {found} examples of size {label} in this corpus, and a batch needs two: leave that size"
                " out, or take longer dialogues"
            )
    return objective.labels_in_turn or (None,)


def _rows(examples: ExampleTable, label: int) -> npt.NDArray[np.integer]:
    """The numbers of the examples with a label, in four bytes each where they do."""
    rows = np.flatnonzero(examples.labels == label)
    return rows.astype(np.int32) if len(examples) <= np.iinfo(np.int32).max else rows


def prepared_steps(feeds: list[Feed], first: int, last: int, workers: int) -> Iterator[list[Prepared]]:
    """The prepared batches of the steps from `first` to before `last`, one a feed."""
    with ThreadPoolExecutor(workers, thread_name_prefix="prepare") as pool:
        waiting: list[list[Future[Prepared]]] = []
        try:
            for step in range(first, last):
                waiting.append([pool.submit(feed.prepare, step) for feed in feeds])
                if len(waiting) > AHEAD:
                    yield [future.result() for future in waiting.pop(0)]
            for futures in waiting:
                yield [future.result() for future in futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
