"""Two processes, with replicated or sharded models, against one at the same global batch: the same run."""

import json
import signal
from collections import defaultdict

import pytest
import torch
from children import Moment, exit_code, start, start_several
from tiny_runs import distillation_of, recipe_of, records, write_model

from lightbert.data.shards import Shards
from lightbert.files import read_tensors

TERM = (signal.SIGTERM,)


def steady(corpus, out, **changes):
    return recipe_of(corpus, out, **{"model": str(corpus / "steady"), "log_every": 1} | changes)


def run(size, recipe, moment=None):
    """Run in ``size`` processes and return their exit codes."""
    if size == 1:
        return {exit_code(start(recipe, moment, RANK="0", WORLD_SIZE="1"))}
    return {exit_code(process) for process in start_several(size, recipe, moment)}


def batches(out):
    """Step -> row -> ids trained on, over all processes."""
    seen = defaultdict(dict)
    for path in out.glob("batches-*.jsonl"):
        for step, rows, ids in map(json.loads, path.read_text().splitlines()):
            assert not seen[step].keys() & set(rows), "a row was trained on twice"
            seen[step].update(zip(rows, ids, strict=True))
    return seen


def assert_like(alone, out):
    """Check that batches and losses match, and models and the last checkpoint's tensors in name, shape and value."""
    assert batches(out) == batches(alone)
    for kind in ("train", "held-out"):
        losses, expected = ([record["loss"] for record in records(path, kind)] for path in (out, alone))
        assert losses == pytest.approx(expected, rel=1e-4)
    last = f"checkpoints/step-{len(records(alone))}"
    for file in ("final/model", f"{last}/weights", f"{last}/optimizer"):
        tensors, expected = (read_tensors(path / f"{file}.safetensors") for path in (out, alone))
        assert tensors.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(tensors[name], tensor, rtol=1e-2, atol=1e-4)


@pytest.fixture(scope="module", params=["rtd", "mlm"])
def alone(request, corpus, tmp_path_factory):
    """A run in one process; the folder is named after the objective."""
    out = tmp_path_factory.mktemp("alone") / request.param
    assert run(1, steady(corpus, out, objective=request.param)) == {0}
    return out


def test_two_processes_train_like_one_also_after_resuming_with_another_number(corpus, alone, tmp_path):
    accumulate = 2 if alone.name == "rtd" else 1
    assert run(2, steady(corpus, tmp_path / "two", objective=alone.name, accumulate=accumulate)) == {0}
    assert_like(alone, tmp_path / "two")

    recipe = steady(corpus, tmp_path / "mixed", objective=alone.name)
    assert run(1, recipe, Moment("step", 3, TERM)) == {75}
    # Only the main process gets the signal; the others stop with it.
    assert run(2, recipe, Moment("step", 3, TERM)) == {75}
    assert len(records(tmp_path / "mixed")) == 8
    assert run(2, recipe) == {0}
    assert_like(alone, tmp_path / "mixed")
    # A finished run can be started again.
    before = (tmp_path / "mixed" / "metrics.jsonl").read_bytes()
    assert run(2, recipe) == {0}
    assert (tmp_path / "mixed" / "metrics.jsonl").read_bytes() == before


def test_a_batch_that_is_not_a_multiple_of_the_processes_raises_an_error(corpus, tmp_path):
    assert 0 not in run(2, steady(corpus, tmp_path, batch=3))
    assert "batch (3) must be a positive multiple of the number of processes (2)" in (tmp_path / "stderr").read_text()


@pytest.fixture(scope="module")
def teacher(corpus, tmp_path_factory):
    """A tiny IB-BERT."""
    sizes = {"block_width": 32, "dropout": 0.0, "attention_dropout": 0.0, "depth": 2}
    folder = tmp_path_factory.mktemp("teacher") / "model"
    return str(write_model(folder, Shards(corpus / "data").vocab, "ib-bert-nano", **sizes))


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "mlm", "examples": "pairs", "optimizer": {"kind": "lamb"}},
        {"objective": "mlm", "examples": "pairs", "accumulate": 2},
        {"objective": "rtd"},
    ],
    ids=["lamb", "accumulate", "rtd"],
)
def test_two_processes_with_a_sharded_model_train_like_one(corpus, tmp_path, teacher, changes):
    model = {} if changes["objective"] == "rtd" else {"model": teacher}
    settings = {"sharding": "shard", "steps": 4, **model, **changes}
    assert run(1, steady(corpus, tmp_path / "one", **settings)) == {0}
    assert run(2, steady(corpus, tmp_path / "two", **settings)) == {0}
    assert_like(tmp_path / "one", tmp_path / "two")


def test_checkpoints_do_not_depend_on_sharding(corpus, tmp_path, teacher):
    settings = {"model": teacher, "objective": "mlm", "steps": 8}
    assert run(1, steady(corpus, tmp_path / "one", sharding="shard", **settings)) == {0}
    out, stop = tmp_path / "mixed", Moment("step", 1, TERM)
    for size, sharding in ((2, "shard"), (1, "shard"), (2, "replicate")):
        assert run(size, steady(corpus, out, sharding=sharding, **settings), stop) == {75}
    assert run(2, steady(corpus, out, sharding="shard", **settings)) == {0}
    assert_like(tmp_path / "one", out)


@pytest.mark.parametrize(("strategy", "sharding"), [("akt", "replicate"), ("pkt", "shard")])
def test_two_processes_distil_like_one(corpus, tmp_path, strategy, sharding):
    changes = {"strategy": strategy, "sharding": sharding, "log_every": 1, "lr": 1e-4}
    for size in (1, 2):
        assert run(size, distillation_of(corpus, tmp_path / str(size), **changes)) == {0}
    for kind in ("train", "held-out"):
        alone, together = ([line["loss"] for line in records(tmp_path / out, kind)] for out in ("1", "2"))
        assert together == pytest.approx(alone, rel=1e-4)
