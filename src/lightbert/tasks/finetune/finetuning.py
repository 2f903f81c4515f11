"""From a fine-tuning recipe to a trained model, with the shared training loop."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lightbert.config import to_mapping
from lightbert.data.features import Specials
from lightbert.data.loader import Buckets, PackedBuckets
from lightbert.errors import InputError, nearest
from lightbert.interop import huggingface
from lightbert.interop.families import FAMILIES
from lightbert.models import Model, folder
from lightbert.models.folder import with_changes
from lightbert.nn.heads import TextHead, TokenClassification
from lightbert.nn.inference import Inference
from lightbert.nn.quantization import remove_simulation, simulate_int8
from lightbert.objectives.objective import Objective
from lightbert.objectives.task import TaskObjective
from lightbert.tasks.finetune.card import task_card
from lightbert.tasks.finetune.comparison import Comparison, compares, may_resume
from lightbert.tasks.finetune.dataset import TaskData, load_data
from lightbert.tasks.finetune.defaults import Facts, settings_for
from lightbert.tasks.finetune.epoch_report import EpochReport, baseline_metrics, words_metrics
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.finetune.results import Result
from lightbert.tasks.finetune.starting_model import check_length, fit_output_layer, set_head, starting_model
from lightbert.tasks.finetune.vectors import set_pooling, vector_objective, vector_predictions
from lightbert.tasks.kinds.classify import Labels
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.kinds.vectors import Vectors
from lightbert.tasks.predict.runtime import run
from lightbert.tasks.predict.torch_runtime import TorchRuntime
from lightbert.train.compilation import compile_objective, run_eagerly
from lightbert.train.corpus_run import check_batch_memory
from lightbert.train.cuda_graph import uses_cuda_graph
from lightbert.train.distributed import World
from lightbert.train.loop import Loop
from lightbert.train.optim import layer_rate
from lightbert.train.run_folder import (
    check_outside,
    check_recipe,
    finish,
    load_recipe,
    locked_run,
    read_result,
    save_recipe,
)
from lightbert.train.signals import Interruption
from lightbert.train.step import Phase, Settings

# A CUDA graph is recorded per batch width: rounding widths up means fewer graphs for a little more padding.
_GRAPH_WIDTH_MULTIPLE = 16


def finetune(
    recipe: FinetuneRecipe,
    world: World,
    interrupted: Interruption,
    *,
    requires_dev: bool = False,
    check_data: Callable[[TaskData], None] = lambda data: None,
    command: Sequence[str] = (),
) -> Result:
    """Train by a recipe, or resume from the newest checkpoint in ``out``; write ``out/final`` at the end.

    The result of a finished run is read from ``out`` instead of training again.
    requires_dev: fail if the task has no development data, because the result is compared with other runs.
    check_data: called with the data before training; raises an error if they can't be used.
    command: the words of the command, for the model card.
    """
    check_outside(recipe.out, model=recipe.starting_model)
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    with locked_run(Path(recipe.out), world):
        return _finetune(recipe, world, interrupted, requires_dev=requires_dev, check_data=check_data, command=command)


def saved_recipe(recipe: FinetuneRecipe) -> dict[str, Any] | None:
    """Load the saved recipe of the run in ``out`` and check that it matches this one; None if there is no run."""
    out = Path(recipe.out)
    saved = load_recipe(out)
    if saved is not None:
        check_recipe(to_mapping(recipe), saved, out, recipe.may_change, recipe.defaults)
    return saved


def _finetune(
    recipe: FinetuneRecipe,
    world: World,
    interrupted: Interruption,
    *,
    requires_dev: bool,
    check_data: Callable[[TaskData], None],
    command: Sequence[str],
) -> Result:
    out = Path(recipe.out)
    saved_recipe(recipe)
    done = read_result(out, world, Result, keep_checkpoints=recipe.keep_checkpoints)
    if done is not None:
        return done
    model = starting_model(recipe)
    if "length" not in recipe.auto:
        check_length(model, recipe.length)
    data = load_data(recipe, model.require_tokenizer(), positions=model.positions, verbose=world.is_main)
    check_data(data)
    save_recipe(
        to_mapping(recipe),
        out,
        world,
        may_change=recipe.may_change,
        defaults=recipe.defaults,
        data_content=data.content,
    )
    if not data.dev and (requires_dev or recipe.choose == "best"):
        raise InputError(
            f"{'comparing runs' if requires_dev else 'choose=best'} requires development data, got none: add "
            "data.dev=FILE or data.hold_out=0.1, or train a single run with choose=last"
        )
    start = time.monotonic()
    comparison = None
    if not requires_dev and compares(recipe, model, data):
        if recipe.metric:
            _check_metric(recipe.metric, data)
        model.to(world.device)
        comparison = Comparison(recipe, model, data, predict=_predict_dev, verbose=world.is_main)
        resumes = may_resume(out)
        if not resumes and not comparison.tries_finetuning(world.device, time.monotonic() - start):
            return _finish(recipe, data, *comparison.trained(), world, command)
        left = comparison.minutes - (time.monotonic() - start) / 60
        recipe = recipe if resumes else replace(recipe, max_minutes=max(left, 0.1), words=False)
    if recipe.auto:
        values = _choose_settings(recipe, model, data)
        if world.is_main:
            chosen = " ".join(f"{key}={value}" for key, value in values.items() if key in recipe.auto)
            print(f"chosen from the data: {chosen}", file=sys.stderr)
        recipe = recipe.with_values(values)
        if recipe.change.get("depth", len(model.blocks)) != len(model.blocks):
            model = with_changes(model, {"depth": recipe.change["depth"]})
    kind = data.task.kind
    if isinstance(kind, Vectors):
        set_pooling(model, recipe.vector, kind, data.length, recipe.seed)
    else:
        set_head(model, kind, _head_settings(recipe, data, model), recipe.seed)
    if world.is_main and (reason := huggingface.reason_not_writable(model)):
        print(f"the model can be trained, but not written with convert --to hf: {reason}", file=sys.stderr)
    if not isinstance(kind, Vectors):
        model.task = {
            **data.task.kind.description(),
            "task": data.task.name,
            "length": data.length,
            "pairs": _has_pairs(data),
            **({"data": dict(data.task.reading)} if data.task.reading else {}),
        }
    if recipe.metric:
        _check_metric(recipe.metric, data)
    model.ranges = {}
    if recipe.quantization_aware:
        simulate_int8(model)
    if recipe.head.init == "probe":
        _check_probe(model, data)
        fit_output_layer(model.to(world.device), data.task.kind.head, data.train, recipe.seed)
    outcome = _make_loop(recipe, model, data, world).run(interrupted)
    metrics, tuned = outcome.held_out, data
    if outcome.finished:
        tuned = _tune(data, model)
        # A newly chosen threshold changes the metrics.
        metrics = metrics if tuned.task.kind == data.task.kind else measure(tuned, model)
        kind = tuned.task.kind
        if not isinstance(kind, Vectors):
            model.task |= kind.fold_into(model.heads[kind.head]).description()
    result = Result(
        metrics=metrics,
        metric=recipe.metric or data.task.metric,
        step=outcome.step,
        best_step=outcome.best_step,
        rows_per_second=outcome.tokens_per_second / float(data.train.lengths.mean()),
        finished=outcome.finished,
        baseline=baseline_metrics(data),
        skipped=data.skipped,
        words=words_metrics(data) if recipe.words and outcome.finished and not requires_dev else {},
    )
    model.ranges = remove_simulation(model)
    if comparison is not None and outcome.finished:
        model, result = comparison.decide(model, tuned, result, time.monotonic() - start)
    return _finish(recipe, data, model, result, world, command)


def _finish(
    recipe: FinetuneRecipe, data: TaskData, model: Model, result: Result, world: World, command: Sequence[str]
) -> Result:
    """Save the model of a finished run, and its result."""
    if result.finished and world.is_main:
        out = Path(recipe.out)
        card = task_card(recipe, data, model.cpu(), result, command)
        folder.save(model, out / "final", card=card)
        finish(out, vars(result), keep_checkpoints=recipe.keep_checkpoints)
    world.barrier()
    return result


def _choose_settings(recipe: FinetuneRecipe, model: Model, data: TaskData) -> dict[str, Any]:
    """The values of the keys that the recipe leaves to the data."""
    kind, train = data.task.kind, data.train
    facts = Facts(
        kind=kind.name,
        pairs=_has_pairs(data),
        rows=len(train),
        tokens=float(train.lengths.mean()),
        depth=len(model.blocks),
        width=model.width,
        imported=model.origin in FAMILIES,
        hidden=recipe.head.hidden not in ("auto", "none"),
    )
    return {**settings_for(facts), "length": data.length}


def _has_pairs(data: TaskData) -> bool:
    return bool((data.train.seconds < data.train.lengths).all())


def _make_batches(recipe: FinetuneRecipe, model: Model, data: TaskData, world: World) -> Buckets:
    shared: dict[str, Any] = {
        "batch": recipe.batch,
        "specials": Specials.of(model.require_tokenizer()),
        "seed": recipe.seed,
        "sort_over": recipe.sort_over,
        "settings": world.loading(recipe.workers),
    }
    # The texts of a row are encoded apart.
    if not isinstance(data.task.kind, Vectors) and _packs(recipe, model):
        return PackedBuckets(data.train, positions=model.positions, **shared)
    graphed = uses_cuda_graph(recipe.cuda_graph, world)
    return Buckets(data.train, multiple=_GRAPH_WIDTH_MULTIPLE if graphed else 1, **shared)


def _packs(recipe: FinetuneRecipe, model: Model) -> bool:
    """Return whether the texts of a batch share rows."""
    if recipe.packing == "on" and model.released_padding:
        raise InputError("packing=on requires a model with padding = 'masked', got 'released'; set packing=off")
    if recipe.packing != "auto":
        return recipe.packing == "on"
    # Packed rows of mixed lengths are twice as fast as padded ones on a CPU, and faster than sorted ones on a GPU.
    return recipe.sort_over == recipe.accumulate == 1 and not model.released_padding


def _make_loop(recipe: FinetuneRecipe, model: Model, data: TaskData, world: World) -> Loop:
    tokens = round(recipe.batch * float(data.train.lengths.mean()))
    check_batch_memory(tokens, [model], recipe.accumulate, world)
    batches = _make_batches(recipe, model, data, world)
    epoch = batches.steps_per_epoch
    # At least one step, however small the fraction of an epoch: 0 means no limit.
    steps = recipe.steps or (max(1, round(recipe.epochs * epoch)) if recipe.epochs else 0)
    depth, decay, depths = len(model.blocks), recipe.layer_decay, recipe.layer_depths
    phase = Phase(
        loader=lambda: batches,
        steps=steps,
        lr=recipe.lr,
        tokens=tokens,
        schedule=recipe.schedule,
        scales=lambda name: layer_rate(name, depth, decay, depths),
    )
    kind = data.task.kind
    objective: Objective = (
        vector_objective(model, recipe.vector, kind) if isinstance(kind, Vectors) else TaskObjective(model, kind.head)
    )
    _compile(objective, recipe, world)
    metric = recipe.metric or data.task.metric
    settings = Settings(
        replace(recipe, evaluate_every=recipe.evaluate_every or epoch), best=metric if recipe.choose == "best" else ""
    )
    report = EpochReport(data, metric, steps_per_epoch=epoch, steps=steps, sorts=recipe.sort_over > 1)
    return Loop(objective, [phase], settings, world, lambda step: measure(data, model, report.check), report.print)


def _compile(objective: Objective, recipe: FinetuneRecipe, world: World) -> None:
    """Compile the objective; quantization-aware training runs eagerly, and says so if compile= was set."""
    if not recipe.quantization_aware:
        compile_objective(objective, recipe.compile, world.device, few_shapes=False)
    elif recipe.compile in ("blocks", "whole") and world.is_main:
        print(f"quantization_aware=true runs eagerly, without compile={recipe.compile}", file=sys.stderr)


def _head_settings(recipe: FinetuneRecipe, data: TaskData, model: Model) -> dict[str, Any]:
    """The recipe's settings for the head, under the names of the head's arguments."""
    kind, head = data.task.kind, recipe.head
    if kind.one_per_text:
        theirs = huggingface.settings_of_head(model, kind.head).get("hidden")
        hidden = theirs if head.hidden == "auto" else None if head.hidden == "none" else head.hidden
        return {"hidden": hidden, "dropout": head.dropout, "pool": head.pool}
    if head.pool != "cls":
        raise InputError(
            f"head.pool={head.pool} requires a task with one output per text, got the kind '{kind.name}'; remove "
            "head.pool"
        )
    return {"dropout": head.dropout} if kind.head == "tokens" else {}


def _check_probe(model: Model, data: TaskData) -> None:
    """Check that the output layer reads states or the vector of the text, so that a linear model can replace it."""
    head = model.heads[data.task.kind.head]
    if not isinstance(head, TokenClassification) and (not isinstance(head, TextHead) or head.dense is not None):
        raise InputError(
            "head.init=probe requires tags, or a task with one output per text and head.hidden=none, got the kind "
            f"'{data.task.kind.name}'; set head.init=random"
        )


def _check_metric(name: str, data: TaskData) -> None:
    """Check before training that the task has this metric."""
    kind = data.task.kind
    known = [
        _metric_name(split, each)
        for split, (examples, _) in data.dev.items()
        for each in kind.metric_names(data.train, examples)
    ]
    if known and name not in known:
        similar = nearest(name, known)
        hint = f"; did you mean {similar!r}?" if similar else ""
        raise InputError(f"metric must be one of {', '.join(known)}, got {name!r}{hint}")


def _metric_name(split: str, name: str) -> str:
    return f"{split.removeprefix('dev').lstrip('_')}_{name}".lstrip("_")


def measure(
    data: TaskData, model: Model, check: Callable[[str, list[Prediction]], None] = lambda split, predictions: None
) -> dict[str, float]:
    """Compute the metrics of every development split; those of "dev_mismatched" begin with "mismatched_".

    check: called with each split and its predictions.
    """
    kind = data.task.kind
    metrics: dict[str, float] = {}
    for name, (examples, _) in data.dev.items():
        predictions = _predictions(data, model, name)
        if isinstance(kind, Labels):
            tuned = kind.tune(examples, predictions)
            predictions = tuned.decide(predictions)
        check(name, predictions)
        found = kind.metrics(examples, predictions)
        metrics |= {_metric_name(name, key): value for key, value in found.items()}
    return metrics


def _tune(data: TaskData, model: Model) -> TaskData:
    """Choose the settings that depend on the trained model, such as a threshold, on the development set."""
    if "dev" not in data.dev:
        return data
    kind = data.task.kind.tune(data.dev["dev"][0], _predictions(data, model, "dev"))
    return replace(data, task=replace(data.task, kind=kind))


def _predict_dev(data: TaskData, model: Model) -> list[Prediction]:
    return _predictions(data, model, "dev")


def _predictions(data: TaskData, model: Model, split: str) -> list[Prediction]:
    kind, (examples, features) = data.task.kind, data.dev[split]
    with run_eagerly():
        if isinstance(kind, Vectors):
            return vector_predictions(model, kind, examples)
        outputs = run(TorchRuntime(Inference(model, kind.head)), features, Specials.of(model.require_tokenizer()))
    return kind.predictions(examples, features, outputs)
