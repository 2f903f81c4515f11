"""Batches of rows of similar length, padded and packed."""

import numpy as np
import pytest
import torch
from corpora import SPECIALS
from hypothesis import given
from hypothesis import strategies as st
from test_loader import KEYS, equal, join_batches

from lightbert.data.features import IGNORE_INDEX, Features
from lightbert.data.loader import Buckets, LoaderSettings, PackedBuckets, PackedShape, cheapest_shape, row_widths
from lightbert.errors import InputError


def ragged(size, *, per_token=False, seed=0):
    """Rows whose ids encode their position: row r has the ids 1000·r, 1000·r + 1, …."""
    lengths = np.random.default_rng(seed).gamma(3.0, 8.0, size).astype(int).clip(3, 128).tolist()
    rows = [range(1000 * row, 1000 * row + length) for row, length in enumerate(lengths)]
    targets = np.arange(sum(lengths)) if per_token else np.arange(size)
    return Features.of(rows, [length // 2 for length in lengths], targets=targets, per_token=per_token)


def buckets(features, **changes):
    settings = LoaderSettings(**{"workers": 0} | {key: changes.pop(key) for key in KEYS & changes.keys()})
    return Buckets(features, **{"batch": 32, "specials": SPECIALS, "seed": 3, "settings": settings} | changes)


def epoch_of(source, epoch=0):
    steps = range(epoch * source.steps_per_epoch, (epoch + 1) * source.steps_per_epoch)
    return [row for step in steps for row in source.examples(step).tolist()]


def test_less_than_5_percent_of_an_epoch_is_padding():
    for size in (3000, 2049):
        source = buckets(ragged(size))
        for epoch in (0, 1):
            steps = range(epoch * source.steps_per_epoch, (epoch + 1) * source.steps_per_epoch)
            masks = torch.cat([source.at(step).mask.flatten() for step in steps])
            assert source.padding(epoch) == pytest.approx(1 - masks.float().mean().item(), abs=1e-6)
            assert source.padding(epoch) < 0.05
        assert buckets(ragged(size), multiple=32).padding() > source.padding()


def test_an_epoch_has_every_row_and_fills_its_last_batch():
    for size, batch in ((1000, 32), (64, 8), (5, 8), (3, 10), (2100, 32)):
        source = buckets(ragged(size), batch=batch)
        assert source.steps_per_epoch == -(-size // batch)
        for epoch in (0, 1, 5):
            seen = epoch_of(source, epoch)
            assert len(seen) == source.steps_per_epoch * batch
            assert set(seen) == set(range(size))
            if size >= batch:
                assert max(np.bincount(seen)) <= 2


def test_sorting_over_one_batch_mixes_rows_of_any_length():
    features = ragged(2048)
    mixed = buckets(features, sort_over=1)
    spans = [np.ptp(features.lengths[mixed.examples(step)]) for step in range(mixed.steps_per_epoch)]
    assert min(spans) > 20
    assert sorted(epoch_of(mixed)) == list(range(2048))
    assert buckets(features, sort_over=4).padding() < buckets(features, sort_over=2).padding() < mixed.padding()


def test_epochs_and_seeds_have_different_orders():
    source = buckets(ragged(300))
    orders = [epoch_of(source), epoch_of(source, 1), epoch_of(buckets(ragged(300), seed=4))]
    assert all(one != other for at, one in enumerate(orders) for other in orders[:at])


def test_batches_are_not_ordered_by_length():
    source = buckets(ragged(2048))
    widths = [source.at(step).ids.shape[1] for step in range(source.steps_per_epoch)]
    assert widths != sorted(widths)
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.5


def test_a_restart_at_any_step_gives_the_same_task_batches():
    for workers in (0, 1, 3):
        expected = list(buckets(ragged(300)).stream(0, 25))
        for start in (0, 1, 9, 10, 24):
            again = list(buckets(ragged(300), workers=workers).stream(start, 25))
            assert len(again) == 25 - start
            assert all(map(equal, again, expected[start:]))


def test_ranks_split_a_batch_and_pad_to_the_same_width():
    for per_token in (False, True):
        features = ragged(300, per_token=per_token)
        whole = buckets(features)
        for world in (2, 4):
            ranks = [buckets(features, rank=rank, world=world) for rank in range(world)]
            for step in range(12):
                assert equal(join_batches([rank.at(step) for rank in ranks]), whole.at(step))


def test_without_shuffling_each_row_appears_once_in_order_of_length():
    features = ragged(75)
    source = buckets(features, shuffle=False)
    seen = epoch_of(source)
    assert sorted(seen) == list(range(75))
    assert features.lengths[seen].tolist() == sorted(features.lengths.tolist())
    assert [len(source.at(step).rows) for step in range(3)] == [32, 32, 11]
    assert epoch_of(source, 1) == seen
    shares = [epoch_of(buckets(features, shuffle=False, rank=rank, world=2)) for rank in range(2)]
    assert sorted(shares[0] + shares[1]) == list(range(75))


def test_a_batch_has_the_segments_and_targets_of_its_rows():
    features = ragged(40)
    source = buckets(features, multiple=8)
    batch = source.at(1)
    assert batch.ids.shape[1] % 8 == 0
    assert batch.step.item() == 1
    for row, example in enumerate(source.examples(1).tolist()):
        length = int(features.lengths[example])
        expected = [1000 * example + place for place in range(length)]
        assert batch.ids[row].tolist() == expected + [SPECIALS.pad] * (batch.ids.shape[1] - length)
        assert batch.mask[row].sum() == length
        assert batch.segments[row].nonzero().flatten().tolist() == list(range(length // 2, length))
        assert batch.targets is not None
        assert batch.targets[row] == example


def test_token_targets_are_padded_with_the_ignore_index():
    features = ragged(40, per_token=True)
    batch = buckets(features).at(0)
    assert batch.targets is not None
    assert torch.equal(batch.targets == -100, ~batch.mask)
    first = buckets(features).examples(0)[0]
    assert batch.targets[0, 0] == features.starts[first]


def test_rows_without_targets_give_batches_without_targets():
    assert buckets(Features.of([[2, 5, 3]], [3])).at(0).targets is None


def test_an_empty_task_or_an_indivisible_batch_is_an_input_error():
    with pytest.raises(InputError, match="must have at least one example, got 0"):
        buckets(Features.of([], []))
    with pytest.raises(InputError, match=r"batch \(32\) must be a positive multiple of the number of processes \(3\)"):
        buckets(ragged(10), world=3)


def packed(features, *, rank=0, world=1, **changes):
    settings = LoaderSettings(rank=rank, world=world, workers=0)
    given = {"batch": 32, "specials": SPECIALS, "seed": 3, "sort_over": 1, "settings": settings} | changes
    return PackedBuckets(features, **given)


def texts_of(batch):
    flat = batch.ids.flatten()
    places = zip(batch.starts.tolist(), batch.lengths.tolist(), strict=True)
    return [flat[start : start + length].tolist() for start, length in places]


def test_a_step_has_the_texts_and_targets_of_padded_rows_in_the_same_order():
    for per_token in (False, True):
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
    assert [PackedShape(4, 128).rows_for(needed) for needed in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, 12]
