"""Run a plan, one run after another; an interrupted command resumes with the run that was interrupted."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from lightbert.errors import InputError
from lightbert.files import folder_atomic, sweep, write_atomic
from lightbert.models.folder import MODEL_FOLDER
from lightbert.tasks.finetune.dataset import DataRequest, TaskData
from lightbert.tasks.finetune.finetuning import finetune, saved_recipe
from lightbert.tasks.finetune.plan import Plan, PlannedRun
from lightbert.tasks.finetune.results import Result, best_settings, settings_of
from lightbert.train.distributed import World
from lightbert.train.run_folder import DATA_CONTENT, RESULT, check_grid_folder, check_outside, locked_run
from lightbert.train.signals import Interruption

RunResults = list[tuple[PlannedRun, Result]]

_TrainedOn = dict[DataRequest, tuple[str, str]]
"""What runs read -> the folder of the first run that read it, and the hash of its data."""


def run_all(plan: Plan, world: World, interrupted: Interruption, command: Sequence[str] = ()) -> RunResults:
    """Train the runs that are not finished and return the results so far; an interrupted run comes last.

    With several runs, write a summary to ``out/runs.json``, and if there is only one task, copy the best model to
    ``out/final``.
    command: the words of the command, for the model cards.
    """
    if plan.single:
        return _run_each(plan, world, interrupted, command, trained_on={})
    for planned in plan.runs:
        check_outside(str(plan.out / "final"), model=planned.recipe.starting_model)
    with locked_run(plan.out, world, check_grid_folder):
        if world.is_main:
            sweep(plan.out)
        return _run_each(plan, world, interrupted, command, _data_of_finished_runs(plan))


def _run_each(
    plan: Plan, world: World, interrupted: Interruption, command: Sequence[str], trained_on: _TrainedOn
) -> RunResults:
    done: RunResults = []
    for number, planned in enumerate(plan.runs, start=1):
        if not plan.single and world.is_main:
            description = " ".join(part for part in (planned.task, planned.settings, f"seed={planned.seed}") if part)
            print(f"run {number} of {len(plan.runs)}: {description}", file=sys.stderr)
        result = finetune(
            planned.recipe,
            world,
            interrupted,
            requires_dev=not plan.single,
            check_data=partial(_check_data, trained_on, planned.recipe.out),
            command=command,
        )
        done.append((planned, result))
        if not result.finished:
            return done
        if not plan.single and world.is_main:
            content = [setting.to_json() for setting in settings_of(done)]
            write_atomic(plan.out / "runs.json", json.dumps(content, indent=2) + "\n")
    if not plan.single and world.is_main:
        _copy_best(plan, done)
    return done


def _data_of_finished_runs(plan: Plan) -> _TrainedOn:
    """Read which data the finished runs were trained on, and check that they can be compared."""
    trained_on: _TrainedOn = {}
    for out, request, content in _finished_runs(plan):
        first, expected = trained_on.setdefault(request, (out, content))
        if content != expected:
            raise InputError(
                f"the runs in '{first}' and '{out}' can't be compared, because the data changed between them; remove "
                "one of these folders to train its run again, or set out= to another folder"
            )
    return trained_on


def _finished_runs(plan: Plan) -> Iterator[tuple[str, DataRequest, str]]:
    """Yield the folders of the finished runs, with what they read and the hash of their data."""
    for recipe in (planned.recipe for planned in plan.runs):
        out, saved = Path(recipe.out), saved_recipe(recipe)
        tokenizer = out / "final" / "tokenizer.json"
        # Runs of earlier versions have no hash.
        if saved is not None and DATA_CONTENT in saved and (out / RESULT).exists() and tokenizer.exists():
            text = tokenizer.read_text(encoding="utf-8", errors="replace")
            yield recipe.out, DataRequest.of(recipe, text), saved[DATA_CONTENT]


def _check_data(trained_on: _TrainedOn, out: str, data: TaskData) -> None:
    """Check that the data of a run to be trained in ``out`` are those of the runs before it, and add them to these."""
    first, expected = trained_on.setdefault(data.request, (out, data.content))
    if data.content != expected:
        raise InputError(
            f"the data of the run in '{first}' has changed since the run was started, and the run in '{out}' would be "
            "compared with it; restore the data, or set out= to another folder to train on the new data"
        )


def _copy_best(plan: Plan, done: RunResults) -> None:
    """Copy the best run of the best setting, if there is only one task."""
    settings = best_settings(settings_of(done))
    if len(settings) == 1:
        best, _ = settings[0].best
        with folder_atomic(plan.out / "final", MODEL_FOLDER) as folder:
            shutil.copytree(Path(best.recipe.out) / "final", folder, dirs_exist_ok=True)
