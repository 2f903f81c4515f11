"""Settings of fine-tuning that follow from the data: the values of the keys that are "auto".

The rules were found on fifteen sets of short texts, with 300 to 16,000 labels (lab/LOG.md). The data and the model
decide, not the device, so that an interrupted run resumes with the same settings anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

KEYS = ("epochs", "batch", "length", "lr", "layer_decay", "head.pool", "head.init", "change.depth")
"""The keys whose value can be "auto"."""

LENGTHS = (128, 256, 512)
_MAX_TRUNCATED = 0.05
"""The length is the smallest of these that truncates at most this share of the texts."""

_EXAMPLES, _TOKENS = 20_000, 1_500_000
"""Train on about this many examples, repeated, but on fewer if they have more tokens than this in all."""
_MIN_EPOCHS, _MAX_EPOCHS = 3, 30


@dataclass(frozen=True)
class Facts:
    """What the settings depend on."""

    kind: str
    pairs: bool
    rows: int
    tokens: float
    """The mean length of a text in tokens."""
    depth: int
    """The number of layers of the model."""
    pooled: bool
    """Whether the head can have any pool and no hidden layer; not if transformers' class fixes both."""


def length_for(lengths: Sequence[int], positions: int) -> int:
    """The length of rows for texts with these numbers of tokens."""
    count = len(lengths)
    fitting = (n for n in LENGTHS if sum(length > n for length in lengths) <= _MAX_TRUNCATED * count)
    length = next(fitting, LENGTHS[-1])
    return min(length, positions) if positions else length


def settings_for(facts: Facts) -> dict[str, Any]:
    """The value of each key in `KEYS` but the length."""
    single = facts.kind in ("classify", "labels", "regress") and not facts.pairs
    pooled = facts.pooled and facts.kind != "tokens"
    epochs = min(_EXAMPLES / facts.rows, _TOKENS / (facts.rows * facts.tokens))
    return {
        "epochs": float(round(min(_MAX_EPOCHS, max(_MIN_EPOCHS, epochs)))),
        "batch": 32,
        "lr": 5e-4,
        "layer_decay": 1.0,
        "head.pool": "mean-max" if pooled else "cls",
        "head.init": "probe" if pooled else "random",
        "change.depth": min(4, facts.depth) if single and facts.pooled else facts.depth,
    }
