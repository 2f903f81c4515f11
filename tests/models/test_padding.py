"""For every preset, the states of a text are the same alone, padded to any length, or packed with other texts."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import POSITIONS, VARIANTS, assert_same_states, ids, model_of

seeds = st.integers(0, 2**31)


@settings(max_examples=12, deadline=None)
@given(seed=seeds, tokens=st.integers(1, 12), before=st.integers(0, 6), after=st.integers(0, 6))
def test_padding_never_changes_a_text(seed, tokens, before, after):
    torch.manual_seed(seed)
    text, segments = ids(1, tokens), torch.randint(0, 2, (1, tokens))
    row, row_segments = ids(1, before + tokens + after), torch.randint(0, 2, (1, before + tokens + after))
    keep = torch.zeros_like(row, dtype=torch.bool)
    here = slice(before, before + tokens)
    row[:, here], row_segments[:, here], keep[:, here] = text, segments, True
    for config in VARIANTS.values():
        model = model_of(config)
        assert_same_states(model(row, keep, row_segments)[:, here], model(text, None, segments))


@settings(max_examples=12, deadline=None)
@given(seed=seeds, data=st.data())
def test_packed_texts_in_any_order_do_not_affect_each_other(seed, data):
    torch.manual_seed(seed)
    lengths = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4).filter(lambda all_: sum(all_) <= POSITIONS))
    numbers = data.draw(st.permutations(range(1, len(lengths) + 1)))
    texts = [ids(1, tokens) for tokens in lengths]
    padding = data.draw(st.integers(0, POSITIONS - sum(lengths)))
    row = torch.cat([*texts, ids(1, padding)], dim=1)
    packed = torch.cat([torch.tensor(numbers), torch.zeros(1, dtype=torch.int64)])
    packed = packed.repeat_interleave(torch.tensor([*lengths, padding]))[None]
    for config in VARIANTS.values():
        model = model_of(config)
        parts = model(row, packed).split([*lengths, padding], dim=1)
        for text, part in zip(texts, parts, strict=False):
            assert_same_states(part, model(text))


def test_a_text_does_not_depend_on_the_other_rows_of_its_batch(subtests):
    for name, config in VARIANTS.items():
        model = model_of(config)
        with subtests.test(name=name):
            rows, keep = ids(4, 11), torch.arange(11) < torch.tensor([[11], [3], [1], [7]])
            together = model(rows, keep)
            for row, mask, states in zip(rows, keep, together, strict=True):
                assert_same_states(states[mask], model(row[None, mask])[0])
