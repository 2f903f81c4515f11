"""Initial weights depend only on the seed, and two models of a run never start with the same weights."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import distillation_of, recipe_of, student_before, train
from tokenizers import Tokenizer

from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.models import build, folder
from lightbert.objectives.rtd import ReplacedTokenDetection
from lightbert.train.pretraining import make_objective
from lightbert.train.settings import Recipe


def started(corpus: Path, **changes: object) -> ReplacedTokenDetection:
    recipe = recipe_of(corpus, Path("nowhere"), model="convbert-tiny", **changes)
    objective = make_objective(recipe, Shards(corpus / "data"))
    assert isinstance(objective, ReplacedTokenDetection)
    return objective


def test_a_run_starts_with_the_weights_that_build_gives_for_its_seed(corpus: Path) -> None:
    torch.manual_seed(1)
    model = started(corpus, seed=7).discriminator
    expected = build(model.config, heads={"rtd": {}}, seed=7)
    assert all(torch.equal(model.get_parameter(name), each) for name, each in expected.named_parameters())


def test_generator_and_discriminator_start_with_different_weights(corpus: Path) -> None:
    objective = started(corpus, generator=1.0)
    # Of equal size, so that every weight of a block has a counterpart.
    drawn = {name: each for name, each in objective.generator.blocks.named_parameters() if each.unique().numel() > 1}
    assert drawn
    for name, parameter in drawn.items():
        assert not torch.equal(objective.discriminator.blocks.get_parameter(name), parameter), name


def test_a_student_and_a_teacher_of_the_same_seed_start_with_different_weights(corpus: Path, tmp_path: Path) -> None:
    recipe = distillation_of(corpus, tmp_path, copy=False, seed=0)
    student = student_before(recipe)
    teacher = folder.load(corpus / "teacher")
    name = "embeddings.word.weight"
    assert student[name].shape == teacher.table.shape
    assert not torch.equal(student[name], teacher.table)


def test_replaced_token_detection_continues_with_the_generator_next_to_the_model(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(recipe_of(corpus, tmp_path / "first", steps=3))
    assert "generator: random weights" in capsys.readouterr().err
    first, trained = tmp_path / "first", folder.load(tmp_path / "first" / "generator")
    recipe = recipe_of(corpus, tmp_path / "second", model=str(first / "final"), steps=1)

    def drawn_like(recipe: Recipe) -> bool:
        objective = make_objective(recipe, Shards(corpus / "data"))
        assert isinstance(objective, ReplacedTokenDetection)
        name = "blocks.0.feedforward.up.weight"
        return torch.equal(objective.generator.get_parameter(name), trained.get_parameter(name))

    assert drawn_like(recipe)
    assert not drawn_like(replace(recipe, generator_model="none"))
    shutil.copytree(first / "generator", tmp_path / "elsewhere")
    shutil.rmtree(first / "generator")
    assert not drawn_like(recipe)
    given = replace(recipe, generator_model=str(tmp_path / "elsewhere"))
    assert drawn_like(given)
    train(given)
    assert f"generator: '{tmp_path / 'elsewhere'}'" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"must have the size that generator=1\.0 gives .*generator_model=none"):
        drawn_like(replace(given, generator=1.0))


def test_a_model_with_another_tokenizer_of_the_same_size_is_an_error(corpus: Path, tmp_path: Path) -> None:
    tokenizer = Shards(corpus / "data").tokenizer()
    other = json.loads(tokenizer.to_str())
    words = other["model"]["vocab"]
    words["ba"], words["ke"] = words["ke"], words["ba"]
    folder.save(folder.load(corpus / "model"), tmp_path / "other", tokenizer=Tokenizer.from_str(json.dumps(other)))
    with pytest.raises(InputError, match="must have the same vocabulary, but their token ids differ; prepare the text"):
        train(recipe_of(corpus, tmp_path / "run", model=str(tmp_path / "other")))
    folder.save(folder.load(corpus / "model"), tmp_path / "same", tokenizer=tokenizer)
    train(recipe_of(corpus, tmp_path / "run", model=str(tmp_path / "same"), steps=1))


def test_a_model_with_a_vocabulary_of_another_size_is_an_error_with_a_remedy(corpus: Path, tmp_path: Path) -> None:
    folder.save(build("bert-tiny"), tmp_path / "other")
    with pytest.raises(InputError, match=r"has vocab = 8192, but .* require .*; prepare the text .*--tokenizer "):
        train(recipe_of(corpus, tmp_path / "run", model=str(tmp_path / "other"), change={}))
