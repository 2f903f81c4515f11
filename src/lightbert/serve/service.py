"""Answers the requests of a server: checks and counts them, and waits for the worker."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lightbert.errors import InputError
from lightbert.serve.batching import Batcher, Compute, Limits, compute_rows
from lightbert.serve.endpoints import PURPOSES, Endpoint, why_missing
from lightbert.serve.metrics import Metrics
from lightbert.serve.requests import Body, RequestError, read
from lightbert.tasks.example import TextEncoder

if TYPE_CHECKING:
    from starlette.requests import Request


def error_body(status: int, sentence: str) -> dict[str, Any]:
    """The body of an error."""
    return {"error": sentence}


@dataclass(frozen=True)
class Route:
    """An address: what its requests contain, and what answers them."""

    path: str
    name: str
    """The endpoint in the metrics, and the operation in the description of the API."""
    summary: str
    answer: Callable[[Any], Awaitable[Any]]
    """The body of a POST, or the parameters in the path of a GET -> the content of its answer."""
    body: type[Body] | None = None
    """None: the route takes GET."""
    example: Any = None
    """A body to try."""
    error: Callable[[int, str], dict[str, Any]] = error_body
    """The status and the sentence of an error -> its body."""
    missing: str = ""
    """Why the model can't answer; "" if it can."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """More for the description of the API."""


class Answers(NamedTuple):
    """One answer per text, and the numbers of tokens and of truncated texts."""

    items: list[Any]
    tokens: int
    truncated: int


class Service:
    """The endpoints of one model behind a worker; used from one event loop.

    compute: computes the requests of a round; another library's computation can be served for comparison.
    """

    def __init__(
        self, name: str, endpoints: Mapping[str, Endpoint], limits: Limits, compute: Compute = compute_rows
    ) -> None:
        self.name, self.endpoints, self.limits = name, endpoints, limits
        self.metrics = Metrics()
        self.batcher = Batcher(limits, self.metrics, compute)
        self._accepted = 0

    @property
    def encoder(self) -> TextEncoder:
        """The tokenizer of the model, and its maximum number of tokens per row."""
        return next(iter(self.endpoints.values())).encoder

    def warm_up(self) -> None:
        """Compute the example of every endpoint, so that the first request is not slower than the next ones."""
        for endpoint in self.endpoints.values():
            body = endpoint.body(texts=[endpoint.example])
            self.batcher.submit(endpoint, endpoint.prepare(body.texts, body.options())).result()

    async def answer(self, route: Route, request: "Request") -> tuple[int, Any]:
        """The status and the body of the answer to a request."""
        started = time.monotonic()
        try:
            if route.missing:
                raise RequestError(404, f"{route.missing}; it answers {self.abilities()}")
            body = await read(request, route.body, self.limits.body) if route.body else request.path_params
            status, content = 200, await route.answer(body)
        except RequestError as error:
            status, content = error.status, route.error(error.status, str(error))
        except InputError as error:
            status, content = 400, route.error(400, str(error))
        except Exception:
            # The client gets no details; the operator finds them in the log.
            traceback.print_exc()
            status, content = 500, route.error(500, "the server failed to answer; its log has the details")
        if route.body is not None:
            self.metrics.count(route.name, status, time.monotonic() - started)
        return status, content

    def endpoint(self, name: str) -> Endpoint:
        """The endpoint with this name."""
        if name not in self.endpoints:
            raise RequestError(404, f"{why_missing(name)}; it answers {self.abilities()}")
        return self.endpoints[name]

    async def compute(
        self, name: str, texts: Sequence[Any], options: Mapping[str, Any] | None = None, *, truncate: bool = True
    ) -> Answers:
        """Compute the answers of an endpoint; without `truncate`, texts that are too long are an error."""
        limits, endpoint = self.limits, self.endpoint(name)
        if len(texts) > limits.texts:
            raise RequestError(
                413, f"a request must have at most {limits.texts} texts, got {len(texts):,}; send several"
            )
        if self._accepted >= limits.queue:
            raise RequestError(429, f"{self._accepted} requests are waiting, the maximum; try again in a second")
        self._count(1)
        try:
            async with asyncio.timeout(limits.timeout):
                prepared = await asyncio.to_thread(endpoint.prepare, texts, options or {})
                cut = prepared.features.cut
                if cut and not truncate:
                    raise RequestError(413, f"{cut} texts are longer than the model reads; shorten or truncate them")
                if prepared.tokens > limits.tokens:
                    raise RequestError(
                        413,
                        f"a request must have at most {limits.tokens:,} tokens, got {prepared.tokens:,}; "
                        "send several requests",
                    )
                items = await asyncio.wrap_future(self.batcher.submit(endpoint, prepared))
        except TimeoutError:
            raise RequestError(503, f"no answer within {limits.timeout:g} seconds; try again later") from None
        finally:
            self._count(-1)
        self.metrics.texts.labels(name).inc(len(texts))
        self.metrics.truncated.inc(cut)
        return Answers(items, prepared.tokens, cut)

    def abilities(self) -> str:
        """What the model can do, as the end of a sentence."""
        return ", ".join(f"/v1/{name} ({PURPOSES[name]})" for name in self.endpoints)

    def close(self) -> None:
        """Finish what is queued."""
        self.batcher.close()

    def _count(self, amount: int) -> None:
        self._accepted += amount
        self.metrics.waiting.inc(amount)
