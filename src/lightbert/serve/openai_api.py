"""OpenAI's addresses: ``/v1/embeddings`` and ``/v1/models``."""

import base64
import time
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from lightbert.serve.endpoints import decode_ids
from lightbert.serve.requests import Body, Inputs, RequestError
from lightbert.serve.service import Route, Service


class EmbeddingRequest(Body):
    """The body of a request to ``/v1/embeddings``."""

    input: Inputs
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1)] = None
    user: Annotated[str | None, Field(description="The end user; not used.")] = None


def error_body(status: int, sentence: str) -> dict[str, Any]:
    """An error as OpenAI's clients read it."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status, "invalid_request_error")
    return {
        "error": {
            "message": sentence,
            "type": "server_error" if status >= 500 else kind,
            "param": None,
            "code": "model_not_found" if status == 404 else None,
        }
    }


def routes(service: Service) -> list[Route]:
    """The routes of OpenAI's embeddings and models."""
    started = int(time.time())
    description = {"id": service.name, "object": "model", "created": started, "owned_by": "lightbert"}

    def check_model(name: str) -> None:
        if name != service.name:
            raise RequestError(404, f"the model must be {service.name!r}, the one that is served, got {name!r}")

    async def embeddings(body: EmbeddingRequest) -> dict[str, Any]:
        check_model(body.model)
        texts = decode_ids(service.encoder, body.input)
        answers = await service.compute("embed", texts, {"normalize": True, "size": body.dimensions})
        usage = {"prompt_tokens": answers.tokens, "total_tokens": answers.tokens}
        vectors = answers.items
        if body.encoding_format == "base64":
            vectors = [base64.b64encode(np.array(vector, dtype="<f4").tobytes()).decode() for vector in vectors]
        data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
        return {"object": "list", "data": data, "model": service.name, "usage": usage}

    async def models(_: Any) -> dict[str, Any]:
        return {"object": "list", "data": [description]}

    async def model(parameters: Any) -> dict[str, Any]:
        check_model(parameters["name"])
        return description

    example = {"model": service.name, "input": ["A quiet film, beautifully made."]}
    return [
        Route(
            "/v1/embeddings",
            "embeddings",
            "vectors of length 1 for OpenAI's clients",
            embeddings,
            EmbeddingRequest,
            example=example,
            error=error_body,
        ),
        Route("/v1/models", "models", "the model that is served, for OpenAI's clients", models, error=error_body),
        Route("/v1/models/{name:path}", "model_by_name", "the same by its name", model, error=error_body),
    ]
