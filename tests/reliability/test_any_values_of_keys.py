"""Any value of any key of any recipe gives one sentence and a non-zero exit, or a finite model."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tiny_runs import distillation_of, recipe_of, run_by, write_corpus

from lightbert.commands.recipes import VERBS, recipe_class
from lightbert.config import from_mapping, keys, merge, to_mapping
from lightbert.errors import InputError
from lightbert.models import folder
from lightbert.train.distributed import process_group
from lightbert.train.signals import Interruption

VALUES = st.one_of(
    st.sampled_from([None, True, False, -1, 0, 1, 2, 3, 10**9, 2**53, 2**63, 2**64, 10**30, -(10**30)]),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 1e-30, 1e30, 1e308, math.nan, math.inf, -math.inf]),
    st.sampled_from(["", "x", "none", "auto", "cpu", "meta", "../x", "a\x00b", "[x]", "{a}", "\ud83d", "x" * 300]),
    st.sampled_from([[], [[]], [1, "a"], [{}], {}, {"a": 1}, {"a": {"b": [1]}}]),
    # Too large for a float, and for text.
    st.sampled_from([10**400, -(10**400), 16**6000, [16**6000], {"a": 16**6000}]),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
)

NAMES = [(verb, key.name) for verb in VERBS for key in keys(recipe_class(verb))]
# Values that only make a run longer or larger; tests of their own cover them.
UNBOUNDED = ("steps", "epochs", "max_minutes", "transfer_steps", "phases", "batch", "length", "evaluate_batches")


def nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    result: dict[str, Any] = value
    return result


BASES: dict[str, dict[str, Any]] = {
    "pretrain": {"data": "d", "out": "o", "steps": 3},
    "distill": {"data": "d", "out": "o", "steps": 3, "model": "mobilebert-nano", "teacher": "t"},
    "finetune": {"model": "m", "out": "o", "task": "rte", "data": "g"},
}


@settings(max_examples=600)
@given(st.sampled_from(NAMES), VALUES)
@example(("pretrain", "seed"), 2**64)
@example(("pretrain", "lr"), 16**6000)
@example(("finetune", "epochs"), 1e300)
def test_a_recipe_is_read_or_described_in_one_sentence(name: tuple[str, str], value: Any) -> None:
    verb, key = name
    try:
        recipe = from_mapping(recipe_class(verb), merge(BASES[verb], nested(key, value)))
    except InputError:
        return
    assert from_mapping(recipe_class(verb), to_mapping(recipe)) == recipe
    for number in _numbers(recipe):
        assert math.isfinite(number)


def _numbers(value: Any) -> list[float]:
    if dataclasses.is_dataclass(value):
        return [each for field in dataclasses.fields(value) for each in _numbers(getattr(value, field.name))]
    if isinstance(value, tuple):
        return [each for item in value for each in _numbers(item)]
    return [value] if isinstance(value, int | float) else []


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "tiny")


def train_with(corpus: Path, out: Path, verb: str, key: str, value: Any) -> None:
    """Train two steps with a changed key: an error in one sentence, or a model that is finite."""
    make = {"pretrain": recipe_of, "distill": distillation_of}[verb]
    short = {"steps": 2, "transfer_steps": 3} if verb == "distill" else {"steps": 2}
    base = to_mapping(make(corpus, out, **short))
    try:
        recipe = from_mapping(recipe_class(verb), merge(base, nested(key, value)))
        recipe = dataclasses.replace(recipe, out=str(out), device="cpu", data=str(corpus / "data"))
        with process_group("cpu") as world:
            run_by(recipe, world, Interruption())
    except (InputError, OSError):
        # The command line describes both in one sentence.
        return
    # Loading checks that the weights are finite.
    folder.load(out / "final")


CORPUS_KEYS = [
    (verb, name) for verb, name in NAMES if verb != "finetune" and not name.startswith(UNBOUNDED) and name != "threads"
]


@pytest.mark.parametrize(
    "examples", [pytest.param(25, id="few"), pytest.param(1500, id="many", marks=pytest.mark.prove)]
)
@pytest.mark.timeout(6000)
def test_training_gives_a_finite_model_or_one_sentence(
    corpus: Path, tmp_path_factory: pytest.TempPathFactory, examples: int
) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(CORPUS_KEYS), VALUES)
    def check(name: tuple[str, str], value: Any) -> None:
        train_with(corpus, tmp_path_factory.mktemp("out") / "run", *name, value)

    check()
