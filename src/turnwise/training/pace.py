"""What a step came to, and how fast steps go, without waiting for a GPU."""

import time

import torch

from turnwise.objectives.objective import Figures, Prepared
from turnwise.training.machine import peak_memory


class Reading:
    """The figures of a step on their way from the device.

    Args:
        step: which one, counted from 1.
        figures: by name; tensors are of one number, on one device.
        batches: what the step learnt from.
    """

    def __init__(self, step: int, figures: Figures, batches: list[Prepared]):
        self.step = step
        self.batches = batches
        self._known = {name: figure for name, figure in figures.items() if not isinstance(figure, torch.Tensor)}
        tensors = {name: figure for name, figure in figures.items() if isinstance(figure, torch.Tensor)}
        self._names = list(figures)
        self._coming = list(tensors)
        numbers = torch.stack([figure.detach().double() for figure in tensors.values()])
        self._numbers = numbers.to("cpu", non_blocking=True)
        self._arrived: torch.cuda.Event | None = None
        if numbers.device.type == "cuda":
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def figures(self) -> dict[str, float]:
        """The figures, once the step is done."""
        if self._arrived is not None:
            self._arrived.synchronize()
        found = self._known | dict(zip(self._coming, self._numbers.tolist(), strict=True))
        return {name: found[name] for name in self._names}


class Pace:
    """How many examples and tokens go by, from one log entry to the next."""

    def __init__(self, device: torch.device):
        self._device = device
        self._begin()

    def _begin(self) -> None:
        self._start = time.perf_counter()
        self._examples = self._tokens = 0

    def count(self, batches: list[Prepared]) -> None:
        """Adds a step."""
        self._examples += sum(prepared.rows for prepared in batches)
        self._tokens += sum(int(prepared.sequences.lengths.sum()) for prepared in batches)

    def figures(self, batches: list[Prepared]) -> dict[str, float]:
        """The figures since the last ones, of which `batches` are the latest step's."""
        seconds = time.perf_counter() - self._start
        found = {
            "examples_per_second": self._examples / seconds,
            "tokens_per_second": self._tokens / seconds,
            "padding_avoided": _padding(batches),
            "memory_gigabytes": peak_memory(self._device),
        }
        self._begin()
        return found


def _padding(batches: list[Prepared]) -> float:
    """The share of tokens that padding to the longest of the batch would have added."""
    padded = real = 0
    for prepared in batches:
        lengths = prepared.sequences.lengths
        padded += int(lengths.max()) * len(lengths)
        real += int(lengths.sum())
    return 1 - real / padded
