"""The limits of a server, so that no client can exhaust its memory or block the others."""

from dataclasses import dataclass

from lightbert.errors import InputError


@dataclass(frozen=True)
class Limits:
    """What one request may contain, how many may wait, and for how long."""

    body: int = 1 << 20
    """Bytes per request."""
    texts: int = 256
    """Texts per request."""
    tokens: int = 32768
    """Tokens per request, after truncation and including the windows of long texts."""
    queue: int = 256
    """Requests that are accepted but not answered yet; more are answered with 429."""
    connections: int = 1024
    """Open connections; more are closed with 503."""
    body_seconds: float = 10.0
    """The time in which a client must send the head of a request, and then its body."""
    timeout: float = 60.0
    """The time from the acceptance of a request to its answer, also when the server stops."""
    window: float = 0.002
    """How many seconds a request waits for others to share its batch."""
    round_tokens: int = 16384
    """Tokens that the worker collects before it computes."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0 and name != "window":
                raise InputError(f"{name.replace('_', '-')} must be > 0, got {value}")
