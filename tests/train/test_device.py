"""Device names, and a world of one process."""

import pytest
import torch

from lightbert.errors import InputError
from lightbert.train.distributed import process_group, resolve_device


def test_auto_is_the_gpu_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, kind in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert resolve_device("auto").type == kind


def test_devices_are_resolved_by_name() -> None:
    assert resolve_device("cpu") == torch.device("cpu")


def test_an_unknown_device_raises_an_error() -> None:
    with pytest.raises(InputError, match="unknown device 'gpu'; use auto, cpu or cuda"):
        resolve_device("gpu")


def test_a_gpu_that_is_not_available_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"device .cuda:1. is not available.*use cpu"):
        resolve_device("cuda:1")


def test_a_single_process_is_main_and_needs_no_communication() -> None:
    with process_group("cpu") as alone:
        assert (alone.rank, alone.size, alone.is_main) == (0, 1, True)
        assert alone.sum(torch.tensor([2.0])).tolist() == [2.0]
        assert alone.any(True)
        assert not alone.any(False)
        assert alone.broadcast(0.1) == 0.1
        alone.barrier()


@pytest.mark.parametrize("name", ["mps", "meta", "xla", "vulkan"])
def test_a_device_that_lightbert_does_not_support_is_an_error(name: str) -> None:
    with pytest.raises(InputError, match=f"device '{name}' is not supported; use auto, cpu or cuda"):
        resolve_device(name)
