"""A training run on prepared text: the models to start from, batches, evaluation, and the models that are saved.

At the end it says whether the model beats a trivial baseline.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from lightbert.config import from_mapping, to_mapping
from lightbert.data.features import Specials
from lightbert.data.loader import Loader
from lightbert.data.masking import word_parts
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.interop.load import FoundModel, ModelFolder, Preset, describe, find, generator_of, read
from lightbert.models import Config, Model, add_head, build, folder
from lightbert.models.folder import with_changes
from lightbert.models.presets import generator
from lightbert.objectives.masker import Masker
from lightbert.objectives.objective import Objective
from lightbert.ops.randomness import named
from lightbert.train.compilation import run_eagerly
from lightbert.train.distributed import World, gather, is_sharded
from lightbert.train.loop import Loop
from lightbert.train.model_card import corpus_card
from lightbert.train.run_folder import finish, flatten, load_recipe
from lightbert.train.settings import CorpusRecipe, Recipe
from lightbert.train.signals import Interruption
from lightbert.train.step import Outcome, Phase, Settings, Step

if TYPE_CHECKING:
    from tokenizers import Tokenizer


# Enough for the frequencies of a vocabulary, and counted in a second.
_MOST_TOKENS = 10_000_000


def compare_with_baseline(metrics: Mapping[str, float], data: str) -> str:
    """Say whether held-out metrics beat a baseline that ignores the text; "" if there is nothing to compare.

    For replaced-token detection, the baseline predicts "original" for every token. For masked-language modelling, it
    predicts the frequencies of the training tokens.
    data: the prepared folder of the run.
    """
    more = ""
    if "replaced" in metrics:
        name, value, baseline = "accuracy", metrics["rtd_accuracy"], 1 - metrics["replaced"]
        predicts, beats = "'original' for every token", value > baseline
        more = (
            f"; it detects {metrics['rtd_recall']:.0%} of the replaced tokens, and {metrics['rtd_precision']:.0%} of "
            "the tokens that it flags are replaced"
        )
    elif "mlm_loss" in metrics:
        name, value = "loss", metrics["mlm_loss"]
        baseline = unigram_loss(Shards(data), Shards(data, "held-out"))
        predicts, beats = "token frequencies", value < baseline
    else:
        return ""
    compared = f"the baseline that predicts {predicts}: {name} {value:.4f}, baseline {baseline:.4f}"
    if beats:
        return f"The model beats {compared}{more}."
    return f"The model doesn't beat {compared}. Train it for more steps or on more text before fine-tuning it."


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
        outcome = replace(outcome, verdict=compare_with_baseline(outcome.held_out, recipe.data))
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


def starting_config(recipe: CorpusRecipe) -> Config:
    """Return the model's config with the recipe's overrides, and with enough positions for the longest row."""
    if "vocab" in recipe.change:
        raise InputError("change.vocab can't be set: the data determines the vocabulary; remove it")
    config = describe(find(recipe.model)).config
    config = from_mapping(type(config), {**to_mapping(config), **recipe.change})
    if 0 < config.positions < recipe.longest:
        config = replace(config, positions=recipe.longest)
    if recipe.dropout is not None:
        config = replace(config, dropout=recipe.dropout, attention_dropout=recipe.dropout)
    return config


def starting_model(
    recipe: CorpusRecipe,
    vocab: int,
    heads: Collection[str],
    seed: int,
    tokenizer: "Tokenizer | None" = None,
    head_settings: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> Model:
    """Build the model with weights drawn from the seed, or load it, and add the heads to train.

    tokenizer: that of the data, which must have the token ids of a loaded model.
    """
    config = replace(starting_config(recipe), vocab=vocab)
    found = find(recipe.model)
    model = build(config, seed=seed) if isinstance(found, Preset) else _read(found, recipe.model, config)
    if tokenizer is not None and model.tokenizer is not None and model.tokenizer.get_vocab() != tokenizer.get_vocab():
        raise InputError(
            f"the model '{recipe.model}' and the data '{recipe.data}' must have the same vocabulary, but their token "
            f"ids differ; prepare the text with the model's tokenizer (lightbert prepare --tokenizer {recipe.model})"
        )
    model.checkpointing = recipe.checkpointing
    _add_heads(model, {*heads}, seed, head_settings)
    return model


def _add_heads(model: Model, kinds: set[str], seed: int, settings: Mapping[str, dict[str, Any]]) -> None:
    """Add the missing heads and freeze the heads that this run doesn't train."""
    for kind in sorted(kinds - {*model.heads}):
        add_head(model, kind, settings.get(kind), seed=seed)
    for kind, head in model.heads.items():
        head.requires_grad_(kind in kinds)


def _read(found: FoundModel, name: str, config: Config) -> Model:
    """Load the model, with the dropout rates of the config; all other fields must be those of the model."""
    model = with_dropout_of(config, read(found))
    if model.config != config:
        differs = next(k for k, v in to_mapping(config).items() if getattr(model.config, k) != v)
        was, now = getattr(model.config, differs), getattr(config, differs)
        remedies = {
            "vocab": f"; prepare the text with the model's tokenizer (lightbert prepare --tokenizer {name})",
            "positions": f"; set length= to at most {was}",
        }
        remedy = remedies.get(differs, "")
        raise InputError(f"'{name}' has {differs} = {was}, but the recipe and its data require {now}{remedy}")
    return model


def with_dropout_of(config: Config, model: Model) -> Model:
    """Return the model with the dropout rates of a config; weights don't depend on them."""
    rates = {"dropout": config.dropout, "attention_dropout": config.attention_dropout}
    same = all(getattr(model.config, name) == rate for name, rate in rates.items())
    return model if same else with_changes(model, rates)


NONE = "none"


def starting_generator(recipe: Recipe, discriminator: Model) -> Model:
    """Load the generator that belongs to the discriminator, or build one with weights drawn from the seed."""
    config = generator(discriminator.config, recipe.generator)
    path = find_generator(recipe)
    if path is None:
        # Generator and discriminator have the same parameter names: with one seed they would get the same weights.
        return build(config, heads={"mlm": {}}, seed=named(recipe.seed, "generator"))
    model = with_dropout_of(config, read(path)).train()
    if model.config != config or "mlm" not in model.heads:
        raise InputError(
            f"the generator '{path.name}' must have the size that generator={recipe.generator} gives for "
            f"'{recipe.model}', and an mlm head; set generator= to its size, or generator_model={NONE} to start with a "
            "new one"
        )
    return model


def find_generator(recipe: Recipe) -> ModelFolder | None:
    """Return the generator: the given one, or the one in the model's folder or next to it; None for random weights."""
    if recipe.generator_model == NONE:
        return None
    if not recipe.generator_model:
        return generator_of(find(recipe.model))
    found = find(recipe.generator_model)
    if not isinstance(found, ModelFolder):
        raise InputError(
            f"generator_model must be a trained model, got '{recipe.generator_model}'; give its folder, or {NONE}"
        )
    return found


def describe_generator(recipe: Recipe) -> str:
    """Say which generator a run starts with."""
    path = find_generator(recipe)
    return "random weights" if path is None else f"'{path.name}'"


def check_teacher(out: str, key: str, name: str, weights: Mapping[str, str]) -> None:
    """Check that a resumed run has the same teacher; compared first because a message about hashes is unreadable."""
    before = load_recipe(Path(out)) or {}
    if any(before.get(field, value) != value for field, value in weights.items()):
        raise InputError(
            f"the run in '{out}' has {key} '{dict(flatten(before))[key]}', and '{name}' has different weights; "
            f"set out= to another folder, or restore {key}="
        )


def fingerprint(model: nn.Module) -> str:
    """Return a hash of a model's weights, independent of the file format."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(memoryview(tensor.contiguous().flatten().view(torch.uint8).numpy()))
    return f"sha256:{digest.hexdigest()}"
