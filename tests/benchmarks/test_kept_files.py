"""Files that take minutes to write are kept, and never used if anything that they depend on has changed."""

import sys

import pytest
import torch
from torch import nn

from benchmarks import latency, latency_files, latency_page
from benchmarks.latency import Settings, measure
from benchmarks.latency_files import (
    encoder_of,
    kept,
    program_digest,
    slow_file,
    source_digests,
    versions,
    write_slow_files,
)
from benchmarks.latency_limits import Aim, Candidate
from benchmarks.latency_page import write_files
from extras import needs_executorch, needs_trainer
from lightbert.deploy.programs import exported_program, rewrite
from lightbert.errors import InputError
from lightbert.tasks.predict.exported import STATES


@pytest.fixture(autouse=True)
def nothing_remembered():
    latency_files._program_digest.cache_clear()
    latency_files._peer_digests.cache_clear()


def test_a_file_is_written_once_and_again_when_something_it_depends_on_changes(tmp_path):
    first = kept(tmp_path, "bert:depth=2.pte", [1, {"torch": "2.0"}], lambda: b"one")
    assert first.name.startswith("bert-depth-2-")
    assert first.suffix == ".pte"
    assert kept(tmp_path, "bert:depth=2.pte", [1, {"torch": "2.0"}], lambda: b"two") == first
    assert first.read_bytes() == b"one"
    second = kept(tmp_path, "bert:depth=2.pte", [1, {"torch": "2.1"}], lambda: b"two")
    assert second.read_bytes() == b"two"


def test_a_file_that_could_not_be_written_is_not_there(tmp_path):
    def fail():
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        kept(tmp_path, "model.pte", [], fail)
    assert not list(tmp_path.iterdir())


def test_packages_that_are_not_installed_have_no_version():
    assert versions("pytest", "no-such-package") == {"pytest": pytest.__version__, "no-such-package": ""}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x):
        return torch.relu(x @ self.weight) * 2.0


class SameLayer(nn.Module):
    """Other names and other functions, but the same operators."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.ones(4, 4))

    def forward(self, x):
        return x.matmul(self.matrix).relu().mul(2.0)


class OtherFactor(Layer):
    def forward(self, x):
        return torch.relu(x @ self.weight) * 3.0


class OtherOperator(Layer):
    def forward(self, x):
        return torch.sigmoid(x @ self.weight) * 2.0


class OtherInput(Layer):
    def forward(self, x):
        y = x @ self.weight
        return torch.relu(x) * 2.0 + 0.0 * y


def digest(module, rows=3, most=8):
    shape = {0: torch.export.Dim("rows", min=2, max=most)}
    return program_digest(torch.export.export(module, (torch.ones(rows, 4),), dynamic_shapes=(shape,)))


def test_the_digest_of_a_program_is_that_of_its_operators_shapes_and_weights():
    expected = digest(Layer())
    assert digest(Layer(), rows=5) == expected
    assert digest(SameLayer()) == expected
    changed = Layer()
    changed.weight.data[1, 2] = 1.5
    half = Layer().half()
    others = [changed, OtherFactor(), OtherOperator(), OtherInput()]
    found = {digest(each) for each in others} | {digest(Layer(), most=16)}
    shape = {0: torch.export.Dim("rows", min=2, max=8)}
    found.add(program_digest(torch.export.export(half, (torch.ones(3, 4).half(),), dynamic_shapes=(shape,))))
    assert len(found) == 6
    assert expected not in found


def test_the_digest_of_a_model_changes_with_its_settings_and_with_its_program():
    def traced(model):
        return exported_program(encoder_of(model), STATES, any_batch=False)

    program = traced("convbert-tiny:depth=1")
    expected = program_digest(program)
    assert program_digest(traced("convbert-tiny:depth=1")) == expected
    assert program_digest(traced("convbert-tiny:depth=1:kernel=7")) != expected
    rewrite(program)
    assert program_digest(program) != expected


@needs_executorch
def test_files_of_executorch_are_kept_until_model_precision_package_or_lowering_change(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(latency_files, "_executorch", lambda model, *, int8: written.append((model, int8)) or b"file")
    first = slow_file("bert-tiny", "executorch", tmp_path)
    with torch.inference_mode():
        assert slow_file("bert-tiny", "executorch", tmp_path) == first
    slow_file("bert-tiny", "executorch-int8", tmp_path)
    slow_file("bert-tiny:depth=1", "executorch", tmp_path)
    assert written == [("bert-tiny", False), ("bert-tiny", True), ("bert-tiny:depth=1", False)]
    with monkeypatch.context() as other:
        other.setattr(latency_files, "version", lambda package: "0")
        assert slow_file("bert-tiny", "executorch", tmp_path) != first
    monkeypatch.setattr(latency_files, "_EXECUTORCH_CODE", source_digests(latency_page))
    assert slow_file("bert-tiny", "executorch", tmp_path) != first
    assert len(written) == 5


@needs_executorch
def test_files_that_are_kept_are_measured(tmp_path, monkeypatch):
    model, keep = "bert-tiny:depth=1", tmp_path / "new" / "files"
    keep.mkdir(parents=True)
    write_slow_files([(model, "torch"), (model, "executorch"), (model, "executorch")], keep)
    (file,) = keep.iterdir()
    size = file.stat().st_size
    monkeypatch.setattr(latency_files, "_executorch", lambda model, *, int8: pytest.fail("written again"))
    settings = Settings(models=(model,), runtimes=("executorch",), length=7, threads=0, rounds=1)
    assert measure(settings, keep).rows[0].megabytes == size / 1e6
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
    aim = Aim(Candidate("bert-tiny", "peer-int8"), Candidate("bert-tiny", "torch"), 7, 1.0)
    write_files([aim], [], tmp_path)
    float32, int8 = sorted(tmp_path.iterdir(), key=lambda path: -path.stat().st_size)
    assert float32.name.startswith("bert-tiny-peer-onnx-")
    assert int8.name.startswith("bert-tiny-peer-int8-")
    monkeypatch.setattr(latency_files, "exported_peer", lambda *arguments: pytest.fail("written again"))
    assert slow_file("bert-tiny", "peer-onnx", tmp_path) == float32
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
