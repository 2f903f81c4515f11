"""Runs on prepared text: the first weights, memory, the comparison with trivial baselines, and devices."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import assert_same_results, distillation_of, recipe_of, records, student_before, train
from tokenizers import Tokenizer

from lightbert.data.preparation import Settings, prepare
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.models import build, folder
from lightbert.train import corpus_run as module
from lightbert.train.corpus_run import compare_with_baseline, make_loader, unigram_loss
from lightbert.train.distributed import process_group, resolve_device
from lightbert.train.log import Meter
from lightbert.train.pretraining import make_objective


def started(corpus, **changes):
    recipe = recipe_of(corpus, Path("nowhere"), model="convbert-tiny", **changes)
    return make_objective(recipe, Shards(corpus / "data"))


# The first weights


def test_the_models_of_a_run_start_with_weights_of_the_seed_and_differ_from_each_other(corpus, tmp_path):
    torch.manual_seed(1)
    model = started(corpus, seed=7).discriminator
    expected = build(model.config, heads={"rtd": {}}, seed=7)
    assert all(torch.equal(model.get_parameter(name), value) for name, value in expected.named_parameters())

    # Of equal size, so that every weight of a block has a counterpart.
    objective = started(corpus, generator=1.0)
    drawn = {name: p for name, p in objective.generator.blocks.named_parameters() if p.unique().numel() > 1}
    assert drawn
    for name, parameter in drawn.items():
        assert not torch.equal(objective.discriminator.blocks.get_parameter(name), parameter), name

    student = student_before(distillation_of(corpus, tmp_path, copy=False, seed=0))
    table = folder.load(corpus / "teacher").table
    assert student["embeddings.word.weight"].shape == table.shape
    assert not torch.equal(student["embeddings.word.weight"], table)


def test_replaced_token_detection_continues_with_the_generator_next_to_the_model(corpus, tmp_path, capsys):
    train(recipe_of(corpus, tmp_path / "first", steps=3))
    assert "generator: random weights" in capsys.readouterr().err
    first, trained = tmp_path / "first", folder.load(tmp_path / "first" / "generator")
    recipe = recipe_of(corpus, tmp_path / "second", model=str(first / "final"), steps=1)

    def drawn_like(recipe):
        name = "blocks.0.feedforward.up.weight"
        generator = make_objective(recipe, Shards(corpus / "data")).generator
        return torch.equal(generator.get_parameter(name), trained.get_parameter(name))

    assert drawn_like(recipe)
    assert not drawn_like(replace(recipe, generator_model="none"))
    shutil.copytree(first / "generator", tmp_path / "elsewhere")
    shutil.rmtree(first / "generator")
    assert not drawn_like(recipe)
    elsewhere = replace(recipe, generator_model=str(tmp_path / "elsewhere"))
    assert drawn_like(elsewhere)
    train(elsewhere)
    assert f"generator: '{tmp_path / 'elsewhere'}'" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"must have the size that generator=1\.0 gives .*generator_model=none"):
        drawn_like(replace(elsewhere, generator=1.0))


def test_a_model_that_is_not_there_or_has_another_vocabulary_is_an_error_with_a_remedy(corpus, tmp_path):
    tokenizer = Shards(corpus / "data").tokenizer()
    other = json.loads(tokenizer.to_str())
    words = other["model"]["vocab"]
    words["ba"], words["ke"] = words["ke"], words["ba"]
    model = folder.load(corpus / "model")
    folder.save(model, tmp_path / "ids", tokenizer=Tokenizer.from_str(json.dumps(other)))
    folder.save(model, tmp_path / "same", tokenizer=tokenizer)
    folder.save(build("bert-tiny"), tmp_path / "size")
    for name, problem in (
        (str(tmp_path / "ids"), "must have the same vocabulary, but their token ids differ; prepare the text"),
        (str(tmp_path / "size"), r"has vocab = 8192, but .* require .*; prepare the text .*--tokenizer "),
        ("convbert-smal", "did you mean 'convbert-small'"),
        ("some/where", "model folder 'some/where' not found"),
    ):
        with pytest.raises(InputError, match=problem):
            train(recipe_of(corpus, tmp_path / "run", model=name, change={}))
    train(recipe_of(corpus, tmp_path / "run", model=str(tmp_path / "same"), steps=1))


# A trained model goes on


def test_a_run_that_continues_a_model_says_what_it_changed_also_if_it_was_interrupted(corpus, tmp_path):
    for objective, losses in (("mlm", ["mlm_loss"]), ("rtd", ["mlm_loss", "rtd_loss"])):
        settings = {"objective": objective, "examples": "packed", "lr": 5e-3}
        first, second, stopped = (tmp_path / f"{objective}-{part}" for part in ("first", "second", "stopped"))
        assert train(recipe_of(corpus, first, steps=2, **settings)).before == {}
        assert not any("by_batch" in record for record in records(first, "held-out"))
        settings |= {"model": str(first / "final"), "steps": 8}
        outcome = train(recipe_of(corpus, second, **settings))
        evaluations = records(second, "held-out")
        assert [record["step"] for record in evaluations] == [0, 5, 8]
        before, after = evaluations[0], evaluations[-1]
        assert outcome.before == {name: before[name] for name in outcome.held_out}
        lines = outcome.verdict.splitlines()
        assert len(lines) == 2
        for name in losses:
            change = np.subtract(after["by_batch"][name], before["by_batch"][name])
            assert len(change) == 2
            assert change.mean() == pytest.approx(after[name] - before[name], rel=0.2)
            interval = f"{after[name] - before[name]:+.4f} ± {abs(change[0] - change[1]):.4f}"
            assert f"{name} {before[name]:.4f} → {after[name]:.4f} ({interval})" in lines[0]
        # Before the first checkpoint, a run may have another recipe, whose first evaluation replaces the other one.
        with pytest.raises(InputError, match="must be a multiple of accumulate"):
            train(recipe_of(corpus, stopped, accumulate=3, evaluate_batches=1, **settings))
        train(recipe_of(corpus, stopped, **settings), stop_after=4)
        assert train(recipe_of(corpus, stopped, **settings)).before == outcome.before
        assert_same_results(stopped, second)


def test_a_finished_run_with_checkpoints_goes_on_with_more_steps_or_epochs(corpus, tmp_path):
    first = train(recipe_of(corpus, tmp_path / "run", steps=6))
    with pytest.raises(InputError, match=r"has steps = 6, this recipe has 4"):
        train(recipe_of(corpus, tmp_path / "run", steps=4))
    with pytest.raises(InputError, match=r"has seed = 0, this recipe has 1"):
        train(recipe_of(corpus, tmp_path / "run", steps=10, seed=1))
    assert train(recipe_of(corpus, tmp_path / "run", steps=6)) == first
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    longer = train(recipe_of(corpus, tmp_path / "run", steps=10))
    assert (longer.step, longer.finished) == (10, True)
    assert [record["step"] for record in records(tmp_path / "run")] == [*range(1, 11)]
    rates = [record["lr"] for record in records(tmp_path / "run")]
    assert rates[6:] == pytest.approx([1e-3 * (1 - step / 11) for step in range(7, 11)])
    # Interrupted, and with the result of a process that was killed before it replaced the recipe.
    (tmp_path / "copy" / "result.json").unlink()
    train(recipe_of(corpus, tmp_path / "copy", steps=10), stop_after=8)
    train(recipe_of(corpus, tmp_path / "copy", steps=10))
    assert_same_results(tmp_path / "copy", tmp_path / "run")

    recipe = recipe_of(corpus, tmp_path / "epochs", steps=0, epochs=1, batch=32, evaluate_every=0)
    once = train(recipe)
    assert once.passes == 1.0
    twice = train(replace(recipe, epochs=2))
    assert (twice.step, twice.passes) == (2 * once.step, 2.0)
    train(recipe_of(corpus, tmp_path / "removed", steps=2, keep_checkpoints=False))
    with pytest.raises(InputError, match=r"its checkpoints are removed, so that it can't go on with steps=3; train"):
        train(recipe_of(corpus, tmp_path / "removed", steps=3, keep_checkpoints=False))


def test_throughput_counts_real_tokens(corpus, tmp_path, monkeypatch):
    counted, lap = [], Meter.lap
    monkeypatch.setattr(Meter, "lap", lambda meter, tokens: counted.append(tokens) or lap(meter, tokens))
    recipe = recipe_of(corpus, tmp_path, steps=3, length=32, log_every=2)
    train(recipe)
    with process_group("cpu") as world:
        loader = make_loader(recipe, world, Shards(recipe.data), 0, recipe.batch, recipe.length)
    real = [int(loader.at(step).mask.sum()) for step in range(3)]
    assert counted == [sum(real[:2]), real[2]]
    assert sum(real) < 3 * 4 * 32


def test_pairs_that_all_have_the_same_label_give_a_warning(corpus, tmp_path, capsys):
    lines = (corpus / "text.txt").read_text().split("\n")
    (tmp_path / "lines.txt").write_text("\n\n".join(filter(None, lines)))
    settings = Settings(sources=(str(tmp_path / "lines.txt"),), tokenizer=str(corpus / "data"), held_out=0.05)
    prepare(settings, tmp_path / "data", workers=1)
    warned = []
    for data in (tmp_path / "data", corpus / "data"):
        recipe = recipe_of(corpus, tmp_path / data.parent.name, objective="mlm", examples="pairs", data=str(data))
        train(replace(recipe, steps=1))
        warned.append("of the pairs have the same label, so that next-sentence" in capsys.readouterr().err)
    assert warned == [True, False]


# Memory


@pytest.mark.timeout(60)
def test_a_batch_that_exceeds_all_memory_is_an_error_at_once(corpus, tmp_path, monkeypatch):
    for keys, memory, remedy in (
        ({"batch": 10**8}, 2**34, "lower batch= or length=, raise accumulate=, or choose a smaller model="),
        # Parts of a batch need less memory for states, but the ids of the whole batch are assembled.
        ({"batch": 10**8, "accumulate": 10**6}, 2**33, "lower batch= or length="),
    ):
        monkeypatch.setattr(module, "machine_memory", lambda memory=memory: memory)
        with pytest.raises(InputError, match="memory of this machine is not sufficient: a step requires") as it:
            train(recipe_of(corpus, tmp_path, objective="mlm", **keys))
        assert str(it.value).endswith(f"GiB in total; {remedy}")
    # A machine that doesn't tell its memory trains.
    monkeypatch.setattr(module, "machine_memory", lambda: None)
    assert train(recipe_of(corpus, tmp_path, objective="mlm", steps=1)).finished


# Baselines


def test_replaced_token_detection_is_compared_with_always_original():
    for accuracy, beats in ((0.91, True), (0.9, False), (0.8, False)):
        numbers = {"rtd_accuracy": accuracy, "replaced": 0.1, "rtd_recall": 0.25, "rtd_precision": 0.5}
        sentence = compare_with_baseline(numbers, "unused")
        assert f"accuracy {accuracy:.4f}, baseline 0.9000" in sentence
        assert ("The model beats the baseline" in sentence) is beats
        assert ("The model doesn't beat the baseline" in sentence) is not beats
        assert ("detects 25% of the replaced tokens" in sentence) is beats
    assert compare_with_baseline({}, "unused") == ""


def test_masked_language_modelling_is_compared_with_smoothed_token_frequencies(corpus, monkeypatch):
    data = str(corpus / "data")
    train, held_out = Shards(data), Shards(data, "held-out")
    tokens = [np.concatenate([shard.tokens for shard in shards.shards]) for shards in (train, held_out)]
    frequencies = (np.bincount(tokens[0], minlength=train.vocab) + 1) / (len(tokens[0]) + train.vocab)
    baseline = unigram_loss(train, held_out)
    assert baseline == pytest.approx(-np.mean([np.log(frequencies[token]) for token in tokens[1]]), rel=1e-9)
    assert compare_with_baseline({"mlm_loss": baseline - 0.1}, data).startswith(
        "The model beats the baseline that predicts token"
    )
    assert compare_with_baseline({"mlm_loss": baseline}, data).startswith("The model doesn't beat the baseline")
    monkeypatch.setattr(module, "_MOST_TOKENS", 7)
    assert module._counts(train).sum() == 7


# Devices


def test_devices_are_resolved_by_name(monkeypatch):
    for available, kind in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert resolve_device("auto").type == kind
    assert resolve_device("cpu") == torch.device("cpu")
    unsupported = [(name, f"device '{name}' is not supported; use auto, cpu") for name in ("mps", "meta", "xla")]
    for name, problem in (
        ("gpu", "unknown device 'gpu'; use auto, cpu or cuda"),
        ("cuda:1", r"device .cuda:1. is not available.*use cpu"),
        *unsupported,
    ):
        with pytest.raises(InputError, match=problem):
            resolve_device(name)


def test_a_single_process_is_main_and_needs_no_communication():
    with process_group("cpu") as alone:
        assert (alone.rank, alone.size, alone.is_main) == (0, 1, True)
        assert alone.sum(torch.tensor([2.0])).tolist() == [2.0]
        assert alone.any(True)
        assert not alone.any(False)
        assert alone.broadcast(0.1) == 0.1
        alone.barrier()
