"""Running the application with uvicorn: idle and slow connections are closed, and shutdown lets requests finish."""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from turnwise.core.errors import TurnwiseError
from turnwise.core.project import Project
from turnwise.serve.app import create_app
from turnwise.serve.errors import ServiceError
from turnwise.serve.observability import LogFormat, log, log_failure, log_to_stderr
from turnwise.serve.service import Service
from turnwise.serve.settings import Limits, ServeSettings
from turnwise.version import __version__


def run(settings: ServeSettings, host: str, port: int, log_format: LogFormat = "auto") -> None:
    """Serve until a signal ends it (SIGHUP reloads everything); raise whatever keeps the models from loading."""
    log_to_stderr(log_format)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(listen(host, port)))
        server = Server(settings)
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
        if settings.project is not None:
            stack.enter_context(Project.load(settings.project).lock("serving", f"the service at {address}"))
        log(logging.INFO, event="listening", version=__version__, address=address, **settings.served())
        server.run([listener])
    if server.service.failure is not None:
        raise server.service.failure
    log(logging.INFO, event="stopped")


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket; port 0 is any free port.

    The socket is created with its protocol: otherwise asyncio leaves Nagle's algorithm on, and responses wait 40 ms for
    the client's acknowledgement.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise TurnwiseError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another with --port"
        ) from error
    return listener


class Server(uvicorn.Server):
    """A uvicorn server that reloads on SIGHUP and ends with exit status 0."""

    def __init__(self, settings: ServeSettings):
        app = create_app(settings, on_failure=self._exit)
        limits = settings.limits
        config = uvicorn.Config(
            app,
            http=_make_protocol(limits),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=20,
            timeout_graceful_shutdown=int(limits.seconds + limits.body_seconds) + 1,
            h11_max_incomplete_event_size=32_768,  # the bytes of headers
        )
        super().__init__(config)
        self.service: Service = app.state.service
        self._reloading: asyncio.Task[None] | None = None

    def _exit(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, reload on SIGHUP; only the main thread receives signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        loop.add_signal_handler(signal.SIGHUP, self._start_reload)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let `/ready` report the shutdown; a second SIGINT does not wait for requests."""
        if self.service.state in ("ready", "loading"):
            self.service.state = "stopping"
        super().handle_exit(sig, frame)

    def _start_reload(self) -> None:
        self._reloading = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        try:
            models = await self.service.reload()
        except Exception as error:
            log_failure(error, "not_reloaded")
        else:
            log(logging.INFO, event="reloaded", model=models.name)


def _make_protocol(limits: Limits) -> type[H11Protocol]:
    """Return uvicorn's protocol with time limits for sending headers and for reading responses."""

    class LimitedProtocol(H11Protocol):
        _write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._await_headers()
            if len(self.connections) > limits.connections:
                self._header_timer.cancel()
                self._reject(503, "too many connections are open: try again in 1 s", "too_many_connections")

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            # during a request the middleware's limits apply
            if self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete):
                self._header_timer.cancel()
            elif self._header_timer.cancelled():
                self._await_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._header_timer.cancel()
            self._stop_write_timer()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._write_timer = self.loop.call_later(limits.seconds, self.transport.abort)

        def resume_writing(self) -> None:
            self._stop_write_timer()
            super().resume_writing()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            # closing waits until everything is sent, which a client that reads nothing could delay for ever
            if self._write_timer is None:
                self._write_timer = self.loop.call_later(limits.seconds, self.transport.abort)

        def _stop_write_timer(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

        def _await_headers(self) -> None:
            self._header_timer = self.loop.call_later(limits.header_seconds, self._on_header_timeout)

        def send_400_response(self, msg: str) -> None:
            self._reject(400, "this is not a valid HTTP request", "not_http")

        def _on_header_timeout(self) -> None:
            if self.conn.trailing_data[0]:
                message = f"the request's headers were not received within {limits.header_seconds:g} s"
                self._reject(408, message, "slow_head")
            else:
                self.transport.close()

        def _reject(self, status: int, message: str, code: str) -> None:
            """Send an error before there is a request for the application."""
            headers = {"retry-after": "1", "connection": "close"}
            response = ServiceError(status, message, code=code, headers=headers).response()
            head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
            head += [name + b": " + value for name, value in response.raw_headers]
            self.transport.write(b"\r\n".join([*head, b"", bytes(response.body)]))
            self.transport.close()

    return LimitedProtocol
