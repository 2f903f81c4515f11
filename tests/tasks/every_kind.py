"""A small model's kind for every kind of task, texts for them, and the comparison of their predictions."""

import random

import pytest

from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens

REVIEWS = Classify(("bad", "good"))
KINDS = [
    (REVIEWS, {}),
    (Labels(("a", "b", "c")), {}),
    (Regress(0.0, 5.0), {}),
    (REVIEWS, {"pool": "mean-max", "hidden": "tanh"}),
    (Labels(("a", "b", "c")), {"pool": "mean"}),
    (Regress(0.0, 5.0), {"pool": "max"}),
    (Tokens(("O", "B-X", "I-X")), {}),
    (Spans("span", stride=4, max_query=4, null_threshold=0.0), {}),
    (Spans("beam", stride=4, max_query=4), {"inner": 8, "beam": 5}),
]


def words(choose: random.Random, most: int) -> str:
    return " ".join(choose.choices(("good", "bad", "film", "a", "the", "was", "."), k=choose.randint(1, most)))


def assert_close(one, other) -> None:
    """Compare predictions: numbers approximately, all else exactly."""
    if isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_close(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    else:
        assert one == other
