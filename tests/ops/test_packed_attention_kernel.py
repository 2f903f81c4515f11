"""Attention without biases by the kernels of relative attention, also in packed rows."""

import pytest
import torch
from gradients import draw
from kernels import DEVICE, MARKS, assert_exact, assert_no_coarser, by_kernel
from torch import Tensor

from lightbert.nn.attention import SelfAttention
from lightbert.nn.convolution import SpanConvolution
from lightbert.nn.fused import install
from lightbert.nn.mask import Mask
from lightbert.ops.backend import using
from lightbert.ops.relative_attention import relative_attention

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]


def texts_of(*lengths: int, tokens: int) -> Tensor:
    """One row of texts of these lengths, then padding."""
    numbers = [number for number, length in enumerate(lengths, start=1) for _ in range(length)]
    return torch.tensor([numbers + [0] * (tokens - len(numbers))], device=DEVICE)


def streams(tokens: int, each: int = 5) -> dict[str, Tensor]:
    return {name: draw(1, 2, tokens, each) for name in ("query", "key", "value")}


@pytest.mark.parametrize("small_tiles", [False, True])
@pytest.mark.parametrize("lengths", [(37,), (3, 20, 1, 9), (17, 15), ()])
def test_packed_rows_without_biases_equal_the_reference(lengths, small_tiles, monkeypatch):
    if small_tiles:
        from lightbert.ops.kernels import relative_attention as kernels

        for name in ("NARROW_FORWARD", "BY_QUERY", "BY_KEY", "PLAIN_ROW", "NARROW_ROW"):
            monkeypatch.setattr(kernels, name, kernels.Blocks(16, 16, 4, 2))
    assert_exact(by_kernel(relative_attention), relative_attention, streams(37), texts=texts_of(*lengths, tokens=37))


def test_half_precision_is_no_coarser_than_the_reference():
    assert_no_coarser(
        by_kernel(relative_attention), relative_attention, streams(37), texts=texts_of(3, 20, 1, 9, tokens=37)
    )


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize(("tokens", "each"), [(1, 5), (16, 5), (37, 5), (37, 40), (128, 5), (129, 5), (129, 40)])
def test_rows_without_biases_equal_the_reference(tokens, each, padding):
    real = torch.arange(tokens, device=DEVICE)[None, :] < max(1, tokens - padding)
    assert_exact(
        by_kernel(relative_attention), relative_attention, streams(tokens, each), texts=real if padding else None
    )


@pytest.mark.parametrize("kind", ["attention", "mixed"])
def test_plain_attention_runs_the_kernel(kind, monkeypatch):
    from lightbert.ops.kernels import relative_attention as kernels

    calls = []
    kernel = kernels.forward
    monkeypatch.setattr(kernels, "forward", lambda *inputs, **memory: calls.append(1) or kernel(*inputs, **memory))
    mixer = {
        "attention": lambda: SelfAttention(8, 2),
        "mixed": lambda: SelfAttention(8, 1, head_width=4, convolution=SpanConvolution(8, 4, 1, 3)),
    }[kind]().to(DEVICE)
    install(mixer)
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter)
    x, packed = draw(1, 12, 8).float().to(DEVICE), texts_of(5, 4, tokens=12)
    for mask in (None, packed > 0, packed):
        calls.clear()
        with using("triton"):
            found = mixer(x, Mask(mask))
        assert len(calls) == 1
        real = slice(None) if mask is None else (packed > 0)
        with using("torch"):
            torch.testing.assert_close(found[real], mixer(x, Mask(mask))[real], rtol=2e-4, atol=2e-4)
