"""The fine-tuning losses of every task head."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lightbert.data.batch import Batch, pack_rows
from lightbert.data.features import Features, pack
from lightbert.errors import InputError
from lightbert.models import add_head, build, preset
from lightbert.nn.heads import JointLogits, SpanLogits
from lightbert.objectives.task import (
    TaskObjective,
    joint_span_loss,
    label_loss,
    multilabel_loss,
    regression_loss,
    span_loss,
)

HEADS = {
    "classify": {"labels": 3, "dropout": 0.0},
    "labels": {"labels": 3, "dropout": 0.0},
    "classify mean-max": {"labels": 3, "dropout": 0.0, "pool": "mean-max"},
    "regress": {"dropout": 0.0},
    "regress mean": {"dropout": 0.0, "pool": "mean"},
    "tokens": {"labels": 3, "dropout": 0.0},
    "span": {},
    "beam": {"inner": 8, "beam": 4},
}


def head_of(kind: str) -> str:
    return "classify" if kind == "labels" else kind.partition(" ")[0]


def make_objective(kind: str, name: str = "convbert-tiny") -> TaskObjective:
    config = replace(preset(name), vocab=40, depth=1, dropout=0.0, attention_dropout=0.0)
    return TaskObjective(build(config, heads={head_of(kind): HEADS[kind]}), head_of(kind))


def batch_of(kind: str, rows: int = 8, length: int = 12) -> Batch:
    # Long enough for every answer.
    lengths = torch.randint(7, length + 1, (rows, 1))
    mask = torch.arange(length) < lengths
    numbers = torch.randint(0, 3, (rows, length)).masked_fill(~mask, -100)
    starts = torch.randint(4, 6, (rows,))
    targets = {
        "classify": numbers[:, 0],
        "labels": (torch.rand(rows, 3) > 0.5).float(),
        "regress": torch.rand(rows),
        "tokens": numbers.index_fill(1, torch.tensor([0, 3]), -100),
        "span": torch.stack([starts, starts + 1, torch.zeros_like(starts)], 1),
        "beam": torch.stack([starts, starts, torch.zeros_like(starts)], 1),
    }
    return Batch(
        ids=torch.randint(5, 40, (rows, length)).masked_fill(~mask, 0),
        mask=mask,
        segments=((torch.arange(length) >= 4) & mask).long(),
        rows=torch.arange(rows),
        step=torch.tensor(0),
        targets=targets[kind.partition(" ")[0]],
    )


def loss_and_gradients(objective: TaskObjective, parts: list[Batch]) -> tuple[float, list[torch.Tensor]]:
    counts = torch.stack([objective.counts(part) for part in parts]).sum(0)
    objective.zero_grad()
    losses = [objective(part, counts).total for part in parts]
    sum(losses).backward()
    return sum(losses).item(), [each.grad.clone() for each in objective.parameters() if each.grad is not None]


@pytest.mark.parametrize("kind", HEADS)
def test_a_step_does_not_depend_on_how_the_batch_is_split(kind):
    objective, batch = make_objective(kind), batch_of(kind)
    whole, gradients = loss_and_gradients(objective, [batch])
    for parts in (2, 8):
        loss, others = loss_and_gradients(objective, batch.split(parts))
        assert loss == pytest.approx(whole, rel=1e-5)
        for one, other in zip(gradients, others, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_overfits_a_batch(kind):
    objective, batch = make_objective(kind), batch_of(kind, rows=4)
    optimizer = torch.optim.AdamW(objective.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        result = objective(batch, objective.counts(batch))
        optimizer.zero_grad()
        result.total.backward()
        optimizer.step()
        losses.append(result.total.item())
    assert losses[-1] < 0.3 * losses[0]
    summary = objective.summary(dict(zip(objective.tallies, result.tally.tolist(), strict=True)))
    assert summary["loss"] == pytest.approx(losses[-1], rel=1e-5)
    assert summary.get("accuracy", 1.0) > 0.7


def test_gradients_reach_the_encoder_and_the_head():
    objective, batch = make_objective("beam"), batch_of("beam")
    objective(batch, objective.counts(batch)).total.backward()
    untouched = {name for name, each in objective.named_parameters() if each.grad is None or not each.grad.any()}
    # A constant added to all logits doesn't change a softmax: its gradient is zero up to rounding.
    assert untouched <= {"model.heads.beam.end_output.bias"}


def test_token_tasks_count_tokens_with_a_target_and_other_tasks_count_rows():
    batch = batch_of("tokens")
    assert make_objective("tokens").counts(batch).item() == (batch.targets != -100).sum()
    for kind in ("classify", "labels", "regress", "span", "beam"):
        assert make_objective(kind).counts(batch_of(kind)).item() == 8


def test_ignored_targets_do_not_affect_the_loss():
    logits, targets = torch.randn(2, 3, 4), torch.tensor([[1, -100, 2], [-100, -100, 0]])
    loss, correct = label_loss(logits, targets)
    rows = [(0, 0), (0, 2), (1, 2)]
    assert loss.item() == pytest.approx(sum(F.cross_entropy(logits[at], targets[at]).item() for at in rows))
    assert correct.item() == sum(logits[at].argmax().item() == targets[at].item() for at in rows)


def test_the_multilabel_loss_is_the_mean_over_labels():
    logits, targets = torch.tensor([[0.0, 0.0], [3.0, -3.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    loss, correct = multilabel_loss(logits, targets)
    assert loss.item() == pytest.approx(math.log(2) + math.log1p(math.exp(-3)), rel=1e-6)
    # A logit of 0 is not above one half, so that the first row lacks a label.
    assert correct.item() == 1


def test_the_regression_loss_is_the_squared_error():
    assert regression_loss(torch.tensor([0.5, 2.0]), torch.tensor([1.0, 0.0])).loss.item() == pytest.approx(4.25)


def test_the_span_loss_is_the_mean_over_start_and_end():
    start, end = torch.zeros(1, 4), torch.tensor([[0.0, 0.0, 9.0, 0.0]])
    loss, correct = span_loss(SpanLogits(start, end), torch.tensor([[0, 2, 0]]))
    expected = (math.log(4) - F.log_softmax(end, -1)[0, 2].item()) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert correct.item() == 1


def test_the_joint_head_adds_half_the_loss_of_answerability():
    logits = JointLogits(torch.zeros(2, 4), torch.zeros(2, 1), torch.zeros(2, 1, 4), torch.tensor([0.0, 2.0]))
    loss = joint_span_loss(logits, torch.tensor([[0, 0, 0], [0, 0, 1]])).loss
    answerable = math.log(2) + math.log1p(math.exp(-2))
    assert loss.item() == pytest.approx(2 * math.log(4) + 0.5 * answerable, rel=1e-6)


def test_missing_heads_and_pretraining_heads_raise_an_error():
    model = make_objective("classify").model
    with pytest.raises(InputError, match="has no 'regress' head; add it with add_head"):
        TaskObjective(model, "regress")
    add_head(model, "mlm")
    with pytest.raises(InputError, match="head must be one that is fine-tuned, such as classify or tokens, got 'mlm'"):
        TaskObjective(model, "mlm")


def packed(kind: str, batch: Batch, width: int = 27) -> Batch:
    """The same texts in packed rows; their order stays."""
    real = [row[mask].tolist() for row, mask in zip(batch.ids, batch.mask, strict=True)]
    targets = batch.targets[batch.mask] if kind == "tokens" else batch.targets
    features = Features.of(real, [4] * len(real), targets=targets.numpy(), per_token=kind == "tokens")
    packing = pack(features.lengths, width)
    assert packing.rows < len(real)
    chosen = np.arange(len(real))
    return pack_rows(features, chosen, packing, packing.rows + 1, 0, rows=chosen, step=0)


@pytest.mark.parametrize("kind", HEADS)
def test_packed_rows_have_the_loss_and_the_gradients_of_padded_rows(kind):
    objective, batch = make_objective(kind), batch_of(kind)
    loss, gradients = loss_and_gradients(objective, [batch])
    other, others = loss_and_gradients(objective, [packed(kind, batch)])
    assert other == pytest.approx(loss, rel=1e-5)
    for one, same in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, same, rtol=1e-4, atol=1e-6)
    assert torch.equal(objective.counts(batch), objective.counts(packed(kind, batch)))


def test_a_batch_of_packed_rows_is_not_split():
    batch = packed("classify", batch_of("classify"))
    assert batch.split(1) == [batch]
    with pytest.raises(InputError, match="can't be split, got accumulate=2"):
        batch.split(2)
