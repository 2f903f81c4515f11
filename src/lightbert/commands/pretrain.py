"""`lightbert pretrain`: pre-training from a recipe."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightbert.commands.inputs import check_corpus
from lightbert.commands.report import AsJson, show
from lightbert.commands.training import command_words, key_list, resolve
from lightbert.commands.training_report import TrainingReport, draw_curves
from lightbert.processes import set_threads

if TYPE_CHECKING:
    from lightbert.train.settings import Recipe


def run(recipe: "Recipe", command: Sequence[str] = ()) -> TrainingReport:
    """Train, or resume training, and save the models after the last step.

    command: the words of the command, for the model card.
    """
    from lightbert.train.distributed import process_group
    from lightbert.train.pretraining import pretrain
    from lightbert.train.signals import catch_signals

    with catch_signals() as interrupted, process_group(recipe.device) as world:
        outcome = pretrain(recipe, world, interrupted, flops_per_token=_flops(recipe), command=command)
        if outcome.finished and world.is_main:
            draw_curves(Path(recipe.out))
    return TrainingReport(Path(recipe.out), outcome, is_main=world.is_main)


def epilog() -> str:
    """Return the list of keys at the end of --help."""
    return key_list("pretrain")


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe, such as tiny-rtd, or a TOML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value pairs, such as data=DIR out=runs/x steps=100 batch=8.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Pre-train an encoder by replaced-token detection or masked language modelling.

    The trained model is written to OUT/final. After an interruption, run the same command again to resume: SIGTERM and
    SIGINT save a checkpoint and exit with code 75; a second signal stops immediately.
    """
    from lightbert.config import assignments
    from lightbert.train.settings import Recipe
    from lightbert.train.signals import EXIT_CODE

    given = assignments(overrides or [])
    resolved = resolve(Recipe, "pretrain", recipe, given)
    check_corpus(resolved.data, resolved.out)
    set_threads(resolved.threads)
    report = run(resolved, command_words("pretrain", recipe, given))
    if report.is_main:
        show(report, json=json)
    if not report.outcome.finished:
        raise typer.Exit(EXIT_CODE)


def _flops(recipe: "Recipe") -> float:
    """Training FLOPs per token: three times the forward pass, summed over the models that run."""
    from lightbert.models import build
    from lightbert.models.flops import flops
    from lightbert.models.presets import generator
    from lightbert.train.corpus_run import starting_config

    config = starting_config(recipe)
    configs = [config, generator(config, recipe.generator)] if recipe.objective == "rtd" else [config]
    return 3.0 * sum(flops(build(each, device="meta"), recipe.length) for each in configs) / recipe.length
