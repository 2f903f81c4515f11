"""Parts that do not fit together are refused when they are put together, with the two numbers that disagree."""

import pytest
from mixers import KERNEL, MIXERS, WIDTH

from lightbert.errors import InputError
from lightbert.nn.attention import SelfAttention
from lightbert.nn.blocks import BottleneckBlock, PostNormBlock
from lightbert.nn.composite import CompositeAttention
from lightbert.nn.convolution import DynamicConvolution, SeparableConvolution, SpanConvolution
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.local import LocalAttention
from lightbert.nn.mixed import MixedAttention
from lightbert.nn.mixer import Mixer
from lightbert.nn.norms import NoNorm
from lightbert.nn.projections import ConvolutionalProjection, Depthwise

FEEDFORWARD = FeedForward(WIDTH, 20, activation="relu", norm=NoNorm)


def post_norm(width: int, mixer: Mixer, feedforward: FeedForward = FEEDFORWARD) -> PostNormBlock:
    return PostNormBlock(width, mixer=mixer, feedforward=feedforward, norm=NoNorm)


def bottleneck(
    width: int, inside: int, mixer_input: str, mixer: Mixer, feedforward: FeedForward = FEEDFORWARD
) -> BottleneckBlock:
    return BottleneckBlock(width, inside, mixer=mixer, mixer_input=mixer_input, feedforward=feedforward, norm=NoNorm)


def attention(**streams: int) -> Mixer:
    return MIXERS["attention"](**streams)


REFUSED = {
    "heads that cannot share the width": (lambda: SelfAttention(10, 3), "3 heads cannot share a width of 10"),
    "composite heads": (lambda: CompositeAttention(10, 3, radius=2), "3 heads cannot share a width of 10"),
    "half of an odd number of heads": (
        lambda: CompositeAttention(12, 3, radius=2, convolved="qk"),
        "half of 3 heads",
    ),
    "local heads": (lambda: LocalAttention(12, 3, kernel=5), "half of 3 heads cannot share half of a width of 12"),
    "half of an odd width": (lambda: ConvolutionalProjection(8, 7, 3), "half of 7 channels"),
    "unknown projection": (lambda: CompositeAttention(8, 2, radius=1, convolved="qz"), "'q', 'k' and 'v', not 'qz'"),
    "unknown rule for distance": (lambda: CompositeAttention(8, 2, radius=1, outside="wrap"), "not 'wrap'"),
    "unknown index": (lambda: LocalAttention(8, 2, kernel=3, indexed_by="value"), "'query' or 'key', not 'value'"),
    "even depthwise kernel": (lambda: Depthwise(8, 4, bias=True), "odd kernel, got 4: use 5"),
    "even span kernel": (lambda: SpanConvolution(8, 4, 2, 6), "odd kernel, got 6: use 7"),
    "even dynamic kernel": (lambda: DynamicConvolution(8, 4, 2, 2), "odd kernel, got 2: use 3"),
    "even conventional kernel": (lambda: SeparableConvolution(8, 4, 2), "odd kernel, got 2: use 3"),
    "even local kernel": (lambda: LocalAttention(8, 2, kernel=4), "odd kernel, got 4: use 5"),
    "convolution beside narrower heads": (
        lambda: MixedAttention(WIDTH, 2, head_width=4, convolution=SpanConvolution(WIDTH, 10, 2, KERNEL)),
        "gives 10 channels but the heads beside it 8",
    ),
    "mixer of another width": (lambda: post_norm(12, attention()), "input is 16 wide but the block is 12 wide"),
    "second stream in a post-norm block": (
        lambda: post_norm(WIDTH, attention(value_width=24)),
        "no second stream, but the mixer's values are 24 wide",
    ),
    "feed-forward of another width": (
        lambda: post_norm(WIDTH, attention(), FeedForward(12, 20, activation="relu", norm=NoNorm)),
        "feed-forward is 12 wide but the block is 16 wide",
    ),
    "feed-forward of the stream outside": (
        lambda: bottleneck(24, 16, "narrow", attention(), FeedForward(24, 20, activation="relu", norm=NoNorm)),
        "feed-forward is 24 wide but the block is 16 wide",
    ),
    "narrow mixer that reads outside": (
        lambda: bottleneck(24, 16, "wide", attention()),
        "input is 16 wide but what it reads is 24 wide",
    ),
    "wide mixer that reads inside": (
        lambda: bottleneck(16, 12, "narrow", attention()),
        "input is 16 wide but what it reads is 12 wide",
    ),
    "values narrower than the stream outside": (
        lambda: bottleneck(24, 16, "shared", attention(value_width=20)),
        "value stream is 20 wide but the stream outside the block is 24 wide",
    ),
    "no value stream where one is given": (
        lambda: bottleneck(24, 16, "shared", attention()),
        "value stream is 0 wide but the stream outside the block is 24 wide",
    ),
    "value stream where there is none": (
        lambda: bottleneck(24, 16, "narrow", attention(value_width=24)),
        "no second stream 24 wide",
    ),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_construction_refuses_what_does_not_fit(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("name", MIXERS)
def test_every_mixer_with_a_second_stream_is_refused_where_there_is_none(name):
    with pytest.raises(InputError, match="values are 24 wide"):
        post_norm(WIDTH, MIXERS[name](value_width=24))
