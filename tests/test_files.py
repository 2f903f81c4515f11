import errno
import hashlib
import json
import os
import re
import socket
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from lightbert import files
from lightbert.errors import InputError
from lightbert.files import (
    FolderKind,
    check_name,
    check_outputs,
    file_atomic,
    folder_atomic,
    list_outputs,
    make_folder,
    move_folder,
    read_tensors,
    read_text,
    read_tokenizer,
    sha256,
    sweep,
    write_atomic,
    write_tensors,
)
from lightbert.models.folder import ANY_FOLDER


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
        if source.parent != tmp_path and source.name == "model":
            _fail()
        return rename(source, target)

    monkeypatch.setattr(type(tmp_path), "replace", fail_for_the_new_folder)
    with pytest.raises(OSError, match="disk full"), folder_atomic(tmp_path / "model", ANY_FOLDER):
        pass
    assert names(tmp_path / "model") == ["old"]
    assert names(tmp_path) == ["model"]


def leftover(where, *names, target="model", pid=999999999):
    """What a killed process leaves: a temporary folder with its mark."""
    folder = where / f".lightbert-{pid}-abc"
    folder.mkdir()
    (folder / "lightbert.json").write_text(
        json.dumps({"writer": "lightbert", "host": socket.gethostname(), "pid": pid, "target": target})
    )
    for name in names:
        (folder / name).mkdir()
        (folder / name / "a.txt").write_text(name)
    return folder


def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path):
    leftover(tmp_path, "model")
    (tmp_path / ".lightbert-999999998-def").mkdir()
    running = leftover(tmp_path, "model", pid=os.getppid())
    with folder_atomic(tmp_path / "model", ANY_FOLDER) as folder:
        (folder / "whole").touch()
    assert names(tmp_path / "model") == ["whole"]
    assert names(tmp_path) == [running.name, "model"]


def test_hidden_files_of_others_that_look_temporary_are_kept(tmp_path):
    others = [".model.tmp-17", ".model.old-17", ".lightbert-17-abc", ".lightbert-notes", ".a.json.old-999999999"]
    for name in others:
        (tmp_path / name).mkdir()
        (tmp_path / name / "lightbert.json").write_text('{"writer": "somebody"}')
    (tmp_path / ".lightbert-18-file").write_text("mine")
    (tmp_path / ".lightbert-19-link").symlink_to(others[0])
    before = names(tmp_path)
    write_atomic(tmp_path / "a.json", "{}")
    sweep(tmp_path)
    assert names(tmp_path) == sorted([*before, "a.json"])
    assert all((tmp_path / name / "lightbert.json").exists() for name in others)


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
    leftover(tmp_path, "old")
    sweep(tmp_path)
    assert (tmp_path / "model" / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_the_old_content_of_a_replaced_folder_is_removed(tmp_path):
    (tmp_path / "model").mkdir()
    leftover(tmp_path, "old")
    sweep(tmp_path)
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model") == []


def test_a_leftover_never_restores_outside_of_its_folder(tmp_path):
    (tmp_path / "inner").mkdir()
    leftover(tmp_path / "inner", "old", target="../stolen")
    sweep(tmp_path / "inner")
    assert names(tmp_path) == ["inner"]


def test_a_link_is_replaced_by_a_folder_without_its_target(tmp_path):
    for name in ("big", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").touch()
    (tmp_path / "model").symlink_to("big")
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


def test_a_link_is_replaced_only_where_the_user_names_it(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "target").write_text("old")
    (tmp_path / "link").symlink_to("folder/target")
    with pytest.raises(InputError, match="link' is a link, whose target would be replaced; remove the link"):
        write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "folder" / "target").read_text() == "old"
    with file_atomic(tmp_path / "link", follow=True) as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "target").read_text() == "new"


def test_a_full_disk_is_an_error_with_the_path(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_sync", full)
    with pytest.raises(OSError, match="No space left") as error:
        write_atomic(tmp_path / "a.txt", "text")
    assert error.value.filename == str(tmp_path / "a.txt")
    assert names(tmp_path) == []


def test_devices_pipes_and_large_files_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(InputError, match=r"config\.json' must be a regular file"):
        read_text(tmp_path / "config.json")
    with pytest.raises(InputError, match="must be a regular file"):
        read_text(Path("/dev/zero"))
    with (tmp_path / "large").open("wb") as file:
        file.truncate(files.MAX_TEXT + 1)
    with pytest.raises(InputError, match="large' must have at most"):
        read_text(tmp_path / "large")


def test_a_tokenizer_whose_replacements_explode_is_not_read(tmp_path):
    rule = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaa"}
    content = json.loads(Tokenizer(WordLevel({"a": 0}, unk_token="a")).to_str())
    for count, matches in ((1, True), (12, False)):
        content["normalizer"] = {"type": "Sequence", "normalizers": [rule] * count}
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        if matches:
            assert read_tokenizer(tmp_path / "tokenizer.json").encode("a").ids
        else:
            with pytest.raises(InputError, match="replaces characters by 68,719,476,736 times as many"):
                read_tokenizer(tmp_path / "tokenizer.json")


def test_only_listed_outputs_are_replaced(tmp_path):
    (tmp_path / "report.md").write_text("mine")
    with pytest.raises(InputError, match=r"report\.md' exists, and lightbert did not write it; .* add --overwrite"):
        check_outputs(tmp_path, ["report.json", "report.md"], overwrite=False)
    check_outputs(tmp_path, ["report.json", "report.md"], overwrite=True)
    list_outputs(tmp_path, ["report.md"])
    check_outputs(tmp_path, ["report.json", "report.md"], overwrite=False)


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
