"""Post-processing of an encoder's vectors: whitening and a normalising flow.

Whitening (Su et al. 2021) gives vectors zero mean and identity covariance. BERT-flow (Li et al. 2020) is an invertible
network, fitted by maximum likelihood, that maps vectors to a Gaussian: Glow for vectors, with steps of actnorm, a
permutation and a coupling. As in the authors' configuration there are nine steps (three levels of three), permutations
are random and fixed, couplings are additive with networks of width 32, Adam's learning rate is 1e-3, and training makes
one pass over the texts. Unlike theirs, all dimensions go through all steps: nothing is split off between levels.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import log, pi
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from turnwise.core.errors import ModelError
from turnwise.core.types import SupportsEncode, Vectors, normalise_vectors

#: Directions whose variance is below this fraction of the largest are rounding noise, which scaling would amplify.
MIN_RELATIVE_VARIANCE = 1e-10

#: Number of steps of actnorm, permutation and coupling, and hidden size of the couplings' networks.
STEPS = 9
WIDTH = 32

#: Training of a flow.
EPOCHS = 1
TRAINING_BATCH = 32
LEARNING_RATE = 1e-3

#: Standard deviations below this fraction of the largest count as the largest, so that a constant is not amplified.
MIN_RELATIVE_STD = 1e-4

BATCH_SIZE = 8_192  # number of vectors that initialise actnorm, and that go through the flow at once


class Postprocessor(ABC):
    """An encoder whose vectors go through a map that was fitted on the vectors of some texts, not normalised."""

    description: str  # everything that determines the vectors besides the wrapped encoder

    def __init__(self, encoder: SupportsEncode):
        self.encoder = encoder

    @abstractmethod
    def transform(self, vectors: Vectors) -> Vectors:
        """Map vectors (inputs, size), which may be overwritten, to (inputs, dimensions)."""

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Return post-processed vectors (inputs, dimensions), of length 1 only if `normalise` is true."""
        vectors = np.array(self.encoder.encode(inputs, normalise=False, max_length=max_length), np.float32)
        vectors = self.transform(vectors)
        return normalise_vectors(vectors) if normalise else vectors


class WhiteningPostprocessor(Postprocessor):
    """An encoder whose vectors are whitened: x → (x − μ)W with W = U Λ^{−1/2}.

    μ is the mean and U Λ Uᵀ the covariance of the vectors of some texts; directions are ordered by decreasing variance.
    Directions without variance are dropped, so there are at most as many dimensions as the texts vary in: one less than
    the number of texts, if those are few.
    """

    def __init__(self, encoder: SupportsEncode, texts: Sequence[Any]):
        """Fit mean and covariance on texts, such as those of a training corpus."""
        super().__init__(encoder)
        # in double precision: single precision would show for vectors that vary little far from zero, as BERT's do
        vectors = encode_for_fitting(encoder, texts).astype(np.float64)
        self.mean: npt.NDArray[np.float64] = vectors.mean(0)
        vectors -= self.mean
        variances, directions = np.linalg.eigh(vectors.T @ vectors / (len(vectors) - 1))
        variances, directions = variances[::-1], directions[:, ::-1]
        varying = int((variances > MIN_RELATIVE_VARIANCE * variances[0]).sum())
        #: W (size, dimensions).
        self.kernel: npt.NDArray[np.float64] = directions[:, :varying] / np.sqrt(variances[:varying])
        self.description = f"whitening, {varying} dimensions, statistics {hash_arrays(self.mean, self.kernel)}"

    def transform(self, vectors: Vectors) -> Vectors:
        """Whiten vectors (inputs, size)."""
        whitened: Vectors = ((vectors - self.mean) @ self.kernel).astype(np.float32)
        return whitened


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
    flow: Flow,
    vectors: torch.Tensor,
    *,
    epochs: int = EPOCHS,
    batch_size: int = TRAINING_BATCH,
    learning_rate: float = LEARNING_RATE,
) -> None:
    """Initialise a flow on vectors (vectors, size) and train it by maximum likelihood with Adam."""
    random = torch.Generator().manual_seed(0)
    flow.initialise(vectors[torch.randperm(len(vectors), generator=random)[:BATCH_SIZE]])
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

    def __init__(self, encoder: SupportsEncode, texts: Sequence[Any]):
        """Fit the flow on the vectors of texts, such as those of a training corpus, by a generator of its own."""
        super().__init__(encoder)
        vectors = torch.from_numpy(encode_for_fitting(encoder, texts))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.flow = Flow(vectors.shape[1])
        fit_flow(self.flow, vectors)
        self.flow.requires_grad_(False)
        self.description = (
            f"flow, {STEPS} steps, additive couplings {WIDTH} wide, {EPOCHS} epochs of batches of {TRAINING_BATCH},"
            f" learning rate {LEARNING_RATE:g}, seed 0, parameters "
            + hash_arrays(*(value.numpy() for value in self.flow.state_dict().values()))
        )

    def transform(self, vectors: Vectors) -> Vectors:
        """Send vectors (inputs, size) through the flow, in place."""
        with torch.inference_mode():
            for batch in torch.from_numpy(vectors).split(BATCH_SIZE):
                batch.copy_(self.flow(batch)[0])
        return vectors


def encode_for_fitting(encoder: SupportsEncode, texts: Sequence[Any]) -> Vectors:
    """Return vectors (texts, size), not normalised; raises ModelError for fewer than two, not finite or equal ones."""
    if len(texts) < 2:
        raise ModelError(f"{len(texts)} texts are too few to fit on: give at least two, better some thousands")
    vectors = np.asarray(encoder.encode(texts, normalise=False), np.float32)
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])
        raise ModelError(f"the vector of text {row} is not finite: check the encoder")
    if (vectors == vectors[0]).all():
        raise ModelError(f"all {len(texts)} texts have the same vector: there is nothing to fit")
    return vectors


def hash_arrays(*arrays: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of arrays: shapes, types and contents."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
