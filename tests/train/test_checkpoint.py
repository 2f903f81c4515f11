"""Checkpoints are written atomically, only the newest are kept, and incompatible ones raise an error."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lightbert.errors import InputError
from lightbert.files import sweep
from lightbert.train.checkpoint import Checkpoint, load_newest, restore, save


def checkpoint(value: float) -> Checkpoint:
    weights = {"a": torch.full((3,), value), "b": torch.zeros(0, 2)}
    return Checkpoint({"weights": weights, "optimizer": {"a/step": torch.tensor(value)}}, {"step": int(value)})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_saved_checkpoint_loads_exactly(tmp_path: Path) -> None:
    save(tmp_path, 7, checkpoint(7), keep=2)
    found = load_newest(tmp_path)
    assert found.facts == {"step": 7}
    assert found.groups.keys() == {"weights", "optimizer"}
    assert torch.equal(found.groups["weights"]["a"], torch.full((3,), 7.0))
    assert found.groups["weights"]["b"].shape == (0, 2)
    assert found.groups["optimizer"]["a/step"] == 7


def test_the_newest_checkpoint_has_the_highest_step(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        save(tmp_path, step, checkpoint(step), keep=5)
    assert load_newest(tmp_path).facts == {"step": 100}


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (8, 9, 10, 11):
        save(tmp_path, step, checkpoint(step), keep=2)
    assert names(tmp_path) == ["step-10", "step-11"]


def test_a_folder_without_checkpoints_gives_none(tmp_path: Path) -> None:
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "nowhere") is None


def test_other_files_in_the_folder_are_not_removed(tmp_path: Path) -> None:
    for name in ("step-best", "notes", "step-"):
        (tmp_path / name).mkdir()
    save(tmp_path, 1, checkpoint(1), keep=1)
    save(tmp_path, 2, checkpoint(2), keep=1)
    assert names(tmp_path) == ["notes", "step-", "step-2", "step-best"]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path, 3, checkpoint(3), keep=2)
    save(tmp_path, 3, checkpoint(4), keep=2)
    assert load_newest(tmp_path).facts == {"step": 4}
    assert names(tmp_path) == ["step-3"]


def test_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, 1, checkpoint(1), keep=2)
    save(tmp_path, 2, checkpoint(2), keep=2)
    (tmp_path / "step-2" / "weights.safetensors").write_bytes(b"")
    assert load_newest(tmp_path).facts == {"step": 1}
    printed = capsys.readouterr().err
    assert "warning: skipped a damaged checkpoint" in printed
    assert "weights.safetensors' is missing or damaged" in printed


def test_damaged_checkpoints_never_displace_intact_ones(tmp_path: Path) -> None:
    for step in (6, 9, 12):
        save(tmp_path, step, checkpoint(step), keep=3)
    for step in (9, 12):
        (tmp_path / f"step-{step}" / "manifest.json").unlink()
    save(tmp_path, 7, checkpoint(7), keep=2)
    assert names(tmp_path) == ["step-6", "step-7"]


def test_a_run_with_only_damaged_checkpoints_raises_an_error(tmp_path: Path) -> None:
    save(tmp_path, 1, checkpoint(1), keep=2)
    (tmp_path / "step-1" / "facts.json").unlink()
    with pytest.raises(InputError, match=r"all checkpoints in .* are damaged .*facts\.json.*; remove the folder"):
        load_newest(tmp_path)


def test_a_renamed_checkpoint_counts_as_damaged(tmp_path: Path) -> None:
    save(tmp_path, 1, checkpoint(1), keep=2)
    (tmp_path / "step-1").rename(tmp_path / "step-5")
    with pytest.raises(InputError, match=r"manifest\.json' is damaged"):
        load_newest(tmp_path)


KILLED_WHILE_WRITING = """
import resource, safetensors.torch, signal, sys, torch  # no import writes bytecode under the limit
from pathlib import Path
from lightbert.train.checkpoint import Checkpoint, save

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it: writing would raise an error
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
save(Path(sys.argv[1]), 2, Checkpoint({"weights": {"a": torch.zeros(1000)}}, {}), keep=2)
"""


def test_a_process_that_is_killed_while_it_writes_tensors_leaves_nothing_behind(tmp_path: Path) -> None:
    save(tmp_path, 1, checkpoint(1), keep=2)
    process = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)], check=False)
    assert process.returncode == -signal.SIGXFSZ
    assert len(names(tmp_path)) == 2
    sweep(tmp_path)
    assert names(tmp_path) == ["step-1"]


def test_restoring_copies_into_the_existing_tensors() -> None:
    mine = {"a": torch.zeros(2), "b": torch.zeros(1)}
    place = mine["a"].data_ptr()
    restore(mine, {"a": torch.ones(2), "b": torch.ones(1)}, "weights")
    assert mine["a"].tolist() == [1.0, 1.0]
    assert mine["a"].data_ptr() == place


@pytest.mark.parametrize(
    ("saved", "problem"),
    [
        ({"a": torch.ones(2)}, "weights must match this recipe; 'b' is in only one of them"),
        ({"a": torch.ones(2), "b": torch.ones(1), "c": torch.ones(1)}, "'c' is in only one of them"),
        (
            {"a": torch.ones(3), "b": torch.ones(1)},
            r"weights must match this recipe; 'a' has shape \[3\], expected \[2\]",
        ),
    ],
)
def test_tensors_with_other_names_or_shapes_raise_an_error(saved: dict[str, torch.Tensor], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        restore({"a": torch.zeros(2), "b": torch.zeros(1)}, saved, "weights")
