"""The server as a FastAPI application: routes, their OpenAPI description, pages; runs it until a signal stops it."""

import hmac
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib.resources import files
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from lightbert.errors import InputError
from lightbert.serve import api, openai_api, tei_api
from lightbert.serve.api import ERRORS
from lightbert.serve.metrics import CONTENT_TYPE
from lightbert.serve.service import Route, Service

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


_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_PUBLIC = ("/healthz", "/health")
"""The addresses that require no key, besides the pages and the description of the API."""


def create_app(service: Service, key: str = "") -> FastAPI:
    """An application that answers for one model; when it shuts down, the worker finishes what it has.

    key: what requests must have in the header ``Authorization: Bearer KEY``; "" = everybody is answered.
    """

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

    async def metrics(_: Any) -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    routes = [
        *api.routes(service),
        *openai_api.routes(service),
        *tei_api.routes(service),
        Route("/metrics", "metrics", "metrics in the text format of Prometheus", metrics),
    ]
    for route in routes:
        app.add_api_route(
            route.path,
            _handler(service, route, "" if route.path in _PUBLIC else key),
            methods=["POST" if route.body else "GET"],
            summary=route.summary,
            openapi_extra=_operation(route),
        )
    for path, file in {"/": "page.html", "/docs": "docs.html"}.items():
        app.add_api_route(path, _page(read_page(file)), include_in_schema=False)
    app.add_exception_handler(HTTPException, _routing_error(service))
    return app


def _operation(route: Route) -> dict[str, Any]:
    """The body and the answers of an address in the description of the API."""
    operation = {"responses": {**route.description.get("responses", {}), **ERRORS}}
    if route.missing:
        return {"description": f"Not available: {route.missing}.", **operation}
    if route.body is not None:
        here = f"#/paths/{route.path.replace('/', '~1')}/post/requestBody/content/application~1json/schema"
        schema = route.body.model_json_schema(ref_template=f"{here}/$defs/{{model}}")
        content = {"schema": schema, "example": route.example}
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return {**route.description, **operation}


def _handler(service: Service, route: Route, key: str) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def answer(request: Request) -> Response:
        if key and not _has_key(request, key):
            sentence = "the request must have the header 'Authorization: Bearer KEY' with the key of the server"
            return _respond(401, route.error(401, sentence), {"WWW-Authenticate": "Bearer"})
        return _respond(*await service.answer(route, request))

    # FastAPI names operations after their functions.
    answer.__name__ = route.name
    return answer


def _has_key(request: Request, key: str) -> bool:
    sent = request.headers.get("authorization", "").removeprefix("Bearer ")
    # In constant time, so that the key can't be guessed letter by letter.
    return hmac.compare_digest(sent.encode("utf-8"), key.encode("utf-8"))


def _page(content: str) -> Callable[[], Coroutine[Any, Any, Response]]:
    async def page() -> Response:
        return Response(content, media_type="text/html; charset=utf-8", headers=PAGE_HEADERS)

    return page


def _routing_error(service: Service) -> Callable[[Request, Exception], Coroutine[Any, Any, Response]]:
    async def explain(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 400
        headers = dict(getattr(error, "headers", None) or {})
        path = request.url.path
        if status == 405:
            sentence = f"{path} takes {headers.get('Allow', 'another method')}, got {request.method}"
        else:
            sentence = f"nothing is at {path[:60]}; the model answers {service.abilities()}"
        return _respond(status, {"error": sentence}, headers)

    return explain


def _respond(status: int, content: Any, headers: Mapping[str, str] | None = None) -> Response:
    if isinstance(content, Response):
        return content
    extra = {**_HEADERS, **(headers or {})}
    if status in (429, 503):
        extra["Retry-After"] = "1"
    if status in (401, 404, 413):
        # The rest of the body has not been read.
        extra["Connection"] = "close"
    return Response(to_json(content), status, extra, "application/json")


HEAD_BYTES = 1 << 16
"""Bytes of the head of a request; more are answered with 400."""
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


def serve(service: Service, bound: socket.socket, ready: Callable[[str], None], key: str = "") -> None:
    """Answer requests until SIGTERM or SIGINT; then finish those that were accepted, and return.

    ready: called with the URL when the server accepts connections.
    """
    with bound, _default_signals_ignored():
        ready(url_of(bound))
        uvicorn.Server(server_settings(service, key)).run(sockets=[bound])


def server_settings(service: Service, key: str = "") -> uvicorn.Config:
    """The settings of uvicorn, with the limits of the service."""
    return uvicorn.Config(
        create_app(service, key),
        # uvicorn prefers httptools where it is installed, which doesn't limit the size of a head.
        http="h11",
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
