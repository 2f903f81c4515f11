"""Incompatible parts raise an error at construction, with the numbers that disagree."""

import pytest
from mixers import KERNEL, MIXERS, WIDTH

from lightbert.errors import InputError
from lightbert.nn.attention import ConvolutionalProjection, Mixer, SelfAttention, Terms
from lightbert.nn.blocks import BottleneckBlock, PostNormBlock
from lightbert.nn.convolution import SpanConvolution
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.local import LocalAttention
from lightbert.nn.norms import NoNorm

FEEDFORWARD = FeedForward(WIDTH, 20, activation="relu", norm=NoNorm)


def post_norm(width: int, mixer: Mixer, feedforward: FeedForward = FEEDFORWARD) -> PostNormBlock:
    return PostNormBlock(width, mixer=mixer, feedforward=feedforward, norm=NoNorm)


def bottleneck(
    width: int, inside: int, mixer_input: str, mixer: Mixer, feedforward: FeedForward = FEEDFORWARD
) -> BottleneckBlock:
    return BottleneckBlock(width, inside, mixer=mixer, mixer_input=mixer_input, feedforward=feedforward, norm=NoNorm)


def attention(**streams: int) -> Mixer:
    return MIXERS["attention"](**streams)


INVALID = {
    "heads that don't divide the width": (lambda: SelfAttention(10, 3), r"n_heads \(3\) must divide the width, 10"),
    "composite heads": (
        lambda: SelfAttention(10, 3, terms=Terms(2, fixed=True)),
        r"n_heads \(3\) must divide the width, 10",
    ),
    "half of an odd number of heads": (
        lambda: SelfAttention(12, 3, terms=Terms(2, convolved="qk")),
        "n_heads must be even with convolved = 'qk', got 3",
    ),
    "local heads": (lambda: LocalAttention(12, 3, kernel=5), r"n_heads \(3\) must be even and divide the width, 12"),
    "half of an odd width": (lambda: ConvolutionalProjection(8, 7, 3), "outputs must be even, got 7"),
    "unknown projection": (lambda: SelfAttention(8, 2, terms=Terms(1, convolved="qz")), "'q', 'k' and 'v', got 'qz'"),
    "unknown rule for distance": (lambda: SelfAttention(8, 2, terms=Terms(1, outside="wrap")), "got 'wrap'"),
    "unknown index": (lambda: LocalAttention(8, 2, kernel=3, indexed_by="value"), "'query' or 'key', got 'value'"),
    "local values that are convolved": (
        lambda: LocalAttention(8, 2, kernel=3, terms=Terms(1, convolved="v")),
        "local attention can't be combined with depthwise or convolved",
    ),
    "even local kernel": (lambda: LocalAttention(8, 2, kernel=4), "must be odd, got 4; use 5"),
    "convolution with narrower heads": (
        lambda: SelfAttention(WIDTH, 2, head_width=4, convolution=SpanConvolution(WIDTH, 10, 2, KERNEL)),
        r"out_width \(10\) must equal n_heads · head_width \(8\)",
    ),
    "mixer of another width": (
        lambda: post_norm(12, attention()),
        r"input \(16\) must equal the width of the block \(12\)",
    ),
    "second stream in a post-norm block": (
        lambda: post_norm(WIDTH, attention(value_width=24)),
        "post-norm block requires a mixer without value_width, got value_width = 24",
    ),
    "feed-forward of another width": (
        lambda: post_norm(WIDTH, attention(), FeedForward(12, 20, activation="relu", norm=NoNorm)),
        r"feed-forward \(12\) must equal the width of the block \(16\)",
    ),
    "feed-forward of the stream outside": (
        lambda: bottleneck(24, 16, "narrow", attention(), FeedForward(24, 20, activation="relu", norm=NoNorm)),
        r"feed-forward \(24\) must equal the width of the block \(16\)",
    ),
    "narrow mixer that reads outside": (
        lambda: bottleneck(24, 16, "wide", attention()),
        r"input \(16\) must equal the width of its stream \(24\)",
    ),
    "wide mixer that reads inside": (
        lambda: bottleneck(16, 12, "narrow", attention()),
        r"input \(16\) must equal the width of its stream \(12\)",
    ),
    "values narrower than the stream outside": (
        lambda: bottleneck(24, 16, "shared", attention(value_width=20)),
        r"value stream \(20\) must equal the width of the stream outside the block \(24\)",
    ),
    "mixer without a value stream in a shared bottleneck": (
        lambda: bottleneck(24, 16, "shared", attention()),
        r"value stream \(0\) must equal the width of the stream outside the block \(24\)",
    ),
    "mixer with a value stream in a narrow bottleneck": (
        lambda: bottleneck(24, 16, "narrow", attention(value_width=24)),
        "mixer_input = 'narrow' requires a mixer without value_width, got value_width = 24",
    ),
}


@pytest.mark.parametrize(("make", "message"), INVALID.values(), ids=INVALID.keys())
def test_incompatible_parts_are_an_error(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("name", MIXERS)
def test_every_mixer_with_a_value_width_is_an_error_in_a_post_norm_block(name):
    with pytest.raises(InputError, match="without value_width, got value_width = 24"):
        post_norm(WIDTH, MIXERS[name](value_width=24))
