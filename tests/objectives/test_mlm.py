"""Masked-language modelling, with and without next-sentence prediction."""

import math
from dataclasses import replace

import pytest
import torch

from lightbert.data.batch import Batch
from lightbert.data.features import Specials
from lightbert.data.masking_settings import BERT
from lightbert.models import build, preset
from lightbert.objectives.mlm import MaskedLanguageModelling, Masker

SPECIALS = Specials(pad=0, cls=2, sep=3, mask=4)


def make_objective(name, heads):
    config = replace(preset(name), vocab=40, depth=1, dropout=0.0, attention_dropout=0.0)
    return MaskedLanguageModelling(build(config, heads=heads), Masker(BERT, SPECIALS, vocab=40, seed=1))


def batch_of(rows=6, length=20, nsp=True):
    ids = torch.randint(5, 40, (rows, length))
    ids[:, 0], ids[:, -1] = SPECIALS.cls, SPECIALS.sep
    return Batch(
        ids=ids,
        mask=torch.ones_like(ids, dtype=torch.bool),
        segments=torch.zeros_like(ids),
        rows=torch.arange(rows),
        step=torch.tensor(0),
        nsp=torch.arange(rows) % 2 if nsp else None,
    )


@pytest.mark.parametrize("name", ["bert-tiny", "convbert-tiny", "composite-tiny", "mobilebert-nano", "ib-bert-nano"])
def test_every_family_overfits_a_batch(name):
    objective = make_objective(name, {"mlm": {}, "nsp": {}})
    batch = objective.prepare(batch_of())
    optimizer = torch.optim.AdamW(objective.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        loss = objective(batch, objective.counts(batch)).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_the_loss_of_an_untrained_model_is_the_logarithm_of_the_vocabulary_size():
    objective = make_objective("bert-tiny", {"mlm": {}, "nsp": {}})
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.zero_()
    batch = objective.prepare(batch_of())
    losses = objective(batch, objective.counts(batch))
    assert losses.total.item() == pytest.approx(math.log(40) + math.log(2), rel=1e-6)
    summary = objective.summary(dict(zip(objective.tallies, losses.tally.tolist(), strict=True)))
    assert summary["mlm_loss"] == pytest.approx(math.log(40), rel=1e-6)
    assert summary["nsp_loss"] == pytest.approx(math.log(2), rel=1e-6)
    assert summary["loss"] == pytest.approx(losses.total.item(), rel=1e-6)


def test_without_pairs_there_is_no_next_sentence_metric():
    objective = make_objective("composite-tiny", {"mlm": {}})
    batch = objective.prepare(batch_of(nsp=False))
    losses = objective(batch, objective.counts(batch))
    summary = objective.summary(dict(zip(objective.tallies, losses.tally.tolist(), strict=True)))
    assert "nsp_loss" not in summary
    assert summary["loss"] == summary["mlm_loss"]


def test_filler_positions_do_not_affect_the_loss():
    objective = make_objective("bert-tiny", {"mlm": {}})
    batch = objective.prepare(batch_of(nsp=False))
    padded = replace(
        batch,
        positions=torch.nn.functional.pad(batch.positions, (0, 3)),
        targets=torch.nn.functional.pad(batch.targets, (0, 3), value=7),
        weights=torch.nn.functional.pad(batch.weights, (0, 3)),
    )
    ours, theirs = (objective(each, objective.counts(each)) for each in (batch, padded))
    torch.testing.assert_close(ours.total, theirs.total)
    # The tally is a double that holds sums in single precision.
    torch.testing.assert_close(ours.tally.float(), theirs.tally.float())
