"""Gradient accumulation gives the same step."""

from pathlib import Path

import pytest
import torch
from tiny_runs import recipe_of, records, train

from lightbert.errors import InputError
from lightbert.files import read_tensors


@pytest.mark.parametrize(("objective", "examples"), [("rtd", "segments"), ("mlm", "pairs"), ("mlm", "packed")])
def test_losses_and_weights_do_not_depend_on_accumulation(
    corpus: Path, tmp_path: Path, objective: str, examples: str
) -> None:
    steady = {"model": str(corpus / "steady"), "objective": objective, "examples": examples, "steps": 6}
    for parts in (1, 2, 4):
        train(recipe_of(corpus, tmp_path / str(parts), accumulate=parts, **steady))
    whole = [record["loss"] for record in records(tmp_path / "1")]
    weights = read_tensors(tmp_path / "1" / "final" / "model.safetensors")
    for parts in (2, 4):
        assert [record["loss"] for record in records(tmp_path / str(parts))] == pytest.approx(whole, rel=1e-5)
        others = read_tensors(tmp_path / str(parts) / "final" / "model.safetensors")
        for name, weight in weights.items():
            torch.testing.assert_close(others[name], weight, rtol=1e-3, atol=1e-4)


def test_a_batch_that_cannot_be_split_evenly_raises_an_error(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rows per process \(4\) must be a multiple of accumulate \(3\)"):
        train(recipe_of(corpus, tmp_path, accumulate=3))
