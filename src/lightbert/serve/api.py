"""Our own addresses: ``/v1/NAME`` for each endpoint, the description of the model, and its health."""

from typing import Any

from lightbert.serve.endpoints import PURPOSES, why_missing
from lightbert.serve.requests import Texts
from lightbert.serve.service import Route, Service

_STATUSES = {
    "400": "The request is malformed; the sentence names what must hold and what was given.",
    "401": "The server requires a key, and the request has none or another one.",
    "404": "The model has no such endpoint; the sentence says why and names what it can do.",
    "413": "The body, the number of texts or the number of tokens is above the limit.",
    "415": "The content type is not application/json.",
    "429": "Too many requests are waiting; try again.",
    "503": "The request was not answered in time; try again.",
}
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
ERRORS = {
    status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
    for status, text in _STATUSES.items()
}
"""The errors of every address in the description of the API."""


def routes(service: Service) -> list[Route]:
    """A route per endpoint, of which some say why the model lacks it; ``/v1/model`` and ``/healthz``."""

    async def describe(_: Any) -> dict[str, Any]:
        return _description(service)

    async def health(_: Any) -> dict[str, Any]:
        return {"status": "ok", "model": service.name, "endpoints": [*service.endpoints]}

    return [
        *(_route(service, name) for name in PURPOSES),
        Route("/v1/model", "model", "the model, its endpoints with examples, and the limits", describe),
        Route("/healthz", "healthz", "whether the server answers", health),
    ]


def _route(service: Service, name: str) -> Route:
    endpoint = service.endpoints.get(name)
    if endpoint is None:
        return Route(f"/v1/{name}", name, PURPOSES[name], _nothing, Texts, missing=why_missing(name))
    key = endpoint.key

    async def answer(body: Texts) -> dict[str, Any]:
        answers = await service.compute(name, body.texts, body.options())
        return {key: answers.items, **({"truncated": answers.truncated} if answers.truncated else {})}

    properties = {
        key: {"type": "array", "description": f"One per text, in order: {PURPOSES[name]}."},
        "truncated": {"type": "integer", "description": "The number of truncated texts, if there are any."},
    }
    schema = {"type": "object", "properties": properties}
    return Route(
        f"/v1/{name}",
        name,
        PURPOSES[name],
        answer,
        endpoint.body,
        example={"texts": [endpoint.example]},
        description={
            "description": f"Takes {endpoint.takes}.",
            "responses": {
                "200": {"description": "One answer per text.", "content": {"application/json": {"schema": schema}}}
            },
        },
    )


async def _nothing(_: Any) -> None:
    """What a missing endpoint would answer."""


def _description(service: Service) -> dict[str, Any]:
    limits = service.limits
    return {
        "model": service.name,
        "endpoints": {
            name: {
                "path": f"/v1/{name}",
                "purpose": PURPOSES[name],
                "takes": endpoint.takes,
                "example": endpoint.example,
            }
            for name, endpoint in service.endpoints.items()
        },
        "limits": {"bytes": limits.body, "texts": limits.texts, "tokens": limits.tokens},
    }
