"""docs/pretraining.md agrees with the code."""

import re
from collections import defaultdict
from fnmatch import fnmatch
from types import SimpleNamespace

import pytest
from pages import page, section
from recipe_files import ADAPTATION, NAMES, PRETRAINING, read

from lightbert.objectives.mlm import MaskedLanguageModelling
from lightbert.objectives.rtd import ReplacedTokenDetection
from lightbert.train.signals import EXIT_CODE

PAGE = page("pretraining.md")


def test_every_recipe_matches_a_line_of_the_table_of_files():
    patterns = re.findall(r"`([\w*-]+)`", section(PAGE, "Recipes").partition("The papers' recipes")[0])
    assert not [name for name in [*PRETRAINING, *ADAPTATION] if not any(fnmatch(name, pattern) for pattern in patterns)]


def test_every_recipe_that_is_named_exists():
    named = re.findall(r"lightbert (?:pretrain|distill|finetune) ([a-z][\w-]+) ", PAGE)
    assert named
    assert not {*named} - {*NAMES}


def test_every_corpus_that_a_recipe_expects_is_explained():
    expected = {read(name).data for name in PRETRAINING} - {"data"}
    assert expected == set(re.findall(r"^\| `(runs/data/[\w-]+)`", section(PAGE, "Recipes"), re.MULTILINE))


def test_the_exit_code_of_an_interrupted_run_is_documented():
    assert f"| {EXIT_CODE} | interrupted by SIGTERM or SIGINT" in PAGE


@pytest.mark.parametrize("objective", [MaskedLanguageModelling, ReplacedTokenDetection])
def test_the_documented_metrics_are_those_of_the_objectives(objective):
    name = objective.__module__.rpartition(".")[2]
    [listed] = re.findall(rf"^\| {name} \| (.*) \|$", section(PAGE, "A run folder"), re.MULTILINE)
    vectors = SimpleNamespace(weight=20.0, similarity=2.0)
    weights = SimpleNamespace(detect=SimpleNamespace(mlm_weight=1.0, rtd_weight=50.0), vectors=vectors)
    assert re.findall(r"`(\w+)`", listed) == list(objective.summary(weights, defaultdict(lambda: 1.0)))
