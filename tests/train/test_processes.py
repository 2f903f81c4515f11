"""Two processes against one at the same global batch: the same examples in the same order, the same losses."""

import json
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Moment, exit_code, start, start_several
from tiny_runs import recipe_of, records

from lightbert.files import read_tensors
from lightbert.train.settings import Recipe

TERM = (signal.SIGTERM,)


def steady(corpus: Path, out: Path, **changes: Any) -> Recipe:
    return recipe_of(corpus, out, model=str(corpus / "steady"), log_every=1, **changes)


def run(size: int, recipe: Recipe, moment: Moment | None = None) -> set[int]:
    """Run in ``size`` processes and return their exit codes."""
    if size == 1:
        return {exit_code(start(recipe, moment, RANK="0", WORLD_SIZE="1"))}
    return {exit_code(process) for process in start_several(size, recipe, moment)}


def batches(out: Path) -> dict[int, dict[int, list[int]]]:
    """Step -> row -> ids trained on, over all processes."""
    seen: dict[int, dict[int, list[int]]] = defaultdict(dict)
    for path in out.glob("batches-*.jsonl"):
        for step, rows, ids in map(json.loads, path.read_text().splitlines()):
            assert not seen[step].keys() & set(rows), "a row was trained on twice"
            seen[step].update(zip(rows, ids, strict=True))
    return seen


def losses(out: Path, kind: str) -> list[float]:
    return [record["loss"] for record in records(out, kind)]


@pytest.fixture(scope="module", params=["rtd", "mlm"])
def alone(request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in one process; the folder is named after the objective."""
    out = tmp_path_factory.mktemp("alone") / request.param
    assert run(1, steady(corpus, out, objective=request.param)) == {0}
    return out


def assert_like(alone: Path, out: Path) -> None:
    assert batches(out) == batches(alone)
    for kind in ("train", "held-out"):
        assert losses(out, kind) == pytest.approx(losses(alone, kind), rel=1e-4)
    weights, others = (read_tensors(path / "final" / "model.safetensors") for path in (alone, out))
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_processes_train_like_one(corpus: Path, alone: Path, tmp_path: Path, accumulate: int) -> None:
    assert run(2, steady(corpus, tmp_path, objective=alone.name, accumulate=accumulate)) == {0}
    assert_like(alone, tmp_path)


def test_resuming_with_another_number_of_processes_trains_like_one(corpus: Path, alone: Path, tmp_path: Path) -> None:
    recipe = steady(corpus, tmp_path, objective=alone.name)
    assert run(1, recipe, Moment("step", 3, TERM)) == {75}
    # Only the main process gets the signal; the others stop with it.
    assert run(2, recipe, Moment("step", 3, TERM)) == {75}
    assert len(records(tmp_path)) == 8
    assert run(1, recipe) == {0}
    assert_like(alone, tmp_path)


def test_a_finished_run_of_two_processes_can_be_started_again(corpus: Path, tmp_path: Path) -> None:
    recipe = steady(corpus, tmp_path, objective="mlm", steps=6, evaluate_every=3)
    assert run(2, recipe) == {0}
    before = (tmp_path / "metrics.jsonl").read_bytes()
    assert run(2, recipe) == {0}
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_batch_that_is_not_a_multiple_of_the_processes_raises_an_error(corpus: Path, tmp_path: Path) -> None:
    assert 0 not in run(2, steady(corpus, tmp_path, batch=3))
    assert "batch (3) must be a positive multiple of the number of processes (2)" in (tmp_path / "stderr").read_text()
