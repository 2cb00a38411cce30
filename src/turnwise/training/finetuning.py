"""Fine-tuning: an encoder and a head fitted to a few labelled inputs, with a validation set to stop by.

A small loop for many short runs: everything is tokenised once, nothing waits for the device between two validations, and the
weights of the best validation are put back at the end. Chance is drawn anew for every step from (seed, step), so that equal seeds
give equal runs.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from turnwise.models.backbone.ragged import Tokens
from turnwise.models.backbone.stream import TokenStream, chunks
from turnwise.models.encoder import BATCH_TOKENS, Encoder
from turnwise.training.errors import TrainingError
from turnwise.training.machine import seed_all
from turnwise.training.schedule import learning_rate_factor

#: The loss of a batch: of what the head says (sequences of an example, examples, size), and of which examples (examples,).
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

#: How good an encoder and its head are on the validation set; higher is better.
Score = Callable[[Encoder, nn.Module], float]


@dataclass(frozen=True, slots=True)
class FineTuning:
    """How an encoder is fine-tuned.

    Attributes:
        epochs: how often each example is seen.
        batch_size: examples a step.
        learning_rate: at its peak; it rises over the warm-up and then falls to 0, both linearly.
        evaluate_every: steps between two validations.
        patience: validations without improvement after which a run stops; where there are several an epoch, they count as one. A
            validation that only equals the best is no improvement.
        max_length: tokens of an input.
        dropout: before the head's layer; the encoder keeps its own on hidden states.
        attention_dropout: on the encoder's attention weights; None: its own. 0 lets the fastest kernel run on a GPU, which makes
            steps several times as fast where lengths differ.
        warmup: share of the steps in which the learning rate rises.
        steps: a run's steps at most, for trials; None: all that the epochs have.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    evaluate_every: int
    patience: int
    max_length: int
    dropout: float = 0.0
    attention_dropout: float | None = 0.0
    warmup: float = 0.05
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """What a run came to.

    Attributes:
        score: the best on the validation set; where there is none, the number of steps.
        best: the step after which it was seen; 0: before the first.
        steps: how many were made.
    """

    score: float
    best: int
    steps: int


class Weights:
    """A copy of what modules have learnt, to be put back later."""

    def __init__(self, *modules: nn.Module):
        self._live = [
            value.detach() for module in modules for value in itertools.chain(module.parameters(), module.buffers())
        ]
        self._kept = [value.clone() for value in self._live]

    def keep(self) -> None:
        """Takes the copy anew."""
        for kept, live in zip(self._kept, self._live, strict=True):
            kept.copy_(live)

    def restore(self) -> None:
        """Puts the copy back in place."""
        for kept, live in zip(self._kept, self._live, strict=True):
            live.copy_(kept)


def linear_head(hidden: int, outputs: int, dropout: float, seed: int) -> nn.Module:
    """Dropout and a linear layer, initialised as transformers does its own."""
    layer = nn.Linear(hidden, outputs)
    nn.init.normal_(layer.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Dropout(dropout), layer)


def fine_tune(
    encoder: Encoder,
    head: nn.Module,
    examples: Sequence[Sequence[Tokens]],
    loss: Loss,
    *,
    settings: FineTuning,
    score: Score | None,
    seed: int,
) -> Fit:
    """Fits an encoder and a head in place; they end with the weights of the best validation, ready to be measured.

    AdamW without weight decay, in bf16 on a GPU that has it. The first validation comes before the first step, the last after the
    last, so that the result is never worse on the validation set than what came in. Without a validation set all steps are made,
    and the last weights stay.

    Args:
        encoder: to be fitted; a copy, if it is to be kept.
        head: maps vectors (…, hidden) to what the loss takes; on the encoder's device.
        examples: the token sequences of each example: one, or as many for every one of them.
        loss: of a batch.
        settings: how.
        score: on the validation set; called without gradients, in evaluation mode. None: there is no validation set.
        seed: of the order of examples and of dropout.

    Raises:
        TrainingError: if there is nothing to learn from, or the loss or a score is not a number.
    """
    if not examples:
        raise TrainingError("there are no examples to fine-tune on: the training set is empty")
    encoder.backbone.set_dropout(None, settings.attention_dropout)
    device = encoder.backbone.device
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.0, fused=True)
    per_epoch = math.ceil(len(examples) / settings.batch_size)
    steps = settings.epochs * per_epoch
    last = min(steps, settings.steps or steps)
    tolerated = settings.patience * max(settings.evaluate_every, per_epoch)
    # without a validation set the latest weights are the best
    validate: Callable[[int], float] = float if score is None else lambda step: _score(score, encoder, head)
    fit = Fit(validate(0), 0, 0)
    best = Weights(encoder, head)
    total = torch.zeros((), device=device)
    batches = _batches(len(examples), settings.batch_size, seed)
    for step in range(1, last + 1):
        factor = learning_rate_factor("linear", step - 1, steps, settings.warmup)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * factor
        seed_all(_seed(seed, step), device)
        total += _step(encoder, head, examples, next(batches), loss, optimizer)
        if step % settings.evaluate_every and step < last:
            continue
        if not math.isfinite(float(total)):
            raise TrainingError(
                f"the loss of fine-tuning is {float(total)} by step {step}: try a smaller learning rate"
            )
        found = validate(step)
        fit = Fit(fit.score, fit.best, step)
        if found > fit.score:
            fit = Fit(found, step, step)
            best.keep()
        elif step - fit.best > tolerated:
            break
    best.restore()
    encoder.eval()
    head.eval()
    return fit


def outputs(encoder: Encoder, head: nn.Module, sequences: Sequence[Tokens]) -> torch.Tensor:
    """What a head says of sequences (sequences, size), float32, without gradients and in evaluation mode."""
    order = np.argsort([len(sequence) for sequence in sequences], kind="stable")
    lengths = [len(sequences[index]) for index in order]
    budget = BATCH_TOKENS.get(encoder.backbone.device.type, BATCH_TOKENS["cuda"])
    encoder.eval()
    head.eval()
    with torch.inference_mode():
        pieces = [
            head(encoder(TokenStream.of([sequences[index] for index in order[first:behind]]))).float()
            for first, behind in chunks(lengths, budget)
        ]
        found = torch.cat(pieces)
        return found[torch.from_numpy(np.argsort(order)).to(found.device)]


def _step(
    encoder: Encoder,
    head: nn.Module,
    examples: Sequence[Sequence[Tokens]],
    rows: list[int],
    loss: Loss,
    optimizer: torch.optim.Optimizer,
) -> torch.Tensor:
    """One step of the optimiser; gives the loss, still on the device."""
    device = encoder.backbone.device
    encoder.train()
    head.train()
    columns = zip(*(examples[row] for row in rows), strict=True)
    stream = TokenStream.of([sequence for column in columns for sequence in column])
    with _half(device):
        said = head(encoder(stream)).unflatten(0, (-1, len(rows)))
    value = loss(said.float(), torch.tensor(rows).to(device, non_blocking=True))
    optimizer.zero_grad(set_to_none=True)
    value.backward()
    optimizer.step()
    return value.detach()


def _score(score: Score, encoder: Encoder, head: nn.Module) -> float:
    encoder.eval()
    head.eval()
    with torch.inference_mode(), _half(encoder.backbone.device):
        found = score(encoder, head)
    if math.isnan(found):
        raise TrainingError("the score of a validation is not a number: the validation set may be empty")
    return found


def _half(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda" and torch.cuda.is_bf16_supported())


def _batches(examples: int, size: int, seed: int) -> Iterator[list[int]]:
    """Batches without end: every epoch in an order of its own, its last batch with what is left."""
    for epoch in itertools.count():
        order = np.random.default_rng([seed, epoch]).permutation(examples).tolist()
        yield from (order[first : first + size] for first in range(0, examples, size))


def _seed(*numbers: int) -> int:
    """A seed from several numbers, so that neighbours do not share one."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
