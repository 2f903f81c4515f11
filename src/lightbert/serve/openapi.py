"""The OpenAPI description of an endpoint: its request, its answers and its errors."""

from typing import Any

from lightbert.serve.endpoints import PURPOSES, why_missing
from lightbert.serve.endpoints.endpoint import Endpoint

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
