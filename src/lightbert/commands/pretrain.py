"""`lightbert pretrain`: from token shards to a trained encoder, by a recipe."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.report import AsJson, show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.train.recipe import Recipe
    from lightbert.train.run import Outcome


@dataclass(frozen=True)
class Pretrained:
    """How a run ended, and where its results are."""

    out: Path
    outcome: "Outcome"
    leads: bool = True
    """Whether this process, of several, is the one that prints."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        outcome = self.outcome
        return {
            "out": str(self.out),
            "model": str(self.out / "final") if outcome.finished else None,
            "step": outcome.step,
            "finished": outcome.finished,
            "tokens_per_second": outcome.tokens_per_second,
            "metrics": outcome.held_out,
        }

    def __rich__(self) -> "RenderableType":
        outcome = self.outcome
        if not outcome.finished:
            return f"interrupted and saved at step {outcome.step:,}; the same command goes on from there"
        numbers = ", ".join(f"{name} {value:.4f}" for name, value in outcome.held_out.items()) or "not measured"
        steps, speed = f"{outcome.step:,} steps", f"{outcome.tokens_per_second:,.0f} tokens/s"
        return f"{steps} at {speed}; held out: {numbers}\nmodel: {self.out / 'final'}"


def run(recipe: "Recipe") -> Pretrained:
    """Train, or go on training, and write the models once the last step is done."""
    from lightbert.train.distributed import world
    from lightbert.train.pretraining import pretrain
    from lightbert.train.signals import interruption

    with interruption() as interrupted, world(recipe.device) as place:
        outcome = pretrain(recipe, place, interrupted, flops_per_token=_flops(recipe))
        if outcome.finished and place.leads:
            _draw(Path(recipe.out))
    return Pretrained(Path(recipe.out), outcome, leads=place.leads)


def command(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/tiny-rtd.toml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value pairs, such as data=DIR out=runs/x steps=100 batch=8.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Pre-train an encoder by replaced-token detection or masked-language modelling.

    The trained model is the folder OUT/final. Run the same command again to go on after an interruption: SIGTERM and
    SIGINT save a checkpoint and exit with code 75, a second signal stops at once.
    """
    from lightbert.config import resolve
    from lightbert.train.recipe import Recipe
    from lightbert.train.signals import EXIT_CODE

    report = run(resolve(Recipe, recipe, overrides or []))
    if report.leads:
        show(report, json=json)
    if not report.outcome.finished:
        raise typer.Exit(EXIT_CODE)


def _flops(recipe: "Recipe") -> float:
    """Training FLOPs per token: forward and twice that backward, of all models that run."""
    from lightbert.bench.flops import flops
    from lightbert.models import build
    from lightbert.models.generator import generator
    from lightbert.train.starting_model import starting_config

    config = starting_config(recipe)
    configs = [config, generator(config, recipe.generator)] if recipe.objective == "rtd" else [config]
    return 3.0 * sum(flops(build(each, device="meta"), recipe.length) for each in configs) / recipe.length


def _draw(out: Path) -> None:
    from lightbert.analysis.curves import draw_losses

    try:
        draw_losses(out / "metrics.jsonl", out / "loss.png")
    except ImportError:
        print("the loss curve needs matplotlib: pip install 'lightbert[plots]'", file=sys.stderr)
