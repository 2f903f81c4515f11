"""What a model can do over HTTP: texts of a request to rows of tokens, outputs of the model to answers."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, create_model

from lightbert.data.features import Features
from lightbert.errors import InputError, shorten
from lightbert.serve.requests import Texts
from lightbert.tasks.example import Example, TextEncoder, text_features
from lightbert.tasks.kinds.kind import Outputs
from lightbert.tasks.predict.inputs import Fields, check_pairs, example_of
from lightbert.tasks.predict.predictor import Predictor
from lightbert.tasks.predict.records import merge
from lightbert.tasks.predict.runtime import Array, Arrays, Runtime
from lightbert.tasks.predict.vectors import Embedder

if TYPE_CHECKING:
    from tokenizers import Encoding


PURPOSES = {
    "predict": "predictions of a fine-tuned model, as of `lightbert predict`",
    "embed": "one vector per text, as of `lightbert embed`",
    "fill": "candidates for each [MASK] of a text",
    "suspicion": "the probability of each word that it was replaced",
    "attention": "the attention maps and dynamic kernels of a layer",
}
"""Every endpoint, with its purpose."""


@dataclass(frozen=True)
class Prepared:
    """A request as rows of tokens, and the function that turns their outputs into one answer per text."""

    features: Features
    finish: Callable[[Outputs], list[Any]]
    runtime: Runtime | None = None
    """What computes the rows; None = the runtime of the endpoint."""

    @property
    def tokens(self) -> int:
        """The number of tokens to compute."""
        return len(self.features.tokens)


class Endpoint(Protocol):
    """Something that a model can do with texts, under ``/v1/NAME``."""

    @property
    def name(self) -> str:
        """The last part of the path."""

    @property
    def key(self) -> str:
        """The key of the answers."""

    @property
    def takes(self) -> str:
        """The texts that it takes, in words."""

    @property
    def example(self) -> Any:
        """A text to try."""

    @property
    def body(self) -> type[Texts]:
        """The body of a request: the texts, and options with their types and defaults."""

    @property
    def runtime(self) -> Runtime:
        """What computes the rows."""

    @property
    def encoder(self) -> TextEncoder:
        """The tokenizer, and the maximum number of tokens per row."""

    def prepare(self, texts: Sequence[Any], options: Mapping[str, Any]) -> Prepared:
        """Validate and tokenize texts; raise an InputError that names the text."""


def why_missing(name: str) -> str:
    """The reason why a model has no such endpoint, as the beginning of a sentence."""
    if name == "attention":
        return "an exported model records no attention maps; serve the folder that it was exported from"
    return f"the model has no head for /v1/{name} ({PURPOSES[name]})"


def require_strings(texts: Sequence[Any]) -> list[str]:
    """Check that every text is a string."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts[{number}] must be a string, got {shorten(text)}")
    return list(texts)


def as_example(number: int, text: Any) -> Example:
    """A text or a pair of texts of a request as an example without a label."""
    match text:
        case str():
            return Example(text)
        case [str() as first, str() as second]:
            return Example(first, second)
        case {"text": str() as first, "text_b": str() as second}:
            return Example(first, second)
        case {"text": str() as first} if "text_b" not in text:
            return Example(first)
    raise InputError(f"texts[{number}] must be a string or a pair of strings, got {shorten(text)}")


def decode_ids(encoder: TextEncoder, inputs: Sequence[Any], *, keep_special: bool = False) -> list[str]:
    """Texts and lists of token ids as texts, without [CLS], [SEP] and [PAD]."""
    size, specials = encoder.tokenizer.get_vocab_size(), encoder.specials
    left_out = () if keep_special else (specials.cls, specials.sep, specials.pad)
    texts = []
    for item in inputs:
        if isinstance(item, str):
            texts.append(item)
        elif all(0 <= number < size for number in item):
            ids = [number for number in item if number not in left_out]
            texts.append(encoder.tokenizer.decode(ids, skip_special_tokens=False))
        else:
            raise InputError(f"token ids must be in [0, {size - 1:,}], got {shorten(item)}")
    return texts


_PAIR = '["first", "second"] or {"text": "first", "text_b": "second"}'
_TAKES = {
    "spans": 'questions with their contexts: {"question": "…", "context": "…"} or ["question", "context"]',
    "tokens": 'texts: "…", or sentences of words: {"words": ["…", "…"]}',
}
_EXAMPLES = {
    "spans": {"question": "Who designed the bridge?", "context": "The old bridge was designed by Ada Brown in 1891."},
    "tokens": "Angela Brown visited Paris in May and met engineers of Siemens.",
}


class Predict:
    """Predicts texts with a fine-tuned model; an answer has the fields of its text, followed by the prediction."""

    name, key, body = "predict", "predictions", Texts

    def __init__(self, predictor: Predictor, runtime: Runtime) -> None:
        self.encoder, self.runtime, self.kind = predictor.encoder, runtime, predictor.kind
        self._task = predictor.model.task
        self._fields = Fields.of(self._task, allow_pairs=True)
        pairs = self._task.get("pairs")
        text = "A quiet film, beautifully made, that stays with you."
        self.takes = _TAKES.get(self.kind.name, f"pairs of texts: {_PAIR}" if pairs else 'texts: "…"')
        self.example = _EXAMPLES.get(self.kind.name, {"text": text, "text_b": "The film is good."} if pairs else text)

    def prepare(self, texts: Sequence[Any], options: Mapping[str, Any]) -> Prepared:
        """Convert texts to examples of the model's task, and tokenize them."""
        records = [self._record(text) for text in texts]
        examples = [self._example(number, record) for number, record in enumerate(records)]
        features = self.kind.features(examples, self.encoder)

        def finish(outputs: Outputs) -> list[Any]:
            predictions = self.kind.predictions(examples, features, outputs)
            return [merge(record, prediction) for record, prediction in zip(records, predictions, strict=True)]

        return Prepared(features, finish)

    def _record(self, text: Any) -> Any:
        """A text as the record that `lightbert predict` makes of it."""
        match text:
            case str() if self.kind.name != "spans":
                return {"text": text}
            case [str() as first, str() as second] if self.kind.name != "tokens":
                names = ("question", "context") if self.kind.name == "spans" else ("text", "text_b")
                return dict(zip(names, (first, second), strict=True))
        return text

    def _example(self, number: int, record: Any) -> Any:
        try:
            names = self._fields.names(record) if isinstance(record, Mapping) else None
            example = example_of(record, self.kind, names)
            if self._task.get("pairs") and getattr(example, "text_b", "") is None:
                raise InputError("the model requires a second text")
            if self.kind.name == "tokens" and getattr(example, "text_b", None) is not None:
                raise InputError(f"tagging requires a single text, got a pair; remove {shorten(example.text_b)}")
            check_pairs([example], self._task)
        except InputError as error:
            raise InputError(f"texts[{number}] is invalid: {error}; the model takes {self.takes}") from None
        return example


class Embed:
    """Encodes texts and pairs of texts as vectors."""

    name, key, body = "embed", "vectors", Texts
    takes = 'texts: "…", or pairs of texts: ["first", "second"]'
    example = "A quiet film, beautifully made, that stays with you."

    def __init__(self, embedder: Embedder, states: Runtime | None = None, pool: str = "mean") -> None:
        self._embedder, self._states, self.pool = embedder, states, pool
        self.encoder, self.runtime = embedder.encoder, embedder.runtime

    def prepare(self, texts: Sequence[Any], options: Mapping[str, Any]) -> Prepared:
        """Tokenize the texts.

        options: "size", the number of values to keep, and "normalize", for clients of other libraries; as of the model
        by default. "states": one vector per token.
        """
        examples = [as_example(number, text) for number, text in enumerate(texts)]
        features = self._embedder.features(examples)
        if options.get("states"):
            if self._states is None:
                raise InputError("the model was exported with pooled vectors and has no states of tokens")
            return Prepared(features, lambda outputs: [states.tolist() for (states,) in outputs], self._states)
        embedder = copy.copy(self._embedder)
        if (size := options.get("size")) is not None:
            if size > embedder.width:
                raise InputError(f"vectors have {embedder.width} values, got a request for {size}")
            embedder.width = size
        if (normalize := options.get("normalize")) is not None:
            embedder.normalize = normalize
        return Prepared(features, lambda outputs: embedder.finish(outputs).tolist())


class Suspicion:
    """Scores the words of a text; the suspicion of a word is the highest of its tokens."""

    name, key, body = "suspicion", "suspicions", Texts
    takes = 'texts: "…"'
    example = "The chef cooked the meal and the guests translated it at once."

    def __init__(self, encoder: TextEncoder, runtime: Runtime) -> None:
        self.encoder, self.runtime = encoder, runtime

    def prepare(self, texts: Sequence[Any], options: Mapping[str, Any]) -> Prepared:
        """Tokenize the texts."""
        strings = require_strings(texts)
        pieces = self.encoder.pieces(strings)

        def finish(outputs: Outputs) -> list[Any]:
            return [
                # The first output is that of [CLS]; words beyond the maximum length have none.
                {"text": text, "words": _words(text, encoding, 1 / (1 + np.exp(-logits[1:-1].astype(np.float64))))}
                for text, encoding, (logits,) in zip(strings, pieces, outputs, strict=True)
            ]

        return Prepared(text_features([Example(text) for text in strings], self.encoder, None), finish)


def _words(text: str, encoding: "Encoding", probabilities: Any) -> list[dict[str, Any]]:
    words: list[dict[str, Any]] = []
    last: int | None = None
    tokens = zip(encoding.word_ids, encoding.offsets, probabilities.tolist(), strict=False)
    for number, (start, end), probability in tokens:
        if words and number is not None and number == last:
            words[-1] |= {"end": end, "suspicion": max(words[-1]["suspicion"], probability)}
        else:
            words.append({"text": "", "start": start, "end": end, "suspicion": probability})
        last = number
    return [{**word, "text": text[word["start"] : word["end"]]} for word in words]


MOST_TEXTS = 8
"""Per request: an answer has a number per head and pair of tokens."""
MOST_TOKENS = 128
"""Per text; longer texts are truncated."""
_DIGITS = 4


class Attention:
    """Returns the maps of the attention heads of a layer, and the kernels of its convolution heads."""

    name, key = "attention", "maps"
    takes = 'texts: "…", or pairs of texts: ["first", "second"]'
    example = "We can carry water in a can."

    def __init__(self, encoder: TextEncoder, runtimes: Sequence[Runtime]) -> None:
        self.encoder = TextEncoder(encoder.tokenizer, min(encoder.length, MOST_TOKENS))
        self._runtimes, self.runtime = runtimes, runtimes[0]
        layer = Annotated[int, Field(ge=1, le=len(runtimes))]
        self.body: type[Texts] = create_model("LayerTexts", __base__=Texts, layer=(layer, 1))

    def prepare(self, texts: Sequence[Any], options: Mapping[str, Any]) -> Prepared:
        """Tokenize the texts."""
        if len(texts) > MOST_TEXTS:
            raise InputError(f"/v1/attention takes at most {MOST_TEXTS} texts per request, got {len(texts):,}")
        layer = options["layer"]
        features = text_features([as_example(number, text) for number, text in enumerate(texts)], self.encoder, None)

        def finish(outputs: Outputs) -> list[Any]:
            rows = np.split(features.tokens, features.starts[1:-1])
            return [self._answer(layer, row.tolist(), *maps) for row, maps in zip(rows, outputs, strict=True)]

        return Prepared(features, finish, self._runtimes[layer - 1])

    def _answer(self, layer: int, ids: Sequence[int], attention: Any, kernels: Any) -> dict[str, Any]:
        """Maps [T, H, padded T] and kernels [T, H, K] of one text, by head."""
        tokens = [self.encoder.tokenizer.id_to_token(token) or "" for token in ids]
        return {
            "tokens": tokens,
            "layer": layer,
            "layers": len(self._runtimes),
            "attention": _by_head(attention[..., : len(tokens)]),
            "kernels": _by_head(kernels) if kernels.shape[-1] else [],
        }


def _by_head(values: Any) -> list[Any]:
    """[T, H, N] as lists [H][T][N] of rounded numbers."""
    rounded: list[Any] = np.round(values.astype(np.float64).transpose(1, 0, 2), _DIGITS).tolist()
    return rounded


MASK = "[MASK]"
MOST = 50
"""The maximum number of candidates per mask."""
MOST_MASKS, MOST_CANDIDATES = 4096, 20_480
"""Per request."""
# Logits have one value per token and vocabulary entry, so that their batches are smaller than those of other heads.
_BATCH_TOKENS = (128, 1024)


class MaskedTexts(Texts):
    """Texts with masks, and the number of candidates for each mask."""

    top: Annotated[int, Field(ge=1, le=MOST)] = 5


class Fill:
    """Proposes tokens for each mask of a text, most probable first."""

    name, key, body = "fill", "fills", MaskedTexts
    takes = 'texts with [MASK]: "The [MASK] is red."'
    example = "The [MASK] of the function is a list of strings."

    def __init__(self, encoder: TextEncoder, runtime: Runtime) -> None:
        self.encoder = encoder
        self.runtime = _TopTokens(runtime, encoder.specials.mask)

    def prepare(self, texts: Sequence[Any], options: Mapping[str, Any]) -> Prepared:
        """Tokenize the texts, each of which must contain [MASK]."""
        strings, top = require_strings(texts), options["top"]
        masks = sum(text.count(MASK) for text in strings)
        for count, limit, what in (
            (masks, MOST_MASKS, f"the number of {MASK}"),
            (masks * top, MOST_CANDIDATES, f"the number of {MASK} times 'top'"),
        ):
            if count > limit:
                raise InputError(f"{what} must be at most {limit:,} per request, got {count:,}; send several requests")
        masked = [self._tokenize(number, text) for number, text in enumerate(strings)]
        rows = [self.encoder.row(row.ids) for row in masked]
        cut = sum(len(row.ids) + 2 > len(ids) for row, (ids, _) in zip(masked, rows, strict=True))

        def finish(outputs: Outputs) -> list[Any]:
            return [
                {
                    "text": text,
                    # The first output is that of [CLS].
                    "masks": [self._mask(start, ids[at + 1], shares[at + 1], top) for at, start in row.masks.items()],
                }
                for text, row, (ids, shares) in zip(strings, masked, outputs, strict=True)
            ]

        return Prepared(Features.of([row for row, _ in rows], [end for _, end in rows], cut=cut), finish)

    def _tokenize(self, number: int, text: str) -> "_MaskedText":
        """Tokenize what is between the masks; not every tokenizer reads "[MASK]" as one token."""
        parts, ids, masks, start = text.split(MASK), list[int](), dict[int, int](), 0
        if len(parts) == 1:
            raise InputError(f"texts[{number}] must contain {MASK} where a word is to be filled in")
        for part, pieces in zip(parts, self.encoder.pieces(parts), strict=True):
            ids += [*pieces.ids, self.encoder.specials.mask]
            start += len(part)
            masks[len(ids) - 1] = start
            start += len(MASK)
        # The last part is not followed by a mask.
        end, _ = masks.popitem()
        if max(masks) >= self.encoder.length - 2:
            raise InputError(
                f"texts[{number}] must have each {MASK} within its first {self.encoder.length - 2} tokens; shorten it"
            )
        return _MaskedText(ids[:end], masks)

    def _mask(self, start: int, ids: Any, shares: Any, top: int) -> dict[str, Any]:
        tokens = [self.encoder.tokenizer.id_to_token(number) or "" for number in ids[:top].tolist()]
        candidates = [
            {"token": token, "probability": share} for token, share in zip(tokens, shares.tolist(), strict=False)
        ]
        return {"start": start, "end": start + len(MASK), "candidates": candidates}


@dataclass(frozen=True)
class _MaskedText:
    """The tokens of a text, and the place of each mask among them -> its first character in the text."""

    ids: list[int]
    masks: dict[int, int]


class _TopTokens:
    """Runs an MLM head and keeps the best entries of the vocabulary at the masks: ids and probabilities [B, T, K]."""

    def __init__(self, runtime: Runtime, mask: int) -> None:
        self._runtime, self._mask = runtime, mask
        self.head, self.reads_padding, self.chunk = runtime.head, runtime.reads_padding, runtime.chunk
        self.batch_tokens = _BATCH_TOKENS

    def running(self) -> AbstractContextManager[object]:
        return self._runtime.running()

    def submit(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Callable[[], Arrays]:
        wait = self._runtime.submit(ids, mask, segments)

        def top_tokens() -> Arrays:
            (logits,) = wait()  # [B, T, V]
            count = min(MOST, logits.shape[-1])
            tokens, probabilities = np.zeros((*ids.shape, count), dtype=np.int64), np.zeros((*ids.shape, count))
            # One mask at a time: the scores of a vocabulary fit in the cache of a core, those of a batch don't.
            for row, place in np.argwhere(ids == self._mask):
                tokens[row, place], probabilities[row, place] = _best(logits[row, place], count)
            return tokens, probabilities

        return top_tokens


_GROUP = 16


def _best(scores: NDArray[np.float32], count: int) -> tuple[Array, NDArray[np.float32]]:
    """The numbers of the highest scores, best first, and their probabilities."""
    # The highest maxima of groups of scores are a lower bound of the highest scores, so that few are left to sort.
    groups = max(count, len(scores) // _GROUP)
    maxima = scores[: len(scores) // groups * groups].reshape(-1, groups).max(axis=0)
    candidates = np.flatnonzero(scores >= np.partition(maxima, -count)[-count])
    best = candidates[np.argsort(-scores[candidates], kind="stable")[:count]]
    shares = np.exp(scores - scores[best[0]])
    return best, shares[best] / shares.sum()
