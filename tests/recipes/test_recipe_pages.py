"""docs/pretraining.md, docs/distillation.md and docs/finetuning.md agree with the code."""

import re
from collections import defaultdict
from dataclasses import replace
from fnmatch import fnmatch
from types import SimpleNamespace
from typing import get_args

import pytest
from pages import page, section
from recipe_files import ADAPTATION, DISTILLATION, FINETUNING, NAMES, PRETRAINING, read

import lightbert
from lightbert.models import PRESETS
from lightbert.objectives.distill.pair import check_pair
from lightbert.objectives.distill.stages import Strategy, Transfer
from lightbert.objectives.mlm import MaskedLanguageModelling
from lightbert.objectives.rtd import ReplacedTokenDetection
from lightbert.train.signals import EXIT_CODE

PRETRAINING_PAGE, DISTILLATION_PAGE = page("pretraining.md"), page("distillation.md")


@pytest.mark.parametrize(
    ("name", "recipes"),
    [("pretraining", [*PRETRAINING, *ADAPTATION]), ("distillation", DISTILLATION), ("finetuning", FINETUNING)],
    ids=["pretraining", "distillation", "finetuning"],
)
def test_every_recipe_matches_a_line_of_the_table_and_every_one_that_is_named_exists(name, recipes):
    text = page(f"{name}.md")
    patterns = re.findall(r"`([\w*-]+)`", section(text, "Recipes").partition("The papers' recipes")[0])
    assert not [recipe for recipe in recipes if not any(fnmatch(recipe, pattern) for pattern in patterns)]
    named = re.findall(r"lightbert (?:pretrain|distill|finetune) ([a-z][\w-]+) ", text)
    assert named
    assert not {*named} - {*NAMES}


def test_every_corpus_that_a_recipe_expects_is_explained():
    expected = {read(name).data for name in PRETRAINING} - {"data"}
    table = section(PRETRAINING_PAGE, "Recipes")
    assert expected == set(re.findall(r"^\| `(runs/data/[\w-]+)`", table, re.MULTILINE))


def test_the_exit_code_of_an_interrupted_run_is_documented():
    assert f"| {EXIT_CODE} | interrupted by SIGTERM or SIGINT" in PRETRAINING_PAGE


def test_the_documented_metrics_are_those_of_the_objectives():
    vectors = SimpleNamespace(weight=20.0, similarity=2.0)
    weights = SimpleNamespace(detect=SimpleNamespace(mlm_weight=1.0, rtd_weight=50.0), vectors=vectors)
    for objective in (MaskedLanguageModelling, ReplacedTokenDetection):
        name = objective.__module__.rpartition(".")[2]
        [listed] = re.findall(rf"^\| {name} \| (.*) \|$", section(PRETRAINING_PAGE, "A run folder"), re.MULTILINE)
        assert re.findall(r"`(\w+)`", listed) == list(objective.summary(weights, defaultdict(lambda: 1.0)))


def test_every_strategy_is_explained():
    strategies = section(DISTILLATION_PAGE, "Strategies")
    assert re.findall(r"^\| `(\w+)` \|", strategies, re.MULTILINE)[1:] == [*get_args(Strategy)]


def test_the_student_of_the_example_fits_the_nano_teacher():
    [command] = re.findall(r"^lightbert distill .*change\..*$", DISTILLATION_PAGE, re.MULTILINE)
    changes = dict(re.findall(r"change\.(\w+)=(\w+)", command))
    assert changes == {"convolution": "span", "relative": "composite"}
    student = replace(PRESETS["mobilebert-nano"], **changes)
    check_pair(lightbert.build("ib-bert-nano"), lightbert.build(student), Transfer())
