"""Prometheus metrics of a server, under our names and those of text-embeddings-inference."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "Metrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The metrics of one server; safe to use from several threads."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "lightbert_requests", "Answered requests by endpoint and status.", ("endpoint", "status"), registry=registry
        )
        self.texts = Counter(
            "lightbert_texts", "Texts of successful requests by endpoint.", ("endpoint",), registry=registry
        )
        self.truncated = Counter(
            "lightbert_truncated_texts", "Texts of successful requests that were truncated.", registry=registry
        )
        self.tokens = Counter("lightbert_tokens", "Computed tokens.", registry=registry)
        self.batches = Counter(
            "lightbert_batches",
            "Groups of requests that the worker computed together; long requests count once per slice.",
            registry=registry,
        )
        self.batched = Counter("lightbert_batched_requests", "Requests in these groups.", registry=registry)
        self.waiting = Gauge(
            "lightbert_waiting_requests", "Requests that are accepted but not answered yet.", registry=registry
        )
        self.seconds = Histogram(
            "lightbert_request_seconds", "Time from the request to its answer.", buckets=_SECONDS, registry=registry
        )
        # text-embeddings-inference names its counters without "_total", which prometheus_client adds to counters.
        self._tei_requests = Gauge("te_request_count", "Requests.", registry=registry)
        self._tei_successes = Gauge("te_request_success", "Requests with status 200.", registry=registry)
        self._tei_failures = Gauge("te_request_failure", "Other requests.", registry=registry)
        Gauge("te_queue_size", "Requests that wait.", registry=registry).set_function(lambda: value_of(self.waiting))
        self._tei_seconds = Histogram(
            "te_request_duration", "Time from the request to its answer.", buckets=_SECONDS, registry=registry
        )

    def count(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(endpoint, status).inc()
        self.seconds.observe(seconds)
        self._tei_requests.inc()
        (self._tei_successes if status == 200 else self._tei_failures).inc()
        self._tei_seconds.observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


def value_of(metric: Counter | Gauge) -> float:
    """The sum of a counter or a gauge over all labels."""
    samples = [sample for family in metric.collect() for sample in family.samples]
    return sum(sample.value for sample in samples if not sample.name.endswith("_created"))
