"""Replaced-token detection: shared parameters, gradient flow, and a loss computed by hand."""

import math
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch.autograd import graph

from lightbert.data.batch import Batch
from lightbert.data.features import Specials
from lightbert.data.masking_settings import Masking
from lightbert.errors import InputError
from lightbert.models import build, preset
from lightbert.models.bert import Bert
from lightbert.models.presets import generator
from lightbert.objectives.mlm import MaskedPrediction, Masker
from lightbert.objectives.rtd import Corruption, ReplacedTokenDetection, SideStream

SPECIALS = Specials(pad=0, cls=2, sep=3, mask=4)
SMALL = replace(
    preset("convbert-tiny"),
    vocab=50,
    depth=1,
    width=32,
    narrow=16,
    inner=64,
    positions=32,
    dropout=0.0,
    attention_dropout=0.0,
)


def batch_of(rows=4, length=16, vocab=50):
    ids = torch.randint(5, vocab, (rows, length))
    ids[:, 0], ids[:, -3], ids[:, -2:] = SPECIALS.cls, SPECIALS.sep, SPECIALS.pad
    return Batch(
        ids=ids,
        mask=ids != SPECIALS.pad,
        segments=torch.zeros_like(ids),
        rows=torch.arange(rows),
        step=torch.tensor(7),
    )


def make_objective(config=SMALL, seed=3, size=0.5, **settings):
    masker = Masker(Masking(), SPECIALS, vocab=config.vocab, seed=seed)
    small = build(generator(config, size), heads={"mlm": {}})
    return ReplacedTokenDetection(small, build(config, heads={"rtd": {}}), masker, **settings)


def test_both_models_share_tables_and_norm_but_not_projections():
    objective = make_objective()
    ours, theirs = objective.generator.embeddings, objective.discriminator.embeddings
    for name in ("word", "position", "segment", "norm"):
        assert getattr(ours, name) is getattr(theirs, name)
    assert ours.project is not theirs.project
    names = [name for name, _ in objective.named_parameters()]
    assert sum(name.endswith("word.weight") for name in names) == 1


def test_the_discriminators_gradient_reaches_the_generator_only_through_the_shared_tables():
    objective = make_objective()
    objective.detect.mlm_weight = 0.0
    batch = objective.prepare(batch_of())
    objective(batch, objective.counts(batch)).total.backward()
    shared = {p for n, p in objective.discriminator.embeddings.named_parameters() if not n.startswith("project")}
    for name, parameter in objective.generator.named_parameters():
        reached = parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
        assert reached == (parameter in shared), name


def test_the_generators_loss_does_not_reach_the_discriminators_blocks():
    objective = make_objective()
    objective.detect.rtd_weight = 0.0
    batch = objective.prepare(batch_of())
    objective(batch, objective.counts(batch)).total.backward()
    for name, parameter in objective.discriminator.blocks.named_parameters():
        assert parameter.grad is None or not parameter.grad.any(), name


def test_every_parameter_is_trained():
    objective = make_objective()
    batch = objective.prepare(batch_of(rows=16))
    objective(batch, objective.counts(batch)).total.backward()
    untouched = [name for name, p in objective.named_parameters() if p.grad is None or not p.grad.any()]
    assert untouched == []


# The second model has no projection between its embeddings and its blocks.
@pytest.mark.parametrize("config", [SMALL, replace(preset("bert-tiny"), vocab=50, depth=1, narrow=128, positions=32)])
@pytest.mark.parametrize(
    ("weights", "trains"), [((0.0, 50.0), {"discriminator"}), ((1.0, 0.0), {"generator"}), ((1.0, 50.0), {"both"})]
)
def test_the_generators_loss_alone_trains_the_shared_embeddings_if_it_should(config, weights, trains):
    objective = make_objective(config, shared_embeddings="generator", mlm_weight=weights[0], rtd_weight=weights[1])
    shared = {*objective.generator.embeddings.parameters()} & {*objective.discriminator.embeddings.parameters()}
    batch = objective.prepare(batch_of(rows=16))
    objective(batch, objective.counts(batch)).total.backward()
    for name, parameter in objective.named_parameters():
        owner = "generator" if name.startswith("generator") or parameter in shared else "discriminator"
        trained = parameter.grad is not None and bool(parameter.grad.any())
        assert trained == bool(trains & {owner, "both"}), name


def test_training_the_shared_embeddings_by_the_generator_changes_no_loss():
    tallies = []
    for shared in ("both", "generator"):
        torch.manual_seed(0)
        tallies.append(losses_and_gradients(make_objective(shared_embeddings=shared))[0])
    assert torch.equal(*tallies)


def test_trigram_embeddings_cannot_be_trained_by_the_generator_alone():
    config = Bert(vocab=50, narrow=16, width=32, depth=1, n_heads=2, inner=64, trigrams=True)
    with pytest.raises(InputError, match="plain or factorized, got TrigramEmbeddings; use shared_embeddings=both"):
        make_objective(config, size=1.0, shared_embeddings="generator")


@pytest.mark.parametrize("block_width", [0, 16, 64])
@pytest.mark.parametrize("size", [0.5, 1.0])
def test_trigram_embeddings_and_bottleneck_blocks_are_trained_with_a_generator_that_shares_the_words(block_width, size):
    config = replace(preset("mobilebert"), vocab=50, narrow=16, width=32, depth=1, n_heads=2, block_width=block_width)
    objective = make_objective(config, size=size)
    small, large = objective.generator.embeddings, objective.discriminator.embeddings
    assert small.word is large.word
    assert (small.position is large.position) == (size == 1.0)
    batch = objective.prepare(batch_of())
    objective(batch, objective.counts(batch)).total.backward()
    assert all(parameter.grad.isfinite().all() for parameter in objective.parameters())


def test_the_weight_of_the_discriminators_loss_can_be_chosen():
    totals = []
    for weight in (25.0, 50.0, 100.0):
        torch.manual_seed(0)
        objective = make_objective(rtd_weight=weight)
        batch = objective.prepare(batch_of())
        losses = objective(batch, objective.counts(batch))
        sums = dict(zip(objective.tallies, losses.tally.tolist(), strict=True))
        assert objective.summary(sums)["loss"] == pytest.approx(losses.total.item(), rel=1e-5)
        totals.append(losses.total.item())
    assert totals[2] - totals[1] == pytest.approx(2 * (totals[1] - totals[0]), rel=1e-3)


def test_the_loss_of_a_two_token_example_equals_a_computation_by_hand():
    objective = make_objective()
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.zero_()
        # All states are zero now: the generator's logits are its bias, the discriminator's its output bias.
        objective.generator.heads["mlm"].bias[9] = math.log(3.0)
        objective.discriminator.heads["rtd"].output.bias.fill_(math.log(1 / 3))
    batch = Batch(
        ids=torch.tensor([[2, 4]]),
        mask=torch.ones(1, 2, dtype=torch.bool),
        segments=torch.zeros(1, 2, dtype=torch.long),
        rows=torch.tensor([0]),
        step=torch.tensor(0),
        positions=torch.tensor([[1]]),
        targets=torch.tensor([[9]]),
        weights=torch.ones(1, 1),
    )
    losses = objective(batch, objective.counts(batch))
    sums = dict(zip(objective.tallies, losses.tally.tolist(), strict=True))
    # p(9) = 3 / (3 + 49), so the generator's loss is -log(3/52). The discriminator predicts "replaced" with probability
    # 1/4: -log(3/4) for a token of the text, -log(1/4) for a replaced one.
    mlm = -math.log(3 / 52)
    rtd = -math.log(3 / 4) + (-math.log(1 / 4) if sums["replaced"] else -math.log(3 / 4))
    assert sums["mlm_loss"] == pytest.approx(mlm, rel=1e-5)
    assert sums["rtd_loss"] == pytest.approx(rtd, rel=1e-5)
    assert losses.total.item() == pytest.approx(mlm + 50 * rtd / 2, rel=1e-5)


def test_labels_mark_exactly_the_tokens_that_differ_from_the_text():
    objective, batch = make_objective(), batch_of()
    masked = objective.prepare(batch)
    ids, replaced = objective.corrupt(masked, torch.randint(0, 50, masked.positions.shape))
    assert torch.equal(replaced, ids != batch.ids)
    assert not (replaced & ~batch.mask).any()
    assert not (ids == SPECIALS.mask).any() or (batch.ids == SPECIALS.mask).any() or (replaced[ids == 4]).all()


def test_losses_do_not_depend_on_how_the_batch_is_split():
    objective, batch = make_objective(), batch_of()
    whole = objective.prepare(batch)
    counts = objective.counts(whole)
    total = objective(whole, counts)
    parts = [objective(objective.prepare(part), counts) for part in batch.split(2)]
    torch.testing.assert_close(sum(part.total for part in parts), total.total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sum(part.tally for part in parts), total.tally, rtol=1e-5, atol=1e-5)


class Certain:
    """A model that predicts what it is given as logits, whatever the states."""

    def __init__(self, logits):
        size = logits.shape[-1]
        decoder = (torch.eye(size), torch.zeros(size))
        self.table = decoder[0]
        self.heads = {"mlm": SimpleNamespace(features=lambda states: logits, decoder=lambda table: decoder)}


def test_a_higher_temperature_replaces_more_tokens():
    # The generator is almost certain of the original tokens: only a high temperature makes it replace them.
    batch = Masker(Masking(), SPECIALS, vocab=50, seed=3)(batch_of(rows=64))
    model = Certain(12.0 * torch.nn.functional.one_hot(batch.targets, 50).float())
    shares = []
    for temperature in (1.0, 4.0, 100.0):
        drawn = MaskedPrediction(3, temperature)(model, batch, torch.zeros(64, batch.ids.shape[1], 50)).drawn
        shares.append(Corruption()(batch, drawn)[1].sum().item())
    assert shares[0] < shares[1] < shares[2]
    assert shares[0] <= 0.01 * batch.weights.sum()
    # Against the uniform distribution one in fifty is right by chance.
    assert shares[2] >= 0.9 * batch.weights.sum()


@pytest.fixture
def side_stream(monkeypatch):
    """A stream without a GPU, and the list of what happens to it."""
    happened = []

    class Stream:
        device = "cuda"

        def __init__(self, name="side"):
            self.name = name

        def wait_stream(self, other):
            happened.append(f"{self.name} waits for {other.name}")

    @contextmanager
    def entered(stream):
        happened.append("side begins")
        yield
        happened.append("side ends")

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: happened.append(f"kept for {stream.name}")
    )
    monkeypatch.setattr(graph, "set_warn_on_accumulate_grad_stream_mismatch", lambda enabled: None)
    return SideStream(torch.device("cuda")), happened


def losses_and_gradients(objective):
    batch = objective.prepare(batch_of())
    losses = objective(batch, objective.counts(batch))
    losses.total.backward()
    gradients = {name: parameter.grad for name, parameter in objective.named_parameters()}
    return losses.tally, gradients


@pytest.mark.parametrize("shared", ["both", "generator"])
def test_a_stream_of_its_own_changes_neither_losses_nor_gradients(side_stream, shared):
    results = []
    for stream in (None, side_stream[0]):
        torch.manual_seed(0)
        objective = make_objective(shared_embeddings=shared)
        objective.generator_stream = stream
        results.append(losses_and_gradients(objective))
    (tally, gradients), (their_tally, their_gradients) = results
    assert torch.equal(tally, their_tally)
    for name, gradient in gradients.items():
        assert torch.equal(gradient, their_gradients[name]), name


def test_the_discriminator_waits_for_the_generators_stream(side_stream):
    stream, happened = side_stream
    objective = make_objective()
    objective.generator_stream = stream
    objective.generator.register_forward_hook(lambda *_: happened.append("generator"))
    objective.discriminator.register_forward_hook(lambda *_: happened.append("discriminator"))
    losses_and_gradients(objective)
    assert happened == [
        *("side waits for main", "side begins", "generator", "side ends", "main waits for side"),
        *(["kept for main"] * 4),
        "discriminator",
    ]


def test_gradients_of_shared_tables_are_added_on_the_main_stream(side_stream):
    stream, happened = side_stream
    objective = make_objective()
    objective.generator_stream = stream
    make = graph.get_gradient_edge
    shared = []
    with mock.patch.object(graph, "get_gradient_edge", lambda p: (shared.append((p, list(happened))), make(p))[1]):
        losses_and_gradients(objective)
    # All of them before the side stream begins.
    assert {id(p) for p, before in shared if not before} == {
        id(p) for p in objective.discriminator.embeddings.parameters()
    }


def test_evaluations_use_one_stream(side_stream):
    stream, happened = side_stream
    objective = make_objective().eval()
    objective.generator_stream = stream
    batch = objective.prepare(batch_of())
    objective(batch, objective.counts(batch))
    assert happened == []
