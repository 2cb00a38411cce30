"""The machine that a run is on: its precision, how much it holds, and who asks it to stop."""

import contextlib
import resource
import signal
from collections.abc import Callable, Iterator
from types import FrameType

import torch

from turnwise.models.backbone.backbone import Backbone
from turnwise.training.recipe import Compile, Precision

#: Bytes of activations that a token costs per layer and hidden unit, in float32; measured on BERT, generously.
_ACTIVATION_BYTES = 150


#: Steps from which on it pays to compile: a BERT-base takes about a minute of it, and gains some 15 milliseconds a step.
_LONG_RUN = 4_000


def half_precision(precision: Precision) -> bool:
    """Whether to compute in bf16."""
    if precision == "auto":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return precision == "bf16"


def compiles(compiling: Compile, device: torch.device, steps: int) -> bool:
    """Whether to compile the backbone.

    It is the length of the whole run that counts, not what is left of it: a resumed run goes on as it began.
    """
    if compiling == "auto":
        return device.type == "cuda" and steps >= _LONG_RUN
    return compiling


def seed_all(seed: int, device: torch.device) -> None:
    """What `torch.manual_seed` does, for the devices of a run.

    That one turns to every kind of device that PyTorch knows, and for those that are not there it notes the call with its stack
    trace, in case they come: half a millisecond a step, and a note.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def token_budget(backbone: Backbone, device: torch.device) -> int:
    """How many tokens can be encoded at once with their activations kept: from free memory on a GPU, else within 2 GB."""
    per_token = backbone.layers * backbone.hidden * _ACTIVATION_BYTES
    free = torch.cuda.mem_get_info(device)[0] * 0.6 if device.type == "cuda" else 2e9
    return max(1024, int(free / per_token))


def peak_memory(device: torch.device) -> float:
    """The most gigabytes that were taken so far: of the GPU, or by the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


@contextlib.contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """Turns Ctrl-C and SIGTERM into a question that a loop asks between steps; a second Ctrl-C stops at once."""
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever owns it handles signals
        before = {}
    try:
        yield lambda: bool(asked)
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
