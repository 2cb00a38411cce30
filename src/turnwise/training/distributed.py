"""Several processes that train one model: agreement, averaged gradients, and detection of a lost process.

A process that was started alone is a job of one. Gradients use the process group that the launcher set up (NCCL on
GPUs, gloo on CPUs). There are two more gloo groups: one for agreements, which may wait as long as a process works, and
one for heartbeats, which a thread of every process sends every second. A process that is killed, stuck or cut off
misses a heartbeat.
"""

import contextlib
import hashlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Self

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch import nn

from turnwise.core.errors import TrainingError, TurnwiseError

#: Default seconds without a heartbeat after which a process counts as lost.
PROCESS_TIMEOUT = 600.0

#: An agreement may wait for work that takes days: heartbeats tell whether the other processes are alive.
_AGREEMENT_TIMEOUT = timedelta(days=365)

#: Seconds that an error or a signal waits for the heartbeats to tell whether a lost process caused it.
_CAUSE_TIMEOUT = 5.0

_HEARTBEAT_SECONDS = 1.0

#: Seconds that the main thread has, once a process is lost, to end by itself: it may be blocked by a GPU.
_GRACE_SECONDS = 5.0


class Processes:
    """The processes of this job, of which this is one; a context manager for whose end all wait.

    An error inside it ends the job. A process counts as lost after `process_timeout` seconds without a heartbeat.
    """

    def __init__(self, process_timeout: float = PROCESS_TIMEOUT):
        if process_timeout <= 0:
            raise TrainingError(f"process_timeout must be positive, got {process_timeout:g}")
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta(seconds=process_timeout))
        self.rank: int = state.process_index
        self.world: int = state.num_processes
        self.device: torch.device = state.device
        #: Describes how far the run is and how to resume it, for the message that a process was lost.
        self.describe_position: Callable[[], str] = lambda: (
            "during the set-up of the run; resume with the same command and --resume"
        )
        self._timeout = process_timeout
        self._agreements: dist.ProcessGroup | None = None
        self._heartbeat: Heartbeat | None = None
        self._previous_handler: Callable[[int, FrameType | None], object] | int | None = None

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files, evaluates and reports progress."""
        return self.rank == 0

    def __enter__(self) -> Self:
        if self.world > 1:
            self._agreements = dist.new_group(backend="gloo", timeout=_AGREEMENT_TIMEOUT)
            group = dist.new_group(backend="gloo", timeout=timedelta(seconds=self._timeout))
            self._heartbeat = Heartbeat(group, self._lost_message)
            with contextlib.suppress(ValueError):  # not the main thread, which handles signals
                self._previous_handler = signal.signal(signal.SIGTERM, self._handle_sigterm)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._heartbeat is None:
            return
        if error is None:
            self._heartbeat.finish()
            dist.destroy_process_group(self._agreements)
            if self._previous_handler is not None:
                signal.signal(signal.SIGTERM, self._previous_handler)
            return
        # SIGTERM stays ignored: a launcher sends it when one process ends, and this one still has to report why
        lost = isinstance(error, RuntimeError) and self._heartbeat.is_process_lost(_CAUSE_TIMEOUT)
        self._heartbeat.leave()
        if lost:
            raise TrainingError(self._lost_message()) from error

    def _lost_message(self) -> str:
        return (
            f"a process was lost {self.describe_position()}. It was killed, failed, or sent no heartbeat for"
            f" {self._timeout:g} seconds: see its own last message or the launcher's report"
        )

    def _handle_sigterm(self, number: int, frame: FrameType | None) -> None:
        """Terminate, unless another process is lost, which made the launcher send the signal."""
        assert self._heartbeat is not None
        if self._heartbeat.ended.is_set() or self._heartbeat.is_process_lost(_CAUSE_TIMEOUT):
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    # ---- agreement

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Run a block in all processes, and wait until all have finished it.

        An error in one process is raised in all of them. The block must not communicate between processes.
        """
        failure = None
        try:
            yield
        except Exception as error:
            failure = error
        self._raise_in_all(failure)

    @contextlib.contextmanager
    def main_first(self) -> Iterator[None]:
        """Like `together`, but the other processes start when the main process is done, and find its files."""
        if not self.main:
            self._raise_in_all(None)
        with self.together():
            yield
        if self.main:
            self._raise_in_all(None)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process; all processes must call it."""
        if self.world == 1:
            return flag
        result = torch.tensor(int(flag))
        dist.all_reduce(result, dist.ReduceOp.MAX, group=self._agreements)
        return bool(result)

    def expect_equal(self, values: Mapping[str, bytes]) -> None:
        """Raise TrainingError in all processes if a named value differs between processes."""
        if self.world == 1:
            return
        hashes: list[dict[str, str]] = [{}] * self.world
        own = {name: hashlib.sha256(value).hexdigest() for name, value in values.items()}
        dist.all_gather_object(hashes, own, group=self._agreements)
        for rank, other in enumerate(hashes):
            for name, expected in hashes[0].items():
                if other[name] != expected:
                    raise TrainingError(
                        f"process {rank} has {name} other than process 0: use the same command on every machine, and"
                        " keep --out, the stores and the backbone where all machines find the same files"
                    )

    def _raise_in_all(self, failure: Exception | None) -> None:
        """Wait for all processes and raise the failure of any."""
        messages: list[str | None] = [None] * self.world
        if self.world > 1:
            text = str(failure) if isinstance(failure, TurnwiseError) else f"{type(failure).__name__}: {failure}"
            dist.all_gather_object(messages, None if failure is None else text, group=self._agreements)
        if failure is not None:
            raise failure
        for rank, message in enumerate(messages):
            if message is not None:
                raise TrainingError(f"process {rank} stopped: {message}")

    # ---- gradients

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace gradients by their mean over the processes, in one flat tensor."""
        if self.world == 1:
            return
        candidates = list(parameters)
        # a process without examples lacks gradients that others have; an unused head has none anywhere
        has_gradient = torch.tensor([value.grad is not None for value in candidates]).int()
        dist.all_reduce(has_gradient, dist.ReduceOp.MAX, group=self._agreements)
        used = [value for value, needed in zip(candidates, has_gradient.tolist(), strict=True) if needed]
        flat = torch.cat([(torch.zeros_like(value) if value.grad is None else value.grad).flatten() for value in used])
        dist.all_reduce(flat)
        flat /= self.world
        for value, part in zip(used, flat.split([value.numel() for value in used]), strict=True):
            value.grad = part.view_as(value)


class Heartbeat:
    """A thread that exchanges heartbeats with the other processes, and prints `message()` if the main thread cannot."""

    def __init__(self, group: dist.ProcessGroup, message: Callable[[], str]):
        self._group = group
        self._message = message
        self._left = False
        self._wake = threading.Event()
        self._process_lost = threading.Event()
        #: Whether this process has finished its work or left it.
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def is_process_lost(self, seconds: float) -> bool:
        """Return whether a process is lost; wait up to some seconds to find out."""
        self._wake.set()
        return self._process_lost.wait(seconds)

    def finish(self) -> None:
        """Announce that this process is done and wait until all are; losing a process after that does not matter."""
        self.ended.set()
        self._wake.set()
        self._thread.join()
        dist.destroy_process_group(self._group)

    def leave(self) -> None:
        """Announce that this process ends before its work is done, without waiting long for the others to hear it."""
        self._left = True
        self.ended.set()
        self._wake.set()
        self._thread.join(_HEARTBEAT_SECONDS)

    def _run(self) -> None:
        while True:
            flags = torch.tensor([self._left, not self.ended.is_set()]).int()
            try:
                dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._group)
            except RuntimeError:  # the connection is closed, or a heartbeat did not come in time
                break
            left, working = flags.tolist()
            if left:
                break
            if not working:
                return
            self._wake.wait(_HEARTBEAT_SECONDS)
        self._process_lost.set()
        if not self.ended.wait(_GRACE_SECONDS):
            # an exception does not reach a main thread that is blocked by a GPU waiting for the lost process
            os.write(2, f"error: {self._message()}\n".encode())
            os._exit(1)


def is_main_process() -> bool:
    """Return whether this process writes and reports; with several processes, valid once they are connected."""
    return not dist.is_initialized() or dist.get_rank() == 0
