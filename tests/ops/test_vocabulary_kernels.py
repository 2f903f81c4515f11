"""The kernels over a vocabulary, cross-entropy and sampling, against fp64: unusual sizes, every gradient."""

import pytest
import torch
from gradients import draw
from kernels import DEVICE, HALF, MARKS, assert_exact, assert_no_coarser, results
from torch import Tensor

from lightbert.ops.backend import using
from lightbert.ops.cross_entropy import cross_entropy, cross_entropy_operator
from lightbert.ops.sampling import sample, sample_operator

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]

SHAPES = {"one entry": (2, 3, 1), "few": (2, 3, 7), "several blocks": (1, 2, 9001), "empty": (0, 3, 7)}


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits, targets)[0]


def loss_by_kernel(logits: Tensor, targets: Tensor) -> Tensor:
    with using("triton"):
        return cross_entropy(logits, targets)[0]


def targets_of(shape: tuple[int, ...]) -> Tensor:
    return torch.randint(0, shape[-1], shape[:-1], device=DEVICE)


@pytest.mark.parametrize("spread", [False, True], ids=["side by side", "scattered"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_loss_and_its_gradient_are_exact_in_single_precision(shape, spread):
    assert_exact(loss_by_kernel, loss, {"logits": 5 * draw(*shape)}, spread=spread, targets=targets_of(shape))


@pytest.mark.parametrize("shape", [(2, 3, 7), (1, 2, 9001)], ids=str)
def test_their_rounding_error_is_at_most_twice_the_reference(shape):
    assert_no_coarser(loss_by_kernel, loss, {"logits": 5 * draw(*shape)}, targets=targets_of(shape))


@pytest.mark.parametrize("shape", [(2, 3, 1), (4, 5, 7), (1, 2, 9001)], ids=str)
def test_the_argmax_is_the_first_of_equal_logits(shape):
    logits = torch.randint(-3, 4, shape, device=DEVICE).float()
    with using("triton"):
        _, likely, _ = cross_entropy(logits, targets_of(shape))
    first = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1)
    assert torch.equal(likely, first)


def test_a_second_run_gives_the_same_bits():
    given, targets = {"logits": draw(1, 3, 9001)}, targets_of((1, 3, 9001))
    runs = [results(loss_by_kernel, given, HALF, spread=False, targets=targets) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("known", [False, True], ids=["sum computed", "sum known"])
@pytest.mark.parametrize("shape", [(2, 3, 1), (4, 5, 7), (1, 4, 9001)], ids=str)
def test_a_sample_is_the_entry_where_the_cumulative_sum_reaches_the_chance(shape, known):
    logits, chances = (3 * draw(*shape)).to(DEVICE, HALF), torch.rand(shape[:-1], device=DEVICE)
    with using("triton"):
        log_sums = cross_entropy(logits, targets_of(shape))[2] if known else None
        drawn = sample(logits, chances, log_sums)
    heights = torch.softmax(logits.double(), -1).cumsum(-1)
    above = heights.gather(-1, drawn[..., None])[..., 0]
    below = above - torch.softmax(logits.double(), -1).gather(-1, drawn[..., None])[..., 0]
    assert (chances <= above + 1e-5).all()
    assert (chances >= below - 1e-5).all()


def test_a_sample_stays_in_the_vocabulary_at_the_ends_of_the_unit_interval():
    logits = 10 * torch.randn(3, 1000, device=DEVICE)
    with using("triton"):
        drawn = sample(logits, torch.tensor([0.0, 1.0, 1 - 2**-24], device=DEVICE))
    assert drawn.min() >= 0
    assert drawn.max() < 1000


def test_no_positions_give_no_samples():
    with using("triton"):
        assert sample(torch.zeros(0, 5, device=DEVICE), torch.zeros(0, device=DEVICE)).shape == (0,)


def test_torch_accepts_the_custom_ops():
    """Schema, fake tensors, autograd registration and tracing, by torch's own checks."""
    logits = torch.randn(2, 3, 7, device=DEVICE, requires_grad=True)
    torch.library.opcheck(cross_entropy_operator, (logits, targets_of((2, 3, 7))))
    torch.library.opcheck(sample_operator, (logits.detach(), torch.rand(2, 3, device=DEVICE), None))


@pytest.mark.parametrize("known", [False, True], ids=["sum computed", "sum known"])
@pytest.mark.parametrize("last", [4096, 8990])
def test_an_entry_that_fills_up_the_vocabulary_is_never_drawn(last, known):
    """Rounding can make the last cumulative sum smaller than 1, also at the end of a block."""
    logits = torch.randn(8, 9001, device=DEVICE)
    logits[:, last:] = -torch.inf
    chances = torch.tensor([1 - 2**-24, 1.0], device=DEVICE).repeat(4)
    with using("triton"):
        log_sums = cross_entropy(logits, targets_of((8, 9001)))[2] if known else None
        assert sample(logits, chances, log_sums).max() < last


def test_the_log_sums_of_the_loss_are_those_of_the_logits():
    logits = 5 * torch.randn(2, 3, 9001, device=DEVICE)
    with using("triton"):
        _, _, log_sums = cross_entropy(logits, targets_of((2, 3, 9001)))
    torch.testing.assert_close(log_sums, logits.logsumexp(-1))
