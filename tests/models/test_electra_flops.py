"""FLOPs by ELECTRA's rules: the totals of its script and of the ConvBERT paper, and one block by hand."""

from dataclasses import replace

from lightbert.models import preset
from lightbert.models.presets import generator
from lightbert.models.size import Run, mlm_training, rtd_training

SMALL = Run(batch=128, steps=1_000_000, length=128)
BASE = Run(batch=256, steps=1_000_000, length=128)


def rtd(name, multiplier, run):
    config = preset(name)
    return rtd_training(config, generator(config, multiplier), run)


def test_training_totals():
    for total, expected in (
        (mlm_training(preset("bert-small"), replace(SMALL, steps=1_450_000)), "1.419e+18"),
        (mlm_training(preset("bert-base"), replace(BASE, length=512)), "6.428e+19"),
        (rtd("bert-small", 1 / 4, SMALL), "1.294e+18"),
        (rtd("bert-base", 1 / 3, replace(BASE, steps=766_000, length=512)), "6.425e+19"),
        (rtd("bert-base", 1 / 3, BASE), "1.961e+19"),
        (rtd("convbert-small", 1 / 4, SMALL), "1.258e+18"),
        (rtd("convbert-medium-small", 1 / 4, SMALL), "1.567e+18"),
        (rtd("convbert-base", 1 / 3, BASE), "1.894e+19"),
    ):
        assert f"{total:.3e}" == expected


def test_the_flops_of_a_layer_are_the_sum_of_its_operations():
    run = Run(batch=1, steps=1, length=3)
    config = replace(preset("convbert-small"), width=8, n_heads=4, inner=10, kernel=5, groups=2)
    layer = mlm_training(replace(config, depth=2), run) - mlm_training(replace(config, depth=1), run)
    # Width 8, two heads of two channels, so a bottleneck of 4.
    attention = 3 * (2 * 8 * 4 + 4) + 3 * (2 * 4 + 2 * 4) + 3 * 2 * (1 + 5 + 4)
    span = 2 * 8 * 5 + (2 * 8 * 4 + 4) + 4
    kernels = (2 * 4 * 10 + 10) + 5 * 10
    convolved = (2 * 8 * 4 + 4) + 2 * 4 * 5
    output = (2 * 8 * 8 + 8) + 4 * 8 + 8 + 5 * 8
    feedforward = 2 * (2 * 8 * 10 // 2) + 10 + 8 * 10 + 8 + 4 * 8 + 8 + 5 * 8
    assert layer == 2 * 3 * (attention + span + kernels + convolved + output + feedforward)


def test_ablations_have_fewer_flops_than_the_span_based_convolution():
    whole, single, plain, without = (
        mlm_training(replace(preset("convbert-small"), convolution=kind), SMALL)
        for kind in ("span", "dynamic", "conventional", "none")
    )
    assert without < plain < whole
    assert without < single < whole
