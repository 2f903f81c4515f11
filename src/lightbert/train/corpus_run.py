"""A training run on prepared text: its folder, batches, evaluation, and the models that are saved.

At the end it says what the training changed, and whether the model beats a trivial baseline.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from lightbert.config import to_mapping
from lightbert.data.features import Specials
from lightbert.data.loader import Loader
from lightbert.data.masking import word_parts
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.models import Model, build, folder
from lightbert.models.flops import flops
from lightbert.objectives.mlm import Masker
from lightbert.objectives.objective import Objective
from lightbert.train import log
from lightbert.train.compilation import compile_objective, kernels_ahead, run_eagerly
from lightbert.train.distributed import World, gather, is_sharded
from lightbert.train.loop import Loop
from lightbert.train.model_card import corpus_card
from lightbert.train.run_folder import finish, flatten, load_recipe, locked_run, read_result, save_recipe
from lightbert.train.settings import CorpusRecipe, Recipe
from lightbert.train.signals import Interruption
from lightbert.train.step import Outcome, Phase, Settings, Step


@dataclass(frozen=True)
class Plan:
    """What a run trains."""

    objective: Objective
    phases: list[Phase]
    recipe: CorpusRecipe
    """The keys of the run, with the data of the current phase."""
    shapes: Sequence[tuple[int, int]] = ()
    """Batch and length of each phase, whose kernels are compiled ahead."""
    continues: bool = False
    """Whether all models and heads were trained before, so that it says something to evaluate them at the start."""


@dataclass(frozen=True)
class Teacher:
    """A model that a run learns from: its key in the recipe, and the path that is set there."""

    key: str
    path: str
    model: nn.Module


def run(
    recipe: CorpusRecipe,
    world: World,
    interrupted: Interruption,
    shards: Shards,
    plan: Callable[[], Plan],
    *,
    teacher: Teacher | None = None,
    command: Sequence[str] = (),
) -> Outcome:
    """Train a recipe, resuming from the newest checkpoint if there is one; save ``out/final`` at the end.

    plan: called when the folder is locked and the run isn't finished.
    command: the words of the command, for the model card.
    """
    out, weights = Path(recipe.out), {}
    if teacher is not None:
        weights = {"teacher_weights": _fingerprint(teacher.model)}
    with locked_run(out, world):
        if teacher is not None:
            _check_teacher(out, teacher, weights)
        save_recipe(
            to_mapping(recipe) | weights,
            out,
            world,
            may_change=recipe.may_change,
            defaults=recipe.defaults,
            data_content=shards.content,
        )
        done = read_result(out, world, Outcome, keep_checkpoints=recipe.keep_checkpoints)
        if done is not None:
            return done
        made = plan()
        teachers = [] if teacher is None else [teacher.model]
        compile_objective(made.objective, recipe.compile, world.device, *teachers)
        packed = recipe.examples == "packed"
        with kernels_ahead(made.objective.models().values(), made.shapes, world, packed=packed):
            return _train(made, shards, world, interrupted, command)


def _train(plan: Plan, shards: Shards, world: World, interrupted: Interruption, command: Sequence[str]) -> Outcome:
    """Run the phases, starting from the newest checkpoint, and save the models and the result at the end."""
    recipe, objective, phases = plan.recipe, plan.objective, plan.phases
    check_batch_memory(max(phase.tokens for phase in phases), objective.models().values(), recipe.accumulate, world)
    measure = held_out_measure(recipe, world, by_batch=plan.continues)
    settings = replace(make_settings(recipe, objective, world), evaluates_start=plan.continues)
    outcome = Loop(objective, phases, settings, world, measure).run(interrupted)
    if outcome.finished:
        if world.is_main:
            outcome = _conclude(outcome, plan)
        for name, model in objective.models().items():
            complete = _gather_model(model, world) if is_sharded(objective) else model
            if world.is_main:
                card = corpus_card(recipe, outcome, complete, shards, command) if name == "final" else ""
                folder.save(complete, settings.out / name, tokenizer=shards.tokenizer(), card=card)
        if world.is_main:
            finish(settings.out, asdict(outcome), keep_checkpoints=recipe.keep_checkpoints)
    world.barrier()
    return outcome


def _conclude(outcome: Outcome, plan: Plan) -> Outcome:
    """Add to the result of a finished run what the training changed and what it read."""
    records = log.read(Path(plan.recipe.out) / "metrics.jsonl", "held-out")
    before = log.numbers(records[0]) if records and not records[0]["step"] else {}
    verdict = [_change(records) if before else "", compare_with_baseline(outcome.held_out, plan.recipe.data)]
    # The phases of a distillation read the same text.
    same_text = len(plan.phases) == 1 or not isinstance(plan.recipe, Recipe)
    passes = outcome.step / plan.phases[0].loader().steps_per_epoch if same_text else 0.0
    return replace(outcome, verdict="\n".join(filter(None, verdict)), passes=passes, before=before)


def _change(records: Sequence[Mapping[str, Any]]) -> str:
    """Say how the held-out losses changed from the start to the end.

    Every evaluation has the same batches, masks and random numbers, so that the interval is that of paired differences.
    A later phase may have other held-out text, which isn't compared.
    """
    before, after, changes, batches = records[0], records[-1], [], 0
    for name, values in after.get("by_batch", {}).items():
        differences, batches = np.subtract(values, before["by_batch"][name]), len(values)
        interval = f" ± {2 * differences.std(ddof=1) / batches**0.5:.4f}" if batches > 1 else ""
        change = f"{after[name] - before[name]:+.4f}{interval}"
        changes.append(f"{name} {before[name]:.4f} → {after[name]:.4f} ({change})")
    end = f"; ± is two standard errors over {batches} batches" if batches > 1 else ""
    return f"On held-out text: {'; '.join(changes)}{end}." if changes else ""


def held_out_measure(
    recipe: CorpusRecipe, world: World, *, by_batch: bool = False
) -> Callable[[Step], dict[str, Any]] | None:
    """Return the function that evaluates on held-out text; None if the data has no held-out split.

    by_batch: add the losses of each batch, as far as the batches differ.
    """
    if not any(record.split == "held-out" for record in Shards(recipe.data).manifest.shards):
        return None
    loader = make_loader(recipe, world, Shards(recipe.data, "held-out"), 0, recipe.batch, recipe.length)
    listed = min(recipe.evaluate_batches, max(1, loader.steps_per_epoch)) if by_batch else 0
    return partial(evaluate, loader=loader, batches=recipe.evaluate_batches, listed=listed)


@torch.no_grad()
def evaluate(step: Step, loader: Loader, batches: int, listed: int = 0) -> dict[str, Any]:
    """Evaluate the objective on the first batches of a held-out loader, without dropout.

    Every evaluation uses the same batches, masks and samples.
    listed: of how many batches "by_batch" lists the losses.
    """
    objective: Objective = step.objective
    objective.eval()
    tallies = []
    with run_eagerly(), step.autocast():
        for number in range(batches):
            batch = objective.prepare(loader.at(number).to(step.world.device))
            tallies.append(objective(batch, objective.counts(batch)).tally)
    objective.train()
    sums = step.world.sum(torch.stack(tallies))

    def summary(row: list[float]) -> dict[str, float]:
        return objective.summary(dict(zip(objective.tallies, row, strict=True)))

    metrics: dict[str, Any] = summary(sums.sum(0).tolist())
    if listed:
        rows = [summary(row) for row in sums[:listed].tolist()]
        metrics["by_batch"] = {name: [row[name] for row in rows] for name in metrics if name.endswith("_loss")}
    return metrics


_PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40": 181e12, "L4": 121e12, "4090": 165e12}
"""Dense bf16 FLOP/s from the vendors' data sheets."""


def make_settings(recipe: CorpusRecipe, objective: Objective, world: World) -> Settings:
    """Build the settings of a run from its recipe."""
    name = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else ""
    peak = next((peak for part, peak in _PEAK_FLOPS.items() if part in name), 0.0)
    # Without the FLOPs of a teacher, the share of the peak would be too small.
    if peak and isinstance(recipe, Recipe):
        # A backward pass takes twice the FLOPs of the forward pass.
        models = [build(model.config, device="meta") for model in objective.models().values()]
        peak *= recipe.length / (3.0 * sum(flops(model, recipe.length) for model in models))
    return Settings(recipe, peak=peak if isinstance(recipe, Recipe) else 0.0, sharding=recipe.sharding)


def _gather_model(model: Model, world: World) -> Model:
    """Gather a sharded model on the main process; every process must call this."""
    tensors = gather(model.state_dict(), world)
    copy = folder.from_description(folder.description(model), Path())
    if world.is_main:
        folder.fill(copy, tensors, Path())
    return copy


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
    specials, settings, seed = Specials.of(shards.tokenizer()), world.loading(recipe.workers), recipe.seed + number
    return Loader(shards, recipe.builder(), batch=batch, length=length, specials=specials, seed=seed, settings=settings)


# A share of equal labels above this one is no accident of a few hundred pairs.
_PAIRS, _DEGENERATE = 512, 0.98


def check_pairs(recipe: CorpusRecipe, loader: Loader) -> None:
    """Warn if nearly all pairs have the same label, so that predicting the next sentence teaches nothing."""
    if recipe.examples != "pairs":
        return
    steps = range(min(-(-_PAIRS // recipe.batch), loader.steps_per_epoch))
    labels = torch.cat([nsp for nsp in (loader.at(step).nsp for step in steps) if nsp is not None]).float()
    share = max(labels.mean().item(), 1 - labels.mean().item())
    if share >= _DEGENERATE:
        print(
            f"warning: {share:.1%} of the pairs have the same label, so that next-sentence prediction teaches nothing: "
            "documents need two sentences or more (lightbert prepare --sentences split); or use examples=packed",
            file=sys.stderr,
        )


def _check_teacher(out: Path, teacher: Teacher, weights: Mapping[str, str]) -> None:
    """Check that a resumed run has the same teacher; compared first because a message about hashes is unreadable."""
    before = load_recipe(out) or {}
    if any(before.get(field, value) != value for field, value in weights.items()):
        raise InputError(
            f"the run in '{out}' has {teacher.key} '{dict(flatten(before))[teacher.key]}', and '{teacher.path}' has "
            f"different weights; set out= to another folder, or restore {teacher.key}="
        )


def _fingerprint(model: nn.Module) -> str:
    """Return a hash of a model's weights, independent of the file format."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(memoryview(tensor.contiguous().flatten().view(torch.uint8).numpy()))
    return f"sha256:{digest.hexdigest()}"


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
    tokens //= world.size
    states = tokens // accumulate * sum(model.config.width * model.config.depth for model in models) * _BYTES_OF_NUMBER
    host, gpu, lower = machine_memory(), world.device.type == "cuda", "lower batch= or length="
    there = torch.cuda.get_device_properties(world.device).total_memory if gpu else host
    where = "the GPU" if gpu else "this machine"
    for place, least, limit, remedy in (
        ("this machine", tokens * _BYTES_OF_ID, host, lower),
        (where, states, there, f"{lower}, raise accumulate=, or choose a smaller model="),
    ):
        if limit is not None and least > limit:
            raise InputError(
                f"the memory of {place} is not sufficient: a step requires at least {least / 2**30:,.3g} GiB, there "
                f"are {limit / 2**30:.3g} GiB in total; {remedy}"
            )


def machine_memory() -> int | None:
    """Return the memory of this machine in bytes; None if the system doesn't tell."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in os.sysconf_names else None
