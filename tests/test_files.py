import hashlib
import os
import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from lightbert import files
from lightbert.errors import InputError
from lightbert.files import (
    check_name,
    file_atomic,
    folder_atomic,
    make_folder,
    move_folder,
    read_tensors,
    recover_folder,
    sha256,
    write_atomic,
    write_tensors,
)
from lightbert.models.owned import ANY_FOLDER
from lightbert.owned_folders import FolderKind


def test_a_file_is_written_without_leftovers(tmp_path):
    write_atomic(tmp_path / "a.txt", "grüße")
    write_atomic(tmp_path / "a.txt", b"bytes")
    assert (tmp_path / "a.txt").read_bytes() == b"bytes"
    assert names(tmp_path) == ["a.txt"]


def test_a_failed_write_keeps_the_old_content(tmp_path, monkeypatch):
    write_atomic(tmp_path / "a.txt", "old")
    monkeypatch.setattr(files, "_sync", _fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_file_does_not_replace_a_folder(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match="must be a file, but is a folder"):
        write_atomic(tmp_path / "a", "text")
    assert names(tmp_path) == ["a"]


def test_a_path_that_is_a_folder_is_rejected_before_the_body_runs(tmp_path):
    with pytest.raises(InputError, match="must be a file, but is a folder"), file_atomic(tmp_path):
        pytest.fail("the work would be lost")


def test_an_output_folder_is_created_with_its_parents(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_that_is_not_writable_is_named_in_the_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file' must be a folder, but is a file; choose another name"):
        make_folder(tmp_path / "file" / "results")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InputError, match=r"cannot write to the folder '.*results' \(Permission denied\)"):
        make_folder(tmp_path / "results")


def test_a_folder_appears_only_after_its_body_succeeds(tmp_path):
    with folder_atomic(tmp_path / "deep" / "model", ANY_FOLDER) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "a").write_text("a")
        assert not (tmp_path / "deep" / "model").exists()
    assert (tmp_path / "deep" / "model" / "inner" / "a").read_text() == "a"
    assert names(tmp_path / "deep") == ["model"]


def test_an_existing_folder_is_replaced_as_a_whole(tmp_path):
    for name in ("old", "new"):
        with folder_atomic(tmp_path / "model", ANY_FOLDER) as folder:
            (folder / name).touch()
    assert names(tmp_path / "model") == ["new"]
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("interruption", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_behind_when_the_body_raises(tmp_path, interruption):
    def interrupted():
        with folder_atomic(tmp_path / "deep" / "model", ANY_FOLDER) as folder:
            (folder / "half").touch()
            raise interruption

    with pytest.raises(interruption):
        interrupted()
    assert names(tmp_path) == []


def test_an_existing_folder_survives_a_body_that_raises(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()

    def interrupted():
        with folder_atomic(tmp_path / "model", ANY_FOLDER):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert names(tmp_path / "model") == ["old"]
    assert names(tmp_path) == ["model"]


def test_an_existing_folder_is_restored_when_the_last_rename_fails(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()
    rename = type(tmp_path).replace

    def fail_for_the_new_folder(source, target):
        if ".tmp-" in source.name:
            _fail()
        return rename(source, target)

    monkeypatch.setattr(type(tmp_path), "replace", fail_for_the_new_folder)
    with pytest.raises(OSError, match="disk full"), folder_atomic(tmp_path / "model", ANY_FOLDER):
        pass
    assert names(tmp_path / "model") == ["old"]
    assert names(tmp_path) == ["model"]


def test_files_of_a_crashed_attempt_are_not_mixed_into_the_next_one(tmp_path):
    stale = tmp_path / f".model.tmp-{os.getpid()}"
    stale.mkdir()
    (stale / "half").touch()
    with folder_atomic(tmp_path / "model", ANY_FOLDER) as folder:
        (folder / "whole").touch()
    assert names(tmp_path / "model") == ["whole"]


MINE = FolderKind("one of mine", ("a.txt", "inner/*.txt"), lambda folder: (folder / "a.txt").exists())


@pytest.mark.parametrize(
    ("name", "problem"),
    [("notes.txt", "exists and is not one of mine"), ("a.txt/b", "contains 'a.txt/b', which lightbert did not write")],
)
def test_a_folder_with_files_of_others_is_never_replaced(tmp_path, name, problem):
    (tmp_path / "model" / name).parent.mkdir(parents=True)
    (tmp_path / "model" / name).write_text("mine")
    with pytest.raises(InputError, match=problem), folder_atomic(tmp_path / "model", MINE):
        pytest.fail("the work would be lost")
    assert (tmp_path / "model" / name).read_text() == "mine"
    MINE.remove(tmp_path / "model")
    assert (tmp_path / "model" / name).read_text() == "mine"


def test_a_file_that_is_added_while_the_folder_is_written_is_kept(tmp_path):
    def write():
        with folder_atomic(tmp_path / "model", MINE) as folder:
            (folder / "inner").mkdir()
            (folder / "a.txt").write_text("new")
            (folder / "inner" / "b.txt").touch()

    write()
    write()

    def write_slowly():
        with folder_atomic(tmp_path / "model", MINE):
            (tmp_path / "model" / "inner" / "notes.md").touch()

    with pytest.raises(InputError, match=r"contains 'inner/notes\.md'"):
        write_slowly()
    assert (tmp_path / "model" / "a.txt").read_text() == "new"
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("here", [".", "inner"])
def test_the_current_folder_is_never_replaced(tmp_path, monkeypatch, here):
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / here)
    with pytest.raises(InputError, match="is the current folder or contains it"), folder_atomic(tmp_path, ANY_FOLDER):
        pytest.fail("the work would be lost")


def test_a_folder_whose_replacement_was_killed_is_restored(tmp_path):
    old = tmp_path / ".model.old-999999999"
    old.mkdir()
    (old / "a.txt").write_text("old")
    recover_folder(tmp_path / "model", MINE)
    assert (tmp_path / "model" / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_the_backup_of_a_replaced_folder_is_removed_if_it_is_ours(tmp_path):
    for name, file in ((".model.old-999999999", "a.txt"), (".model.old-999999998", "notes.txt"), ("model", "a.txt")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    recover_folder(tmp_path / "model", MINE)
    assert names(tmp_path) == [".model.old-999999998", "model"]


def test_a_backup_that_is_a_link_is_removed_without_its_target(tmp_path):
    for name in ("big", "model"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").touch()
    (tmp_path / ".model.old-999999999").symlink_to("big")
    recover_folder(tmp_path / "model", MINE)
    assert names(tmp_path) == ["big", "model"]
    assert names(tmp_path / "big") == ["a.txt"]


def test_a_link_is_replaced_by_a_folder_without_its_target(tmp_path):
    for name in ("big", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").touch()
    (tmp_path / "model").symlink_to("big")
    (tmp_path / f".model.old-{os.getpid()}").symlink_to("removed")
    move_folder(tmp_path / "new", tmp_path / "model")
    assert names(tmp_path) == ["big", "model"]
    assert names(tmp_path / "model") == ["new.txt"]
    assert names(tmp_path / "big") == ["big.txt"]


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(tmp_path / "pipe", "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    write_atomic(Path(os.devnull), "text")
    assert names(tmp_path) == ["pipe"]
    assert (tmp_path / "pipe").is_fifo()


def test_the_target_of_a_link_is_replaced_and_not_the_link(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "target").write_text("old")
    (tmp_path / "link").symlink_to("folder/target")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "target").read_text() == "new"


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_tensor_files_have_the_mode_of_other_files(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_tensors(tmp_path / "t.safetensors", {"a": torch.ones(1)})
    finally:
        os.umask(before)
    assert (tmp_path / "t.safetensors").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_folder_does_not_replace_a_file(tmp_path):
    (tmp_path / "model").touch()
    with (
        pytest.raises(InputError, match="must be a folder, but is a file"),
        folder_atomic(tmp_path / "model", ANY_FOLDER),
    ):
        pass


def test_a_folder_below_a_file_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(InputError, match="file' must be a folder, but is a file; choose another name"),
        folder_atomic(tmp_path / "file" / "model", ANY_FOLDER),
    ):
        pass


def test_a_text_in_place_of_a_name_is_an_error():
    check_name("missing")
    with pytest.raises(InputError, match=r"the name 'some text some .*…' is too long for a file or folder"):
        check_name("some text " * 600)


def test_sha256_is_that_of_the_content(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    assert sha256(tmp_path / "a") == hashlib.sha256(b"content").hexdigest()


def test_tensors_are_read_back_unchanged(tmp_path):
    tensors = {"a": torch.randn(3, 2).T, "b": torch.arange(4), "c": torch.ones(2, dtype=torch.bfloat16)}
    write_tensors(tmp_path / "t.safetensors", tensors, {"format": "1"})
    back = read_tensors(tmp_path / "t.safetensors")
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensors[name]) and back[name].dtype == tensors[name].dtype for name in tensors)
    with safe_open(tmp_path / "t.safetensors", "pt") as file:
        assert file.metadata() == {"format": "1"}
    assert names(tmp_path) == ["t.safetensors"]


@pytest.mark.parametrize("kept", [0, 4, 40, -1])
def test_a_truncated_tensor_file_is_an_input_error(tmp_path, kept):
    path = tmp_path / "t.safetensors"
    write_tensors(path, {"a": torch.randn(3, 2)})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match="is truncated or not a safetensors file"):
        read_tensors(path)


def test_a_missing_tensor_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="not found; give the path of a safetensors file"):
        read_tensors(tmp_path / "t.safetensors")


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth", ".ckpt"])
def test_a_pickle_is_rejected_with_the_command_that_converts_it(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    torch.save({"a": torch.ones(1)}, path)
    command = f"`lightbert convert {tmp_path} NEW_FOLDER --to lightbert`"
    with pytest.raises(InputError, match=rf"is a pickle.*{re.escape(command)}"):
        read_tensors(path)


def _fail(*_):
    raise OSError("disk full")


def names(folder):
    return sorted(path.name for path in folder.iterdir())
