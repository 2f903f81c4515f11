"""Checkpoints appear whole, the last few stay, and what does not fit is refused."""

from pathlib import Path

import pytest
import torch

from lightbert.errors import InputError
from lightbert.train.checkpoint import Checkpoint, newest, remove_partial, restore, save


def checkpoint(value: float) -> Checkpoint:
    weights = {"a": torch.full((3,), value), "b": torch.zeros(0, 2)}
    return Checkpoint({"weights": weights, "optimizer": {"a/step": torch.tensor(value)}}, {"step": int(value)})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_comes_back_exactly(tmp_path: Path) -> None:
    save(tmp_path, 7, checkpoint(7), keep=2)
    found = newest(tmp_path)
    assert found.facts == {"step": 7}
    assert found.groups.keys() == {"weights", "optimizer"}
    assert torch.equal(found.groups["weights"]["a"], torch.full((3,), 7.0))
    assert found.groups["weights"]["b"].shape == (0, 2)
    assert found.groups["optimizer"]["a/step"] == 7


def test_the_newest_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        save(tmp_path, step, checkpoint(step), keep=5)
    assert newest(tmp_path).facts == {"step": 100}


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    for step in (8, 9, 10, 11):
        save(tmp_path, step, checkpoint(step), keep=2)
    assert names(tmp_path) == ["step-10", "step-11"]


def test_there_may_be_none_at_all(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    assert newest(tmp_path / "nowhere") is None


def test_other_names_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    for name in ("step-best", "notes", "step-"):
        (tmp_path / name).mkdir()
    save(tmp_path, 1, checkpoint(1), keep=1)
    save(tmp_path, 2, checkpoint(2), keep=1)
    assert names(tmp_path) == ["notes", "step-", "step-2", "step-best"]


def test_a_step_that_is_saved_again_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, 3, checkpoint(3), keep=2)
    save(tmp_path, 3, checkpoint(4), keep=2)
    assert newest(tmp_path).facts == {"step": 4}
    assert names(tmp_path) == ["step-3"]


def test_a_damaged_one_is_passed_over_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, 1, checkpoint(1), keep=2)
    save(tmp_path, 2, checkpoint(2), keep=2)
    (tmp_path / "step-2" / "weights.safetensors").write_bytes(b"")
    assert newest(tmp_path).facts == {"step": 1}
    told = capsys.readouterr().err
    assert "passing over a damaged checkpoint" in told
    assert "weights.safetensors' is missing or damaged" in told


def test_damaged_ones_never_crowd_out_those_that_are_whole(tmp_path: Path) -> None:
    for step in (6, 9, 12):
        save(tmp_path, step, checkpoint(step), keep=3)
    for step in (9, 12):
        (tmp_path / f"step-{step}" / "manifest.json").unlink()
    save(tmp_path, 7, checkpoint(7), keep=2)
    assert names(tmp_path) == ["step-6", "step-7"]


def test_without_a_whole_one_the_run_does_not_silently_start_again(tmp_path: Path) -> None:
    save(tmp_path, 1, checkpoint(1), keep=2)
    (tmp_path / "step-1" / "facts.json").unlink()
    with pytest.raises(InputError, match=r"no checkpoint in .* is whole .*facts\.json.*; remove the folder"):
        newest(tmp_path)


def test_a_renamed_checkpoint_is_not_believed(tmp_path: Path) -> None:
    save(tmp_path, 1, checkpoint(1), keep=2)
    (tmp_path / "step-1").rename(tmp_path / "step-5")
    with pytest.raises(InputError, match=r"manifest\.json' is damaged"):
        newest(tmp_path)


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    save(tmp_path, 1, checkpoint(1), keep=2)
    for name in (".step-2.tmp-17", ".step-1.old-17"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights.safetensors").write_bytes(b"half")
    (tmp_path / ".metrics.jsonl.tmp-17").write_bytes(b"half")
    remove_partial(tmp_path)
    assert names(tmp_path) == ["step-1"]


def test_restoring_copies_into_the_tensors_that_are_there() -> None:
    mine = {"a": torch.zeros(2), "b": torch.zeros(1)}
    place = mine["a"].data_ptr()
    restore(mine, {"a": torch.ones(2), "b": torch.ones(1)}, "weights")
    assert mine["a"].tolist() == [1.0, 1.0]
    assert mine["a"].data_ptr() == place


@pytest.mark.parametrize(
    ("saved", "problem"),
    [
        ({"a": torch.ones(2)}, "weights does not fit this recipe: 'b' is only on one side"),
        ({"a": torch.ones(2), "b": torch.ones(1), "c": torch.ones(1)}, "'c' is only on one side"),
        ({"a": torch.ones(3), "b": torch.ones(1)}, r"weights 'a' is \[3\], this recipe makes it \[2\]"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(saved: dict[str, torch.Tensor], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        restore({"a": torch.zeros(2), "b": torch.zeros(1)}, saved, "weights")
