"""From a corpus to the batches of every step.

The examples of a step depend on the seed and the step alone, so a run can start anywhere, and it does not matter how
many threads prepare batches or how far ahead they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.models.backbone.inputs import Composer
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.objectives.objective import Batch, Objective, PreparedBatch, TurnTable
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.examples import ExampleTable, extract_examples
from turnwise.training.hard_negatives import mine_hard_negatives
from turnwise.training.recipe import Recipe
from turnwise.training.samplers import BufferedSampler, LabelSampler, Rows, ShuffledSampler
from turnwise.training.tokens import read_turns, tokenise_corpus

#: Batches that are prepared ahead of the step that needs them.
AHEAD = 4


def make_loaders(
    recipe: Recipe,
    corpus: TrainingCorpus,
    objectives: Mapping[str, Objective],
    encoder: TrainableEncoder,
    progress: Progress = silent,
) -> "list[BatchLoader]":
    """Tokenise a corpus, extract the objectives' examples, mine hard negatives, and return a loader per objective.

    What is in the corpus's cache is not computed again.
    """
    traits = {name: objective.traits for name, objective in objectives.items()}
    rewriters = {each.rewriter for each in traits.values() if each.rewriter}
    texts = tokenise_corpus(corpus, encoder.backbone.tokenizer, progress, *rewriters)
    stores = recipe.selected_stores(corpus.dialogues.stores)
    examples = extract_examples(corpus, texts, objectives, progress, stores)
    for miner in {each.miner for each in traits.values() if each.miner}:  # one at most, which the recipe checks
        every = range(len(corpus.dialogues.stores))
        mined = sorted({store for name in traits if traits[name].miner for store in stores.get(name, every)})
        texts.negatives = mine_hard_negatives(corpus, texts, miner, progress, stores=mined)
    composer, longest = encoder.composer, encoder.backbone.max_length
    return [
        BatchLoader(
            *(name, objective, examples[name], texts, composer),
            LoaderConfig(recipe.batch_of(name), recipe.max_length, longest, recipe.seed, recipe.shuffle_buffer),
        )
        for name, objective in objectives.items()
    ]


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
        texts: TurnTable,
        composer: Composer,
        config: LoaderConfig,
    ):
        self.name = name
        self.objective = objective
        self.examples = examples
        self.texts = texts
        self._composer = composer
        self._config = config
        sampling, in_turn = objective.traits.label_sampling, objective.traits.labels_in_turn
        for label in in_turn:
            count = np.count_nonzero(examples.labels == label)
            if count < 2:
                raise TurnwiseError(
                    f"objective {name} finds {count} examples of size {label} in this corpus, and a batch needs two:"
                    " remove that size, or use longer dialogues"
                )
        #: One per label if labels take turns, else one.
        self.samplers = (
            [self._sampler(label) for label in in_turn or (None,)]
            if sampling is None
            else [LabelSampler(name, examples.labels, sampling, self._random)]
        )

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
            read_turns(self.texts, self.examples.read_next(ranges))

        return BufferedSampler(
            self.examples.labels, label, buffer, lambda epoch, *part: self._random(epoch, 2, *place, *part), read_next
        )

    def _random(self, *place: int) -> np.random.Generator:
        return np.random.default_rng([self._config.seed, *self.name.encode(), *place])

    def batch(self, step: int) -> Batch:
        """Return the examples of a step."""
        windows, labels = self.examples.rows(self.rows(step))
        lengths = self._config.max_length, self._config.longest
        return Batch(windows, labels, self.texts, self._composer, *lengths, self._random(step, 1))

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
