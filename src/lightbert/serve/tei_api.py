"""The addresses of text-embeddings-inference, for Hugging Face's clients."""

from importlib.metadata import version
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field
from starlette.responses import Response

from lightbert.serve.endpoints import Embed, Predict, decode_ids
from lightbert.serve.requests import Body, Ids, Inputs, RequestError
from lightbert.serve.service import Route, Service


class Options(Body):
    """What is common to the requests: whether long texts are truncated, at their end."""

    truncate: bool | None = None
    truncation_direction: Literal["Right", "right"] | None = None


class StatesRequest(Options):
    """The body of a request to ``/embed_all``."""

    inputs: Inputs


class EmbedRequest(StatesRequest):
    """The body of a request to ``/embed``."""

    normalize: bool | None = True
    dimensions: Annotated[int | None, Field(ge=1)] = None


def _sequences(value: Any) -> Any:
    """A text, a pair of texts, or a list of lists of one or two texts, as it is."""
    batch = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    for item in batch:
        texts = item if isinstance(item, list) else [item]
        if len(texts) not in (1, 2) or not all(isinstance(text, str) for text in texts):
            raise ValueError("must be a text, a pair of texts, or a list of lists of one or two texts")
    return value


class PredictRequest(Options):
    """The body of a request to ``/predict``."""

    inputs: Annotated[Any, BeforeValidator(_sequences)]
    raw_scores: Literal[False] | None = None
    parameters: Annotated[Options | None, Field(description="Options, as huggingface_hub sends them.")] = None


class Sentences(Body):
    """A sentence and those that it is compared with."""

    source_sentence: str
    sentences: Annotated[list[str], Field(min_length=1)]


class SimilarityRequest(Body):
    """The body of a request to ``/similarity``."""

    inputs: Sentences
    parameters: Options | None = None


class TokenizeRequest(Body):
    """The body of a request to ``/tokenize``."""

    inputs: Inputs
    add_special_tokens: bool = True


class DecodeRequest(Body):
    """The body of a request to ``/decode``."""

    ids: Ids
    skip_special_tokens: bool = True


_ERRORS = {413: "Validation", 422: "Tokenizer", 429: "Overloaded", 503: "Overloaded", 500: "Backend"}


def error_body(status: int, sentence: str) -> dict[str, Any]:
    """An error with the kinds of text-embeddings-inference."""
    return {"error": sentence, "error_type": _ERRORS.get(status, "Validation")}


def routes(service: Service) -> list[Route]:
    """The routes for this model; ``POST /`` embeds, or predicts if the model is a classifier."""

    async def embedded(texts: list[Any], options: Options, **settings: Any) -> list[Any]:
        texts = decode_ids(service.encoder, texts)
        answers = await service.compute("embed", texts, settings, truncate=options.truncate is not False)
        return answers.items

    async def embed(body: EmbedRequest) -> list[Any]:
        return await embedded(body.inputs, body, normalize=body.normalize is not False, size=body.dimensions)

    async def embed_all(body: StatesRequest) -> list[Any]:
        return await embedded(body.inputs, body, states=True)

    async def similarity(body: SimilarityRequest) -> list[float]:
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        source, *others = np.array(await embedded(texts, body.parameters or Options(), normalize=True))
        return [float(source @ other) for other in others]

    async def predict(body: PredictRequest) -> list[Any]:
        is_batch = isinstance(body.inputs, list) and isinstance(body.inputs[0], list)
        sequences = body.inputs if is_batch else [body.inputs]
        texts = [item[0] if isinstance(item, list) and len(item) == 1 else item for item in sequences]
        truncate = False not in (body.truncate, body.parameters and body.parameters.truncate)
        answers = await service.compute("predict", texts, truncate=truncate)
        rows = [_scores(answer) for answer in answers.items]
        return rows if is_batch else rows[0]

    async def tokenize(body: TokenizeRequest) -> list[Any]:
        encoder = service.encoder
        pieces = encoder.pieces(decode_ids(encoder, body.inputs))
        rows = [
            [_token(*token) for token in zip(piece.ids, piece.tokens, piece.offsets, strict=True)] for piece in pieces
        ]
        if not body.add_special_tokens:
            return rows
        first, last = (
            _token(token, encoder.tokenizer.id_to_token(token))
            for token in (encoder.specials.cls, encoder.specials.sep)
        )
        return [[first, *row, last] for row in rows]

    async def decode(body: DecodeRequest) -> list[str]:
        return decode_ids(service.encoder, body.ids, keep_special=not body.skip_special_tokens)

    async def info(_: Any) -> dict[str, Any]:
        return _info(service)

    async def health(_: Any) -> Response:
        return Response()

    classifies = _labels(service) is not None
    text = "A quiet film, beautifully made."
    compared = {"source_sentence": text, "sentences": ["A silent movie.", "The train was late."]}
    posted: list[tuple[str, str, Any, type[Body], Any]] = [
        ("embed", "vectors, of length 1 by default", embed, EmbedRequest, {"inputs": text}),
        ("embed_all", "the vector of each token", embed_all, StatesRequest, {"inputs": text}),
        ("predict", "the labels of texts with their scores", predict, PredictRequest, {"inputs": text}),
        ("similarity", "cosines of a sentence and others", similarity, SimilarityRequest, {"inputs": compared}),
        ("tokenize", "the tokens of texts", tokenize, TokenizeRequest, {"inputs": text}),
        ("decode", "the texts of token ids", decode, DecodeRequest, {"ids": [[1, 2]]}),
    ]
    root = posted[2] if classifies else posted[0]
    return [
        *(
            Route(f"/{path}", f"tei_{name}", summary, answer, body, example=example, error=error_body)
            for path, (name, summary, answer, body, example) in (
                *((row[0], row) for row in posted),
                ("", ("root", f"as of /{root[0]}", *root[2:])),
            )
        ),
        Route("/info", "info", "the model and the limits", info, error=error_body),
        Route("/health", "health", "whether the server answers", health, error=error_body),
    ]


def _scores(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The labels of a prediction with their probabilities, most probable first; a number is one score."""
    if "probabilities" in answer:
        labels = sorted(answer["probabilities"].items(), key=lambda label: -label[1])
        return [{"label": label, "score": score} for label, score in labels]
    if isinstance(answer.get("score"), float) and "answer" not in answer:
        return [{"label": "score", "score": answer["score"]}]
    raise RequestError(404, "/predict answers for classifiers and regressions; ask /v1/predict")


def _token(number: int, text: str | None, place: tuple[int, int] | None = None) -> dict[str, Any]:
    start, stop = place or (None, None)
    return {"id": number, "text": text, "special": place is None, "start": start, "stop": stop}


def _labels(service: Service) -> list[str] | None:
    predict = service.endpoints.get("predict")
    labels = getattr(predict.kind, "labels", None) if isinstance(predict, Predict) else None
    return None if labels is None else list(labels)


def _info(service: Service) -> dict[str, Any]:
    labels, embed, limits = _labels(service), service.endpoints.get("embed"), service.limits
    if labels is not None:
        names = {str(number): label for number, label in enumerate(labels)}
        kind: dict[str, Any] = {"classifier": {"id2label": names, "label2id": {v: int(k) for k, v in names.items()}}}
    else:
        kind = {"embedding": {"pooling": embed.pool}} if isinstance(embed, Embed) else {}
    return {
        "model_id": service.name,
        "model_sha": None,
        "model_dtype": "float32",
        "model_type": kind,
        "max_concurrent_requests": limits.queue,
        "max_input_length": service.encoder.length,
        "max_batch_tokens": limits.round_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": limits.texts,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": version("lightbert"),
        "sha": None,
        "docker_label": None,
    }
