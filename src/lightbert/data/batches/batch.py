"""What a step trains on: tensors with static shapes, and where in the run they belong."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightbert.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Specials:
    """The ids of the tokens that are no text."""

    pad: int
    cls: int
    sep: int
    mask: int

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> "Specials":
        """Look the ids up under their usual names, BERT's or SentencePiece's."""
        return cls(
            pad=_id(tokenizer, "[PAD]", "<pad>"),
            cls=_id(tokenizer, "[CLS]"),
            sep=_id(tokenizer, "[SEP]"),
            mask=_id(tokenizer, "[MASK]"),
        )


@dataclass(frozen=True)
class Batch:
    """One rank's share of a step's batch, or a part of it.

    `rows` numbers the rows within the whole batch of the step: random numbers made from (step, row) don't depend on
    how the batch is shared out between ranks and accumulation steps. Pre-training has `positions`, `targets` and
    `weights` once tokens are masked; the batch of a task comes with `targets`: a class [B], a number [B] or a yes or no
    for each label [B, C] per row, a class [B, T] per token with -100 where none is asked for, or an answer [B, 3]: its
    first and last token, and 1 when there is none.
    """

    ids: Tensor  # [B, T] int64
    mask: Tensor  # [B, T] bool, or int32 that numbers the texts packed into a row, 0 = padding
    segments: Tensor  # [B, T] int64
    rows: Tensor  # [B] int64
    step: Tensor  # [] int64
    nsp: Tensor | None = None  # [B] int64, 1 = the second text is a stranger
    positions: Tensor | None = None  # [B, P] int64
    targets: Tensor | None = None  # [B, P] int64, the masked tokens; or a task's, [B, …] int64 or float32
    weights: Tensor | None = None  # [B, P] float32, 1 = a prediction, 0 = filler

    def to(self, device: torch.device | str) -> "Batch":
        """Copy to a device; from pinned memory the copy does not wait."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> "Batch":
        """Copy to page-locked memory."""
        return self._each(Tensor.pin_memory)

    def copy_from(self, other: "Batch") -> None:
        """Overwrite the tensors with another batch's of the same shapes, as a recorded step needs it."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine is not None and theirs is not None:
                mine.copy_(theirs, non_blocking=True)

    def split(self, parts: int) -> list["Batch"]:
        """Cut into equal parts for gradient accumulation, in the order of the rows."""
        if len(self.rows) % parts:
            raise InputError(
                f"{len(self.rows)} rows can't be cut into {parts} equal parts; change batch or accumulation"
            )
        size = len(self.rows) // parts
        return [self._rows(at, at + size) for at in range(0, len(self.rows), size)]

    def _rows(self, start: int, end: int) -> "Batch":
        return self._each(lambda tensor: tensor[start:end] if tensor.dim() else tensor)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(tensor) for name, tensor in tensors.items() if tensor is not None})


def _id(tokenizer: "Tokenizer", *names: str) -> int:
    for name in names:
        index = tokenizer.token_to_id(name)
        if index is not None:
            return index
    raise InputError(f"the tokenizer has no {names[0]} token; train one with `lightbert prepare` or add the token")
