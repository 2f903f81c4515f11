"""Compare an exported file with its model on inputs that cover the special cases of batching."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lightbert.data.features import Features, padded_rows
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.encoder import Encoder
from lightbert.nn.inference import Inference, TextVector
from lightbert.nn.pooling_settings import PROJECTION, Pooling
from lightbert.tasks.example import Example, TextEncoder, text_features
from lightbert.tasks.predict.exported import STATES
from lightbert.tasks.predict.predictor import encoder_of, kind_of_model
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
PER_TOKEN = (STATES, "mlm", "rtd", "tokens", "span")
"""The heads with outputs for each token."""

_CALIBRATION_ROWS = 8
# Log-probabilities below this mark candidates that a head has masked out.
_MASKED = -1e30

Compute = Callable[[Array, NDArray[np.bool_] | None, Array], Arrays]
"""Ids, mask and segments [B, T] to outputs."""


@dataclass(frozen=True, eq=False)
class Batch:
    """One comparison's inputs."""

    name: str
    ids: Array
    mask: NDArray[np.bool_]
    segments: Array
    real: bool = True
    """Whether the tokens are those of texts, not random ones."""

    @property
    def arrays(self) -> tuple[Array, NDArray[np.bool_], Array]:
        """The inputs of a file."""
        return self.ids, self.mask, self.segments


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


class Source:
    """A model and the head to export, with the outputs that its file must have.

    shortest: the number of tokens of the shortest rows that the target supports without padding.
    trained: the model as quantization-aware training ran it, if the file must compute that.
    """

    def __init__(self, model: Model, head: str, shortest: int = 1, trained: Model | None = None) -> None:
        self.model = model.eval().requires_grad_(False).to("cpu", torch.float32)
        self.head = head
        minimum = shortest if model.released_padding else 1
        self.inputs = [batch for batch in batches(model) if batch.ids.shape[1] >= minimum]
        compute = reference(trained or self.model, head)
        self._expected = {batch: compute(*batch.arrays) for batch in self.inputs}

    @property
    def texts(self) -> list[Batch]:
        """The inputs that are real texts; all if the model has no tokenizer."""
        return [batch for batch in self.inputs if batch.real] or self.inputs

    def compare(self, compute: Compute, inputs: Sequence[Batch]) -> list[Comparison]:
        """Compare the outputs for some of the inputs."""
        per_token = self.head in PER_TOKEN
        return [compare(batch, self._expected[batch], compute(*batch.arrays), per_token=per_token) for batch in inputs]


class Outputs(nn.Module):
    """What a file computes: ids, mask and segments [B, T] to a tuple of outputs."""

    def __init__(self, model: Encoder, head: str) -> None:
        super().__init__()
        encoder, pooling = (model.encoder, model.pooling) if isinstance(model, Model) else (model, None)
        self.normalize, self.choice = False, head == "choice"
        if head == PROJECTION and pooling is not None:
            self.normalize = pooling.normalize
            self.module: nn.Module = TextVector(encoder, pooling.pool, projection=pooling.projection)
        else:
            self.module = encoder if self.choice or head == STATES else Inference(encoder, head)
        self.eval()

    def forward(self, ids: Tensor, mask: Tensor | None, segments: Tensor) -> tuple[Tensor, ...]:
        """Compute the outputs."""
        outputs = self.module(ids, mask, segments)
        if self.choice:
            outputs = self.module.get_submodule("heads.choice")(outputs, 1)
        outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
        if not self.normalize:
            return outputs
        # With operators that a reader of .pt2 files knows.
        return tuple(vector / (vector * vector).sum(-1, keepdim=True).clamp(min=1e-24).sqrt() for vector in outputs)


def sentence_pooling(model: Model, head: str) -> Pooling | None:
    """The pooling of a sentence encoder if its vectors are exported, else None."""
    return model.pooling if head == PROJECTION else None


def reference(model: Model, head: str) -> Compute:
    """The outputs of the model itself, as arrays."""
    module = Outputs(model, head)

    def compute(ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Arrays:
        with torch.inference_mode():
            outputs = module(*(None if array is None else torch.from_numpy(array) for array in (ids, mask, segments)))
        return tuple(output.float().numpy() if output.is_floating_point() else output.numpy() for output in outputs)

    return compute


def batches(model: Model) -> Iterator[Batch]:
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
        examples = [Example(text) for text in SENTENCES]
        pairs = [Example(one, other) for one, other in zip(SENTENCES, SENTENCES[::-1], strict=True)]
        for name, chosen in (
            ("one text", examples[:1]),
            (f"{len(examples)} texts, padded", examples),
            ("pairs of texts, padded", pairs[:4]),
        ):
            features = text_features(chosen, encoder, None)
            yield _padded(name, features, np.arange(len(features)), encoder.specials.pad)
    yield random("one token", 1, 1)
    yield random("maximum length", 1, longest)


def reads_texts(model: Model, head: str) -> bool:
    """Whether a head has no task with examples of its own: the states, and vectors without a projection."""
    return head == STATES or head not in model.heads


def calibration_batches(model: Model, examples: Iterable[Any], head: str) -> list[Batch]:
    """Examples of the model's task, encoded as in prediction; texts or pairs of texts if it reads nothing else."""
    encoder = encoder_of(model)
    if reads_texts(model, head):
        features = text_features(list(examples), encoder, None)
    else:
        features = kind_of_model(model).features(list(examples), encoder)
    if not len(features):
        raise InputError("the data for calibration must have at least one text, got none")
    order = np.argsort(features.lengths, kind="stable")
    return [
        _padded("calibration", features, order[start : start + _CALIBRATION_ROWS], encoder.specials.pad)
        for start in range(0, len(order), _CALIBRATION_ROWS)
    ]


def _padded(name: str, features: Features, rows: Array, pad: int) -> Batch:
    padded = padded_rows(features, rows, int(features.lengths[rows].max()), pad)
    return Batch(name, padded.ids, padded.mask, padded.segments)


def compare(batch: Batch, expected: Arrays, outputs: Arrays, *, per_token: bool) -> Comparison:
    """Compare the outputs that a model and a file give for a batch; `per_token` outputs are [B, T, …]."""
    mask = batch.mask if per_token else None
    pairs = [
        _real(one, other, mask)
        for one, other in zip(expected, outputs, strict=True)
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
    other = np.where(wrong, np.inf, np.where(kept, np.nan_to_num(other, nan=np.inf), 0.0))
    return np.where(kept, one, 0.0).astype(np.float64), other.astype(np.float64)


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
