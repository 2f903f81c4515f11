"""The benchmark of kernels checks what it measures; the times need a GPU."""

import pytest
import torch

from lightbert.bench.kernels import OPS, Size, check, dynamic_inputs, necessary_bytes, unfolded
from lightbert.ops.dynamic_conv import dynamic_conv

TINY = Size("tiny", 2, 12, 8, 10, 2)


def test_the_unfolded_way_computes_the_same():
    inputs = dynamic_inputs(TINY, "cpu", torch.float32)
    torch.testing.assert_close(unfolded(**inputs), dynamic_conv(**inputs))


def test_bytes_count_every_tensor_as_often_as_it_must_move():
    inputs = dynamic_inputs(TINY, "cpu", torch.bfloat16)
    values, logits = 2 * 12 * 10 * 2, 2 * 12 * 2 * 9 * 2
    forward, both = necessary_bytes(inputs, inputs["values"])
    assert forward == 2 * values + logits
    assert both == forward + 3 * values + 2 * logits


@pytest.mark.parametrize("name", OPS)
def test_a_kernel_that_is_wrong_is_not_timed(name, monkeypatch):
    op, inputs = OPS[name]
    given = inputs(TINY, "cpu", torch.float16)

    def wrong(**tensors):
        from lightbert.ops import backend

        return op(**tensors) * (1.1 if backend._override == "triton" else 1.0)

    monkeypatch.setattr("lightbert.ops.dynamic_conv.use_triton", lambda *_, **__: False)
    monkeypatch.setattr("lightbert.ops.depthwise.use_triton", lambda *_, **__: False)
    assert check(op, given, None) <= 1
    with pytest.raises(AssertionError, match="times the reference's"):
        check(wrong, given, None)
