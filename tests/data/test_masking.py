"""Masking tokens."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from corpora import SPECIALS
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.masking import fill_positions, mask_tokens
from lightbert.data.masking_settings import BERT, Masking
from lightbert.errors import InputError

VOCAB = 100
# Ids from 60 on continue a word.
CONTINUES = torch.arange(VOCAB) >= 60
STYLES = st.sampled_from(
    [Masking(), BERT, Masking(rate=0.4), Masking(most=3), Masking(masked=0.0), Masking(masked=1.0)]
)


@st.composite
def batches(draw):
    rows, length = draw(st.integers(1, 5)), draw(st.integers(1, 80))
    generator = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    ids = torch.from_numpy(generator.integers(0, VOCAB, (rows, length)))
    sizes = torch.from_numpy(generator.integers(0, length + 1, (rows, 1)))
    mask = torch.arange(length) < sizes
    if draw(st.booleans()):
        mask = mask * (torch.arange(length) // 7 + 1)
    return ids, mask


def apply(ids, mask, masking, **changes):
    settings = {"vocab": VOCAB, "seed": 0, "step": 0, "rows": torch.arange(len(ids))} | changes
    return mask_tokens(ids, mask, masking, SPECIALS, **settings)


def budget(real, length, masking):
    """Python rounds fractions half to even."""
    return min(max(round(Fraction(str(masking.rate)) * real), 1), masking.positions(length))


def candidates(ids, mask):
    specials = {SPECIALS.cls, SPECIALS.sep, SPECIALS.mask}
    return [
        at
        for at, (token, real) in enumerate(zip(ids.tolist(), mask.tolist(), strict=True))
        if real and token not in specials
    ]


def text(rows, length):
    return torch.randint(5, VOCAB, (rows, length)), torch.ones(rows, length, dtype=torch.bool)


@given(batches(), STYLES, st.integers(0, 1 << 40), st.integers(0, 1 << 20))
def test_every_row_predicts_exactly_its_budget(batch, masking, seed, step):
    ids, mask = batch
    result = apply(ids, mask, masking, seed=seed, step=step)
    for row in range(len(ids)):
        choice = result.positions[row][result.weights[row] > 0].tolist()
        free = candidates(ids[row], mask[row])
        assert len(choice) == min(budget(int((mask[row] != 0).sum()), ids.shape[1], masking), len(free))
        assert choice == sorted(set(choice))
        assert set(choice) <= set(free)


@given(batches(), STYLES, st.booleans())
def test_only_chosen_tokens_change_and_targets_are_the_original_tokens(batch, masking, whole):
    ids, mask = batch
    result = apply(ids, mask, masking, continues=CONTINUES if whole else None)
    chosen = torch.zeros_like(ids).scatter_add(1, result.positions, result.weights.long()) > 0
    assert torch.equal(result.ids[~chosen], ids[~chosen])
    assert torch.equal(result.targets, ids.gather(1, result.positions))
    assert torch.equal(fill_positions(result.ids, result.positions, result.weights, result.targets), ids)


@given(batches(), STYLES, st.booleans())
def test_padding_is_last_with_position_and_weight_zero(batch, masking, whole):
    ids, mask = batch
    result = apply(ids, mask, masking, continues=CONTINUES if whole else None)
    assert result.positions.shape == result.weights.shape == (len(ids), masking.positions(ids.shape[1]))
    assert set(result.weights.unique().tolist()) <= {0.0, 1.0}
    assert (result.weights.diff(dim=1) <= 0).all()
    assert not result.positions[result.weights == 0].any()


@given(batches(), st.integers(0, 1 << 20))
def test_whole_words_are_never_split_and_the_budget_is_not_exceeded(batch, seed):
    ids, mask = batch
    result = apply(ids, mask, Masking(rate=0.3), seed=seed, continues=CONTINUES)
    for row in range(len(ids)):
        words: list[list[int]] = []
        for at in candidates(ids[row], mask[row]):
            if words and words[-1][-1] == at - 1 and CONTINUES[ids[row, at]]:
                words[-1].append(at)
            else:
                words.append([at])
        choice = set(result.positions[row][result.weights[row] > 0].tolist())
        limit = budget(int((mask[row] != 0).sum()), ids.shape[1], Masking(rate=0.3))
        assert all(choice.isdisjoint(word) or choice.issuperset(word) for word in words)
        assert len(choice) <= limit
        if len(choice) < limit:
            # No single-token words were left to fill the budget.
            assert all(choice.issuperset(word) for word in words if len(word) == 1)


def test_whole_words_of_one_token_are_masked_like_tokens():
    ids, mask = torch.randint(5, 60, (64, 128)), torch.ones(64, 128, dtype=torch.bool)
    result = apply(ids, mask, Masking(), continues=CONTINUES)
    assert (result.weights.sum(dim=1) == 19).all()


def test_electra_masks_85_percent_and_keeps_the_rest():
    ids, mask = text(2000, 128)
    result = apply(ids, mask, Masking())
    seen = result.ids.gather(1, result.positions)
    assert result.weights.all()
    assert (seen == SPECIALS.mask).float().mean() == pytest.approx(0.85, abs=0.006)
    assert (seen == result.targets).float().mean() == pytest.approx(0.15, abs=0.006)


def test_bert_masks_80_percent_keeps_10_and_draws_10_from_the_whole_vocabulary():
    ids, mask = text(2000, 128)
    result = apply(ids, mask, BERT)
    seen = result.ids.gather(1, result.positions)
    drawn = (seen != SPECIALS.mask) & (seen != result.targets)
    assert (seen == SPECIALS.mask).float().mean() == pytest.approx(0.801, abs=0.007)
    assert (seen == result.targets).float().mean() == pytest.approx(0.101, abs=0.006)
    assert drawn.float().mean() == pytest.approx(0.098, abs=0.006)
    counts = torch.bincount(seen[drawn], minlength=VOCAB)
    # A random [MASK] can't be distinguished from a masked token here.
    assert counts[SPECIALS.mask] == 0
    assert (counts[torch.arange(VOCAB) != SPECIALS.mask] > 0).all()


def test_every_position_is_equally_likely():
    ids, mask = text(4000, 64)
    result = apply(ids, mask, Masking())
    counts = torch.bincount(result.positions[result.weights > 0], minlength=64).float()
    # 63 degrees of freedom, a little less than binomial because positions exclude each other.
    assert 25 < ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 110


def test_the_maximum_number_of_predictions_is_electras():
    assert [Masking().positions(length) for length in (128, 512, 1)] == [19, 79, 1]
    assert Masking(most=20).positions(512) == 20


def test_masking_does_not_depend_on_how_a_batch_is_split():
    ids, mask = text(12, 40)
    whole = apply(ids, mask, BERT, step=torch.tensor(5), rows=torch.arange(12))
    for parts in (2, 3, 12):
        size = 12 // parts
        pieces = [
            apply(ids[at : at + size], mask[at : at + size], BERT, step=5, rows=torch.arange(at, at + size))
            for at in range(0, 12, size)
        ]
        for field, expected in whole._asdict().items():
            assert torch.equal(torch.cat([getattr(piece, field) for piece in pieces]), expected)


def test_steps_and_seeds_mask_differently():
    ids, mask = text(4, 64)
    results = [apply(ids, mask, Masking(), step=step, seed=seed).positions for step in (0, 1) for seed in (0, 1)]
    assert len({tuple(result.ravel().tolist()) for result in results}) == 4


def test_a_text_of_special_tokens_has_no_predictions():
    ids = torch.tensor([[SPECIALS.cls, SPECIALS.sep]])
    result = apply(ids, torch.ones(1, 2, dtype=torch.bool), Masking())
    assert torch.equal(result.ids, ids)
    assert not result.weights.any()


def test_padding_never_overwrites_the_first_token():
    ids = torch.tensor([[7, 8, 9]])
    positions, weights = torch.tensor([[0, 0]]), torch.tensor([[1.0, 0.0]])
    assert fill_positions(ids, positions, weights, torch.tensor([[5, 6]])).tolist() == [[5, 8, 9]]


@pytest.mark.gpu
@pytest.mark.parametrize("continues", [None, CONTINUES])
def test_masking_is_the_same_on_a_gpu(continues):
    ids, mask = text(256, 128)
    on_cpu = apply(ids, mask, BERT, continues=continues)
    settings = {"rows": torch.arange(256).cuda(), "continues": None if continues is None else continues.cuda()}
    on_gpu = apply(ids.cuda(), mask.cuda(), BERT, **settings)
    for field, expected in on_cpu._asdict().items():
        assert torch.equal(getattr(on_gpu, field).cpu(), expected)


@pytest.mark.prove
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("continues", [None, CONTINUES], ids=["tokens", "words"])
def test_masking_is_the_same_when_compiled(device, continues):
    def masked_and_filled(ids, mask, step, rows, continues):
        result = apply(ids, mask, BERT, step=step, rows=rows, continues=continues)
        return *result, fill_positions(ids, result.positions, result.weights, result.targets + 1)

    compiled = torch.compile(masked_and_filled, fullgraph=True)
    ids, mask = torch.randint(5, VOCAB, (64, 128)), torch.arange(128) < torch.randint(20, 129, (64, 1))
    inputs = [ids, mask, torch.tensor(2**31 + 7), torch.arange(64) + 2**31, continues]
    there = [tensor if tensor is None else tensor.to(device) for tensor in inputs]
    for one, other in zip(masked_and_filled(*inputs), compiled(*there), strict=True):
        assert torch.equal(one, other.cpu())


def test_a_rate_out_of_range_is_an_input_error():
    for rate in (0.0, 1.0, -0.1):
        with pytest.raises(InputError, match=r"rate must be in \(0, 1\), got"):
            Masking(rate=rate)


def test_shares_that_sum_to_more_than_1_are_an_input_error():
    with pytest.raises(InputError, match=r"masked \+ random must be <= 1, got 0\.95 \+ 0\.1"):
        Masking(masked=0.95, random=0.1)
