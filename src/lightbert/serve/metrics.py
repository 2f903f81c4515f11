"""The metrics of a server in the text format of Prometheus."""

import threading
from bisect import bisect_left
from collections import Counter

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_HELP = {
    "requests_total": ("counter", "Answered requests by endpoint and status."),
    "texts_total": ("counter", "Texts of successful requests by endpoint."),
    "tokens_total": ("counter", "Computed tokens."),
    "batches_total": ("counter", "Rounds of the worker; a round computes the requests that arrived together."),
    "batched_requests_total": ("counter", "Requests in these rounds."),
    "waiting_requests": ("gauge", "Requests that are accepted but not answered yet."),
    "request_seconds": ("histogram", "Time from the request to its answer."),
}


class Metrics:
    """Counters and a histogram of times; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Counter[tuple[str, str]] = Counter()
        self._times: Counter[float] = Counter()
        self._seconds = 0.0

    def add(self, name: str, amount: int = 1, **labels: object) -> None:
        """Add to a counter or a gauge."""
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        with self._lock:
            self._values[name, f"{{{text}}}" if text else ""] += amount

    def observe(self, seconds: float) -> None:
        """Count the time of one request."""
        place = bisect_left(_SECONDS, seconds)
        with self._lock:
            self._times[_SECONDS[place] if place < len(_SECONDS) else float("inf")] += 1
            self._seconds += seconds

    def total(self, name: str) -> int:
        """The sum of a counter over all labels."""
        with self._lock:
            return sum(value for (each, _), value in self._values.items() if each == name)

    def __str__(self) -> str:
        with self._lock:
            values, times, seconds = dict(self._values), dict(self._times), self._seconds
        lines = []
        for name, (kind, purpose) in _HELP.items():
            lines += [f"# HELP lightbert_{name} {purpose}", f"# TYPE lightbert_{name} {kind}"]
            if kind == "histogram":
                lines += _histogram(f"lightbert_{name}", times, seconds)
                continue
            found = {labels: value for (each, labels), value in sorted(values.items()) if each == name}
            # A counter with labels appears with its first value.
            found = found or ({} if name in ("requests_total", "texts_total") else {"": 0})
            lines += [f"lightbert_{name}{labels} {value}" for labels, value in found.items()]
        return "\n".join(lines) + "\n"


def _histogram(name: str, times: dict[float, int], seconds: float) -> list[str]:
    lines, count = [], 0
    for bound in _SECONDS:
        count += times.get(bound, 0)
        lines.append(f'{name}_bucket{{le="{bound}"}} {count}')
    total = sum(times.values())
    return [*lines, f'{name}_bucket{{le="+Inf"}} {total}', f"{name}_sum {seconds:.6f}", f"{name}_count {total}"]
