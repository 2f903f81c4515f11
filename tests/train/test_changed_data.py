"""Data that changed while a run was interrupted is detected before training goes on."""

import json
import random
import shutil
from pathlib import Path

import pytest
from tiny_runs import distillation_of, recipe_of, train

from lightbert.data.preparation import Settings, prepare
from lightbert.errors import InputError


@pytest.fixture
def moved(corpus: Path, tmp_path: Path) -> Path:
    """The corpus in a folder that may be changed."""
    return Path(shutil.copytree(corpus, tmp_path / "corpus"))


def prepare_again(corpus: Path) -> None:
    """Replace the prepared folder by one of the same documents in another order, with the same tokenizer."""
    documents = (corpus / "text.txt").read_text().split("\n\n")
    random.Random(1).shuffle(documents)
    (corpus / "text.txt").write_text("\n\n".join(documents))
    settings = Settings(sources=(str(corpus / "text.txt"),), tokenizer=str(corpus / "data"), held_out=0.1)
    prepare(settings, corpus / "data", workers=1, again=True)


@pytest.mark.parametrize("recipe_for", [recipe_of, distillation_of])
def test_a_prepared_folder_with_other_text_stops_an_interrupted_run(moved: Path, tmp_path: Path, recipe_for) -> None:
    recipe = recipe_for(moved, tmp_path / "out")
    train(recipe, stop_after=3)
    prepare_again(moved)
    with pytest.raises(
        InputError, match=r"the data of the run in '.*out' has changed since the run was started; restore"
    ):
        train(recipe)


def test_the_same_text_in_another_folder_resumes(moved: Path, tmp_path: Path) -> None:
    recipe = recipe_of(moved, tmp_path / "out")
    train(recipe, stop_after=3)
    (moved / "data").rename(moved / "elsewhere")
    shutil.copytree(moved / "elsewhere", moved / "data")
    assert train(recipe).finished


def test_a_run_of_an_earlier_version_without_a_hash_resumes(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path)
    train(recipe, stop_after=3)
    saved = json.loads((tmp_path / "recipe.json").read_text())
    del saved["data_content"]
    (tmp_path / "recipe.json").write_text(json.dumps(saved))
    assert train(recipe).finished
