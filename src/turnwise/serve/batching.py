"""Dynamic batching: concurrent requests share forward passes, each up to its share of a token budget.

Nothing is delayed to fill a batch, and a request of one text does not wait behind a request of a thousand.
"""

import asyncio
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Turn
from turnwise.core.types import Vectors, normalise_vectors
from turnwise.models.encoder import index_fingerprint
from turnwise.models.identity import EncoderId

if TYPE_CHECKING:
    from turnwise.models.encoder import Encoder

#: Token ids, or what `Encoder.tokenise` takes.
Item = str | tuple[Turn, ...] | npt.NDArray[np.int32]

#: Requests of up to so many texts may use the whole queue, others three quarters of it.
_SMALL = 40

#: Seconds of a pass on a slow machine, and the tokens that it has nevertheless.
_PASS_SECONDS, _MIN_PASS_TOKENS = 0.2, 1_024

#: Characters that are tokenised between two passes, at least one text of each request in turn.
_TOKENISED_CHARACTERS = 200_000


class QueueFullError(Exception):
    """The queue has no room for a request; try again after `seconds`."""

    def __init__(self, seconds: int):
        super().__init__(f"the queue is full: try again in {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class EncodingResult:
    """Vectors (inputs, size), and the number of tokens that were encoded."""

    vectors: Vectors
    tokens: int


@dataclass(eq=False, slots=True)
class _EncodingJob:
    """A request; the first items have been tokenised, and the first `taken` of these sequences encoded."""

    items: Sequence[Item]
    max_length: int | None
    normalise: bool
    future: Future[EncodingResult] = field(default_factory=Future)
    sequences: list[npt.NDArray[np.int32]] = field(default_factory=list)
    vectors: Vectors = field(default_factory=lambda: np.empty((0, 0), np.float32))
    taken: int = 0

    def next_items(self, characters: int) -> Sequence[Item]:
        """Return the next items to tokenise: at least one, and no more than have so many characters together."""
        first = last = len(self.sequences)
        while last < len(self.items) and (last == first or characters >= _length(self.items[last])):
            characters -= _length(self.items[last])
            last += 1
        return self.items[first:last]


def _length(item: Item) -> int:
    """Return the number of characters or token ids of an item."""
    return sum(len(turn.text) for turn in item) if isinstance(item, tuple) else len(item)


class Batcher:
    """Encodes the texts of concurrent requests together; `waiting` counts texts that are queued or being encoded."""

    def __init__(
        self,
        encoder: "Encoder",
        *,
        queue_texts: int = 4_096,
        batch_tokens: int = 4_096,
        observe: Callable[[int, float], None] = lambda *_: None,
    ):
        """Start the thread; it calls `observe` with the texts and seconds of each pass."""
        self.encoder = encoder
        self.waiting = 0
        self._queue_texts = queue_texts
        self._budget = batch_tokens
        self._observe = observe
        self._rate = self._token_rate = 0.0  # texts and tokens per second, moving averages
        self._arrivals: queue.SimpleQueue[_EncodingJob | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    @cached_property
    def weights_fingerprint(self) -> str:
        """A hash of weights and vocabulary, which do not change."""
        return self.encoder.weights_fingerprint()

    async def encode(
        self, items: Sequence[Item], *, max_length: int | None = None, normalise: bool = True
    ) -> EncodingResult:
        """Return vectors in the order of the inputs; raise `QueueFullError` if too many texts wait."""
        room = self._queue_texts if len(items) <= _SMALL else self._queue_texts * 3 // 4
        if self.waiting and self.waiting + len(items) > room:
            raise QueueFullError(max(1, math.ceil(self.waiting / self._rate)) if self._rate else 1)
        self.waiting += len(items)
        try:
            return await asyncio.wrap_future(self.submit(items, max_length, normalise))
        finally:
            self.waiting -= len(items)

    def submit(self, items: Sequence[Item], max_length: int | None, normalise: bool) -> Future[EncodingResult]:
        """Queue what `encode` returns, whatever the queue's length."""
        job = _EncodingJob(items, max_length, normalise)
        if items:
            self._arrivals.put(job)
        else:
            job.future.set_result(EncodingResult(np.empty((0, self.encoder.hidden), np.float32), 0))
        return job.future

    def close(self) -> None:
        """Finish all queued requests and end the thread; no request may follow."""
        self._arrivals.put(None)
        self._thread.join()

    def _run(self) -> None:
        jobs: list[_EncodingJob] = []
        is_open = True
        while is_open or jobs:
            arrived = self._receive(wait=not jobs) if is_open else []
            is_open = is_open and None not in arrived
            jobs += [job for job in arrived if job is not None]
            # drop what is finished, and requests that nobody waits for any more
            jobs = [job for job in jobs if not job.future.done()]
            jobs.sort(key=lambda job: job.taken)  # a new request does not wait for those of which much is encoded
            self._tokenise(jobs)
            ready = [job for job in jobs if job.taken < len(job.sequences)]
            if ready:
                self._run_pass(ready)

    def _receive(self, wait: bool) -> "list[_EncodingJob | None]":
        arrived = [self._arrivals.get()] if wait else []
        while True:
            try:
                arrived.append(self._arrivals.get_nowait())
            except queue.Empty:
                return arrived

    def _tokenise(self, jobs: Sequence[_EncodingJob]) -> None:
        """Tokenise the next items of jobs that have none left; those that cannot be tokenised receive the exception."""
        exhausted = [job for job in jobs if job.taken == len(job.sequences)]
        portions, left = {}, _TOKENISED_CHARACTERS
        for job in exhausted:
            if left > 0:
                portions[job] = job.next_items(_TOKENISED_CHARACTERS // len(exhausted))
                left -= sum(map(_length, portions[job]))
        for length in {job.max_length for job in portions}:
            group = {job: items for job, items in portions.items() if job.max_length == length}
            try:
                sequences = iter(self._sequences([item for items in group.values() for item in items], length))
            except Exception as error:
                _deliver([*group], error)
                continue
            for job, items in group.items():
                if not job.sequences:
                    job.vectors = np.empty((len(job.items), self.encoder.hidden), np.float32)
                job.sequences += [next(sequences) for _ in items]

    def _sequences(self, items: Sequence[Item], max_length: int | None) -> Sequence[npt.NDArray[np.int32]]:
        texts = [item for item in items if not isinstance(item, np.ndarray)]
        sequences = self.encoder.tokenise(texts, max_length)
        if len(texts) == len(items):
            return sequences
        remaining, composer = iter(sequences), self.encoder.composer
        longest = min(max_length or self.encoder.max_length, self.encoder.max_length)
        return [composer.text(item, longest) if isinstance(item, np.ndarray) else next(remaining) for item in items]

    def _run_pass(self, jobs: list[_EncodingJob]) -> None:
        """Run one forward pass, short enough for small requests to wait for, and deliver what it finishes."""
        limit = max(_MIN_PASS_TOKENS, int(self._token_rate * _PASS_SECONDS)) if self._token_rate else self._budget
        shares = _take_shares(jobs, min(self._budget, limit))
        sequences = [sequence for job, first, last in shares for sequence in job.sequences[first:last]]
        start = time.perf_counter()
        try:
            vectors = self.encoder.encode_sequences(sequences, normalise=False, batch_tokens=self._budget)
        except Exception as error:
            _deliver([job for job, _, _ in shares], error)
            return
        seconds = time.perf_counter() - start
        row = 0
        for job, first, last in shares:
            job.vectors[first:last] = vectors[row : row + last - first]
            row += last - first
        _deliver([job for job in jobs if job.taken == len(job.items)])
        rate, token_rate = len(sequences) / seconds, sum(map(len, sequences)) / seconds
        self._rate = 0.8 * (self._rate or rate) + 0.2 * rate
        self._token_rate = 0.8 * (self._token_rate or token_rate) + 0.2 * token_rate
        self._observe(len(sequences), seconds)


def _take_shares(jobs: list[_EncodingJob], budget: int) -> list[tuple[_EncodingJob, int, int]]:
    """Choose ranges of sequences: an equal share of the budget per job, at least one each, then the rest in order."""
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


def _deliver(jobs: Sequence[_EncodingJob], error: Exception | None = None) -> None:
    """Set the results of jobs, or the error that they failed with."""
    for job in jobs:
        with suppress(InvalidStateError):  # the client has gone
            if error is not None:
                job.future.set_exception(error)
                continue
            vectors = normalise_vectors(job.vectors) if job.normalise else job.vectors
            job.future.set_result(EncodingResult(vectors, sum(map(len, job.sequences))))


class BatchedEncoder:
    """An encoder for blocking threads, which shares the batcher's passes: tokenizers are not thread-safe.

    If `texts_per_job` is given, other requests need not wait for more texts than that.
    """

    def __init__(self, batcher: Batcher, texts_per_job: int | None = None):
        self.batcher = batcher
        self._texts_per_job = texts_per_job

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Return the vectors (inputs, size), as `Encoder.encode` does."""
        if normalise is None:
            normalise = bool(getattr(self.batcher.encoder, "normalise", False))
        items = [item if isinstance(item, str) else tuple(item) for item in inputs]
        size = self._texts_per_job or max(1, len(items))
        parts = [
            self.batcher.submit(items[start : start + size], max_length, normalise).result().vectors
            for start in range(0, max(1, len(items)), size)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def identify(self, max_length: int | None = None) -> EncoderId:
        """Return what identifies its vectors, as `Encoder.identify` does."""
        return EncoderId(self.name, index_fingerprint(cast("Encoder", self), max_length))

    def weights_fingerprint(self) -> str:
        """Return a hash of weights and vocabulary, as `Encoder.weights_fingerprint` does."""
        return self.batcher.weights_fingerprint

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the encoder."""
        return getattr(self.batcher.encoder, name)
