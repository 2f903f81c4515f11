"""Splits and orders by hashes."""

from collections import Counter

import pytest

from lightbert.data.text.hashed_splits import hashed_order, hashed_part

SHARES = {"train": 6, "dev": 1, "test": 3}


def test_a_part_has_its_share_of_names():
    counts = Counter(hashed_part(f"package.module.f{number}", SHARES) for number in range(10_000))
    for part, share in SHARES.items():
        assert counts[part] == pytest.approx(1_000 * share, rel=0.1)


def test_parts_and_orders_are_the_same_everywhere():
    parts = [hashed_part(name, SHARES) for name in ("numpy.dot", "numpy.sum", "numpy.fft.fft")]
    assert parts == ["train", "test", "train"]
    assert sorted("abcdef", key=hashed_order) == list("dfcbea")
