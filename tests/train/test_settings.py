"""Validation of the recipes of pre-training and distillation, and which keys may change when a run is resumed."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from lightbert.config import assignments, from_mapping, to_mapping
from lightbert.data.examples import Packing, Segments
from lightbert.errors import InputError
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.train.run_folder import check_recipe
from lightbert.train.settings import Continuation, DistillRecipe, Recipe, Schedule

PRETRAIN = Recipe(data="corpus", out="runs/x", steps=100)
DISTILL = DistillRecipe(data="corpus", out="runs/x", teacher="runs/t", transfer_steps=40, steps=100)
OUT = Path("runs/x")


def resume(before, now):
    """Check whether a run may be resumed with another recipe."""
    check_recipe(to_mapping(now), json.loads(json.dumps(to_mapping(before))), OUT, now.may_change)


def without_steps(**changes):
    return {"steps": 0, "max_minutes": 5.0, **changes}


PHASE = Continuation(length=512, steps=10)
INVALID = [
    (PRETRAIN, {"data": ""}, "data is required; add data=FOLDER"),
    (PRETRAIN, {"out": ""}, "out is required; add out=FOLDER"),
    (PRETRAIN, {"steps": 0}, "the length of training is required; add steps=, epochs= or max_minutes="),
    (PRETRAIN, {"epochs": 3}, "only one of steps and epochs can be set, got 100 and 3"),
    (PRETRAIN, {"batch": 0}, "batch must be >= 1, got 0"),
    (PRETRAIN, {"length": -1}, "length must be >= 1, got -1"),
    (PRETRAIN, {"accumulate": 0}, "accumulate must be >= 1, got 0"),
    (PRETRAIN, {"keep": 0}, "keep must be >= 1, got 0"),
    (PRETRAIN, {"seed": -1}, r"seed must be in \[0, 9223372036854775808\), got -1"),
    (PRETRAIN, {"checkpoint_every": -5}, "checkpoint_every must be >= 0, got -5"),
    (PRETRAIN, {"lr": 0.0}, r"lr must be > 0, got 0\.0"),
    (
        *(PRETRAIN, without_steps()),
        r"must be a share of the run \(< 1\) if only max_minutes is set, got 10000.*; use .* schedule.warmup=0.1",
    ),
    (PRETRAIN, without_steps(schedule=Schedule(), phases=(PHASE,)), "phases require steps= or epochs="),
    (PRETRAIN, {"overlap": True, "compile": "whole"}, "overlap=true can't be compiled as a whole; use compile=blocks"),
    (PRETRAIN, {"sharding": "shard", "cuda_graph": True}, "cuda_graph=true requires unsharded tensors"),
    (DISTILL, {"data": ""}, "data is required; add data=FOLDER"),
    (DISTILL, {"teacher": ""}, "strategy 'pkt' requires a teacher; add teacher=PATH"),
    (
        *(DISTILL, {"steps": 0, "transfer_steps": 0}),
        "the length of training is required; add steps=, epochs= or transfer_steps=",
    ),
    (DISTILL, {"transfer_steps": 0}, "'pkt' requires transfer_steps >= 1, got 0; give at least one step per layer"),
    (DISTILL, {"transfer_steps": 0, "strategy": "jkt"}, "strategy 'jkt' requires transfer_steps >= 1"),
    (DISTILL, {"transfer_steps": -1, "strategy": "pd"}, "transfer_steps must be >= 0, got -1"),
    (DISTILL, {"layer_rate": 0.0}, "layer_rate must be > 0, got 0.0"),
    (DISTILL, {"soft": -0.1}, r"soft must be in \(0, 1\], got -0.1"),
    (DISTILL, {"soft": 1.5}, r"soft must be in \(0, 1\], got 1.5"),
    (DISTILL, {"compile": "whole"}, "compile=whole recompiles at every stage of strategy 'pkt'; use compile=blocks"),
    (DISTILL, {"batch": 0}, "batch must be >= 1, got 0"),
]


def test_an_invalid_recipe_raises_an_error_with_a_remedy():
    for recipe, changes, problem in INVALID:
        with pytest.raises(InputError, match=problem):
            replace(recipe, **changes)
    for changes in ({"steps": 0}, {"length": 0}, {"batch": -1}, {"lr": -1.0}):
        with pytest.raises(InputError, match="must be >= "):
            replace(PHASE, **changes)
    muon = {"data": "d", "out": "o", "steps": 1, "sharding": "shard", "optimizer": {"kind": "muon"}}
    with pytest.raises(InputError, match=r"muon.* requires unsharded tensors"):
        from_mapping(Recipe, muon)


def test_values_of_the_wrong_type_get_the_key_that_was_meant():
    for values, problem in (
        ({"generator": "runs/x"}, "generator must be a number, got 'runs/x'; did you mean 'generator_model'"),
        ({"steps": "many"}, r"^steps must be an integer, got 'many'$"),
    ):
        with pytest.raises(InputError, match=problem):
            from_mapping(Recipe, {"data": "d", "out": "o", "steps": 1, **values})


def test_cuda_graphs_and_compilation_are_automatic_unless_they_are_set():
    for recipe in (Recipe, DistillRecipe, FinetuneRecipe):
        defaults = {field.name: field.default for field in fields(recipe)}
        assert (defaults["cuda_graph"], defaults["compile"]) == ("auto", "auto")
    for text, value in (("auto", "auto"), ("true", True), ("false", False)):
        assignment = assignments(["data=d", "out=o", "steps=1", f"cuda_graph={text}"])
        assert from_mapping(Recipe, assignment).cuda_graph == value
    for text in ("yes", "1", "True"):
        with pytest.raises(InputError, match=r"cuda_graph.*auto.*true.*false|did you mean 'true'"):
            from_mapping(Recipe, assignments(["data=d", "out=o", "steps=1", f"cuda_graph={text}"]))


def test_a_strategy_requires_only_the_keys_it_uses():
    for changes in (
        {"strategy": "bare", "teacher": ""},
        {"strategy": "akt", "transfer_steps": 0},
        {"strategy": "jkt", "steps": 0},
        {"strategy": "akt", "compile": "whole"},
        {"steps": 0, "epochs": 2},
    ):
        replace(DISTILL, **changes)


def test_loss_weights_are_nested_keys():
    recipe = from_mapping(DistillRecipe, to_mapping(DISTILL) | {"transfer": {"attention": 0, "maps": "linear"}})
    assert (recipe.transfer.attention, recipe.transfer.maps, recipe.transfer.feature) == (0.0, "linear", 100.0)
    with pytest.raises(InputError, match=r"unknown key 'transfer\.map'; did you mean 'transfer\.maps'"):
        from_mapping(DistillRecipe, to_mapping(DISTILL) | {"transfer": {"map": "linear"}})


def test_resolved_phases_are_all_phases_with_default_values_filled_in():
    last = Continuation(256, 20, batch=2, lr=1e-4, data="more", warmup=0, decay=0.5)
    recipe = replace(PRETRAIN, lr=1e-3, batch=8, phases=(PHASE, last))
    schedule = recipe.schedule
    assert recipe.resolved_phases(7) == [
        (128, 100, 8, 1e-3, recipe.data, schedule),
        (512, 10, 8, 1e-3, recipe.data, schedule),
        (256, 20, 2, 1e-4, "more", replace(schedule, warmup=0, decay=0.5)),
    ]
    assert replace(PRETRAIN, steps=0, epochs=3).resolved_phases(7)[0].steps == 21
    # A run with a time limit only has zero steps.
    timed = replace(PRETRAIN, **without_steps(schedule=Schedule()))
    assert timed.resolved_phases(7) == [timed.resolved_phases(9)[0]]
    assert timed.resolved_phases(7)[0].steps == 0


def test_every_kind_of_examples_has_its_builder():
    assert replace(PRETRAIN, examples="segments-released").builder() == Segments(released=True)
    assert replace(PRETRAIN, examples="packed").builder() == Packing()
    kinds = ("segments", "segments-released", "lines", "pairs", "packed")
    assert len({repr(replace(PRETRAIN, examples=kind).builder()) for kind in kinds}) == 5


def test_a_run_can_be_resumed_with_the_recipe_of_its_file_and_with_keys_that_do_not_affect_training():
    recipe = replace(PRETRAIN, phases=(PHASE,), dropout=0.0)
    resume(recipe, recipe)
    assert from_mapping(Recipe, to_mapping(recipe)) == recipe
    for changes in ({"out": "elsewhere"}, {"workers": 7}, {"keep": 9}, {"device": "cpu"}, {"accumulate": 4}):
        resume(PRETRAIN, replace(PRETRAIN, **changes))
    # The weights of the teacher are compared, not its path.
    resume(DISTILL, replace(DISTILL, teacher="elsewhere", compile="blocks", device="cpu"))


def test_a_changed_key_that_affects_training_raises_an_error_with_both_values():
    for before, changes, problem in (
        (PRETRAIN, {"lr": 1e-5}, r"the run in 'runs/x' has lr = 0\.0003, this recipe has 1e-05; set out= to another"),
        (PRETRAIN, {"steps": 50}, "steps = 100, this recipe has 50"),
        (
            *(PRETRAIN, {"schedule": Schedule(warmup=0.5)}),
            r"schedule\.warmup = .+, this recipe has 0\.5; .*restore schedule\.warmup",
        ),
        (PRETRAIN, {"change": {"depth": 3}}, r"change\.depth = None, this recipe has 3"),
        (replace(PRETRAIN, change={"depth": 3}), {"change": {}}, r"change\.depth = 3, this recipe has None"),
        (PRETRAIN, {"phases": (PHASE,)}, r"phases = \[\], this recipe has \[\{"),
        (PRETRAIN, {"rtd_weight": 25.0}, r"rtd_weight = 50\.0, this recipe has 25\.0"),
        (PRETRAIN, {"shared_embeddings": "generator"}, "shared_embeddings = both, this recipe has generator"),
        (PRETRAIN, {"model": "bert-tiny"}, "model = convbert-tiny, this recipe has bert-tiny"),
        (DISTILL, {"alpha": 0.9}, r"alpha = 0\.5, this recipe has 0\.9"),
        (DISTILL, {"lower": "frozen"}, "lower = soft, this recipe has frozen"),
    ):
        with pytest.raises(InputError, match=problem):
            resume(before, replace(before, **changes))


def test_a_run_of_a_version_without_a_key_had_its_default():
    for changes, problem in (
        ({"temperature": 2.0}, r"has temperature = 1\.0, this recipe has 2\.0"),
        ({"rtd_weight": 25.0}, r"has rtd_weight = 50\.0, this recipe has 25\.0"),
        ({"shared_embeddings": "generator"}, "has shared_embeddings = both, this recipe has generator"),
    ):
        before = json.loads(json.dumps(to_mapping(PRETRAIN)))
        for key in changes:
            del before[key]
        del before["optimizer"]["beta2"]
        check_recipe(to_mapping(PRETRAIN), before, OUT, PRETRAIN.may_change, PRETRAIN.defaults)
        now = replace(PRETRAIN, **changes)
        with pytest.raises(InputError, match=problem):
            check_recipe(to_mapping(now), before, OUT, now.may_change, now.defaults)
