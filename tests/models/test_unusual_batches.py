"""One token, fewer tokens than the kernel, rows of padding, no rows: correct or an error, never NaN."""

import pytest
import torch
from small import POSITIONS, VARIANTS, WIDTH, assert_same_states, ids, model_of


@pytest.fixture(scope="module")
def models():
    return {name: model_of(config) for name, config in VARIANTS.items()}


def test_texts_shorter_than_the_kernel_and_empty_batches_have_states(models, subtests):
    for name, model in models.items():
        with subtests.test(name=name):
            for tokens in (1, 2, 3):
                states = model(ids(2, tokens))
                assert states.shape == (2, tokens, WIDTH)
                assert states.isfinite().all()
            for mask in (None, torch.ones(0, 7, dtype=torch.bool), torch.ones(0, 7, dtype=torch.int64)):
                assert model(ids(0, 7), mask).shape == (0, 7, WIDTH)


def test_rows_of_padding_only_are_finite_and_do_not_affect_other_rows(models, subtests):
    keep = torch.ones(3, 7, dtype=torch.bool)
    keep[1] = False
    for name, model in models.items():
        with subtests.test(name=name):
            for mask in (keep, keep.long()):
                rows = ids(3, 7)
                states = model(rows, mask)
                assert states.isfinite().all()
                assert_same_states(states[[0, 2]], model(rows[[0, 2]]))


def test_a_full_mask_equals_no_mask_and_without_segments_all_tokens_are_in_the_first(models, subtests):
    for name, model in models.items():
        with subtests.test(name=name):
            rows = ids(2, 7)
            states = model(rows)
            for mask in (torch.ones(2, 7, dtype=torch.bool), torch.ones(2, 7, dtype=torch.int64)):
                assert_same_states(model(rows, mask), states)
            assert_same_states(model(rows, segments=torch.zeros_like(rows)), states)
            assert not torch.allclose(model(rows, segments=torch.ones_like(rows)), states, atol=1e-2)


def test_without_positions_rows_have_any_length(models):
    model = models["composite-small"]
    assert not model.config.positions
    assert model(ids(1, POSITIONS + 1)).isfinite().all()
