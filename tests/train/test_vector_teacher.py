"""Vectors of a teacher as targets beside replaced-token detection."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tiny_runs import assert_same_results, recipe_of, records, train, write_model

import lightbert
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.models import build, folder
from lightbert.objectives.vectors import vector_losses


def test_the_losses_compare_directions_and_similarities_and_are_sums_over_texts() -> None:
    targets = torch.randn(5, 8)
    same = vector_losses(3 * targets, targets)
    assert torch.stack(same).abs().max() < 1e-5
    # Opposite directions have the cosine −1, and the same similarities.
    opposite = vector_losses(-targets, targets)
    assert opposite.cosine == pytest.approx(10.0)
    assert opposite.similarity.abs() < 1e-5

    vectors = torch.randn(5, 8)
    difference = F.normalize(vectors) @ F.normalize(vectors).T - F.normalize(targets) @ F.normalize(targets).T
    losses = vector_losses(vectors, targets)
    assert losses.cosine == pytest.approx(float((1 - F.cosine_similarity(vectors, targets)).sum()), rel=1e-5)
    assert losses.similarity == pytest.approx(float(difference.square().mean(1).sum()), rel=1e-5)


@pytest.fixture
def teacher(corpus: Path, tmp_path: Path) -> str:
    path = write_model(tmp_path / "teacher", Shards(corpus / "data").vocab, "bert-tiny", width=24)
    folder.save(folder.load(path), path, tokenizer=Shards(corpus / "data").tokenizer())
    return str(path)


def test_a_model_learns_the_vectors_of_its_teacher_and_resumes_exactly(
    corpus: Path, teacher: str, tmp_path: Path
) -> None:
    before = folder.load(teacher).state_dict()
    settings = {"vectors": {"teacher": teacher}, "model": str(corpus / "steady"), "steps": 30, "lr": 5e-3}
    train(recipe_of(corpus, tmp_path / "run", **settings))
    losses = [record["vector_loss"] for record in records(tmp_path / "run")]
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])
    model = folder.load(tmp_path / "run" / "final")
    assert model.heads["vector"](torch.randn(2, 7, model.width)).shape == (2, 24)
    assert lightbert.load(tmp_path / "run" / "final").encode(["a text", "another one"]).shape == (2, 24)
    # The teacher is not trained.
    assert all(torch.equal(tensor, before[name]) for name, tensor in folder.load(teacher).state_dict().items())

    train(recipe_of(corpus, tmp_path / "pieces", **settings), stop_after=17)
    weights = Path(teacher, "model.safetensors").read_bytes()
    folder.save(build(folder.load(teacher).config, seed=9), teacher, tokenizer=Shards(corpus / "data").tokenizer())
    with pytest.raises(InputError, match=r"has vectors.teacher '.+', and '.+' has different weights"):
        train(recipe_of(corpus, tmp_path / "pieces", **settings))
    Path(teacher, "model.safetensors").write_bytes(weights)
    train(recipe_of(corpus, tmp_path / "pieces", **settings))
    assert_same_results(tmp_path / "pieces", tmp_path / "run")


def test_a_teacher_of_vectors_that_does_not_fit_raises_an_error(corpus: Path, teacher: str, tmp_path: Path) -> None:
    for changes, problem in (
        ({"objective": "mlm"}, "vectors.teacher requires objective=rtd and one example per row, got objective=mlm"),
        ({"examples": "packed"}, "and one example per row, got .*examples=packed"),
        ({"length": 64}, r"length must be <= 32, the positions of vectors.teacher"),
    ):
        with pytest.raises(InputError, match=problem):
            train(recipe_of(corpus, tmp_path / "run", vectors={"teacher": teacher}, **changes))
    with pytest.raises(InputError, match=r"vectors.teacher 'convbert-small-en' and the data .* same vocabulary"):
        train(recipe_of(corpus, tmp_path / "run", vectors={"teacher": "convbert-small-en"}))
