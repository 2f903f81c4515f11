"""docs/distillation.md agrees with the code."""

import re
from fnmatch import fnmatch
from typing import get_args

from pages import page, section
from recipe_files import DISTILLATION, NAMES

import lightbert
from lightbert.objectives.distill.pair import check_pair
from lightbert.objectives.distill.stages import Strategy
from lightbert.objectives.distill.transfer_settings import Transfer

PAGE = page("distillation.md")


def test_every_strategy_is_explained():
    assert re.findall(r"^\| `(\w+)` \|", section(PAGE, "Strategies"), re.MULTILINE)[1:] == [*get_args(Strategy)]


def test_every_recipe_matches_a_line_of_the_table_of_files():
    patterns = re.findall(r"`([\w*-]+)`", section(PAGE, "Recipes"))
    assert not [name for name in DISTILLATION if not any(fnmatch(name, pattern) for pattern in patterns)]


def test_every_recipe_that_is_named_exists():
    named = re.findall(r"lightbert (?:pretrain|distill|finetune) ([a-z][\w-]+) ", PAGE)
    assert named
    assert not {*named} - {*NAMES}


def test_the_student_of_the_example_fits_the_nano_teacher(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, {})
    check_pair(lightbert.build("ib-bert-nano"), lightbert.load("runs/mixed"), Transfer())
