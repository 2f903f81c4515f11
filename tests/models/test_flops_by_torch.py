"""FLOPs of a forward pass: by hand, and against torch's counter, which counts matmuls and no convolution taps."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lightbert.models import Config, build, preset
from lightbert.models.flops import flops
from lightbert.nn.convolution import Depthwise
from lightbert.nn.feedforward import GroupedLinear
from lightbert.nn.heads import BeamSpan, Classification, MaskedLanguage, ReplacedToken
from lightbert.nn.record import Record

TOKENS = 16

CONFIGS: dict[str, Config] = {
    "bert": preset("bert-tiny"),
    "convbert": preset("convbert-tiny"),
    "grouped": replace(preset("convbert-tiny"), groups=2),
    "dynamic": replace(preset("convbert-tiny"), convolution="dynamic"),
    "conventional": replace(preset("convbert-tiny"), convolution="conventional"),
    "composite": replace(preset("composite-tiny"), key_dynamic=True, depthwise=True, convolved="qkv"),
    "local": replace(preset("composite-tiny"), fixed=False, query_dynamic=False, local="query"),
    "mobilebert": preset("mobilebert-nano"),
    "ib-bert": preset("ib-bert-nano"),
}


def seen_by_torch(module, *arguments):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*arguments)
    return counter.get_total_flops()


def taps(config):
    """The FLOPs of convolution taps, which torch's counter doesn't count because they aren't matmuls."""
    reads = config.convolution in ("span", "conventional")
    generated = config.convolution in ("span", "dynamic")
    channels = config.kernel * (reads * config.width + generated * config.width // (config.head_ratio or 2))
    channels += (2 * config.radius + 1) * config.width * (len(config.convolved) + config.depthwise)
    if config.local != "none":
        channels += config.local_kernel * (config.width + config.width // 2)
    return 2 * TOKENS * config.depth * channels


def test_flops_of_matmuls_equal_those_that_torch_counts():
    for name in CONFIGS:
        config = CONFIGS[name]
        model = build(config).eval()
        ids = torch.zeros(1, TOKENS, dtype=torch.long)
        # Recording disables fused attention, which torch doesn't count on a CPU.
        found = seen_by_torch(model, ids, None, None, Record())
        assert flops(model, TOKENS) == found + taps(config)


def test_flops_of_modules_equal_those_counted_by_hand():
    assert flops(nn.Linear(3, 5), 7) == 2 * 7 * 3 * 5
    assert flops(GroupedLinear(4, 6, 2), 7) == 2 * 7 * 4 * 6 // 2
    assert flops(Depthwise(4, 9, bias=True), 7) == 2 * 7 * 4 * 9
    assert flops(nn.Embedding(10, 4), 7) == flops(nn.LayerNorm(4), 7) == 0


def test_flops_of_heads_equal_those_that_torch_counts():
    states, table = torch.randn(1, TOKENS, 8), torch.randn(11, 4)
    cases = [
        (MaskedLanguage(8, 11, 4), (states, table)),
        (MaskedLanguage(8, 11, 4, hidden=7), (states, table)),
        (ReplacedToken(8), (states,)),
        (Classification(8, 3, hidden="tanh"), (states,)),
        (BeamSpan(8, inner=5, beam=3), (states,)),
        (BeamSpan(8, inner=5, beam=TOKENS + 1), (states,)),
    ]
    for head, arguments in cases:
        assert flops(head, TOKENS) == seen_by_torch(head, *arguments), head


def test_the_flops_of_a_model_do_not_include_heads():
    bare, headed = build("bert-tiny", device="meta"), build("bert-tiny", heads={"mlm": {}}, device="meta")
    assert flops(bare, TOKENS) == flops(headed, TOKENS)


def test_a_module_without_a_rule_raises_an_error():
    with pytest.raises(TypeError, match="no FLOP rule for Conv1d"):
        flops(nn.Conv1d(3, 3, 1), 7)
