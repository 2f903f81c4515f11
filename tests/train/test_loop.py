"""The training loop: accumulation, evaluations, the best weights, skipped steps, divergence, and its log."""

import json
from dataclasses import replace
from unittest import mock

import pytest
import torch
from tiny_runs import assert_same_results, recipe_of, records, train

from lightbert.data.features import Specials
from lightbert.data.loader import Loader
from lightbert.data.preparation import Settings, prepare
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.files import read_tensors
from lightbert.models import folder
from lightbert.objectives.mlm import MaskedLanguageModelling
from lightbert.objectives.objective import Losses
from lightbert.train import corpus_run
from lightbert.train.checkpoint import load_newest, rank_key
from lightbert.train.corpus_run import evaluate
from lightbert.train.distributed import World
from lightbert.train.loop import Loop
from lightbert.train.optim import Optimizers
from lightbert.train.pretraining import make_objective
from lightbert.train.settings import OptimizerSettings
from lightbert.train.step import Step


def loader_of(corpus, recipe, split="train"):
    shards = Shards(corpus / "data", split)
    return Loader(shards, recipe.builder(), batch=4, length=16, specials=Specials.of(shards.tokenizer()))


def test_a_finished_run_leaves_the_log_readable_at_every_step(corpus, tmp_path, capsys):
    for log_every, expected in ((1, [0, 1, 2, 3]), (2, [0, 0, 2, 2]), (0, [0, 0, 0, 0])):
        out, seen, train_on = tmp_path / str(log_every), [], Loop._train_on

        def counting(loop, *arguments, out=out, seen=seen, train_on=train_on):
            seen.append(len(records(out)))
            train_on(loop, *arguments)

        with mock.patch.object(Loop, "_train_on", counting):
            outcome = train(recipe_of(corpus, out, steps=4, log_every=log_every, checkpoint_every=0, evaluate_every=0))
        assert seen == expected
        assert len(records(out)) == 4
    # The bar shows held-out metrics.
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"held-out loss {outcome.held_out['loss']:.4g} " in last
    assert f" rtd_accuracy {outcome.held_out['rtd_accuracy']:.4g}" in last


# Accumulation


@pytest.mark.parametrize(("objective", "examples"), [("rtd", "segments"), ("mlm", "pairs"), ("mlm", "packed")])
def test_losses_and_weights_do_not_depend_on_accumulation(corpus, tmp_path, objective, examples):
    steady = {"model": str(corpus / "steady"), "objective": objective, "examples": examples, "steps": 4}
    runs = []
    for parts in (1, 2, 4):
        out = tmp_path / str(parts)
        train(recipe_of(corpus, out, accumulate=parts, **steady))
        runs.append(([record["loss"] for record in records(out)], read_tensors(out / "final" / "model.safetensors")))
    for losses, weights in runs[1:]:
        assert losses == pytest.approx(runs[0][0], rel=1e-5)
        for name, weight in runs[0][1].items():
            torch.testing.assert_close(weights[name], weight, rtol=1e-3, atol=1e-4)


def test_a_batch_that_cannot_be_split_evenly_raises_an_error(corpus, tmp_path):
    with pytest.raises(InputError, match=r"rows per process \(4\) must be a multiple of accumulate \(3\)"):
        train(recipe_of(corpus, tmp_path, accumulate=3))


# Evaluation


@pytest.mark.parametrize("objective", ["rtd", "mlm"])
def test_evaluating_twice_gives_the_same_metrics_and_changes_no_state(corpus, tmp_path, objective):
    recipe = recipe_of(corpus, tmp_path, objective=objective)
    trained = make_objective(recipe, Shards(corpus / "data")).train()
    step = Step(trained, Optimizers(trained, OptimizerSettings()), World(0, 1, torch.device("cpu")))
    held_out = loader_of(corpus, recipe, "held-out")
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    numbers = torch.get_rng_state()
    first, second = evaluate(step, held_out, 3), evaluate(step, held_out, 3)
    assert first == second
    assert first["loss"] > 0
    assert trained.training
    assert torch.equal(torch.get_rng_state(), numbers)
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())
    assert all(parameter.grad is None for parameter in trained.parameters())


def test_training_does_not_depend_on_how_often_it_is_evaluated(corpus, tmp_path):
    lines = {}
    for every in (0, 2):
        out = tmp_path / str(every)
        train(recipe_of(corpus, out, steps=6, evaluate_every=every))
        lines[every] = [line for line in (out / "metrics.jsonl").read_text().splitlines() if '"train"' in line]
    assert len(lines[0]) == 6
    assert lines[0] == lines[2]


def test_a_corpus_without_a_held_out_split_is_trained_without_evaluation(corpus, tmp_path):
    tokenizer = str(corpus / "data" / "tokenizer.json")
    settings = Settings(sources=(str(corpus / "text.txt"),), tokenizer=tokenizer, held_out=0.0)
    prepare(settings, tmp_path / "data", workers=1)
    outcome = train(recipe_of(corpus, tmp_path / "out", data=str(tmp_path / "data"), steps=2))
    assert outcome.finished
    assert outcome.held_out == {}
    kinds = {json.loads(line)["kind"] for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()}
    assert kinds == {"train"}


# The best weights

_settings, _evaluate = corpus_run.make_settings, Loop._evaluate
# The held-out metrics by step, chosen so that the best ones are neither the first nor the last.
LOSSES = {2: 5.0, 4: 3.0, 6: 4.0, 8: 3.5, 9: 3.25}
ACCURACIES = {2: 0.5, 4: 0.6, 6: 0.8, 8: 0.7, 9: 0.75}
STEPS = {"steps": 9, "evaluate_every": 2, "checkpoint_every": 3}


def evaluate_as_planned(loop):
    """Evaluate with the metrics above instead of real ones, which differ between machines."""
    loop.measure = lambda _: {"mlm_loss": LOSSES[loop.at.step], "rtd_accuracy": ACCURACIES[loop.at.step]}
    _evaluate(loop)


def train_for(best, recipe, stop_after=0):
    """Train with a metric that selects the best weights, which pre-training recipes don't have."""
    chosen = mock.patch.object(corpus_run, "make_settings", lambda *args: replace(_settings(*args), best=best))
    with chosen, mock.patch.object(Loop, "_evaluate", evaluate_as_planned):
        return train(recipe, stop_after)


def test_the_final_weights_are_those_of_the_best_evaluation_also_in_a_resumed_run(corpus, tmp_path):
    outcome = train_for("mlm_loss", recipe_of(corpus, tmp_path / "whole", **STEPS))
    assert (outcome.best_step, outcome.held_out["mlm_loss"]) == (4, 3.0)
    assert {record["step"]: record["mlm_loss"] for record in records(tmp_path / "whole", "held-out")} == LOSSES
    train(recipe_of(corpus, tmp_path / "stopped", **STEPS), stop_after=4)
    stopped = load_newest(tmp_path / "stopped" / "checkpoints").groups["weights"]
    final = folder.load(tmp_path / "whole" / "final").state_dict()
    blocks = {name: value for name, value in final.items() if name.startswith("blocks.")}
    assert blocks
    assert all(torch.equal(blocks[name], stopped[f"discriminator.{name}"]) for name in blocks)
    for stop in (2, 5, 8):
        recipe = recipe_of(corpus, tmp_path / str(stop), **STEPS)
        assert not train_for("mlm_loss", recipe, stop_after=stop).finished
        assert train_for("mlm_loss", recipe).finished
        assert_same_results(tmp_path / str(stop), tmp_path / "whole")


def test_higher_is_better_for_metrics_other_than_losses_and_nan_is_never_the_best(corpus, tmp_path):
    outcome = train_for("rtd_accuracy", recipe_of(corpus, tmp_path / "accuracy", **STEPS))
    assert (outcome.best_step, outcome.held_out["rtd_accuracy"]) == (6, 0.8)
    nan = float("nan")
    with mock.patch.dict(LOSSES, {2: nan, 6: nan}):
        assert train_for("mlm_loss", recipe_of(corpus, tmp_path / "some", **STEPS)).best_step == 4
    with mock.patch.dict(LOSSES, dict.fromkeys(LOSSES, nan)), pytest.raises(InputError, match="training has diverged"):
        train_for("mlm_loss", recipe_of(corpus, tmp_path / "all", **STEPS))
    assert max([nan, 1.0, 2.0], key=lambda value: rank_key("accuracy", value)) == 2.0
    assert min([nan, 1.0, 2.0], key=lambda value: -rank_key("mse", value)) == 1.0
    with pytest.raises(InputError, match="unknown held-out metric 'mlm_lost'; did you mean 'mlm_loss'"):
        train_for("mlm_lost", recipe_of(corpus, tmp_path / "unknown", **STEPS))


# Skipped steps


@pytest.fixture
def bad(monkeypatch):
    """Steps, counted from 0, whose losses are replaced by inf and NaN alternately."""
    steps = set()
    forward = MaskedLanguageModelling.forward

    def sometimes_bad(objective, batch, counts):
        losses = forward(objective, batch, counts)
        step = int(batch.step)
        factor = (float("nan") if step % 2 else float("inf")) if objective.training and step in steps else 1.0
        return Losses(*(value * factor for value in losses))

    monkeypatch.setattr(MaskedLanguageModelling, "forward", sometimes_bad)
    return steps


def test_a_non_finite_step_is_skipped_and_its_examples_are_logged(corpus, tmp_path, bad):
    bad.update((3, 4))
    recipe = recipe_of(corpus, tmp_path, objective="mlm", steps=7, checkpoint_every=1, keep=9)
    assert train(recipe).finished
    assert [record["step"] for record in records(tmp_path)] == [1, 2, 3, 6, 7]
    skipped = records(tmp_path, "skipped")
    assert [record["step"] for record in skipped] == [4, 5]
    loader = loader_of(corpus, recipe)
    assert [record["examples"] for record in skipped] == [loader.examples(step).tolist() for step in (3, 4)]
    assert [record["loss"] for record in skipped] == [None, None]
    before, after, later = (
        read_tensors(tmp_path / "checkpoints" / f"step-{step}" / "weights.safetensors") for step in (3, 5, 6)
    )
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not all(torch.equal(later[name], after[name]) for name in before)


def test_more_than_five_skipped_steps_in_a_row_end_the_run_with_an_error(corpus, tmp_path, bad):
    bad.update(range(4, 10))
    for log_every in (1, 4, 50):
        out = tmp_path / str(log_every)
        recipe = recipe_of(corpus, out, objective="mlm", steps=14, log_every=log_every, checkpoint_every=0)
        problem = r"skipped 6 steps in a row before step \d+: the gradients were not finite.*metrics\.jsonl"
        with pytest.raises(InputError, match=problem):
            train(recipe)
        assert [record["step"] for record in records(out, "skipped")][:6] == [5, 6, 7, 8, 9, 10]
        assert not (out / "final").exists()


def test_the_checkpoint_before_the_failure_is_kept_and_the_same_command_fails_again(corpus, tmp_path, bad):
    bad.update(range(4, 12))
    recipe = recipe_of(corpus, tmp_path, objective="mlm", steps=14, log_every=1)
    logs = []
    for _ in range(2):
        with pytest.raises(InputError, match="6 steps in a row before step 11"):
            train(recipe)
        logs.append((tmp_path / "metrics.jsonl").read_bytes())
    assert logs[0] == logs[1]
    assert load_newest(tmp_path / "checkpoints").facts["bad_in_a_row"] == 5


def test_five_skipped_steps_are_tolerated_and_a_finite_step_resets_the_count(corpus, tmp_path, bad):
    bad.update((1, 2, 3, 4, 5, 7, 8, 9, 10, 11))
    assert train(recipe_of(corpus, tmp_path, objective="mlm", steps=13)).finished
    assert len(records(tmp_path, "skipped")) == 10


# Divergence


def test_a_learning_rate_that_is_far_too_high_is_an_error_and_leaves_no_model(corpus, tmp_path):
    for objective in ("mlm", "rtd"):
        out = tmp_path / objective
        recipe = recipe_of(corpus, out, objective=objective, lr=1e30, steps=3, schedule={"warmup": 0.0})
        with pytest.raises(InputError, match=r"try a learning rate below lr=1e\+30 in another folder out="):
            train(recipe)
        assert not (out / "final").exists()
        saved = load_newest(out / "checkpoints")
        assert saved is None or all(tensor.isfinite().all() for tensor in saved.groups["weights"].values())


def test_weights_that_are_not_finite_are_never_saved(corpus, tmp_path, monkeypatch):
    train_on = Loop._train_on

    def spoil(loop, *rest):
        train_on(loop, *rest)
        if loop.at.step == 5:
            next(loop.objective.parameters()).data[0] = torch.inf

    monkeypatch.setattr(Loop, "_train_on", spoil)
    with pytest.raises(InputError, match="the weights are not finite after step 6: training has diverged"):
        train(recipe_of(corpus, tmp_path, objective="mlm", evaluate_every=0))
    assert load_newest(tmp_path / "checkpoints").facts["step"] == 3


def test_a_run_whose_last_steps_were_all_skipped_is_an_error(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.nn.utils.get_total_norm", lambda *_, **__: torch.tensor(float("nan")))
    for steps in (1, 3):
        with pytest.raises(InputError, match=f"the last {steps} steps were skipped: the gradients were not finite"):
            train(recipe_of(corpus, tmp_path / str(steps), objective="mlm", steps=steps))
