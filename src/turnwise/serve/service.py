"""The service behind the routes: its state, its models, and the threads in which blocking work is done."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

from turnwise.serve.batching import Batcher, Encoded, Item, QueueFullError
from turnwise.serve.errors import ServiceError
from turnwise.serve.keys import Keys
from turnwise.serve.loading import close_journals, load, open_journals
from turnwise.serve.metrics import Metrics
from turnwise.serve.models import Models
from turnwise.serve.observing import Tally, log
from turnwise.serve.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

#: Threads for what blocks: searches, re-ranking, journals. More would only share the same cores.
_THREADS = 4

#: Requests that may wait for such a thread.
_WAITING = 256


class Service:
    """What the routes speak to.

    Attributes:
        settings: what is served.
        state: 'loading', 'ready', 'stopping' or 'failed'.
        failure: why it failed.
        models: what answers requests; None while they are loading.
        keys: who may ask; None: everyone.
        metrics: what is counted.
        changing: held while anything on disk is changed, or models are exchanged.
    """

    def __init__(self, settings: Settings):
        """Reads the keys; nothing else is loaded yet.

        Raises:
            ServeError: if the keys cannot be read.
        """
        self.settings = settings
        self.state: Literal["loading", "ready", "stopping", "failed"] = "loading"
        self.failure: Exception | None = None
        self.models: Models | None = None
        self.keys = Keys.read(settings.keys) if settings.keys is not None else None
        self.metrics = Metrics(self._waiting, lambda: float(self.state == "ready"))
        self.changing = threading.RLock()
        self._reloading = asyncio.Lock()
        self._blocked = 0
        self._threads = ThreadPoolExecutor(_THREADS, "worker")
        self._leisurely = ThreadPoolExecutor(1, "leisurely")

    # ---- from loading to the end

    async def start(self) -> None:
        """Loads the models.

        Raises:
            Exception: whatever keeps them from being loaded; `failure` has it, too.
        """
        try:
            models = await self._in_loader(load, self.settings, self.metrics.forward_pass)
            await self._in_loader(open_journals, models, self.settings, self.metrics.forward_pass)
        except Exception as error:
            self.failure, self.state = error, "failed"
            raise
        self.models = models
        if self.state == "loading":
            self.state = "ready"

    async def stop(self) -> None:
        """Ends what was started, once work that nobody waits for any more is done; no request may be under way."""
        self.state = "stopping"
        for threads in (self._leisurely, self._threads):
            await asyncio.to_thread(threads.shutdown)
        models, self.models = self.models, None
        if models is not None:
            close_journals(models)
            await asyncio.to_thread(models.stop)

    async def reload(self) -> Models:
        """Loads everything anew and takes it into use; requests that are under way finish with what they began with.

        If something cannot be loaded, all stays as it was.

        Raises:
            ServiceError: if the service is not ready.
            Exception: whatever keeps the new models from being loaded.
        """
        async with self._reloading:
            if self.models is None or self.state != "ready":
                raise ServiceError(503, f"the service is {self.state}", code=self.state, headers={"retry-after": "1"})
            try:
                keys = Keys.read(self.settings.keys) if self.settings.keys is not None else None
                fresh = await self._in_loader(load, self.settings, self.metrics.forward_pass)
                old = await self._in_loader(self._exchange, fresh)
            except Exception:
                self.metrics.reloads.labels("failed").inc()
                raise
            self.keys = keys
            self.metrics.reloads.labels("done").inc()
            self._retire(old)
            return fresh

    def _exchange(self, fresh: Models) -> Models:
        """Puts new models in the place of the old ones, which are given back; journals change hands meanwhile."""
        with self.changing:
            old = self.models
            assert old is not None
            close_journals(old)
            try:
                open_journals(fresh, self.settings, self.metrics.forward_pass)
            except BaseException:
                fresh.stop()
                open_journals(old, self.settings, self.metrics.forward_pass)
                raise
            self.models = fresh
            return old

    def _retire(self, models: Models) -> None:
        models.is_retired = True
        if models.users == 0:
            self._threads.submit(models.stop)

    # ---- for routes

    @contextmanager
    def lease(self) -> Iterator[Models]:
        """The models that a request is answered with, which stay until it is done with them.

        Raises:
            ServiceError: if there are none.
        """
        models = self.models
        if models is None:
            raise ServiceError(503, f"the service is {self.state}", code=self.state, headers={"retry-after": "1"})
        models.users += 1
        try:
            yield models
        finally:
            models.users -= 1
            if models.is_retired and models.users == 0:
                self._threads.submit(models.stop)

    async def encode(
        self,
        batcher: Batcher,
        items: list[Item],
        tally: Tally,
        *,
        max_length: int | None = None,
        normalise: bool = True,
    ) -> Encoded:
        """Vectors of what a request asks about.

        Raises:
            ServiceError: if too much waits.
        """
        try:
            encoded = await batcher.encode(items, max_length=max_length, normalise=normalise)
        except QueueFullError as error:
            self.metrics.refused.inc()
            message = f"too much waits to be encoded: try again in {error.seconds} s"
            raise ServiceError(503, message, code="queue_full", headers={"retry-after": str(error.seconds)}) from None
        if not np.isfinite(encoded.vectors).all():
            raise FloatingPointError("the encoder gave vectors that are not numbers")
        tally.tokens += encoded.tokens
        return encoded

    async def in_thread(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Does work that blocks in a thread.

        Raises:
            ServiceError: if too much waits.
        """
        return await self._done_in(self._threads, partial(work, *arguments, **named))

    async def at_leisure(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Does work that takes long in a thread for such work: one at a time, so that two that want the same find it done.

        Raises:
            ServiceError: if too much waits.
        """
        return await self._done_in(self._leisurely, partial(work, *arguments, **named))

    async def _done_in(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self._blocked >= _WAITING:
            self.metrics.refused.inc()
            raise ServiceError(
                503, "too much waits to be done: try again in 1 s", code="queue_full", headers={"retry-after": "1"}
            )
        self._blocked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        finally:
            self._blocked -= 1

    async def changed(self, work: Callable[[Models], T]) -> T:
        """Does work that changes something on disk: one at a time, on the models that are in use then."""

        def alone() -> T:
            with self.changing:
                if self.models is None:
                    raise ServiceError(503, "the service is stopping", code="stopping", headers={"retry-after": "1"})
                return work(self.models)

        return await self.in_thread(alone)

    async def _in_loader(self, work: Callable[..., T], *arguments: Any) -> T:
        """Loads in a thread of its own: workers may all be waiting."""
        return await asyncio.to_thread(work, *arguments)

    def _waiting(self) -> float:
        models = self.models
        return 0.0 if models is None else float(models.waiting)


def log_failure(error: Exception, event: str) -> None:
    """Notes that something failed outside a request."""
    import logging

    log(logging.ERROR, event=event, failure=type(error).__name__, message=str(error))
