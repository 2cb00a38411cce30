"""Whether the other processes of a job still live: a thread of each gives a sign every second, and misses those of the others."""

import os
import threading
from collections.abc import Callable
from enum import Enum, auto

import torch
import torch.distributed as dist

#: Seconds between two signs.
_BEAT = 1.0

#: Seconds that the main thread has, once somebody is missed, to notice and end by itself: it may be held by a GPU that waits.
_GRACE = 5.0


class _State(Enum):
    WORKING = auto()
    DONE = auto()
    LEFT = auto()


class Watch:
    """The thread that gives and awaits signs of life.

    Args:
        group: the processes, by gloo; its timeout is how long a sign is awaited.
        message: what to say where the main thread cannot.
    """

    def __init__(self, group: dist.ProcessGroup, message: Callable[[], str]):
        self._group = group
        self._message = message
        self._state = _State.WORKING
        self._woken = threading.Event()
        self._missing = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether this process has done its work or left it."""
        return self._over.is_set()

    def misses_somebody(self, seconds: float) -> bool:
        """Whether a process is lost, or is found to be within some seconds."""
        self._woken.set()
        return self._missing.wait(seconds)

    def finish(self) -> None:
        """Says that this process is done, and waits until all are; one that is lost after that is no loss."""
        self._end(_State.DONE)
        self._thread.join()
        dist.destroy_process_group(self._group)

    def leave(self) -> None:
        """Says that this process goes before its work is done; whether the others hear it is not waited for long."""
        self._end(_State.LEFT)
        self._thread.join(_BEAT)

    def _end(self, state: _State) -> None:
        self._state = state
        self._over.set()
        self._woken.set()

    def _run(self) -> None:
        while True:
            signs = torch.tensor([self._state is _State.LEFT, self._state is _State.WORKING]).int()
            try:
                dist.all_reduce(signs, dist.ReduceOp.MAX, group=self._group)
            except RuntimeError:  # the connection is closed, or no sign came in time
                break
            left, working = signs.tolist()
            if left:
                break
            if not working:
                return
            self._woken.wait(_BEAT)
        self._missing.set()
        if not self._over.wait(_GRACE):
            # no exception reaches a thread that waits in a GPU's queue for somebody who is gone
            os.write(2, f"error: {self._message()}\n".encode())
            os._exit(1)
