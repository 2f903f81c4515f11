"""Initial weights depend only on the seed, and two models of a run never start with the same weights."""

from pathlib import Path

import torch
from tiny_runs import distillation_of, recipe_of, student_before

from lightbert.data.corpus.shards import Shards
from lightbert.models import build, folder
from lightbert.objectives.rtd import ReplacedTokenDetection
from lightbert.train.pretraining import make_objective


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
