"""Fine-tuning steps for the training benchmark: a classifier on rows whose lengths are those of short sentences."""

import itertools
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert.data.batches.buckets import Buckets
from lightbert.data.examples.features import Features
from lightbert.data.examples.specials import Specials
from lightbert.models import build
from lightbert.objectives.task import TaskObjective
from lightbert.train.cuda_graph import CudaGraphStep
from lightbert.train.distributed import World
from lightbert.train.optim import Optimizers
from lightbert.train.optimizer_settings import OptimizerSettings
from lightbert.train.step import Step

_ROWS, _LONGEST, _WIDTH_MULTIPLE = 8192, 66, 16


def sentence_lengths() -> NDArray[np.int64]:
    """Lengths like those of SST-2's training phrases: 14 tokens on average, at most 66."""
    drawn = np.random.default_rng(0).gamma(1.6, 6.7, _ROWS)
    lengths: NDArray[np.int64] = np.clip(np.rint(drawn) + 3, 3, _LONGEST).astype(np.int64)
    return lengths


def finetune_step(model: str, batch: int, specials: Specials, device: torch.device) -> Callable[[], object]:
    """Return a function that runs the next step, as the training loop does: batch, copy to the device, step."""
    encoder = build(model, heads={"classify": {"labels": 2}}, seed=0)
    lengths = sentence_lengths()
    drawn = np.random.default_rng(1)
    rows = [drawn.integers(5, encoder.table.shape[0], length).tolist() for length in lengths]
    features = Features.of(rows, lengths.tolist(), targets=drawn.integers(0, 2, len(rows)))
    objective = TaskObjective(encoder, "classify").to(device).train()
    world = World(0, 1, device)
    on_gpu = device.type == "cuda"
    optimizers = Optimizers(objective, OptimizerSettings(bias_correction=True))
    optimizers.set_rate(1e-5)
    step = (CudaGraphStep if on_gpu else Step)(objective, optimizers, world)
    multiple = _WIDTH_MULTIPLE if on_gpu else 1
    batches = Buckets(features, batch=batch, specials=specials, multiple=multiple, settings=world.loading(2))
    # Prepared before, so that the time is that of the steps; the loop prefetches them with threads.
    ready = itertools.cycle([batches.at(number) for number in range(batches.steps_per_epoch)])
    return lambda: step(next(ready).to(device))
