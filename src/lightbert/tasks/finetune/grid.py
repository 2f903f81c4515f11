"""Run a plan, one run after another; an interrupted command resumes with the run that was interrupted."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from lightbert.files import folder_atomic, write_atomic
from lightbert.models.owned import MODEL_FOLDER
from lightbert.tasks.finetune.finetuning import finetune
from lightbert.tasks.finetune.plan import Plan, PlannedRun
from lightbert.tasks.finetune.result import Result
from lightbert.tasks.finetune.summary import best_settings, settings_of
from lightbert.train.checkpoint import remove_partial
from lightbert.train.distributed import World
from lightbert.train.run_folder import check_outside, locked_grid
from lightbert.train.signals import Interruption

RunResults = list[tuple[PlannedRun, Result]]


def run_all(plan: Plan, world: World, interrupted: Interruption, command: Sequence[str] = ()) -> RunResults:
    """Train the runs that are not finished and return the results so far; an interrupted run comes last.

    With several runs, write a summary to ``out/runs.json``, and if there is only one task, copy the best model to
    ``out/final``.
    command: the words of the command, for the model cards.
    """
    if plan.single:
        return _run_each(plan, world, interrupted, command)
    for planned in plan.runs:
        check_outside(str(plan.out / "final"), model=planned.recipe.starting_model)
    with locked_grid(plan.out, world):
        if world.is_main:
            remove_partial(plan.out)
        return _run_each(plan, world, interrupted, command)


def _run_each(plan: Plan, world: World, interrupted: Interruption, command: Sequence[str]) -> RunResults:
    done: RunResults = []
    for number, planned in enumerate(plan.runs, start=1):
        if not plan.single and world.is_main:
            description = " ".join(part for part in (planned.task, planned.settings, f"seed={planned.seed}") if part)
            print(f"run {number} of {len(plan.runs)}: {description}", file=sys.stderr)
        result = finetune(planned.recipe, world, interrupted, requires_dev=not plan.single, command=command)
        done.append((planned, result))
        if not result.finished:
            return done
        if not plan.single and world.is_main:
            content = [setting.to_json() for setting in settings_of(done)]
            write_atomic(plan.out / "runs.json", json.dumps(content, indent=2) + "\n")
    if not plan.single and world.is_main:
        _copy_best(plan, done)
    return done


def _copy_best(plan: Plan, done: RunResults) -> None:
    """Copy the best run of the best setting, if there is only one task."""
    settings = best_settings(settings_of(done))
    if len(settings) == 1:
        best, _ = settings[0].best
        with folder_atomic(plan.out / "final", MODEL_FOLDER) as folder:
            shutil.copytree(Path(best.recipe.out) / "final", folder, dirs_exist_ok=True)
