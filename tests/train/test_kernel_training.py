"""Training with kernels on a GPU: the losses of the references, and the same bytes in every run."""

from pathlib import Path
from statistics import mean

import pytest
import torch
from tiny_runs import assert_same_results, recipe_of, records, train

from lightbert.ops.backend import enabling

pytestmark = pytest.mark.gpu


def run(corpus: Path, out: Path, kernels: str, steps: int) -> list[float]:
    """Train by recorded steps of compiled blocks and return the losses."""
    torch.compiler.reset()
    model = str(corpus / "steady")
    with enabling(kernels):
        train(recipe_of(corpus, out, model=model, steps=steps, device="cuda", compile="blocks", cuda_graph=True))
    return [record["loss"] for record in records(out)]


def test_200_steps_have_the_losses_of_the_references(corpus: Path, tmp_path: Path) -> None:
    found, expected = (run(corpus, tmp_path / kernels, kernels, 200) for kernels in ("all", "none"))
    assert len(found) == len(expected)
    # Samples differ after a while, and with them single losses.
    assert found[:10] == pytest.approx(expected[:10], rel=1e-2)
    quarter = len(found) // 4
    assert mean(found[-quarter:]) == pytest.approx(mean(expected[-quarter:]), rel=3e-2)


@pytest.mark.parametrize("kernels", ["all", "none"])
def test_a_second_run_gives_the_same_bytes(corpus: Path, tmp_path: Path, kernels: str) -> None:
    for name in ("once", "again"):
        run(corpus, tmp_path / name, kernels, 30)
    assert_same_results(tmp_path / "again", tmp_path / "once")
