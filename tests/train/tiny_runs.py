"""Tiny recipes and a tiny corpus for fast runs."""

import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from torch import Tensor

from lightbert.config import from_mapping
from lightbert.data.batch import Batch
from lightbert.data.preparation import Settings, prepare
from lightbert.data.shards import Shards
from lightbert.models import PRESETS, build, folder
from lightbert.train.distributed import World, process_group
from lightbert.train.log import read
from lightbert.train.loop import Loop
from lightbert.train.pretraining import distill, make_distillation, pretrain
from lightbert.train.settings import CorpusRecipe, DistillRecipe, Recipe
from lightbert.train.signals import Interruption
from lightbert.train.step import Outcome, Phase

_SYLLABLES = ("ba", "ke", "li", "mo", "nu", "ra", "se", "ti")


def write_corpus(where: Path) -> Path:
    """Prepare text of 64 synthetic words, each with a likely successor, so that there is something to learn."""
    choose = random.Random(0)
    words = [first + second for first in _SYLLABLES for second in _SYLLABLES]

    def line() -> str:
        at = choose.randrange(64)
        chain = [at := (at * 5 + choose.choice((1, 1, 1, 7))) % 64 for _ in range(choose.randint(4, 9))]
        return " ".join(words[number] for number in chain)

    text = "\n\n".join("\n".join(line() for _ in range(choose.randint(3, 8))) for _ in range(300))
    where.mkdir(parents=True)
    (where / "text.txt").write_text(text)
    prepare(Settings(sources=(str(where / "text.txt"),), vocab_size=120, held_out=0.1), where / "data", workers=1)
    vocab = Shards(where / "data").vocab
    write_model(where / "model", vocab)
    write_model(where / "steady", vocab, dropout=0.0, attention_dropout=0.0)
    inside = {"depth": 3, "n_heads": 2, "heads": ("mlm", "nsp")}
    write_model(where / "teacher", vocab, "ib-bert-nano", block_width=24, inner=32, **inside)
    return where


def write_model(
    where: Path, vocab: int, preset: str = "convbert-tiny", heads: tuple[str, ...] = (), **changes: Any
) -> Path:
    """Save a model of a few thousand parameters to start from."""
    sizes = {"vocab": vocab, "positions": 32, "narrow": 8, "width": 16, "depth": 1, "inner": 32}
    model = build(replace(PRESETS[preset], **sizes | changes), heads={kind: {} for kind in heads}, seed=0)
    folder.save(model, where)
    return where


def recipe_of(corpus: Path, out: Path, **changes: Any) -> Recipe:
    """Replaced-token detection in twelve steps; ``model=str(corpus / "steady")`` has no dropout."""
    values: dict[str, Any] = {
        "model": str(corpus / "model"),
        "generator": 0.5,
        "data": str(corpus / "data"),
        "out": str(out),
        "steps": 12,
        "batch": 4,
        "length": 16,
        "lr": 1e-3,
        "schedule": {"warmup": 0.1},
        "checkpoint_every": 3,
        "keep_checkpoints": True,
        "evaluate_every": 5,
        "evaluate_batches": 2,
        "log_every": 4,
        "workers": 0,
        "device": "cpu",
        "compile": "none",
    }
    return from_mapping(Recipe, values | changes)


def distillation_of(corpus: Path, out: Path, **changes: Any) -> DistillRecipe:
    """Progressive transfer to a student of three layers in two steps each, then three steps of prediction."""
    values: dict[str, Any] = {
        "model": "mobilebert-nano",
        "change": {"positions": 32, "narrow": 8, "width": 16, "block_width": 8, "depth": 3, "n_heads": 2, "inner": 16},
        "teacher": str(corpus / "teacher"),
        "data": str(corpus / "data"),
        "out": str(out),
        "transfer_steps": 6,
        "steps": 3,
        "batch": 4,
        "length": 16,
        "lr": 1e-3,
        "schedule": {"warmup": 0.1},
        "checkpoint_every": 2,
        "keep_checkpoints": True,
        "evaluate_every": 4,
        "evaluate_batches": 2,
        "log_every": 4,
        "workers": 0,
        "device": "cpu",
        "compile": "none",
    }
    return from_mapping(DistillRecipe, values | changes)


def student_before(recipe: DistillRecipe) -> dict[str, Tensor]:
    """Return the student's weights before its first step."""
    with process_group(recipe.device) as world:
        objective, _ = make_distillation(recipe, Shards(recipe.data), folder.load(recipe.teacher), world)
    return {name: tensor.clone() for name, tensor in objective.student.state_dict().items()}


def run_by(recipe: CorpusRecipe, world: World, interrupted: Interruption) -> Outcome:
    """Run a recipe as its command does, without the report."""
    if isinstance(recipe, DistillRecipe):
        return distill(recipe, world, interrupted)
    assert isinstance(recipe, Recipe)
    return pretrain(recipe, world, interrupted)


def train(recipe: CorpusRecipe, stop_after: int = 0) -> Outcome:
    """Run a recipe in this process, as if a signal arrived during step ``stop_after``."""
    interrupted, train_on = Interruption(), Loop._train_on

    def interrupting(loop: Loop, batch: Batch, phase: Phase) -> None:
        train_on(loop, batch, phase)
        if loop.at.step == stop_after:
            interrupted.signal = signal.SIGTERM

    with mock.patch.object(Loop, "_train_on", interrupting), process_group(recipe.device) as world:
        return run_by(recipe, world, interrupted)


def records(out: Path, kind: str = "train") -> list[dict[str, Any]]:
    """Return the lines of a kind in a run's log."""
    return read(out / "metrics.jsonl", kind)


def results(out: Path) -> dict[str, bytes]:
    """Return the files that must not depend on interruptions: the models, the last checkpoint, the log."""
    last = max((out / "checkpoints").iterdir(), key=lambda path: int(path.name.removeprefix("step-")))
    files = [*last.iterdir(), *out.glob("*/*.safetensors"), out / "metrics.jsonl"]
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(files)}


def assert_same_results(out: Path, expected: Path) -> None:
    """Compare two finished runs byte by byte."""
    ours, theirs = results(out), results(expected)
    assert ours.keys() == theirs.keys()
    assert [name for name in theirs if ours[name] != theirs[name]] == []
