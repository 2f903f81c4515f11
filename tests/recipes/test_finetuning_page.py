"""docs/finetuning.md agrees with the code."""

import re
from fnmatch import fnmatch

from pages import page, section
from recipe_files import FINETUNING, NAMES

PAGE = page("finetuning.md")


def test_every_recipe_matches_a_line_of_the_table_of_files():
    patterns = re.findall(r"`([\w*-]+)`", section(PAGE, "Recipes"))
    assert not [name for name in FINETUNING if not any(fnmatch(name, pattern) for pattern in patterns)]


def test_every_recipe_that_is_named_exists():
    named = re.findall(r"lightbert (?:pretrain|distill|finetune) ([a-z][\w-]+) ", PAGE)
    assert named
    assert not {*named} - {*NAMES}
