"""Every key of every recipe has a range and a description, and the documentation agrees with the classes."""

from dataclasses import fields, is_dataclass

import pytest
from key_tables import PAGES, key_tables
from pages import page, section

from lightbert.commands.recipes import VERBS, recipe_class
from lightbert.config import from_mapping, keys, may_change
from lightbert.errors import InputError
from lightbert.models import preset
from lightbert.train.pretraining import starting_config
from lightbert.train.settings import ALIASES, Recipe

REQUIRED = {
    "pretrain": {"data": "d", "out": "o", "steps": 1},
    "distill": {"data": "d", "out": "o", "teacher": "t", "steps": 1, "transfer_steps": 1},
    "finetune": {"model": "m", "out": "o", "task": "rte"},
}
LOOP = {"accumulate", "checkpoint_every", "cuda_graph", "device", "keep", "log_every", "max_minutes", "out"}
LOOP |= {"compile", "keep_checkpoints", "tensorboard", "threads", "workers"}


@pytest.mark.parametrize("verb", VERBS)
def test_every_number_has_a_range_and_every_key_a_description(verb):
    # Columns of CoNLL files may be negative.
    unlimited = {"data.word_column", "data.tag_column"}
    for key in keys(recipe_class(verb)):
        assert key.meaning, key.name
        if type(key.default) in (int, float) and key.name not in unlimited:
            assert key.allowed, key.name


@pytest.mark.parametrize("verb", VERBS)
def test_the_tables_of_the_documentation_are_those_of_the_classes(verb):
    written = section(page(PAGES[verb]), "Keys")
    assert key_tables(verb) in written, "run: python tests/recipes/key_tables.py"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_lists_every_key_with_its_default(verb, capsys):
    from lightbert.cli import main

    assert main([verb, "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for key in keys(recipe_class(verb)):
        assert f" {key.name} " in printed
        assert f"default {key.default_text}" in printed


def test_a_resumed_run_may_change_keys_that_do_not_affect_the_results():
    changeable = {verb: may_change(recipe_class(verb)) for verb in VERBS}
    assert changeable["finetune"] == LOOP
    corpus = LOOP | {"checkpointing", "sharding", "verify"}
    assert changeable["pretrain"] == corpus | {"overlap"}
    assert changeable["distill"] == corpus | {"teacher"}


def test_fields_are_redeclared_only_for_another_default_or_description():
    classes = {base for verb in VERBS for base in recipe_class(verb).__mro__ if is_dataclass(base)}
    assert {cls.__name__ for cls in classes} == {
        *("BaseRecipe", "CorpusRecipe", "Recipe", "DistillRecipe", "FinetuneRecipe")
    }
    for cls in classes:
        own = {key.name: key for key in keys(cls)}
        for base in (base for base in cls.__mro__[1:] if base in classes):
            inherited = {key.name: key for key in keys(base)}
            for name in cls.__annotations__.keys() & base.__annotations__.keys() & {f.name for f in fields(cls)}:
                changed = [key for key in own if key.partition(".")[0] == name and own[key] != inherited[key]]
                assert changed, f"{cls.__name__}.{name}"


def test_an_invalid_value_raises_an_error_when_the_recipe_is_read():
    for verb, values, sentence in (
        ("pretrain", {"optimizer": {"beta2": 1.5}}, "optimizer.beta2 must be in [0, 1), got 1.5"),
        ("pretrain", {"optimizer": {"eps": -1}}, "optimizer.eps must be > 0, got -1.0"),
        ("pretrain", {"optimizer": {"clip": -1}}, "optimizer.clip must be >= 0, got -1.0"),
        ("pretrain", {"optimizer": {"weight_decay": -0.1}}, "optimizer.weight_decay must be >= 0, got -0.1"),
        ("pretrain", {"temperature": 0}, "temperature must be > 0, got 0.0"),
        ("pretrain", {"rtd_weight": 0}, "rtd_weight must be > 0, got 0.0"),
        ("pretrain", {"shared_embeddings": "d"}, "unknown shared_embeddings 'd'; choose from both, generator"),
        ("pretrain", {"dropout": 2}, "dropout must be in [0, 1), got 2.0"),
        ("pretrain", {"generator": 0}, "generator must be in (0, 1], got 0.0"),
        ("pretrain", {"generator": 1.5}, "generator must be in (0, 1], got 1.5"),
        ("pretrain", {"seed": 99999999999999999999}, f"seed must be in [0, {2**63}), got 99999999999999999999"),
        ("pretrain", {"masking": {"rate": 1}}, "masking.rate must be in (0, 1), got 1.0"),
        ("pretrain", {"masking": {"most": 0}}, "masking.most must be >= 1, got 0"),
        ("pretrain", {"lr": float("inf")}, "lr must be a finite number, got inf"),
        ("pretrain", {"phases": [{"length": 0, "steps": 1}]}, "phases[0].length must be >= 1, got 0"),
        ("pretrain", {"workers": 100_000}, "workers must be in [0, 1024], got 100000"),
        ("pretrain", {"threads": 100_000}, "threads must be in [0, 1024], got 100000"),
        ("pretrain", {"steps": 10**20}, f"steps must be <= {2**53}, got {10**20}"),
        ("pretrain", {"batch": 10**20}, f"batch must be <= {2**53}, got {10**20}"),
        ("distill", {"alpha": 1.5}, "alpha must be in [0, 1], got 1.5"),
        ("distill", {"transfer": {"mean": -5}}, "transfer.mean must be >= 0, got -5.0"),
        ("finetune", {"head": {"dropout": 1}}, "head.dropout must be in [0, 1), got 1.0"),
        ("finetune", {"head": {"pool": "sum"}}, "unknown head.pool 'sum'; choose from cls, mean, max, mean-max"),
        ("finetune", {"data": {"hold_out": 1.0}}, "data.hold_out must be in [0, 1), got 1.0"),
        ("finetune", {"answers": {"stride": 0}}, "answers.stride must be >= 1, got 0"),
        ("finetune", {"epochs": -1}, "epochs must be >= 0, got -1.0"),
    ):
        with pytest.raises(InputError) as raised:
            from_mapping(recipe_class(verb), REQUIRED[verb] | values)
        assert str(raised.value) == sentence


def test_common_names_of_a_key_are_aliases():
    for verb, key, meant in (
        ("finetune", "dev", "'data.dev'"),
        ("finetune", "train", "'data.train'"),
        ("finetune", "learning_rate", "'lr'"),
        ("finetune", "max_query", "'answers.max_query'"),
        ("finetune", "batch_size", "'batch'"),
        ("finetune", "max_length", "'length'"),
        ("finetune", "num_train_epochs", "'epochs'"),
        ("finetune", "text", "'data.text'"),
        ("pretrain", "lr_scheduler", "'schedule.kind'"),
        ("pretrain", "warmup", "'schedule.warmup'"),
        ("pretrain", "weight_decay", "'optimizer.weight_decay'"),
        ("pretrain", "max_grad_norm", "'optimizer.clip'"),
        ("distill", "kind", "'schedule.kind' or 'optimizer.kind'"),
    ):
        with pytest.raises(InputError) as raised:
            from_mapping(recipe_class(verb), REQUIRED[verb] | {key: 1})
        assert str(raised.value) == f"unknown key '{key}'; did you mean {meant}?"


def test_every_alias_names_a_key_and_is_not_a_key_itself():
    names = {key.name for verb in VERBS for key in keys(recipe_class(verb))}
    assert {*ALIASES.values()} <= names
    assert not names & {*ALIASES}


# Changes of a preset


def config_of(**values):
    return starting_config(from_mapping(Recipe, {"data": "data", "out": "out", "steps": 1, **values}))


def test_only_the_named_keys_change():
    changed = config_of(model="convbert-small", change={"kernel": 5, "activation": "relu"})
    fields = vars(preset("convbert-small"))
    assert vars(changed) == {**fields, "kernel": 5, "activation": "relu"}


def test_a_change_of_an_unknown_key_raises_an_error():
    for change, sentence in (
        ({"kernl": 5}, "unknown key 'kernl'; did you mean 'kernel'?"),
        ({"kernel": 5.5}, "kernel must be an integer, got 5.5"),
        ({"kernel": 0}, "kernel must be >= 1, got 0"),
        ({"dropout": 2}, "dropout must be in [0, 1), got 2.0"),
        ({"convolution": "sapn"}, "unknown convolution 'sapn'; did you mean 'span'?"),
    ):
        with pytest.raises(InputError) as error:
            config_of(model="convbert-small", change=change)
        assert str(error.value) == sentence


def test_longer_texts_need_more_positions_and_a_recipe_can_set_even_more():
    assert config_of(model="convbert-tiny", length=256).positions == 256
    assert config_of(model="convbert-tiny", length=16, change={"positions": 64}).positions == 64
