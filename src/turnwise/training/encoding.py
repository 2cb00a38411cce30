"""How a batch is encoded in training: in one forward pass where it fits, else in chunks with cached gradients.

On one process or on several; whatever the way, the loss and its gradient are those of the whole batch at once.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import nn

from turnwise.backbone.stream import TokenStream, chunks
from turnwise.encoder import Encoder
from turnwise.objectives.objective import Prepared, TokenObjective, TokenStates

Seed = Callable[[int], None]
"""Sets the random state for a chunk: the same chunk sees the same dropout in both passes."""


def sorted_chunks(prepared: Prepared, members: npt.NDArray[np.int64], budget: int) -> list[npt.NDArray[np.int64]]:
    """Sequences by length, cut into chunks of at most `budget` tokens: few lengths a chunk make few, large products."""
    lengths = np.array([len(prepared.sequences[member]) for member in members])
    order = members[np.argsort(lengths, kind="stable")]
    return [order[first:last] for first, last in chunks(np.sort(lengths).tolist(), budget)]


def stream_of(prepared: Prepared, members: npt.NDArray[np.int64]) -> TokenStream:
    """The stream of some of a batch's sequences."""
    segments = None if prepared.segments is None else [prepared.segments[member] for member in members]
    return TokenStream.of([prepared.sequences[member] for member in members], segments)


class PooledStep:
    """Forward and backward of an objective on pooled vectors.

    Vectors come in the grid (columns, rows, hidden) of the whole batch. Rows are shared out among the processes; each encodes its
    own, gathers the others' and computes the loss of all. A gather carries gradients by adding up what every process asks of a
    vector, so the mean of the processes' gradients is the gradient.
    """

    def __init__(self, encoder: Encoder, budget: int, rank: int = 0, world: int = 1):
        self._encoder = encoder
        self._budget = budget
        self._rank = rank
        self._world = world

    def run(self, prepared: Prepared, loss: Callable[[torch.Tensor], torch.Tensor], seed: Seed) -> bool:
        """Computes the gradients of a loss on the batch's vectors, for which it is called once; tells whether they were cached."""
        grid = np.arange(len(prepared.sequences)).reshape(-1, prepared.rows)
        shares = np.array_split(np.arange(prepared.rows), self._world)
        members = grid[:, shares[self._rank]].ravel()
        parts = sorted_chunks(prepared, members, self._budget)
        if self._agreed(len(parts) <= 1):
            seed(0)
            loss(self._whole(self._vectors(prepared, members), grid, shares)).backward()
            return False
        with torch.no_grad():
            vectors = self._encode(prepared, members, parts, seed)
        # every process computes the whole loss from a leaf, so what reaches its own rows is a share, not a sum: × world
        leaf = self._whole(vectors, grid, shares).detach().requires_grad_()
        loss(leaf).backward()
        assert leaf.grad is not None
        own = leaf.grad[:, shares[self._rank]].flatten(0, 1) * self._world
        places = {int(member): place for place, member in enumerate(members)}
        for number, part in enumerate(parts):
            seed(number)
            again = self._encoder(stream_of(prepared, part))
            rows = torch.as_tensor([places[int(member)] for member in part], device=own.device)
            again.backward(own[rows].to(again.dtype))
        return True

    def _vectors(self, prepared: Prepared, members: npt.NDArray[np.int64]) -> torch.Tensor:
        """The vectors of some sequences in one pass; of none, where there are more processes than examples."""
        if len(members):
            encoded: torch.Tensor = self._encoder(stream_of(prepared, members))
            return encoded
        # with a gradient to ask for: the others gather gradients, and this process has to take part
        return torch.zeros(0, self._encoder.hidden, device=self._encoder.backbone.device, requires_grad=True)

    def _agreed(self, fits: bool) -> bool:
        """Whether everybody's share fits: the processes go one way together, or what one sends the others do not await."""
        if self._world == 1:
            return fits
        all_fit = torch.tensor(int(fits), device=self._encoder.backbone.device)
        dist.all_reduce(all_fit, dist.ReduceOp.MIN)
        return bool(all_fit)

    def _encode(
        self, prepared: Prepared, members: npt.NDArray[np.int64], parts: list[npt.NDArray[np.int64]], seed: Seed
    ) -> torch.Tensor:
        if not parts:
            return self._vectors(prepared, members)
        pieces = []
        for number, part in enumerate(parts):
            seed(number)
            pieces.append(self._encoder(stream_of(prepared, part)))
        order = np.concatenate(parts)
        sorter = np.argsort(order)
        back = sorter[np.searchsorted(order, members, sorter=sorter)]
        return torch.cat(pieces)[torch.as_tensor(back, device=pieces[0].device)]

    def _whole(self, own: torch.Tensor, grid: npt.NDArray[np.int64], shares: list[npt.NDArray[np.int64]]) -> torch.Tensor:
        """Own vectors (columns × own rows, hidden) → everybody's (columns, rows, hidden)."""
        own = own.unflatten(0, (len(grid), len(own) // len(grid)))
        if self._world == 1:
            return own
        parts: tuple[torch.Tensor, ...] = _Gather.apply(own, [len(share) for share in shares])  # type: ignore[no-untyped-call]
        return torch.cat(parts, dim=1)


class _Gather(torch.autograd.Function):
    """Gathers tensors of different lengths from all processes; the gradient is the sum of what all of them ask."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, own: torch.Tensor, lengths: list[int]) -> tuple[torch.Tensor, ...]:
        ctx.lengths = lengths  # type: ignore[attr-defined]
        longest = max(lengths)
        padded = own.new_zeros(own.shape[0], longest, own.shape[2])
        padded[:, : own.shape[1]] = own
        received = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(received, padded)
        return tuple(part[:, :length].contiguous() for part, length in zip(received, lengths, strict=True))

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        summed = []
        for gradient in gradients:
            gradient = gradient.contiguous()
            dist.all_reduce(gradient)
            summed.append(gradient)
        return summed[dist.get_rank()], None


class TokenStep:
    """Forward and backward of an objective on token states, chunk by chunk; the loss is the mean over the batch's items."""

    def __init__(self, encoder: Encoder, budget: int, rank: int = 0, world: int = 1):
        self._encoder = encoder
        self._budget = budget
        self._rank = rank
        self._world = world

    def run(self, prepared: Prepared, objective: TokenObjective, heads: nn.Module, weight: float, seed: Seed) -> torch.Tensor:
        """Computes the loss and its gradients, times a weight; the loss comes back without it."""
        assert prepared.weights is not None
        total = max(1, int(prepared.weights.sum()))
        share = np.array_split(np.arange(len(prepared.sequences)), self._world)[self._rank]
        embeddings = self._encoder.backbone.model.get_input_embeddings()
        value = torch.zeros((), device=self._encoder.backbone.device)
        for number, part in enumerate(sorted_chunks(prepared, share, self._budget)):
            if not prepared.weights[part].any():
                continue
            seed(number)
            stream = stream_of(prepared, part)
            states = TokenStates(self._encoder.backbone(stream), stream, part)
            mean = objective.loss_sum(states, prepared.facts, heads, embeddings) / total
            # the processes' gradients are averaged, but each holds a part of the sum
            (mean * (weight * self._world)).backward()
            value += mean.detach()
        if self._world > 1:
            dist.all_reduce(value)
        return value
