"""Both kinds of heads of ConvBERT by one operator, against separate ops in fp64."""

import pytest
import torch
from gradients import TEXTS, draw, draw_texts
from kernels import DEVICE, HALF, MARKS, assert_exact, assert_no_coarser, by_kernel, results
from torch import Tensor

from lightbert.ops.backend import enabling, using
from lightbert.ops.mixed_heads import has_kernel, mixed_heads, mixed_heads_operator
from lightbert.ops.relative_attention import relative_attention

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]

HEADS, TAPS, EACH, PADDED = 2, 9, 5, 16
WIDTH = HEADS * EACH
SHAPES = {"one token": (3, 1), "shorter than the kernel": (5, 3), "prime": (2, 37), "whole blocks": (3, 32)}
LONG = (1, 131)


def inputs(batch: int, tokens: int, width: int = WIDTH) -> dict[str, Tensor]:
    return {
        "streams": draw(batch, tokens, 4 * width),
        "stream_bias": draw(4 * width),
        "span_key": draw(batch, tokens, width),
        "weight": draw(HEADS * PADDED, width) / width**0.5,
        "bias": draw(HEADS * PADDED),
        "span_bias": draw(width),
    }


def heads(texts: Tensor | None = None, **given: Tensor) -> Tensor:
    """Mixed heads, where a row of padding attends to itself as in a model."""
    visible = texts
    if texts is not None and texts.dtype is torch.bool:
        visible = texts | ~texts.any(dim=1, keepdim=True)
    return mixed_heads(**given, attention_texts=visible, convolution_texts=texts, n_heads=HEADS, taps=TAPS)


def texts_on_device(kind: str, shape: tuple[int, int]) -> Tensor | None:
    texts = draw_texts(kind, *shape)
    return None if texts is None else texts.to(DEVICE)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_it_is_exact_in_single_precision(shape, kind):
    assert_exact(by_kernel(heads), heads, inputs(*shape), texts=texts_on_device(kind, shape))


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_its_rounding_error_is_at_most_twice_the_reference(shape, kind):
    draws = [inputs(*shape) for _ in range(4)]
    assert_no_coarser(by_kernel(heads), heads, *draws, texts=texts_on_device(kind, shape))


def test_rows_of_several_blocks_are_exact_and_the_same_in_every_run():
    given, texts = inputs(*LONG), texts_on_device("packed", LONG)
    assert_exact(by_kernel(heads), heads, given, texts=texts)
    runs = [results(by_kernel(heads), given, HALF, spread=False, texts=texts) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other), "a second run gives other bits"


@pytest.mark.parametrize("tokens", [21, 64])
@pytest.mark.parametrize("width", [128, 130, 192])
def test_narrow_and_wide_heads_are_exact_and_no_coarser(width, tokens):
    given, texts = inputs(2, tokens, width), texts_on_device("packed", (2, tokens))
    assert_exact(by_kernel(heads), heads, given, texts=texts)
    assert_no_coarser(by_kernel(heads), heads, given, texts=texts)


@pytest.mark.parametrize("width", [128, 192])
def test_the_last_program_of_whole_blocks_may_have_fewer_of_them(width, monkeypatch):
    """Five blocks of tokens for two programs with four blocks each; nothing is masked in shapes of whole blocks."""
    from lightbert.ops.kernels import mixed_heads as kernel

    for name in ("NARROW", "LARGE_NARROW", "WIDE", "LARGE_WIDE"):
        monkeypatch.setattr(kernel, name, getattr(kernel, name)._replace(tokens=32, programs=2))
    assert_exact(by_kernel(heads), heads, inputs(5, 32, width))


@pytest.mark.parametrize("n_heads", [6, 10])
def test_layers_of_many_rows_are_exact_and_no_coarser(n_heads):
    """96 rows, for which blocks are larger, and 160, for which a matmul computes the gradient of the weight."""

    def many(**given: Tensor) -> Tensor:
        return mixed_heads(**given, n_heads=n_heads, taps=TAPS)

    given = inputs(2, 21, n_heads * EACH)
    given |= {"weight": draw(n_heads * PADDED, n_heads * EACH) / 5, "bias": draw(n_heads * PADDED)}
    assert_exact(by_kernel(many), many, given)
    assert_no_coarser(by_kernel(many), many, given)


def test_tensors_may_have_any_memory_layout():
    assert_exact(by_kernel(heads), heads, inputs(3, 11), spread=True, texts=texts_on_device("packed", (3, 11)))


def test_an_empty_batch_gives_an_empty_result():
    for result in results(by_kernel(heads), inputs(0, 5), torch.float32, spread=False):
        assert result.isfinite().all()


def test_dropout_removes_the_weights_that_it_removes_from_attention_alone():
    given = {name: value.to(DEVICE, torch.float32) for name, value in inputs(2, 20).items()}
    query, key, value, _ = given["streams"].chunk(4, dim=-1)
    with using("triton"):
        torch.manual_seed(3)
        together = mixed_heads(**given, n_heads=HEADS, taps=TAPS, dropout=0.5)
        torch.manual_seed(3)
        split = [x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (query, key, value)]
        alone = relative_attention(*split, dropout=0.5).transpose(1, 2).flatten(2)
    assert torch.equal(together[..., :WIDTH], alone)


@pytest.mark.parametrize("width", [WIDTH, 130])
def test_torch_accepts_the_custom_op(width):
    """Schema, fake tensors, autograd registration and tracing, by torch's own checks."""
    given = {name: value.to(DEVICE, torch.float32).requires_grad_() for name, value in inputs(2, 12, width).items()}
    texts, seed = texts_on_device("packed", (2, 12)), torch.tensor([7], device=DEVICE)
    given |= {"attention_texts": texts, "convolution_texts": texts, "seed": seed}
    given |= {"n_heads": HEADS, "taps": TAPS, "dropout": 0.1}
    torch.library.opcheck(mixed_heads_operator, (), given, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("without", ["relative_attention", "dynamic_conv"])
def test_both_kernels_must_be_enabled(without):
    streams = torch.zeros(1, 2, 4 * WIDTH, device=DEVICE, dtype=HALF)
    with using("triton"):
        assert has_kernel(streams, HEADS, TAPS, PADDED)
        assert not has_kernel(streams, HEADS, TAPS, TAPS), "logits without padding"
        assert not has_kernel(streams, HEADS, TAPS, 144), "more outputs than a program can have"
    with enabling(f"all,-{without}"):
        assert not has_kernel(streams, HEADS, TAPS, PADDED)
