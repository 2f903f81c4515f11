"""The losses of vectors are those of their definitions, in one piece or in chunks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lightbert.data.batch import pad_rows
from lightbert.data.features import Features
from lightbert.models import PRESETS, add_head, build
from lightbert.nn.pooling_settings import Pooling
from lightbert.objectives.text_vectors import GradedObjective, PairObjective

SIZES = {"vocab": 30, "positions": 16, "narrow": 8, "width": 16, "depth": 1, "inner": 32}


def make_model(dropout=0.0, **pooling):
    config = replace(PRESETS["convbert-tiny"], **SIZES, dropout=dropout, attention_dropout=dropout)
    model = build(config, seed=0)
    if pooling.get("projection"):
        add_head(model, "vector", {"size": 6}, seed=1)
    model.pooling = Pooling(**pooling)
    return model


def make_batch(examples, numbers):
    """A batch of examples, each a list of texts as ids."""
    targets = np.array([[number, *map(len, texts)] for texts, number in zip(examples, numbers, strict=True)])
    rows = [[token for text in texts for token in text] for texts in examples]
    features = Features.of(rows, [len(row) for row in rows], targets=targets.astype(np.float32))
    return pad_rows(features, np.arange(len(rows)), max(map(len, rows)) + 1, 0)


def random_examples(n, texts):
    rng = np.random.default_rng(n)
    return [[[2, *rng.integers(5, 30, rng.integers(3, 8)).tolist(), 3] for _ in range(texts)] for _ in range(n)]


def alone(model, text):
    """The vector of a text without any other."""
    states = model(torch.tensor([text]))
    projected = model.pooling is not None and model.pooling.projection
    return model.heads["vector"](states)[0] if projected else states.mean(1)[0]


def cosines(first, second, size):
    return F.normalize(first[:, :size], dim=-1) @ F.normalize(second[:, :size], dim=-1).T


def test_the_loss_of_pairs_is_the_cross_entropy_of_their_cosines():
    model, examples, weights = make_model(projection=True, sizes=(4, 2)), random_examples(5, 3), [1, 2, 0.5, 1, 0]
    objective = PairObjective(model, 3, temperature=0.1).eval()
    batch = make_batch(examples, weights)
    counts = objective.counts(batch)
    assert counts.item() == 4.5
    columns = [torch.stack([alone(model, texts[k]) for texts in examples]) for k in range(3)]
    expected = 0.0
    for size in (6, 4, 2):
        logits = torch.cat([cosines(columns[0], columns[k], size) for k in (1, 2)], dim=1) / 0.1
        losses = F.cross_entropy(logits, torch.arange(5), reduction="none")
        expected = expected + (losses * torch.tensor(weights)).sum() / 4.5 / 3
    torch.testing.assert_close(objective(batch, counts).total, expected, rtol=1e-5, atol=1e-5)


def test_duplicates_are_not_negatives():
    model, examples = make_model(), random_examples(4, 2)
    # The same second text, the same first text.
    examples[1][1] = examples[0][1] = [2, 8, 3]
    examples[2][0] = examples[3][0] = [2, 9, 9, 3]
    objective = PairObjective(model, 2, temperature=0.1).eval()
    batch = make_batch(examples, [1] * 4)
    first, second = (torch.stack([alone(model, texts[k]) for texts in examples]) for k in (0, 1))
    logits = cosines(first, second, 16) / 0.1
    for row, column in ((0, 1), (1, 0), (2, 3), (3, 2)):
        logits[row, column] = -torch.inf
    expected = F.cross_entropy(logits, torch.arange(4))
    losses = objective(batch, objective.counts(batch))
    torch.testing.assert_close(losses.total, expected, rtol=1e-5, atol=1e-5)


def gradients(objective, batch):
    torch.manual_seed(3)
    losses = objective.train()(batch, objective.counts(batch))
    return losses, torch.autograd.grad(losses.total, list(objective.parameters()), allow_unused=True)


@pytest.mark.parametrize("kind", ["pairs", "cosent"])
def test_gradients_in_chunks_are_those_of_the_whole_batch(kind):
    found = []
    for chunk in (0, 4, 3):
        model = make_model(projection=True, sizes=(3,))
        make = PairObjective if kind == "pairs" else GradedObjective
        objective = make(model, *([2] if kind == "pairs" else []), chunk=chunk)
        found.append(gradients(objective, make_batch(random_examples(7, 2), np.linspace(0.1, 1, 7))))
    for losses, parts in found[1:]:
        torch.testing.assert_close(losses.total, found[0][0].total)
        assert sum(part is not None for part in parts) > 10
        torch.testing.assert_close(parts, found[0][1], rtol=1e-4, atol=1e-6)


def test_chunks_are_computed_again_with_the_same_dropout():
    batch, found = make_batch(random_examples(6, 2), [1] * 6), []
    objective = PairObjective(make_model(dropout=0.3), 2, chunk=4, temperature=1.0)
    for kept in (False, True):
        if kept:  # The same chunks, whose activations are kept.
            objective.vectors = lambda ids, mask: torch.cat(
                [objective._encode(ids[at : at + 4], mask[at : at + 4]) for at in range(0, len(ids), 4)]
            )
        found.append([part for part in gradients(objective, batch)[1] if part is not None])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def test_the_graded_losses_are_those_of_their_definitions():
    model, examples, scores = make_model(), random_examples(5, 2), [0.0, 0.25, 0.25, 0.75, 1.0]
    batch = make_batch(examples, scores)
    x, y = (F.normalize(torch.stack([alone(model, texts[k]) for texts in examples]), dim=-1) for k in (0, 1))
    cosine = (x * y).sum(1)
    product = (torch.complex(x[:, :8], x[:, 8:]) * torch.complex(y[:, :8], y[:, 8:]).conj()).sum(1)
    angle = (product.real + product.imag).abs()

    def cosent(values):
        wrong = [torch.exp((values[i] - values[j]) / 0.5) for i in range(5) for j in range(5) if scores[i] < scores[j]]
        return torch.log(1 + sum(wrong))

    expected = {
        "cosine": F.mse_loss(cosine, torch.tensor(scores)),
        "cosent": cosent(cosine),
        "angle": cosent(cosine) + cosent(angle),
    }
    for kind, loss in expected.items():
        objective = GradedObjective(model, kind, temperature=0.5).eval()
        found = objective(batch, objective.counts(batch)).total
        torch.testing.assert_close(found, loss, rtol=1e-5, atol=1e-5)
