import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightbert.config import assignments, from_mapping, override, to_mapping
from lightbert.errors import InputError


@dataclass(frozen=True)
class Optimizer:
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    kind: Literal["adamw", "lamb"] = "adamw"


@dataclass(frozen=True)
class Recipe:
    model: str
    steps: int = 100
    compile: bool = False
    seed: int | None = None
    lengths: tuple[int, ...] = (128,)
    optimizer: Optimizer = field(default_factory=Optimizer)
    source: str | Optimizer = "none"
    out: Path = Path("runs")


def test_a_mapping_becomes_a_dataclass_with_nested_dataclasses():
    recipe = from_mapping(
        Recipe, {"model": "bert-tiny", "optimizer": {"lr": 1, "betas": [0.9, 0.98]}, "lengths": [1, 2]}
    )
    assert recipe == Recipe("bert-tiny", optimizer=Optimizer(lr=1.0, betas=(0.9, 0.98)), lengths=(1, 2))
    assert type(recipe.optimizer.lr) is float


@given(
    st.builds(
        Recipe,
        model=st.text(),
        seed=st.none() | st.integers(),
        lengths=st.lists(st.integers()).map(tuple),
        optimizer=st.builds(Optimizer, lr=st.floats(allow_nan=False, allow_infinity=False)),
        source=st.text() | st.builds(Optimizer, kind=st.sampled_from(["adamw", "lamb"])),
    )
)
def test_a_dataclass_survives_a_round_trip_through_json(recipe):
    assert from_mapping(Recipe, json.loads(json.dumps(to_mapping(recipe)))) == recipe


def test_the_error_for_a_wrong_value_has_key_value_and_expected_type():
    for mapping, sentence in [
        ({"model": 3}, "model must be a string, got 3"),
        ({"steps": "many"}, "steps must be an integer, got 'many'"),
        ({"steps": True}, "steps must be an integer, got True"),
        ({"steps": 1.5}, "steps must be an integer, got 1.5"),
        ({"compile": 1}, "compile must be true or false, got 1"),
        ({"seed": "x"}, "seed must be an integer, got 'x'"),
        ({"lengths": [1, "x"]}, "lengths[1] must be an integer, got 'x'"),
        ({"lengths": 128}, "lengths must be a list, each item an integer, got 128"),
        ({"optimizer": 3}, "optimizer must be a table, got 3"),
        ({"optimizer": {"lr": "fast"}}, "optimizer.lr must be a number, got 'fast'"),
        (
            {"optimizer": {"betas": [0.9]}},
            "optimizer.betas must be a list of 2 values (a number, a number), got [0.9]",
        ),
        ({"optimizer": {"kind": "lam"}}, "unknown optimizer.kind 'lam'; did you mean 'lamb'?"),
        ({"optimizer": {"kind": 1}}, "optimizer.kind must be one of 'adamw', 'lamb', got 1"),
        ({"source": 3}, "source must be a string or a table, got 3"),
        ({"source": {"lrr": 3}}, "unknown key 'source.lrr'; did you mean 'source.lr'?"),
        ({"step": 3}, "unknown key 'step'; did you mean 'steps'?"),
        ({"optimizer": {"beta": []}}, "unknown key 'optimizer.beta'; did you mean 'optimizer.betas'?"),
    ]:
        with pytest.raises(InputError) as raised:
            from_mapping(Recipe, {"model": "bert-tiny"} | mapping)
        assert str(raised.value) == sentence


def test_the_error_for_a_missing_key_has_its_expected_type():
    with pytest.raises(InputError, match="the key 'model' is required; set it to a string"):
        from_mapping(Recipe, {})


def test_overrides_are_toml_values_or_strings():
    for assignment, value in [
        ("x=3", 3),
        ("x = 1e-4", 1e-4),
        ("x=true", True),
        ("x=[1, 2]", [1, 2]),
        ("x='3'", "3"),
        ("x=word", "word"),
        ("x=runs/a=b", "runs/a=b"),
        ("x=2024-01-01", "2024-01-01"),
        ("x=", ""),
        ("x=1\ny=2", "1\ny=2"),
    ]:
        assert assignments([assignment]) == {"x": value}


def test_overrides_change_nested_tables_and_not_the_original():
    original = {"a": {"b": 1, "c": 2}}
    assert override(original, assignments(["a.b=3", "d.e=4"])) == {"a": {"b": 3, "c": 2}, "d": {"e": 4}}
    assert original == {"a": {"b": 1, "c": 2}}


def test_an_override_without_key_or_value_raises_an_error():
    for assignment in ["steps", "=3", "a..b=3", ".a=1"]:
        with pytest.raises(InputError, match="write key=value"):
            assignments([assignment])


def test_an_override_does_not_turn_a_value_into_a_table():
    with pytest.raises(InputError, match="'data' is 'corpus', not a table"):
        override({"data": "corpus"}, assignments(["data.train=x"]))


def test_a_number_with_too_many_digits_is_an_error():
    for text, sentence in [
        (f"steps={'9' * 5000}", "the value 99999999999999999999… has too many digits; write a smaller number"),
        (f"steps=0x{'f' * 5000}", "steps must be a number of at most 1000 bits, got 20,000 bits"),
        (f"optimizer.lr={'9' * 400}", "optimizer.lr must be a number of at most 1000 bits, got 1,329 bits"),
        (f"model=[0x{'f' * 5000}]", "model must be a string, got a number with too many digits"),
    ]:
        with pytest.raises(InputError) as error:
            from_mapping(Recipe, {"model": "x"} | assignments([text]))
        assert str(error.value) == sentence


def test_none_unsets_a_value_that_may_be_none_and_is_a_text_elsewhere():
    assert from_mapping(Recipe, {"model": "m", "seed": "none"}).seed is None
    assert from_mapping(Recipe, {"model": "none"}).model == "none"
    with pytest.raises(InputError, match="steps must be an integer, got 'none'"):
        from_mapping(Recipe, {"model": "m", "steps": "none"})
