"""Without dropout, our training steps equal those of transformers' model with PyTorch's AdamW."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from vocabularies import small_tokenizer

from lightbert.data.features import Features, Specials
from lightbert.data.loader import Buckets
from lightbert.interop import huggingface
from lightbert.models import PRESETS, build
from lightbert.nn.encoder import Encoder
from lightbert.objectives.task import TaskObjective
from lightbert.tasks.finetune.starting_model import set_head
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.regress import Regress
from lightbert.train.optim import Optimizers
from lightbert.train.settings import OptimizerSettings

transformers = pytest.importorskip("transformers")

RATES = [1e-3, 3e-3, 3e-3, 2e-3, 1e-3]
DECAY, EPS, CLIP = 0.01, 1e-8, 1.0


def pairs(targets: np.ndarray) -> Features:
    rows = [[2, *[5 + n % 8] * (1 + n % 4), 3, *[6 + n % 7] * (1 + n % 3), 3] for n in range(len(targets))]
    return Features.of(rows, [2 + 1 + n % 4 for n in range(len(targets))], targets=targets)


def start(kind: Classify | Regress) -> Encoder:
    torch.manual_seed(0)
    sizes = {"vocab": 13, "positions": 16, "narrow": 16, "width": 16, "depth": 2, "n_heads": 2, "inner": 32}
    config = replace(PRESETS["bert-tiny"], **sizes, dropout=0.0, attention_dropout=0.0)
    model = build(config, heads={"pooler": {}})
    model.tokenizer = small_tokenizer()
    set_head(model, kind, {"hidden": "tanh", "dropout": 0.0}, seed=0)
    return model


@pytest.mark.parametrize(
    ("kind", "targets"),
    [
        (Classify(("no", "yes")), np.arange(40) % 2),
        (Regress(0.0, 5.0, scaled=False), (np.arange(40) % 11 / 2).astype(np.float32)),
    ],
    ids=["labels", "numbers"],
)
def test_five_steps_lead_to_the_same_weights(kind: Classify | Regress, targets: np.ndarray, tmp_path: Path) -> None:
    model = start(kind)
    huggingface.write(model, tmp_path / "before")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "before").train()
    objective = TaskObjective(model, kind.head).train()
    settings = OptimizerSettings(eps=EPS, weight_decay=DECAY, bias_correction=True, clip=CLIP)
    ours, others = Optimizers(objective, settings), adamw(theirs)
    batches = Buckets(pairs(targets), batch=8, specials=Specials.of(model.tokenizer))
    for step, rate in enumerate(RATES):
        batch = batches.at(step)
        ours.zero_grad()
        objective(batch, objective.counts(batch)).total.backward()
        ours.set_rate(rate)
        ours.step()
        inputs = {"input_ids": batch.ids.long(), "attention_mask": batch.mask.long()}
        others.zero_grad()
        theirs(**inputs, token_type_ids=batch.segments.long(), labels=batch.targets).loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), CLIP)
        for group in others.param_groups:
            group["lr"] = rate
        others.step()
    theirs.save_pretrained(tmp_path / "after")
    learned = huggingface.read(tmp_path / "after").state_dict()
    assert learned.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.allclose(tensor, learned[name], atol=1e-5), name


def adamw(model: torch.nn.Module) -> torch.optim.AdamW:
    """Like transformers' Trainer: no weight decay for biases and norms."""
    plain = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in model.named_parameters() if not (name.endswith("bias") or "LayerNorm" in name)]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, eps=EPS)
