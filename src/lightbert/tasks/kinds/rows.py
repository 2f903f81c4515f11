"""Texts and pairs of texts to features: what the kinds that judge whole texts share."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from lightbert.data.examples.features import Features
from lightbert.tasks.example import Example
from lightbert.tasks.texts import TextEncoder


def text_features(examples: Sequence[Example], encoder: TextEncoder, targets: NDArray[Any] | None) -> Features:
    """Encode one row per example, cut to the encoder's length."""
    firsts = encoder.pieces([example.text for example in examples])
    seconds = iter(encoder.pieces([example.text_b for example in examples if example.text_b is not None]))
    rows, begins, cut = [], [], 0
    for example, first in zip(examples, firsts, strict=True):
        second = None if example.text_b is None else next(seconds).ids
        row, begin = encoder.row(first.ids, second)
        # [CLS] and [SEP], and another [SEP] for a pair.
        cut += len(first.ids) + (2 if second is None else 3 + len(second)) > len(row)
        rows.append(row)
        begins.append(begin)
    return Features.of(rows, begins, targets=targets, cut=cut)
