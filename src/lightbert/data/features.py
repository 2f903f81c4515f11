"""Encoded examples of a task: token rows of any length, with their targets; and the ids of special tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


IGNORE_INDEX = -100
"""The target of tokens that are ignored in the loss, such as padding."""


@dataclass(frozen=True)
class Features:
    """Concatenated rows without padding; one example can have several rows, such as the windows of a long text."""

    tokens: NDArray[np.int32]  # [Σt]
    starts: NDArray[np.int64]  # [n + 1], the start of each row, and the end of the last
    seconds: NDArray[np.int64]  # [n], the start of the second segment within the row; the row length if there is none
    sources: NDArray[np.int64]  # [n], the example of each row
    targets: NDArray[Any] | None = None  # [n, …], or [Σt] for token targets
    per_token: bool = False
    cut: int = 0
    """The number of truncated rows."""

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each row."""
        return np.diff(self.starts)

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[int]],
        seconds: Sequence[int],
        sources: Sequence[int] | None = None,
        targets: NDArray[Any] | None = None,
        *,
        per_token: bool = False,
        cut: int = 0,
    ) -> "Features":
        """Concatenate rows; by default each row is its own example."""
        lengths = [len(row) for row in rows]
        return cls(
            tokens=np.fromiter((token for row in rows for token in row), dtype=np.int32, count=sum(lengths)),
            starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            seconds=np.asarray(seconds, dtype=np.int64),
            sources=np.arange(len(rows)) if sources is None else np.asarray(sources, dtype=np.int64),
            targets=targets,
            per_token=per_token,
            cut=cut,
        )

    @classmethod
    def concatenate(cls, parts: "Sequence[Features]") -> "Features":
        """The rows of several features, in order, without their targets; each row is its own example."""
        offsets = np.cumsum([0, *(len(part.tokens) for part in parts)])
        starts = [part.starts[:-1] + offset for part, offset in zip(parts, offsets, strict=False)]
        seconds = np.concatenate([part.seconds for part in parts])
        return cls(
            tokens=np.concatenate([part.tokens for part in parts]),
            starts=np.concatenate([*starts, offsets[-1:]]),
            seconds=seconds,
            sources=np.arange(len(seconds)),
            cut=sum(part.cut for part in parts),
        )


@dataclass(frozen=True)
class Specials:
    """The ids of the special tokens."""

    pad: int
    cls: int
    sep: int
    mask: int

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> "Specials":
        """Look up the ids under BERT's or SentencePiece's names."""
        return cls(
            pad=_id(tokenizer, "[PAD]", "<pad>"),
            cls=_id(tokenizer, "[CLS]"),
            sep=_id(tokenizer, "[SEP]"),
            mask=_id(tokenizer, "[MASK]"),
        )


def _id(tokenizer: "Tokenizer", *names: str) -> int:
    for name in names:
        index = tokenizer.token_to_id(name)
        if index is not None:
            return index
    raise InputError(f"the tokenizer has no {names[0]} token; train one with `lightbert prepare` or add the token")
