"""Forward and backward passes over prepared batches, in chunks and on several processes.

A batch is encoded in one forward pass if it fits, otherwise in chunks with cached gradients; the loss and its gradient
are always those of the whole batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from turnwise.models.backbone.ragged import RaggedTokens, span_indices, token_batches
from turnwise.models.backbone.stream import TokenStream
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.objectives.objective import Members, PreparedBatch, TokenObjective, TokenStates

if TYPE_CHECKING:
    from turnwise.training.setup import TrainedObjective

#: Sets the random state for a chunk, so that both passes over it have the same dropout.
SeedChunk = Callable[[int], None]

#: The rows that a batch is encoded to: a vector per sequence, or a state per token.
Rows = Literal["vectors", "states"]


def sorted_chunks(batch: PreparedBatch, members: Members, budget: int) -> list[Members]:
    """Sort sequences by length and cut them into chunks of at most `budget` tokens."""
    lengths = batch.sequences.lengths[members]
    order = members[np.argsort(lengths, kind="stable")]
    return [order[first:last] for first, last in token_batches(np.sort(lengths), budget)]


def _make_stream(batch: PreparedBatch, members: Members) -> TokenStream:
    segments = None if batch.segments is None else batch.segments.take(members)
    return TokenStream.of(batch.sequences.take(members), segments)


@dataclass(frozen=True, slots=True)
class _Pass:
    encoder: TrainableEncoder
    budget: int  # tokens that are encoded at once
    rank: int = 0
    world: int = 1


class BatchPass(_Pass):
    """Forward and backward pass of objectives whose losses see all vectors or token states of their batches.

    Both are rows (rows, hidden), batch by batch and sequence by sequence as they were prepared. The sequences are
    divided among the processes; each encodes its own, gathers the rows of the others and computes the whole loss. The
    backward pass of the gather adds up the gradients of all processes, so the mean of the processes' gradients is the
    gradient.
    """

    def run(
        self,
        batches: Sequence[PreparedBatch],
        rows: Rows,
        compute_loss: Callable[[Tensor], Tensor],
        seed_chunk: SeedChunk,
    ) -> bool:
        """Compute the gradients of a loss on the rows of all batches; return whether they were cached."""
        layout, batch = RowLayout.of(batches, rows, self.world), _join(batches)
        members = layout.members[self.rank]
        parts = sorted_chunks(batch, members, self.budget)
        fits = len(parts) <= 1
        if self.world > 1:  # all processes must take the same path
            all_fit = torch.tensor(int(fits), device=self.encoder.backbone.device)
            dist.all_reduce(all_fit, dist.ReduceOp.MIN)
            fits = bool(all_fit)
        if fits:
            seed_chunk(0)
            compute_loss(self._gather(self._encode(batch, rows, members), layout)).backward()
            return False
        with torch.no_grad():
            own = self._encode_chunks(batch, rows, parts, layout, seed_chunk)
        # every process computes the whole loss from a leaf, so the gradient of its own rows is not yet a sum: × world
        leaf = self._gather(own, layout).detach().requires_grad_()
        compute_loss(leaf).backward()
        assert leaf.grad is not None
        for number, part in enumerate(parts):
            seed_chunk(number)
            encoded = self._encode(batch, rows, part)
            gradient = leaf.grad[torch.as_tensor(layout.rows_of(part), device=leaf.device)] * self.world
            encoded.backward(gradient.to(encoded.dtype))
            del encoded  # the next chunk may be captured as a CUDA graph, which no other graph may share nodes with
        return True

    @torch.no_grad()
    def encode(self, batches: Sequence[PreparedBatch]) -> Tensor:
        """Return the vectors of all sequences, without a gradient."""
        layout, batch = RowLayout.of(batches, "vectors", self.world), _join(batches)
        parts = sorted_chunks(batch, layout.members[self.rank], self.budget)
        return self._gather(self._encode_chunks(batch, "vectors", parts, layout, lambda _: None), layout)

    def _encode(self, batch: PreparedBatch, rows: Rows, members: Members) -> Tensor:
        """Return the rows of some sequences, which may be none if there are more processes than sequences."""
        if not len(members):
            # with a gradient: this process has to take part in gathering the gradients
            return torch.zeros(0, self.encoder.hidden, device=self.encoder.backbone.device, requires_grad=True)
        stream = _make_stream(batch, members)
        if rows == "states":
            return stream.restore_tokens(self.encoder.backbone(stream))
        vectors: Tensor = self.encoder(stream)
        return vectors

    def _encode_chunks(
        self, batch: PreparedBatch, rows: Rows, parts: list[Members], layout: "RowLayout", seed_chunk: SeedChunk
    ) -> Tensor:
        """Return the rows of this process's sequences, in their order, encoded chunk by chunk."""
        if not parts:
            return self._encode(batch, rows, layout.members[self.rank])
        pieces = []
        for number, part in enumerate(parts):
            seed_chunk(number)
            pieces.append(self._encode(batch, rows, part))
        restored = np.argsort(layout.rows_of(np.concatenate(parts)))
        return torch.cat(pieces)[torch.as_tensor(restored, device=pieces[0].device)]

    def _gather(self, own: Tensor, layout: "RowLayout") -> Tensor:
        """Gather the rows of all processes, in the order in which they were prepared."""
        if self.world == 1:
            return own
        order = [layout.rows_of(members) for members in layout.members]
        parts: tuple[Tensor, ...] = _Gather.apply(own, [len(rows) for rows in order])  # type: ignore[no-untyped-call]
        return torch.cat(parts)[torch.as_tensor(np.argsort(np.concatenate(order)), device=own.device)]


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Which rows belong to which sequence, and which sequences to which process."""

    starts: Members  # where each sequence's rows begin, and where the last one's end (sequences + 1,)
    members: list[Members]  # of each process: an equal part of every column of a grid, since columns differ in length

    @classmethod
    def of(cls, batches: Sequence[PreparedBatch], rows: Rows, world: int) -> "RowLayout":
        """Divide batches among processes."""
        lengths = np.concatenate([batch.sequences.lengths for batch in batches])
        counts = lengths if rows == "states" else np.ones_like(lengths)
        sequences = np.arange(len(counts))
        owners = np.concatenate([np.arange(len(batch.sequences)) % batch.rows % world for batch in batches])
        return cls(np.concatenate([[0], np.cumsum(counts)]), [sequences[owners == rank] for rank in range(world)])

    def rows_of(self, members: Members) -> Members:
        """Return the rows of some sequences, one sequence after the other."""
        return span_indices(self.starts[members], self.starts[members + 1] - self.starts[members])


class _Gather(torch.autograd.Function):
    """Gathers different numbers of rows from all processes; its gradient is the sum over all processes."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, own: Tensor, lengths: list[int]) -> tuple[Tensor, ...]:
        padded = own.new_zeros(max(lengths), own.shape[1])
        padded[: len(own)] = own
        received = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(received, padded)
        return tuple(part[:length].contiguous() for part, length in zip(received, lengths, strict=True))

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        summed = [gradient.contiguous() for gradient in gradients]
        for gradient in summed:
            dist.all_reduce(gradient)
        return summed[dist.get_rank()], None


class TokenPass(_Pass):
    """Forward and backward pass of objectives on token states; a loss is the mean over its batch's items.

    Several objectives go through the backbone together: a chunk may contain sequences of all of them.
    """

    def run(
        self, parts: Sequence["TrainedObjective"], batches: Sequence[PreparedBatch], seed_chunk: SeedChunk
    ) -> list[Tensor]:
        """Compute the gradients of the weighted sum of the losses; return the losses without their weights.

        An objective that replaces tokens must be the only part.
        """
        joined, counts = _join(batches), [len(batch.sequences) for batch in batches]
        owners = np.repeat(np.arange(len(parts)), counts)
        numbers = np.concatenate([np.arange(count) for count in counts])
        weights = joined.weights
        assert weights is not None
        # an equal part of every objective, so that all processes have as much to do
        own = np.concatenate(
            [np.array_split(np.flatnonzero(owners == owner), self.world)[self.rank] for owner in range(len(parts))]
        )
        items = [max(1, int(weights[owners == owner].sum())) for owner in range(len(parts))]
        values = torch.zeros(len(parts), device=self.encoder.backbone.device)
        for number, chunk in enumerate(sorted_chunks(joined, own, self.budget)):
            if not weights[chunk].any():
                continue
            seed_chunk(number)
            sums = self._loss_sums(parts, batches, _make_stream(joined, chunk), owners[chunk], numbers[chunk])
            means = {owner: loss / items[owner] for owner, loss in sums.items()}
            # gradients are averaged over the processes, but each has a part of the sum
            torch.stack([mean * (parts[owner].weight * self.world) for owner, mean in means.items()]).sum().backward()
            for owner, mean in means.items():
                values[owner] += mean.detach()
            del sums, means, mean  # as in `BatchPass.run`
        if self.world > 1:
            dist.all_reduce(values)
        return list(values)

    def _loss_sums(
        self,
        parts: Sequence["TrainedObjective"],
        batches: Sequence[PreparedBatch],
        stream: TokenStream,
        owners: Members,
        numbers: Members,
    ) -> dict[int, Tensor]:
        """Return the sum of the loss over a chunk's items, for each objective that has sequences in it."""
        backbone = self.encoder.backbone
        embeddings = backbone.token_embeddings()
        sums = {int(owner): torch.zeros((), device=backbone.device) for owner in np.unique(owners)}
        first = parts[0]
        assert isinstance(first.objective, TokenObjective)
        if first.objective.replaces_tokens:
            assert len(parts) == 1
            stream, sums[0] = first.objective.replace_tokens(
                stream.to(backbone.device), numbers, batches[0].inputs, first.heads, embeddings
            )
        states = backbone(stream)
        for owner in sums:
            objective = parts[owner].objective
            assert isinstance(objective, TokenObjective)
            own = TokenStates(states, stream, np.where(owners == owner, numbers, -1))
            sums[owner] = sums[owner] + objective.loss_sum(own, batches[owner].inputs, parts[owner].heads, embeddings)
        return sums


def _join(batches: Sequence[PreparedBatch]) -> PreparedBatch:
    """Join the sequences of several batches; sequences without segments get segment 0."""
    if len(batches) == 1:
        return batches[0]
    sequences = RaggedTokens.concatenate([batch.sequences for batch in batches])
    segments = None
    if any(batch.segments is not None for batch in batches):
        parts = [
            np.zeros_like(batch.sequences.tokens) if batch.segments is None else batch.segments.tokens
            for batch in batches
        ]
        segments = RaggedTokens(np.concatenate(parts), sequences.lengths)
    weights = [batch.weights for batch in batches if batch.weights is not None]
    joined = np.concatenate(weights) if weights else None
    return PreparedBatch(sequences, sum(batch.rows for batch in batches), segments=segments, weights=joined)
