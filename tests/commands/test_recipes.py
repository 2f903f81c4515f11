import json
import tomllib

import pytest

from lightbert import recipes
from lightbert.cli import main
from lightbert.commands.recipes import run, verbs_for


def test_every_recipe_is_listed_once_under_its_command(capsys):
    assert main(["recipes", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["recipes"]
    assert sorted(each["name"] for each in listed) == recipes.names()
    verbs = {each["name"]: each["verb"] for each in listed}
    assert {name: verbs[name] for name in ("tiny-rtd", "tiny-mlm", "tiny-distill", "classify", "squad-mobilebert")} == {
        "tiny-rtd": "pretrain",
        "tiny-mlm": "pretrain",
        "tiny-distill": "distill",
        "classify": "finetune",
        "squad-mobilebert": "finetune",
    }
    assert all(each["summary"] for each in listed)


def test_the_printed_list_has_a_line_per_recipe_grouped_by_command(capsys):
    assert main(["recipes"]) == 0
    output = capsys.readouterr().out
    places = [output.index(text) for text in ("lightbert pretrain", "tiny-rtd", "lightbert distill", "tiny-distill")]
    assert places == sorted(places)
    [line] = [line for line in output.splitlines() if line.strip().startswith("convbert-small-rtd ")]
    assert line.rstrip().endswith("ConvBERT-small, 1M updates on 32G. GLUE dev 81.4.")


@pytest.mark.parametrize("name", ["bert-base-mlm", "glue-convbert-grid", "tiny-rtd"])
def test_a_printed_recipe_has_the_values_of_its_parents(name, capsys, tmp_path):
    assert main(["recipes", name]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# ")
    assert tomllib.loads(printed) == recipes.read(name)
    (tmp_path / "copy.toml").write_text(printed)
    assert recipes.read(tmp_path / "copy.toml") == recipes.read(name)


def test_the_error_for_a_misspelt_recipe_suggests_the_most_similar_one(capsys):
    assert main(["recipes", "tiny-rdt"]) == 1
    assert capsys.readouterr().err == "lightbert: unknown recipe 'tiny-rdt'; did you mean 'tiny-rtd'?\n"


def test_exactly_one_command_accepts_all_keys_of_a_packaged_recipe():
    assert {name: len(verbs_for(recipes.read(name))) for name in recipes.names()} == dict.fromkeys(recipes.names(), 1)


@pytest.mark.parametrize(
    ("verb", "recipe", "right"),
    [
        ("pretrain", "classify", "finetune"),
        ("pretrain", "recipes/tiny-distill.toml", "distill"),
        ("distill", "tiny-rtd", "pretrain"),
        ("finetune", "tiny-mlm", "pretrain"),
    ],
)
def test_the_error_for_a_recipe_of_another_command_names_that_command(verb, recipe, right, capsys):
    assert main([verb, recipe, "out=x"]) == 1
    assert capsys.readouterr().err == (
        f"lightbert: '{recipe}' is a recipe for {right}; run 'lightbert {right} {recipe} …'\n"
    )


def test_a_toml_file_is_described(tmp_path):
    (tmp_path / "mine.toml").write_text('# Mine.\nparent = "tiny-rtd"\nsteps = 5\n')
    recipe = run(str(tmp_path / "mine.toml")).content
    assert (recipe["verb"], recipe["summary"], recipe["values"]["steps"]) == ("pretrain", "Mine.", 5)
