"""The service behind the routes: its state, its models, and the threads for blocking work."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.serve.errors import ServiceError, unavailable
from turnwise.serve.models import LoadedModels
from turnwise.serve.observability import ServiceMetrics, log, log_failure
from turnwise.serve.settings import KeyStore, ServeSettings

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds between two looks at the project, and after a failed reload.
_FOLLOWING_SECONDS, _RETRY_SECONDS = 1.0, 10.0


class Service:
    """State and work that the routes share."""

    def __init__(self, settings: ServeSettings):
        """Read the keys and the project's settings, and nothing else; raise an error if they cannot be read."""
        self.settings = settings.resolved()
        self._given = settings
        self.state: Literal["loading", "ready", "stopping", "failed"] = "loading"
        self.failure: Exception | None = None  # why it failed, in the state 'failed'
        self.models: LoadedModels | None = None  # None while they are loading
        self.keys = self._read_keys()  # None: no key is needed
        self.metrics = ServiceMetrics(
            waiting=lambda: 0.0 if self.models is None else float(self.models.waiting),
            is_ready=lambda: float(self.state == "ready"),
        )
        self._reloading = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._blocked = 0
        # for searches and decisions; more threads would only compete for the same cores
        self._threads = ThreadPoolExecutor(4, "worker")
        self._reranking_thread = ThreadPoolExecutor(1, "re-ranker")
        self._slow_thread = ThreadPoolExecutor(1, "slow-worker")
        self._change_thread = ThreadPoolExecutor(1, "change-worker")  # changes files and replaces models

    def _read_keys(self) -> KeyStore | None:
        return KeyStore.read(self.settings.keys) if self.settings.keys is not None else None

    # ---- life cycle; models are loaded in threads of their own, as all workers may be waiting

    async def start(self) -> None:
        """Load the models; an exception is also stored in `failure`."""
        try:
            models = await asyncio.to_thread(LoadedModels, self.settings, self.metrics)
            await asyncio.to_thread(models.open_journals)
        except Exception as error:
            self.failure, self.state = error, "failed"
            raise
        self.models = models
        if self.state == "loading":
            self.state = "ready"
        if self._given.project is not None:
            self._following = asyncio.create_task(self._follow_project())

    async def stop(self) -> None:
        """Finish abandoned work and close everything; no request may be in progress."""
        self.state = "stopping"
        if self._following is not None:
            async with self._reloading:  # a reload that has begun is finished first
                self._following.cancel()
        for threads in (self._slow_thread, self._change_thread, self._reranking_thread, self._threads):
            await asyncio.to_thread(threads.shutdown)
        models, self.models = self.models, None
        if models is not None:
            await asyncio.to_thread(models.close_journals)
            await asyncio.to_thread(models.stop)

    async def reload(self) -> LoadedModels:
        """Load everything again and use it; if anything cannot be loaded, keep the old models."""
        async with self._reloading:
            if self.models is None or self.state != "ready":
                raise self._not_ready()
            try:
                settings, keys = await asyncio.to_thread(self._given.resolved), self._read_keys()
                models = await asyncio.to_thread(LoadedModels, settings, self.metrics)
                old = await asyncio.get_running_loop().run_in_executor(
                    self._change_thread, self._replace_models, models
                )
            except Exception:
                self.metrics.reloads.labels("failed").inc()
                raise
            self.settings, self.keys = settings, keys
            self.metrics.reloads.labels("done").inc()
            old.is_retired = True
            if old.users == 0:
                self._threads.submit(old.stop)
            return models

    def _replace_models(self, models: LoadedModels) -> LoadedModels:
        """Replace the models, handing over the journals, and return the old ones."""
        old = self.models
        assert old is not None
        old.close_journals()
        try:
            models.open_journals(old.intents)
        except BaseException:
            models.stop()
            old.open_journals()
            raise
        self.models = models
        return old

    async def _follow_project(self) -> None:
        """Reload whenever the project has another build, classifier or model, until the service stops."""
        while self.state == "ready":
            await asyncio.sleep(_FOLLOWING_SECONDS)
            try:
                if await asyncio.to_thread(self._given.resolved) != self.settings:
                    models = await self.reload()
                    log(logging.INFO, event="reloaded", model=models.name)
            except Exception as error:
                log_failure(error, "not_reloaded")
                await asyncio.sleep(_RETRY_SECONDS)

    def use_classifier(self, models: LoadedModels, folder: Path) -> IntentClassifier:
        """Use another classifier from now on, also after a reload; called within `change`."""
        classifier = models.replace_intents(folder)
        self.settings = replace(self.settings, intents=folder)
        if self._given.project is None:
            self._given = replace(self._given, intents=folder)
        return classifier

    @contextmanager
    def lease(self) -> Iterator[LoadedModels]:
        """Yield the models for a request, which stay open until it is done; raise 503 if there are none."""
        models = self.models
        if models is None:
            raise self._not_ready()
        models.users += 1
        try:
            yield models
        finally:
            models.users -= 1
            if models.is_retired and models.users == 0:
                self._threads.submit(models.stop)

    def _not_ready(self) -> ServiceError:
        return unavailable(f"the service is {self.state}", self.state)

    async def in_thread(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Run blocking work in a thread; raise 503 if too many requests are waiting."""
        return await self._run_in(self._threads, partial(work, *arguments, **named))

    async def in_reranking_thread(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Run work with the re-ranker: one at a time, because of its tokenizer, and without delaying other work."""
        return await self._run_in(self._reranking_thread, partial(work, *arguments, **named))

    async def in_slow_thread(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Run slow work in its own thread, one at a time, so that equal requests share a cached result."""
        return await self._run_in(self._slow_thread, partial(work, *arguments, **named))

    async def _run_in(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self._blocked >= 256:
            self.metrics.refused.inc()
            raise unavailable("too many requests are waiting: try again in 1 s", "queue_full")
        self._blocked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        finally:
            self._blocked -= 1

    async def change(self, work: Callable[[LoadedModels], T]) -> T:
        """Run work that changes files in its own thread, one at a time, on the models that are current by then."""

        def run() -> T:
            if self.models is None:
                raise self._not_ready()
            return work(self.models)

        return await self._run_in(self._change_thread, run)
