"""Every pre-training row of the papers' tables has a recipe, with the values of the paper."""

import re
from dataclasses import replace

from recipe_files import DISTILLATION, PRETRAINING, read, read_distillation

from lightbert import recipes
from lightbert.models import PRESETS
from lightbert.models.presets import generator
from lightbert.models.size import PAPER_FIGURES
from lightbert.train.pretraining import starting_config

_TABLES = """
ConvBERT Table 1: bert-small-mlm bert-small-rtd convbert-small-bnk-rtd convbert-small-rtd
    bert-medium-small-rtd convbert-medium-small-bnk-rtd convbert-medium-small-bnk-gl-rtd
    convbert-medium-small-bnk-gl-larger-rtd convbert-medium-small-rtd bert-base-mlm bert-base-rtd
    convbert-base-bnk-rtd convbert-base-rtd
ConvBERT Table 2: bert-small-rtd convbert-small-conventional-rtd convbert-small-dynamic-rtd convbert-small-rtd
ConvBERT Table 4: convbert-small-rtd-512 convbert-medium-small-rtd-512 convbert-base-rtd-512
ConvBERT Table 5: convbert-small-rtd convbert-medium-small-rtd convbert-base-rtd
ConvBERT Table 7: bert-small-mlm bert-small-rtd-16g bert-small-rtd bert-small-rtd-4m convbert-small-mlm
    convbert-small-rtd-16g convbert-small-rtd convbert-small-rtd-4m convbert-medium-small-rtd
    convbert-medium-small-rtd-4m bert-base-mlm bert-base-mlm-160g bert-base-rtd bert-base-rtd-4m
    convbert-base-rtd convbert-base-rtd-4m
ConvBERT Fig. 5: convbert-small-kernel-1-rtd convbert-small-kernel-3-rtd convbert-small-kernel-5-rtd
    convbert-small-rtd convbert-small-kernel-17-rtd
Chang et al. Table 1: composite-small-none-mlm composite-small-absolute-mlm composite-small-fixed-mlm
    composite-small-dynamic-mlm composite-small-mlm composite-base-absolute-mlm composite-base-fixed-mlm
    composite-base-dynamic-mlm composite-base-mlm
Chang et al. Table 2: composite-small-absolute-mlm composite-small-mlm composite-small-depthwise-mlm
    composite-small-composite-depthwise-mlm
Chang et al. Table 3: composite-small-absolute-mlm composite-small-convqk-mlm composite-small-convv-mlm
    composite-small-convqkv-mlm composite-small-mlm composite-small-composite-convqk-mlm
    composite-small-composite-convv-mlm composite-small-composite-convqkv-mlm
Chang et al. Table 6: composite-small-key-mlm
Chang et al. Table 7: composite-small-convbert-mlm composite-small-convbert-released-mlm
    composite-small-composite-convqk-mlm
MobileBERT Table 4: mobilebert-tiny-distill mobilebert-distill mobilebert-no-opt-distill
MobileBERT Table 5: mobilebert-tiny-distill mobilebert-distill mobilebert-no-opt-distill
MobileBERT Table 6: mobilebert-tiny-distill mobilebert-distill
MobileBERT Table 8: mobilebert-akt mobilebert-jkt mobilebert-pkt
MobileBERT Table 9: ib-bert-large-mlm mobilebert-no-opt-mlm mobilebert-no-opt-pd mobilebert-no-opt-pd-fmt
    mobilebert-no-opt-pd-fmt-at
"""
ROWS = {line.split(": ")[0]: line.split(": ")[1].split() for line in _TABLES.strip().replace("\n   ", "").splitlines()}
"""Table or figure -> the recipes of its rows."""
TRAININGS = [*PRETRAINING, *DISTILLATION]
ALSO = {
    *("convbert-small-hour", "convbert-thin-distill"),
    *("tiny-rtd", "tiny-mlm", "mobilebert-mlm", "ib-bert-nano-mlm", "tiny-distill"),
}
"""Recipes that don't reproduce a row of a table."""


def places(name):
    """The tables and figures that the comment of a recipe names."""
    comment = " ".join(recipes.comment(name))
    [paper] = re.findall("ConvBERT(?= Table| Fig| §)|Chang et al.|MobileBERT(?= Table| §)", comment)[:1]
    tables = [number for listed in re.findall(r"Tables? ([\d, and]+)", comment) for number in re.findall(r"\d", listed)]
    figures = re.findall(r"Fig\. (\d)", comment)
    return {f"{paper} Table {number}" for number in tables} | {f"{paper} Fig. {number}" for number in figures}


def test_every_row_has_a_recipe_that_names_its_table_and_every_recipe_is_a_row_or_a_known_exception():
    for table, names in ROWS.items():
        assert set(names) == {name for name in set(TRAININGS) - ALSO if table in places(name)}, table
    assert {name for names in ROWS.values() for name in names} | ALSO == set(TRAININGS)


def test_a_kernel_is_a_change_of_the_model():
    kernels = [starting_config(read(name)).kernel for name in ROWS["ConvBERT Fig. 5"]]
    assert kernels == [1, 3, 5, 9, 17]


def test_batch_steps_length_and_generator_are_those_that_flops_are_counted_with():
    for name in (name for name in PRETRAINING if name.endswith("-rtd")):
        recipe = read(name)
        if recipe.model not in PAPER_FIGURES:
            continue
        stated = PAPER_FIGURES[recipe.model].pretraining
        for key in ("objective", "batch", "steps", "length"):
            assert getattr(recipe, key) == getattr(stated, key), (name, key)
        assert recipe.generator == float(stated.generator), name


def test_the_composite_paper_has_one_setup_per_size():
    for name in (name for name in PRETRAINING if name.startswith("composite-")):
        recipe = read(name)
        sizes = (1_000_000, 256, 1e-4) if "-base" in name else (125_000, 128, 3e-4)
        assert (recipe.steps, recipe.batch, recipe.lr) == sizes, name
        assert (recipe.examples, recipe.objective, recipe.length) == ("lines", "mlm", 128)
        assert (recipe.masking.rate, recipe.masking.masked, recipe.masking.random) == (0.15, 0.8, 0.1)
        assert (recipe.schedule.kind, recipe.schedule.warmup) == ("linear", 10_000)
        assert recipe.optimizer.bias_correction


def test_rates_optimizer_and_generators_are_those_of_convberts_table_5():
    for name, lr, width, heads in (
        ("convbert-small-rtd", 3e-4, 64, 1),
        ("convbert-medium-small-rtd", 5e-4, 96, 2),
        ("convbert-base-rtd", 2e-4, 256, 4),
    ):
        recipe = read(name)
        small = generator(starting_config(recipe), recipe.generator)
        assert (recipe.lr, small.width, small.inner, small.n_heads) == (lr, width, 4 * width, heads)
        optimizer = recipe.optimizer
        assert (optimizer.kind, optimizer.beta1, optimizer.beta2, optimizer.eps) == ("adamw", 0.9, 0.999, 1e-6)
        assert (optimizer.weight_decay, optimizer.clip, optimizer.bias_correction) == (0.01, 1.0, False)
        assert (recipe.schedule.kind, recipe.schedule.warmup) == ("product", 10_000)
        assert (recipe.masking.rate, recipe.masking.masked, recipe.masking.random) == (0.15, 0.85, 0.0)


def test_longer_texts_come_last_for_a_tenth_of_the_steps():
    for recipe in (read(name) for name in PRETRAINING if name.endswith("-512")):
        [phase] = recipe.phases
        assert (recipe.length, phase.length, phase.steps) == (128, 512, recipe.steps // 10)
        assert starting_config(recipe).positions == 512


def test_bottleneck_models_are_trained_by_lamb_on_pairs_with_few_predictions():
    for recipe in (read(name) for name in ("ib-bert-large-mlm", "mobilebert-mlm", "mobilebert-no-opt-mlm")):
        assert (recipe.examples, recipe.optimizer.kind, recipe.lr) == ("pairs", "lamb", 1.5e-3)
        assert (recipe.length, recipe.masking.positions(recipe.length)) == (512, 20)
        assert recipe.batch == (4096 if recipe.model == "ib-bert-large" else 2048)


def test_students_are_trained_as_in_the_released_code():
    for name in (name for name in DISTILLATION if name.startswith("mobilebert")):
        recipe = read_distillation(name)
        assert (recipe.optimizer.kind, recipe.lr, recipe.batch, recipe.length) == ("lamb", 1.5e-3, 2048, 512), name
        assert (recipe.examples, recipe.masking.positions(recipe.length)) == ("pairs", 20)
        assert (recipe.schedule.kind, recipe.schedule.warmup, recipe.schedule.floor) == ("linear", 10_000, 1e-4)
        assert recipe.transfer_steps == (0 if recipe.strategy == "pd" else 10_000 * starting_config(recipe).depth)
        assert recipe.steps == (500_000 if name.endswith("-distill") else 250_000)
        weights = recipe.transfer
        assert (weights.feature, weights.mean, weights.variance) == (100, 5000, 5)
        assert (recipe.alpha, recipe.layer_rate, recipe.lower, recipe.soft) == (0.5, 3.0, "soft", 0.1)


def test_the_ablations_of_transfer_differ_in_one_key():
    strategies = {name: read_distillation(name).strategy for name in ROWS["MobileBERT Table 8"]}
    assert strategies == {"mobilebert-akt": "akt", "mobilebert-jkt": "jkt", "mobilebert-pkt": "pkt"}
    pd, fmt, at = (read_distillation(name) for name in ROWS["MobileBERT Table 9"][2:])
    assert replace(fmt, strategy="pd", transfer_steps=0, transfer=pd.transfer) == pd
    assert replace(fmt, transfer=at.transfer) == at
    assert replace(fmt.transfer, attention=1.0) == at.transfer


def test_every_ablation_of_the_zoo_has_a_recipe():
    tiny = {name for name in PRESETS if name.endswith(("-tiny", "-nano"))}
    models = {read(name).model for name in PRETRAINING} | {read_distillation(name).model for name in DISTILLATION}
    assert models >= set(PRESETS) - tiny - {"mobilebert-paper"}
