"""Runs the application on a socket until a signal stops it."""

import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from lightbert.errors import InputError
from lightbert.serve.app import create_app
from lightbert.serve.service import Service

HEAD_BYTES = 1 << 16
"""Bytes of a head that h11 keeps while it is incomplete; more are answered with 400."""


class JsonProtocol(H11Protocol):  # type: ignore[misc]
    """uvicorn's HTTP protocol, with JSON for what is not HTTP.

    uvicorn prefers httptools where it is installed, which doesn't limit the size of a head. A client that sends a head
    byte by byte is the business of a reverse proxy.
    """

    def send_400_response(self, msg: str) -> None:
        """Answer what uvicorn can't parse; its own answer is plain text."""
        sentence = f"the request must be valid HTTP/1.1, and its head at most {HEAD_BYTES >> 10} KiB"
        self.transport.write(_answer("400 Bad Request", sentence))
        self.transport.close()


def _answer(status: str, sentence: str) -> bytes:
    body = f'{{"error":"{sentence}"}}'
    head = f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}"
    return f"HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}".encode("ascii")


_BACKLOG = 512
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def bind(host: str, port: int) -> socket.socket:
    """Bind an address, before the model is loaded; port 0 = any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(f"host must be an address of this machine, got {host!r} ({error})") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise InputError(
            f"port {port} of {host} can't be used ({error.strerror}); choose another one with --port"
        ) from None
    return bound


def url_of(bound: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve(service: Service, bound: socket.socket, ready: Callable[[str], None]) -> None:
    """Answer requests until SIGTERM or SIGINT; then finish those that were accepted, and return.

    ready: called with the URL when the server accepts connections.
    """
    with bound, _default_signals_ignored():
        ready(url_of(bound))
        uvicorn.Server(server_settings(service)).run(sockets=[bound])


def server_settings(service: Service) -> uvicorn.Config:
    """The settings of uvicorn, with the limits of the service."""
    return uvicorn.Config(
        create_app(service),
        http=JsonProtocol,
        h11_max_incomplete_event_size=HEAD_BYTES,
        log_level=logging.WARNING,
        access_log=False,
        ws="none",
        server_header=False,
        limit_concurrency=service.limits.connections,
        timeout_graceful_shutdown=max(1, round(service.limits.timeout)),
        timeout_keep_alive=30,
    )


@contextmanager
def _default_signals_ignored() -> Iterator[None]:
    """Uvicorn handles signals while it runs and sends them again afterwards, which would end the process."""
    previous = {each: signal.signal(each, lambda *_: None) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
