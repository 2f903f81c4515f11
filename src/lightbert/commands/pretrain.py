"""`lightbert pretrain` and `lightbert distill`: training from a recipe."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.options import check_corpus
from lightbert.commands.recipes import command_words, resolve
from lightbert.commands.report import AsJson, show
from lightbert.errors import InputError
from lightbert.processes import set_threads

if TYPE_CHECKING:
    from lightbert.train.settings import DistillRecipe, Recipe
    from lightbert.train.step import Outcome

_NOT_HELD_OUT = "nothing to measure on; prepare more documents (--documents line), or a larger share (--held-out 0.05)"


@dataclass(frozen=True)
class TrainingReport:
    """The outcome of a run, and where its results are saved."""

    out: Path
    outcome: "Outcome"
    is_main: bool = True
    """Whether this process prints the report; true for one of several."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        outcome = self.outcome
        return {
            "out": str(self.out),
            "model": str(self.out / "final") if outcome.finished else None,
            "step": outcome.step,
            "finished": outcome.finished,
            "tokens_per_second": outcome.tokens_per_second,
            "start_seconds": outcome.start_seconds,
            "metrics": outcome.held_out,
            "verdict": outcome.verdict,
        }

    def __rich__(self) -> str:
        outcome = self.outcome
        if not outcome.finished:
            return f"interrupted and saved at step {outcome.step:,}; run the same command again to resume"
        # Metrics of single layers, such as fmt_24, are only logged.
        shown = {name: value for name, value in outcome.held_out.items() if not name[-1].isdigit()}
        numbers = ", ".join(f"{name} {value:.4f}" for name, value in shown.items()) or _NOT_HELD_OUT
        # A resumed run may have had no step left to measure.
        speed = f" at {outcome.tokens_per_second:,.0f} tokens/s" if outcome.tokens_per_second else ""
        lines = [f"{outcome.step:,} steps{speed}; held out: {numbers}", outcome.verdict, f"model: {self.out / 'final'}"]
        return "\n".join(line for line in lines if line)


def run(recipe: "Recipe | DistillRecipe", command: Sequence[str] = ()) -> TrainingReport:
    """Pre-train or distil, or resume the training, and save the models after the last step.

    command: the words of the command, for the model card.
    """
    from lightbert.train.distillation import distill
    from lightbert.train.distributed import process_group
    from lightbert.train.pretraining import pretrain
    from lightbert.train.settings import DistillRecipe
    from lightbert.train.signals import catch_signals

    out = Path(recipe.out)
    with catch_signals() as interrupted, process_group(recipe.device) as world:
        if isinstance(recipe, DistillRecipe):
            outcome = distill(recipe, world, interrupted, command=command)
        else:
            outcome = pretrain(recipe, world, interrupted, flops_per_token=_flops(recipe), command=command)
        if outcome.finished and world.is_main:
            draw_curves(out, transfer=isinstance(recipe, DistillRecipe) and recipe.transfers_layers)
    return TrainingReport(out, outcome, is_main=world.is_main)


def draw_curves(out: Path, *, transfer: bool = False, more: Sequence[str] = ()) -> bool:
    """Write ``out/loss.png``, and ``out/transfer.png`` if layers were transferred, or print why it can't.

    more: metrics to plot besides the losses. Returns whether it succeeded.
    """
    from lightbert.analysis.run_log import draw_losses, draw_transfer

    try:
        draw_losses(out / "metrics.jsonl", out / "loss.png", more)
        if transfer:
            draw_transfer(out / "metrics.jsonl", out / "transfer.png")
    except InputError as error:
        print(f"the loss curve was not drawn: {error}", file=sys.stderr)
        return False
    return True


def _flops(recipe: "Recipe") -> float:
    """Training FLOPs per token: three times the forward pass, summed over the models that run."""
    from lightbert.models import build
    from lightbert.models.flops import flops
    from lightbert.models.presets import generator
    from lightbert.train.corpus_run import starting_config

    config = starting_config(recipe)
    configs = [config, generator(config, recipe.generator)] if recipe.objective == "rtd" else [config]
    return 3.0 * sum(flops(build(model, device="meta"), recipe.length) for model in configs) / recipe.length


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
    _train("pretrain", recipe, overrides, json=json)


def distill(
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
    _train("distill", recipe, overrides, json=json)


def _train(verb: str, recipe: str, overrides: list[str] | None, *, json: bool) -> None:
    from lightbert.config import assignments
    from lightbert.train.signals import EXIT_CODE

    values: Mapping[str, Any] = assignments(overrides or [])
    resolved: Any = resolve(verb, recipe, values)
    check_corpus(resolved.data, resolved.out)
    set_threads(resolved.threads)
    report = run(resolved, command_words(verb, recipe, values))
    if report.is_main:
        show(report, json=json)
    if not report.outcome.finished:
        raise typer.Exit(EXIT_CODE)
