"""All runs of a plan, one after another; a command that was interrupted goes on with the run it was in."""

import json
import shutil
import sys
from pathlib import Path

from lightbert.files import folder_atomic, write_atomic
from lightbert.tasks.finetune.finetuning import Result, finetune
from lightbert.tasks.finetune.plan import Plan, Planned
from lightbert.tasks.finetune.summary import best_settings, settings_of
from lightbert.train.checkpoint import remove_partial
from lightbert.train.distributed import World
from lightbert.train.signals import Interruption

Finished = list[tuple[Planned, Result]]


def run_all(plan: Plan, world: World, interrupted: Interruption) -> Finished:
    """Train what is not trained yet; the results so far, of which an interrupted run's is the last.

    Several runs leave a table in ``out/runs.json``, and for a single task the best model as ``out/final``; their
    checkpoints go once they are finished.
    """
    if not plan.single and world.is_main:
        remove_partial(plan.out)
    done: Finished = []
    for number, planned in enumerate(plan.runs, start=1):
        if not plan.single and world.is_main:
            what = " ".join(part for part in (planned.task, planned.settings, f"seed={planned.seed}") if part)
            print(f"run {number} of {len(plan.runs)}: {what}", file=sys.stderr)
        result = finetune(planned.recipe, world, interrupted, compared=not plan.single)
        done.append((planned, result))
        if not result.finished:
            return done
        if not plan.single and world.is_main:
            shutil.rmtree(Path(planned.recipe.out) / "checkpoints", ignore_errors=True)
            content = [setting.to_json() for setting in settings_of(done)]
            write_atomic(plan.out / "runs.json", json.dumps(content, indent=2) + "\n")
    if not plan.single and world.is_main:
        _keep_best(plan, done)
    return done


def _keep_best(plan: Plan, done: Finished) -> None:
    """Copy the best run of the best setting, where there is one task and so one best."""
    settings = best_settings(settings_of(done))
    if len(settings) == 1:
        best, _ = settings[0].best
        with folder_atomic(plan.out / "final") as folder:
            shutil.copytree(Path(best.recipe.out) / "final", folder, dirs_exist_ok=True)
