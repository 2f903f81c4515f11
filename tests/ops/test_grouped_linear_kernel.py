"""Batched matmuls into slices of the channels, on a GPU or on a CPU, compared with the reference in fp64."""

import pytest
from gradients import SHAPES, draw
from kernels import MARKS, assert_exact, assert_no_coarser, by_kernel
from torch import Tensor

from lightbert.ops.grouped_linear import grouped_linear

pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]


def inputs(*shape: int, groups: int = 3) -> dict[str, Tensor]:
    return {"x": draw(*shape, 16 * groups), "weight": draw(groups, 16, 8), "bias": draw(8 * groups)}


@pytest.mark.parametrize("spread", [False, True], ids=["contiguous", "any layout"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_it_is_exact_in_single_precision(shape, spread):
    assert_exact(by_kernel(grouped_linear), grouped_linear, inputs(*shape), spread=spread)


def test_its_rounding_error_is_at_most_twice_the_reference():
    assert_no_coarser(by_kernel(grouped_linear), grouped_linear, *(inputs(3, 67, groups=2) for _ in range(3)))
