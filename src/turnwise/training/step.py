"""One training step: forward and backward passes of all objectives, then an update of the weights.

A batch is encoded in one forward pass if it fits, otherwise in chunks with cached gradients, on one process or on
several; the loss and its gradient are always those of the whole batch. Random numbers depend on (seed, step) alone.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from turnwise.core.errors import TrainingError
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.ragged import RaggedTokens, span_indices, token_batches
from turnwise.models.backbone.stream import TokenStream, to_device
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.objectives.objective import (
    BatchStates,
    Members,
    Metrics,
    Objective,
    PooledObjective,
    PreparedBatch,
    StatesObjective,
    TokenObjective,
    TokenStates,
)
from turnwise.training.recipe import Precision, Schedule, Switch

if TYPE_CHECKING:
    from turnwise.training.setup import TrainedObjective, TrainingSetup

#: Sets the random state for a chunk, so that both passes over it have the same dropout.
SeedChunk = Callable[[int], None]

#: The rows that a batch is encoded to: a vector per sequence, or a state per token.
Rows = Literal["vectors", "states"]

#: Bytes of activations per token, layer and hidden unit in float32, as measured on BERT and rounded up.
_ACTIVATION_BYTES = 150

#: Hidden units up to which a GPU waits for the host, so that CUDA graphs pay.
_SMALL_MODEL = 512

#: Steps from which on compiling pays: for BERT-base it takes about a minute and saves some 15 milliseconds per step.
_LONG_RUN = 4_000

#: The factors at which PyTorch's OneCycleLR starts and ends, and its fraction of rising steps.
_ONE_CYCLE_START, _ONE_CYCLE_END, _ONE_CYCLE_RISE = 1 / 25, 1 / 25 / 1e4, 0.3


#: How names of the encoder's parameters start, unlike those of heads.
_ENCODER = "encoder."


class TrainingStep:
    """Makes the steps of a run; call `start` before the first one, after a checkpoint is restored."""

    def __init__(self, setup: "TrainingSetup"):
        self._setup = setup
        self._device = setup.processes.device
        self._bf16 = _uses_bf16(setup.recipe.precision)
        self._groups = _group_objectives(setup.parts)
        #: Everything that is trained, by name: the encoder's parameters except frozen ones, and the heads'.
        self.parameters = _trained_parameters(setup)
        self.optimizer = _make_optimizer(setup, self.parameters)
        #: The encoder's starting weights; empty if they are not averaged into the saved model.
        self._start = {
            name: value.detach().clone()
            for name, value in self.parameters.items()
            if setup.recipe.start_fraction and name.startswith(_ENCODER)
        }
        self._diverged = torch.zeros((), dtype=torch.bool, device=self._device)
        #: Parameters whose gradients stay the same tensors, for CUDA graphs.
        self._fixed: list[nn.Parameter] = []

    def start(self) -> None:
        """Compile the backbone if the recipe asks for it, and choose how many tokens are encoded at once."""
        setup, backbone = self._setup, self._setup.encoder.backbone
        rank, world = setup.processes.rank, setup.processes.world
        if _compiles(setup.recipe.compile, self._device, setup.steps):
            backbone.compile()
        if _uses_graphs(setup.recipe.cuda_graphs, backbone, world):
            backbone.use_graphs()
            self.keep_gradients()
            for teacher in {part.teacher for part in setup.parts if part.teacher is not None}:
                if teacher.backbone.supports_graphs:
                    teacher.backbone.use_graphs(training=False)
        budget = setup.recipe.tokens_per_forward or token_budget(backbone, self._device)
        if world > 1:  # all processes must encode the same objectives together
            agreed = torch.tensor(budget, device=self._device)
            dist.all_reduce(agreed, dist.ReduceOp.MIN)
            budget = int(agreed)
        self._budget = budget
        self._batch_pass = BatchPass(setup.encoder, budget, rank, world)
        self._token_pass = TokenPass(setup.encoder, budget, rank, world)
        self._teacher_pass = partial(BatchPass, budget=budget, rank=rank, world=world)

    def keep_gradients(self) -> None:
        """Set the backbone's gradients to zero before a step instead of removing them: CUDA graphs add to them."""
        parameters = self._setup.encoder.backbone.model.parameters()
        self._fixed = [value for value in parameters if value.requires_grad]

    def run(self, step: int, batches: list[PreparedBatch]) -> Metrics:
        """Make a step, counted from 0; return its metrics, on the device."""
        recipe = self._setup.recipe
        loss, metrics = self.compute_gradients(step, batches)
        factor = learning_rate_factor(recipe.schedule, step, self._setup.steps, recipe.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        if recipe.clip is not None:
            metrics["gradient_norm"] = nn.utils.clip_grad_norm_(self.parameters.values(), recipe.clip)
        self._update(loss)
        return {"loss": loss, "learning_rate": recipe.learning_rate * factor, **metrics}

    def compute_gradients(self, step: int, batches: list[PreparedBatch]) -> tuple[Tensor, Metrics]:
        """Compute the gradients of the weighted sum of the losses; return that sum and the objectives' metrics."""
        setup = self._setup
        metrics: Metrics = {}
        total = torch.zeros((), device=self._device)
        self._clear_gradients()
        for group in self._groups_of(batches):

            def seed_chunk(chunk: int, number: int = group[0]) -> None:
                seed_all(_mix_seed(setup.recipe.seed, step, number, chunk, setup.processes.rank), self._device)

            parts, own = [setup.parts[number] for number in group], [batches[number] for number in group]
            with torch.autocast(self._device.type, torch.bfloat16, enabled=self._bf16):
                if isinstance(parts[0].objective, TokenObjective):
                    losses = [(value, Metrics()) for value in self._token_pass.run(parts, own, seed_chunk)]
                else:
                    losses = self._whole_batch_losses(parts, own, seed_chunk)
            for part, (value, own_metrics) in zip(parts, losses, strict=True):
                total = total + part.weight * value
                if len(setup.parts) > 1:
                    metrics[f"loss.{part.name}"] = value
                metrics |= {f"{part.name}.{name}": metric for name, metric in own_metrics.items()}
        setup.processes.average_gradients(self.parameters.values())
        return total, metrics

    def _clear_gradients(self) -> None:
        """Remove all gradients; those that CUDA graphs add to are set to zero instead.

        The optimiser leaves parameters without a gradient as they are, such as heads that a step does not use.
        """
        fixed = {value: value.grad for value in self._fixed if value.grad is not None}
        self.optimizer.zero_grad(set_to_none=True)
        if fixed:
            torch._foreach_zero_(list(fixed.values()))
        for value, gradient in fixed.items():
            value.grad = gradient

    def _groups_of(self, batches: Sequence[PreparedBatch]) -> Iterator[list[int]]:
        """Yield the numbers of objectives that are encoded together; pooled ones only if they fit one pass."""
        for group in self._groups:
            tokens = sum(len(batches[number].sequences.tokens) for number in group)
            if isinstance(self._setup.parts[group[0]].objective, PooledObjective) and tokens > self._budget:
                yield from ([number] for number in group)
            else:
                yield group

    def _whole_batch_losses(
        self, parts: Sequence["TrainedObjective"], batches: Sequence[PreparedBatch], seed_chunk: SeedChunk
    ) -> list[tuple[Tensor, Metrics]]:
        """Compute the losses and gradients of objectives whose losses see their whole batches."""
        device = self._device
        inputs = [
            {name: _to_device(torch.as_tensor(values), device) for name, values in batch.inputs.items()}
            for batch in batches
        ]
        for number, vectors in self._teacher_vectors(parts, batches).items():
            inputs[number]["teacher"] = vectors
        rows: Rows = "states" if isinstance(parts[0].objective, StatesObjective) else "vectors"
        counts = [len(batch.sequences.tokens if rows == "states" else batch.sequences) for batch in batches]
        losses: list[tuple[Tensor, Metrics]] = []

        def compute_loss(encoded: Tensor) -> Tensor:
            weighted = []
            with torch.autocast(device.type, enabled=False):  # which would round cosines
                for part, batch, own, given in zip(parts, batches, encoded.float().split(counts), inputs, strict=True):
                    if isinstance(part.objective, StatesObjective):
                        lengths = to_device(torch.from_numpy(batch.sequences.lengths), device)
                        value, metrics = part.objective.loss(BatchStates(own, lengths), given, part.heads)
                    else:
                        assert isinstance(part.objective, PooledObjective)
                        value, metrics = part.objective.loss(own.unflatten(0, (-1, batch.rows)), given, part.heads)
                    weighted.append(value * part.weight)
                    # detached: a metric must not keep the graph of the loss
                    losses.append((value.detach(), {name: _detach(metric) for name, metric in metrics.items()}))
            return weighted[0] if len(weighted) == 1 else torch.stack(weighted).sum()

        if self._batch_pass.run(batches, rows, compute_loss, seed_chunk):
            for _, metrics in losses:
                metrics["cached"] = 1.0
        return losses

    def _teacher_vectors(
        self, parts: Sequence["TrainedObjective"], batches: Sequence[PreparedBatch]
    ) -> dict[int, Tensor]:
        """Return the vectors (columns, rows, hidden) of the teachers, by number of the part; each teacher runs once."""
        numbers: dict[TrainableEncoder, list[int]] = {}
        for number, part in enumerate(parts):
            if part.teacher is not None:
                numbers.setdefault(part.teacher, []).append(number)
        vectors = {}
        for teacher, own in numbers.items():
            encoded = self._teacher_pass(teacher).encode([batches[number] for number in own]).float()
            split = encoded.split([len(batches[number].sequences) for number in own])
            for number, part_vectors in zip(own, split, strict=True):
                vectors[number] = part_vectors.unflatten(0, (-1, batches[number].rows))
        return vectors

    def _update(self, loss: Tensor) -> None:
        """Change the weights, unless the loss is or was not a number."""
        self._diverged |= ~torch.isfinite(loss)
        if self._device.type == "cuda":
            # checked on the GPU by the fused optimiser, as for torch's GradScaler
            self.optimizer.found_inf = self._diverged.float()  # type: ignore[attr-defined]
        elif self._diverged:
            return
        self.optimizer.step()

    def finish(self) -> None:
        """Free the memory that only training needs."""
        self._setup.encoder.backbone.release_graphs()
        for value in self.parameters.values():
            value.grad = None

    @torch.no_grad()
    def use_average(self) -> None:
        """Replace the parameters by those to save, which are mixed with the starting weights."""
        for name, value in self._start.items():
            self.parameters[name].lerp_(value, self._setup.recipe.start_fraction)

    @contextlib.contextmanager
    def averaged_parameters(self) -> Iterator[None]:
        """Use the parameters to save within a block."""
        saved = {name: self.parameters[name].detach().clone() for name in self._start}
        self.use_average()
        with torch.no_grad():
            yield
            for name, value in saved.items():
                self.parameters[name].copy_(value)


def _trained_parameters(setup: "TrainingSetup") -> dict[str, nn.Parameter]:
    """Freeze what the recipe freezes, and return the rest by name."""
    recipe, backbone = setup.recipe, setup.encoder.backbone
    if recipe.frozen_embeddings:
        for parameter in backbone.embeddings().parameters():
            parameter.requires_grad_(False)
    frozen = backbone.layers // 2 if recipe.frozen_layers == "half" else recipe.frozen_layers
    if frozen > backbone.layers:
        raise TrainingError(f"frozen_layers must be at most {backbone.layers}, the backbone's layers; got {frozen}")
    for layer in backbone.layer_list()[:frozen]:
        layer.requires_grad_(False)
    parameters = {f"{_ENCODER}{name}": value for name, value in setup.encoder.named_parameters() if value.requires_grad}
    owners: dict[nn.Module, TrainedObjective] = {}  # of heads, which objectives of one task share
    for part in setup.parts:
        owners.setdefault(part.heads, part)
    for part in owners.values():
        parameters |= {f"heads.{part.name}.{name}": value for name, value in part.heads.named_parameters()}
    return parameters


def _make_optimizer(setup: "TrainingSetup", parameters: dict[str, nn.Parameter]) -> torch.optim.Optimizer:
    recipe = setup.recipe
    members: dict[tuple[str, bool], list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        objective = name.split(".")[1] if name.startswith("heads.") else ""
        members.setdefault((objective, parameter.dim() > 1), []).append(parameter)
    groups = []
    for (objective, is_matrix), group in members.items():
        rate = recipe.head_learning_rate_of(objective) if objective else recipe.learning_rate
        decay = recipe.weight_decay if is_matrix else 0.0
        groups.append({"params": group, "lr": rate, "peak": rate, "weight_decay": decay})
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, fused=setup.processes.device.type == "cuda")


def _group_objectives(parts: Sequence["TrainedObjective"]) -> list[list[int]]:
    """Group the numbers of objectives that may be encoded together: those on tokens, and those on vectors."""
    groups: list[list[int]] = []
    together: dict[type[Objective], list[int]] = {}
    for number, part in enumerate(parts):
        kind = TokenObjective if isinstance(part.objective, TokenObjective) else PooledObjective
        replaces = isinstance(part.objective, TokenObjective) and part.objective.replaces_tokens
        if replaces or not isinstance(part.objective, kind):
            groups.append([number])
            continue
        if kind not in together:
            groups.append(together.setdefault(kind, []))
        together[kind].append(number)
    return groups


def _to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device, except single numbers: reading them there would wait for the GPU."""
    return to_device(tensor, device) if tensor.dim() else tensor


def _detach(metric: Tensor | float) -> Tensor | float:
    return metric.detach() if isinstance(metric, Tensor) else metric


# ---- forward and backward passes


def sorted_chunks(batch: PreparedBatch, members: Members, budget: int) -> list[Members]:
    """Sort sequences by length and cut them into chunks of at most `budget` tokens."""
    lengths = batch.sequences.lengths[members]
    order = members[np.argsort(lengths, kind="stable")]
    return [order[first:last] for first, last in token_batches(np.sort(lengths), budget)]


def _make_stream(batch: PreparedBatch, members: Members) -> TokenStream:
    segments = None if batch.segments is None else batch.segments.take(members)
    return TokenStream.of(batch.sequences.take(members), segments)


class _Pass:
    def __init__(self, encoder: TrainableEncoder, budget: int, rank: int = 0, world: int = 1):
        self._encoder = encoder
        self._budget = budget
        self._rank = rank
        self._world = world


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
        layout, batch = RowLayout.of(batches, rows, self._world), _join(batches)
        members = layout.members[self._rank]
        parts = sorted_chunks(batch, members, self._budget)
        if self._all_processes(len(parts) <= 1):
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
            gradient = leaf.grad[torch.as_tensor(layout.rows_of(part), device=leaf.device)] * self._world
            encoded.backward(gradient.to(encoded.dtype))
            del encoded  # the next chunk may be captured as a CUDA graph, which no other graph may share nodes with
        return True

    @torch.no_grad()
    def encode(self, batches: Sequence[PreparedBatch]) -> Tensor:
        """Return the vectors of all sequences, without a gradient."""
        layout, batch = RowLayout.of(batches, "vectors", self._world), _join(batches)
        parts = sorted_chunks(batch, layout.members[self._rank], self._budget)
        return self._gather(self._encode_chunks(batch, "vectors", parts, layout, lambda _: None), layout)

    def _encode(self, batch: PreparedBatch, rows: Rows, members: Members) -> Tensor:
        """Return the rows of some sequences, which may be none if there are more processes than sequences."""
        if not len(members):
            # with a gradient: this process has to take part in gathering the gradients
            return torch.zeros(0, self._encoder.hidden, device=self._encoder.backbone.device, requires_grad=True)
        stream = _make_stream(batch, members)
        if rows == "states":
            return stream.restore_tokens(self._encoder.backbone(stream))
        vectors: Tensor = self._encoder(stream)
        return vectors

    def _encode_chunks(
        self, batch: PreparedBatch, rows: Rows, parts: list[Members], layout: "RowLayout", seed_chunk: SeedChunk
    ) -> Tensor:
        """Return the rows of this process's sequences, in their order, encoded chunk by chunk."""
        if not parts:
            return self._encode(batch, rows, layout.members[self._rank])
        pieces = []
        for number, part in enumerate(parts):
            seed_chunk(number)
            pieces.append(self._encode(batch, rows, part))
        restored = np.argsort(layout.rows_of(np.concatenate(parts)))
        return torch.cat(pieces)[torch.as_tensor(restored, device=pieces[0].device)]

    def _all_processes(self, fits: bool) -> bool:
        """Return whether the sequences of every process fit one pass: all processes must take the same path."""
        if self._world == 1:
            return fits
        all_fit = torch.tensor(int(fits), device=self._encoder.backbone.device)
        dist.all_reduce(all_fit, dist.ReduceOp.MIN)
        return bool(all_fit)

    def _gather(self, own: Tensor, layout: "RowLayout") -> Tensor:
        """Gather the rows of all processes, in the order in which they were prepared."""
        if self._world == 1:
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
            [np.array_split(np.flatnonzero(owners == owner), self._world)[self._rank] for owner in range(len(parts))]
        )
        items = [max(1, int(weights[owners == owner].sum())) for owner in range(len(parts))]
        values = torch.zeros(len(parts), device=self._encoder.backbone.device)
        for number, chunk in enumerate(sorted_chunks(joined, own, self._budget)):
            if not weights[chunk].any():
                continue
            seed_chunk(number)
            sums = self._loss_sums(parts, batches, _make_stream(joined, chunk), owners[chunk], numbers[chunk])
            means = {owner: loss / items[owner] for owner, loss in sums.items()}
            # gradients are averaged over the processes, but each has a part of the sum
            torch.stack([mean * (parts[owner].weight * self._world) for owner, mean in means.items()]).sum().backward()
            for owner, mean in means.items():
                values[owner] += mean.detach()
            del sums, means, mean  # as in `BatchPass.run`
        if self._world > 1:
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
        backbone = self._encoder.backbone
        embeddings = backbone.model.get_input_embeddings()
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
            np.zeros(len(batch.sequences.tokens), np.int32) if batch.segments is None else batch.segments.tokens
            for batch in batches
        ]
        segments = RaggedTokens(np.concatenate(parts), sequences.lengths)
    own_weights = [batch.weights for batch in batches if batch.weights is not None]
    weights = np.concatenate(own_weights) if own_weights else None
    return PreparedBatch(sequences, sum(batch.rows for batch in batches), segments=segments, weights=weights)


# ---- learning rate, random numbers, device


def learning_rate_factor(schedule: Schedule, step: int, steps: int, warmup: float = 0.0) -> float:
    """Return the factor of the learning rate at a step, counted from 0.

    'linear' and 'cosine' decay to 0; 'one-cycle' rises and falls by cosines, as PyTorch's OneCycleLR. `warmup` is the
    fraction of the steps in which the rate rises; for 'one-cycle' 0 means 0.3.
    """
    if schedule == "one-cycle":
        rise = (warmup or _ONE_CYCLE_RISE) * steps - 1
        if step <= rise:
            return _cosine(_ONE_CYCLE_START, 1.0, step / rise if rise > 0 else 1.0)
        return _cosine(1.0, _ONE_CYCLE_END, (step - rise) / max(1e-9, steps - 1 - rise))
    rising = math.ceil(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    if schedule == "constant":
        return 1.0
    fraction = (step - rising) / max(1, steps - rising)
    return 1 - fraction if schedule == "linear" else _cosine(1.0, 0.0, fraction)


def _cosine(start: float, end: float, fraction: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * min(1.0, fraction)))


def seed_all(seed: int, device: torch.device) -> None:
    """Seed the CPU and a device.

    `torch.manual_seed` seeds every kind of device that PyTorch supports, and stores the call with its stack trace for
    those that are not available: half a millisecond per step, and memory.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _mix_seed(*numbers: int) -> int:
    """Derive a seed from several numbers so that neighbouring numbers have unrelated seeds."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * 6364136223846793005 + number * 1442695040888963407 + 1) % (1 << 63)
    return mixed


def _uses_bf16(precision: Precision) -> bool:
    if precision == "auto":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return precision == "bf16"


def _compiles(compiling: Switch, device: torch.device, steps: int) -> bool:
    """Whether to compile the backbone; the length of the whole run counts, so that a resumed run does as before."""
    if compiling == "auto":
        return device.type == "cuda" and steps >= _LONG_RUN
    return compiling


def _uses_graphs(setting: Switch, backbone: Backbone, world: int) -> bool:
    """Whether to replay the backbone as CUDA graphs; 'auto': small models, where the host is the limit."""
    supported = backbone.supports_graphs and world == 1
    if setting == "auto":
        return supported and backbone.hidden <= _SMALL_MODEL
    if setting and not supported:
        raise TrainingError(
            "cuda_graphs=true needs one process, a CUDA GPU with Triton, and a backbone that runs unpadded: set it to"
            " false or auto"
        )
    return setting


def token_budget(backbone: Backbone, device: torch.device) -> int:
    """Estimate how many tokens can be encoded at once: by free memory on a GPU, else within 2 GB."""
    per_token = backbone.layers * backbone.hidden * _ACTIVATION_BYTES
    free = torch.cuda.mem_get_info(device)[0] * 0.6 if device.type == "cuda" else 2e9
    return max(1024, int(free / per_token))
