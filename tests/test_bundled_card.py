"""The card of a bundled model: that of its run, with the facts of lab/NAME.toml."""

import importlib.util
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.encoder_records import Scores, TaskScores
from lightbert import bundled

ROOT = Path(__file__).parents[1]
NAMES = ("convbert-small-en", "convbert-thin-en")
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


@pytest.fixture(scope="module", params=NAMES)
def facts(request):
    return tomllib.loads((ROOT / "lab" / f"{request.param}.toml").read_text(encoding="utf-8"))


def test_the_card_has_the_uses_the_limits_the_data_and_the_run(script, facts):
    card = script.render(RUN_CARD, facts, None)
    titles = ["How to use it", "Uses", "Limits", "Data", "Training", "Metrics"]
    assert re.findall(r"^## (.*)$", card, re.MULTILINE)[: len(titles)] == titles
    assert card.startswith("---\nlanguage: en\nlibrary_name: lightbert\n---\n")
    assert f'lightbert.load("{facts["name"]}")' in card
    assert f"lightbert convert {facts['name']} HF_FOLDER" in card
    for line in ("| tokens | 151,104,328 |", "the recipe", "| rtd_loss | 0.2087 |", *facts["use"]["limits"]):
        assert line in card
    for corpus in facts["corpora"]:
        assert f"| {corpus['text']} | {corpus['licence']} |" in card


SCORES = Scores(
    name="bundled",
    of="hour",
    recipe="glue-convbert-small-en",
    commands=("lightbert finetune glue-convbert-small-en data=GLUE out=runs/glue",),
    commit="abc1234",
    machine="a laptop",
    tasks={"cola": TaskScores("mcc", (0.3, 0.3854, 0.4))},
)


def test_recorded_scores_are_in_the_card(script, facts):
    card = script.render(RUN_CARD, facts, SCORES)
    assert "| CoLA | Matthews correlation | 0.385 | 3 |" in card
    assert "at commit abc1234:" in card
    assert SCORES.commands[0] in card
    assert "## Scores" not in script.render(RUN_CARD, facts, None)


def test_quoted_scores_name_their_source(script, facts):
    card = script.render(RUN_CARD, facts, replace(SCORES, source="an old page"))
    assert "at commit abc1234; quoted from an old page:" in card


def test_new_scores_replace_those_of_an_existing_card(script, facts):
    card = script.render(RUN_CARD, facts, SCORES)
    assert script.with_scores(card, SCORES) == card
    assert script.with_scores(card, None) == script.render(RUN_CARD, facts, None)


def test_the_scores_of_the_bundled_card_are_those_that_are_recorded(script, facts):
    path = bundled.FOLDER / facts["name"] / "README.md"
    card = path.read_text(encoding="utf-8")
    assert script.with_scores(card, script.recorded(facts["scores"])) == card


def test_the_bundled_model_has_a_card_without_absolute_paths():
    for name in NAMES:
        card = (bundled.FOLDER / name / "README.md").read_text(encoding="utf-8")
        assert "## Limits" in card
        assert not re.search(r"[\s=\"'`(]/\w", card)
