"""FSDP2: two processes with a sharded model train like one and write full tensors."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Moment, exit_code, start, start_several
from tiny_runs import recipe_of, records, write_model

from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.files import read_tensors
from lightbert.train.settings import Recipe

IB_BERT = {"block_width": 32, "dropout": 0.0, "attention_dropout": 0.0, "depth": 2}


@pytest.fixture(scope="module")
def teacher(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny IB-BERT."""
    folder = tmp_path_factory.mktemp("teacher") / "model"
    return str(write_model(folder, Shards(corpus / "data").vocab, "ib-bert-nano", **IB_BERT))


def sharded(corpus: Path, out: Path, **changes: Any) -> Recipe:
    return recipe_of(corpus, out, **{"sharding": "shard", "log_every": 1, "steps": 4} | changes)


def codes(processes: list[Any]) -> set[int]:
    return {exit_code(process) for process in processes}


def assert_like(alone: Path, out: Path) -> None:
    """Check that losses, models and the last checkpoint's tensors match in name, shape and value."""
    for kind in ("train", "held-out"):
        ours, theirs = ([record["loss"] for record in records(path, kind)] for path in (out, alone))
        assert ours == pytest.approx(theirs, rel=1e-4)
    last = f"checkpoints/step-{len(records(alone))}"
    for file in ("final/model", f"{last}/weights", f"{last}/optimizer"):
        ours, theirs = (read_tensors(path / f"{file}.safetensors") for path in (out, alone))
        assert ours.keys() == theirs.keys()
        for name, tensor in theirs.items():
            torch.testing.assert_close(ours[name], tensor, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("changes", [{"optimizer": {"kind": "lamb"}}, {"accumulate": 2}], ids=str)
def test_two_processes_with_a_sharded_model_train_like_one(
    corpus: Path, tmp_path: Path, teacher: str, changes: dict[str, Any]
) -> None:
    settings = {"model": teacher, "objective": "mlm", "examples": "pairs"} | changes
    assert exit_code(start(sharded(corpus, tmp_path / "one", **settings))) == 0
    assert codes(start_several(2, sharded(corpus, tmp_path / "two", **settings))) == {0}
    assert_like(tmp_path / "one", tmp_path / "two")


def test_generator_and_discriminator_are_sharded_together(corpus: Path, tmp_path: Path) -> None:
    settings = {"model": str(corpus / "steady")}
    assert exit_code(start(sharded(corpus, tmp_path / "one", **settings))) == 0
    assert codes(start_several(2, sharded(corpus, tmp_path / "two", **settings))) == {0}
    assert_like(tmp_path / "one", tmp_path / "two")


def test_checkpoints_do_not_depend_on_sharding(corpus: Path, tmp_path: Path, teacher: str) -> None:
    settings = {"model": teacher, "objective": "mlm", "steps": 8}
    assert exit_code(start(sharded(corpus, tmp_path / "one", **settings))) == 0
    out, stop = tmp_path / "mixed", Moment("step", 1, (signal.SIGTERM,))
    assert codes(start_several(2, sharded(corpus, out, **settings), stop)) == {75}
    assert exit_code(start(sharded(corpus, out, **settings), stop)) == 75
    assert codes(start_several(2, sharded(corpus, out, sharding="replicate", **settings), stop)) == {75}
    assert codes(start_several(2, sharded(corpus, out, **settings))) == {0}
    assert_like(tmp_path / "one", out)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"optimizer": {"kind": "muon"}}, r"muon.* requires unsharded tensors"),
        ({"cuda_graph": True}, "cuda_graph=true requires unsharded tensors"),
    ],
)
def test_options_that_require_unsharded_tensors_raise_an_error(
    corpus: Path, tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        sharded(corpus, tmp_path, **changes)
