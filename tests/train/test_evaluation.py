"""Evaluation is deterministic and doesn't affect training."""

import json
from pathlib import Path

import pytest
import torch
from tiny_runs import recipe_of, train

from lightbert.data.features import Specials
from lightbert.data.loader import Loader
from lightbert.data.shards import Shards
from lightbert.train.corpus_run import evaluate
from lightbert.train.distributed import World
from lightbert.train.optim import Optimizers
from lightbert.train.pretraining import make_objective
from lightbert.train.settings import OptimizerSettings
from lightbert.train.step import Step


@pytest.mark.parametrize("objective", ["rtd", "mlm"])
def test_evaluating_twice_gives_the_same_metrics_and_changes_no_state(
    corpus: Path, tmp_path: Path, objective: str
) -> None:
    recipe = recipe_of(corpus, tmp_path, objective=objective)
    shards = Shards(corpus / "data")
    trained = make_objective(recipe, shards).train()
    step = Step(trained, Optimizers(trained, OptimizerSettings()), World(0, 1, torch.device("cpu")))
    specials = Specials.of(shards.tokenizer())
    held_out = Loader(Shards(corpus / "data", "held-out"), recipe.builder(), batch=4, length=16, specials=specials)
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    numbers = torch.get_rng_state()
    first, second = evaluate(step, held_out, 3), evaluate(step, held_out, 3)
    assert first == second
    assert first["loss"] > 0
    assert trained.training
    assert torch.equal(torch.get_rng_state(), numbers)
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())
    assert all(parameter.grad is None for parameter in trained.parameters())


def test_training_does_not_depend_on_how_often_it_is_evaluated(corpus: Path, tmp_path: Path) -> None:
    lines = {}
    for every in (0, 2):
        out = tmp_path / str(every)
        train(recipe_of(corpus, out, steps=6, evaluate_every=every))
        lines[every] = [line for line in (out / "metrics.jsonl").read_text().splitlines() if '"train"' in line]
    assert len(lines[0]) == 6
    assert lines[0] == lines[2]


def test_a_corpus_without_a_held_out_split_is_trained_without_evaluation(corpus: Path, tmp_path: Path) -> None:
    from lightbert.data.preparation import Settings, prepare

    tokenizer = str(corpus / "data" / "tokenizer.json")
    settings = Settings(sources=(str(corpus / "text.txt"),), tokenizer=tokenizer, held_out=0.0)
    prepare(settings, tmp_path / "data", workers=1)
    outcome = train(recipe_of(corpus, tmp_path / "out", data=str(tmp_path / "data"), steps=2))
    assert outcome.finished
    assert outcome.held_out == {}
    kinds = {json.loads(line)["kind"] for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()}
    assert kinds == {"train"}
