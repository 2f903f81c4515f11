"""A training run on prepared text: load batches, evaluate on held-out ones, train, save the models.

At the end it says whether the model beats a trivial baseline.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert.data.features import Specials
from lightbert.data.loader import Loader
from lightbert.data.masking import word_parts
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.models import Model, folder
from lightbert.objectives.masker import Masker
from lightbert.objectives.objective import Objective
from lightbert.train.compilation import run_eagerly
from lightbert.train.distributed import World, gather, is_sharded
from lightbert.train.loop import Loop
from lightbert.train.model_card import corpus_card
from lightbert.train.run_folder import finish
from lightbert.train.settings import CorpusRecipe
from lightbert.train.signals import Interruption
from lightbert.train.step import Outcome, Phase, Settings, Step

# Enough for the frequencies of a vocabulary, and counted in a second.
_MOST_TOKENS = 10_000_000


def verdict(metrics: Mapping[str, float], data: str) -> str:
    """Compare held-out metrics with a baseline that ignores the text; "" if there is nothing to compare.

    For replaced-token detection, the baseline predicts "original" for every token. For masked-language modelling, it
    predicts the frequencies of the training tokens.
    data: the prepared folder of the run.
    """
    if "replaced" in metrics:
        return _rtd_verdict(metrics)
    if "mlm_loss" in metrics:
        return _mlm_verdict(metrics["mlm_loss"], unigram_loss(Shards(data), Shards(data, "held-out")))
    return ""


def unigram_loss(train: Shards, held_out: Shards) -> float:
    """The cross-entropy of held-out tokens under the frequencies of the training tokens, with add-one smoothing."""
    seen, expected = (_counts(shards) for shards in (train, held_out))
    log_frequencies = np.log(seen + 1) - np.log((seen + 1).sum())
    return float(-(expected * log_frequencies).sum() / expected.sum())


def _counts(shards: Shards) -> NDArray[np.int64]:
    """The number of occurrences of each id among the first tokens."""
    counts, left = np.zeros(shards.vocab, dtype=np.int64), _MOST_TOKENS
    for shard in shards.shards:
        counts += np.bincount(shard.tokens[:left], minlength=shards.vocab)
        left -= min(left, len(shard.tokens))
    return counts


def _rtd_verdict(metrics: Mapping[str, float]) -> str:
    accuracy, baseline = metrics["rtd_accuracy"], 1 - metrics["replaced"]
    compared = f"accuracy {accuracy:.4f}, baseline {baseline:.4f}"
    if accuracy > baseline:
        return (
            f"The model beats the baseline that predicts 'original' for every token: {compared}; it detects "
            f"{metrics['rtd_recall']:.0%} of the replaced tokens, and {metrics['rtd_precision']:.0%} of the tokens "
            "that it flags are replaced."
        )
    return (
        f"The model doesn't beat the baseline that predicts 'original' for every token: {compared}. Train it for more "
        "steps or on more text before fine-tuning it."
    )


def _mlm_verdict(loss: float, baseline: float) -> str:
    compared = f"loss {loss:.4f}, baseline {baseline:.4f}"
    if loss < baseline:
        return f"The model beats the baseline that predicts token frequencies: {compared}."
    return (
        f"The model doesn't beat the baseline that predicts token frequencies: {compared}. Train it for more steps or "
        "on more text before fine-tuning it."
    )


# A token of a batch is at least an int64, and its states between blocks have at least two bytes per number.
_BYTES_OF_ID, _BYTES_OF_NUMBER = 8, 2


def check_batch_memory(tokens: int, models: Iterable[Model], accumulate: int, world: World) -> None:
    """Raise an error if the ids of a batch, or the states that its backward pass reads, exceed all memory there is.

    Both are lower bounds, so that no batch that fits is an error; others raise an error when memory runs out.
    tokens: those of a step, over all processes.
    """
    numbers = sum(model.config.width * model.config.depth for model in models)
    tokens //= world.size
    host = machine_memory()
    if host is not None and tokens * _BYTES_OF_ID > host:
        raise _error("this machine", tokens * _BYTES_OF_ID, host, "lower batch= or length=")
    states = tokens // accumulate * numbers * _BYTES_OF_NUMBER
    gpu = world.device.type == "cuda"
    there = torch.cuda.get_device_properties(world.device).total_memory if gpu else host
    if there is not None and states > there:
        where = "the GPU" if gpu else "this machine"
        raise _error(where, states, there, "lower batch= or length=, raise accumulate=, or choose a smaller model=")


def machine_memory() -> int | None:
    """Return the memory of this machine in bytes; None if the system doesn't tell."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in os.sysconf_names else None


def _error(where: str, least: int, there: int, remedy: str) -> InputError:
    return InputError(
        f"the memory of {where} is not sufficient: a step requires at least {least / 2**30:,.3g} GiB, there are "
        f"{there / 2**30:.3g} GiB in total; {remedy}"
    )


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
