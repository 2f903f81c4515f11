"""A few steps of every recipe, with unchanged objective, examples, optimizer and phases, at small sizes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from recipe_files import ADAPTATION, DISTILLATION, PRETRAINING, read, read_distillation, values

import lightbert
from lightbert import bundled
from lightbert.config import assignments, from_mapping, override
from lightbert.data.shards import Shards
from lightbert.models import build, folder, preset
from lightbert.models.presets import generator
from lightbert.train.distributed import process_group
from lightbert.train.pretraining import distill, pretrain, starting_config
from lightbert.train.settings import DistillRecipe, Recipe
from lightbert.train.signals import Interruption

SIZES = {"depth": 1, "narrow": 8, "width": 16, "n_heads": 4, "inner": 32, "block_width": 8}


RUN = {"batch": 2, "length": 16, "evaluate_batches": 1, "workers": 0, "device": "cpu"}


def changes(model, **sizes):
    """Overrides with the sizes of a small model."""
    return {f"change.{field}": size for field, size in (SIZES | sizes).items() if field in vars(preset(model))}


def resolved(kind, name, settings):
    pairs = assignments(f"{key}={value}" for key, value in settings.items())
    return from_mapping(kind, override(values(name), pairs))


def shrunk(name, corpus, out):
    """The recipe with as few overrides as possible."""
    recipe = read(name)
    settings = {"data": corpus, "out": out, "steps": 2, **RUN, **changes(recipe.model)}
    if recipe.phases:
        settings["phases"] = "[{length = 24, steps = 1}]"
    return resolved(Recipe, name, settings)


def trained(run, recipe):
    """Run a recipe, and return its log and its model."""
    with process_group("cpu") as world:
        outcome = run(recipe, world, Interruption())
    assert outcome.finished
    lines = [json.loads(line) for line in Path(recipe.out, "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, outcome.step + 1))
    assert all(line["loss"] > 0 for line in lines)
    return lines, lightbert.load(Path(recipe.out, "final"))


def distinct(names, recipe_of):
    """Names without those of recipes that differ from another only in their rates, or in sizes that all get here."""
    distinct_recipes = {}
    for name in names:
        recipe = recipe_of(name)
        same = replace(recipe, model="", change={}, lr=1.0, optimizer=replace(recipe.optimizer, beta2=0.9))
        distinct_recipes.setdefault(str((same, starting_config(recipe))), name)
    return [*distinct_recipes.values()]


@pytest.mark.parametrize("name", distinct(PRETRAINING, lambda name: shrunk(name, "data", "out")))
def test_two_steps_of_a_recipe_write_a_model_that_loads(name, corpus, tmp_path):
    recipe = shrunk(name, corpus, tmp_path / "run")
    _, model = trained(pretrain, recipe)
    assert recipe.objective in model.heads
    assert ("nsp" in model.heads) == (recipe.examples == "pairs")
    assert recipe.change.items() <= vars(model.config).items()


@pytest.mark.parametrize("name", ADAPTATION)
def test_two_steps_of_an_adaptation_continue_a_bundled_model_with_its_generator(
    name, corpus, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "bundled")
    tokenizer = Shards(corpus).tokenizer()
    sizes = {
        "vocab": tokenizer.get_vocab_size(),
        **{field: size for field, size in SIZES.items() if field != "block_width"},
    }
    config = replace(preset("convbert-small"), **sizes)
    folder.save(build(config, heads={"rtd": {}}, seed=0), tmp_path / "bundled" / values(name)["model"], tokenizer)
    small = build(generator(config, values(name)["generator"]), heads={"mlm": {}}, seed=0)
    folder.save(small, tmp_path / "bundled" / values(name)["model"] / "generator", tokenizer)
    settings = {"data": corpus, "out": tmp_path / "run", "steps": 2, **RUN}
    if values(name).get("phases"):
        settings["phases"] = "[{length = 24, steps = 1}]"
    recipe = resolved(Recipe, name, settings)
    _, model = trained(pretrain, recipe)
    assert "generator: 'convbert-small-en/generator'" in capsys.readouterr().err
    rate = config.dropout if recipe.dropout is None else recipe.dropout
    assert model.config == replace(config, dropout=rate, attention_dropout=rate)


@pytest.fixture(scope="session")
def teacher(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    recipe = resolved(
        Recipe,
        "ib-bert-large-mlm",
        {"data": corpus, "out": folder, "steps": 1, **RUN, **changes("ib-bert-large", depth=2, block_width=24)},
    )
    trained(pretrain, recipe)
    return folder / "final"


@pytest.fixture(scope="session")
def detector(corpus, tmp_path_factory):
    """A teacher without a head that predicts words, wider than its student."""
    where, tokenizer = tmp_path_factory.mktemp("detector") / "model", Shards(corpus).tokenizer()
    sizes = {"vocab": tokenizer.get_vocab_size(), "depth": 2, "narrow": 8, "width": 32, "n_heads": 4, "inner": 32}
    folder.save(build(replace(preset("convbert-small"), **sizes), heads={"rtd": {}}, seed=0), where, tokenizer)
    return where


def shrunk_distillation(name, corpus, out, teacher):
    full = read_distillation(name)
    settings = {"data": corpus, "out": out, "teacher": teacher, **RUN, **changes(full.model, depth=2)}
    return resolved(DistillRecipe, name, settings | {"steps": 1, "transfer_steps": 2 if full.transfer_steps else 0})


@pytest.mark.parametrize("name", distinct(DISTILLATION, lambda name: shrunk_distillation(name, "d", "o", "t")))
def test_a_step_of_every_stage_of_a_recipe_writes_a_model_that_loads(name, corpus, teacher, detector, tmp_path):
    used = detector if read_distillation(name).alpha == 1 else teacher
    recipe = shrunk_distillation(name, corpus, tmp_path / "run", used)
    lines, model = trained(distill, recipe)
    seen = {key for line in lines if line["kind"] == "train" for key in line}
    assert ("fmt_2" in seen) == (recipe.strategy != "pd")
    assert ("at_2" in seen) == (recipe.strategy != "pd" and recipe.transfer.attention > 0)
    heads = {"mlm", "nsp"} if recipe.examples == "pairs" else {"mlm"}
    assert {f"{head}_loss" for head in heads} <= seen
    assert ("kd_loss" in seen) == (recipe.alpha < 1)
    assert {*model.heads} == heads
    assert recipe.change.items() <= vars(model.config).items()
