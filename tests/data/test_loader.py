"""Pre-training batches, and the order of the examples."""

import gc
import threading
from dataclasses import fields

import numpy as np
import pytest
import torch
from corpora import SPECIALS, corpus, prose
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.batch import Batch
from lightbert.data.examples import LinePairs, Packing, Segments, SentencePairs
from lightbert.data.features import Specials
from lightbert.data.loader import Loader, LoaderSettings, shuffle_at
from lightbert.data.masking import mask_batch
from lightbert.data.masking_settings import BERT
from lightbert.data.shards import Shards
from lightbert.errors import InputError

KEYS = {field.name for field in fields(LoaderSettings)}
BUILDERS = [Segments(), Segments(released=True), LinePairs(), SentencePairs(), Packing()]
CORPUS = corpus([*prose(300, per_document=30), *prose(200, per_document=25, seed=1)])


def loader(builder=BUILDERS[0], **changes):
    settings = LoaderSettings(**{"workers": 0} | {key: changes.pop(key) for key in KEYS & changes.keys()})
    return Loader(
        CORPUS, builder, **{"batch": 8, "length": 48, "specials": SPECIALS, "seed": 3, "settings": settings} | changes
    )


def equal(one, other):
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(Batch)]
    return all(a is b if a is None or b is None else a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def join_batches(batches):
    def field(name):
        values = [getattr(batch, name) for batch in batches]
        return values[0] if values[0] is None or not values[0].dim() else torch.cat(values)

    return Batch(**{entry.name: field(entry.name) for entry in fields(Batch)})


def test_batches_do_not_depend_on_the_number_of_processes_and_accumulation_steps():
    for builder in BUILDERS:
        whole = [loader(builder).at(step) for step in range(12)]
        for world in (2, 4):
            ranks = [loader(builder, rank=rank, world=world) for rank in range(world)]
            assert all(equal(join_batches([rank.at(step) for rank in ranks]), whole[step]) for step in range(12))
        assert all(equal(join_batches(batch.split(parts)), batch) for batch in whole for parts in (1, 2, 8))


def test_batches_do_not_depend_on_the_number_of_workers():
    for builder in BUILDERS:
        # Several epochs, to test their boundaries.
        expected = list(loader(builder).stream(0, 40))
        for workers in (1, 2, 4):
            made = list(loader(builder, workers=workers).stream(0, 40))
            assert len(made) == 40
            assert all(map(equal, made, expected))


def test_a_restart_at_any_step_gives_the_same_batches():
    for workers in (0, 2):
        expected = list(loader().stream(0, 30))
        for start in (1, 7, loader().steps_per_epoch, 29):
            again = loader(workers=workers).stream(start, 30)
            assert all(map(equal, again, expected[start:]))


def test_masked_batches_do_not_depend_on_how_a_batch_is_split():
    def masked(batch):
        return mask_batch(batch, BERT, SPECIALS, vocab=1000, seed=5)

    whole = masked(loader().at(9))
    assert equal(join_batches([masked(part) for part in loader().at(9).split(4)]), whole)
    assert equal(join_batches([masked(loader(rank=rank, world=2).at(9)) for rank in range(2)]), whole)
    assert whole.positions is not None
    assert not torch.equal(whole.ids, loader().at(9).ids)


def test_an_epoch_has_every_example_at_most_once_and_drops_less_than_a_batch():
    source = loader(LinePairs())
    examples = len(LinePairs().build(CORPUS, 48, 3, 0))
    for epoch in range(3):
        steps = range(epoch * source.steps_per_epoch, (epoch + 1) * source.steps_per_epoch)
        seen = np.concatenate([source.examples(step) for step in steps])
        assert len(set(seen.tolist())) == len(seen) > examples - 8


def test_epochs_have_different_orders_and_examples():
    source = loader()
    per_epoch = source.steps_per_epoch
    assert not torch.equal(source.at(0).ids, source.at(per_epoch).ids)
    assert not torch.equal(loader(Packing()).at(0).ids, loader(Packing()).at(loader(Packing()).steps_per_epoch).ids)


def test_a_corpus_smaller_than_a_batch_repeats_its_examples():
    batch = Loader(corpus([[[5, 5]]]), LinePairs(), batch=4, length=16, specials=SPECIALS).at(3)
    assert batch.ids.tolist() == [batch.ids[0].tolist()] * 4


def test_another_length_gives_other_examples_of_the_same_text():
    short, long = loader(length=32).at(0), loader(length=96).at(0)
    assert short.ids.shape == (8, 32)
    assert long.ids.shape == (8, 96)
    assert long.mask.sum() > 2 * short.mask.sum()


def test_a_batch_has_its_step_rows_and_labels():
    batch = loader(SentencePairs(), rank=1, world=2).at(5)
    assert batch.step.tolist() == 5
    assert batch.rows.tolist() == [4, 5, 6, 7]
    assert batch.nsp is not None
    assert set(batch.nsp.tolist()) <= {0, 1}
    assert loader().at(0).nsp is None
    assert loader(Packing()).at(0).mask.dtype == torch.int32
    assert loader().at(0).mask.dtype == torch.bool


def workers_alive():
    return sum(thread.name.startswith("lightbert-loader") for thread in threading.enumerate())


def test_closing_or_deleting_a_stream_stops_its_workers():
    stream = loader(workers=3).stream()
    next(stream)
    assert workers_alive() > 0
    stream.close()
    assert workers_alive() == 0
    stream = loader(workers=3).stream()
    next(stream)
    del stream
    gc.collect()
    assert workers_alive() == 0


def test_an_error_in_a_worker_is_raised_in_the_main_thread():
    broken = loader(workers=2)
    broken.specials = None
    with pytest.raises(AttributeError):
        next(broken.stream())
    assert workers_alive() == 0


def test_batches_are_read_from_a_prepared_folder(folder_of):
    shards = Shards.open(folder_of([[[[5, 6, 7], [8]], [[9, 10]]], [[[11]], [[12, 13], [14, 15, 16], [17]]]]))
    specials = Specials.of(shards.tokenizer())
    assert specials == Specials(pad=0, cls=2, sep=3, mask=4)
    source = Loader(shards, LinePairs(), batch=3, length=10, specials=specials)
    assert sorted(source.at(0).ids.tolist()) == [
        [2, 5, 6, 7, 3, 8, 3, 0, 0, 0],
        [2, 11, 3, 12, 13, 3, 0, 0, 0, 0],
        [2, 14, 15, 16, 3, 17, 3, 0, 0, 0],
    ]


def test_an_indivisible_batch_is_an_input_error():
    with pytest.raises(InputError, match=r"batch \(8\) must be a positive multiple of the number of processes \(3\)"):
        loader(world=3)
    with pytest.raises(InputError, match=r"rows per process \(8\) must be a multiple of accumulate \(3\)"):
        loader().at(0).split(3)


def test_a_corpus_without_examples_is_an_input_error():
    with pytest.raises(InputError, match="has no examples of length 16"):
        Loader(corpus([[[5]]]), LinePairs(), batch=1, length=16, specials=SPECIALS)


def order(size, seed=0, epoch=0):
    return shuffle_at(np.arange(size), size, seed, epoch).tolist()


@given(st.integers(1, 3000), st.integers(0, 2**40), st.integers(0, 1000))
def test_every_example_appears_exactly_once(size, seed, epoch):
    assert sorted(order(size, seed, epoch)) == list(range(size))


@given(st.integers(1, 1 << 40), st.data())
def test_any_entry_of_a_huge_shuffle_is_computed_directly(size, data):
    places = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20, unique=True)))
    found = shuffle_at(places, size, 0, 0)
    assert len(set(found.tolist())) == len(places)
    assert found.min() >= 0
    assert found.max() < size


def test_the_order_never_changes_between_versions():
    assert order(10, seed=1, epoch=2) == [5, 9, 0, 3, 2, 6, 1, 4, 7, 8]


def test_another_seed_or_epoch_gives_another_order():
    assert len({tuple(order(100, seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_every_example_is_equally_likely_at_every_position():
    counts = np.zeros((13, 13))
    for epoch in range(2600):
        counts[np.arange(13), order(13, epoch=epoch)] += 1
    # Each of the 169 counts is 200 on average; the sum has 144 degrees of freedom, standard deviation 17.
    assert 75 < ((counts - 200) ** 2 / 200).sum() < 213


def test_neighbours_in_the_corpus_are_separated():
    places = np.argsort(order(10_000))
    distances = np.abs(np.diff(places))
    # For a uniform shuffle the mean distance is a third of the size.
    assert abs(distances.mean() / 10_000 - 1 / 3) < 0.01
