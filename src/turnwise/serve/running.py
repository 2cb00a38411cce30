"""Running the application with uvicorn: connections that say nothing are closed, and a signal to stop lets requests finish."""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from turnwise.serve.app import create_app
from turnwise.serve.errors import error_response
from turnwise.serve.observing import log, log_to_standard_error
from turnwise.serve.service import Service, log_failure
from turnwise.serve.settings import Limits, ServeError, Settings

#: Seconds that a connection may stay open without a request.
_KEPT_ALIVE = 20

#: Bytes of a request's head.
_HEAD = 32_768


def run(settings: Settings, host: str, port: int) -> None:
    """Serves until a signal says to stop; SIGHUP has everything loaded anew.

    Args:
        settings: what is served.
        host: where to listen.
        port: on which port; 0: on one that is free.

    Raises:
        ServeError: if the port is taken.
        Exception: whatever keeps the models from being loaded.
    """
    log_to_standard_error()
    with contextlib.closing(listen(host, port)) as listening:
        server = Server(settings)
        where = f"[{host}]" if ":" in host else host
        log(
            logging.INFO,
            event="listening",
            address=f"http://{where}:{listening.getsockname()[1]}/",
            model=settings.model,
        )
        server.run([listening])
    if server.service.failure is not None:
        raise server.service.failure
    log(logging.INFO, event="stopped")


def listen(host: str, port: int) -> socket.socket:
    """A socket at a place, 0 being any free port.

    With its protocol, or asyncio leaves Nagle's algorithm on, and answers wait 40 ms for the client's acknowledgement.

    Raises:
        ServeError: if the place is taken, or none of this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise ServeError(
            f"nothing can listen at {host}, port {port}: {error.strerror or error}; choose another by --port"
        ) from error
    return listening


class Server(uvicorn.Server):
    """A server that ends as one that was asked to: with exit status 0.

    Attributes:
        service: what it serves.
    """

    def __init__(self, settings: Settings):
        app = create_app(settings, on_failure=self._end)
        limits = settings.limits
        config = uvicorn.Config(
            app,
            http=_protocol(limits),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEPT_ALIVE,
            timeout_graceful_shutdown=int(limits.seconds + limits.body_seconds) + 1,
            h11_max_incomplete_event_size=_HEAD,
        )
        super().__init__(config)
        self.service: Service = app.state.service
        self._tasks: set[asyncio.Task[None]] = set()

    def _end(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stops at SIGINT and SIGTERM, reloads at SIGHUP; only the main thread can be told so."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Has `/ready` say that this ends; a second SIGINT does not wait for requests."""
        if self.service.state in ("ready", "loading"):
            self.service.state = "stopping"
        super().handle_exit(sig, frame)

    def _reload(self) -> None:
        task = asyncio.get_running_loop().create_task(self._reloaded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reloaded(self) -> None:
        try:
            models = await self.service.reload()
        except Exception as error:
            log_failure(error, "not_reloaded")
        else:
            log(logging.INFO, event="reloaded", model=models.name)


class _Timer:
    """Does something after a time unless it is stopped; started again while it runs, it goes on."""

    def __init__(self, seconds: float, action: Callable[[], None]):
        self._seconds = seconds
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(self._seconds, self._act)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _act(self) -> None:
        self._handle = None
        self._action()


def _protocol(limits: Limits) -> type[H11Protocol]:
    """A protocol with what uvicorn's leaves open: clients that do not finish a request's head, or take no answer, are cut off."""

    class Guarded(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._head = _Timer(limits.header_seconds, self._no_head)
            self._stalled = _Timer(limits.seconds, transport.abort)
            if len(self.connections) > limits.connections:
                self._refuse(503, "too many connections are open: try again in 1 s", "too_many_connections")
            else:
                self._head.start()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            # within a request the application has limits of its own
            if self.cycle is not None and not self.cycle.response_complete:
                self._head.stop()
            elif not self.transport.is_closing():
                self._head.start()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head.stop()
            self._stalled.stop()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled.start()

        def resume_writing(self) -> None:
            self._stalled.stop()
            super().resume_writing()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            # closing waits until all is sent, which a client that takes nothing could draw out for ever
            self._stalled.start()

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, "this is not HTTP as it should be", "not_http")

        def _no_head(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                return
            if self.conn.trailing_data[0]:
                self._refuse(408, f"the request's head did not come within {limits.header_seconds:g} s", "slow_head")
            else:
                self.transport.close()

        def _refuse(self, status: int, message: str, code: str) -> None:
            """Answers where there is no request to hand to the application."""
            body = bytes(error_response(status, message, code=code).body)
            lines = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
                "content-type: application/json",
                f"content-length: {len(body)}",
                "retry-after: 1",
                "connection: close",
            )
            self.transport.write("\r\n".join((*lines, "", "")).encode() + body)
            self.transport.close()

    return Guarded
