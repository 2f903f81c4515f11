"""Run a distillation recipe: load the teacher, build the student, train the strategy's stages as phases."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from lightbert.config import to_mapping
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.interop.load import load
from lightbert.models import Model
from lightbert.objectives.distill.objective import Distillation
from lightbert.objectives.distill.pair import copy_embeddings
from lightbert.objectives.distill.stages import Stage, stages
from lightbert.ops.randomness import named
from lightbert.train.compilation import compile_objective
from lightbert.train.corpus_run import check_teacher, fingerprint, make_loader, make_masker, starting_model, train
from lightbert.train.distributed import World
from lightbert.train.run_folder import check_outside, locked_run, read_result, save_recipe
from lightbert.train.schedule import Schedule
from lightbert.train.settings import DistillRecipe
from lightbert.train.signals import Interruption
from lightbert.train.step import Outcome, Phase

_WITHIN_A_STAGE = Schedule("progressive", warmup=0.1)


def distill(recipe: DistillRecipe, world: World, interrupted: Interruption, *, command: Sequence[str] = ()) -> Outcome:
    """Train a recipe, resuming from the newest checkpoint if there is one; save ``out/final`` at the end.

    command: the words of the command, for the model card.
    """
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    check_outside(recipe.out, model=recipe.model, teacher=recipe.teacher)
    shards = Shards.open(recipe.data, verify=world.is_main, again=recipe.verify)
    teacher = load_teacher(recipe)
    weights = {"teacher_weights": fingerprint(teacher)} if teacher is not None else {}
    with locked_run(Path(recipe.out), world):
        check_teacher(recipe.out, "teacher", recipe.teacher, weights)
        resolved = to_mapping(recipe) | weights
        save_recipe(
            resolved,
            Path(recipe.out),
            world,
            may_change=recipe.may_change,
            defaults=recipe.defaults,
            data_content=shards.content,
        )
        done = read_result(Path(recipe.out), world, Outcome, keep_checkpoints=recipe.keep_checkpoints)
        if done is not None:
            return done
        objective, plan = make_distillation(recipe, shards, teacher, world)
        compile_objective(objective, recipe.compile, world.device, *([] if teacher is None else [teacher]))
        phases = [
            Phase(
                partial(make_loader, recipe, world, shards, number, recipe.batch, recipe.length),
                stage.steps,
                recipe.lr,
                recipe.batch * recipe.length,
                recipe.schedule if stage.schedule == "recipe" else _WITHIN_A_STAGE,
                stage.scales,
                partial(objective.set_stage, stage),
            )
            for number, stage in enumerate(plan)
        ]
        return train(recipe, objective, phases, shards, world, interrupted, command=command)


def make_distillation(
    recipe: DistillRecipe, shards: Shards, teacher: Model | None, world: World
) -> tuple[Distillation, list[Stage]]:
    """Build the student, copy the teacher's embeddings and heads if asked for, and plan the stages."""
    heads = ("mlm", "nsp") if recipe.examples == "pairs" else ("mlm",)
    # The teacher may have been initialised with this seed under the same parameter names.
    tokenizer = shards.tokenizer()
    student = starting_model(recipe, shards.vocab, heads, named(recipe.seed, "student"), tokenizer)
    student.tokenizer = tokenizer
    objective = Distillation(
        student,
        make_masker(recipe, shards),
        teacher,
        transfer=recipe.transfer if recipe.transfers_layers else None,
        alpha=recipe.alpha,
        dropout=recipe.dropout is not None,
        seed=recipe.seed,
    )
    free = frozenset(f"embeddings.{name}" for name, _ in student.embeddings.named_parameters())
    copies = recipe.starts_with_layers if recipe.copy is None else recipe.copy
    if teacher is not None and copies:
        free = copy_embeddings(teacher, student, norm=recipe.norm)
    steps = recipe.steps
    if recipe.epochs:
        loader = make_loader(recipe, world, shards, 0, recipe.batch, recipe.length)
        steps = recipe.epochs * loader.steps_per_epoch
    plan = stages(
        recipe.strategy,
        depth=len(student.blocks),
        transfer_steps=recipe.transfer_steps,
        predict_steps=steps,
        rate=recipe.layer_rate,
        soft=recipe.soft if recipe.lower == "soft" else 0.0,
        free=free,
    )
    return objective, plan


def load_teacher(recipe: DistillRecipe) -> Model | None:
    """Load the teacher; None if the strategy has none."""
    if not recipe.needs_teacher:
        return None
    teacher = load(recipe.teacher)
    if 0 < teacher.positions < recipe.length:
        raise InputError(
            f"length must be <= {teacher.positions}, the positions of teacher '{recipe.teacher}', got {recipe.length}"
        )
    return teacher
