"""Answer the requests of a server: reads a body, validates it, waits for the worker, counts."""

import asyncio
import json
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightbert.errors import InputError
from lightbert.serve.batching import Batcher, Compute, compute_rows
from lightbert.serve.endpoints import PURPOSES, why_missing
from lightbert.serve.endpoints.endpoint import Endpoint
from lightbert.serve.limits import Limits
from lightbert.serve.metrics import Metrics
from lightbert.serve.requests import RequestError, parse, read_body

if TYPE_CHECKING:
    from starlette.requests import Request


@dataclass(frozen=True)
class Answer:
    """A status code and a JSON-serializable body."""

    status: int
    body: Mapping[str, Any]


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

    def warm_up(self) -> None:
        """Compute the example of every endpoint, so that the first request is not slower than the next ones."""
        for endpoint in self.endpoints.values():
            defaults = {name: default for name, (default, _, _) in endpoint.options.items()}
            self.batcher.submit(endpoint, endpoint.prepare([endpoint.example], defaults)).result()

    async def answer(self, name: str, request: "Request") -> Answer:
        """Answer a request to ``/v1/NAME``."""
        started = time.monotonic()
        try:
            answer = Answer(200, await self._answers(name, request))
        except RequestError as error:
            answer = Answer(error.status, {"error": str(error)})
        except InputError as error:
            answer = Answer(400, {"error": str(error)})
        except Exception:
            # The client gets no details; the operator finds them in the log.
            traceback.print_exc()
            answer = Answer(500, {"error": "the server failed to answer; its log has the details"})
        self.metrics.add("requests_total", endpoint=name, status=answer.status)
        self.metrics.observe(time.monotonic() - started)
        return answer

    async def _answers(self, name: str, request: "Request") -> dict[str, Any]:
        body = await read_body(request, self.limits)
        if name not in self.endpoints:
            raise RequestError(404, f"{why_missing(name)}; it answers {self.abilities()}")
        endpoint = self.endpoints[name]
        texts, options = parse(body, endpoint, self.limits)
        if self._accepted >= self.limits.queue:
            raise RequestError(429, f"{self._accepted} requests are waiting, the maximum; try again in a second")
        self._count(1)
        try:
            async with asyncio.timeout(self.limits.timeout):
                prepared = await asyncio.to_thread(endpoint.prepare, texts, options)
                if prepared.tokens > self.limits.tokens:
                    raise RequestError(
                        413,
                        f"a request must have at most {self.limits.tokens:,} tokens, got {prepared.tokens:,}; "
                        "send several requests",
                    )
                answers = await asyncio.wrap_future(self.batcher.submit(endpoint, prepared))
        except TimeoutError:
            raise RequestError(503, f"no answer within {self.limits.timeout:g} seconds; try again later") from None
        finally:
            self._count(-1)
        self.metrics.add("texts_total", len(texts), endpoint=name)
        cut = prepared.features.cut
        return {endpoint.key: answers, **({"truncated": cut} if cut else {})}

    def abilities(self) -> str:
        """What the model can do, as the end of a sentence."""
        return ", ".join(f"/v1/{name} ({PURPOSES[name]})" for name in self.endpoints)

    def describe(self) -> dict[str, Any]:
        """The model, its endpoints with an example of each, and the limits of a request."""
        return {
            "model": self.name,
            "endpoints": {
                name: {"path": f"/v1/{name}", "purpose": PURPOSES[name], "takes": each.takes, "example": each.example}
                for name, each in self.endpoints.items()
            },
            "limits": {"bytes": self.limits.body, "texts": self.limits.texts, "tokens": self.limits.tokens},
        }

    def close(self) -> None:
        """Finish what is queued."""
        self.batcher.close()

    def _count(self, amount: int) -> None:
        self._accepted += amount
        self.metrics.add("waiting_requests", amount)


def to_json(value: Any) -> bytes:
    """A value as compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
