"""The batch of a training step: tensors with static shapes; rows of any length as padded or packed batches."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lightbert.data.features import IGNORE_INDEX, Features, Packing, packed_rows, padded_rows
from lightbert.errors import InputError


@dataclass(frozen=True)
class Batch:
    """One rank's part of the batch of a step, or a part of it for gradient accumulation.

    `rows` numbers the rows within the whole batch of the step, so that random numbers drawn from (step, row) don't
    depend on how the batch is distributed over ranks and accumulation steps. In pre-training, masking sets `positions`,
    `targets` and `weights`. In fine-tuning, `targets` contains a class [B], a number [B] or a binary value per label
    [B, C] for each row, a class [B, T] for each token with -100 where it is ignored, or an answer [B, 3]: its first and
    last token, and 1 if there is no answer.

    A fine-tuning batch of packed rows has N texts in B rows: `rows`, `starts`, `lengths` and the targets of whole texts
    are [N].
    """

    ids: Tensor  # [B, T] int64
    mask: Tensor  # [B, T] bool, or int32 that numbers the texts packed into a row, 0 = padding
    segments: Tensor  # [B, T] int64
    rows: Tensor  # [B] int64
    step: Tensor  # [] int64
    nsp: Tensor | None = None  # [B] int64, 1 = the second text is from another document
    positions: Tensor | None = None  # [B, P] int64
    targets: Tensor | None = None  # [B, P] int64, the masked tokens; or a task's, [B, …] int64 or float32
    weights: Tensor | None = None  # [B, P] float32, 1 = a prediction, 0 = padding
    starts: Tensor | None = None  # [N] int64, the place of each packed text in the flattened rows
    lengths: Tensor | None = None  # [N] int64, the number of tokens of each packed text
    vectors: Tensor | None = None  # [B, E] float32, a teacher's vectors of the texts

    def to(self, device: torch.device | str) -> "Batch":
        """Copy to a device; the copy from pinned memory is asynchronous."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> "Batch":
        """Copy to page-locked memory."""
        return self._each(Tensor.pin_memory)

    def copy_from(self, other: "Batch") -> None:
        """Copy the tensors of another batch of the same shapes into this one, for a recorded CUDA graph."""
        for field in fields(self):
            target, source = getattr(self, field.name), getattr(other, field.name)
            if target is not None and source is not None:
                target.copy_(source, non_blocking=True)

    def split(self, parts: int) -> list["Batch"]:
        """Split into equal parts for gradient accumulation, in row order."""
        if parts == 1:
            return [self]
        if self.starts is not None:
            raise InputError(f"a batch of packed rows can't be split, got accumulate={parts}; set accumulate=1")
        if len(self.rows) % parts:
            raise InputError(
                f"rows per process ({len(self.rows)}) must be a multiple of accumulate ({parts}); change either"
            )
        size = len(self.rows) // parts
        return [self._rows(at, at + size) for at in range(0, len(self.rows), size)]

    def _rows(self, start: int, end: int) -> "Batch":
        return self._each(lambda tensor: tensor[start:end] if tensor.dim() else tensor)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(tensor) for name, tensor in tensors.items() if tensor is not None})


Array = NDArray[np.int64]


def pad_rows(
    features: Features, chosen: Array, length: int, pad: int, *, rows: Array | None = None, step: int = 0
) -> Batch:
    """Pad the chosen rows to `length`; `rows` are their row numbers in the whole batch of the step."""
    padded = padded_rows(features, chosen, length, pad)
    return Batch(
        ids=torch.from_numpy(padded.ids),
        mask=torch.from_numpy(padded.mask),
        segments=torch.from_numpy(padded.segments),
        rows=torch.from_numpy(np.arange(len(chosen)) if rows is None else rows),
        step=torch.tensor(step),
        targets=_targets(features, chosen, padded.mask, padded.at),
    )


def pack_rows(
    features: Features, chosen: Array, packing: Packing, height: int, pad: int, *, rows: Array, step: int
) -> Batch:
    """Put the chosen rows of the features, as texts, into `height` packed rows; `rows` are their numbers in the batch.

    The texts keep their order, whatever their places.
    """
    packed = packed_rows(features, chosen, packing.starts, (height, packing.width), pad, len(chosen))
    return Batch(
        ids=torch.from_numpy(packed.ids),
        mask=torch.from_numpy(packed.texts),
        segments=torch.from_numpy(packed.segments),
        rows=torch.from_numpy(rows),
        step=torch.tensor(step),
        targets=_targets(features, chosen, packed.texts > 0, packed.at),
        starts=torch.from_numpy(packed.starts),
        lengths=torch.from_numpy(packed.lengths),
    )


def _targets(features: Features, chosen: Array, real: NDArray[np.bool_], at: Array) -> torch.Tensor | None:
    if features.targets is None:
        return None
    picked = np.where(real, features.targets[at], IGNORE_INDEX) if features.per_token else features.targets[chosen]
    return torch.from_numpy(np.ascontiguousarray(picked))
