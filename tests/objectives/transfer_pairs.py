"""A small, compatible teacher and student, and batches for them."""

from dataclasses import replace

import torch
from torch import Tensor

from lightbert.data.batch import Batch
from lightbert.data.features import Specials
from lightbert.data.masking_settings import BERT
from lightbert.models import Config, build, preset
from lightbert.nn.encoder import Encoder
from lightbert.objectives.distill.objective import Distillation
from lightbert.objectives.distill.stages import Transfer
from lightbert.objectives.mlm import Masker
from randomised import randomised

SPECIALS = Specials(pad=0, cls=2, sep=3, mask=4)
DEPTH, HEADS = 3, 4
_SIZES = {"vocab": 40, "positions": 32, "narrow": 8, "width": 16, "depth": DEPTH, "n_heads": HEADS, "inner": 24}
TEACHER = replace(preset("ib-bert-nano"), **_SIZES, block_width=24)
STUDENT = replace(preset("mobilebert-nano"), **_SIZES, block_width=12, attention_dropout=0.5)
MIXED = replace(STUDENT, convolution="span", head_ratio=2, kernel=3)
HEAD_KINDS: dict[str, dict[str, object]] = {"mlm": {}, "nsp": {}}


def model_of(config: Config, seed: int = 0, heads: dict[str, dict[str, object]] = HEAD_KINDS) -> Encoder:
    """Build a model with random parameters that depend on the seed."""
    return randomised(build(config, heads=heads), seed)


def masker() -> Masker:
    return Masker(BERT, SPECIALS, vocab=40, seed=1)


def distillation(student: Config = STUDENT, teacher: Config = TEACHER, **options: object) -> Distillation:
    """Build a distillation of a student and a teacher with different random weights; layers are compared by default."""
    options = {"transfer": Transfer(), **options}
    return Distillation(model_of(student, 1), masker(), model_of(teacher, 2), **options)


def batch_of(rows: int = 4, length: int = 12, padding: int = 3) -> Batch:
    """Build a batch with ``padding`` columns of padding, slightly less in the first row."""
    ids = torch.randint(5, 40, (rows, length))
    ids[:, 0] = SPECIALS.cls
    ids[1:, length - padding :] = SPECIALS.pad
    return Batch(
        ids=ids,
        mask=ids != SPECIALS.pad,
        segments=torch.zeros_like(ids),
        rows=torch.arange(rows),
        step=torch.tensor(0),
        nsp=torch.arange(rows) % 2,
    )


def numbers(objective: Distillation, batch: Batch) -> dict[str, float]:
    """Return the metrics of a prepared batch."""
    tally: Tensor = objective(batch, objective.counts(batch)).tally
    return objective.summary(dict(zip(objective.tallies, tally.tolist(), strict=True)))
