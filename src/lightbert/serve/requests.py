"""Requests from clients: their bodies are read within limits, parsed and checked; each problem is one sentence."""

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightbert.serve.endpoints.endpoint import Endpoint, shorten
from lightbert.serve.limits import Limits

if TYPE_CHECKING:
    from starlette.requests import Request

# A client that is still sending would not read the answer, so that a part of what is too much is read and discarded.
_DISCARDED = 4
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
    given = _object(body)
    unknown = [key for key in given if key not in ("texts", *endpoint.options)]
    if unknown:
        known = ", ".join(map(repr, ("texts", *endpoint.options)))
        raise RequestError(400, f"the keys of the request must be {known}, got {shorten(unknown[0])}")
    texts = given.get("texts")
    if not isinstance(texts, list) or not texts:
        raise RequestError(
            400, f"'texts' must be a list of at least one text, got {'nothing' if texts is None else shorten(texts)}"
        )
    if len(texts) > limits.texts:
        raise RequestError(413, f"a request must have at most {limits.texts} texts, got {len(texts):,}; send several")
    for number, text in enumerate(texts):
        if problem := _problem(text):
            raise RequestError(400, f"texts[{number}] {problem}")
    return texts, {name: _option(given, name, *bounds) for name, bounds in endpoint.options.items()}


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise RequestError(400, f"the body must be UTF-8, but byte {error.start} is not") from None
    # Numbers of thousands of digits are ValueErrors, too.
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body must be valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise RequestError(400, f'the body must be an object such as {{"texts": ["…"]}}, got {shorten(given)}')
    return given


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _option(given: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = given.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise RequestError(400, f"{name!r} must be an integer from {low} to {high}, got {shorten(value)}")
    return value


def _problem(value: Any, depth: int = 0) -> str:
    """What is wrong with the strings in a value, in words; "" if nothing is."""
    if isinstance(value, str):
        return "" if value.isascii() or _is_unicode(value) else "must not contain lone surrogates such as \\ud800"
    if depth > _DEEPEST:
        return f"must be nested at most {_DEEPEST} deep"
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return next(filter(None, (_problem(each, depth + 1) for each in value)), "")
    # Such as 1e999, which is valid JSON and too large for a float.
    return "must not contain infinite numbers" if isinstance(value, float) and value in (_INFINITY, -_INFINITY) else ""


_INFINITY = float("inf")


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
