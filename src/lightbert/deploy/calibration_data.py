"""The user's data as batches, on which int8 is calibrated."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from lightbert.data.features import Features
from lightbert.data.packing import padded_rows
from lightbert.deploy.verification import Batch
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.tasks.example import Example, text_features
from lightbert.tasks.predict.predictor import encoder_of, kind_of_model

_ROWS = 8


def task_batches(model: Model, examples: Iterable[Any]) -> list[Batch]:
    """Examples of the model's task, encoded as in prediction."""
    encoder = encoder_of(model)
    features = kind_of_model(model).features(list(examples), encoder)
    return list(_batches(features, encoder.specials.pad))


def text_batches(model: Model, examples: Iterable[Example]) -> list[Batch]:
    """Texts or pairs of texts, whatever the task of the model."""
    encoder = encoder_of(model)
    features = text_features(list(examples), encoder, None)
    return list(_batches(features, encoder.specials.pad))


def _batches(features: Features, pad: int) -> Iterator[Batch]:
    if not len(features):
        raise InputError("the data for calibration must have at least one text, got none")
    order = np.argsort(features.lengths, kind="stable")
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        padded = padded_rows(features, rows, int(features.lengths[rows[-1]]), pad)
        yield Batch("calibration", padded.ids, padded.mask, padded.segments)
