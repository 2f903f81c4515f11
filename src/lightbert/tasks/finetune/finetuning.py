"""From a fine-tuning recipe to a trained model, on the loop that everything is trained with."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lightbert.config import to_mapping
from lightbert.data.batches.batch import Specials
from lightbert.data.batches.buckets import Buckets
from lightbert.errors import InputError, unknown
from lightbert.files import write_atomic
from lightbert.models import Model, folder
from lightbert.nn.inference import Inference
from lightbert.objectives.task import TaskObjective
from lightbert.tasks.finetune.dataset import Prepared, prepare
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.finetune.starting_model import give_head, refuse_length, starting_model
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.predict.forward import run
from lightbert.train.distributed import World
from lightbert.train.loop import Loop
from lightbert.train.recipe_file import save_recipe
from lightbert.train.run import Phase, Settings
from lightbert.train.schedule import layer_rate
from lightbert.train.signals import Interruption

RESULT = "result.json"

# Recorded steps are worth some padding: each width is recorded once.
_GRAPH_WIDTHS = 16


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    metrics: dict[str, float]
    """On the development set, of the weights that were kept."""
    metric: str
    """The number that runs are compared by."""
    step: int
    best_step: int
    """When the kept weights were reached; -1 = they are the last."""
    rows_per_second: float
    finished: bool = True

    @property
    def score(self) -> float:
        """The number that runs are compared by."""
        return self.metrics[self.metric]


def finetune(recipe: FinetuneRecipe, world: World, interrupted: Interruption, *, compared: bool = False) -> Result:
    """Train by a recipe, or go on where its folder's newest checkpoint is; write ``out/final`` at the end.

    A run that is finished already is not trained again: its result is read.
    compared: whether the result is to be compared with others, so that there must be data to judge it by.
    """
    out = Path(recipe.out)
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    save_recipe(to_mapping(recipe), out, world, may_change=recipe.may_change)
    if (out / RESULT).exists() and (out / "final").exists():
        if world.is_main:
            print(f"'{out}' is trained already; set out= to another folder to train anew", file=sys.stderr)
        return Result(**json.loads((out / RESULT).read_text(encoding="utf-8")))
    model = starting_model(recipe)
    refuse_length(model, recipe.length)
    prepared = prepare(recipe, model.require_tokenizer(), says=world.is_main)
    if not prepared.dev and (compared or recipe.choose == "best"):
        raise InputError(
            f"there are no development data to {'compare runs by' if compared else 'choose the best weights by'}: add "
            "data.dev=FILE or data.hold_out=0.1, or train one run with choose=last"
        )
    give_head(model, prepared.task.kind, _head_settings(recipe, prepared), recipe.seed)
    model.task = {
        **prepared.task.kind.description(),
        "task": prepared.task.name,
        "length": recipe.length,
        "pairs": bool((prepared.train.seconds < prepared.train.lengths).all()),
    }
    if recipe.metric:
        _refuse_metric(recipe.metric, prepared, model.to(world.device))
    outcome = _loop(recipe, model, prepared, world).run(interrupted)
    metrics = outcome.held_out
    if outcome.finished:
        settled = _settled(prepared, model)
        # A threshold that was chosen only now changes the numbers.
        metrics = metrics if settled.task.kind == prepared.task.kind else measure(settled, model)
        kind = settled.task.kind
        model.task |= kind.folded(model.heads[kind.head]).description()
    result = Result(
        metrics=metrics,
        metric=recipe.metric or prepared.task.metric,
        step=outcome.step,
        best_step=outcome.best_step,
        rows_per_second=outcome.tokens_per_second / float(prepared.train.lengths.mean()),
        finished=outcome.finished,
    )
    if outcome.finished and world.is_main:
        folder.save(model.cpu(), out / "final")
        write_atomic(out / RESULT, json.dumps(vars(result), indent=2) + "\n")
    world.barrier()
    return result


def _loop(recipe: FinetuneRecipe, model: Model, prepared: Prepared, world: World) -> Loop:
    graphed = recipe.cuda_graph and world.device.type == "cuda"
    batches = Buckets(
        prepared.train,
        batch=recipe.batch,
        specials=Specials.of(model.require_tokenizer()),
        seed=recipe.seed,
        multiple=_GRAPH_WIDTHS if graphed else 1,
        sort_over=recipe.sort_over,
        settings=world.loading(recipe.workers),
    )
    epoch = batches.steps_per_epoch
    # A small part of an epoch is still a step: none at all would stand for no end.
    steps = recipe.steps or (max(1, round(recipe.epochs * epoch)) if recipe.epochs else 0)
    depth, decay, depths = len(model.blocks), recipe.layer_decay, recipe.layer_depths
    phase = Phase(
        loader=lambda: batches,
        steps=steps,
        lr=recipe.lr,
        tokens=round(recipe.batch * float(prepared.train.lengths.mean())),
        schedule=recipe.schedule,
        scales=lambda name: layer_rate(name, depth, decay, depths),
    )
    objective = TaskObjective(model, prepared.task.kind.head)
    best = (recipe.metric or prepared.task.metric) if recipe.choose == "best" else ""
    settings = Settings(replace(recipe, evaluate_every=recipe.evaluate_every or epoch), best=best)
    return Loop(objective, [phase], settings, world, lambda step: measure(prepared, model))


def _head_settings(recipe: FinetuneRecipe, prepared: Prepared) -> dict[str, Any]:
    """What the recipe chooses of a head, as that head calls it."""
    head = recipe.head
    match prepared.task.kind.head:
        case "classify" | "regress":
            return {"hidden": None if head.hidden == "none" else head.hidden, "dropout": head.dropout}
        case "tokens":
            return {"dropout": head.dropout}
    return {}


def _refuse_metric(name: str, prepared: Prepared, model: Model) -> None:
    """Refuse a number that the task does not have before the training: judging what is untrained shows which it has."""
    if prepared.dev and name not in (numbers := measure(prepared, model)):
        raise unknown("held-out metric", name, numbers)


def measure(prepared: Prepared, model: Model) -> dict[str, float]:
    """The task's metrics on every development split; those of a second one have its name before theirs."""
    kind = prepared.task.kind
    numbers: dict[str, float] = {}
    for name, (examples, _) in prepared.dev.items():
        found = kind.metrics(examples, _predictions(prepared, model, name))
        numbers |= {f"{name.removeprefix('dev').lstrip('_')}_{key}".lstrip("_"): value for key, value in found.items()}
    return numbers


def _settled(prepared: Prepared, model: Model) -> Prepared:
    """The task with what can only be chosen once the model is trained, on the development set if there is one."""
    if "dev" not in prepared.dev:
        return prepared
    kind = prepared.task.kind.settled(prepared.dev["dev"][0], _predictions(prepared, model, "dev"))
    return replace(prepared, task=replace(prepared.task, kind=kind))


def _predictions(prepared: Prepared, model: Model, split: str) -> list[Prediction]:
    kind, (examples, features) = prepared.task.kind, prepared.dev[split]
    outputs = run(Inference(model, kind.head), features, Specials.of(model.require_tokenizer()))
    return kind.predictions(examples, features, outputs)
