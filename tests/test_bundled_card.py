"""The card of a bundled model: that of its run, with the facts of lab/NAME.toml."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from lightbert import bundled

ROOT = Path(__file__).parents[1]
NAME = "convbert-small-en"
RUN_CARD = """---
library_name: lightbert
---

# ConvBERT encoder

A summary.

## How to use it

model = lightbert.load("FOLDER")  # the folder of this file
lightbert convert FOLDER HF_FOLDER --to hf

## Data

| tokens | 151,104,328 |

## Training

the recipe

## Metrics

| rtd_loss | 0.2087 |
"""


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("bundled_card", ROOT / "lab" / "bundled_card.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def facts():
    return tomllib.loads((ROOT / "lab" / f"{NAME}.toml").read_text(encoding="utf-8"))


def test_the_card_has_the_uses_the_limits_the_data_and_the_run(script, facts):
    card = script.render(RUN_CARD, facts)
    titles = ["How to use it", "Uses", "Limits", "Data", "Training", "Metrics"]
    assert re.findall(r"^## (.*)$", card, re.MULTILINE)[: len(titles)] == titles
    assert card.startswith("---\nlanguage: en\nlibrary_name: lightbert\n---\n")
    assert f'lightbert.load("{NAME}")' in card
    assert f"lightbert convert {NAME} HF_FOLDER" in card
    for line in ("| tokens | 151,104,328 |", "the recipe", "| rtd_loss | 0.2087 |", *facts["use"]["limits"]):
        assert line in card
    for corpus in facts["corpora"]:
        assert f"| {corpus['text']} | {corpus['licence']} |" in card


def test_measured_scores_are_in_the_card(script, facts):
    card = script.render(RUN_CARD, {**facts, "scores": {"cola": ["matthews", 0.3854, 5]}})
    assert "| cola | matthews | 0.385 | 5 |" in card
    assert "## Scores" not in script.render(RUN_CARD, {**facts, "scores": {}})


@pytest.mark.skipif(NAME not in bundled.installed(), reason=f"the weights of {NAME} are not in this checkout")
def test_the_bundled_model_has_a_card_without_absolute_paths():
    card = (bundled.folder_of(NAME) / "README.md").read_text(encoding="utf-8")
    assert "## Limits" in card
    assert not re.search(r"[\s=\"'`(]/\w", card)
