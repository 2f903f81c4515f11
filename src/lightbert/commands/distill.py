"""`lightbert distill`: a small encoder learns from a large one, by a recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightbert.commands.report import AsJson, show
from lightbert.commands.trained import Trained, draw_curves
from lightbert.commands.training import key_list, resolve

if TYPE_CHECKING:
    from lightbert.train.distill_recipe import DistillRecipe


def run(recipe: "DistillRecipe") -> Trained:
    """Train the student, or go on training it, and write it once the last step is done."""
    from lightbert.train.distillation import distill
    from lightbert.train.distributed import process_group
    from lightbert.train.signals import catch_signals

    out = Path(recipe.out)
    with catch_signals() as interrupted, process_group(recipe.device) as world:
        outcome = distill(recipe, world, interrupted)
        if outcome.finished and world.is_main:
            draw_curves(out, transfer=recipe.transfers_layers)
    return Trained(out, outcome, is_main=world.is_main)


def epilog() -> str:
    """Return the list of keys that ends the text of --help."""
    return key_list("distill")


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe, such as tiny-distill, or a TOML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value pairs, such as teacher=runs/t/final data=DIR out=runs/s.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Train a small encoder to imitate a large one, layer by layer and prediction by prediction.

    strategy=pkt learns one layer after the other, jkt all at once before the predictions, akt together with them; pd
    learns predictions only, bare has no teacher.

    The trained model is the folder OUT/final. Run the same command again to go on after an interruption: SIGTERM and
    SIGINT save a checkpoint and exit with code 75, a second signal stops at once.
    """
    from lightbert.config import assignments
    from lightbert.train.distill_recipe import DistillRecipe
    from lightbert.train.signals import EXIT_CODE

    report = run(resolve(DistillRecipe, "distill", recipe, assignments(overrides or [])))
    if report.is_main:
        show(report, json=json)
    if not report.outcome.finished:
        raise typer.Exit(EXIT_CODE)
