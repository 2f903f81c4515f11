"""A recorded step trains like a plain one, also when phases change the shape of the batch and come back to it."""

from pathlib import Path

import pytest
import torch
from tiny_runs import recipe_of, records, train

PHASES = [{"length": 32, "steps": 8, "batch": 2}, {"length": 16, "steps": 8}]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", ["none", "blocks"])
def test_losses_are_those_of_plain_steps(corpus: Path, tmp_path: Path, compiled: str) -> None:
    runs = []
    for graphed in (False, True):
        out = tmp_path / str(graphed)
        train(
            recipe_of(
                corpus,
                out,
                model=str(corpus / "steady"),
                steps=8,
                phases=PHASES,
                device="cuda",
                compile=compiled,
                cuda_graph=graphed,
            )
        )
        runs.append([record["loss"] for record in records(out)])
    plain, recorded = runs
    assert len(plain) == 24
    assert recorded == pytest.approx(plain, rel=1e-2)
