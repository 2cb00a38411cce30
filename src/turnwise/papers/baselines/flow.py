"""BERT-flow (Li et al. 2020): an invertible network, fitted by maximum likelihood, that makes vectors a standard Gaussian.

The network is Glow's for vectors: steps of actnorm, a permutation and a coupling. As in the authors' configuration there are
nine steps (three levels of three), permutations are random and fixed, couplings are additive with networks 32 wide, Adam's
learning rate is 1e-3, and one pass is made over the texts. Unlike theirs, all numbers go through all steps: nothing is split off
between levels.
"""

from collections.abc import Sequence
from math import log, pi
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import nn

from turnwise.core.types import SupportsEncode
from turnwise.papers.baselines.vectors import PostprocessingError, Vectors, digest, fitting_vectors, unit

Coupling = Literal["additive", "affine"]

#: Spreads below this part of the largest one count as the largest: a number that never varies must not be blown up.
FLOOR = 1e-4

#: Vectors that actnorm is initialised on, and vectors that go through the flow at once.
INITIALISED = 8_192
AT_ONCE = 8_192


class ActNorm(nn.Module):
    """Shifts and scales every number; at first such that the data have mean 0 and spread 1.

    What was measured of the data is kept apart from what is learned from there: so a learning rate means the same whatever the
    size of an encoder's numbers.
    """

    centre: torch.Tensor
    spread: torch.Tensor

    def __init__(self, size: int):
        super().__init__()
        self.register_buffer("centre", torch.zeros(size))
        self.register_buffer("spread", torch.ones(size))
        self.shift = nn.Parameter(torch.zeros(size))
        self.log_scale = nn.Parameter(torch.zeros(size))

    def initialise(self, vectors: torch.Tensor) -> None:
        """Measures the data (vectors, size)."""
        spread = vectors.std(0)
        self.centre.copy_(vectors.mean(0))
        # a number that hardly varies is left small: blown up, the next shift it gets would be blown up with it, step after step
        largest = spread.max()
        self.spread.copy_(torch.where(spread > FLOOR * largest, spread, largest))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(vectors, size) → the same shape, and log|det| (vectors,)."""
        z = (x - self.centre) / self.spread * self.log_scale.exp() + self.shift
        return z, (self.log_scale - self.spread.log()).sum().expand(len(x))

    def inverse(self, z: torch.Tensor) -> torch.Tensor:
        """What `forward` made z of."""
        return (z - self.shift) * (-self.log_scale).exp() * self.spread + self.centre


class Permutation(nn.Module):
    """A random order of the numbers, drawn once."""

    order: torch.Tensor

    def __init__(self, size: int):
        super().__init__()
        self.register_buffer("order", torch.randperm(size))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(vectors, size) → the same shape, and log|det|, which is 0."""
        return x[:, self.order], x.new_zeros(len(x))

    def inverse(self, z: torch.Tensor) -> torch.Tensor:
        """What `forward` made z of."""
        return z[:, self.order.argsort()]


class CouplingLayer(nn.Module):
    """Changes the second half of the numbers by what a small network makes of the first; at first not at all.

    Additive: the second half is shifted. Affine: it is scaled too, by a factor between 1/e and e.
    """

    def __init__(self, size: int, width: int, coupling: Coupling):
        super().__init__()
        self.coupling = coupling
        self.halves = (size // 2, size - size // 2)
        outputs = self.halves[1] * (2 if coupling == "affine" else 1)
        last = nn.Linear(width, outputs)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.network = nn.Sequential(
            nn.Linear(self.halves[0], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), last
        )

    def _shift(self, first: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the first half asks of the second: its shift and the logarithm of its scale."""
        asked = self.network(first)
        if self.coupling == "additive":
            return asked, torch.zeros_like(asked)
        shift, raw = asked.chunk(2, dim=1)
        return shift, raw.tanh()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(vectors, size) → the same shape, and log|det| (vectors,)."""
        first, second = x.split(self.halves, dim=1)
        shift, log_scale = self._shift(first)
        return torch.cat([first, second * log_scale.exp() + shift], dim=1), log_scale.sum(1)

    def inverse(self, z: torch.Tensor) -> torch.Tensor:
        """What `forward` made z of."""
        first, second = z.split(self.halves, dim=1)
        shift, log_scale = self._shift(first)
        return torch.cat([first, (second - shift) * (-log_scale).exp()], dim=1)


class Flow(nn.Module):
    """An invertible map from vectors to vectors of the same size whose distribution is to be a standard Gaussian."""

    def __init__(self, size: int, *, steps: int = 9, width: int = 32, coupling: Coupling = "additive"):
        """Makes the network, with weights from torch's random numbers.

        Args:
            size: of the vectors, at least 2.
            steps: of actnorm, permutation and coupling.
            width: of the couplings' networks.
            coupling: 'additive', as Li et al. have it, or 'affine', as Glow has it.
        """
        super().__init__()
        if size < 2:
            raise PostprocessingError(f"a flow needs vectors of at least 2 numbers, not {size}")
        made = [(ActNorm(size), Permutation(size), CouplingLayer(size, width, coupling)) for _ in range(steps)]
        self.layers = nn.ModuleList([layer for step in made for layer in step])

    @torch.no_grad()
    def initialise(self, vectors: torch.Tensor) -> None:
        """Sets every actnorm by the data (vectors, size) that reach it."""
        for layer in self.layers:
            if isinstance(layer, ActNorm):
                layer.initialise(vectors)
            vectors, _ = layer(vectors)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Vectors (vectors, size) → z of the same shape, and the logarithm of |det ∂z/∂x| (vectors,)."""
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, part = layer(x)
            total = total + part
        return x, total

    def inverse(self, z: torch.Tensor) -> torch.Tensor:
        """The vectors that `forward` maps to z."""
        for layer in reversed(self.layers):
            z = cast("ActNorm | Permutation | CouplingLayer", layer).inverse(z)
        return z

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """The negative log-likelihood of vectors, in nats a number; the mean over the vectors."""
        z, log_determinant = self(x)
        likelihood = log_determinant - (z.square() + log(2 * pi)).sum(1) / 2
        loss: torch.Tensor = -likelihood.mean() / x.shape[1]
        return loss


def fit(flow: Flow, vectors: torch.Tensor, *, epochs: int, batch_size: int, learning_rate: float, seed: int) -> None:
    """Initialises a flow on vectors (vectors, size) and trains it by maximum likelihood with Adam.

    Raises:
        PostprocessingError: if the likelihood stops being a number.
    """
    random = torch.Generator().manual_seed(seed)
    flow.initialise(vectors[torch.randperm(len(vectors), generator=random)[:INITIALISED]])
    optimiser = torch.optim.Adam(flow.parameters(), learning_rate)
    for epoch in range(epochs):
        for rows in torch.randperm(len(vectors), generator=random).split(batch_size):
            loss = flow.loss(vectors[rows])
            if not loss.isfinite():
                raise PostprocessingError(
                    f"the flow's likelihood is not finite in epoch {epoch + 1}: lower its learning rate"
                )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


class Flowed:
    """An encoder whose vectors go through a flow that was fitted on the vectors, not normalised, of some texts.

    The encoder itself is left as it is. The flow runs on the CPU: one this small has little to gain from a GPU.

    Attributes:
        encoder: the one that is wrapped.
        flow: the fitted flow.
    """

    def __init__(
        self,
        encoder: SupportsEncode,
        texts: Sequence[Any],
        *,
        steps: int = 9,
        width: int = 32,
        coupling: Coupling = "additive",
        epochs: int = 1,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        seed: int = 0,
        max_length: int | None = None,
    ):
        """Fits the flow.

        Args:
            encoder: gives the vectors.
            texts: what the flow is fitted on, such as the training texts of a data set.
            steps: of the flow.
            width: of its couplings' networks.
            coupling: 'additive' or 'affine'.
            epochs: passes over the texts; small sets need more than one.
            batch_size: vectors of a training step.
            learning_rate: of Adam.
            seed: of weights, permutations and the order of vectors; torch's own random numbers are left alone.
            max_length: where the texts are cut, as for `encode`.

        Raises:
            PostprocessingError: if the texts' vectors cannot be fitted on.
        """
        self.encoder = encoder
        self._settings = (
            f"{steps} steps, {coupling} couplings {width} wide, {epochs} epochs of batches of {batch_size},"
            f" learning rate {learning_rate:g}, seed {seed}"
        )
        vectors = torch.from_numpy(fitting_vectors(encoder, texts, max_length))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.flow = Flow(vectors.shape[1], steps=steps, width=width, coupling=coupling)
        fit(self.flow, vectors, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, seed=seed)
        self.flow.requires_grad_(False)

    @property
    def description(self) -> str:
        """All that determines the vectors besides the encoder that is wrapped."""
        parameters = digest(*(value.numpy() for value in self.flow.state_dict().values()))
        return f"flow, {self._settings}, parameters {parameters}"

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Vectors (inputs, size) behind the flow, of length 1 only where `normalise` is true."""
        vectors = np.array(self.encoder.encode(inputs, normalise=False, max_length=max_length), np.float32)
        with torch.inference_mode():
            for part in torch.from_numpy(vectors).split(AT_ONCE):
                part.copy_(self.flow(part)[0])
        return unit(vectors) if normalise else vectors
