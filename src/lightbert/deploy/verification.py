"""Compare an exported file with its model on inputs that cover the special cases of batching."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert.data.packing import padded_rows
from lightbert.models import Model
from lightbert.tasks.example import Example, TextEncoder, text_features
from lightbert.tasks.predict.runtime import Array, Arrays

SENTENCES = (
    "The train to the coast leaves at nine every morning.",
    "She opened the letter, read it twice and said nothing.",
    "Prices rose by 3.5 % in March, more than most economists had expected.",
    "Yes.",
    "Why do small models need fewer examples than large ones?",
    "The café on the corner sells bread, newspapers and, on Sundays, flowers.",
    "It was not the best film of the year, but the second half made up for a slow start.",
    "Version 2.0 removes the old interface; see the notes for what replaces it.",
)
"""What is compared if the user gives no texts."""

Compute = Callable[[Array, NDArray[np.bool_] | None, Array], Arrays]
"""Ids, mask and segments [B, T] to outputs."""

# Log-probabilities below this mark candidates that a head has masked out.
_MASKED = -1e30


@dataclass(frozen=True, eq=False)
class Batch:
    """One comparison's inputs."""

    name: str
    ids: Array
    mask: NDArray[np.bool_]
    segments: Array
    real: bool = True
    """Whether the tokens are those of texts, not random ones."""


@dataclass(frozen=True)
class Comparison:
    """How far the outputs of a file are from those of its model."""

    inputs: str
    rows: int
    tokens: int
    error: float
    """The largest difference, relative to the largest output if that is above 1."""
    cosine: float
    """The smallest cosine between the outputs for a text."""
    same: float
    """The fraction of predictions that agree: the largest of several outputs, or the sign of a single one."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return asdict(self)


def batches(model: Model, texts: Sequence[str] = ()) -> Iterator[Batch]:
    """Texts one by one and padded in a batch, pairs, one token, and the maximum length.

    A model without a tokenizer gets random tokens.
    """
    longest = min(model.positions or 512, 512)
    generator = np.random.default_rng(0)

    def random(name: str, *shape: int) -> Batch:
        ids = generator.integers(0, model.table.shape[0], shape)
        return Batch(name, ids, np.ones(shape, np.bool_), np.zeros(shape, np.int64), real=False)

    if model.tokenizer is None:
        yield random("one row", 1, min(12, longest))
        padded = random("4 rows, padded", 4, min(24, longest))
        yield replace(padded, mask=np.arange(padded.ids.shape[1]) < np.array([[3], [9], [17], [99]]))
    else:
        encoder = TextEncoder(model.tokenizer, longest)
        given = [Example(text) for text in (texts or SENTENCES)]
        yield _encoded("one text", given[:1], encoder)
        yield _encoded(f"{len(given)} texts, padded", given, encoder)
        pairs = [Example(one.text, other.text) for one, other in zip(given, given[::-1], strict=True)]
        yield _encoded("pairs of texts, padded", pairs[:4], encoder)
    yield random("one token", 1, 1)
    yield random("maximum length", 1, longest)


def _encoded(name: str, examples: Sequence[Example], encoder: TextEncoder) -> Batch:
    features = text_features(examples, encoder, None)
    padded = padded_rows(features, np.arange(len(features)), int(features.lengths.max()), encoder.specials.pad)
    return Batch(name, padded.ids, padded.mask, padded.segments)


def eager(inference: Callable[..., Sequence[torch.Tensor]]) -> Compute:
    """The outputs of a module of `lightbert.nn.inference`, as arrays."""

    def compute(ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Arrays:
        with torch.inference_mode():
            outputs = inference(*(None if each is None else torch.from_numpy(each) for each in (ids, mask, segments)))
        return tuple(output.float().numpy() if output.is_floating_point() else output.numpy() for output in outputs)

    return compute


def outputs_of(compute: Compute, inputs: Sequence[Batch]) -> list[Arrays]:
    """The outputs for each batch."""
    return [compute(batch.ids, batch.mask, batch.segments) for batch in inputs]


def compare(
    inputs: Sequence[Batch], expected: Sequence[Arrays], found: Sequence[Arrays], *, per_token: bool
) -> list[Comparison]:
    """Compare the outputs that a model and a file give for the same batches; `per_token` outputs are [B, T, …]."""
    return [_comparison(*each, per_token) for each in zip(inputs, expected, found, strict=True)]


def _comparison(batch: Batch, expected: Arrays, found: Arrays, per_token: bool) -> Comparison:
    mask = batch.mask if per_token else None
    pairs = [
        _real(one, other, mask)
        for one, other in zip(expected, found, strict=True)
        if np.issubdtype(one.dtype, np.floating)
    ]
    largest = max([1.0, *(float(np.abs(one).max(initial=0.0)) for one, _ in pairs)])
    return Comparison(
        inputs=batch.name,
        rows=batch.ids.shape[0],
        tokens=batch.ids.shape[1],
        error=max(float(np.abs(one - other).max(initial=0.0)) for one, other in pairs) / largest,
        cosine=min(_cosine(one, other) for one, other in pairs),
        same=float(np.mean([_agreement(one, other, mask) for one, other in pairs])),
    )


def _real(one: Array, other: Array, mask: NDArray[np.bool_] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Set the outputs of padding, and candidates that the model has masked out, to zero."""
    if one.shape != other.shape:
        return np.zeros((1, 1)), np.full((1, 1), np.inf)
    kept = np.ones_like(one, dtype=np.bool_)
    if mask is not None:
        kept &= mask.reshape(*mask.shape, *[1] * (one.ndim - 2))
    # Where the model has masked a candidate, the file must have masked it, too.
    wrong = kept & (one <= _MASKED) & (other > _MASKED)
    kept &= one > _MASKED
    found = np.where(kept, np.nan_to_num(other, nan=np.inf), 0.0)
    return np.where(kept, one, 0.0).astype(np.float64), np.where(wrong, np.inf, found).astype(np.float64)


def _cosine(one: NDArray[Any], other: NDArray[Any]) -> float:
    """The smallest cosine between the outputs for a text; of one number per text, between those of all texts.

    It is 0 if an output of the file isn't finite, and 1 if all outputs of both are zero.
    """
    if not np.isfinite(other).all():
        return 0.0
    rows = 1 if one.size == len(one) else len(one)
    one, other = one.reshape(rows, -1), other.reshape(rows, -1)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines = (one * other).sum(1) / np.where(lengths > 0, lengths, 1.0)
    # A beam search has no candidate in a text without a context.
    equal = ~(one.any(axis=1) | other.any(axis=1))
    return float(np.where(equal, 1.0, cosines).min())


def _agreement(one: NDArray[Any], other: NDArray[Any], mask: NDArray[np.bool_] | None) -> float:
    if one.size == len(one):
        return float(np.mean((one > 0) == (other > 0)))
    if one.ndim == 3 and mask is not None and one.shape[:2] == mask.shape:
        one, other = one[mask], other[mask]
    return float(np.mean(one.argmax(-1) == other.argmax(-1)))
