"""Objectives that compare two sides of a pair by NT-Xent: messages and responses, SimCSE, and TOD-BERT's responses."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from turnwise.core.dialogue import SYSTEM, Dialogue
from turnwise.core.validation import NonNegativeInt, Positive, PositiveInt
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.objectives.losses import nt_xent, symmetric_nt_xent
from turnwise.objectives.objective import (
    Batch,
    Example,
    Metrics,
    PooledObjective,
    PreparedBatch,
    Tensors,
    Traits,
    count_words,
    equal_texts,
)


@dataclass(frozen=True, slots=True)
class Pairs(PooledObjective):
    """A message, or the end of a conversation, near its response, without a head.

    The loss is NT-Xent in both directions on the encoder's own vectors, which ranking by cosine similarity uses later.
    """

    temperature: Positive = 0.05  # τ
    history: PositiveInt = 3  # turns of a message at most; from 1 to this many are drawn in every step
    minimum_words: NonNegativeInt = 0  # responses have more words than this
    mask_equal: bool = True  # pairs of equal messages or responses are no negatives of each other

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Iterate over the responses, each with as many turns before it as there are, up to `history`."""
        for response in range(1, len(dialogue.turns)):
            if count_words(dialogue.turns[response].text) > self.minimum_words:
                yield Example(((max(0, response - self.history), response), (response, response + 1)))

    def prepare(self, batch: Batch) -> PreparedBatch:
        """Return messages of random lengths, then responses."""
        windows = batch.windows.copy()
        available = windows[:, 0, 1] - windows[:, 0, 0]
        windows[:, 0, 0] = windows[:, 0, 1] - batch.random.integers(1, available, endpoint=True)
        return PooledObjective.prepare(self, replace(batch, windows=windows))

    def loss(self, vectors: Tensor, inputs: Tensors, heads: nn.Module) -> tuple[Tensor, Metrics]:
        """Compute NT-Xent in both directions."""
        messages, responses = vectors
        same = equal_texts(inputs["identities"][0]) | equal_texts(inputs["identities"][1])
        loss = symmetric_nt_xent(messages, responses, self.temperature, same=same if self.mask_equal else None)
        return loss, {"equal_texts": same.sum() / 2}


@dataclass(frozen=True, slots=True)
class SimCSE(PooledObjective):
    """SimCSE (Gao et al., 2021): a sentence twice under dropout, or NLI triplets with hard negatives."""

    supervised: bool = False  # from NLI triplets (premise, entailment, contradiction)
    temperature: Positive = 0.05  # τ
    minimum_words: NonNegativeInt = 0  # sentences have more words than this
    mask_equal: bool = False  # equal texts in a batch are not used as negatives of each other; the paper uses them
    head: bool = True  # a tanh layer in training only; without it the pooling 'cls-mlp' keeps its own layer

    @property
    def traits(self) -> Traits:
        """Sentence, positive and, if supervised, negative; otherwise each sentence is used once."""
        return Traits(columns=3 if self.supervised else 2, unique=not self.supervised)

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Iterate over the sentences, each paired with itself, or triplets."""
        if not self.supervised:
            for number, turn in enumerate(dialogue.turns):
                if count_words(turn.text) > self.minimum_words:
                    yield Example(((number, number + 1), (number, number + 1)))
        elif len(dialogue.turns) == 3:
            yield Example(((0, 1), (1, 2), (2, 3)))

    def make_heads(self, hidden: int) -> nn.Module:
        """Create the tanh layer on the pooled vector, which the authors drop at test time in the unsupervised form."""
        return nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh()) if self.head else nn.Identity()

    def loss(self, vectors: Tensor, inputs: Tensors, heads: nn.Module) -> tuple[Tensor, Metrics]:
        """Compute Eq. 1 (unsupervised) or Eq. 5 (supervised) of the paper."""
        anchors, positives, *negatives = heads(vectors)
        identities = inputs["identities"]
        same = identities[1][:, None] == identities[1:].flatten()[None, :]
        hard, masked = negatives[0] if self.supervised else None, same if self.mask_equal else None
        loss = nt_xent(anchors, positives, self.temperature, negatives=hard, same=masked)
        return loss, {"equal_texts": same.sum() - len(same)}


@dataclass(frozen=True, slots=True)
class TODBERT(PooledObjective):
    """TOD-BERT's response contrastive loss (Wu et al., 2020); its masked language model is another objective.

    A dialogue is flattened as `[USR] u₁ [SYS] s₁ …`. Each time it is used, a system turn is drawn: the turns before it
    are the context, and the other responses of the batch are negatives. As in the authors' code, vectors are compared
    by dot product and in one direction.
    """

    context_length: PositiveInt = 256  # tokens of a context; the newest are kept
    mask_equal: bool = False  # equal responses in a batch are no negatives of each other; the authors use them

    traits: ClassVar = Traits(columns=1, style="roles")

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Yield the whole dialogue if a system turn has a context; the response is drawn later."""
        if any(turn.speaker == SYSTEM for turn in dialogue.turns[1:]):
            yield Example(((0, len(dialogue.turns)),))

    def prepare(self, batch: Batch) -> PreparedBatch:
        """Draw the responses; return contexts, then responses."""
        contexts, responses, identities = [], [], []
        for first, last in batch.windows[:, 0].tolist():
            candidates = [turn for turn in range(first + 1, last) if batch.texts.speaker(turn) == SYSTEM]
            response = candidates[int(batch.random.integers(len(candidates)))]
            contexts.append(batch.sequence(first, response, self.context_length))
            responses.append(batch.sequence(response, response + 1))
            identities.append(batch.texts.identity(response))
        return PreparedBatch(RaggedTokens.of(contexts + responses), len(batch), {"identities": np.array(identities)})

    def loss(self, vectors: Tensor, inputs: Tensors, heads: nn.Module) -> tuple[Tensor, Metrics]:
        """Compute the cross-entropy of each context over the batch's responses."""
        same = equal_texts(inputs["identities"])
        loss = nt_xent(vectors[0], vectors[1], 1.0, similarity="dot", same=same if self.mask_equal else None)
        return loss, {"equal_texts": same.sum() / 2}
