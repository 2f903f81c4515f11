"""uvicorn's HTTP protocol with limits for the head of a request, and JSON errors for what is not HTTP."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_BYTES = 1 << 16
"""Bytes of a head that h11 keeps while it is incomplete; more are answered with 400."""


def protocol_with_head_timeout(seconds: float) -> type[asyncio.Protocol]:
    """The protocol class of a server whose clients must send the head of a request within this time.

    Without it, clients that open connections and send nothing, or single bytes, keep them open for ever. A connection
    without any data is closed, an incomplete head is answered with 408.
    """
    late = _answer("408 Request Timeout", f"the head of a request must be sent within {seconds:g} seconds")
    malformed = _answer(
        "400 Bad Request", f"the request must be valid HTTP/1.1, and its head at most {HEAD_BYTES >> 10} KiB"
    )

    # uvicorn prefers httptools where it is installed, which doesn't limit the size of a head.
    class TimedProtocol(H11Protocol):  # type: ignore[misc]
        """Starts a timer when a connection is opened and when a head begins; a complete head stops it."""

        _timer: asyncio.TimerHandle | None = None
        _began = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(seconds, self._expire)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._began = self.cycle is None or self.cycle.response_complete
            if not self._began:
                self._stop()
            elif self._timer is None:
                self._timer = self.loop.call_later(seconds, self._expire)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _expire(self) -> None:
            if self.transport.is_closing():
                return
            if self._began:
                self.transport.write(late)
            self.transport.close()

        def send_400_response(self, msg: str) -> None:
            """Answer what uvicorn can't parse; its own answer is plain text."""
            self.transport.write(malformed)
            self.transport.close()

    return TimedProtocol


def _answer(status: str, sentence: str) -> bytes:
    body = f'{{"error":"{sentence}"}}'
    head = f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}"
    return f"HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}".encode("ascii")
