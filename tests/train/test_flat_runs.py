"""Whole runs with AdamW on flat buffers, here on a CPU, have the losses, files and restarts of separate tensors."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from unittest import mock

import pytest
import torch
from tiny_runs import assert_same_results, distillation_of, recipe_of, records, train

from lightbert.files import read_tensors
from lightbert.models import folder
from lightbert.train.step import Step

WITH_BIAS = {"optimizer": {"bias_correction": True}}


def flat_buffers(wanted: bool = True) -> AbstractContextManager[object]:
    return mock.patch("lightbert.train.optim.suits_flat_buffers", return_value=wanted)


def last_files(out: Path) -> dict[str, Path]:
    last = max((out / "checkpoints").iterdir(), key=lambda path: int(path.name.removeprefix("step-")))
    return {path.name: path for path in (*last.glob("*.safetensors"), out / "final" / "model.safetensors")}


def assert_alike(usual: Path, flat: Path) -> None:
    """Check that losses and tensors are close, and that the files have the same names, shapes and sizes."""
    ours, theirs = ([record["loss"] for record in records(out)] for out in (flat, usual))
    assert ours == pytest.approx(theirs, rel=1e-4)
    expected = last_files(usual)
    for name, path in last_files(flat).items():
        assert path.stat().st_size == expected[name].stat().st_size
        tensors, others = read_tensors(path), read_tensors(expected[name])
        assert tensors.keys() == others.keys()
        for key, tensor in tensors.items():
            torch.testing.assert_close(tensor, others[key], rtol=1e-2, atol=1e-4, msg=f"{name}: {key}")
    folder.load(flat / "final")


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_has_the_losses_and_files_of_one_with_separate_tensors(
    corpus: Path, tmp_path: Path, half: bool, accumulate: int
) -> None:
    for flat in (False, True):
        recipe = recipe_of(corpus, tmp_path / str(flat), steps=6, accumulate=accumulate, **WITH_BIAS)
        with flat_buffers(flat), mock.patch.object(Step, "half_precision", True) if half else nullcontext():
            train(recipe)
    assert_alike(tmp_path / "False", tmp_path / "True")


def test_stages_with_frozen_layers_have_the_losses_and_files_of_separate_tensors(corpus: Path, tmp_path: Path) -> None:
    for flat in (False, True):
        with flat_buffers(flat):
            train(distillation_of(corpus, tmp_path / str(flat), **WITH_BIAS))
    assert_alike(tmp_path / "False", tmp_path / "True")


def test_a_resumed_run_is_byte_identical(corpus: Path, tmp_path: Path) -> None:
    with flat_buffers():
        train(distillation_of(corpus, tmp_path / "at once", **WITH_BIAS))
        train(distillation_of(corpus, tmp_path / "resumed", **WITH_BIAS), stop_after=3)
        train(distillation_of(corpus, tmp_path / "resumed", **WITH_BIAS), stop_after=8)
        train(distillation_of(corpus, tmp_path / "resumed", **WITH_BIAS))
    assert_same_results(tmp_path / "resumed", tmp_path / "at once")


@pytest.mark.parametrize("first", [False, True], ids=["from separate tensors", "from flat buffers"])
def test_a_checkpoint_can_be_continued_by_the_other_kind(corpus: Path, tmp_path: Path, first: bool) -> None:
    with flat_buffers(False):
        train(distillation_of(corpus, tmp_path / "usual", **WITH_BIAS))
    recipe = distillation_of(corpus, tmp_path / "changed", **WITH_BIAS)
    with flat_buffers(first):
        train(recipe, stop_after=3)
    with flat_buffers(not first):
        train(recipe)
    assert_alike(tmp_path / "usual", tmp_path / "changed")
