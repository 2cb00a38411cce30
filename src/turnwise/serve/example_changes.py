"""Changes to the examples of a served classifier: acknowledged once they are on disk, and applied in the background.

Changes that arrive during a sync share the next one, and those that arrive during a recalibration the next of those.
Meanwhile predictions use the classifier as it was recalibrated last.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from turnwise.assist.intents.storage import ExampleChange, IntentFolder
from turnwise.core.errors import IntentError
from turnwise.serve.errors import public_message
from turnwise.serve.observability import describe_failure, log

#: After a recalibration, the next one starts after a pause of the same duration, but of at most this many seconds: if
#: examples are added all the time, half of the time is left for predictions.
_MAX_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A change that is on disk."""

    count: int  # examples that were added or removed
    intents: int  # that have examples on disk
    applied: Future[None]  # done when predictions use the change; fails if recalibrating does


class ExampleChanges:
    """Changes the examples of a folder in two threads; `failure` says why the last recalibration failed, if it did."""

    def __init__(self, folder: IntentFolder, observe: Callable[[bool], None] = lambda _: None):
        """Apply the changes of an earlier process; `observe` learns after each recalibration whether it succeeded."""
        self.folder = folder
        self.failure: str | None = None
        self._observe = observe
        self._submitted: queue.SimpleQueue[tuple[ExampleChange, Future[RecordedChange]]] = queue.SimpleQueue()
        self._journal_thread = ThreadPoolExecutor(1, "journal")
        self._recalibration_thread = ThreadPoolExecutor(1, "recalibration")
        self._is_closing = threading.Event()
        self._next_start = 0.0
        if folder.pending:
            with suppress(Exception):
                self._attempt(folder.compact)

    def submit(self, change: ExampleChange) -> Future[RecordedChange]:
        """Return a future that is done when a change is on disk, or fails with IntentError or ProjectError."""
        future: Future[RecordedChange] = Future()
        self._submitted.put((change, future))
        self._journal_thread.submit(self._record)
        return future

    def close(self) -> None:
        """Finish what was submitted, and allow another process to open the folder; the classifier remains usable."""
        self._is_closing.set()
        self._journal_thread.shutdown()
        self._recalibration_thread.shutdown()
        self.folder.close()

    def _record(self) -> None:
        """Write all changes that were submitted by now; later calls for these find nothing to do."""
        changes = []
        while not self._submitted.empty():
            change, future = self._submitted.get()
            if future.set_running_or_notify_cancel():  # else the client has gone
                changes.append((change, future))
        if not changes:
            return
        try:
            results = self.folder.record([change for change, _ in changes])
        except Exception as error:
            for _, future in changes:
                future.set_exception(error)
            return
        intents, applied = self.folder.intents, self._recalibration_thread.submit(self._recalibrate)
        for (_, future), result in zip(changes, results, strict=True):
            if isinstance(result, IntentError):
                future.set_exception(result)
            else:
                future.set_result(RecordedChange(result, intents, applied))

    def _recalibrate(self) -> None:
        """Apply all changes that are on disk, if an earlier call has not."""
        if not self.folder.pending:
            return
        self._is_closing.wait(max(0.0, self._next_start - time.monotonic()))
        start = time.monotonic()
        try:
            self._attempt(self.folder.apply)
        finally:
            end = time.monotonic()
            self._next_start = end + min(end - start, _MAX_PAUSE)

    def _attempt(self, apply: Callable[[], None]) -> None:
        """Apply changes, and report whether that succeeded."""
        try:
            apply()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {public_message(error)}"
            self._observe(False)
            log(logging.ERROR, event="not_recalibrated", **describe_failure(error))
            raise
        self.failure = None
        self._observe(True)
