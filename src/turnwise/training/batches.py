"""Which examples a step sees, and the threads that prepare them ahead of it.

A step's examples depend on the seed and the step alone, so a run can begin anywhere, and it does not matter how many threads
prepare or how far ahead they are.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from turnwise.backbone.compose import Composer
from turnwise.errors import TurnwiseError
from turnwise.objectives.objective import Batch, Objective, Prepared
from turnwise.training.tokens import ExampleTable, TokenTable

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
        self._groups = _groups(name, objective, examples)
        # a group's order in the pass under way and in the one that threads may already prepare
        self._order = lru_cache(2 * len(self._groups))(self._shuffled)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a pass over all examples; a last batch of one example, which has no negatives, is left out."""
        return sum(self._batches(len(rows)) for _, rows in self._groups)

    def rows(self, step: int) -> npt.NDArray[np.int64]:
        """The examples of a step: a new order every pass.

        Where batches hold one label, the labels take turns, whatever they have: of an epoch's steps each label gets an equal share,
        and one with fewer examples begins its next pass while others are still in theirs.
        """
        turn, group = divmod(step, len(self._groups))
        passed, place = divmod(turn, self._batches(len(self._groups[group][1])))
        order: npt.NDArray[np.int64] = self._order(group, passed)
        return order[place * self._batch_size : (place + 1) * self._batch_size]

    def _batches(self, examples: int) -> int:
        whole, rest = divmod(examples, self._batch_size)
        return max(1, whole + (rest > 1))

    def _shuffled(self, group: int, passed: int) -> npt.NDArray[np.int64]:
        label, rows = self._groups[group]
        shuffled: npt.NDArray[np.int64] = self._random(passed, 0, *(() if label is None else (label,))).permutation(rows)
        return shuffled

    def _random(self, *place: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *self.name.encode(), *place])

    def prepare(self, step: int) -> Prepared:
        """What the objective makes of a step's examples."""
        windows, labels = self.examples.rows(self.rows(step))
        random = self._random(step, 1)
        return self.objective.prepare(Batch(windows, labels, self._texts, self._composer, self._max_length, self._longest, random))


def _groups(name: str, objective: Objective, examples: ExampleTable) -> list[tuple[int | None, npt.NDArray[np.int64]]]:
    """The numbers of the examples that batches are drawn from: of all, or of each label that has batches of its own."""
    if not objective.labels_in_turn:
        return [(None, np.arange(len(examples)))]
    known = examples.by_label()
    for label in objective.labels_in_turn:
        found = len(known.get(label, ()))
        if found < 2:
            raise TurnwiseError(
                f"objective {name} finds {found} examples of size {label} in this corpus, and a batch needs two: leave that size"
                " out, or take longer dialogues"
            )
    return [(label, known[label]) for label in objective.labels_in_turn]


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
