"""What every run on prepared text does: read batches, measure on held-out ones, train, write the models."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from lightbert.data.batches.batch import Specials
from lightbert.data.batches.loader import Loader
from lightbert.data.batches.whole_words import word_parts
from lightbert.data.corpus.shards import Shards
from lightbert.models import Model, folder
from lightbert.objectives.masker import Masker
from lightbert.objectives.objective import Objective
from lightbert.train.corpus_recipe import CorpusRecipe
from lightbert.train.distributed import World
from lightbert.train.loop import Loop
from lightbert.train.run import Outcome, Phase, Settings
from lightbert.train.sharding import gathered, is_sharded
from lightbert.train.signals import Interruption
from lightbert.train.step import Step

_PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40": 181e12, "L4": 121e12, "4090": 165e12}
"""Dense bf16, by the makers' data sheets."""


def make_masker(recipe: CorpusRecipe, shards: Shards) -> Masker:
    """What hides tokens of a batch."""
    tokenizer = shards.tokenizer()
    return Masker(
        recipe.masking,
        Specials.of(tokenizer),
        vocab=shards.vocab,
        seed=recipe.seed,
        continues=word_parts(tokenizer) if recipe.whole_words else None,
    )


def make_loader(recipe: CorpusRecipe, world: World, shards: Shards, number: int, batch: int, length: int) -> Loader:
    """The batches of a phase; phases are shuffled differently."""
    return Loader(
        shards,
        recipe.builder(),
        batch=batch,
        length=length,
        specials=Specials.of(shards.tokenizer()),
        seed=recipe.seed + number,
        settings=world.loading(recipe.workers),
    )


def train(
    recipe: CorpusRecipe,
    objective: Objective,
    phases: list[Phase],
    shards: Shards,
    world: World,
    interrupted: Interruption,
    *,
    flops_per_token: float = 0.0,
) -> Outcome:
    """Go through the phases from wherever the newest checkpoint is, and write the models at the end."""
    settings = settings_of(recipe, world, flops_per_token)
    outcome = Loop(objective, phases, settings, world, _measure(recipe, world)).run(interrupted)
    if outcome.finished:
        for name, model in objective.models().items():
            complete = _gathered(model, world) if is_sharded(objective) else model
            if world.is_main:
                folder.save(complete, settings.out / name, tokenizer=shards.tokenizer())
    world.barrier()
    return outcome


def _measure(recipe: CorpusRecipe, world: World) -> Callable[[Step], dict[str, float]] | None:
    """What gives the numbers on held-out text; None when none was held out."""
    if not any(record.split == "held-out" for record in Shards(recipe.data).manifest.shards):
        return None
    loader = make_loader(recipe, world, Shards(recipe.data, "held-out"), 0, recipe.batch, recipe.length)
    return partial(evaluate, loader=loader, batches=recipe.evaluate_batches)


@torch.no_grad()
def evaluate(step: Step, loader: Loader, batches: int) -> dict[str, float]:
    """Summarise the objective over the first batches of a held-out loader, without dropout.

    The batches, masks and samples are the same every time.
    """
    objective: Objective = step.objective
    objective.eval()
    tally = torch.zeros(len(objective.tallies), dtype=torch.double, device=step.world.device)
    # Compiling once more for a few batches without gradient would take longer than the batches.
    with torch.compiler.set_stance("force_eager"), step.autocast():
        for number in range(batches):
            batch = objective.prepare(loader.at(number).to(step.world.device))
            tally += objective(batch, objective.counts(batch)).tally
    objective.train()
    sums = step.world.sum(tally).tolist()
    return objective.summary(dict(zip(objective.tallies, sums, strict=True)))


def settings_of(recipe: CorpusRecipe, world: World, flops_per_token: float) -> Settings:
    """How the run goes, by its recipe."""
    name = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else ""
    peak = next((peak for part, peak in _PEAK_FLOPS.items() if part in name), 0.0)
    return Settings(recipe, flops_per_token=flops_per_token, peak_flops=peak, sharding=recipe.sharding)


def _gathered(model: Model, world: World) -> Model:
    """A whole copy of a model that is shared out, on the first process; all must ask."""
    tensors = gathered(model.state_dict(), world)
    copy = folder.from_description(folder.description(model), Path())
    if world.is_main:
        folder.fill(copy, tensors, Path())
    return copy
