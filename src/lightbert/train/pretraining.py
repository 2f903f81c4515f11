"""Run a pre-training recipe: data, models, objective and phases."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import torch

from lightbert.config import to_mapping
from lightbert.data.loader import Loader
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.interop.load import load
from lightbert.nn.pooling_settings import Pooling
from lightbert.objectives.mlm import MaskedLanguageModelling
from lightbert.objectives.objective import Objective
from lightbert.objectives.rtd import ReplacedTokenDetection
from lightbert.objectives.side_stream import SideStream
from lightbert.objectives.vectors import HEAD, VectorTransfer
from lightbert.train.checkpoint import phases_finished
from lightbert.train.compilation import compile_objective, kernels_ahead
from lightbert.train.corpus_run import (
    check_teacher,
    describe_generator,
    fingerprint,
    held_out_measure,
    make_loader,
    make_masker,
    starting_generator,
    starting_model,
    train,
)
from lightbert.train.distributed import World
from lightbert.train.run_folder import check_outside, locked_run, read_result, save_recipe
from lightbert.train.settings import PhaseValues, Recipe
from lightbert.train.signals import Interruption
from lightbert.train.step import Outcome, Phase, Step


def pretrain(
    recipe: Recipe,
    world: World,
    interrupted: Interruption,
    *,
    flops_per_token: float = 0.0,
    command: Sequence[str] = (),
) -> Outcome:
    """Train a recipe, resuming from the newest checkpoint if there is one; save ``out/final`` at the end.

    command: the words of the command, for the model card.
    """
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    check_outside(recipe.out, model=recipe.model, generator_model=recipe.generator_model)
    finished, begun = phases_finished(Path(recipe.out) / "checkpoints")
    # Only the data of the current phase has to be there.
    data = recipe.resolved_phases(0)[: finished + 1][-1].data
    shards = Shards.open(data, verify=world.is_main, again=recipe.verify)
    vectors = _vectors(recipe, shards)
    weights = {} if vectors is None else {"teacher_weights": fingerprint(vectors.teacher)}
    with locked_run(Path(recipe.out), world):
        check_teacher(recipe.out, "vectors.teacher", recipe.vectors.teacher, weights)
        save_recipe(
            to_mapping(recipe) | weights,
            Path(recipe.out),
            world,
            may_change=recipe.may_change,
            defaults=recipe.defaults,
            data_content=shards.content,
            finished=finished,
            begun=begun,
        )
        done = read_result(Path(recipe.out), world, Outcome, keep_checkpoints=recipe.keep_checkpoints)
        if done is not None:
            return done
        objective = make_objective(recipe, shards, vectors)
        if recipe.objective == "rtd" and world.is_main:
            print(f"generator: {describe_generator(recipe)}", file=sys.stderr)
        if isinstance(objective, ReplacedTokenDetection):
            _overlap(objective, recipe, world)
        compile_objective(objective, recipe.compile, world.device, *([] if vectors is None else [vectors.teacher]))
        phases = _phases(recipe, data, shards, world)
        recipe = replace(recipe, data=data)
        packed = recipe.examples == "packed"
        with kernels_ahead(objective.models().values(), _shapes(recipe, world), world, packed=packed):
            return train(
                recipe, objective, phases, shards, world, interrupted, flops_per_token=flops_per_token, command=command
            )


def _overlap(objective: ReplacedTokenDetection, recipe: Recipe, world: World) -> None:
    """Give the generator a stream of its own: on a GPU and in a single process, because DDP has its own streams."""
    if recipe.overlap is False or recipe.compile == "whole":
        return
    if world.device.type == "cuda" and world.size == 1:
        objective.generator_stream = SideStream(world.device)
    elif recipe.overlap is True and world.size > 1 and world.is_main:
        print("warning: overlap=true requires a single process; the backward passes run one by one", file=sys.stderr)


def _shapes(recipe: Recipe, world: World) -> list[tuple[int, int]]:
    """The batch and the length that a process runs at once, in each phase."""
    parts = world.size * recipe.accumulate
    return [(phase.batch // parts, phase.length) for phase in recipe.resolved_phases(0)]


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
        return make_loader(recipe, world, opened(data), number, batch, length)

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
    masker, tokenizer = make_masker(recipe, shards), shards.tokenizer()
    if recipe.objective == "mlm":
        heads = ("mlm", "nsp") if recipe.examples == "pairs" else ("mlm",)
        return MaskedLanguageModelling(starting_model(recipe, shards.vocab, heads, recipe.seed, tokenizer), masker)
    heads = ("rtd",) if vectors is None else ("rtd", HEAD)
    settings = {} if vectors is None else {HEAD: {"size": vectors.width}}
    model = starting_model(recipe, shards.vocab, heads, recipe.seed, tokenizer, settings)
    if vectors is not None:
        model.pooling = Pooling(normalize=True, projection=True)
    small = starting_generator(recipe, model)
    small.checkpointing = recipe.checkpointing
    return ReplacedTokenDetection(
        small,
        model,
        masker,
        rtd_weight=recipe.rtd_weight,
        temperature=recipe.temperature,
        shared_embeddings=recipe.shared_embeddings,
        vectors=vectors,
    )


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
