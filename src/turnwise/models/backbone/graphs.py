"""Streams padded to a few sizes, and replayed as CUDA graphs.

A CUDA graph launches all kernels at once, but for tensors of fixed sizes and addresses only. So the tokens and the
attention tiles of a stream are padded to rounded numbers. The padding tokens are sequences of one token whose states
nobody reads and whose gradient is zero.

A size runs normally the first time and is captured the second time, the forward and the backward pass as one graph
each. The backward graph adds to the parameters' gradients in place. All graphs share their memory, so a backward pass
must follow its forward pass before the next forward pass. Random numbers come from torch's generator, whose state a
replay reads: results do not depend on whether a size was captured.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from turnwise.models.backbone.attention import StreamShape, plan_tiles, smallest_tile
from turnwise.models.backbone.stream import LengthGroup, TokenStream

#: Sizes are rounded up to a multiple of a fraction of the next power of two, and of a minimum.
_TOKEN_FRACTION, _TOKEN_MULTIPLE = 32, 64
_TILE_FRACTION, _TILE_MULTIPLE = 16, 8

#: Graphs that are captured at most, and the fraction of a GPU's memory that must be free for another one.
_MAX_GRAPHS = 64
_FREE_MEMORY = 0.2


def round_up(count: int, fraction: int, multiple: int) -> int:
    """Round a number up to a multiple of 1/`fraction` of the next power of two, and of `multiple`."""
    step = max(multiple, (1 << (count - 1).bit_length()) // fraction)
    return -(-count // step) * step


@dataclass(frozen=True, slots=True)
class PaddedStream:
    """A stream as one array for the device: token ids, positions, segment ids, and attention tiles."""

    numbers: npt.NDArray[np.int64]  # (3 · tokens + 3 · tiles,)
    count: int  # tokens without padding
    tokens: int
    tiles: int  # 0 if the tile kernel is not used
    tile_size: int
    groups: tuple[LengthGroup, ...]

    @classmethod
    def of(cls, stream: TokenStream, *, first_position: int, padding_id: int, tiled: bool) -> "PaddedStream":
        """Pad a stream whose tensors are in the host's memory; `tiled`: for the tile kernel."""
        count = stream.tokens
        tokens = round_up(count, _TOKEN_FRACTION, _TOKEN_MULTIPLE)
        groups = stream.groups
        if tokens > count:
            groups = (*groups, LengthGroup(count, tokens - count, 1))
        tile_size = smallest_tile(int(stream.lengths[-1])) if tiled else 0
        if tile_size is None:
            raise ValueError(f"a sequence of {stream.lengths[-1]} tokens is too long for the tile kernel")
        plan = plan_tiles(groups, tile_size).numpy() if tile_size else np.empty((0, 3), np.int32)
        tiles = round_up(len(plan), _TILE_FRACTION, _TILE_MULTIPLE) if tile_size else 0
        numbers = np.zeros(3 * (tokens + tiles), np.int64)
        ids, positions, segments, padded_plan = np.split(numbers, [tokens, 2 * tokens, 3 * tokens])
        ids[:count], ids[count:] = stream.ids.numpy(), padding_id
        positions[:] = first_position
        positions[:count] += stream.positions().numpy()
        if stream.segments is not None:
            segments[:count] = stream.segments.numpy()
        padded_plan = padded_plan.reshape(-1, 3)
        padded_plan[: len(plan)] = plan
        padded_plan[len(plan) :] = 0, 0, 1  # empty: nothing is loaded or stored
        return cls(numbers, count, tokens, tiles, tile_size, groups)

    def unpack(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor, StreamShape]:
        """Return ids, positions and segment ids (1, tokens) and the stream's shape from the array on a device."""
        # copies: a compiled model would check how its inputs overlap
        ids, positions, segments = (part.clone()[None] for part in numbers[: 3 * self.tokens].split(self.tokens))
        tiles = numbers[3 * self.tokens :].view(-1, 3).int() if self.tile_size else None
        longest = max(group.length for group in self.groups)
        return ids, positions, segments, StreamShape(self.groups, None, longest, tiles, self.tile_size)


class StreamGraphs:
    """Runs a model over padded streams, and replays sizes that occur again; without a GPU it only pads.

    `run` returns the token states (tokens, hidden) of a padded stream, given its array on the device. `parameters` are
    those that are trained. Once a graph was captured, their gradients must stay the same tensors: set them to zero, not
    to None.
    """

    def __init__(
        self, run: Callable[[Tensor, PaddedStream], Tensor], parameters: Sequence[nn.Parameter], device: torch.device
    ):
        self._run = run
        self._parameters = parameters
        self._device = device
        self.graphs: dict[tuple[Any, ...], _Graph] = {}
        self._seen: set[tuple[Any, ...]] = set()
        self._is_full = device.type != "cuda"
        self.forward_passes = 0
        self._anchor = torch.zeros((), requires_grad=bool(parameters))

    def __call__(self, padded: PaddedStream) -> Tensor:
        """Return the states of all tokens except padding; they are valid until the next call."""
        numbers = torch.from_numpy(padded.numbers)
        if self._device.type == "cuda":
            numbers = numbers.pin_memory()  # so that the host does not wait for the copy
        kind = self._device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        size = (padded.tokens, padded.tiles, padded.tile_size, precision)
        graph = self.graphs.get(size)
        if graph is None and size in self._seen and self._has_room():
            graph = self.graphs[size] = self._capture(numbers, padded)
        self._seen.add(size)
        if graph is None:
            with self._settings():
                states = self._run(numbers.to(self._device, non_blocking=True), padded)[: padded.count]
            return states if torch.is_grad_enabled() else states.detach()
        graph.numbers.copy_(numbers, non_blocking=True)
        self.forward_passes += 1
        replayed: Any = _Replay.apply(self._anchor, self, graph, padded.count, self.forward_passes)  # type: ignore[no-untyped-call]
        states = torch.as_tensor(replayed)
        # without a gradient a caller may collect the states of several passes
        return states if torch.is_grad_enabled() else states.clone()

    def _has_room(self) -> bool:
        """Whether another graph may be captured."""
        if not self._is_full:
            torch.cuda.empty_cache()
            free, total = torch.cuda.mem_get_info(self._device)
            self._is_full = free < _FREE_MEMORY * total or len(self.graphs) >= _MAX_GRAPHS
        return not self._is_full

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        """Record a gradient if there is something to train, and cast weights anew: a graph cannot use earlier casts."""
        kind = self._device.type
        autocast = partial(torch.autocast, enabled=torch.is_autocast_enabled(kind), cache_enabled=False)
        with torch.set_grad_enabled(bool(self._parameters)), autocast(kind, torch.get_autocast_dtype(kind)):
            yield

    def _capture(self, numbers: Tensor, padded: PaddedStream) -> "_Graph":
        device = self._device
        if not self.graphs:
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(device)
        static = numbers.to(device)
        random_state = torch.cuda.get_rng_state(device)
        # gradient accumulators of an earlier pass that are still alive would belong to another CUDA stream
        gc.collect()
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with self._settings(), torch.cuda.stream(self._stream):  # so that libraries allocate their workspaces before
            states = self._run(static, padded)
            trained = self._trained_parameters(states)
            del states
        torch.cuda.current_stream(device).wait_stream(self._stream)
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        # other threads may use the GPU meanwhile, to write a checkpoint
        capture = partial(torch.cuda.graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local")
        forward, backward = torch.cuda.CUDAGraph(), None
        with self._settings():
            with capture(forward):
                states = self._run(static, padded)
            gradient = torch.zeros_like(states) if trained else None
            gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
            if trained:
                backward = torch.cuda.CUDAGraph()
                with capture(backward):
                    torch._foreach_add_(gradients, torch.autograd.grad(states, trained, gradient))
        torch.cuda.set_rng_state(random_state, device)
        return _Graph(static, states.detach(), gradient, forward, backward, tuple(zip(trained, gradients, strict=True)))

    def _trained_parameters(self, states: Tensor) -> list[nn.Parameter]:
        """Return the parameters that the states depend on."""
        if not self._parameters:
            return []
        gradients = torch.autograd.grad(states, self._parameters, torch.zeros_like(states), allow_unused=True)
        return [parameter for parameter, own in zip(self._parameters, gradients, strict=True) if own is not None]


@dataclass(frozen=True, slots=True)
class _Graph:
    """The captured passes over streams of one size, and the tensors that they read and write."""

    numbers: Tensor  # read by the forward pass
    states: Tensor  # written by it (tokens, hidden)
    gradient: Tensor | None  # of the states, read by the backward pass; None if nothing is trained
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph | None
    accumulated: tuple[tuple[nn.Parameter, Tensor], ...]  # the gradients that it adds to

    def run_backward(self, gradient: Tensor) -> None:
        """Add the gradients of the parameters, given that of the states without padding."""
        assert self.gradient is not None and self.backward is not None
        if any(parameter.grad is not own for parameter, own in self.accumulated):
            raise RuntimeError("a gradient that a CUDA graph adds to was replaced: set gradients to zero, not to None")
        count = len(gradient)
        self.gradient[:count].copy_(gradient)
        self.gradient[count:].zero_()
        self.backward.replay()


class _Replay(torch.autograd.Function):
    """Replays a forward graph, and in the backward pass its backward graph."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, graphs: StreamGraphs, graph: _Graph, count: int, forward_pass: int) -> Tensor:
        ctx.graphs, ctx.graph, ctx.forward_pass = graphs, graph, forward_pass
        graph.forward.replay()
        return graph.states[:count]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        if ctx.forward_pass != ctx.graphs.forward_passes:  # which has overwritten the activations of this one
            raise RuntimeError("a backward pass must directly follow its forward pass: set cuda_graphs=false")
        ctx.graph.run_backward(gradient)
        return None, None, None, None, None
