"""Packaged recipes are found by name from any folder, and can be extended."""

from pathlib import Path

import pytest

from lightbert import recipes
from lightbert.errors import InputError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_packaged_recipe_is_found_from_any_folder_unless_a_file_has_its_name(folder):
    (folder / "classify").mkdir()
    assert recipes.find("classify") == "classify"
    (folder / "recipes").mkdir()
    for name in ("tiny-rtd", "recipes/tiny-rtd.toml"):
        assert recipes.find(name) == "tiny-rtd"
        assert recipes.read(name)["model"] == "convbert-tiny"
        (folder / name).write_text('model = "mine"')
        assert recipes.read(name) == {"model": "mine"}


def test_a_missing_recipe_is_one_sentence_with_a_remedy():
    for name, sentence in (
        ("tiny-rdt", "unknown recipe 'tiny-rdt'; did you mean 'tiny-rtd'?"),
        ("recipes/clasify.toml", "unknown recipe 'clasify'; did you mean 'classify'?"),
        ("qqq", "unknown recipe 'qqq'; 'lightbert recipes' lists them"),
        ("mine/x.toml", "'mine/x.toml' not found; 'lightbert recipes' lists the packaged ones"),
        ("mine/tiny-rtd.toml", "'mine/tiny-rtd.toml' not found; the packaged recipe is 'tiny-rtd'"),
        ("tiny-rtd.toml", "'tiny-rtd.toml' not found; the packaged recipe is 'tiny-rtd'"),
        (".", "'.' is a folder; give the path of a TOML file or the name of a recipe"),
        ("_nano", "'_nano' is only a parent of other recipes; 'lightbert recipes' lists the recipes"),
    ):
        with pytest.raises(InputError) as raised:
            recipes.find(name)
        assert str(raised.value) == sentence


def test_a_recipe_extends_its_parent_key_by_key(folder):
    (folder / "base").mkdir()
    (folder / "base" / "base.toml").write_text('model = "bert-tiny"\nsteps = 5\n[optimizer]\nlr = 0.1\nkind = "lamb"\n')
    (folder / "child.toml").write_text('parent = "base/base.toml"\nsteps = 7\n[optimizer]\nlr = 0.2\n')
    values = {"model": "bert-tiny", "steps": 7, "optimizer": {"lr": 0.2, "kind": "lamb"}}
    assert recipes.read(folder / "child.toml") == values


def test_a_file_can_extend_a_packaged_recipe_which_stays_as_it_is(folder):
    for parent in ("convbert-small-rtd", "recipes/convbert-small-rtd.toml", "_rtd-small"):
        (folder / "mine.toml").write_text(f'parent = "{parent}"\nsteps = 7\noptimizer.beta2 = 0.98\n')
        expected = {**recipes.read("convbert-small-rtd"), "steps": 7, "optimizer": {"beta2": 0.98}}
        assert recipes.read("mine.toml") == expected
    recipes.read("classify")["optimizer"]["bias_correction"] = False
    assert recipes.read("classify")["optimizer"]["bias_correction"] is True
    # A file in the same folder takes precedence.
    (folder / "tiny-rtd").write_text("steps = 5")
    (folder / "child.toml").write_text('parent = "tiny-rtd"')
    assert recipes.read(Path("child.toml")) == {"steps": 5}


def test_a_broken_file_and_a_wrong_parent_are_each_one_sentence(folder):
    for content, sentence in (
        ("steps = = 3", "is not valid TOML: .*line 1"),
        (f"steps = {'9' * 5000}", r"x\.toml' is not valid TOML: Exceeds the limit"),
        (f"x = {'[' * 5000}{']' * 5000}", "is nested too deeply"),
        ("steps = 1979-05-27", "steps in '.*' must not be a date or a time, got 1979-05-27; put it in quotes"),
        ("[grid]\ntimes = [07:32:00]", r"grid\.times\[0\] in '.*' must not be a date or a time, got 07:32:00"),
        ("parent = 3", "must be the name of a TOML file or of a recipe, got 3"),
        ('parent = "tiny-rdt"', "neither a file next to it nor a packaged recipe; did you mean 'tiny-rtd'"),
        ('parent = "qqq.toml"', "neither a file next to it nor a packaged recipe; 'lightbert recipes' lists"),
        ('parent = "x.toml"', "has a cycle of parents"),
    ):
        (folder / "x.toml").write_text(content)
        with pytest.raises(InputError, match=sentence):
            recipes.read("x.toml")


def test_a_chain_of_two_hundred_parents_is_an_error(folder):
    for number in range(200):
        (folder / f"{number}.toml").write_text(f'parent = "{number + 1}.toml"\n')
    (folder / "200.toml").write_text("steps = 1\n")
    with pytest.raises(InputError, match=r"0\.toml' must have at most 100 parents; merge some of the files"):
        recipes.read(folder / "0.toml")
    assert recipes.read(folder / "150.toml") == {"steps": 1}


def test_every_recipe_has_a_summary_line_and_every_parent_has_children():
    for name in recipes.names():
        assert recipes.comment(name)[0].endswith("."), name
    parents = {table.get("parent") for table in recipes.packaged().values()}
    assert {name for name in recipes.packaged() if name.startswith("_")} <= parents
