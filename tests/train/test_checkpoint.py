"""Checkpoints are written atomically, and only intact ones are loaded, also from a damaged or a full disk."""

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from unittest import mock

import pytest
import torch
from tiny_runs import assert_same_results, recipe_of, train

from lightbert import cli, files
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.files import sweep
from lightbert.train import checkpoint as module
from lightbert.train.checkpoint import Checkpoint, load_newest, restore, save
from lightbert.train.log import MetricsFile


def checkpoint(value):
    weights = {"a": torch.full((3,), float(value)), "b": torch.zeros(0, 2)}
    return Checkpoint({"weights": weights, "optimizer": {"a/step": torch.tensor(float(value))}}, {"step": value})


def save_steps(folder, *steps, keep=9):
    for step in steps:
        save(folder, step, checkpoint(step), keep=keep)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_saved_checkpoint_loads_exactly(tmp_path):
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "nowhere") is None
    save_steps(tmp_path, 7)
    loaded = load_newest(tmp_path)
    assert loaded.facts == {"step": 7}
    assert loaded.groups.keys() == {"weights", "optimizer"}
    assert torch.equal(loaded.groups["weights"]["a"], torch.full((3,), 7.0))
    assert loaded.groups["weights"]["b"].shape == (0, 2)
    assert loaded.groups["optimizer"]["a/step"] == 7
    save(tmp_path, 7, checkpoint(4), keep=2)
    assert load_newest(tmp_path).facts == {"step": 4}
    assert names(tmp_path) == ["step-7"]


def test_only_the_newest_checkpoints_are_kept_and_other_files_are_not_removed(tmp_path):
    for name in ("step-best", "notes", "step-"):
        (tmp_path / name).mkdir()
    save_steps(tmp_path, 9, 10, 100, keep=2)
    assert load_newest(tmp_path).facts == {"step": 100}
    assert names(tmp_path) == ["notes", "step-", "step-10", "step-100", "step-best"]


def test_damaged_checkpoints_are_skipped_with_a_warning_and_never_displace_intact_ones(tmp_path, capsys):
    save_steps(tmp_path, 6, 9, 12)
    (tmp_path / "step-12" / "weights.safetensors").write_bytes(b"")
    (tmp_path / "step-9" / "manifest.json").unlink()
    assert load_newest(tmp_path).facts == {"step": 6}
    printed = capsys.readouterr().err
    assert printed.count("warning: skipped a damaged checkpoint") == 2
    assert "weights.safetensors' is missing or damaged" in printed
    save_steps(tmp_path, 7, keep=2)
    assert names(tmp_path) == ["step-6", "step-7"]


def test_a_run_with_only_damaged_or_renamed_checkpoints_raises_an_error(tmp_path):
    save_steps(tmp_path, 1)
    (tmp_path / "step-1").rename(tmp_path / "step-5")
    with pytest.raises(InputError, match=r"manifest\.json' is damaged"):
        load_newest(tmp_path)
    (tmp_path / "step-5").rename(tmp_path / "step-1")
    (tmp_path / "step-1" / "facts.json").unlink()
    with pytest.raises(InputError, match=r"all checkpoints in .* are damaged .*facts\.json.*; remove the folder"):
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


def test_a_process_that_is_killed_while_it_writes_tensors_leaves_nothing_behind(tmp_path):
    save_steps(tmp_path, 1)
    process = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)], check=False)
    assert process.returncode == -signal.SIGXFSZ
    assert len(names(tmp_path)) == 2
    sweep(tmp_path)
    assert names(tmp_path) == ["step-1"]


def test_restoring_copies_into_the_existing_tensors_of_the_same_names_and_shapes():
    tensors = {"a": torch.zeros(2), "b": torch.zeros(1)}
    place = tensors["a"].data_ptr()
    restore(tensors, {"a": torch.ones(2), "b": torch.ones(1)}, "weights")
    assert tensors["a"].tolist() == [1.0, 1.0]
    assert tensors["a"].data_ptr() == place
    for shapes, problem in (
        ({"a": 2}, "weights must match this recipe; 'b' is in only one of them"),
        ({"a": 2, "b": 1, "c": 1}, "'c' is in only one of them"),
        ({"a": 3, "b": 1}, r"weights must match this recipe; 'a' has shape \[3\], expected \[2\]"),
    ):
        with pytest.raises(InputError, match=problem):
            restore(tensors, {name: torch.ones(size) for name, size in shapes.items()}, "weights")


# Damage


def damaged(path, truncations, flips):
    """Damage a file at one position after another, and restore it in between."""
    whole, choose = path.read_bytes(), random.Random(path.name)
    for length in sorted(choose.sample(range(len(whole)), min(len(whole), truncations))):
        path.write_bytes(whole[:length])
        yield f"{path.name} cut to {length} bytes"
    for bit in sorted(choose.sample(range(8 * len(whole)), min(8 * len(whole), flips))):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        yield f"bit {bit} of {path.name} flipped"
    path.write_bytes(whole)


def equal(one, other):
    return one.facts == other.facts and all(
        one.groups[group].keys() == tensors.keys()
        and all(torch.equal(one.groups[group][name], tensor) for name, tensor in tensors.items())
        for group, tensors in other.groups.items()
    )


def damage_checkpoints(folder, truncations, flips):
    """Damage every file of the newest of two checkpoints; return the number of positions."""
    places = 0
    last = load_newest(folder)
    shutil.move(folder / "step-6", folder.parent / "step-6")
    before = load_newest(folder)
    shutil.move(folder.parent / "step-6", folder / "step-6")
    assert not equal(before, last)
    for path in sorted((folder / "step-6").iterdir()):
        for damage in damaged(path, truncations, flips):
            assert equal(load_newest(folder), before), damage
            places += 1
    assert equal(load_newest(folder), last)
    return places


def damage_shards(folder, truncations, flips):
    """Damage every file of a prepared folder; return the number of positions."""
    places = 0
    for path in sorted(folder.iterdir()):
        for _ in damaged(path, truncations, flips):
            with pytest.raises(InputError):
                Shards.open(folder)
            places += 1
    Shards.open(folder)
    return places


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    train(recipe_of(corpus, out, objective="mlm", steps=6))
    return out


@pytest.fixture
def checkpoints(undisturbed, tmp_path):
    """Checkpoints of steps 3 and 6."""
    return shutil.copytree(undisturbed / "checkpoints", tmp_path / "copy")


def test_a_damaged_checkpoint_is_never_loaded(checkpoints):
    assert damage_checkpoints(checkpoints, truncations=5, flips=10) == 60
    shutil.rmtree(checkpoints / "step-3")
    for path in sorted((checkpoints / "step-6").iterdir()):
        for _ in damaged(path, truncations=1, flips=2):
            with pytest.raises(InputError, match="are damaged"):
                load_newest(checkpoints)


def test_a_damaged_prepared_folder_is_never_opened(corpus, tmp_path):
    copy = shutil.copytree(corpus / "data", tmp_path / "copy")
    assert damage_shards(copy, truncations=5, flips=10) == 15 * len([*copy.iterdir()])


@pytest.mark.prove
@pytest.mark.timeout(3000)
def test_damage_at_thousands_of_positions_is_always_detected(corpus, checkpoints, tmp_path, capsys):
    run = damage_checkpoints(checkpoints, 64, 1000)
    data = damage_shards(shutil.copytree(corpus / "data", tmp_path / "data"), 64, 1000)
    with capsys.disabled():
        print(f"\ncheckpoint: {run} places damaged, {run} times the one before; shards: {data} places, {data} errors")


# Full disks


@contextmanager
def files_up_to(size):
    """Make writes beyond a file size fail, by a limit of the operating system."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def syncs_up_to(count):
    """Let the disk be full after a number of syncs."""
    left, fsync = [count], os.fsync

    def full(descriptor):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with mock.patch.object(files.os, "fsync", full):
        yield


# The second checkpoint's files, their folder and its rename are synchronised one after the other.
@pytest.mark.parametrize("syncs", [None, 0, 3, 7, 9])
def test_a_full_disk_at_any_point_of_saving_keeps_the_previous_checkpoint(corpus, undisturbed, tmp_path, syncs):
    recipe, plain = recipe_of(corpus, tmp_path, objective="mlm", steps=6), module.save

    def without_room(folder, step, *rest):
        full = files_up_to(5000) if syncs is None else syncs_up_to(syncs)
        with full if step == 6 else nullcontext():
            plain(folder, step, *rest)

    reason = "File too large" if syncs is None else "No space left on device"
    problem = rf"can't write checkpoint step-6 to .*{reason}.*the previous one is intact: free disk space or set out="
    with mock.patch.object(module, "save", without_room), pytest.raises(InputError, match=problem):
        train(recipe)
    assert load_newest(tmp_path / "checkpoints").facts["step"] == 3
    assert names(tmp_path / "checkpoints") == ["step-3"]
    train(recipe)
    assert_same_results(tmp_path, undisturbed)


def test_what_cannot_be_written_is_reported_in_one_sentence(corpus, tmp_path, capsys):
    with (
        files_up_to(5000),
        pytest.raises(InputError, match=r"can't write checkpoint step-1 .*; there is none yet: free"),
    ):
        save(tmp_path, 1, Checkpoint({"weights": {"a": torch.zeros(10_000)}}, {"step": 1}), keep=1)

    log = MetricsFile(tmp_path / "metrics.jsonl", 0)
    log.write("train", 1, {"note": 1000 * "long "})
    with files_up_to(500), pytest.raises(InputError, match=r"can't write .*metrics\.jsonl' \(File too large\)"):
        log.flush()
    log.close()

    (tmp_path / "recipe.toml").write_text('steps = 3\ndevice = "cpu"\n')
    out = tmp_path / "recipe.toml" / "out"
    assert cli.main(["pretrain", str(tmp_path / "recipe.toml"), f"data={corpus / 'data'}", f"out={out}"]) == 1
    printed = capsys.readouterr().err
    assert f"'{tmp_path / 'recipe.toml'}' must be a folder, but is a file; choose another name" in printed
    assert printed.count("\n") == 1
