"""How a batch is encoded in training: in one forward pass where it fits, else in chunks with cached gradients.

On one process or on several; whatever the way, the loss and its gradient are those of the whole batch at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import nn

from turnwise.models.backbone.stream import RaggedTokens, TokenStream, span_indices, token_batches
from turnwise.models.encoder import Encoder
from turnwise.objectives.objective import Prepared, ReplacingObjective, TokenObjective, TokenStates

Seed = Callable[[int], None]
"""Sets the random state for a chunk: the same chunk sees the same dropout in both passes."""

#: What a batch is encoded as: a vector a sequence, or a state a token.
Rows = Literal["vectors", "states"]


def sorted_chunks(prepared: Prepared, members: npt.NDArray[np.int64], budget: int) -> list[npt.NDArray[np.int64]]:
    """Sequences by length, cut into chunks of at most `budget` tokens: few lengths a chunk make few, large products."""
    lengths = prepared.sequences.lengths[members]
    order = members[np.argsort(lengths, kind="stable")]
    return [order[first:last] for first, last in token_batches(np.sort(lengths), budget)]


def stream_of(prepared: Prepared, members: npt.NDArray[np.int64]) -> TokenStream:
    """The stream of some of a batch's sequences."""
    segments = None if prepared.segments is None else prepared.segments.take(members)
    return TokenStream.of(prepared.sequences.take(members), segments)


class BatchStep:
    """Forward and backward of an objective whose loss sees the whole batch: a vector of each sequence, or all token states.

    Both come as rows (rows, hidden), sequence by sequence in the order in which they were prepared. Sequences are shared out among
    the processes; each encodes its own, gathers the others' rows and computes the loss of all. A gather carries gradients by adding
    up what every process asks of a row, so the mean of the processes' gradients is the gradient.
    """

    def __init__(self, encoder: Encoder, budget: int, rank: int = 0, world: int = 1):
        self._encoder = encoder
        self._budget = budget
        self._rank = rank
        self._world = world

    def run(self, prepared: Prepared, rows: Rows, loss: Callable[[torch.Tensor], torch.Tensor], seed: Seed) -> bool:
        """Computes the gradients of a loss on the batch's rows, for which it is called once; tells whether they were cached."""
        layout = _Layout.of(prepared, rows, self._world)
        members = layout.shares[self._rank]
        parts = sorted_chunks(prepared, members, self._budget)
        if self._agreed(len(parts) <= 1):
            seed(0)
            loss(self._whole(self._encode(prepared, rows, members), layout)).backward()
            return False
        with torch.no_grad():
            found = self._encode_parts(prepared, rows, parts, members, layout, seed)
        # every process computes the whole loss from a leaf, so what reaches its own rows is a share, not a sum: × world
        leaf = self._whole(found, layout).detach().requires_grad_()
        loss(leaf).backward()
        assert leaf.grad is not None
        for number, part in enumerate(parts):
            seed(number)
            again = self._encode(prepared, rows, part)
            wanted = leaf.grad[torch.as_tensor(layout.rows_of(part), device=leaf.device)] * self._world
            again.backward(wanted.to(again.dtype))
        return True

    def _encode(self, prepared: Prepared, rows: Rows, members: npt.NDArray[np.int64]) -> torch.Tensor:
        """The rows of some sequences in one pass; of none, where there are more processes than sequences."""
        if not len(members):
            # with a gradient to ask for: the others gather gradients, and this process has to take part
            return torch.zeros(0, self._encoder.hidden, device=self._encoder.backbone.device, requires_grad=True)
        stream = stream_of(prepared, members)
        if rows == "states":
            return stream.restore_tokens(self._encoder.backbone(stream))
        vectors: torch.Tensor = self._encoder(stream)
        return vectors

    def _encode_parts(
        self,
        prepared: Prepared,
        rows: Rows,
        parts: list[npt.NDArray[np.int64]],
        members: npt.NDArray[np.int64],
        layout: "_Layout",
        seed: Seed,
    ) -> torch.Tensor:
        if not parts:
            return self._encode(prepared, rows, members)
        pieces = []
        for number, part in enumerate(parts):
            seed(number)
            pieces.append(self._encode(prepared, rows, part))
        order = layout.rows_of(np.concatenate(parts))
        sorter = np.argsort(order)
        back = sorter[np.searchsorted(order, layout.rows_of(members), sorter=sorter)]
        return torch.cat(pieces)[torch.as_tensor(back, device=pieces[0].device)]

    def _agreed(self, fits: bool) -> bool:
        """Whether everybody's share fits: the processes go one way together, or what one sends the others do not await."""
        if self._world == 1:
            return fits
        all_fit = torch.tensor(int(fits), device=self._encoder.backbone.device)
        dist.all_reduce(all_fit, dist.ReduceOp.MIN)
        return bool(all_fit)

    def _whole(self, own: torch.Tensor, layout: "_Layout") -> torch.Tensor:
        """Own rows → everybody's, as they were prepared."""
        if self._world == 1:
            return own
        order = [layout.rows_of(share) for share in layout.shares]
        parts: tuple[torch.Tensor, ...] = _Gather.apply(own, [len(rows) for rows in order])  # type: ignore[no-untyped-call]
        return torch.cat(parts)[torch.as_tensor(np.argsort(np.concatenate(order)), device=own.device)]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Whose rows are where.

    Attributes:
        starts: where each sequence's rows begin, and where the last one's end (sequences + 1,).
        shares: the sequences of each process: of all columns of a grid an equal part, since columns differ in length.
    """

    starts: npt.NDArray[np.int64]
    shares: list[npt.NDArray[np.int64]]

    @classmethod
    def of(cls, prepared: Prepared, rows: Rows, world: int) -> "_Layout":
        lengths = prepared.sequences.lengths
        counts = lengths if rows == "states" else np.ones_like(lengths)
        everything = np.arange(len(counts))
        owners = everything % prepared.rows % world
        return cls(np.concatenate([[0], np.cumsum(counts)]), [everything[owners == rank] for rank in range(world)])

    def rows_of(self, members: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The rows of some sequences, one sequence behind the other."""
        return span_indices(self.starts[members], self.starts[members + 1] - self.starts[members])


class _Gather(torch.autograd.Function):
    """Gathers rows from all processes, which have different numbers of them; the gradient is the sum of what all of them ask."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, own: torch.Tensor, lengths: list[int]
    ) -> tuple[torch.Tensor, ...]:
        padded = own.new_zeros(max(lengths), own.shape[1])
        padded[: len(own)] = own
        received = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(received, padded)
        return tuple(part[:length].contiguous() for part, length in zip(received, lengths, strict=True))

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        summed = []
        for gradient in gradients:
            gradient = gradient.contiguous()
            dist.all_reduce(gradient)
            summed.append(gradient)
        return summed[dist.get_rank()], None


@dataclass(frozen=True, slots=True)
class TokenPart:
    """An objective on token states in a step: what was prepared for it, its heads, and what its loss counts."""

    objective: TokenObjective | ReplacingObjective
    prepared: Prepared
    heads: nn.Module
    weight: float

    @property
    def total(self) -> int:
        """The items of its batch, over which its loss is the mean."""
        assert self.prepared.weights is not None
        return max(1, int(self.prepared.weights.sum()))


class TokenStep:
    """Forward and backward of objectives on token states, chunk by chunk; a loss is the mean over its batch's items.

    Several objectives go through the backbone together: a chunk may hold sequences of all of them.
    """

    def __init__(self, encoder: Encoder, budget: int, rank: int = 0, world: int = 1):
        self._encoder = encoder
        self._budget = budget
        self._rank = rank
        self._world = world

    def run(self, parts: Sequence[TokenPart], seed: Seed) -> list[torch.Tensor]:
        """Computes the losses and the gradients of their weighted sum; the losses come back without their weights.

        An objective that replaces tokens before they are encoded goes alone.
        """
        together = _together([part.prepared for part in parts])
        owners = np.repeat(np.arange(len(parts)), [len(part.prepared.sequences) for part in parts])
        numbers = np.concatenate([np.arange(len(part.prepared.sequences)) for part in parts])
        weights = together.weights
        assert weights is not None
        # of every objective an equal share, or the processes would not have the same to do
        share = np.concatenate(
            [np.array_split(np.flatnonzero(owners == owner), self._world)[self._rank] for owner in range(len(parts))]
        )
        device = self._encoder.backbone.device
        values = torch.zeros(len(parts), device=device)
        for number, chunk in enumerate(sorted_chunks(together, share, self._budget)):
            if not weights[chunk].any():
                continue
            seed(number)
            means = self._means(parts, stream_of(together, chunk), owners[chunk], numbers[chunk])
            # the processes' gradients are averaged, but each holds a part of the sum
            torch.stack([mean * (parts[owner].weight * self._world) for owner, mean in means.items()]).sum().backward()
            for owner, mean in means.items():
                values[owner] += mean.detach()
        if self._world > 1:
            dist.all_reduce(values)
        return list(values)

    def _means(
        self,
        parts: Sequence[TokenPart],
        stream: TokenStream,
        owners: npt.NDArray[np.int64],
        numbers: npt.NDArray[np.int64],
    ) -> dict[int, torch.Tensor]:
        """What a chunk adds to the losses that have sequences in it."""
        backbone = self._encoder.backbone
        embeddings = backbone.model.get_input_embeddings()
        sums = {int(owner): torch.zeros((), device=backbone.device) for owner in np.unique(owners)}
        for owner in sums:
            objective = parts[owner].objective
            if objective.needs == "replaced":
                assert len(parts) == 1
                stream, sums[owner] = objective.replaced(
                    stream.to(backbone.device), numbers, parts[owner].prepared.facts, parts[owner].heads, embeddings
                )
        states = backbone(stream)
        for owner in sums:
            part = parts[owner]
            own = TokenStates(states, stream, np.where(owners == owner, numbers, -1))
            sums[owner] = (
                sums[owner] + part.objective.loss_sum(own, part.prepared.facts, part.heads, embeddings)
            ) / part.total
        return sums


def _together(batches: Sequence[Prepared]) -> Prepared:
    """The sequences of several batches, one batch behind the other; those without segments are of the first."""
    if len(batches) == 1:
        return batches[0]
    sequences = RaggedTokens.concatenate([prepared.sequences for prepared in batches])
    segments = None
    if any(prepared.segments is not None for prepared in batches):
        marks = [
            np.zeros(len(each.sequences.tokens), np.int32) if each.segments is None else each.segments.tokens
            for each in batches
        ]
        segments = RaggedTokens(np.concatenate(marks), sequences.lengths)
    weights = np.concatenate([prepared.weights for prepared in batches if prepared.weights is not None])
    return Prepared(sequences, sum(prepared.rows for prepared in batches), segments=segments, weights=weights)
