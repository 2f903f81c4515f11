"""Reduction of ConvBERT's heads by γ, and the configs of its generators, as in the released TensorFlow code."""

from dataclasses import replace
from fractions import Fraction

import pytest
from small import VARIANTS, ids, model_of

from lightbert.errors import InputError
from lightbert.models import PRESETS, build
from lightbert.models.presets import generator
from lightbert.nn.encoder import Encoder


def mixer_shapes(model: Encoder) -> dict[str, list[int]]:
    block = model.blocks[0]
    return {
        "query": list(block.mixer.query.weight.shape),
        "kernel": list(block.mixer.convolution.kernel.weight.shape),
        "output": list(block.output.weight.shape),
    }


@pytest.mark.parametrize(
    ("ratio", "heads", "bottleneck"), [(1, 12, 768), (2, 6, 384), (3, 4, 256), (4, 3, 192), (12, 1, 64), (20, 1, 64)]
)
def test_the_bottleneck_is_the_width_over_the_ratio_and_the_concatenation_twice_that(ratio, heads, bottleneck):
    model = build(replace(PRESETS["convbert-base"], head_ratio=ratio), device="meta")
    assert model.blocks[0].mixer.n_heads == heads
    assert mixer_shapes(model) == {
        "query": [bottleneck, 768],
        "kernel": [heads * 9, bottleneck],
        "output": [768, 2 * bottleneck],
    }


def test_any_head_ratio_runs():
    for ratio in (1, 3, 4, 5):
        model = model_of(replace(VARIANTS["convbert-small"], head_ratio=ratio))
        assert model(ids(2, 7)).isfinite().all()


def test_the_small_generator_has_one_head():
    config = generator(PRESETS["convbert-small"], 1 / 4)
    assert (config.width, config.inner, config.n_heads, config.depth) == (64, 256, 1, 12)
    model = build(config, device="meta")
    assert model.blocks[0].mixer.n_heads == 1
    assert mixer_shapes(model) == {"query": [64, 64], "kernel": [9, 64], "output": [64, 128]}


GENERATORS = {
    "convbert-small": (Fraction(1, 4), 770_988),
    "convbert-medium-small": (Fraction(1, 4), 871_884),
    "convbert-base": (Fraction(1, 3), 9_334_744),
}
SHARED = ("embeddings.word", "embeddings.position", "embeddings.segment", "embeddings.norm")


def test_generators_have_the_released_number_of_own_parameters(subtests):
    for name in GENERATORS:
        with subtests.test(name=name):
            multiplier, expected = GENERATORS[name]
            model = build(generator(PRESETS[name], float(multiplier)), device="meta")
            own = {name: value.numel() for name, value in model.named_parameters() if not name.startswith(SHARED)}
            assert "embeddings.project.weight" in own
            assert sum(own.values()) == expected


def test_a_generator_is_of_the_same_family_and_vocabulary():
    for name in ("bert-small", "convbert-small", "composite-small", "composite-small-convbert"):
        config = generator(PRESETS[name], 1 / 2)
        assert type(config) is type(PRESETS[name])
        assert (config.vocab, config.narrow, config.depth) == (
            PRESETS[name].vocab,
            PRESETS[name].narrow,
            PRESETS[name].depth,
        )
        assert build(config, device="meta").width == 128


def test_the_generator_of_a_bottleneck_model_is_narrower_outside_and_inside():
    for name, width, inside in (("mobilebert", 128, 32), ("ib-bert-large", 128, 256)):
        config = generator(PRESETS[name], 1 / 4)
        assert (config.width, config.block_width, config.inner, config.n_heads) == (width, inside, 4 * inside, 1)


def test_a_generator_that_cannot_be_built_is_an_error_that_names_generator():
    half_a_head = (replace(PRESETS["composite-small-convbert"]), replace(PRESETS["composite-small"], convolved="qk"))
    for config in half_a_head:
        with pytest.raises(
            InputError, match=r"generator = 0\.25 .* width 64 with 1 heads.*; set generator= to another"
        ):
            generator(config, 1 / 4)


def test_generator_heads_must_divide_its_width():
    with pytest.raises(InputError, match=r"heads \(3\) must divide its width, 0\.3 × 768 = 230"):
        generator(PRESETS["convbert-base"], 0.3)
