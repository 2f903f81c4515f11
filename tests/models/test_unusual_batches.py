"""One token, fewer tokens than the kernel, rows of padding, no rows: correct or an error, never NaN."""

import pytest
import torch
from small import POSITIONS, VARIANTS, WIDTH, assert_same_states, ids, model_of

from lightbert.errors import InputError


def test_texts_shorter_than_the_kernel_have_states(subtests):
    for name, config in VARIANTS.items():
        for tokens in (1, 2, 3):
            model = model_of(config)
            with subtests.test(tokens=tokens, name=name):
                states = model(ids(2, tokens))
                assert states.shape == (2, tokens, WIDTH)
                assert states.isfinite().all()


def test_rows_of_padding_only_are_finite_and_do_not_affect_other_rows(subtests):
    for name, config in VARIANTS.items():
        for numbered in (False, True):
            model = model_of(config)
            with subtests.test(numbered=numbered, name=name):
                rows = ids(3, 7)
                keep = torch.ones(3, 7, dtype=torch.bool)
                keep[1] = False
                states = model(rows, keep.long() if numbered else keep)
                assert states.isfinite().all()
                assert_same_states(states[[0, 2]], model(rows[[0, 2]]))


def test_an_empty_batch_gives_an_empty_result(subtests):
    for name, config in VARIANTS.items():
        for masked in (None, torch.bool, torch.int64):
            model = model_of(config)
            with subtests.test(masked=masked, name=name):
                mask = None if masked is None else torch.ones(0, 7, dtype=masked)
                assert model(ids(0, 7), mask).shape == (0, 7, WIDTH)


def test_without_segments_all_tokens_are_in_the_first(subtests):
    for name, config in VARIANTS.items():
        model = model_of(config)
        with subtests.test(name=name):
            rows = ids(2, 7)
            assert_same_states(model(rows), model(rows, segments=torch.zeros_like(rows)))
            assert not torch.allclose(model(rows), model(rows, segments=torch.ones_like(rows)), atol=1e-2)


def test_a_full_mask_equals_no_mask(subtests):
    for name, config in VARIANTS.items():
        model = model_of(config)
        with subtests.test(name=name):
            rows = ids(2, 7)
            for mask in (torch.ones(2, 7, dtype=torch.bool), torch.ones(2, 7, dtype=torch.int64)):
                assert_same_states(model(rows, mask), model(rows))


def test_rows_without_tokens_are_an_error(subtests):
    for name, config in VARIANTS.items():
        model = model_of(config)
        with subtests.test(name=name), pytest.raises(InputError, match="at least one token per row"):
            model(ids(2, 0))


def test_the_error_for_too_many_tokens_has_both_numbers(subtests):
    for name, config in VARIANTS.items():
        model = model_of(config)
        with subtests.test(name=name):
            if model.config.positions:
                with pytest.raises(InputError, match=f"at most {POSITIONS} tokens, got {POSITIONS + 1}"):
                    model(ids(1, POSITIONS + 1))
            else:
                assert model(ids(1, POSITIONS + 1)).isfinite().all()


def test_the_error_for_a_mask_of_another_shape_has_both_shapes(subtests):
    for name, config in VARIANTS.items():
        model = model_of(config)
        with (
            subtests.test(name=name),
            pytest.raises(InputError, match=r"mask must have the shape of ids, \[2, 7\], got \[2, 6\]"),
        ):
            model(ids(2, 7), torch.ones(2, 6, dtype=torch.bool))
