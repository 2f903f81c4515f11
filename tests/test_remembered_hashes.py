"""Hashes of files are remembered until the files change."""

import os
import time
from pathlib import Path

import pytest

import lightbert.files
from lightbert.files import hash_files, sha256


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read."""
    names: list[str] = []

    def counting(path: Path) -> str:
        names.append(path.name)
        return sha256(path)

    monkeypatch.setattr(lightbert.files, "sha256", counting)
    return names


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two files that were written some time ago."""
    monkeypatch.setattr(lightbert.files, "_SECONDS_UNTIL_SETTLED", 0.05)
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_text(path.name)
    time.sleep(0.1)
    return paths


def test_unchanged_files_are_read_once(files: list[Path], tmp_path: Path, hashed: list[str]) -> None:
    expected = {path: sha256(path) for path in files}
    assert hash_files(files, tmp_path) == hash_files(files, tmp_path) == expected
    assert hashed == ["a", "b"]
    hash_files(files, tmp_path, again=True)
    assert hashed == ["a", "b", "a", "b"]


def test_a_changed_file_is_read_again_even_if_its_size_and_modification_time_are_the_same(
    files: list[Path], tmp_path: Path, hashed: list[str]
) -> None:
    hash_files(files, tmp_path)
    before = files[0].stat()
    files[0].write_text("x")
    os.utime(files[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert hash_files(files, tmp_path)[files[0]] == sha256(files[0])
    assert hashed == ["a", "b", "a"]


def test_a_file_that_was_just_written_is_not_remembered(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lightbert.files, "_SECONDS_UNTIL_SETTLED", 60.0)
    (tmp_path / "a").write_text("a")
    for _ in range(2):
        hash_files([tmp_path / "a"], tmp_path)
    assert hashed == ["a", "a"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"a": []}'])
def test_a_damaged_memory_is_ignored(files: list[Path], tmp_path: Path, content: str) -> None:
    store = lightbert.files._store(tmp_path)
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(content)
    assert hash_files(files, tmp_path) == {path: sha256(path) for path in files}


def test_without_a_writable_cache_files_are_read_every_time(
    files: list[Path], tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LIGHTBERT_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert hash_files(files, tmp_path) == {path: sha256(path) for path in files}
    assert len(hashed) == 4
