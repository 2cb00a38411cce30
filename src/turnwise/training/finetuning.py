"""Fine-tuning: fit an encoder and a head to a few labelled inputs, with a validation set for early stopping.

A small loop for many short runs: nothing waits for the device between two validations. Random numbers depend on (seed,
step) alone, so equal seeds give equal runs.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.core.errors import TrainingError
from turnwise.models.backbone.ragged import Tokens, token_batches
from turnwise.models.backbone.stream import TokenStream
from turnwise.models.trainable_encoder import TrainableEncoder, default_batch_tokens
from turnwise.training.step import learning_rate_factor, seed_all

#: The loss of a batch, given the head's outputs (sequences per example, examples, size) and the examples' numbers
#: (examples,).
BatchLoss = Callable[[Tensor, Tensor], Tensor]

#: Computes the validation score of an encoder and its head; higher is better.
ValidationScore = Callable[[TrainableEncoder, nn.Module], float]


@dataclass(frozen=True, slots=True)
class FineTuningSettings:
    """Hyper-parameters of fine-tuning."""

    epochs: int
    batch_size: int
    learning_rate: float  # at its peak; it rises over the warm-up and then decays to 0, both linearly
    evaluate_every: int  # steps between two validations
    #: Validations without improvement after which a run stops; several validations of an epoch count as one. A score
    #: that equals the best is no improvement.
    patience: int
    max_length: int  # tokens of an input
    dropout: float = 0.0  # before the head's layer; the encoder keeps its own on hidden states
    attention_dropout: float | None = 0.0  # of the encoder; None: its own. 0 allows the fastest kernel on a GPU
    warmup: float = 0.05  # fraction of the steps in which the learning rate rises
    steps: int | None = None  # limit of the steps; None: no limit


@dataclass(frozen=True, slots=True)
class FineTuningResult:
    """The outcome of a run."""

    score: float  # the best on the validation set; without a validation set, the number of steps
    best: int  # the step after which it was measured; 0: before the first
    steps: int  # how many steps were made


class WeightSnapshot:
    """A copy of the weights of modules that can be restored."""

    def __init__(self, *modules: nn.Module):
        live = (value.detach() for module in modules for value in (*module.parameters(), *module.buffers()))
        self._pairs = [(value, value.clone()) for value in live]

    def update(self) -> None:
        """Replace the copy by the present weights."""
        for live, saved in self._pairs:
            saved.copy_(live)

    def restore(self) -> None:
        """Copy the saved weights back into the modules."""
        for live, saved in self._pairs:
            live.copy_(saved)


def linear_head(hidden: int, outputs: int, dropout: float, seed: int) -> nn.Module:
    """Create dropout and a linear layer, initialised as transformers does."""
    layer = nn.Linear(hidden, outputs)
    nn.init.normal_(layer.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Dropout(dropout), layer)


def fine_tune(
    encoder: TrainableEncoder,
    head: nn.Module,
    examples: Sequence[Sequence[Tokens]],
    loss: BatchLoss,
    *,
    settings: FineTuningSettings,
    score: ValidationScore | None,
    seed: int,
) -> FineTuningResult:
    """Fit an encoder and a head in place; they end with the weights of the best validation, in evaluation mode.

    AdamW without weight decay, in bf16 on a GPU that supports it. The first validation comes before the first step and
    the last after the last, so that the result is never worse on the validation set than the input. Without a
    validation set all steps are made, and the last weights stay.

    Args:
        encoder: is changed.
        head: maps vectors (…, hidden) to what the loss takes; on the encoder's device.
        examples: the token sequences of each example; all examples have as many sequences.
        loss: computes the loss of a batch.
        settings: hyper-parameters.
        score: on the validation set; called without gradients, in evaluation mode. None: there is no validation set.
        seed: of the order of examples and of dropout.

    Raises:
        TrainingError: if there are no examples, or the loss or a score is not a number.
    """
    if not examples:
        raise TrainingError("there are no examples to fine-tune on: the training set is empty")
    encoder.backbone.set_dropout(None, settings.attention_dropout)
    device = encoder.backbone.device
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.0, fused=True)
    steps_per_epoch = math.ceil(len(examples) / settings.batch_size)
    steps = settings.epochs * steps_per_epoch
    last = min(steps, settings.steps or steps)
    patience_steps = settings.patience * max(settings.evaluate_every, steps_per_epoch)
    # without a validation set the latest weights are the best
    validate: Callable[[int], float] = float if score is None else lambda step: _validate(score, encoder, head)
    result = FineTuningResult(validate(0), 0, 0)
    best = WeightSnapshot(encoder, head)
    total = torch.zeros((), device=device)
    batches = _batches(len(examples), settings.batch_size, seed)
    for step in range(1, last + 1):
        factor = learning_rate_factor("linear", step - 1, steps, settings.warmup)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * factor
        seed_all(int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0]), device)
        encoder.train()
        head.train()
        rows = next(batches)
        columns = zip(*(examples[row] for row in rows), strict=True)
        stream = TokenStream.of([sequence for column in columns for sequence in column])
        with _autocast(device):
            outputs = head(encoder(stream)).unflatten(0, (-1, len(rows)))
        value = loss(outputs.float(), torch.tensor(rows).to(device, non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()
        total += value.detach()
        if step % settings.evaluate_every and step < last:
            continue
        if not math.isfinite(total):
            raise TrainingError(f"the loss of fine-tuning is {total:g} by step {step}: try a smaller learning rate")
        scored = validate(step)
        result = replace(result, steps=step)
        if scored > result.score:
            result = FineTuningResult(scored, step, step)
            best.update()
        elif step - result.best > patience_steps:
            break
    best.restore()
    encoder.eval()
    head.eval()
    return result


def compute_outputs(encoder: TrainableEncoder, head: nn.Module, sequences: Sequence[Tokens]) -> Tensor:
    """Return a head's outputs (sequences, size), float32, without gradients and in evaluation mode."""
    order = np.argsort([len(sequence) for sequence in sequences], kind="stable")
    lengths = [len(sequences[index]) for index in order]
    budget = default_batch_tokens(encoder.backbone)
    encoder.eval()
    head.eval()
    with torch.inference_mode():
        pieces = [
            head(encoder(TokenStream.of([sequences[index] for index in order[first:last]]))).float()
            for first, last in token_batches(lengths, budget)
        ]
        outputs = torch.cat(pieces)
        return outputs[torch.from_numpy(np.argsort(order)).to(outputs.device)]


def _validate(score: ValidationScore, encoder: TrainableEncoder, head: nn.Module) -> float:
    encoder.eval()
    head.eval()
    with torch.inference_mode(), _autocast(encoder.backbone.device):
        value = score(encoder, head)
    if math.isnan(value):
        raise TrainingError("the validation score is not a number: the validation set may be empty")
    return value


def _autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda" and torch.cuda.is_bf16_supported())


def _batches(examples: int, size: int, seed: int) -> Iterator[list[int]]:
    """Iterate over batches without end; every epoch has its own order, and its last batch may be smaller."""
    for epoch in itertools.count():
        order = np.random.default_rng([seed, epoch]).permutation(examples).tolist()
        yield from (order[first : first + size] for first in range(0, examples, size))
