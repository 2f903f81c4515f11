"""Relative attention against loops over queries and keys that follow the paper's equations."""

import math

import pytest
import torch
from gradients import SHAPES, assert_same_with_gradients, draw, draw_texts
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.relative_attention import relative_attention, relative_scores

RADIUS, HEADS, EACH = 2, 2, 3


def distance_weight(weights: Tensor, offset: int, outside: str) -> Tensor:
    """The weight of one offset, [2R+1] -> []."""
    if abs(offset) > RADIUS and outside == "zero":
        return weights.new_zeros(())
    return weights[max(-RADIUS, min(RADIUS, offset)) + RADIUS]


def attends(texts: Tensor | None, row: int, query: int, key: int) -> bool:
    if texts is None:
        return True
    return bool(texts[row, key]) if texts.dtype is torch.bool else bool(texts[row, key] == texts[row, query])


def some_texts(kind: str) -> Tensor:
    """Texts of two rows of seven tokens; a row of booleans needs at least one key."""
    texts = draw_texts(kind, 2, 7)
    if kind == "padded":
        texts[:, 3] = True
    return texts


def loops(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    by_query: Tensor | None = None,
    by_key: Tensor | None = None,
    texts: Tensor | None = None,
    outside: str = "clamp",
) -> Tensor:
    batch, heads, tokens, each = query.shape
    if by_query is not None:
        by_query = by_query.expand(batch, heads, tokens, -1)
    rows = []
    for b in range(batch):
        for h in range(heads):
            for i in range(tokens):
                seen = [j for j in range(tokens) if attends(texts, b, i, j)]
                scores = []
                for j in seen:
                    score = query[b, h, i] @ key[b, h, j] / math.sqrt(each)
                    if by_query is not None:
                        score = score + distance_weight(by_query[b, h, i], j - i, outside)
                    if by_key is not None:
                        score = score + distance_weight(by_key[b, h, j], i - j, outside)
                    scores.append(score)
                rows.append(torch.stack(scores).softmax(0) @ value[b, h, seen])
    return torch.stack(rows).reshape(value.shape) if rows else 0 * value


def streams(batch: int, tokens: int) -> dict[str, Tensor]:
    return {name: draw(batch, HEADS, tokens, EACH) for name in ("query", "key", "value")}


def biases(batch: int, tokens: int) -> dict[str, Tensor]:
    return {name: draw(batch, HEADS, tokens, 2 * RADIUS + 1) for name in ("by_query", "by_key")}


@pytest.mark.parametrize("outside", ["clamp", "zero"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_both_distance_biases_are_added_to_the_scores(shape, outside):
    assert_same_with_gradients(relative_attention, loops, streams(*shape) | biases(*shape), outside=outside)


@pytest.mark.parametrize("chosen", ["by_query", "by_key"])
def test_each_distance_bias_works_without_the_other(chosen):
    inputs = streams(2, 7) | {chosen: biases(2, 7)[chosen]}
    assert_same_with_gradients(relative_attention, loops, inputs)


def test_fixed_weights_are_shared_across_batch_and_queries():
    inputs = streams(2, 7) | {"by_query": draw(1, HEADS, 1, 2 * RADIUS + 1)}
    assert_same_with_gradients(relative_attention, loops, inputs)


def test_without_biases_it_is_standard_attention():
    assert_same_with_gradients(relative_attention, loops, streams(3, 5))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", ["padded", "packed"])
def test_keys_of_other_texts_get_no_weight(kind, biased):
    inputs = streams(2, 7) | (biases(2, 7) if biased else {})
    assert_same_with_gradients(relative_attention, loops, inputs, texts=some_texts(kind))


@pytest.mark.parametrize("kind", ["padded", "packed"])
@pytest.mark.parametrize("outside", ["clamp", "zero"])
def test_the_softmax_of_the_recorded_scores_equals_the_fused_path(outside, kind):
    given, extra, texts = streams(2, 7), biases(2, 7), some_texts(kind)
    scores = relative_scores(given["query"], given["key"], *extra.values(), texts, outside)
    fused = relative_attention(**given, **extra, texts=texts, outside=outside)
    torch.testing.assert_close(scores.softmax(-1) @ given["value"], fused, rtol=1e-6, atol=1e-6)


def test_an_unknown_value_of_outside_is_an_error():
    with pytest.raises(InputError, match="'clamp' or 'zero', got 'wrap'"):
        relative_attention(**streams(1, 2), outside="wrap")


def test_recorded_scores_have_full_precision_under_autocast():
    query, key = torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = relative_scores(query, key, None, None, None)
    torch.testing.assert_close(scores, query @ key.transpose(-1, -2) / 2)
