"""A training run on prepared text: load batches, evaluate on held-out ones, train, save the models."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

from lightbert.data.features import Specials
from lightbert.data.loader import Loader
from lightbert.data.masking import word_parts
from lightbert.data.shards import Shards
from lightbert.models import Model, folder
from lightbert.objectives.masker import Masker
from lightbert.objectives.objective import Objective
from lightbert.train.batch_memory import check_batch_memory
from lightbert.train.compilation import run_eagerly
from lightbert.train.corpus_card import corpus_card
from lightbert.train.corpus_recipe import CorpusRecipe
from lightbert.train.distributed import World
from lightbert.train.finished import finish
from lightbert.train.loop import Loop
from lightbert.train.run import Outcome, Phase, Settings
from lightbert.train.sharding import gather, is_sharded
from lightbert.train.signals import Interruption
from lightbert.train.step import Step
from lightbert.train.verdict import verdict

_PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40": 181e12, "L4": 121e12, "4090": 165e12}
"""Dense bf16 FLOP/s from the vendors' data sheets."""


def make_masker(recipe: CorpusRecipe, shards: Shards) -> Masker:
    """Build the masker of a recipe."""
    tokenizer = shards.tokenizer()
    return Masker(
        recipe.masking,
        Specials.of(tokenizer),
        vocab=shards.vocab,
        seed=recipe.seed,
        continues=word_parts(tokenizer) if recipe.whole_words else None,
    )


def make_loader(recipe: CorpusRecipe, world: World, shards: Shards, number: int, batch: int, length: int) -> Loader:
    """Build the loader of a phase; each phase has its own shuffle."""
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
    command: Sequence[str] = (),
) -> Outcome:
    """Run the phases, starting from the newest checkpoint, and save the models and the result at the end."""
    check_batch_memory(max(phase.tokens for phase in phases), objective.models().values(), recipe.accumulate, world)
    settings = make_settings(recipe, world, flops_per_token)
    outcome = Loop(objective, phases, settings, world, held_out_measure(recipe, world)).run(interrupted)
    if outcome.finished:
        outcome = replace(outcome, verdict=verdict(outcome.held_out, recipe.data))
        for name, model in objective.models().items():
            complete = _gather_model(model, world) if is_sharded(objective) else model
            if world.is_main:
                card = corpus_card(recipe, outcome, complete, shards, command) if name == "final" else ""
                folder.save(complete, settings.out / name, tokenizer=shards.tokenizer(), card=card)
        if world.is_main:
            finish(settings.out, asdict(outcome), keep_checkpoints=recipe.keep_checkpoints)
    world.barrier()
    return outcome


def held_out_measure(recipe: CorpusRecipe, world: World) -> Callable[[Step], dict[str, float]] | None:
    """Return the function that evaluates on held-out text; None if the data has no held-out split."""
    if not any(record.split == "held-out" for record in Shards(recipe.data).manifest.shards):
        return None
    loader = make_loader(recipe, world, Shards(recipe.data, "held-out"), 0, recipe.batch, recipe.length)
    return partial(evaluate, loader=loader, batches=recipe.evaluate_batches)


@torch.no_grad()
def evaluate(step: Step, loader: Loader, batches: int) -> dict[str, float]:
    """Evaluate the objective on the first batches of a held-out loader, without dropout.

    Every evaluation uses the same batches, masks and samples.
    """
    objective: Objective = step.objective
    objective.eval()
    tally = torch.zeros(len(objective.tallies), dtype=torch.double, device=step.world.device)
    with run_eagerly(), step.autocast():
        for number in range(batches):
            batch = objective.prepare(loader.at(number).to(step.world.device))
            tally += objective(batch, objective.counts(batch)).tally
    objective.train()
    sums = step.world.sum(tally).tolist()
    return objective.summary(dict(zip(objective.tallies, sums, strict=True)))


def make_settings(recipe: CorpusRecipe, world: World, flops_per_token: float) -> Settings:
    """Build the settings of a run from its recipe."""
    name = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else ""
    peak = next((peak for part, peak in _PEAK_FLOPS.items() if part in name), 0.0)
    return Settings(recipe, flops_per_token=flops_per_token, peak_flops=peak, sharding=recipe.sharding)


def _gather_model(model: Model, world: World) -> Model:
    """Gather a sharded model on the main process; every process must call this."""
    tensors = gather(model.state_dict(), world)
    copy = folder.from_description(folder.description(model), Path())
    if world.is_main:
        folder.fill(copy, tensors, Path())
    return copy
