"""The checks of the kernel benchmark; times require a GPU and are not tested."""

from functools import partial

import pytest
import torch

from lightbert.bench import kernel_blocks, vocabulary_blocks
from lightbert.bench.kernel_cases import OPS, RANDOM, Size, dynamic_inputs, sampling_inputs, unfolded
from lightbert.bench.kernels import check, necessary_bytes
from lightbert.ops import backend
from lightbert.ops.backend import selected
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


@pytest.mark.parametrize("name", OPS)
def test_a_wrong_kernel_is_not_timed(name, monkeypatch):
    op, inputs = OPS[name]
    given = inputs(TINY, "cpu", torch.float16)

    def wrong(**tensors):
        return op(**tensors) * (2 if backend._override == "triton" else 1)

    for module in ("mixed_heads", *selected("all")):
        monkeypatch.setattr(f"lightbert.ops.{module}.use_triton", lambda *_, **__: False)
    monkeypatch.setattr("lightbert.ops.embedding.on_gpu", lambda _: False)
    assert check(op, given) <= 1
    with pytest.raises(AssertionError, match="the reference's"):
        check(wrong, given)


@pytest.mark.parametrize("name", RANDOM)
def test_kernel_and_reference_of_a_random_op_run(name):
    pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
    op, inputs = RANDOM[name]
    given = inputs(TINY, "cpu", torch.float16)
    for implementation in ("torch", "triton"):
        with backend.using(implementation):
            out = op(**given)
        assert out.isfinite().all()
        assert not torch.equal(out, op(**given)), "nothing is random"


def test_the_search_over_block_sizes_tries_every_candidate_of_the_chosen_ops(monkeypatch, capsys):
    pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
    searches = {"norm_inputs": kernel_blocks, "gelu_inputs": kernel_blocks, "linear_entropy_inputs": vocabulary_blocks}
    for name, module in searches.items():
        monkeypatch.setattr(module, name, partial(getattr(module, name), device="cpu", dtype=torch.float16))

    def run_once(calls):
        calls[0]()
        return 1.0

    for module in (kernel_blocks, vocabulary_blocks):
        monkeypatch.setattr(module, "microseconds", run_once)
    found = kernel_blocks.try_blocks(TINY, "norm,gelu,linear_cross")
    norm = len(kernel_blocks.NORM_FORWARD) + len(kernel_blocks.NORM_BACKWARD)
    vocabulary = len(vocabulary_blocks.FORWARD) + len(vocabulary_blocks.BACKWARD)
    gelu = len(kernel_blocks.GELU_FORWARD) + len(kernel_blocks.GELU_BACKWARD)
    assert len(found) == 2 * norm + gelu + vocabulary
    assert len(capsys.readouterr().out.splitlines()) == len(found)
