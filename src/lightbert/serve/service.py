"""Answers the requests of a server: reads and checks a body, waits for the worker, counts; a problem is a sentence."""

import asyncio
import json
import math
import re
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightbert.errors import InputError
from lightbert.serve.batching import Batcher, Compute, Limits, Metrics, compute_rows
from lightbert.serve.endpoints import PURPOSES, Endpoint, shorten, why_missing

if TYPE_CHECKING:
    from starlette.requests import Request


# A client that is still sending would not read the answer, so that a part of what is too much is read and discarded.
_DISCARDED = 4
_SURROGATES = re.compile("[\ud800-\udfff]")
_DEEPEST = 8


class RequestError(Exception):
    """A request that can't be answered: the status code, and one sentence for the client."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def read_body(request: "Request", limits: Limits) -> bytes:
    """Read the body of a JSON request."""
    from starlette.requests import ClientDisconnect

    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > _DISCARDED * limits.body:
                    break
                if size <= limits.body:
                    body += chunk
    except TimeoutError:
        raise RequestError(408, f"the body must be sent within {limits.body_seconds:g} seconds") from None
    except ClientDisconnect:
        raise RequestError(400, "the connection was closed before the body was complete") from None
    if size > limits.body:
        raise RequestError(413, f"the body must have at most {limits.body:,} bytes; send several requests")
    if media != "application/json":
        raise RequestError(415, f"the content type must be application/json, got {shorten(media)}")
    return bytes(body)


def parse(body: bytes, endpoint: Endpoint, limits: Limits) -> tuple[list[Any], dict[str, int]]:
    """The texts and the options of a request."""
    content = _object(body)
    unknown = [key for key in content if key not in ("texts", *endpoint.options)]
    if unknown:
        known = ", ".join(map(repr, ("texts", *endpoint.options)))
        raise RequestError(400, f"the keys of the request must be {known}, got {shorten(unknown[0])}")
    texts = content.get("texts")
    if not isinstance(texts, list) or not texts:
        raise RequestError(
            400, f"'texts' must be a list of at least one text, got {'nothing' if texts is None else shorten(texts)}"
        )
    if len(texts) > limits.texts:
        raise RequestError(413, f"a request must have at most {limits.texts} texts, got {len(texts):,}; send several")
    for number, text in enumerate(texts):
        if problem := _problem(text):
            raise RequestError(400, f"texts[{number}] {problem}")
    return texts, {name: _option(content, name, *bounds) for name, bounds in endpoint.options.items()}


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise RequestError(400, f"the body must be UTF-8, but byte {error.start} is not") from None
    # Numbers of thousands of digits are ValueErrors, too.
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body must be valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise RequestError(400, f'the body must be an object such as {{"texts": ["…"]}}, got {shorten(content)}')
    return content


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _option(content: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = content.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise RequestError(400, f"{name!r} must be an integer from {low} to {high}, got {shorten(value)}")
    return value


def _problem(value: Any, depth: int = 0) -> str:
    """What is wrong with the strings in a value, in words; "" if nothing is."""
    if isinstance(value, str):
        return "must not contain lone surrogates such as \\ud800" if _SURROGATES.search(value) else ""
    if depth > _DEEPEST:
        return f"must be nested at most {_DEEPEST} deep"
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return next(filter(None, (_problem(item, depth + 1) for item in value)), "")
    # Such as 1e999, which is valid JSON and too large for a float.
    return "must not contain infinite numbers" if isinstance(value, float) and math.isinf(value) else ""


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
                name: {
                    "path": f"/v1/{name}",
                    "purpose": PURPOSES[name],
                    "takes": endpoint.takes,
                    "example": endpoint.example,
                }
                for name, endpoint in self.endpoints.items()
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
