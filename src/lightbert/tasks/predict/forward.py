"""Run an inference backend on rows of any length, batched by length; outputs have no padding."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lightbert.data.batches.grouping import group_by_length, padded_rows
from lightbert.data.examples.features import Features
from lightbert.data.examples.specials import Specials
from lightbert.errors import InputError
from lightbert.tasks.kinds.kind import Outputs

Array = NDArray[np.int64]
Arrays = tuple[NDArray[Any], ...]

CPU_TOKENS = (256, 4096)
"""The minimum and maximum tokens per batch: roughly where convbert-small was fastest on one core of a Neoverse-N1."""
CPU_CHUNK = 1024
"""The number of texts to read ahead."""

_TOKENS_PER_ROW = 128
_PER_TEXT = ("classify", "regress", "nsp", "pooler", "vector")
# Log-probabilities below this mark candidates that the head has masked out.
_MASKED = -1e30


class Runtime(Protocol):
    """The interface of an inference backend: a model in torch, an exported file, or another library."""

    @property
    def head(self) -> str:
        """The name of the head, or "vector"."""

    @property
    def reads_padding(self) -> bool:
        """Whether outputs depend on padding; if so, every batch contains rows of one length only."""

    @property
    def batch_tokens(self) -> tuple[int, int]:
        """The minimum and maximum tokens per batch that the backend runs fastest."""

    @property
    def chunk(self) -> int:
        """The number of texts to read ahead."""

    def running(self) -> AbstractContextManager[object]:
        """A context in which batches are submitted."""

    def submit(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Callable[[], Arrays]:
        """Start to compute a batch; return a function that waits for its outputs.

        ids, mask and segments are [B, T]; the mask is None if no row is padded. The outputs are those that
        `lightbert.nn.inference` documents for the head, in float32; the first dimension of each is B.
        """


def run(runtime: Runtime, features: Features, specials: Specials, batch: int = 0) -> Outputs:
    """Compute the outputs of each row, in order.

    Rows of similar length are batched together. `batch` is in rows of 128 tokens: batches have more rows if they are
    shorter and fewer if they are longer, so that time and memory per batch are about constant; 0 = chosen by the
    runtime. The outputs for a text don't depend on the other texts of its batch.
    """
    outputs: list[Arrays] = [()] * len(features)
    lengths, (minimum, maximum) = features.lengths, runtime.batch_tokens
    maximum = batch * _TOKENS_PER_ROW or maximum
    per_text = runtime.head in _PER_TEXT
    pending: list[tuple[Array, Callable[[], Arrays]]] = []

    def collect() -> None:
        rows, wait = pending.pop()
        arrays = wait()
        finite = all(np.isfinite(array).all() for array in arrays)
        for row, each in zip(rows.tolist(), zip(*arrays, strict=True), strict=True):
            outputs[row] = each if per_text else _remove_padding(each, int(lengths[row]))
            if not finite and not all(np.isfinite(array).all() for array in outputs[row]):
                raise InputError(
                    "the outputs of the model are not finite: its training has diverged; train it again with a lower lr"
                )

    with runtime.running():
        for rows in group_by_length(
            lengths, min_tokens=min(minimum, maximum), max_tokens=maximum, equal_lengths=runtime.reads_padding
        ):
            length = int(lengths[rows[-1]])
            inputs = padded_rows(features, rows, length, specials.pad)
            # Without padding no mask is needed, which is faster.
            mask = inputs.mask if lengths[rows[0]] < length else None
            wait = runtime.submit(inputs.ids, mask, inputs.segments)
            # Collect the previous outputs while the device computes the next ones.
            if pending:
                collect()
            pending.append((rows, wait))
        if pending:
            collect()
    return outputs


def _remove_padding(arrays: Arrays, length: int) -> Arrays:
    match arrays:
        case (start, end, score, impossible):
            # A beam search over few tokens fills up with masked candidates, including padding.
            found = score > _MASKED
            return start[found], end[found], score[found], impossible
    return tuple(array[:length] for array in arrays)
