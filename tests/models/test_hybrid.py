"""Any mixer in any shell: valid configs run without mixing texts, invalid ones raise an error."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from small import KERNEL, POSITIONS, VOCAB, assert_same_states, ids, model_of

from lightbert.errors import InputError
from lightbert.models import build
from lightbert.models.hybrid import Hybrid
from lightbert.nn.convolution import SpanConvolution
from lightbert.nn.mixed import MixedAttention
from randomised import randomised

BASE = Hybrid(
    embeddings="plain",
    vocab=VOCAB,
    positions=POSITIONS,
    narrow=16,
    width=16,
    depth=1,
    n_heads=4,
    inner=24,
    kernel=KERNEL,
    radius=3,
)
MIXERS = {
    "attention": {"mixer": "attention"},
    "mixed": {"mixer": "mixed"},
    "dynamic": {"mixer": "mixed", "convolution": "dynamic"},
    "conventional": {"mixer": "mixed", "convolution": "conventional"},
    "bottleneck attention": {"mixer": "mixed", "convolution": "none"},
    "composite": {"mixer": "composite", "key_dynamic": True, "depthwise": True, "convolved": "qkv"},
    "local": {"mixer": "local"},
}
SHELLS = {"post-norm": {}} | {
    f"{shell}, {reads}": {"shell": shell, "block_width": inside, "mixer_input": reads}
    for (shell, inside), reads in product([("bottleneck", 8), ("inverted", 24)], ["narrow", "shared", "wide"])
}
REST = {
    "layer norm": {},
    "no norm, trigram, stacked": {"norm": "none", "embeddings": "trigram", "narrow": 8, "feedforwards": 2},
    "factorized, grouped": {"embeddings": "factorized", "narrow": 8, "groups": 2},
    "no norm, grouped, stacked": {"norm": "none", "groups": 2, "feedforwards": 3},
}


def test_any_mixer_runs_in_any_shell_without_mixing_packed_texts(subtests):
    rests = list(REST)
    # Every pair of a mixer and a shell, and of either and the other settings.
    for (i, mixer), (j, shell) in product(enumerate(MIXERS), enumerate(SHELLS)):
        rest = rests[(i + j) % len(rests)]
        with subtests.test(mixer=mixer, shell=shell, rest=rest):
            model = model_of(replace(BASE, **MIXERS[mixer], **SHELLS[shell], **REST[rest]))
            one, other = ids(1, 7), ids(1, 4)
            packed = model(torch.cat([one, other], dim=1), torch.tensor([[1] * 7 + [2] * 4]))
            assert_same_states(packed[:, :7], model(one))
            assert_same_states(packed[:, 7:], model(other))
            row, keep = torch.cat([ids(1, 3), one], dim=1), torch.tensor([[False] * 3 + [True] * 7])
            assert_same_states(model(row, keep)[:, 3:], model(one))


def test_mixed_attention_works_inside_a_mobilebert_block():
    config = replace(BASE, **SHELLS["bottleneck, shared"], **REST["no norm, trigram, stacked"])
    model = randomised(build(config))
    block = model.blocks[0]
    assert isinstance(block.mixer, MixedAttention)
    assert isinstance(block.mixer.convolution, SpanConvolution)
    assert block.mixer.query.weight.shape == (4, 8), "queries read the shared projection"
    assert block.mixer.value.weight.shape == (4, 16), "attention reads its values outside the block"
    assert block.mixer.convolution.value.weight.shape == (4, 16), "and so does the convolution"
    assert block.output.weight.shape == (8, 8)
    model(ids(2, 7)).square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


INVALID = {
    "post-norm with a block width": ({"block_width": 8}, "block_width must be 0 with shell = 'post-norm', got 8"),
    "bottleneck without a block width": (
        {"shell": "bottleneck"},
        "block_width must be > 0 and < 16 with shell = 'bottleneck', got 0",
    ),
    "bottleneck that widens": (
        {"shell": "bottleneck", "block_width": 24},
        "> 0 and < 16 with shell = 'bottleneck', got 24",
    ),
    "inverted one that narrows": ({"shell": "inverted", "block_width": 8}, "> 16 with shell = 'inverted', got 8"),
    "plain with narrow tables": (
        {"narrow": 8},
        "plain embeddings require narrow == width, got narrow = 8 and width = 16",
    ),
    "factorized with wide tables": ({"embeddings": "factorized"}, "factorized .* narrow = 16 and width = 16"),
    "heads that don't divide the block width": (
        {"shell": "bottleneck", "block_width": 10},
        r"n_heads \(4\) must divide the width, 10",
    ),
    "groups that do not divide": ({"groups": 5}, r"groups \(5\) .* 16 and 24"),
    "half of one head": ({"mixer": "local", "n_heads": 1}, r"n_heads \(1\) must be even"),
    "half of one convolved head": (
        {"mixer": "composite", "n_heads": 1, "convolved": "qk"},
        "n_heads must be even with convolved = 'qk', got 1",
    ),
    "even kernel": ({"kernel": 4}, "must be odd, got 4; use 5"),
    "unknown mixer": ({"mixer": "mixd"}, "unknown mixer 'mixd'; did you mean 'mixed'"),
    "unknown shell": ({"shell": "inverse"}, "unknown shell 'inverse'; did you mean 'inverted'"),
}


def test_incompatible_settings_raise_an_error_with_both_numbers():
    for changes, message in INVALID.values():
        with pytest.raises(InputError, match=message):
            build(replace(BASE, **changes))


def test_only_models_without_normalization_reject_fp16():
    assert model_of(BASE).fp16
    assert not model_of(replace(BASE, norm="none")).fp16
