"""One training step: forward and backward passes of all objectives, then an update of the weights.

`passes` encodes the batches. Random numbers depend on (seed, step) alone.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from turnwise.core.errors import TrainingError
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.stream import to_device
from turnwise.objectives.objective import (
    BatchStates,
    Metrics,
    Objective,
    PooledObjective,
    PreparedBatch,
    StatesObjective,
    TokenObjective,
)
from turnwise.training.passes import BatchPass, Rows, SeedChunk, TokenPass
from turnwise.training.recipe import Schedule

if TYPE_CHECKING:
    from turnwise.training.setup import TrainedObjective, TrainingSetup

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
        supported = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        self._bf16 = setup.recipe.precision == "bf16" or (setup.recipe.precision == "auto" and supported)
        self._groups = _group_objectives(setup.parts)
        #: Everything that is trained, by name.
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
        setup, recipe, backbone = self._setup, self._setup.recipe, self._setup.encoder.backbone
        world, is_cuda = setup.processes.world, self._device.type == "cuda"
        # by the length of the whole run, so that a resumed run does as before
        if recipe.compile is True or (recipe.compile == "auto" and is_cuda and setup.steps >= _LONG_RUN):
            backbone.compile()
        supported = backbone.supports_graphs and world == 1
        is_small = supported and backbone.hidden <= _SMALL_MODEL
        uses_graphs = is_small if recipe.cuda_graphs == "auto" else recipe.cuda_graphs
        if uses_graphs and not supported:
            raise TrainingError(
                "cuda_graphs=true needs one process, a CUDA GPU with Triton, and a backbone that runs unpadded: set it"
                " to false or auto"
            )
        if uses_graphs:
            backbone.use_graphs()
            self.keep_gradients()
            for teacher in {part.teacher.encoder for part in setup.parts if part.teacher is not None}:
                if teacher.backbone.supports_graphs:
                    teacher.backbone.use_graphs(training=False)
        budget = recipe.tokens_per_forward or token_budget(backbone, self._device)
        if world > 1:  # all processes must encode the same objectives together
            agreed = torch.tensor(budget, device=self._device)
            dist.all_reduce(agreed, dist.ReduceOp.MIN)
            budget = int(agreed)
        self._budget = budget
        settings = (budget, setup.processes.rank, world)
        self._batch_pass = BatchPass(setup.encoder, *settings)
        self._token_pass = TokenPass(setup.encoder, *settings)
        self._teacher_passes = {
            part.name: BatchPass(part.teacher.encoder, *settings) for part in setup.parts if part.teacher is not None
        }

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
        inputs = []
        for part, batch in zip(parts, batches, strict=True):
            tensors = {name: torch.as_tensor(values) for name, values in batch.inputs.items()}
            # except single numbers: reading them from a GPU would wait for it
            inputs.append({name: to_device(value, device) if value.dim() else value for name, value in tensors.items()})
            if part.teacher is not None:
                vectors = self._teacher_passes[part.name].encode([part.teacher.translate(batch)]).float()
                inputs[-1]["teacher"] = vectors.unflatten(0, (-1, batch.rows))
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
                    losses.append((value.detach(), metrics))
            return weighted[0] if len(weighted) == 1 else torch.stack(weighted).sum()

        if self._batch_pass.run(batches, rows, compute_loss, seed_chunk):
            for _, metrics in losses:
                metrics["cached"] = 1.0
        return losses

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
    groups: dict[type[Objective] | int, list[int]] = {}
    for number, part in enumerate(parts):
        objective = part.objective
        kind = next((kind for kind in (TokenObjective, PooledObjective) if isinstance(objective, kind)), None)
        alone = kind is None or (isinstance(objective, TokenObjective) and objective.replaces_tokens)
        groups.setdefault(number if alone or kind is None else kind, []).append(number)
    return list(groups.values())


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
    """Seed the CPU and a device; `torch.manual_seed` takes half a millisecond, and memory, for all kinds of devices."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _mix_seed(*numbers: int) -> int:
    """Derive a seed from several numbers so that neighbouring numbers have unrelated seeds."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * 6364136223846793005 + number * 1442695040888963407 + 1) % (1 << 63)
    return mixed


def token_budget(backbone: Backbone, device: torch.device) -> int:
    """Estimate how many tokens can be encoded at once: by free memory on a GPU, else within 2 GB."""
    per_token = backbone.layers * backbone.hidden * _ACTIVATION_BYTES
    free = torch.cuda.mem_get_info(device)[0] * 0.6 if device.type == "cuda" else 2e9
    return max(1024, int(free / per_token))
