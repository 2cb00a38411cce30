"""Messages and their responses, compared by the encoder's own vectors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.validation import NonNegativeInt, Positive, PositiveInt
from turnwise.objectives import objective as base
from turnwise.objectives.losses import symmetric_nt_xent


@dataclass(frozen=True, slots=True)
class Pairs(base.PooledObjective):
    """A message, or the end of a conversation, near its response, without a head.

    The loss is NT-Xent in both directions on the encoder's own vectors, which ranking by cosine similarity uses later.
    """

    temperature: Positive = 0.05  # τ
    history: PositiveInt = 3  # turns of a message at most; from 1 to this many are drawn in every step
    minimum_words: NonNegativeInt = 0  # responses have more words than this
    mask_equal: bool = True  # pairs of equal messages or responses are no negatives of each other

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Iterate over the responses, each with as many turns before it as there are, up to `history`."""
        for response in range(1, len(dialogue.turns)):
            if base.count_words(dialogue.turns[response].text) > self.minimum_words:
                yield base.Example(((max(0, response - self.history), response), (response, response + 1)))

    def prepare(self, batch: base.Batch) -> base.PreparedBatch:
        """Return messages of random lengths, then responses."""
        windows = batch.windows.copy()
        available = windows[:, 0, 1] - windows[:, 0, 0]
        windows[:, 0, 0] = windows[:, 0, 1] - batch.random.integers(1, available, endpoint=True)
        return base.PooledObjective.prepare(self, replace(batch, windows=windows))

    def loss(self, vectors: Tensor, inputs: base.Tensors, heads: nn.Module) -> tuple[Tensor, base.Metrics]:
        """Compute NT-Xent in both directions."""
        messages, responses = vectors
        same = base.equal_texts(inputs["identities"][0]) | base.equal_texts(inputs["identities"][1])
        loss = symmetric_nt_xent(messages, responses, self.temperature, same=same if self.mask_equal else None)
        return loss, {"equal_texts": same.sum() / 2}
