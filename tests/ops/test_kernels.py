"""Every Triton kernel against its reference in fp64: the result and all gradients, at random and unusual shapes."""

from collections.abc import Callable

import pytest
import torch
from gradients import TEXTS, draw, draw_texts
from kernels import DEVICE, HALF, MARKS, assert_exact, assert_no_coarser, by_kernel, results
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lightbert.ops.backend import using
from lightbert.ops.depthwise import depthwise, depthwise_operator
from lightbert.ops.dynamic_conv import dynamic_conv, dynamic_conv_operator
from lightbert.ops.relative_attention import relative_attention, relative_attention_operator

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]

SHAPES = {"one token": (3, 1), "shorter than the kernel": (5, 3), "prime": (2, 67), "whole blocks": (3, 32)}
SEVERAL_PROGRAMS = (2, 131)


def dynamic_inputs(batch: int, tokens: int, taps: int = 9, heads: int = 2, each: int = 5) -> dict[str, Tensor]:
    return {"values": draw(batch, tokens, heads * each), "logits": draw(batch, tokens, heads, taps)}


def depthwise_inputs(batch: int, tokens: int, taps: int = 9, channels: int = 10) -> dict[str, Tensor]:
    return {"x": draw(batch, tokens, channels), "weight": draw(channels, taps), "bias": draw(channels)}


def attention_inputs(batch: int, tokens: int, offsets: int = 9, heads: int = 1, each: int = 5) -> dict[str, Tensor]:
    streams = {name: draw(batch, heads, tokens, each) for name in ("query", "key", "value")}
    return streams | {name: draw(batch, heads, tokens, offsets) for name in ("by_query", "by_key")}


def attention(texts: Tensor | None = None, **inputs: Tensor) -> Tensor:
    """Relative attention, where a row of padding attends to itself as in a model."""
    if texts is not None and texts.dtype is torch.bool:
        texts = texts | ~texts.any(dim=1, keepdim=True)
    return relative_attention(**inputs, texts=texts)


OPS = {
    "dynamic_conv": (dynamic_conv, dynamic_inputs),
    "depthwise": (depthwise, depthwise_inputs),
    "relative_attention": (attention, attention_inputs),
}


@pytest.fixture(params=OPS)
def case(request: pytest.FixtureRequest) -> tuple[Callable[..., Tensor], Callable[..., dict[str, Tensor]]]:
    return OPS[request.param]


def texts_on_device(kind: str, shape: tuple[int, int]) -> Tensor | None:
    texts = draw_texts(kind, *shape)
    return None if texts is None else texts.to(DEVICE)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_it_is_exact_in_single_precision(case, shape, kind):
    op, inputs = case
    assert_exact(by_kernel(op), op, inputs(*shape), texts=texts_on_device(kind, shape))


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_its_rounding_error_is_at_most_twice_the_reference(case, shape, kind):
    op, inputs = case
    assert_no_coarser(by_kernel(op), op, inputs(*shape), texts=texts_on_device(kind, shape))


@pytest.mark.parametrize("sharpness", [1, 16])
def test_the_gradient_of_sharp_dynamic_kernels_is_no_coarser(sharpness):
    """A weight near 1, kept in half precision: 1 - weight must not come from a difference."""
    given = dynamic_inputs(3, 67)
    given["logits"] *= sharpness
    assert_no_coarser(by_kernel(dynamic_conv), dynamic_conv, given)


def test_partial_sums_of_several_programs_are_combined(case):
    op, inputs = case
    given, texts = inputs(*SEVERAL_PROGRAMS), texts_on_device("packed", SEVERAL_PROGRAMS)
    assert_exact(by_kernel(op), op, given, texts=texts)
    runs = [results(by_kernel(op), given, HALF, spread=False, texts=texts) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other), "a second run gives other bits"


@pytest.mark.parametrize("taps", [1, 3, 17])
def test_any_odd_kernel_is_supported(case, taps):
    op, inputs = case
    assert_exact(by_kernel(op), op, inputs(2, 40, taps), texts=texts_on_device("packed", (2, 40)))


@pytest.mark.parametrize("numbers", [torch.int16, torch.int32])
def test_any_integers_can_number_the_texts(case, numbers):
    op, inputs = case
    assert_exact(by_kernel(op), op, inputs(2, 20), texts=texts_on_device("packed", (2, 20)).to(numbers))


def test_tensors_may_have_any_memory_layout(case):
    op, inputs = case
    assert_exact(by_kernel(op), op, inputs(3, 11), spread=True, texts=texts_on_device("packed", (3, 11)))


def test_a_slice_of_wider_tokens_is_read_in_place():
    wide = torch.randn(2, 13, 30, device=DEVICE)
    logits = torch.randn(2, 13, 2, 9, device=DEVICE)
    with using("triton"):
        out = dynamic_conv(wide[..., 10:20], logits)
    torch.testing.assert_close(out, dynamic_conv(wide[..., 10:20].contiguous(), logits), rtol=1e-5, atol=1e-5)


def test_padded_logits_give_the_same_result_and_zeros_as_gradient_of_the_padding():
    given = dynamic_inputs(2, 19)
    padded = given | {"logits": torch.nn.functional.pad(given["logits"], (0, 7), value=100.0)}
    expected, found = (
        results(by_kernel(dynamic_conv), given, HALF, False),
        results(by_kernel(dynamic_conv), padded, HALF, False, taps=9),
    )
    for one, other in zip(expected, (*found[:2], found[2][..., :9]), strict=True):
        assert torch.equal(one, other)
    assert not found[2][..., 9:].any()


def test_more_channels_than_a_block_are_convolved():
    given = depthwise_inputs(2, 32, channels=70)
    assert_exact(by_kernel(depthwise), depthwise, given, texts=texts_on_device("packed", (2, 32)))


def test_an_empty_batch_gives_an_empty_result(case):
    op, inputs = case
    for result in results(by_kernel(op), inputs(0, 5), torch.float32, spread=False):
        assert result.isfinite().all()


def test_torch_accepts_the_custom_op(case):
    """Schema, fake tensors, autograd registration and tracing, by torch's own checks."""
    op, inputs = case
    given = {name: value.to(DEVICE, torch.float32) for name, value in inputs(2, 12).items()}
    texts, settings = texts_on_device("packed", (2, 12)), ()
    if op is attention:
        given |= {name: given[name].transpose(1, 2).flatten(2) for name in ("query", "key", "value")}
        settings = (torch.tensor([7], device=DEVICE), 1, True, 0.1)
    if op is dynamic_conv:
        given["logits"] = torch.nn.functional.pad(given["logits"], (0, 7))
        settings = (9,)
    tensors = [value.requires_grad_() for value in given.values()]
    custom = {
        dynamic_conv: dynamic_conv_operator,
        depthwise: depthwise_operator,
        attention: relative_attention_operator,
    }[op]
    torch.library.opcheck(custom, (*tensors, texts, *settings), rtol=1e-4, atol=1e-4)


def test_compiled_code_calls_the_kernel(case):
    op, inputs = case
    called = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(function.namespace)
            return function(*args, **(kwargs or {}))

    def recorded(module, example):
        def call(*args):
            with Recorder():
                return module.forward(*args)

        return call

    given = {name: value.to(DEVICE, torch.float32) for name, value in inputs(2, 12).items()}
    with using("triton"):
        out = torch.compile(lambda: op(**given), backend=recorded, fullgraph=True)()
    assert "lightbert" in called
    torch.testing.assert_close(out, op(**given), rtol=1e-4, atol=1e-4)
