"""Compare an exported file with its model on inputs that cover the special cases of batching."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert.data.batches.grouping import padded_rows
from lightbert.models import Model
from lightbert.tasks.example import Example
from lightbert.tasks.predict.forward import Array, Arrays
from lightbert.tasks.texts import TextEncoder, text_features

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


@dataclass(frozen=True)
class Batch:
    """One comparison's inputs."""

    name: str
    ids: Array
    mask: NDArray[np.bool_]
    segments: Array


@dataclass(frozen=True)
class Comparison:
    """How far the outputs of a file are from those of its model."""

    inputs: str
    rows: int
    tokens: int
    error: float
    """The largest difference, relative to the largest output if that is above 1."""
    cosine: float
    """The smallest cosine between the outputs of a row."""
    same: float
    """The fraction of predictions that agree: the largest of several outputs, or the sign of one."""

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
        return Batch(name, ids, np.ones(shape, np.bool_), np.zeros(shape, np.int64))

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


def compare(expected: Compute, found: Compute, inputs: Iterator[Batch]) -> list[Comparison]:
    """Compare two ways to compute the same outputs."""
    return [_comparison(batch, expected, found) for batch in inputs]


def _comparison(batch: Batch, expected: Compute, found: Compute) -> Comparison:
    ours, theirs = (compute(batch.ids, batch.mask, batch.segments) for compute in (expected, found))
    pairs = [
        _real(one, other, batch.mask)
        for one, other in zip(ours, theirs, strict=True)
        if np.issubdtype(one.dtype, np.floating)
    ]
    largest = max([1.0, *(float(np.abs(one).max(initial=0.0)) for one, _ in pairs)])
    return Comparison(
        inputs=batch.name,
        rows=batch.ids.shape[0],
        tokens=batch.ids.shape[1],
        error=max(float(np.abs(one - other).max(initial=0.0)) for one, other in pairs) / largest,
        cosine=min(_cosine(one, other) for one, other in pairs),
        same=float(np.mean([_agreement(one, other) for one, other in pairs])),
    )


def _real(one: NDArray[Any], other: NDArray[Any], mask: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The outputs of real tokens and of candidates that are not masked out, one row per prediction."""
    if one.shape != other.shape:
        return np.zeros((1, 1)), np.full((1, 1), np.inf)
    if one.shape[:2] == mask.shape:
        one, other = one[mask], other[mask]
    one, other = (each.astype(np.float64).reshape(len(each), -1) for each in (one, other))
    kept = one > _MASKED
    # Where the model has masked a candidate, the file must have masked it too.
    other = np.where(kept, other, np.where(other > _MASKED, np.inf, 0.0))
    return np.where(kept, one, 0.0), np.nan_to_num(other, nan=np.inf, posinf=np.inf, neginf=-np.inf)


def _cosine(one: NDArray[Any], other: NDArray[Any]) -> float:
    if not np.isfinite(other).all():
        return float("nan")
    if one.shape[1] == 1:
        one, other = one.reshape(1, -1), other.reshape(1, -1)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(1) / np.where(lengths > 0, lengths, 1.0)).min())


def _agreement(one: NDArray[Any], other: NDArray[Any]) -> float:
    if one.shape[1] == 1:
        return float(np.mean((one > 0) == (other > 0)))
    return float(np.mean(one.argmax(1) == other.argmax(1)))
