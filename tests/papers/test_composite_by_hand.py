"""`papers.composite`, compared with numbers worked out by hand."""

import math

import pytest
import torch
from torch import Tensor, tensor

from lightbert.papers.composite import at_offsets, composite_attention, composite_scores, local_attention, project

FOUR = tensor([[[1.0], [10.0], [100.0], [1000.0]]])
ALL = torch.ones(1, 4, dtype=torch.bool)
LAST_PADDED = tensor([[True, True, True, False]])
# Row i holds the taps for offsets −1, 0, 1 of token i.
TAPS = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [10.0, 11.0, 12.0]])


def scaled(name: str, factor: float) -> dict[str, Tensor]:
    return {f"{name}.weight": tensor([[factor]]), f"{name}.bias": tensor([0.0])}


def test_offsets_beyond_the_radius_get_the_outermost_tap_with_clamp() -> None:
    assert at_offsets(TAPS, "clamp").tolist() == [[2, 3, 3, 3], [4, 5, 6, 6], [7, 7, 8, 9], [10, 10, 10, 11]]


def test_offsets_beyond_the_radius_get_nothing_with_zero() -> None:
    assert at_offsets(TAPS, "zero").tolist() == [[2, 3, 0, 0], [4, 5, 6, 0], [0, 7, 8, 9], [0, 0, 10, 11]]


HEADS = torch.zeros(1, 2, 2, 4)


def test_fixed_weights_are_per_head_and_not_scaled() -> None:
    weights = {"fixed": tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])}
    scores = composite_scores(weights, HEADS, HEADS, "clamp")
    assert scores[0].tolist() == [[[2, 3], [1, 2]], [[5, 6], [4, 5]]]


def test_query_dynamic_taps_fill_the_row_of_their_query() -> None:
    # With a head width of 4 the terms are halved. The queries are 2 and 20 in one channel, the keys are zero.
    query = HEADS + tensor([2.0, 20.0])[:, None] * tensor([1.0, 0.0, 0.0, 0.0])
    weights = {"query_dynamic": torch.cat([tensor([[1.0, 2.0, 3.0]]), torch.full((3, 3), 9.0)])}
    scores = composite_scores(weights, query, HEADS, "clamp")
    assert scores[0].tolist() == [[[2, 3], [10, 20]]] * 2


def test_key_dynamic_taps_fill_the_column_of_their_key() -> None:
    # score(i, j) takes tap i − j of the key at j.
    key = HEADS + tensor([2.0, 20.0])[:, None] * tensor([1.0, 0.0, 0.0, 0.0])
    weights = {"key_dynamic": torch.cat([tensor([[1.0, 2.0, 3.0]]), torch.full((3, 3), 9.0)])}
    scores = composite_scores(weights, HEADS, key, "clamp")
    assert scores[0].tolist() == [[[2, 10], [3, 20]]] * 2


def test_the_terms_are_added_to_the_content() -> None:
    query = key = tensor([1.0, 2.0]).reshape(1, 1, 2, 1)
    weights = {
        "fixed": tensor([[100.0, 200.0, 300.0]]),
        "query_dynamic": tensor([[1000.0, 2000.0, 3000.0]]),
        "key_dynamic": tensor([[10000.0, 20000.0, 30000.0]]),
    }
    scores = composite_scores(weights, query, key, "clamp")
    assert scores[0, 0].tolist() == [[22201, 23302], [32102, 44204]]


def test_the_depthwise_convolution_of_the_values_is_added_after_the_softmax() -> None:
    weights = {
        **scaled("query", 0.0),
        **scaled("key", 0.0),
        **scaled("value", 2.0),
        "depthwise.weight": tensor([[1.0, 0.0, 3.0]]),
        "depthwise.bias": tensor([0.5]),
    }
    out = composite_attention(weights, FOUR, ALL, 1, "clamp")
    torch.testing.assert_close(out.flatten() - 2222 / 4, tensor([60.5, 602.5, 6020.5, 200.5]))
    padded = composite_attention(weights, FOUR, LAST_PADDED, 1, "clamp")
    torch.testing.assert_close(padded.flatten()[:3] - 222 / 3, tensor([60.5, 602.5, 20.5]))


def test_a_convolutional_projection_convolves_for_the_first_half_of_its_outputs() -> None:
    weights = {
        "value.convolution.weight": tensor([[1.0, 0.0, 3.0]]),
        "value.convolution.bias": tensor([0.5]),
        "value.convolved.weight": tensor([[2.0]]),
        "value.convolved.bias": tensor([1.0]),
        **scaled("value.direct", -1.0),
    }
    out = project(weights, "value", FOUR, ALL)
    assert out[0].tolist() == [[62.0, -1.0], [604.0, -10.0], [6022.0, -100.0], [202.0, -1000.0]]
    assert project(weights, "value", FOUR, LAST_PADDED)[0, 2].tolist() == [22.0, -100.0]


def local_weights() -> dict[str, Tensor]:
    """A content head that attends evenly and reads x, and a local head that reads 2x with kernels x·(.1, .2, .3)."""
    return {
        "query.weight": torch.zeros(1, 1),
        "query.bias": tensor([1.0]),
        **scaled("key", 0.0),
        "value.weight": tensor([[1.0], [2.0]]),
        "value.bias": torch.zeros(2),
        "depthwise.weight": tensor([[0.0, 1.0, 0.0]]),
        "depthwise.bias": tensor([0.0]),
        **scaled("pointwise", 1.0),
        "kernel.weight": tensor([[0.1], [0.2], [0.3]]),
        "kernel.bias": torch.zeros(3),
    }


COUNT = tensor([[[1.0], [2.0], [3.0], [4.0]]])
# What lies outside the kernel.
__ = -math.inf


@pytest.mark.parametrize(
    ("indexed_by", "scores"),
    [
        # Row q, column k. The kernels of the four tokens are (.1 .2 .3), (.2 .4 .6), (.3 .6 .9) and (.4 .8 1.2).
        ("query", [[0.2, 0.3, __, __], [0.2, 0.4, 0.6, __], [__, 0.3, 0.6, 0.9], [__, __, 0.4, 0.8]]),
        ("key", [[0.2, 0.6, __, __], [0.1, 0.4, 0.9, __], [__, 0.2, 0.6, 1.2], [__, __, 0.3, 0.8]]),
    ],
)
def test_local_heads_come_second_and_attend_within_their_kernel(indexed_by: str, scores: list[list[float]]) -> None:
    out = local_attention(local_weights(), COUNT, ALL, 2, indexed_by)
    torch.testing.assert_close(out[0, :, 0], torch.full((4,), 2.5))
    torch.testing.assert_close(out[0, :, 1], tensor(scores).softmax(-1) @ tensor([2.0, 4.0, 6.0, 8.0]))


@pytest.mark.parametrize("indexed_by", ["query", "key"])
def test_local_heads_renormalize_at_the_end_of_a_text(indexed_by: str) -> None:
    weights = {**local_weights(), "depthwise.weight": tensor([[0.0, 1.0, 1.0]])}
    alone = local_attention(weights, COUNT[:, :3], ALL[:, :3], 2, indexed_by)
    padded = local_attention(weights, COUNT, LAST_PADDED, 2, indexed_by)
    torch.testing.assert_close(padded[:, :3], alone)
    # The third token attends to itself and the token before: two taps of its kernel are inside the text.
    assert 4.0 < alone[0, 2, 1] < 6.0
