"""Selection of an op's implementation."""

from importlib.util import find_spec, module_from_spec
from types import ModuleType
from unittest import mock

import pytest
import torch

from lightbert.errors import InputError
from lightbert.ops.backend import KERNELS, as_autocast, enabling, selected, use_triton, using


def test_a_cpu_and_types_without_kernels_use_the_reference():
    assert not use_triton("depthwise", torch.zeros(1, dtype=torch.bfloat16), fits=True)


def test_using_selects_a_backend_inside_its_block_only():
    x = torch.zeros(1)
    with using("triton"):
        assert use_triton("depthwise", x, fits=True)
        assert not use_triton("depthwise", x, fits=False), "shapes that no kernel takes"
        with using("torch"):
            assert not use_triton("depthwise", x, fits=True)
        assert use_triton("depthwise", x, fits=True)
    assert not use_triton("depthwise", x, fits=True)


def test_using_restores_the_backend_after_an_error():
    with pytest.raises(ValueError, match="stop"), using("triton"):
        raise ValueError("stop")
    assert not use_triton("depthwise", torch.zeros(1), fits=True)


def test_a_graph_exported_from_a_cpu_contains_the_reference():
    class Chooses(torch.nn.Module):
        def forward(self, x):
            return x + 1 if use_triton("depthwise", x, fits=True) else x - 1

    assert torch.export.export(Chooses(), (torch.zeros(2),)).module()(torch.zeros(2)).tolist() == [-1, -1]


def test_autocast_rounds_single_precision_only():
    exact, double = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    assert as_autocast(exact) is exact
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert as_autocast(exact).dtype is torch.bfloat16
        assert as_autocast(double) is double


def test_a_selection_of_kernels_adds_and_removes_ops():
    assert selected("all") == KERNELS
    assert selected("none") == ()
    assert selected("all,-depthwise") == tuple(op for op in selected("all") if op != "depthwise")
    assert selected("none, bias_gelu") == ("bias_gelu",)


def test_an_unknown_op_in_a_selection_is_an_error():
    with pytest.raises(InputError, match="unknown selection of kernels 'bias_gelo'; did you mean 'bias_gelu'"):
        selected("all,-bias_gelo")


def test_only_enabled_kernels_run_on_a_gpu():
    x = mock.Mock(is_cuda=True, dtype=torch.bfloat16)
    with (
        mock.patch("lightbert.ops.backend.HAS_TRITON", True),
        mock.patch("torch.cuda.get_device_capability", return_value=(9, 0)),
        enabling("all,-depthwise"),
    ):
        assert use_triton("residual_norm", x, fits=True)
        assert not use_triton("depthwise", x, fits=True)
        with enabling("none,depthwise"):
            assert use_triton("depthwise", x, fits=True)
            assert not use_triton("residual_norm", x, fits=True)
        assert not use_triton("depthwise", x, fits=True)


def copy_of_backend() -> ModuleType:
    """The module as a new process imports it; reloading it would change it for all other tests."""
    spec = find_spec("lightbert.ops.backend")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_kernels_are_enabled_by_default(monkeypatch):
    monkeypatch.delenv("LIGHTBERT_KERNELS", raising=False)
    assert copy_of_backend()._enabled == selected("all")


def test_the_environment_selects_kernels(monkeypatch):
    monkeypatch.setenv("LIGHTBERT_KERNELS", "none,residual_norm")
    assert copy_of_backend()._enabled == ("residual_norm",)


def test_an_unknown_selection_is_an_error_that_names_the_environment_variable(monkeypatch):
    monkeypatch.setenv("LIGHTBERT_KERNELS", "foo")
    with pytest.raises(InputError, match="environment variable LIGHTBERT_KERNELS 'foo'; choose from all, "):
        copy_of_backend()


def test_every_selectable_op_exists():
    for op in selected("all"):
        assert find_spec(f"lightbert.ops.kernels.{op}")
