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

_EXAMPLES, _SENTENCES, _TOKENS = 20_000, 40_000, 1_500_000
"""Train on about this many texts, or sentences with tags, repeated; but on fewer if they have this many tokens."""
_MIN_EPOCHS, _MAX_EPOCHS = 3, 30

_FEW_LAYERS = 4
"""The lower layers know most about words and topics. The upper ones help to compare two texts, and with many labels."""
_MAX_TEXTS_OF_FEW_LAYERS, _MAX_SENTENCES_OF_FEW_LAYERS = 20_000, 5_000
_FEW_TEXTS = 1_000
_SMALL_WIDTH = 256


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
    width: int
    imported: bool = False
    """Whether the model comes from transformers, and is to be written back for its classes."""
    hidden: bool = False
    """Whether the head has a layer before the output layer."""


def length_for(lengths: Sequence[int], positions: int) -> int:
    """The length of rows for texts with these numbers of tokens."""
    count = len(lengths)
    fitting = (n for n in LENGTHS if sum(length > n for length in lengths) <= _MAX_TRUNCATED * count)
    length = next(fitting, LENGTHS[-1])
    return min(length, positions) if positions else length


def settings_for(facts: Facts) -> dict[str, Any]:
    """The value of each key in `KEYS` but the length."""
    tags = facts.kind == "tokens"
    # Large models, and those that transformers reads, have the rate and the layer decay of ELECTRA.
    small = facts.width <= _SMALL_WIDTH and not facts.imported
    most = _MAX_SENTENCES_OF_FEW_LAYERS if tags else _MAX_TEXTS_OF_FEW_LAYERS
    few_layers = small and not facts.pairs and facts.rows <= most
    depth = min(_FEW_LAYERS, facts.depth) if few_layers else facts.depth
    pooled = not tags and not facts.imported
    epochs = min((_SENTENCES if tags else _EXAMPLES) / facts.rows, _TOKENS / (facts.rows * facts.tokens))
    rate = 5e-4 if depth <= _FEW_LAYERS and facts.rows > _FEW_TEXTS else 3e-4
    return {
        "epochs": float(round(min(_MAX_EPOCHS, max(_MIN_EPOCHS, epochs)))),
        "batch": 32,
        "lr": rate if small else 1e-4,
        "layer_decay": 1.0 if small else 0.8,
        "head.pool": "mean-max" if pooled else "cls",
        "head.init": "probe" if (tags or not facts.hidden) and not facts.imported else "random",
        "change.depth": depth,
    }
