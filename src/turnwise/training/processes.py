"""Several processes that train one model together: what they agree on, who writes, and what happens when one is lost.

`torchrun` or `accelerate launch` starts a job's processes; one that was started alone is a job of one, and nothing here costs it
anything. Gradients go over the group that the launcher set up (NCCL on GPUs, gloo on CPUs). Two small gloo groups stand beside it:
one for agreements, in which a process may be waited for as long as it works (the first one tokenises a corpus, measures), and one
in which a thread of every process gives a sign of life every second. Whoever is killed, stuck or cut off is missed there, by all.
"""

import contextlib
import hashlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Self

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch import nn

from turnwise.core.errors import TurnwiseError
from turnwise.training.errors import ProcessLostError, TrainingError
from turnwise.training.watch import Watch

#: Seconds without a sign of life after which a process counts as lost, unless the user says otherwise.
LONGEST_WAIT = 600.0

#: An agreement may wait for work that takes days: whether the others still live is watched elsewhere.
_AGREEMENT = timedelta(days=365)

#: Bytes of an error's message that the other processes are told.
_MESSAGE = 2000

#: Seconds that an error, or a signal, waits for the watch to tell whether a lost process is the reason of it.
_VERDICT = 5.0


class Processes:
    """The processes of this job, of which this is one.

    Work that needs the others is done inside of `with`: its end is awaited by all, and an error inside of it ends the job.

    Args:
        longest_wait: seconds without a sign of life after which a process counts as lost. The processes' first meeting decides for
            the exchange of gradients.
    """

    def __init__(self, longest_wait: float = LONGEST_WAIT):
        if longest_wait <= 0:
            raise TrainingError(f"longest_wait={longest_wait:g}: the processes need some seconds to answer each other")
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta(seconds=longest_wait))
        self.rank: int = state.process_index
        self.world: int = state.num_processes
        self.device: torch.device = state.device
        #: Says how far the work is and how to go on, for the message that a process was lost.
        self.whereabouts: Callable[[], str] = _setting_up
        self._longest_wait = longest_wait
        self._agreements: dist.ProcessGroup | None = None
        self._watch: Watch | None = None
        self._terminate: Callable[[int, FrameType | None], object] | int | None = None

    @property
    def main(self) -> bool:
        """Whether this is the one that writes, measures and is watched."""
        return self.rank == 0

    def __enter__(self) -> Self:
        if self.world > 1:
            self._agreements = dist.new_group(backend="gloo", timeout=_AGREEMENT)
            signs = dist.new_group(backend="gloo", timeout=timedelta(seconds=self._longest_wait))
            self._watch = Watch(signs, self._lost)
            with contextlib.suppress(ValueError):  # not the main thread: whoever owns it handles signals
                self._terminate = signal.signal(signal.SIGTERM, self._terminated)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is None:
            return
        if error is None:
            self._watch.finish()
            dist.destroy_process_group(self._agreements)
            if self._terminate is not None:
                signal.signal(signal.SIGTERM, self._terminate)
            return
        # from here on SIGTERM is left unheard: a launcher sends it as soon as one process ends, and this one has to say why it ends
        lost = isinstance(error, RuntimeError) and self._watch.misses_somebody(_VERDICT)
        self._watch.leave()
        if lost:
            raise ProcessLostError(self._lost()) from error
        if isinstance(error, RuntimeError) and "timed out" in str(error).lower():
            raise ProcessLostError(
                f"a process lives, but has not answered for {self._longest_wait:g} seconds {self.whereabouts()}"
            ) from error

    def _lost(self) -> str:
        return (
            f"a process was lost {self.whereabouts()}. It was killed, met an error, or gave no sign of life for"
            f" {self._longest_wait:g} seconds: its own last words, or the launcher's report, say which"
        )

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        """Ends as asked, unless that is asked because another process is lost: the message of that is on its way."""
        assert self._watch is not None
        if self._watch.over or self._watch.misses_somebody(_VERDICT):
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    # ---- agreement

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Something that all do, or the main process alone: it is over when all have come to its end.

        An error that one process meets inside of it is raised in all of them. Nothing may be exchanged inside of it.
        """
        failure = None
        try:
            yield
        except Exception as error:
            failure = error
        self._settle(failure)

    @contextlib.contextmanager
    def main_first(self) -> Iterator[None]:
        """Like `together`, but the others begin when the main process is done: they find what it has left for them."""
        failure = None
        if not self.main:
            self._settle(None)
        try:
            yield
        except Exception as error:
            failure = error
        if self.main:
            self._settle(failure)
        self._settle(failure)

    def any(self, flag: bool) -> bool:
        """Whether one of the processes says so; all must ask."""
        if self.world == 1:
            return flag
        found = torch.tensor(int(flag))
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self._agreements)
        return bool(found)

    def expect_equal(self, facts: Mapping[str, bytes]) -> None:
        """Makes sure that all processes are about to do the same.

        Raises:
            TrainingError: in all of them, if a fact (by its name) is another one in one of them.
        """
        if self.world == 1:
            return
        own = torch.tensor([list(hashlib.sha256(fact).digest()) for fact in facts.values()], dtype=torch.uint8)
        found = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(found, own, group=self._agreements)
        for rank, theirs in enumerate(found):
            for name, here, there in zip(facts, found[0], theirs, strict=True):
                if not torch.equal(here, there):
                    raise TrainingError(
                        f"process {rank} has {name} other than process 0: give the same command on every machine, and keep --out,"
                        " the stores and the backbone where all machines find the same files"
                    )

    def _settle(self, failure: Exception | None) -> None:
        """Waits for all; raises what one of them has met."""
        if self.world == 1:
            if failure is not None:
                raise failure
            return
        first = torch.tensor(self.world if failure is None else self.rank)
        dist.all_reduce(first, dist.ReduceOp.MIN, group=self._agreements)
        rank = int(first)
        if rank == self.world:
            return
        message = torch.zeros(_MESSAGE, dtype=torch.uint8)
        if failure is not None:
            said = str(failure) if isinstance(failure, TurnwiseError) else f"{type(failure).__name__}: {failure}"
            content = said.encode()[:_MESSAGE]
            message[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        dist.broadcast(message, rank, group=self._agreements)
        if failure is not None:
            raise failure
        told = bytes(message.tolist()).rstrip(bytes(1)).decode(errors="ignore")
        raise TrainingError(f"process {rank} stopped: {told}")

    # ---- gradients

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """The mean over the processes, in one flat tensor."""
        if self.world == 1:
            return
        known = list(parameters)
        # a process without an example has no gradient where others have one; a head that nobody used has none anywhere
        anywhere = torch.tensor([value.grad is not None for value in known]).int()
        dist.all_reduce(anywhere, dist.ReduceOp.MAX, group=self._agreements)
        used = [value for value, wanted in zip(known, anywhere.tolist(), strict=True) if wanted]
        flat = torch.cat([(torch.zeros_like(value) if value.grad is None else value.grad).flatten() for value in used])
        dist.all_reduce(flat)
        flat /= self.world
        for value, part in zip(used, flat.split([value.numel() for value in used]), strict=True):
            value.grad = part.view_as(value)


def writes() -> bool:
    """Whether this process is the one that writes and reports, once it has met the others, if there are any."""
    return not dist.is_initialized() or dist.get_rank() == 0


def _setting_up() -> str:
    return "while the run was being set up; go on with the same command and --resume"
