"""When memory runs out, one sentence says what was asked for, what there is, and what to lower."""

import errno

import numpy as np
import pytest
import torch

from lightbert import cli
from lightbert.commands import info
from lightbert.errors import describe_memory, is_out_of_memory

HUGE = 1 << 55

CUDA = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.50 GiB is "
    "free. Including non-PyTorch memory, this process has 3.00 GiB memory in use."
)


def error_of(allocate) -> BaseException:
    with pytest.raises((MemoryError, RuntimeError)) as caught:
        allocate()
    return caught.value


def test_the_request_and_the_memory_of_the_machine_are_named():
    for allocate in [lambda: np.empty(HUGE, np.uint8), lambda: torch.empty(HUGE, dtype=torch.uint8)]:
        error = error_of(allocate)
        assert is_out_of_memory(error)
        described = describe_memory(error)
        assert described.startswith("the memory of this machine is not sufficient, 3.36e+07 GiB were requested (")
        assert described.endswith(" GiB in total)")


def test_the_request_and_the_memory_of_a_gpu_are_named() -> None:
    error = torch.OutOfMemoryError(CUDA)
    assert is_out_of_memory(error)
    assert describe_memory(error) == (
        "the memory of the GPU is not sufficient, 20 GiB were requested (1.50 GiB free, 139.80 GiB in total)"
    )


def test_an_error_without_details_is_described() -> None:
    assert describe_memory(MemoryError()).startswith("the memory of this machine is not sufficient (")
    assert describe_memory(torch.OutOfMemoryError("out of memory")) == "the memory of the GPU is not sufficient"
    assert not is_out_of_memory(RuntimeError("a bug"))


def test_libraries_and_threads_that_do_not_fit_into_memory_are_recognised():
    for error in [
        ImportError("libtorch.so: failed to map segment from shared object"),
        ImportError("libtorch.so: cannot allocate memory in static TLS block"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        OSError("libgomp.so: cannot create shared object descriptor: Cannot allocate memory"),
        RuntimeError("can't start new thread"),
    ]:
        assert is_out_of_memory(error)


def test_other_errors_are_not_lack_of_memory():
    for error in [
        ImportError("No module named 'x'"),
        OSError(errno.ENOSPC, "No space left"),
        ValueError("out of memory"),
    ]:
        assert not is_out_of_memory(error)


def test_a_small_request_is_not_named() -> None:
    assert "requested" not in describe_memory("memory allocation of 2 bytes failed")
    assert ", 2 GiB were requested" in describe_memory("memory allocation of 2147483648 bytes failed")


def test_a_command_whose_libraries_do_not_fit_into_memory_prints_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise ImportError("libtorch_cpu.so: failed to map segment from shared object")

    monkeypatch.setattr(info, "run", run)
    assert cli.main(["info", "bert-tiny"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("lightbert: the memory of this machine is not sufficient (")
    assert printed.endswith("; choose a smaller model\n")


def test_an_import_error_that_is_a_bug_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        raise ImportError("cannot import name 'x'")

    monkeypatch.setattr(info, "run", run)
    with pytest.raises(ImportError, match="cannot import name"):
        cli.main(["info", "bert-tiny"])


def test_the_command_line_prints_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        np.empty(HUGE, np.uint8)

    monkeypatch.setattr(info, "run", run)
    assert cli.main(["info", "bert-tiny"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("lightbert: the memory of this machine is not sufficient, ")
    assert printed.endswith("; choose a smaller model\n")
    assert printed.count("\n") == 1


def test_the_remedy_fits_the_command():
    for verb, remedy in [
        ("pretrain", "lower batch= or length="),
        ("predict", "lower --batch"),
        ("prepare", "--workers"),
    ]:
        assert remedy in cli._smaller([verb])
