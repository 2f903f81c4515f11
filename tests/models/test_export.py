"""torch.export exports every family with dynamic batch size and length."""

from dataclasses import replace

import pytest
import torch
from small import FAMILIES, POSITIONS, assert_same_states, ids, model_of
from torch.export import Dim, export

from lightbert.nn.encoder import Encoder

# At least three: shorter lengths are a special case in the slices of a trigram.
OPEN = {0: Dim("batch", min=1, max=64), 1: Dim("tokens", min=3, max=POSITIONS)}


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES.keys())
def model(request: pytest.FixtureRequest) -> Encoder:
    # One block is enough, and takes half the time.
    return model_of(replace(request.param, depth=1))


def test_it_exports_without_a_mask(model):
    exported = export(model, (ids(2, 7),), dynamic_shapes={"ids": OPEN}).module()
    for shape in [(1, 3), (5, 11), (2, POSITIONS)]:
        rows = ids(*shape)
        assert_same_states(exported(rows), model(rows))


def test_it_exports_with_a_mask_and_segments(model):
    example = (ids(2, 7), torch.ones(2, 7, dtype=torch.bool), ids(2, 7) % 2)
    exported = export(model, example, dynamic_shapes={"ids": OPEN, "mask": OPEN, "segments": OPEN}).module()
    for shape in [(1, 3), (5, 11), (2, POSITIONS)]:
        rows, segments = ids(*shape), torch.randint(0, 2, shape)
        keep = torch.arange(shape[1]) < torch.randint(1, shape[1] + 1, (shape[0], 1))
        assert_same_states(exported(rows, keep, segments), model(rows, keep, segments))
