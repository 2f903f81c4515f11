"""The server as a FastAPI application: routes, their OpenAPI description, pages; runs it until a signal stops it."""

import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.resources import files
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from lightbert.errors import InputError
from lightbert.serve.endpoints import PURPOSES, Endpoint, why_missing
from lightbert.serve.service import Answer, Service, to_json

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""The page runs only its own scripts and talks only to its own server."""


def read_page(name: str) -> str:
    """The content of a page."""
    return files("lightbert.serve").joinpath(name).read_text(encoding="utf-8")


_STATUSES = {
    "400": "The request is malformed; the sentence names what must hold and what was given.",
    "404": "The model has no such endpoint; the sentence says why and names what it can do.",
    "408": "The body was not sent in time.",
    "413": "The body, the number of texts or the number of tokens is above the limit.",
    "415": "The content type is not application/json.",
    "429": "Too many requests are waiting; try again.",
    "503": "The request was not answered in time; try again.",
}
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def operation(name: str, endpoint: Endpoint | None) -> dict[str, Any]:
    """The request body and the responses of ``/v1/NAME``; an endpoint that the model lacks answers 404."""
    errors = {status: {"description": text, "content": _content(_ERROR)} for status, text in _STATUSES.items()}
    if endpoint is None:
        return {"description": f"Not available: {why_missing(name)}.", "responses": errors}
    properties: dict[str, Any] = {"texts": {"type": "array", "minItems": 1, "items": {}, "description": endpoint.takes}}
    for option, (default, low, high) in endpoint.options.items():
        properties[option] = {"type": "integer", "minimum": low, "maximum": high, "default": default}
    request = {"type": "object", "properties": properties, "required": ["texts"], "additionalProperties": False}
    answers = {
        "type": "object",
        "properties": {
            endpoint.key: {"type": "array", "description": f"One per text, in order: {PURPOSES[name]}."},
            "truncated": {"type": "integer", "description": "The number of truncated texts, if there are any."},
        },
    }
    return {
        "description": f"Takes {endpoint.takes}.",
        "requestBody": {"required": True, "content": _content(request, {"texts": [endpoint.example]})},
        "responses": {"200": {"description": "One answer per text.", "content": _content(answers)}, **errors},
    }


def _content(schema: dict[str, Any], example: Any = None) -> dict[str, Any]:
    return {"application/json": {"schema": schema, **({} if example is None else {"example": example})}}


_JSON = "application/json"
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_UNREAD = (408, 413)


def create_app(service: Service) -> FastAPI:
    """An application that answers for one model; when it shuts down, the worker finishes what it has."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title=f"lightbert serve: {service.name}",
        version="1",
        # FastAPI's pages load scripts from other hosts; /docs is a page of our own.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    for name in PURPOSES:
        app.add_api_route(
            f"/v1/{name}",
            _route(service, name),
            methods=["POST"],
            summary=PURPOSES[name],
            openapi_extra=operation(name, service.endpoints.get(name)),
        )

    async def describe() -> Response:
        return _respond(Answer(200, service.describe()))

    async def health() -> Response:
        return _respond(Answer(200, {"status": "ok", "model": service.name, "endpoints": [*service.endpoints]}))

    async def metrics() -> Response:
        return Response(str(service.metrics), media_type="text/plain; version=0.0.4; charset=utf-8")

    app.add_api_route("/v1/model", describe, summary="the model, its endpoints with examples, and the limits")
    app.add_api_route("/healthz", health, summary="whether the server answers")
    app.add_api_route("/metrics", metrics, summary="metrics in the text format of Prometheus")
    for path, file in {"/": "page.html", "/docs": "docs.html"}.items():
        app.add_api_route(path, _page(read_page(file)), include_in_schema=False)
    app.add_exception_handler(HTTPException, _routing_error(service))
    return app


def _route(service: Service, name: str) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def answer(request: Request) -> Response:
        return _respond(await service.answer(name, request))

    # FastAPI names operations after their functions.
    answer.__name__ = name
    return answer


def _page(content: str) -> Callable[[], Coroutine[Any, Any, Response]]:
    async def page() -> Response:
        return Response(content, media_type="text/html; charset=utf-8", headers=PAGE_HEADERS)

    return page


def _routing_error(service: Service) -> Callable[[Request, Exception], Coroutine[Any, Any, Response]]:
    async def explain(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 400
        path = request.url.path
        if status == 405:
            method = "POST" if path.startswith("/v1/") and path != "/v1/model" else "GET"
            sentence = f"{path} takes {method}, got {request.method}"
        else:
            sentence = f"nothing is at {path[:60]}; the model answers {service.abilities()}"
        headers = dict(getattr(error, "headers", None) or {})
        return _respond(Answer(status, {"error": sentence}), headers)

    return explain


def _respond(answer: Answer, headers: dict[str, str] | None = None) -> Response:
    extra = dict(_HEADERS, **(headers or {}))
    if answer.status in (429, 503):
        extra["Retry-After"] = "1"
    if answer.status in _UNREAD:
        # The rest of the body has not been read.
        extra["Connection"] = "close"
    return Response(to_json(answer.body), answer.status, extra, _JSON)


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
        self.transport.write(_plain_answer("400 Bad Request", sentence))
        self.transport.close()


def _plain_answer(status: str, sentence: str) -> bytes:
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
    previous = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
