"""Dynamic batching: what many requests want encoded at the same time shares forward passes.

One thread of a batcher has the encoder for itself. While a pass runs, requests gather; then the next pass takes from all of them,
each its share of a budget of tokens, so that a request of one text does not wait behind a request of a thousand. Nothing is
delayed to gather more: a request that comes alone is encoded at once.
"""

import asyncio
import concurrent.futures
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Turn

#: Token ids as they are, or what `Encoder.sequences` takes.
Item = str | tuple[Turn, ...] | npt.NDArray[np.int32]

Vectors = npt.NDArray[np.float32]

#: Tokens of one forward pass on a CPU: enough for a pass to be worth its overhead, few enough to be over soon.
BATCH_TOKENS = 4_096


class Encodes(Protocol):
    """An encoder, as far as a batcher is concerned."""

    max_length: int

    @property
    def hidden(self) -> int:
        """The size of a vector."""

    @property
    def composer(self) -> Any:
        """What puts token sequences together."""

    def tokenise(self, items: Sequence[Any], max_length: int | None = None) -> list[npt.NDArray[np.int32]]:
        """Token sequences of texts and conversations."""

    def encode_sequences(
        self,
        sequences: Sequence[npt.NDArray[np.int32]],
        *,
        normalise: bool | None = None,
        batch_tokens: int | None = None,
    ) -> Vectors:
        """Their vectors."""


class QueueFullError(Exception):
    """So much waits that a request is not taken.

    Attributes:
        seconds: after which it may be tried again.
    """

    def __init__(self, seconds: int):
        super().__init__(f"the queue is full: try again in {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Encoded:
    """What came of a request: vectors (inputs, size), and how many tokens were read for them."""

    vectors: Vectors
    tokens: int


@dataclass(frozen=True, slots=True)
class Pass:
    """What one forward pass did."""

    sequences: int
    tokens: int
    seconds: float


@dataclass(slots=True)
class _Job:
    """A request: the first `taken` of its sequences have been encoded."""

    items: Sequence[Item]
    max_length: int | None
    normalise: bool
    future: "asyncio.Future[Encoded] | concurrent.futures.Future[Encoded]"
    sequences: list[npt.NDArray[np.int32]] = field(default_factory=list)
    vectors: Vectors = field(default_factory=lambda: np.empty((0, 0), np.float32))
    taken: int = 0


#: A job, and the range of its sequences that a pass takes.
_Share = tuple[_Job, int, int]


class Batcher:
    """Encodes for many requests at once.

    Attributes:
        encoder: what encodes.
        waiting: texts that were taken and are not yet answered.
    """

    def __init__(
        self,
        encoder: Encodes,
        *,
        queue_texts: int = 4_096,
        batch_tokens: int | None = None,
        observe: Callable[[Pass], None] = lambda _: None,
    ):
        """Starts the thread.

        Args:
            encoder: what encodes.
            queue_texts: texts that may wait; a request is always taken where none waits.
            batch_tokens: tokens of one forward pass.
            observe: told of each pass, in the batcher's thread.
        """
        self.encoder = encoder
        self.waiting = 0
        self._most = queue_texts
        self._budget = batch_tokens or BATCH_TOKENS
        self._observe = observe
        self._rate = 0.0  # texts a second, lately
        self._arrivals: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    async def encode(self, items: Sequence[Item], *, max_length: int | None = None, normalise: bool = True) -> Encoded:
        """Vectors of some inputs, in their order.

        Args:
            items: texts, conversations or token ids without special ones; all from one event loop.
            max_length: tokens of an input, at most the model's own.
            normalise: scale vectors to length 1; else they are as the model gives them.

        Raises:
            QueueFullError: if too much waits already.
        """
        if not items:
            return self._nothing()
        if self.waiting and self.waiting + len(items) > self._most:
            raise QueueFullError(self.patience())
        future: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
        self.waiting += len(items)
        self._arrivals.put(_Job(items, max_length, normalise, future))
        try:
            return await future
        finally:
            self.waiting -= len(items)

    def encode_now(self, items: Sequence[Item], *, max_length: int | None = None, normalise: bool = True) -> Encoded:
        """What `encode` gives, for a thread that may wait; it is taken however much waits."""
        if not items:
            return self._nothing()
        future: concurrent.futures.Future[Encoded] = concurrent.futures.Future()
        self._arrivals.put(_Job(items, max_length, normalise, future))
        return future.result()

    def _nothing(self) -> Encoded:
        return Encoded(np.empty((0, self.encoder.hidden), np.float32), 0)

    def patience(self) -> int:
        """Seconds after which what waits now should be done, one at least."""
        return max(1, math.ceil(self.waiting / self._rate)) if self._rate else 1

    def close(self) -> None:
        """Finishes what was taken, and ends the thread; nothing may be given to it any more."""
        self._arrivals.put(None)
        self._thread.join()

    # ---- in the thread

    def _run(self) -> None:
        jobs: deque[_Job] = deque()
        is_open = True
        while is_open or jobs:
            arrived = self._arrived(wait=not jobs) if is_open else []
            is_open = is_open and None not in arrived
            jobs.extend(self._tokenised([job for job in arrived if job is not None]))
            # nobody waits for what was given up on
            jobs = deque(job for job in jobs if not job.future.cancelled())
            if jobs:
                self._pass(jobs)

    def _arrived(self, wait: bool) -> "list[_Job | None]":
        found = [self._arrivals.get()] if wait else []
        while True:
            try:
                found.append(self._arrivals.get_nowait())
            except queue.Empty:
                return found

    def _tokenised(self, jobs: Sequence[_Job]) -> list[_Job]:
        """The jobs that can be encoded; the others are told why not."""
        ready = []
        for length in {job.max_length for job in jobs}:
            alike = [job for job in jobs if job.max_length == length]
            try:
                sequences = iter(self._sequences([item for job in alike for item in job.items], length))
            except Exception as error:
                _deliver([(job, error) for job in alike])
                continue
            for job in alike:
                job.sequences = [next(sequences) for _ in job.items]
                job.vectors = np.empty((len(job.items), self.encoder.hidden), np.float32)
            ready += alike
        return ready

    def _sequences(self, items: Sequence[Item], max_length: int | None) -> list[npt.NDArray[np.int32]]:
        said = [item for item in items if not isinstance(item, np.ndarray)]
        found = self.encoder.tokenise(said, max_length)
        if len(said) == len(items):
            return found
        texts, composer = iter(found), self.encoder.composer
        longest = min(max_length or self.encoder.max_length, self.encoder.max_length)
        return [composer.text(item, longest) if isinstance(item, np.ndarray) else next(texts) for item in items]

    def _pass(self, jobs: deque[_Job]) -> None:
        """One forward pass for some of what waits; jobs that are done leave."""
        shares = _shares(jobs, self._budget)
        sequences = [sequence for job, first, last in shares for sequence in job.sequences[first:last]]
        start = time.perf_counter()
        try:
            vectors = self.encoder.encode_sequences(sequences, normalise=False, batch_tokens=self._budget)
        except Exception as error:
            hit = [job for job, _, _ in shares]
            for job in hit:
                jobs.remove(job)
            _deliver([(job, error) for job in hit])
            return
        seconds = time.perf_counter() - start
        place = 0
        for job, first, last in shares:
            job.vectors[first:last] = vectors[place : place + last - first]
            place += last - first
        done = [job for job in jobs if job.taken == len(job.sequences)]
        for job in done:
            jobs.remove(job)
        _deliver([(job, _encoded(job)) for job in done])
        self._rate = len(sequences) / seconds if not self._rate else 0.8 * self._rate + 0.2 * len(sequences) / seconds
        self._observe(Pass(len(sequences), sum(map(len, sequences)), seconds))


def _shares(jobs: deque[_Job], budget: int) -> list[_Share]:
    """What a pass takes: an equal share of the budget for each job, first come first, and what is left over for the first ones.

    Every job that fits gets one sequence at least; the first always does.
    """
    firsts = [job.taken for job in jobs]
    left = budget
    for allowance in (max(1, budget // len(jobs)), budget):
        for job in jobs:
            used = 0
            while job.taken < len(job.sequences):
                length = len(job.sequences[job.taken])
                is_first = left == budget and not used
                if not is_first and (length > left or (used and used + length > allowance)):
                    break
                used += length
                left -= length
                job.taken += 1
    return [(job, first, job.taken) for job, first in zip(jobs, firsts, strict=True) if job.taken > first]


def _encoded(job: _Job) -> Encoded:
    vectors = job.vectors
    if job.normalise:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(lengths, np.float32(1e-12))
    return Encoded(vectors, sum(map(len, job.sequences)))


def _deliver(results: Sequence[tuple[_Job, Encoded | Exception]]) -> None:
    """Hands results to who waits for them: to an event loop all of its own at one call."""
    of_loops = [(job.future, result) for job, result in results if isinstance(job.future, asyncio.Future)]
    if of_loops:
        of_loops[0][0].get_loop().call_soon_threadsafe(_settle, of_loops)
    _settle([(job.future, result) for job, result in results if isinstance(job.future, concurrent.futures.Future)])


def _settle(results: Sequence[tuple[Any, Encoded | Exception]]) -> None:
    for future, result in results:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


class BatchedEncoder:
    """An encoder for threads that may wait: what they want encoded shares passes with everything else.

    Everything that encodes goes through the batcher's one thread: a tokenizer must not be used by two at a time.
    """

    def __init__(self, batcher: Batcher):
        self.batcher = batcher

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Vectors (inputs, size), as `Encoder.encode` gives them."""
        own = bool(getattr(self.batcher.encoder, "normalise", False))
        scaled = own if normalise is None else normalise
        items = [item if isinstance(item, str) else tuple(item) for item in inputs]
        return self.batcher.encode_now(items, max_length=max_length, normalise=scaled).vectors

    def __getattr__(self, name: str) -> Any:
        """Whatever else is asked of an encoder, such as its name or size."""
        return getattr(self.batcher.encoder, name)
