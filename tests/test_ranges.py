import re
from dataclasses import dataclass
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightbert.config import Count, PartialShare, Positive, PositiveShare, Range, Seed, Share, Size, check, from_mapping
from lightbert.errors import InputError


@dataclass(frozen=True)
class Inner:
    beta: PartialShare = 0.9


@dataclass(frozen=True)
class Settings:
    size: Size = 1
    rate: PartialShare | None = None
    shares: tuple[Share, ...] = ()
    pair: tuple[Positive, Count] = (1.0, 0)
    free: float = 0.0
    inner: Inner = Inner()

    def __post_init__(self) -> None:
        check(self)


def test_a_range_contains_its_numbers_and_prints_as_an_interval():
    for limits, text, inside, outside in [
        (Range(0, 1), "in [0, 1]", (0, 0.5, 1), (-0.1, 1.1)),
        (Range(0, 1, closed="left"), "in [0, 1)", (0, 0.99), (1, -1)),
        (Range(0, 1, closed="right"), "in (0, 1]", (0.01, 1), (0, 1.01)),
        (Range(0, 1, closed="neither"), "in (0, 1)", (0.01,), (0, 1)),
        (Range(1), ">= 1", (1, 10**30), (0,)),
        (Range(0, closed="neither"), "> 0", (1e-300,), (0.0, -1)),
        (Range(high=3), "<= 3", (3, -9), (4,)),
        (Range(high=3, closed="neither"), "< 3", (2.9,), (3,)),
    ]:
        assert str(limits) == text
        assert all(value in limits for value in inside)
        assert not any(value in limits for value in outside)


@given(st.floats(-2, 2))
def test_a_number_is_accepted_if_and_only_if_it_is_in_range(value):
    if 0 <= value < 1:
        assert from_mapping(Settings, {"inner": {"beta": value}}).inner.beta == value
    else:
        with pytest.raises(InputError, match=re.escape(f"inner.beta must be in [0, 1), got {value}")):
            from_mapping(Settings, {"inner": {"beta": value}})


def test_the_error_for_a_number_out_of_range_has_the_dotted_key():
    for values, sentence in [
        ({"size": 0}, "size must be >= 1, got 0"),
        ({"rate": 1}, "rate must be in [0, 1), got 1.0"),
        ({"shares": [0.5, 1.5]}, "shares[1] must be in [0, 1], got 1.5"),
        ({"pair": [1.0, -1]}, "pair[1] must be >= 0, got -1"),
        ({"free": float("nan")}, "free must be a finite number, got nan"),
        ({"free": float("-inf")}, "free must be a finite number, got -inf"),
        ({"rate": float("inf")}, "rate must be a finite number, got inf"),
        ({"inner": {"beta": 1.5}}, "inner.beta must be in [0, 1), got 1.5"),
    ]:
        with pytest.raises(InputError) as raised:
            from_mapping(Settings, values)
        assert str(raised.value) == sentence


def test_a_dataclass_created_in_python_is_checked():
    with pytest.raises(InputError, match="size must be >= 1, got -3"):
        Settings(size=-3)
    assert Settings(rate=None).rate is None


def test_named_ranges_have_the_right_endpoints():
    for kind, good, bad in [(Seed, 2**63 - 1, 2**63), (Seed, 0, -1), (PositiveShare, 1.0, 0.0), (Positive, 1e-9, 0.0)]:
        [limits] = kind.__metadata__
        assert good in limits
        assert bad not in limits


def test_other_annotations_do_not_change_the_range():
    @dataclass(frozen=True)
    class Noted:
        share: Annotated[Share, "a meaning"] = 0.5

    assert from_mapping(Noted, {"share": 1}).share == 1.0
    with pytest.raises(InputError, match=r"share must be in \[0, 1\], got 2\.0"):
        from_mapping(Noted, {"share": 2})
