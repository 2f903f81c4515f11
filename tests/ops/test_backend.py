"""Selection of an op's implementation."""

import pytest
import torch

from lightbert.ops.backend import as_autocast, use_triton, using


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
