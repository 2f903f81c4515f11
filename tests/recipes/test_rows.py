"""Every pre-training row of the papers' tables has a recipe, with the values of the paper."""

import itertools
import re
from dataclasses import replace

import pytest
from recipe_files import DISTILLATION, FOLDER, NAMES, PARENTS, PRETRAINING, read, read_distillation

from lightbert.models import PRESETS
from lightbert.models.generator import generator
from lightbert.models.papers import PAPER_FIGURES
from lightbert.train.starting_model import starting_config

ROWS = {
    "ConvBERT Table 1": [
        "bert-small-mlm",
        "bert-small-rtd",
        "convbert-small-bnk-rtd",
        "convbert-small-rtd",
        "bert-medium-small-rtd",
        "convbert-medium-small-bnk-rtd",
        "convbert-medium-small-bnk-gl-rtd",
        "convbert-medium-small-bnk-gl-larger-rtd",
        "convbert-medium-small-rtd",
        "bert-base-mlm",
        "bert-base-rtd",
        "convbert-base-bnk-rtd",
        "convbert-base-rtd",
    ],
    "ConvBERT Table 2": [
        "bert-small-rtd",
        "convbert-small-conventional-rtd",
        "convbert-small-dynamic-rtd",
        "convbert-small-rtd",
    ],
    "ConvBERT Table 4": [
        "convbert-small-rtd-512",
        "convbert-medium-small-rtd-512",
        "convbert-base-rtd-512",
    ],
    "ConvBERT Table 5": ["convbert-small-rtd", "convbert-medium-small-rtd", "convbert-base-rtd"],
    "ConvBERT Table 7": [
        "bert-small-mlm",
        "bert-small-rtd-16g",
        "bert-small-rtd",
        "bert-small-rtd-4m",
        "convbert-small-mlm",
        "convbert-small-rtd-16g",
        "convbert-small-rtd",
        "convbert-small-rtd-4m",
        "convbert-medium-small-rtd",
        "convbert-medium-small-rtd-4m",
        "bert-base-mlm",
        "bert-base-mlm-160g",
        "bert-base-rtd",
        "bert-base-rtd-4m",
        "convbert-base-rtd",
        "convbert-base-rtd-4m",
    ],
    "ConvBERT Fig. 5": [
        "convbert-small-kernel-1-rtd",
        "convbert-small-kernel-3-rtd",
        "convbert-small-kernel-5-rtd",
        "convbert-small-rtd",
        "convbert-small-kernel-17-rtd",
    ],
    "Chang et al. Table 1": [
        "composite-small-none-mlm",
        "composite-small-absolute-mlm",
        "composite-small-fixed-mlm",
        "composite-small-dynamic-mlm",
        "composite-small-mlm",
        "composite-base-absolute-mlm",
        "composite-base-fixed-mlm",
        "composite-base-dynamic-mlm",
        "composite-base-mlm",
    ],
    "Chang et al. Table 2": [
        "composite-small-absolute-mlm",
        "composite-small-mlm",
        "composite-small-depthwise-mlm",
        "composite-small-composite-depthwise-mlm",
    ],
    "Chang et al. Table 3": [
        "composite-small-absolute-mlm",
        "composite-small-convqk-mlm",
        "composite-small-convv-mlm",
        "composite-small-convqkv-mlm",
        "composite-small-mlm",
        "composite-small-composite-convqk-mlm",
        "composite-small-composite-convv-mlm",
        "composite-small-composite-convqkv-mlm",
    ],
    "Chang et al. Table 6": ["composite-small-key-mlm"],
    "Chang et al. Table 7": [
        "composite-small-convbert-mlm",
        "composite-small-convbert-released-mlm",
        "composite-small-composite-convqk-mlm",
    ],
    "MobileBERT Table 4": ["mobilebert-tiny-distill", "mobilebert-distill", "mobilebert-no-opt-distill"],
    "MobileBERT Table 5": ["mobilebert-tiny-distill", "mobilebert-distill", "mobilebert-no-opt-distill"],
    "MobileBERT Table 6": ["mobilebert-tiny-distill", "mobilebert-distill"],
    "MobileBERT Table 8": ["mobilebert-akt", "mobilebert-jkt", "mobilebert-pkt"],
    "MobileBERT Table 9": [
        "ib-bert-large-mlm",
        "mobilebert-no-opt-mlm",
        "mobilebert-no-opt-pd",
        "mobilebert-no-opt-pd-fmt",
        "mobilebert-no-opt-pd-fmt-at",
    ],
}
TRAININGS = [*PRETRAINING, *DISTILLATION]
ALSO = {
    *("convbert-small-hour", "convbert-thin-distill"),
    *("tiny-rtd", "tiny-mlm", "mobilebert-mlm", "ib-bert-nano-mlm", "tiny-distill"),
}
"""Recipes that don't reproduce a row of a table."""


def places(name):
    """The tables and figures that the comment at the top of a recipe names."""
    lines = (FOLDER / f"{name}.toml").read_text().splitlines()
    comment = " ".join(itertools.takewhile(lambda line: line.startswith("#"), lines))
    [paper] = re.findall("ConvBERT(?= Table| Fig| §)|Chang et al.|MobileBERT(?= Table| §)", comment)[:1]
    tables = [number for listed in re.findall(r"Tables? ([\d, and]+)", comment) for number in re.findall(r"\d", listed)]
    figures = re.findall(r"Fig\. (\d)", comment)
    return {f"{paper} Table {number}" for number in tables} | {f"{paper} Fig. {number}" for number in figures}


@pytest.mark.parametrize("table", ROWS)
def test_every_row_has_a_recipe_that_names_its_table(table):
    assert set(ROWS[table]) == {name for name in set(TRAININGS) - ALSO if table in places(name)}


def test_every_recipe_is_a_row_of_a_table_or_a_known_exception():
    assert {name for names in ROWS.values() for name in names} | ALSO == set(TRAININGS)


def test_every_parent_has_children_and_every_child_is_short():
    texts = {path.stem: path.read_text() for path in FOLDER.glob("*.toml")}
    for parent in PARENTS:
        assert any(f'parent = "{parent}.toml"' in text for text in texts.values()), parent
    assert all(len(texts[name].splitlines()) <= 25 for name in NAMES)


def test_a_kernel_is_a_change_of_the_model():
    kernels = [starting_config(read(name)).kernel for name in ROWS["ConvBERT Fig. 5"]]
    assert kernels == [1, 3, 5, 9, 17]


@pytest.mark.parametrize("name", [name for name in PRETRAINING if name.endswith("-rtd")])
def test_batch_steps_length_and_generator_are_those_that_flops_are_counted_with(name):
    recipe = read(name)
    printed = PAPER_FIGURES.get(recipe.model)
    if printed is not None:
        stated = printed.pretraining
        assert (recipe.objective, recipe.batch, recipe.steps, recipe.length) == (
            stated.objective,
            stated.batch,
            stated.steps,
            stated.length,
        )
        assert recipe.generator == pytest.approx(float(stated.generator), abs=0)


@pytest.mark.parametrize("name", [name for name in PRETRAINING if name.startswith("composite-")])
def test_the_composite_paper_has_one_setup_per_size(name):
    recipe = read(name)
    size = "base" if "-base" in name else "small"
    assert (recipe.steps, recipe.batch, recipe.lr) == {
        "small": (125_000, 128, 3e-4),
        "base": (1_000_000, 256, 1e-4),
    }[size]
    assert (recipe.examples, recipe.objective, recipe.length) == ("lines", "mlm", 128)
    assert (recipe.masking.rate, recipe.masking.masked, recipe.masking.random) == (0.15, 0.8, 0.1)
    assert (recipe.schedule.kind, recipe.schedule.warmup) == ("linear", 10_000)
    assert recipe.optimizer.bias_correction


@pytest.mark.parametrize(
    ("name", "width", "heads"),
    [("convbert-small-rtd", 64, 1), ("convbert-medium-small-rtd", 96, 2), ("convbert-base-rtd", 256, 4)],
)
def test_generators_have_the_released_sizes(name, width, heads):
    recipe = read(name)
    small = generator(starting_config(recipe), recipe.generator)
    assert (small.width, small.inner, small.n_heads) == (width, 4 * width, heads)


@pytest.mark.parametrize("name", ["convbert-small-rtd", "convbert-medium-small-rtd", "convbert-base-rtd"])
def test_rates_and_optimizer_are_those_of_table_5(name):
    recipe = read(name)
    rates = {"convbert-small": 3e-4, "convbert-medium-small": 5e-4, "convbert-base": 2e-4}
    assert recipe.lr == rates[recipe.model]
    optimizer = recipe.optimizer
    assert (optimizer.kind, optimizer.beta1, optimizer.beta2, optimizer.eps) == ("adamw", 0.9, 0.999, 1e-6)
    assert (optimizer.weight_decay, optimizer.clip, optimizer.bias_correction) == (0.01, 1.0, False)
    assert (recipe.schedule.kind, recipe.schedule.warmup) == ("product", 10_000)
    assert (recipe.masking.rate, recipe.masking.masked, recipe.masking.random) == (0.15, 0.85, 0.0)


@pytest.mark.parametrize("name", [name for name in PRETRAINING if name.endswith("-512")])
def test_longer_texts_come_last_for_a_tenth_of_the_steps(name):
    recipe = read(name)
    [phase] = recipe.phases
    assert (recipe.length, phase.length, phase.steps) == (128, 512, recipe.steps // 10)
    assert starting_config(recipe).positions == 512


@pytest.mark.parametrize("name", ["ib-bert-large-mlm", "mobilebert-mlm", "mobilebert-no-opt-mlm"])
def test_bottleneck_models_are_trained_by_lamb_on_pairs_with_few_predictions(name):
    recipe = read(name)
    assert (recipe.examples, recipe.optimizer.kind, recipe.lr) == ("pairs", "lamb", 1.5e-3)
    assert (recipe.length, recipe.masking.positions(recipe.length)) == (512, 20)
    assert recipe.batch == (4096 if recipe.model == "ib-bert-large" else 2048)


@pytest.mark.parametrize("name", [name for name in DISTILLATION if name.startswith("mobilebert")])
def test_students_are_trained_as_in_the_released_code(name):
    recipe = read_distillation(name)
    assert (recipe.optimizer.kind, recipe.lr, recipe.batch, recipe.length) == ("lamb", 1.5e-3, 2048, 512)
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
