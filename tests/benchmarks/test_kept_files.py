"""Files that take minutes to write are kept, and never used if anything that they depend on has changed."""

import sys

import pytest
import torch

from benchmarks import latency, latency_files, latency_page
from benchmarks.latency import Settings, measure
from benchmarks.latency_files import kept, slow_file, write_slow_files
from benchmarks.latency_limits import Aim, Candidate
from benchmarks.pages import versions
from extras import needs_executorch, needs_trainer
from lightbert.errors import InputError


def test_a_file_is_written_once_and_again_when_something_it_depends_on_changes(tmp_path, monkeypatch):
    first = kept(tmp_path, "bert:depth=2.pte", ["1"], lambda: b"one")
    assert first.name.startswith("bert-depth-2-")
    assert first.suffix == ".pte"
    assert kept(tmp_path, "bert:depth=2.pte", ["1"], lambda: b"two") == first
    assert first.read_bytes() == b"one"
    assert kept(tmp_path, "bert:depth=2.pte", ["2"], lambda: b"two").read_bytes() == b"two"
    monkeypatch.setattr(latency_files, "_environment", lambda: ["torch 0"])
    assert kept(tmp_path, "bert:depth=2.pte", ["1"], lambda: b"three").read_bytes() == b"three"


def test_the_environment_has_the_source_and_versions(monkeypatch):
    before = latency_files._environment.__wrapped__()
    assert before == latency_files._environment()
    monkeypatch.setattr(latency_files, "versions", lambda *names: dict.fromkeys(names, "0"))
    assert latency_files._environment.__wrapped__() != before
    assert versions("pytest", "no-such-package") == {"pytest": pytest.__version__, "no-such-package": ""}


def test_a_file_that_could_not_be_written_is_not_there(tmp_path):
    def fail():
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        kept(tmp_path, "model.pte", [], fail)
    assert not list(tmp_path.iterdir())


def test_files_of_executorch_are_kept_for_each_model_and_precision(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(latency_files, "_executorch", lambda model, *, int8: written.append((model, int8)) or b"file")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    pairs = [
        ("bert-tiny", "torch"),
        *((each, "executorch") for each in ("bert-tiny", "bert-tiny:depth=1", str(folder))),
    ]
    for _ in range(2):
        write_slow_files([*pairs, ("bert-tiny", "executorch-int8")], tmp_path)
    assert written == [("bert-tiny", False), ("bert-tiny:depth=1", False), (str(folder), False), ("bert-tiny", True)]
    with torch.inference_mode():
        slow_file("bert-tiny", "executorch", tmp_path)
    (folder / "model.safetensors").write_bytes(b"others")
    slow_file(str(folder), "executorch", tmp_path)
    assert written[4:] == [(str(folder), False)]


@needs_executorch
def test_files_that_are_kept_are_measured(tmp_path, monkeypatch):
    model, keep = "bert-tiny:depth=1", tmp_path / "new" / "files"
    keep.mkdir(parents=True)
    write_slow_files([(model, "executorch")], keep)
    (file,) = keep.iterdir()
    monkeypatch.setattr(latency_files, "_executorch", lambda model, *, int8: pytest.fail("written again"))
    arguments = ["--models", model, "--runtimes", "executorch", "--length", "7", "--rounds", "1", "--threads", "1"]
    latency.main([*arguments, "--keep", str(keep), "--json"])
    assert list(keep.iterdir()) == [file]


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    arguments = ["--models", "bert-tiny", "--runtimes", "torch", "--threads", "1", "--keep", str(tmp_path / "file")]
    with pytest.raises(InputError, match="file' must be a folder, but is a file"):
        latency.main(arguments)


@needs_trainer
def test_files_of_transformers_are_kept_in_float32_and_int8(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    slow_file("bert-tiny", "peer-int8", tmp_path)
    float32, int8 = sorted(tmp_path.iterdir(), key=lambda path: -path.stat().st_size)
    assert float32.name.startswith("bert-tiny-peer-onnx-")
    assert int8.name.startswith("bert-tiny-peer-int8-")
    monkeypatch.setattr(latency_files, "exported_peer", lambda *arguments: pytest.fail("written again"))
    settings = Settings(models=("bert-tiny",), runtimes=("peer-int8",), length=7, threads=0, rounds=1)
    assert measure(settings, tmp_path).rows[0].megabytes == int8.stat().st_size / 1e6


def test_the_files_of_the_page_are_written_without_measuring(tmp_path, monkeypatch, capsys):
    found = []
    monkeypatch.setattr(latency_files, "slow_file", lambda model, runtime, folder: found.append((model, runtime)))
    monkeypatch.setattr(latency_page, "available_runtimes", lambda: ("torch", "onnx", "executorch"))
    monkeypatch.setattr(latency_page, "measure", lambda settings, folder: pytest.fail("measured"))
    monkeypatch.setattr(latency_page, "MODELS", ("bert-tiny",))
    aim = Aim(Candidate("convbert-tiny", "executorch-int8"), Candidate("bert-tiny", "executorch"), 7, 1.0)
    monkeypatch.setattr(latency_page, "AIMS", (aim,))
    monkeypatch.setattr(latency_page, "check_runtimes", lambda runtimes: None)
    monkeypatch.setattr(sys, "argv", ["latency_page", "--keep", str(tmp_path), "--files-only"])
    latency_page.main()
    assert found == [("bert-tiny", "executorch"), ("convbert-tiny", "executorch-int8")]
    assert "writing: 2/2 files" in capsys.readouterr().err


def test_the_page_needs_a_file_or_a_folder(monkeypatch, capsys):
    for arguments, message in (
        (["--files-only"], "--files-only requires --keep FOLDER"),
        (["--keep", "x"], "--out FILE is required"),
    ):
        monkeypatch.setattr(sys, "argv", ["latency_page", *arguments])
        with pytest.raises(SystemExit, match="2"):
            latency_page.main()
        assert message in capsys.readouterr().err
