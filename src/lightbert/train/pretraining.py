"""Recipes of pre-training and of distillation: the models to start from, the objective and the phases."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lightbert.config import from_mapping, to_mapping
from lightbert.data.loader import Loader
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.interop.load import FoundModel, ModelFolder, Preset, describe, find, generator_of, load, read
from lightbert.models import Config, Model, add_head, build
from lightbert.models.folder import with_changes
from lightbert.models.presets import generator
from lightbert.objectives import objective_class
from lightbert.objectives.distill.objective import Distillation
from lightbert.objectives.distill.pair import copy_embeddings
from lightbert.objectives.distill.stages import Stage, stages
from lightbert.objectives.objective import Objective, Start
from lightbert.objectives.rtd import ReplacedTokenDetection, SideStream
from lightbert.objectives.vectors import VectorTransfer
from lightbert.ops.randomness import named
from lightbert.train.checkpoint import newest_facts
from lightbert.train.corpus_run import Plan, Teacher, check_pairs, held_out_measure, make_loader, make_masker, run
from lightbert.train.distributed import World
from lightbert.train.run_folder import check_outside
from lightbert.train.settings import CorpusRecipe, DistillRecipe, PhaseValues, Recipe, Schedule
from lightbert.train.signals import Interruption
from lightbert.train.step import Outcome, Phase, Step

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def pretrain(recipe: Recipe, world: World, interrupted: Interruption, *, command: Sequence[str] = ()) -> Outcome:
    """Pre-train, resuming from the newest checkpoint if there is one; save ``out/final`` at the end.

    command: the words of the command, for the model card.
    """
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    check_outside(recipe.out, model=recipe.model, generator_model=recipe.generator_model)
    # An unknown model is an error before data is read.
    starting_config(recipe)
    finished = newest_facts(Path(recipe.out) / "checkpoints").get("phase", 0)
    # Only the data of the current phase has to be there.
    data = recipe.resolved_phases(0)[: finished + 1][-1].data
    shards = Shards.open(data, verify=world.is_main, again=recipe.verify)
    vectors = _vectors(recipe, shards)

    def plan() -> Plan:
        objective = make_objective(recipe, shards, vectors)
        source = find(recipe.model)
        continues = not isinstance(source, Preset)
        if continues:
            continues = objective.models()["final"].heads.keys() <= describe(source).heads.keys()
        if isinstance(objective, ReplacedTokenDetection):
            path = find_generator(recipe)
            continues = continues and path is not None
            if world.is_main:
                print(f"generator: {'random weights' if path is None else repr(path.name)}", file=sys.stderr)
            _overlap(objective, recipe, world)
        phases = _phases(recipe, data, shards, world)
        parts = world.size * recipe.accumulate
        shapes = [(phase.batch // parts, phase.length) for phase in recipe.resolved_phases(0)]
        return Plan(objective, phases, replace(recipe, data=data), shapes, continues)

    teacher = None if vectors is None else Teacher("vectors.teacher", recipe.vectors.teacher, vectors.teacher)
    return run(recipe, world, interrupted, shards, plan, teacher=teacher, command=command)


def _overlap(objective: ReplacedTokenDetection, recipe: Recipe, world: World) -> None:
    """Give the generator a stream of its own: on a GPU and in a single process, because DDP has its own streams."""
    if recipe.overlap is False or recipe.compile == "whole":
        return
    if world.device.type == "cuda" and world.size == 1:
        objective.generator_stream = SideStream(world.device)
    elif recipe.overlap is True and world.size > 1 and world.is_main:
        print("warning: overlap=true requires a single process; the backward passes run one by one", file=sys.stderr)


def _phases(recipe: Recipe, current: str, shards: Shards, world: World) -> list[Phase]:
    """Build the phases; the data of all but the current one is read when they begin."""

    @cache
    def opened(data: str) -> Shards:
        if data == current:
            return shards
        other = Shards.open(data, verify=world.is_main, again=recipe.verify)
        if other.tokenizer().get_vocab() != shards.tokenizer().get_vocab():
            raise InputError(
                f"the folders of all phases must have the same vocabulary, but those of '{data}' and "
                f"'{recipe.data}' differ; prepare both with the same --tokenizer"
            )
        return other

    @cache
    def loader(number: int, data: str, batch: int, length: int) -> Loader:
        made = make_loader(recipe, world, opened(data), number, batch, length)
        if world.is_main:
            check_pairs(recipe, made)
        return made

    def phase(number: int, part: PhaseValues) -> Phase:
        return Phase(
            partial(loader, number, part.data, part.batch, part.length),
            part.steps,
            part.lr,
            part.batch * part.length,
            part.schedule,
            content=lambda: opened(part.data).content,
            measure=_measure_of(replace(recipe, data=part.data), world) if part.data != current else None,
        )

    per_epoch = loader(0, recipe.data, recipe.batch, recipe.length).steps_per_epoch if recipe.epochs else 0
    return [phase(number, part) for number, part in enumerate(recipe.resolved_phases(per_epoch))]


def _measure_of(recipe: Recipe, world: World) -> Callable[[Step], dict[str, float]]:
    """Return the evaluation on the held-out text of a phase, which is read when it is needed first."""
    measure = cache(partial(held_out_measure, recipe, world))
    return lambda step: (measure() or (lambda step: {}))(step)


def make_objective(recipe: Recipe, shards: Shards, vectors: VectorTransfer | None = None) -> Objective:
    """Build the objective and its models, with weights drawn from the seed or read from a folder."""
    tokenizer = shards.tokenizer()

    def model(heads: Mapping[str, dict[str, Any]]) -> Model:
        return starting_model(recipe, shards.vocab, heads, recipe.seed, tokenizer)

    start = Start(recipe, make_masker(recipe, shards), model, partial(starting_generator, recipe), vectors)
    return objective_class(recipe.objective).start(start)


def _vectors(recipe: Recipe, shards: Shards) -> VectorTransfer | None:
    """Load the teacher of vectors."""
    settings = recipe.vectors
    if not settings.teacher:
        return None
    teacher = load(settings.teacher)
    if teacher.require_tokenizer().get_vocab() != shards.tokenizer().get_vocab():
        raise InputError(
            f"vectors.teacher '{settings.teacher}' and the data '{shards.folder}' must have the same vocabulary; "
            f"prepare the text with its tokenizer (lightbert prepare --tokenizer {settings.teacher})"
        )
    if 0 < teacher.positions < recipe.longest:
        raise InputError(
            f"length must be <= {teacher.positions}, the positions of vectors.teacher '{settings.teacher}', got "
            f"{recipe.longest}"
        )
    return VectorTransfer(teacher, weight=settings.weight, similarity=settings.similarity)


_WITHIN_A_STAGE = Schedule("progressive", warmup=0.1)


def distill(recipe: DistillRecipe, world: World, interrupted: Interruption, *, command: Sequence[str] = ()) -> Outcome:
    """Distil, resuming from the newest checkpoint if there is one; save ``out/final`` at the end.

    command: the words of the command, for the model card.
    """
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    check_outside(recipe.out, model=recipe.model, teacher=recipe.teacher)
    shards = Shards.open(recipe.data, verify=world.is_main, again=recipe.verify)
    teacher = load_teacher(recipe)

    def plan() -> Plan:
        objective, planned = make_distillation(recipe, shards, teacher, world)
        if world.is_main:
            check_pairs(recipe, make_loader(recipe, world, shards, 0, recipe.batch, recipe.length))
        phases = [
            Phase(
                partial(make_loader, recipe, world, shards, number, recipe.batch, recipe.length),
                stage.steps,
                recipe.lr,
                recipe.batch * recipe.length,
                recipe.schedule if stage.schedule == "recipe" else _WITHIN_A_STAGE,
                stage.scales,
                partial(objective.set_stage, stage),
            )
            for number, stage in enumerate(planned)
        ]
        return Plan(objective, phases, recipe)

    source = None if teacher is None else Teacher("teacher", recipe.teacher, teacher)
    return run(recipe, world, interrupted, shards, plan, teacher=source, command=command)


def make_distillation(
    recipe: DistillRecipe, shards: Shards, teacher: Model | None, world: World
) -> tuple[Distillation, list[Stage]]:
    """Build the student, copy the teacher's embeddings and heads if asked for, and plan the stages."""
    heads = ("mlm", "nsp") if recipe.examples == "pairs" else ("mlm",)
    tokenizer = shards.tokenizer()
    # The teacher may have been initialised with this seed under the same parameter names.
    seed = named(recipe.seed, "student")
    student = starting_model(recipe, shards.vocab, {kind: {} for kind in heads}, seed, tokenizer)
    student.tokenizer = tokenizer
    objective = Distillation(
        student,
        make_masker(recipe, shards),
        teacher,
        transfer=recipe.transfer if recipe.transfers_layers else None,
        alpha=recipe.alpha,
        dropout=recipe.dropout is not None,
        seed=recipe.seed,
    )
    free = frozenset(f"embeddings.{name}" for name, _ in student.embeddings.named_parameters())
    copies = recipe.starts_with_layers if recipe.copy is None else recipe.copy
    if teacher is not None and copies:
        free = copy_embeddings(teacher, student, norm=recipe.norm)
    steps = recipe.steps
    if recipe.epochs:
        loader = make_loader(recipe, world, shards, 0, recipe.batch, recipe.length)
        steps = recipe.epochs * loader.steps_per_epoch
    plan = stages(
        recipe.strategy,
        depth=len(student.blocks),
        transfer_steps=recipe.transfer_steps,
        predict_steps=steps,
        rate=recipe.layer_rate,
        soft=recipe.soft if recipe.lower == "soft" else 0.0,
        free=free,
    )
    return objective, plan


def load_teacher(recipe: DistillRecipe) -> Model | None:
    """Load the teacher; None if the strategy has none."""
    if not recipe.needs_teacher:
        return None
    teacher = load(recipe.teacher)
    if 0 < teacher.positions < recipe.length:
        raise InputError(
            f"length must be <= {teacher.positions}, the positions of teacher '{recipe.teacher}', got {recipe.length}"
        )
    return teacher


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
    heads: Mapping[str, dict[str, Any]],
    seed: int,
    tokenizer: "Tokenizer | None" = None,
) -> Model:
    """Build the model with weights drawn from the seed, or load it, and add the heads to train, kind -> settings.

    tokenizer: that of the data, which must have the token ids of a loaded model.
    """
    config = replace(starting_config(recipe), vocab=vocab)
    source = find(recipe.model)
    model = build(config, seed=seed) if isinstance(source, Preset) else _read(source, recipe.model, config)
    if tokenizer is not None and model.tokenizer is not None and model.tokenizer.get_vocab() != tokenizer.get_vocab():
        raise InputError(
            f"the model '{recipe.model}' and the data '{recipe.data}' must have the same vocabulary, but their token "
            f"ids differ; prepare the text with the model's tokenizer (lightbert prepare --tokenizer {recipe.model})"
        )
    model.checkpointing = recipe.checkpointing
    for kind in sorted(heads.keys() - {*model.heads}):
        add_head(model, kind, heads[kind], seed=seed)
    # Heads that this run doesn't train.
    for kind, head in model.heads.items():
        head.requires_grad_(kind in heads)
    return model


def _read(source: FoundModel, name: str, config: Config) -> Model:
    """Load the model, with the dropout rates of the config; all other fields must be those of the model."""
    model = _with_dropout_of(config, read(source))
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


def _with_dropout_of(config: Config, model: Model) -> Model:
    """Return the model with the dropout rates of a config; weights don't depend on them."""
    rates = {"dropout": config.dropout, "attention_dropout": config.attention_dropout}
    same = all(getattr(model.config, name) == rate for name, rate in rates.items())
    return model if same else with_changes(model, rates)


NONE = "none"


def starting_generator(recipe: Recipe, discriminator: Model) -> Model:
    """Load the generator that belongs to the discriminator, or build one with weights drawn from the seed."""
    config, path = generator(discriminator.config, recipe.generator), find_generator(recipe)
    if path is None:
        # Generator and discriminator have the same parameter names: with one seed they would get the same weights.
        model = build(config, heads={"mlm": {}}, seed=named(recipe.seed, "generator"))
    else:
        model = _with_dropout_of(config, read(path)).train()
    model.checkpointing = recipe.checkpointing
    if path is not None and (model.config != config or "mlm" not in model.heads):
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
    source = find(recipe.generator_model)
    if not isinstance(source, ModelFolder):
        raise InputError(
            f"generator_model must be a trained model, got '{recipe.generator_model}'; give its folder, or {NONE}"
        )
    return source
