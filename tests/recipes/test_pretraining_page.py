"""docs/pretraining.md says what the code says."""

import json
import re
from fnmatch import fnmatch
from types import SimpleNamespace

import pytest
from recipe_files import FOLDER, NAMES, read

from lightbert.config import from_mapping, to_mapping
from lightbert.objectives.mlm import MaskedLanguageModelling
from lightbert.objectives.rtd import ReplacedTokenDetection
from lightbert.train.recipe import Recipe
from lightbert.train.signals import EXIT_CODE

PAGE = (FOLDER.parent / "docs" / "pretraining.md").read_text(encoding="utf-8")


def section(title):
    [text] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return text


def flattened(mapping, prefix=""):
    for key, value in mapping.items():
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "none" if value is None else f"`{json.dumps(value)}`".replace("10000.0", "10000")


def test_every_key_is_listed_once_with_its_default():
    needed = {"data": "data", "out": "out", "steps": 1}
    defaults = {**to_mapping(from_mapping(Recipe, needed)), "data": "", "out": "", "steps": 0}
    listed = re.findall(r"^\| `([\w.]+)` \| (none|`.*?`) \|", section("Keys"), re.MULTILINE)
    assert sorted(listed) == sorted(flattened(defaults))


def test_every_recipe_matches_a_line_of_the_table_of_files():
    patterns = re.findall(r"`([\w*-]+)`", section("Recipes").partition("The papers' recipes")[0])
    assert not [name for name in NAMES if not any(fnmatch(name, pattern) for pattern in patterns)]


def test_every_corpus_that_a_recipe_expects_is_explained():
    expected = {read(name).data for name in NAMES} - {"data"}
    assert expected == set(re.findall(r"^\| `(runs/data/[\w-]+)`", section("Recipes"), re.MULTILINE))


def test_the_exit_code_of_an_interrupted_run_is_documented():
    assert f"| {EXIT_CODE} | SIGTERM or SIGINT" in PAGE


@pytest.mark.parametrize("objective", [MaskedLanguageModelling, ReplacedTokenDetection])
def test_the_numbers_in_the_log_are_those_of_the_objectives(objective):
    name = objective.__module__.rpartition(".")[2]
    [listed] = re.findall(rf"^\| {name} \| (.*) \|$", section("A run folder"), re.MULTILINE)
    weights = SimpleNamespace(mlm_weight=1.0, rtd_weight=50.0)
    assert re.findall(r"`(\w+)`", listed) == list(objective.summary(weights, dict.fromkeys(objective.tallies, 1.0)))
