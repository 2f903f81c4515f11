"""Attention on joined streams, against separate streams in fp64."""

import pytest
import torch
from gradients import TEXTS, draw, draw_texts
from kernels import DEVICE, HALF, MARKS, assert_exact, assert_no_coarser, by_kernel, results
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.backend import enabling, using
from lightbert.ops.joined_attention import ALIGNMENT, Layout, has_kernel, joined_attention
from lightbert.ops.relative_attention import relative_attention

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]

HEADS, EACH, OFFSETS = 2, 5, 7
LAYOUTS = {
    "plain": Layout(HEADS, EACH),
    "by query": Layout(HEADS, EACH, OFFSETS, by_query=True),
    "by key": Layout(HEADS, EACH, OFFSETS, by_key=True),
    "by both": Layout(HEADS, EACH, OFFSETS, by_query=True, by_key=True),
}
SHAPES = {
    "one token": (3, 1),
    "one row of one token": (1, 1),
    "short": (2, 5),
    "prime": (2, 37),
    "two blocks": (1, 70),
    "long": (1, 131),
}


def attention(streams: Tensor, layout: Layout, texts: Tensor | None = None, outside: str = "clamp") -> Tensor:
    """Joined attention, where a row of padding attends to itself as in a model."""
    if texts is not None and texts.dtype is torch.bool:
        texts = texts | ~texts.any(dim=1, keepdim=True)
    return joined_attention(streams, texts, layout=layout, outside=outside)


def inputs(layout: Layout, batch: int, tokens: int) -> dict[str, Tensor]:
    return {"streams": draw(batch, tokens, layout.width)}


def texts_on_device(kind: str, shape: tuple[int, int]) -> Tensor | None:
    texts = draw_texts(kind, *shape)
    return None if texts is None else texts.to(DEVICE)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_it_is_exact_in_single_precision(shape, layout):
    for outside in ("clamp", "zero") if layout.offsets else ("clamp",):
        assert_exact(by_kernel(attention), attention, inputs(layout, *shape), layout=layout, outside=outside)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_its_rounding_error_is_at_most_twice_the_reference(layout, kind):
    shape = SHAPES["prime"]
    texts = texts_on_device(kind, shape)
    assert_no_coarser(by_kernel(attention), attention, inputs(layout, *shape), layout=layout, texts=texts)


@pytest.mark.parametrize("name", ["plain", "by both"])
def test_it_is_the_same_in_every_run_and_takes_any_memory_layout(name):
    layout = LAYOUTS[name]
    given = inputs(layout, *SHAPES["long"])
    runs = [results(by_kernel(attention), given, HALF, spread=spread, layout=layout) for spread in (False, False, True)]
    for found in zip(*runs, strict=True):
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])


def test_the_reference_is_attention_on_separate_streams():
    layout = LAYOUTS["by both"]
    streams = draw(2, 9, layout.width)
    assert layout.width % ALIGNMENT == (3 * HEADS * EACH) % ALIGNMENT
    query, key, value = (
        part.unflatten(-1, (HEADS, EACH)).transpose(1, 2) for part in streams.split(HEADS * EACH, dim=-1)[:3]
    )
    first = 3 * HEADS * EACH
    by_query, by_key = (
        streams[..., start : start + HEADS * OFFSETS].unflatten(-1, (HEADS, OFFSETS)).transpose(1, 2)
        for start in (first, first + layout.bias_width)
    )
    with using("torch"):
        found = joined_attention(streams, layout=layout)
        expected = relative_attention(query, key, value, by_query=by_query, by_key=by_key)
    torch.testing.assert_close(found, expected.transpose(1, 2).flatten(2))


def test_dropout_removes_the_weights_that_it_removes_from_separate_streams():
    layout = LAYOUTS["by query"]
    streams = draw(2, 37, layout.width).float().to(DEVICE)
    query, key, value, by_query, _ = layout.heads(streams)
    with using("triton"):
        torch.manual_seed(3)
        found = joined_attention(streams, layout=layout, dropout=0.5)
        torch.manual_seed(3)
        expected = relative_attention(query, key, value, by_query=by_query, dropout=0.5)
    torch.testing.assert_close(found, expected.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("layout", [Layout(2, 129), Layout(2, 5, 1, by_query=True), Layout(2, 5, 131, by_key=True)])
def test_other_sizes_have_no_kernel(layout):
    with using("triton"):
        assert has_kernel(draw(1, 1, 4), Layout(2, 5))
        assert not has_kernel(draw(1, 1, 4), layout)


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_an_unknown_rule_for_offsets_beyond_the_band_is_an_error(backend):
    layout = LAYOUTS["by query"]
    with using(backend), pytest.raises(InputError, match="outside must be 'clamp' or 'zero', got 'wrap'"):
        joined_attention(draw(1, 2, layout.width), layout=layout, outside="wrap")


def test_it_can_be_disabled_with_the_kernels_of_attention():
    x = torch.zeros(1, 1, 4, dtype=HALF, device=DEVICE)
    with enabling("all,-relative_attention"):
        assert not has_kernel(x, LAYOUTS["plain"])
