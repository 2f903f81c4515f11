"""Several processes distil like one in every stage, with a replicated or sharded student."""

from pathlib import Path

import pytest
from children import exit_code, start, start_several
from tiny_runs import distillation_of, records

LOSSES = {"log_every": 1, "lr": 1e-4}


@pytest.mark.parametrize("strategy", ["akt", "pkt"])
@pytest.mark.parametrize("sharding", ["replicate", "shard"])
def test_two_processes_distil_like_one(corpus: Path, tmp_path: Path, strategy: str, sharding: str) -> None:
    changes = {"strategy": strategy, "sharding": sharding, **LOSSES}
    assert exit_code(start(distillation_of(corpus, tmp_path / "one", **changes))) == 0
    processes = start_several(2, distillation_of(corpus, tmp_path / "two", **changes))
    assert {exit_code(process) for process in processes} == {0}
    for kind in ("train", "held-out"):
        alone, together = ([line["loss"] for line in records(tmp_path / out, kind)] for out in ("one", "two"))
        assert together == pytest.approx(alone, rel=1e-4)
