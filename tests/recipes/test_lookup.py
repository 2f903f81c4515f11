"""Packaged recipes are found by name from any folder, and can be extended."""

from pathlib import Path

import pytest

from lightbert import recipes
from lightbert.errors import InputError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["tiny-rtd", "recipes/tiny-rtd.toml"])
def test_a_packaged_recipe_is_found_from_any_folder(name):
    assert recipes.find(name) == recipes.FOLDER / "tiny-rtd.toml"
    assert recipes.read(name)["model"] == "convbert-tiny"


@pytest.mark.parametrize("name", ["tiny-rtd", "recipes/tiny-rtd.toml"])
def test_a_file_in_the_working_directory_takes_precedence(folder, name):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('model = "mine"')
    assert recipes.read(name) == {"model": "mine"}


def test_a_folder_of_that_name_does_not_hide_the_recipe(folder):
    (folder / "classify").mkdir()
    assert recipes.find("classify") == recipes.FOLDER / "classify.toml"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tiny-rdt", "unknown recipe 'tiny-rdt'; did you mean 'tiny-rtd'?"),
        ("recipes/clasify.toml", "unknown recipe 'clasify'; did you mean 'classify'?"),
        ("qqq", "unknown recipe 'qqq'; 'lightbert recipes' lists them"),
        ("mine/x.toml", "'mine/x.toml' not found; 'lightbert recipes' lists the packaged ones"),
        ("mine/tiny-rtd.toml", "'mine/tiny-rtd.toml' not found; the packaged recipe is 'tiny-rtd'"),
        ("tiny-rtd.toml", "'tiny-rtd.toml' not found; the packaged recipe is 'tiny-rtd'"),
        (".", "'.' is a folder; give the path of a TOML file or the name of a recipe"),
        ("_nano", "'_nano' is only a parent of other recipes; 'lightbert recipes' lists the recipes"),
    ],
)
def test_a_missing_recipe_is_one_sentence_with_a_remedy(name, sentence):
    with pytest.raises(InputError) as raised:
        recipes.find(name)
    assert str(raised.value) == sentence


def test_a_recipe_extends_its_parent_key_by_key(folder):
    (folder / "base").mkdir()
    (folder / "base" / "base.toml").write_text('model = "bert-tiny"\nsteps = 5\n[optimizer]\nlr = 0.1\nkind = "lamb"\n')
    (folder / "child.toml").write_text('parent = "base/base.toml"\nsteps = 7\n[optimizer]\nlr = 0.2\n')
    values = {"model": "bert-tiny", "steps": 7, "optimizer": {"lr": 0.2, "kind": "lamb"}}
    assert recipes.read(folder / "child.toml") == values


@pytest.mark.parametrize("parent", ["convbert-small-rtd", "recipes/convbert-small-rtd.toml", "_rtd-small"])
def test_a_file_can_extend_a_packaged_recipe(folder, parent):
    (folder / "mine.toml").write_text(f'parent = "{parent}"\nsteps = 7\noptimizer.beta2 = 0.98\n')
    values = recipes.read("mine.toml")
    assert values == {**recipes.read("convbert-small-rtd"), "steps": 7, "optimizer": {"beta2": 0.98}}


def test_a_file_in_the_same_folder_takes_precedence_over_a_packaged_parent(folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "tiny-rtd").write_text("steps = 5")
    (folder / "mine" / "child.toml").write_text('parent = "tiny-rtd"')
    assert recipes.read(Path("mine") / "child.toml") == {"steps": 5}


def test_a_cycle_of_parents_raises_an_error(folder):
    (folder / "a.toml").write_text('parent = "b.toml"')
    (folder / "b.toml").write_text('parent = "a.toml"')
    with pytest.raises(InputError, match="has a cycle of parents"):
        recipes.read("a.toml")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("steps = = 3", "is not valid TOML: .*line 1"),
        ("steps = 1979-05-27", "steps in '.*' must not be a date or a time, got 1979-05-27; put it in quotes"),
        ("[grid]\ntimes = [07:32:00]", r"grid\.times\[0\] in '.*' must not be a date or a time, got 07:32:00"),
        ("parent = 3", "must be the name of a TOML file or of a recipe, got 3"),
        ('parent = "tiny-rdt"', "neither a file next to it nor a packaged recipe; did you mean 'tiny-rtd'"),
        ('parent = "qqq.toml"', "neither a file next to it nor a packaged recipe; 'lightbert recipes' lists"),
    ],
)
def test_a_broken_file_and_a_wrong_parent_are_each_one_sentence(folder, content, sentence):
    (folder / "x.toml").write_text(content)
    with pytest.raises(InputError, match=sentence):
        recipes.read("x.toml")


def test_every_recipe_begins_with_a_summary_line():
    for name in recipes.names():
        first, *_ = recipes.comment(name)
        assert first.endswith("."), name


def test_a_chain_of_two_thousand_parents_is_an_error(tmp_path):
    for number in range(2000):
        (tmp_path / f"{number}.toml").write_text(f'parent = "{number + 1}.toml"\n')
    (tmp_path / "2000.toml").write_text("steps = 1\n")
    with pytest.raises(InputError, match=r"0\.toml' must have at most 100 parents; merge some of the files"):
        recipes.read(tmp_path / "0.toml")
    assert recipes.read(tmp_path / "1950.toml") == {"steps": 1}


def test_a_deeply_nested_recipe_is_an_error(tmp_path):
    (tmp_path / "a.toml").write_text(f"x = {'[' * 5000}{']' * 5000}\n")
    with pytest.raises(InputError, match="is nested too deeply"):
        recipes.read(tmp_path / "a.toml")


def test_a_number_with_thousands_of_digits_is_an_error(tmp_path):
    (tmp_path / "a.toml").write_text(f"steps = {'9' * 5000}\n")
    with pytest.raises(InputError, match=r"a\.toml' is not valid TOML: Exceeds the limit"):
        recipes.read(tmp_path / "a.toml")
