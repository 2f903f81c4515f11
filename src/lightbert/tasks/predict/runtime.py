"""Run an inference backend on rows of any length, batched by length or packed; outputs have no padding."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features, PackedRows, Specials, group_by_length, pack, packed_rows, padded_rows
from lightbert.errors import InputError
from lightbert.tasks.kinds.kind import Outputs

Ints = NDArray[np.int64]

_NARROWEST = 128
# Texts are [CLS], [SEP] and at least two tokens on average, so that this is hardly ever the limit.
_TOKENS_PER_TEXT = 4


def packed_batches(
    features: Features, pad: int, max_tokens: int, *, positions: int = 0, texts_per_row: int | None = None
) -> Iterator[tuple[Ints, PackedRows]]:
    """Pack texts into rows, and yield batches of rows with the numbers of their texts.

    Texts of up to 128 tokens are in rows of 128, longer ones in rows of 256, 512 and so on, but not above `positions`.
    All batches of a width have as many rows as `max_tokens` allows, except the last: the next power of two.
    texts_per_row: the maximum number of texts in a row, a quarter of its tokens by default.
    """
    lengths = features.lengths
    widths = _row_widths(lengths, positions)
    for width in np.unique(widths).tolist():
        members = np.flatnonzero(widths == width)
        limit = texts_per_row or max(1, width // _TOKENS_PER_TEXT)
        packing = pack(lengths[members], width, limit)
        full = max(1, max_tokens // width)
        for first in range(0, packing.rows, full):
            rows = min(full, 1 << (packing.rows - first - 1).bit_length())
            chosen, starts = packing.part(first, first + rows)
            chosen = members[chosen]
            yield chosen, packed_rows(features, chosen, starts, (rows, width), pad, capacity=rows * limit)


def _row_widths(lengths: Ints, positions: int) -> Ints:
    """The width of the row for each text: 128, doubled until the text fits, at most `positions`."""
    doublings = np.ceil(np.log2(np.maximum(lengths, _NARROWEST) / _NARROWEST)).astype(np.int64)
    widths = _NARROWEST << doublings
    # A text beyond the positions keeps its length, so that the encoder can report it.
    return np.maximum(np.minimum(widths, positions), lengths) if positions else widths


Array = NDArray[np.int64]
Arrays = tuple[NDArray[Any], ...]

CPU_TOKENS = (256, 4096)
"""The minimum and maximum tokens per batch: roughly where convbert-small was fastest on one core of a Neoverse-N1."""
CPU_CHUNK = 1024
"""The number of texts to read ahead."""

_TOKENS_PER_ROW = 128
PER_TOKEN = ("states", "mlm", "rtd", "tokens", "span", "maps")
"""The heads with one output per token; the others have one per text, the beam head several candidates."""
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


@runtime_checkable
class PackingRuntime(Runtime, Protocol):
    """A backend that can compute several texts in one row, so that few shapes of batches serve texts of any length."""

    @property
    def packs(self) -> bool:
        """Whether the backend is faster with packed rows."""

    @property
    def positions(self) -> int:
        """The maximum number of tokens per row; 0 = unlimited."""

    def submit_packed(self, rows: PackedRows) -> Callable[[], Arrays]:
        """Start to compute packed rows; return a function that waits for the outputs.

        The first dimension of the outputs is the number of rows for the heads in `PER_TOKEN`, otherwise the number of
        texts, in order.
        """


class _Batch(NamedTuple):
    rows: Array
    wait: Callable[[], Arrays]
    split: Callable[[Arrays], Iterable[Arrays]]
    """Splits the outputs of the batch by row, without padding."""


def run(runtime: Runtime, features: Features, specials: Specials, batch: int = 0) -> Outputs:
    """Compute the outputs of each row, in order.

    Rows of similar length are batched together, or packed into rows of one width if the runtime prefers that. `batch`
    is in rows of 128 tokens: batches have more rows if they are shorter and fewer if they are longer, so that time and
    memory per batch are about constant; 0 = chosen by the runtime. The outputs for a text don't depend on the other
    texts of its batch.
    """
    outputs: list[Arrays] = [()] * len(features)
    maximum = batch * _TOKENS_PER_ROW or runtime.batch_tokens[1]
    pending: list[_Batch] = []

    def collect() -> None:
        rows, wait, split = pending.pop()
        arrays = wait()
        finite = all(np.isfinite(array).all() for array in arrays)
        for row, outputs[row] in zip(rows.tolist(), split(arrays), strict=True):
            if not finite and not all(np.isfinite(array).all() for array in outputs[row]):
                raise InputError(
                    "the outputs of the model are not finite: its training has diverged; train it again with a lower lr"
                )

    with runtime.running():
        if isinstance(runtime, PackingRuntime) and runtime.packs:
            batches = _packed(runtime, features, specials.pad, maximum)
        else:
            batches = _grouped(runtime, features, specials.pad, maximum)
        for submitted in batches:
            # Collect the previous outputs while the device computes the next ones.
            if pending:
                collect()
            pending.append(submitted)
        if pending:
            collect()
    return outputs


def _grouped(runtime: Runtime, features: Features, pad: int, maximum: int) -> Iterator[_Batch]:
    """Submit batches of rows of similar length."""
    lengths, minimum = features.lengths, runtime.batch_tokens[0]
    for rows in group_by_length(
        lengths, min_tokens=min(minimum, maximum), max_tokens=maximum, equal_lengths=runtime.reads_padding
    ):
        length = int(lengths[rows[-1]])
        inputs = padded_rows(features, rows, length, pad)
        # Without padding no mask is needed, which is faster.
        mask = inputs.mask if lengths[rows[0]] < length else None

        def split(arrays: Arrays, rows: Array = rows) -> Iterator[Arrays]:
            for size, outputs in zip(lengths[rows].tolist(), zip(*arrays, strict=True), strict=True):
                yield _remove_padding(outputs, size) if runtime.head in (*PER_TOKEN, "beam") else outputs

        yield _Batch(rows, runtime.submit(inputs.ids, mask, inputs.segments), split)


def _packed(runtime: PackingRuntime, features: Features, pad: int, maximum: int) -> Iterator[_Batch]:
    """Submit batches of packed rows."""
    # A search unpacks the texts into rows of their own, which takes memory for each text.
    per_row = 2 if runtime.head == "beam" else None
    for chosen, rows in packed_batches(features, pad, maximum, positions=runtime.positions, texts_per_row=per_row):

        def split(arrays: Arrays, rows: PackedRows = rows, count: int = len(chosen)) -> Iterator[Arrays]:
            if runtime.head not in PER_TOKEN:
                for outputs in zip(*arrays, strict=True):
                    yield _remove_padding(outputs, 0) if runtime.head == "beam" else outputs
                return
            flat = [array.reshape(-1, *array.shape[2:]) for array in arrays]
            for start, length in zip(rows.starts[:count].tolist(), rows.lengths[:count].tolist(), strict=True):
                yield tuple(array[start : start + length] for array in flat)

        yield _Batch(chosen, runtime.submit_packed(rows), split)


def _remove_padding(arrays: Arrays, length: int) -> Arrays:
    match arrays:
        case (start, end, score, impossible):
            # A beam search over few tokens fills up with masked candidates, including padding.
            real = score > _MASKED
            return start[real], end[real], score[real], impossible
    return tuple(array[:length] for array in arrays)
