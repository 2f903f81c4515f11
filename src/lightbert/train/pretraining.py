"""From a recipe to a run: data, models, objective and loop put together."""

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import torch

from lightbert.config import from_mapping, to_mapping
from lightbert.data.batch import Specials
from lightbert.data.loader import Loader
from lightbert.data.shards import Shards
from lightbert.data.whole_words import word_parts
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.models import PRESETS, Config, add_head, build, folder, preset
from lightbert.models.generator import generator
from lightbert.nn.encoder import Encoder
from lightbert.objectives.masker import Masker
from lightbert.objectives.mlm import MaskedLanguageModelling
from lightbert.objectives.objective import Objective
from lightbert.objectives.rtd import ReplacedTokenDetection
from lightbert.train.compilation import compile_objective
from lightbert.train.distributed import World
from lightbert.train.evaluation import evaluate
from lightbert.train.loop import Loop
from lightbert.train.recipe import Recipe
from lightbert.train.run import Outcome, Phase, Settings
from lightbert.train.sharding import gathered, is_sharded
from lightbert.train.signals import Interruption

_PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40": 181e12, "L4": 121e12, "4090": 165e12}
"""Dense bf16, by the makers' data sheets."""


def pretrain(recipe: Recipe, world: World, interrupted: Interruption, *, flops_per_token: float = 0.0) -> Outcome:
    """Train by a recipe, or go on where its folder's newest checkpoint is; write ``out/final`` at the end."""
    out = Path(recipe.out)
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    shards = Shards.open(recipe.data)
    _remember(recipe, out, world)
    objective = objective_of(recipe, shards)
    compile_objective(objective, recipe.compile)
    loader = cache(partial(_loader, recipe, world, shards))
    stretches = recipe.stretches(loader(0, recipe.batch, recipe.length).steps_per_epoch)
    phases = [
        Phase(
            partial(loader, number, part.batch, part.length),
            part.steps,
            part.lr,
            part.batch * part.length,
            recipe.schedule,
        )
        for number, part in enumerate(stretches)
    ]
    held_out = _held_out(recipe, world)
    measure = None if held_out is None else partial(evaluate, loader=held_out, batches=recipe.evaluate_batches)
    loop = Loop(objective, phases, _settings(recipe, out, world, flops_per_token), world, measure)
    outcome = loop.run(interrupted)
    if outcome.finished:
        for name, model in objective.models().items():
            complete = _gathered(model, world) if is_sharded(objective) else model
            if world.leads:
                folder.save(complete, out / name, tokenizer=shards.tokenizer())
    world.wait()
    return outcome


def _gathered(model: Encoder, world: World) -> Encoder:
    """A whole copy of a model that is shared out, on the first process; all must ask."""
    tensors = gathered(model.state_dict(), world)
    copy = folder.from_description(folder.description(model), Path())
    if world.leads:
        folder.fill(copy, tensors, Path())
    return copy


def starting_config(recipe: Recipe) -> Config:
    """The model's config with the recipe's changes, and with the positions that the longest phase needs."""
    config = _described(recipe.model) if _is_folder(recipe.model) else preset(recipe.model)
    config = from_mapping(type(config), {**to_mapping(config), **recipe.change})
    longest = max([recipe.length, *(phase.length for phase in recipe.phases)])
    if 0 < config.positions < longest:
        config = replace(config, positions=longest)
    if recipe.dropout is not None:
        config = replace(config, dropout=recipe.dropout, attention_dropout=recipe.dropout)
    return config


def objective_of(recipe: Recipe, shards: Shards) -> Objective:
    """Build the models with weights drawn from the seed, or read from a folder, and what trains them."""
    torch.manual_seed(recipe.seed)
    tokenizer = shards.tokenizer()
    masker = Masker(
        recipe.masking,
        Specials.of(tokenizer),
        vocab=shards.vocab,
        seed=recipe.seed,
        continues=word_parts(tokenizer) if recipe.whole_words else None,
    )
    config = replace(starting_config(recipe), vocab=shards.vocab)
    model = _started(recipe.model, config) if _is_folder(recipe.model) else build(config)
    model.checkpointing = recipe.checkpointing
    if recipe.objective == "mlm":
        _give_heads(model, {"mlm", "nsp"} if recipe.examples == "pairs" else {"mlm"})
        return MaskedLanguageModelling(model, masker)
    _give_heads(model, {"rtd"})
    small = build(generator(config, recipe.generator), heads={"mlm": {}})
    small.checkpointing = recipe.checkpointing
    return ReplacedTokenDetection(small, model, masker, temperature=recipe.temperature)


def _give_heads(model: Encoder, kinds: set[str]) -> None:
    """Add the heads that are not there yet; others, of a folder, stay as they are: nothing would train them."""
    for kind in sorted(kinds - {*model.heads}):
        add_head(model, kind)
    for kind, head in model.heads.items():
        head.requires_grad_(kind in kinds)


def _is_folder(model: str) -> bool:
    """Whether a recipe means a folder, there or not, rather than a preset's name, right or not."""
    return model not in PRESETS and (Path(model).exists() or len(Path(model).parts) > 1)


def _described(path: str) -> Config:
    described: Config = folder.from_description(folder.read_config(Path(path)), Path(path)).config
    return described


def _started(path: str, config: Config) -> Encoder:
    model = folder.load(path)
    if model.config != config:
        differs = next(k for k, v in to_mapping(config).items() if getattr(model.config, k) != v)
        was, now = getattr(model.config, differs), getattr(config, differs)
        raise InputError(f"'{path}' has {differs} = {was}, the recipe and its data need {now}")
    return model


def _loader(recipe: Recipe, world: World, shards: Shards, number: int, batch: int, length: int) -> Loader:
    """The batches of a phase; phases are shuffled differently."""
    return Loader(
        shards,
        recipe.builder(),
        batch=batch,
        length=length,
        specials=Specials.of(shards.tokenizer()),
        seed=recipe.seed + number,
        rank=world.rank,
        world=world.size,
        workers=recipe.workers,
        pin=world.device.type == "cuda",
    )


def _held_out(recipe: Recipe, world: World) -> Loader | None:
    shards = Shards(recipe.data)
    if not any(record.split == "held-out" for record in shards.manifest.shards):
        return None
    return _loader(recipe, world, Shards(recipe.data, "held-out"), 0, recipe.batch, recipe.length)


def _settings(recipe: Recipe, out: Path, world: World, flops_per_token: float) -> Settings:
    name = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else ""
    return Settings(
        out=out,
        seed=recipe.seed,
        optimizer=recipe.optimizer,
        accumulate=recipe.accumulate,
        max_minutes=recipe.max_minutes,
        checkpoint_every=recipe.checkpoint_every,
        keep=recipe.keep,
        evaluate_every=recipe.evaluate_every,
        log_every=recipe.log_every,
        flops_per_token=flops_per_token,
        peak_flops=next((peak for part, peak in _PEAK_FLOPS.items() if part in name), 0.0),
        cuda_graph=recipe.cuda_graph,
        sharding=recipe.sharding,
        tensorboard=recipe.tensorboard,
    )


def _remember(recipe: Recipe, out: Path, world: World) -> None:
    """Write the resolved recipe; refuse one that contradicts the run whose checkpoints are in the folder."""
    path = out / "recipe.json"
    if path.exists() and any((out / "checkpoints").glob("step-*")):
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InputError(f"'{path}' is damaged; remove it to go on with this recipe") from None
        recipe.refuse_other(before, out)
    elif world.leads:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(to_mapping(recipe), indent=2) + "\n")
    world.wait()
