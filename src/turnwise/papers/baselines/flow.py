"""BERT-flow (Li et al. 2020): an invertible network, fitted by maximum likelihood, that maps vectors to a Gaussian.

The network is Glow for vectors: steps of actnorm, a permutation and a coupling. As in the authors' configuration there
are nine steps (three levels of three), permutations are random and fixed, couplings are additive with networks of width
32, Adam's learning rate is 1e-3, and training makes one pass over the texts. Unlike theirs, all dimensions go through
all steps: nothing is split off between levels.
"""

from collections.abc import Sequence
from math import log, pi
from typing import Any

import torch
from torch import nn

from turnwise.core.errors import ModelError
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.papers.baselines.whitening import Postprocessor, encode_for_fitting, hash_arrays

#: Number of steps of actnorm, permutation and coupling, and hidden size of the couplings' networks.
STEPS = 9
WIDTH = 32

#: Standard deviations below this fraction of the largest count as the largest, so that a constant is not amplified.
MIN_RELATIVE_STD = 1e-4

#: Number of vectors that initialise actnorm.
INITIALISATION_SIZE = 8_192

#: Number of vectors that go through the flow at once.
BATCH_SIZE = 8_192


class FlowStep(nn.Module):
    """Actnorm, a fixed random permutation of the dimensions, and an additive coupling, which initially is the identity.

    Actnorm shifts and scales every dimension, initially such that the data have mean 0 and standard deviation 1. The
    data's statistics are separate from the learned parameters, so that a learning rate has the same effect for vectors
    of any magnitude. The coupling shifts the second half of the dimensions by a small network of the first.
    """

    mean: torch.Tensor
    std: torch.Tensor
    order: torch.Tensor

    def __init__(self, size: int, width: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))
        self.shift = nn.Parameter(torch.zeros(size))
        self.log_scale = nn.Parameter(torch.zeros(size))
        self.register_buffer("order", torch.randperm(size))
        self.halves = (size // 2, size - size // 2)
        last = nn.Linear(width, self.halves[1])
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.network = nn.Sequential(
            nn.Linear(self.halves[0], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), last
        )

    def initialise(self, vectors: torch.Tensor) -> None:
        """Set the statistics from the data (vectors, size)."""
        std = vectors.std(0)
        self.mean.copy_(vectors.mean(0))
        # a dimension that hardly varies stays small: otherwise every later shift of it would be amplified, step by step
        self.std.copy_(torch.where(std > MIN_RELATIVE_STD * std.max(), std, std.max()))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Map (vectors, size) to the same shape, and return log|det|, which is the same for all vectors."""
        z = (x - self.mean) / self.std * self.log_scale.exp() + self.shift
        first, second = z[:, self.order].split(self.halves, dim=1)
        return torch.cat([first, second + self.network(first)], dim=1), (self.log_scale - self.std.log()).sum()


class Flow(nn.Module):
    """An invertible map between vectors of equal size whose output should follow a standard Gaussian."""

    def __init__(self, size: int, *, steps: int = STEPS, width: int = WIDTH):
        super().__init__()
        if size < 2:
            raise ModelError(f"a flow needs vectors of at least 2 dimensions, got {size}")
        self.steps = nn.ModuleList([FlowStep(size, width) for _ in range(steps)])

    @torch.no_grad()
    def initialise(self, vectors: torch.Tensor) -> None:
        """Initialise every actnorm from the data (vectors, size) that reach it."""
        for step in self.steps:
            step.initialise(vectors)  # type: ignore[operator]  # modules of a list have no type
            vectors, _ = step(vectors)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Map (vectors, size) to z of the same shape, and return log|det ∂z/∂x| (vectors,)."""
        total = x.new_zeros(len(x))
        for step in self.steps:
            x, part = step(x)
            total = total + part
        return x, total

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean negative log-likelihood of vectors, in nats per dimension."""
        z, log_determinant = self(x)
        likelihood = log_determinant - (z.square() + log(2 * pi)).sum(1) / 2
        loss: torch.Tensor = -likelihood.mean() / x.shape[1]
        return loss


def fit_flow(
    flow: Flow, vectors: torch.Tensor, *, epochs: int, batch_size: int, learning_rate: float, seed: int
) -> None:
    """Initialise a flow on vectors (vectors, size) and train it by maximum likelihood with Adam."""
    random = torch.Generator().manual_seed(seed)
    flow.initialise(vectors[torch.randperm(len(vectors), generator=random)[:INITIALISATION_SIZE]])
    optimiser = torch.optim.Adam(flow.parameters(), learning_rate)
    for epoch in range(epochs):
        for rows in torch.randperm(len(vectors), generator=random).split(batch_size):
            loss = flow.loss(vectors[rows])
            if not loss.isfinite():
                raise ModelError(f"the flow's likelihood is not finite in epoch {epoch + 1}: lower its learning rate")
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


class FlowPostprocessor(Postprocessor):
    """An encoder whose vectors go through a flow, on the CPU: it is too small to gain from a GPU."""

    def __init__(
        self,
        encoder: SupportsEncode,
        texts: Sequence[Any],
        *,
        epochs: int = 1,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ):
        """Fit the flow on the vectors of texts, such as those of a training corpus; small sets need several epochs.

        The seed is that of weights, permutations and the order of vectors; torch's global random state stays unchanged.
        """
        super().__init__(encoder)
        self._settings = (
            f"{STEPS} steps, additive couplings {WIDTH} wide, {epochs} epochs of batches of {batch_size},"
            f" learning rate {learning_rate:g}, seed {seed}"
        )
        vectors = torch.from_numpy(encode_for_fitting(encoder, texts))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.flow = Flow(vectors.shape[1])
        fit_flow(self.flow, vectors, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, seed=seed)
        self.flow.requires_grad_(False)

    @property
    def description(self) -> str:
        """Everything that determines the vectors besides the wrapped encoder."""
        parameters = hash_arrays(*(value.numpy() for value in self.flow.state_dict().values()))
        return f"flow, {self._settings}, parameters {parameters}"

    def transform(self, vectors: Vectors) -> Vectors:
        """Send vectors (inputs, size) through the flow, in place."""
        with torch.inference_mode():
            for batch in torch.from_numpy(vectors).split(BATCH_SIZE):
                batch.copy_(self.flow(batch)[0])
        return vectors
