"""`lightbert distill`: knowledge distillation from a recipe."""

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
    from lightbert.train.settings import DistillRecipe


def run(recipe: "DistillRecipe", command: Sequence[str] = ()) -> TrainingReport:
    """Train the student, or resume its training, and save it after the last step.

    command: the words of the command, for the model card.
    """
    from lightbert.train.distillation import distill
    from lightbert.train.distributed import process_group
    from lightbert.train.signals import catch_signals

    out = Path(recipe.out)
    with catch_signals() as interrupted, process_group(recipe.device) as world:
        outcome = distill(recipe, world, interrupted, command=command)
        if outcome.finished and world.is_main:
            draw_curves(out, transfer=recipe.transfers_layers)
    return TrainingReport(out, outcome, is_main=world.is_main)


def epilog() -> str:
    """Return the list of keys at the end of --help."""
    return key_list("distill")


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe, such as tiny-distill, or a TOML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value pairs, such as teacher=runs/t/final data=DIR out=runs/s.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Distil a large encoder into a small one, with losses on layers and predictions.

    strategy=pkt transfers one layer after the other, jkt all layers at once before the predictions, akt both together;
    pd transfers predictions only, bare uses no teacher.

    The trained model is written to OUT/final. After an interruption, run the same command again to resume: SIGTERM and
    SIGINT save a checkpoint and exit with code 75; a second signal stops immediately.
    """
    from lightbert.config import assignments
    from lightbert.train.settings import DistillRecipe
    from lightbert.train.signals import EXIT_CODE

    given = assignments(overrides or [])
    resolved = resolve(DistillRecipe, "distill", recipe, given)
    check_corpus(resolved.data, resolved.out)
    set_threads(resolved.threads)
    report = run(resolved, command_words("distill", recipe, given))
    if report.is_main:
        show(report, json=json)
    if not report.outcome.finished:
        raise typer.Exit(EXIT_CODE)
