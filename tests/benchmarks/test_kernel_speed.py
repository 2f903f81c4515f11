"""The parts of the kernel benchmark; times require a GPU and are not tested."""

import pytest
import torch

from benchmarks.kernel_cases import RANDOM, Size, dynamic_inputs, sampling_inputs, unfolded
from benchmarks.kernels import necessary_bytes
from lightbert.ops import backend
from lightbert.ops.dynamic_conv import dynamic_conv

TINY = Size("tiny", 2, 12, 8, 10, 2, vocab=50)


def test_the_unfolded_convolution_computes_the_same():
    inputs = dynamic_inputs(TINY, "cpu", torch.float32)
    torch.testing.assert_close(unfolded(**inputs), dynamic_conv(**inputs))


def test_necessary_bytes_count_every_read_and_write():
    inputs = dynamic_inputs(TINY, "cpu", torch.bfloat16)
    values, logits = 2 * 12 * 10 * 2, 2 * 12 * 2 * 9 * 2
    forward, both = necessary_bytes(inputs, inputs["values"])
    assert forward == 2 * values + logits
    assert both == forward + 3 * values + 2 * logits


def test_inputs_without_gradient_are_counted_once():
    inputs = sampling_inputs(TINY, "cpu", torch.bfloat16)
    forward, both = necessary_bytes(inputs, torch.zeros(2, dtype=torch.int64))
    assert forward == both == 2 * 50 * 2 + 2 * 2 * 4 + 2 * 8


def test_kernel_and_reference_of_a_random_op_run():
    for name in RANDOM:
        pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
        op, inputs = RANDOM[name]
        tensors = inputs(TINY, "cpu", torch.float16)
        for implementation in ("torch", "triton"):
            with backend.using(implementation):
                out = op(**tensors)
            assert out.isfinite().all()
            assert not torch.equal(out, op(**tensors)), "nothing is random"
