"""On a full or read-only disk the previous checkpoint stays intact, and the error is one sentence."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import torch
from tiny_runs import assert_same_results, recipe_of, train

from lightbert import cli, files
from lightbert.errors import InputError
from lightbert.train import checkpoint
from lightbert.train.checkpoint import load_newest
from lightbert.train.log import MetricsFile


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    train(recipe_of(corpus, out, objective="mlm"))
    return out


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Make writes beyond a file size fail, by a limit of the operating system."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def assert_step_3_is_whole_and_alone(out: Path) -> None:
    assert load_newest(out / "checkpoints").facts["step"] == 3
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-3"]


def test_a_failed_write_of_tensors_keeps_the_previous_checkpoint(
    corpus: Path, undisturbed: Path, tmp_path: Path
) -> None:
    recipe, save = recipe_of(corpus, tmp_path, objective="mlm"), checkpoint.save

    def without_room(folder: Path, step: int, *rest: object) -> None:
        with files_up_to(5000 if step == 6 else 1 << 30):
            save(folder, step, *rest)

    with (
        mock.patch.object(checkpoint, "save", without_room),
        pytest.raises(InputError, match=r"can't write checkpoint step-6.*File too large.*free disk space or set out="),
    ):
        train(recipe)
    assert_step_3_is_whole_and_alone(tmp_path)
    train(recipe)
    assert_same_results(tmp_path, undisturbed)


# The second checkpoint's files, their folder and its rename are synchronised one after the other.
@pytest.mark.parametrize("moment", [0, 3, 7, 9])
def test_a_full_disk_at_any_point_of_saving_keeps_the_previous_checkpoint(
    corpus: Path, undisturbed: Path, tmp_path: Path, moment: int
) -> None:
    recipe, save, fsync = recipe_of(corpus, tmp_path, objective="mlm"), checkpoint.save, os.fsync
    left = [1 << 30]

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    def without_room(folder: Path, step: int, *rest: object) -> None:
        left[0] = moment if step == 6 else 1 << 30
        save(folder, step, *rest)

    with (
        mock.patch.object(checkpoint, "save", without_room),
        mock.patch.object(files.os, "fsync", full),
        pytest.raises(
            InputError, match=r"can't write checkpoint step-6 to .*No space left on device.*the previous one is intact"
        ),
    ):
        train(recipe)
    assert_step_3_is_whole_and_alone(tmp_path)
    train(recipe)
    assert_same_results(tmp_path, undisturbed)


def test_a_log_that_cannot_be_written_is_reported_in_one_sentence(tmp_path: Path) -> None:
    log = MetricsFile(tmp_path / "metrics.jsonl", 0)
    log.write("train", 1, {"note": 1000 * "long "})
    with files_up_to(500), pytest.raises(InputError, match=r"can't write .*metrics\.jsonl' \(File too large\)"):
        log.flush()
    log.close()


def test_a_folder_that_cannot_be_created_is_reported_in_one_sentence(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.toml").write_text('steps = 3\ndevice = "cpu"\n')
    out = tmp_path / "recipe.toml" / "out"
    assert cli.main(["pretrain", str(tmp_path / "recipe.toml"), f"data={corpus / 'data'}", f"out={out}"]) == 1
    printed = capsys.readouterr().err
    assert f"'{tmp_path / 'recipe.toml'}' must be a folder, but is a file; choose another name" in printed
    assert printed.count("\n") == 1


def test_the_first_checkpoint_has_no_previous_one(tmp_path: Path) -> None:
    weights = {"weights": {"a": torch.zeros(10_000)}}
    with (
        files_up_to(5000),
        pytest.raises(InputError, match=r"can't write checkpoint step-1 to .*; there is none yet: free disk space"),
    ):
        checkpoint.save(tmp_path, 1, checkpoint.Checkpoint(weights, {"step": 1}), keep=1)
