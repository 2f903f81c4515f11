"""When memory runs out, one sentence says what was asked for, what there is, and what to lower."""

import numpy as np
import pytest
import torch

from lightbert import cli, memory
from lightbert.commands import info

HUGE = 1 << 55

CUDA = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.50 GiB is "
    "free. Including non-PyTorch memory, this process has 3.00 GiB memory in use."
)


def error_of(allocate) -> BaseException:
    with pytest.raises((MemoryError, RuntimeError)) as caught:
        allocate()
    return caught.value


@pytest.mark.parametrize("allocate", [lambda: np.empty(HUGE, np.uint8), lambda: torch.empty(HUGE, dtype=torch.uint8)])
def test_the_request_and_the_memory_of_the_machine_are_named(allocate) -> None:
    error = error_of(allocate)
    assert memory.is_out_of_memory(error)
    described = memory.describe(error)
    assert described.startswith("the memory of this machine is not sufficient, 3.36e+07 GiB were requested (")
    assert described.endswith(" GiB in total)")


def test_the_request_and_the_memory_of_a_gpu_are_named() -> None:
    error = torch.OutOfMemoryError(CUDA)
    assert memory.is_out_of_memory(error)
    assert memory.describe(error) == (
        "the memory of the GPU is not sufficient, 20 GiB were requested (1.50 GiB free, 139.80 GiB in total)"
    )


def test_an_error_without_details_is_described() -> None:
    assert memory.describe(MemoryError()).startswith("the memory of this machine is not sufficient (")
    assert memory.describe(torch.OutOfMemoryError("out of memory")) == "the memory of the GPU is not sufficient"
    assert not memory.is_out_of_memory(RuntimeError("a bug"))


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


@pytest.mark.parametrize(
    ("verb", "remedy"),
    [("pretrain", "lower batch= or length="), ("predict", "lower --batch"), ("prepare", "--workers")],
)
def test_the_remedy_fits_the_command(verb: str, remedy: str) -> None:
    assert remedy in cli._smaller([verb])
