"""Batches of packed rows by step number."""

import numpy as np
import pytest
import torch
from corpora import SPECIALS
from hypothesis import given
from hypothesis import strategies as st
from test_buckets import buckets, ragged
from test_loader import equal

from lightbert.data.batches.packed_buckets import PackedBuckets, Shape, cheapest_shape, row_widths
from lightbert.data.batches.prefetch import LoaderSettings
from lightbert.data.examples.features import IGNORE_INDEX, Features


def packed(features: Features, *, rank: int = 0, world: int = 1, **changes) -> PackedBuckets:
    settings = LoaderSettings(rank=rank, world=world, workers=0)
    given = {"batch": 32, "specials": SPECIALS, "seed": 3, "sort_over": 1, "settings": settings} | changes
    return PackedBuckets(features, **given)


def texts_of(batch) -> list[list[int]]:
    flat = batch.ids.flatten()
    places = zip(batch.starts.tolist(), batch.lengths.tolist(), strict=True)
    return [flat[start : start + length].tolist() for start, length in places]


@pytest.mark.parametrize("per_token", [False, True])
def test_a_step_has_the_texts_and_targets_of_padded_rows_in_the_same_order(per_token):
    features = ragged(300, per_token=per_token)
    source, padded = packed(features), buckets(features, sort_over=1)
    assert source.steps_per_epoch == padded.steps_per_epoch
    for step in (0, 5, source.steps_per_epoch + 1):
        one, other = source.at(step), padded.at(step)
        assert source.examples(step).tolist() == padded.examples(step).tolist()
        assert torch.equal(one.rows, other.rows)
        rows = zip(other.ids, other.mask, strict=True)
        assert texts_of(one) == [ids[mask].tolist() for ids, mask in rows]
        if per_token:
            places = [slice(a, a + n) for a, n in zip(one.starts.tolist(), one.lengths.tolist(), strict=True)]
            found = torch.cat([one.targets.flatten()[place] for place in places])
            assert torch.equal(found, other.targets[other.mask])
            assert (one.targets[one.mask == 0] == IGNORE_INDEX).all()
        else:
            assert torch.equal(one.targets, other.targets)


def test_nearly_all_steps_have_one_shape_and_none_loses_a_text():
    features = ragged(4000)
    source = packed(features)
    shapes = [tuple(source.at(step).ids.shape) for step in range(source.steps_per_epoch)]
    assert sum(shape == source.shape for shape in shapes) >= 0.85 * len(shapes)
    assert all(shape[1] == source.shape.width and shape[0] % source.shape.rows == 0 for shape in shapes)
    real = sum(int((source.at(step).mask > 0).sum()) for step in range(source.steps_per_epoch))
    assert real == sum(features.lengths[source.examples(step)].sum() for step in range(source.steps_per_epoch))
    area = sum(rows * width for rows, width in shapes)
    assert source.padding() == pytest.approx(1 - real / area)


def test_mixed_lengths_have_much_less_padding_in_packed_rows():
    features = ragged(3000)
    assert packed(features).padding() < 0.25 < buckets(features, sort_over=1).padding()


def test_a_batch_that_does_not_fit_gets_more_rows():
    """One batch of long texts among many short ones."""
    lengths = [4] * 400 + [60] * 6
    source = packed(Features.of([[9] * length for length in lengths], lengths, targets=np.arange(406)), batch=4)
    batches = [source.at(step) for step in range(2 * source.steps_per_epoch)]
    assert {batch.ids.shape[0] // source.shape.rows for batch in batches} >= {1, 2}
    assert all(batch.lengths.tolist() == [len(text) for text in texts_of(batch)] for batch in batches)
    assert all(int((batch.mask > 0).sum()) == int(batch.lengths.sum()) for batch in batches)


def test_each_process_packs_its_own_texts():
    features = ragged(200)
    whole = packed(features)
    for step in (0, 3):
        parts = [packed(features, rank=rank, world=2).at(step) for rank in range(2)]
        assert [text for part in parts for text in texts_of(part)] == texts_of(whole.at(step))
        assert torch.equal(torch.cat([part.rows for part in parts]), whole.at(step).rows)


def test_the_batches_are_a_function_of_the_step():
    features = ragged(300)
    one, other = packed(features), packed(features)
    assert one.shape == other.shape
    with_workers = packed(features, settings=LoaderSettings(workers=2)).stream(4, 9)
    assert all(equal(batch, other.at(step)) for step, batch in zip(range(4, 9), with_workers, strict=True))


@given(st.integers(1, 600), st.sampled_from([0, 128, 512]))
def test_widths_hold_the_longest_text_within_the_positions(longest, positions):
    widths = row_widths(longest, positions)
    assert min(widths) >= longest
    assert max(widths) <= (max(positions, longest) if positions else 2 * longest + 64)


@given(st.lists(st.lists(st.integers(1, 30), min_size=4, max_size=4), min_size=1, max_size=20))
def test_nine_of_ten_batches_fit_the_chosen_shape(batches):
    shape = cheapest_shape([np.array(lengths) for lengths in batches], [32, 64])
    tokens = [sum(lengths) for lengths in batches]
    assert sum(total <= shape.rows * shape.width for total in tokens) >= 0.9 * len(tokens) - 1


def test_more_rows_come_in_multiples():
    assert [Shape(4, 128).rows_for(needed) for needed in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, 12]
