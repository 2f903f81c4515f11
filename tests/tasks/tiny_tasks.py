"""A tiny model and small training files that it can learn."""

import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from vocabularies import small_tokenizer

from lightbert.config import assignments
from lightbert.data.batch import Batch
from lightbert.models import PRESETS, build, folder
from lightbert.recipes import read
from lightbert.tasks.finetune.grid import RunResults, run_all
from lightbert.tasks.finetune.plan import plan
from lightbert.tasks.finetune.results import Result
from lightbert.train.distributed import process_group
from lightbert.train.loop import Loop
from lightbert.train.signals import Interruption
from lightbert.train.step import Phase

SETTINGS = ("epochs=2", "batch=4", "length=12", "lr=1e-2", "workers=0", "device=cpu", "checkpoint_every=3", "threads=1")

# For tests of what is learned: PyTorch draws the masks of dropout differently on each platform.
NO_DROPOUT = ("change.dropout=0.0", "change.attention_dropout=0.0", "head.dropout=0.0")


def write_model(where: Path, **changes: Any) -> Path:
    """Save a tiny ConvBERT with a vocabulary of a dozen words."""
    sizes = {"vocab": 13, "positions": 16, "narrow": 8, "width": 16, "depth": 1, "inner": 32}
    model = build(replace(PRESETS["convbert-tiny"], **sizes | changes), heads={"rtd": {}}, seed=0)
    folder.save(model, where, tokenizer=small_tokenizer())
    return where


def write_reviews(where: Path, rows: int = 48, labels: tuple[str, str] = ("bad", "good")) -> Path:
    """Write a table of texts that contain their label."""
    choose = random.Random(rows)
    lines = ["body,topic"]
    for _ in range(rows):
        label = choose.choice(labels)
        words = [*choose.choices(("a", "the", "film", "was"), k=choose.randint(1, 6)), label]
        choose.shuffle(words)
        lines.append(f"{' '.join(words)} .,{label}")
    where.write_text("\n".join(lines) + "\n")
    return where


def finetune(recipe: Path, *overrides: str, stop_after: int = 0) -> RunResults:
    """Run a plan in this process, as if a signal arrived during step ``stop_after``, counted over all its runs."""
    interrupted, train_on, steps = Interruption(), Loop._train_on, iter(range(1, 10_000))

    def interrupting(loop: Loop, batch: Batch, phase: Phase) -> None:
        train_on(loop, batch, phase)
        if next(steps) == stop_after:
            interrupted.signal = signal.SIGTERM

    with mock.patch.object(Loop, "_train_on", interrupting), process_group("cpu") as world:
        return run_all(plan(read(recipe), assignments([*SETTINGS, *overrides])), world, interrupted)


def results(out: Path) -> dict[str, bytes]:
    """The files that must not depend on interruptions: models and logs."""
    files = [*out.rglob("model.safetensors"), *out.rglob("metrics.jsonl")]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def only(done: RunResults) -> Result:
    """The result of a single run."""
    [(_, result)] = done
    return result
