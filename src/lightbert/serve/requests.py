"""Bodies of requests: read within limits, checked by pydantic; a problem is one sentence."""

import json
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, from_json

from lightbert.errors import shorten

if TYPE_CHECKING:
    from starlette.requests import Request

# A client that is still sending would not read the answer, so that a part of what is too much is read and discarded.
_DISCARDED = 4

B = TypeVar("B", bound="Body")


class RequestError(Exception):
    """A request that can't be answered: the status code, and one sentence for the client."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Body(BaseModel):
    """The body of a request; unknown keys and other types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Texts(Body):
    """The body of a request to ``/v1/NAME``; other keys are the options of the endpoint."""

    texts: Annotated[list[Any], Field(min_length=1)]

    def options(self) -> dict[str, Any]:
        """The other keys."""
        return {name: value for name, value in self if name != "texts"}


def _as_list(value: Any) -> list[Any]:
    values = value if isinstance(value, list) and not _is_ids(value) else [value]
    if not values or not all(isinstance(item, str) or _is_ids(item) for item in values):
        raise ValueError("must be a text, the ids of its tokens, or a list of these")
    return values


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


Inputs = Annotated[list[Any], BeforeValidator(_as_list)]
"""One text or several, as strings or as the ids of their tokens."""
Ids = Annotated[list[list[int]], BeforeValidator(lambda value: [value] if _is_ids(value) else value)]
"""The ids of the tokens of one text or several."""


async def read(request: "Request", body: type[B], max_bytes: int) -> B:
    """Read and check the body of a JSON request."""
    content = await _read_bytes(request, max_bytes)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise RequestError(415, f"the content type must be application/json, got {shorten(media)}")
    try:
        value = from_json(content, allow_inf_nan=False)
        # A number such as 1e999 is read as infinity, which no answer can contain.
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise RequestError(400, f"the body must be valid JSON in UTF-8: {error}") from None
    try:
        return body.model_validate(value)
    except ValidationError as error:
        raise RequestError(400, _sentence(error.errors(include_url=False)[0], body)) from None


async def _read_bytes(request: "Request", limit: int) -> bytes:
    from starlette.requests import ClientDisconnect

    content, size = bytearray(), 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > _DISCARDED * limit:
                break
            if size <= limit:
                content += chunk
    except ClientDisconnect:
        raise RequestError(400, "the connection was closed before the body was complete") from None
    if size > limit:
        raise RequestError(413, f"the body must have at most {limit:,} bytes; send several requests")
    return bytes(content)


def _sentence(error: ErrorDetails, body: type[Body]) -> str:
    """A problem in words: "'top' must be less than or equal to 50, got 51"."""
    keys, message = error["loc"], error["msg"]
    match error["type"]:
        case "model_type":
            return f"the body must be a JSON object, got {shorten(error['input'])}"
        case "extra_forbidden" if len(keys) == 1:
            known = ", ".join(map(repr, body.model_fields))
            return f"the keys of the request must be {known}, got {shorten(keys[0])}"
        case "value_error":
            message = message.removeprefix("Value error, ")
        case "missing":
            return f"{_place(keys)} must be given"
        case _:
            message = message.replace("Input should", "must").replace("List should", "must")
            message = message.partition(" after validation")[0]
    return f"{_place(keys)} {message[:1].lower()}{message[1:]}, got {shorten(error['input'])}"


def _place(keys: tuple[int | str, ...]) -> str:
    first, *rest = keys or ("the body",)
    return repr(first) + "".join(f"[{key!r}]" for key in rest)
