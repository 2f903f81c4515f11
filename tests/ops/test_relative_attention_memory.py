"""The relative attention kernels write the same bits to slices of wider tensors, and nothing beside them."""

import pytest
import torch
from gradients import draw
from kernels import DEVICE, MARKS
from torch import Tensor

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]

HEADS, EACH, RADIUS = 2, 5, 3
WIDTH, OFFSETS = HEADS * EACH, 2 * RADIUS + 1


@pytest.fixture
def kernels(monkeypatch):
    """Launches with blocks of 16 tokens."""
    from lightbert.ops.kernels import relative_attention as kernels

    for name in ("FORWARD", "PLAIN_FORWARD", "NARROW_FORWARD", "BY_QUERY", "BY_KEY", "ROW", "PLAIN_ROW", "NARROW_ROW"):
        monkeypatch.setattr(kernels, name, kernels.Blocks(16, 16, 4, 2))
    return kernels


def numbers(*shape: int) -> Tensor:
    return draw(*shape).float().to(DEVICE)


def inputs(batch: int, tokens: int, biased: bool) -> tuple[Tensor | None, ...]:
    """Queries, keys, values, both biases, no texts and a seed."""
    streams = [numbers(batch, tokens, WIDTH) for _ in range(3)]
    biases = [numbers(batch, HEADS, tokens, OFFSETS) if biased else None for _ in range(2)]
    return (*streams, *biases, None, torch.tensor([7], device=DEVICE))


def wide(batch: int, tokens: int, parts: int) -> tuple[Tensor, ...]:
    """A tensor of NaN, and its slices of WIDTH channels."""
    memory = torch.full((batch, tokens, parts * WIDTH), float("nan"), device=DEVICE)
    return memory, *memory.split(WIDTH, dim=-1)


def biases_of_tokens(batch: int, tokens: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """A tensor of NaN with both biases of all heads of a token side by side and one number more, and views of them."""
    memory = torch.full((batch, tokens, 2 * HEADS * OFFSETS + 1), float("nan"), device=DEVICE)
    parts = memory[..., :-1].split(HEADS * OFFSETS, dim=-1)
    by_query, by_key = (part.unflatten(-1, (HEADS, OFFSETS)).transpose(1, 2) for part in parts)
    return memory, (by_query, by_key)


def tensors(gradients) -> list[Tensor]:
    """All gradients of a call."""
    return [each for each in vars(gradients).values() if each is not None]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(2, 13), (2, 37), (1, 1)], ids=["whole rows", "long rows", "one token"])
def test_slices_get_the_bits_of_separate_tensors_and_nothing_else_is_written(kernels, shape, biased):
    call = kernels.prepare(*inputs(*shape, biased), HEADS, clamp=True, dropout=0.2)
    grad = numbers(*shape, WIDTH)
    expected, expected_sums = kernels.forward(call)
    expected_gradients = kernels.backward(call, grad, expected, expected_sums)

    memory, beside, out = wide(*shape, 2)
    found, log_sums = kernels.forward(call, out=out)
    assert found is out
    assert torch.equal(out, expected)
    assert torch.equal(log_sums, expected_sums)
    assert beside.isnan().all()

    memory, of_value, beside, of_query, of_key = wide(*shape, 4)
    of_biases, in_tokens = biases_of_tokens(*shape) if biased else (None, (None, None))
    into = kernels.Gradients(of_query, of_key, of_value, *in_tokens)
    assert kernels.backward(call, grad, out, log_sums, into=into) is into
    for found, wanted in zip(tensors(into), tensors(expected_gradients), strict=True):
        assert torch.equal(found, wanted)
    assert beside.isnan().all()
    assert memory.isnan().sum() == beside.numel()
    if of_biases is not None:
        assert of_biases[..., -1].isnan().all()


def test_the_result_that_the_backward_pass_reads_may_have_any_layout(kernels):
    call = kernels.prepare(*inputs(2, 37, True), HEADS, clamp=True, dropout=0.0)
    grad = numbers(2, 37, WIDTH)
    out, log_sums = kernels.forward(call)
    transposed = out.transpose(1, 2).contiguous().transpose(1, 2)
    found, expected = (kernels.backward(call, grad, each, log_sums) for each in (transposed, out))
    for one, other in zip(tensors(found), tensors(expected), strict=True):
        assert torch.equal(one, other)


def test_memory_of_another_shape_or_layout_is_an_error(kernels):
    call = kernels.prepare(*inputs(2, 13, False), HEADS, clamp=True, dropout=0.0)
    out, log_sums = kernels.forward(call)
    with pytest.raises(ValueError, match=r"must have the shape \(2, 13, 10\), got \(2, 13, 11\)"):
        kernels.forward(call, out=numbers(2, 13, WIDTH + 1))
    with pytest.raises(ValueError, match=r"must have regular rows of contiguous channels, got strides \(130, 1, 13\)"):
        kernels.forward(call, out=numbers(2, WIDTH, 13).transpose(1, 2))
    separate = numbers(2, 13, WIDTH)
    into = kernels.Gradients(separate, separate, wide(2, 13, 2)[1])
    with pytest.raises(ValueError, match=r"must have one token stride, got \[10, 20\]"):
        kernels.backward(call, out, out, log_sums, into=into)


def test_memory_for_the_gradients_of_biases_that_differ_in_their_strides_is_an_error(kernels):
    call = kernels.prepare(*inputs(2, 13, True), HEADS, clamp=True, dropout=0.0)
    out, log_sums = kernels.forward(call)
    separate, (in_tokens, _) = numbers(2, HEADS, 13, OFFSETS), biases_of_tokens(2, 13)[1]
    streams = [numbers(2, 13, WIDTH) for _ in range(3)]
    for biases in ((separate, in_tokens), (separate.transpose(2, 3).contiguous().transpose(2, 3), None)):
        with pytest.raises(ValueError, match="must have contiguous weights and equal strides"):
            kernels.backward(call, out, out, log_sums, into=kernels.Gradients(*streams, *biases))
