"""Ranges, descriptions and defaults of keys come from the annotations of the fields."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import pytest

from lightbert.config import MAY_CHANGE, Count, Positive, Size, from_mapping, keys, may_change, similar_keys
from lightbert.errors import InputError


@dataclass(frozen=True)
class Optimizer:
    kind: Annotated[Literal["adamw", "lamb"], "which one"] = "adamw"
    beta: float = 0.9


@dataclass(frozen=True)
class Base:
    """Keys of everything."""

    aliases: ClassVar[dict[str, str]] = {"learning_rate": "lr", "gone": "nowhere"}

    lr: Annotated[Positive, "the rate"] = 3e-4
    keep: Annotated[Size, MAY_CHANGE, "what to keep"] = 2
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(beta=0.5))


@dataclass(frozen=True)
class Child(Base):
    """Keys of one thing."""

    lr: float = 1e-4
    keep: Annotated[Count, "what to keep, or nothing"] = 0
    source: Annotated[str | Optimizer, "a name, or a table"] = ""
    warmup: float | None = 10_000.0


def listed(cls: type) -> dict[str, tuple[Any, ...]]:
    return {key.name: (key.default_text, key.allowed, key.meaning, key.group) for key in keys(cls)}


def test_every_key_is_listed_with_its_annotations():
    assert listed(Base) == {
        "lr": ("0.0003", "> 0", "the rate", "Keys of everything"),
        "keep": ("2", ">= 1", "what to keep", "Keys of everything"),
        "optimizer.kind": ('"adamw"', "adamw, lamb", "which one", "Keys of everything"),
        "optimizer.beta": ("0.5", "", "", "Keys of everything"),
    }


def test_a_subclass_with_another_default_inherits_range_and_description():
    found = listed(Child)
    assert found["lr"] == ("0.0001", "> 0", "the rate", "Keys of everything")
    assert found["keep"] == ("0", ">= 0", "what to keep, or nothing", "Keys of everything")
    with pytest.raises(InputError, match=r"lr must be > 0, got 0\.0"):
        from_mapping(Child, {"lr": 0})


def test_the_keys_of_a_subclass_come_first_and_a_union_of_value_and_table_has_both():
    assert list(listed(Child)) == [
        *("source", "source.kind", "source.beta", "warmup"),
        *("lr", "keep", "optimizer.kind", "optimizer.beta"),
    ]
    assert listed(Child)["warmup"][0] == "10000"


def test_keys_that_a_resumed_run_may_change_are_marked():
    assert may_change(Base) == {"keep"}


def test_suggestions_for_an_unknown_key_are_aliases_nested_keys_and_similar_names():
    for key, meant in [
        ("learning_rate", ["lr"]),
        ("beta", ["source.beta", "optimizer.beta"]),
        ("kep", ["keep"]),
        ("optimizer.bet", ["optimizer.beta"]),
        ("optimiser.kind", ["source.kind", "optimizer.kind"]),
        ("gone", []),
        ("qqqq", []),
    ]:
        assert similar_keys(Child, key) == meant


def test_the_error_names_all_suggestions():
    with pytest.raises(InputError) as raised:
        from_mapping(Child, {"beta": 3})
    assert str(raised.value) == "unknown key 'beta'; did you mean 'source.beta' or 'optimizer.beta'?"
