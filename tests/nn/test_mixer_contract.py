"""The interface of every mixer: shapes, streams, gradients, records and export."""

import pytest
import torch
from mixers import EXPORTED, GENERATES_KERNELS, HEADS, MIXERS, OUT_WIDTHS, WIDTH
from torch import Tensor, nn

from lightbert.nn.attention import Attention, Mixer
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record
from randomised import randomised

SECOND = 6
MASK = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])


@pytest.fixture(params=MIXERS.keys())
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def mixer(name: str) -> Mixer:
    return randomised(MIXERS[name]())


@pytest.fixture
def two_streams(name: str) -> Mixer:
    return randomised(MIXERS[name](value_width=SECOND))


@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (3, 11), (0, 5)], ids=str)
def test_the_output_has_the_declared_width(mixer, name, shape):
    assert mixer.width == WIDTH
    assert mixer.value_width is None
    assert mixer.out_width == OUT_WIDTHS.get(name, WIDTH)
    out = mixer(torch.randn(*shape, WIDTH), Mask(None))
    assert out.shape == (*shape, mixer.out_width)
    assert out.isfinite().all()


def test_a_full_mask_changes_nothing(mixer):
    x = torch.randn(2, 7, WIDTH)
    full = Mask(torch.ones(2, 7, dtype=torch.bool))
    torch.testing.assert_close(mixer(x, full), mixer(x, Mask(None)), rtol=1e-6, atol=1e-6)


def test_only_the_values_come_from_the_second_stream(two_streams):
    """Scores and kernels read the first stream, so the result is affine in the second."""
    x, mask = torch.randn(2, 7, WIDTH), Mask(MASK)
    assert two_streams.value_width == SECOND
    one, other = torch.randn(2, 7, SECOND), torch.randn(2, 7, SECOND)

    def mixed(value: Tensor) -> Tensor:
        return two_streams(x, mask, value=value)

    nothing = torch.zeros_like(one)
    assert (mixed(one) - mixed(nothing)).abs().amax() > 0.1
    torch.testing.assert_close(mixed(one) + mixed(other), mixed(one + other) + mixed(nothing), rtol=1e-5, atol=1e-5)


def test_without_a_second_stream_values_come_from_the_first(mixer):
    x, mask = torch.randn(2, 7, WIDTH), Mask(MASK)
    torch.testing.assert_close(mixer(x, mask, value=x), mixer(x, mask), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("packed", [False, True])
def test_the_recorded_path_equals_the_fused_path(mixer, packed):
    x = torch.randn(2, 7, WIDTH)
    mask = Mask(torch.tensor([[1, 1, 1, 2, 2, 0, 0], [1] * 7]) if packed else MASK)
    torch.testing.assert_close(mixer(x, mask, record=Record()), mixer(x, mask), rtol=1e-6, atol=1e-6)


def test_a_record_holds_one_map_and_the_kernels_where_there_are_any(mixer, name):
    record = Record()
    mixer(torch.randn(2, 7, WIDTH), Mask(MASK), record=record)
    assert len(record.attention) == isinstance(mixer, Attention)
    for attention in record.attention:
        assert attention.shape == (2, mixer.n_heads, 7, 7)
        torch.testing.assert_close(attention.sum(-1), torch.ones(2, mixer.n_heads, 7))
        assert not attention[1, :, :, 4:].any(), "padding is attended to"
    assert len(record.kernels) == (name in GENERATES_KERNELS)
    for kernels in record.kernels:
        assert kernels.shape == (2, 7, HEADS // 2, 4 if "even" in name else 5)
        torch.testing.assert_close(kernels.sum(-1), torch.ones(2, 7, HEADS // 2))


def test_recorded_maps_are_the_softmax_of_recorded_scores(mixer):
    x, mask, record = torch.randn(2, 7, WIDTH), Mask(MASK), Record(scores=[])
    mixed = mixer(x, mask, record=record)
    only = Record(states=None, attention=None, kernels=None, scores=[])
    assert torch.equal(mixer(x, mask, record=only), mixed)
    for scores, attention, alone in zip(record.scores, record.attention, only.scores, strict=True):
        assert torch.equal(torch.softmax(scores, dim=-1), attention)
        assert torch.equal(alone, scores)


def test_the_gradient_reaches_every_parameter_and_both_streams(two_streams):
    x = torch.randn(2, 7, WIDTH, requires_grad=True)
    value = torch.randn(2, 7, SECOND, requires_grad=True)
    two_streams(x, Mask(MASK), value=value).square().sum().backward()
    for name, parameter in [*two_streams.named_parameters(), ("x", x), ("value", value)]:
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A key's bias adds a constant to all scores of a query, which the softmax cancels.
        assert (name.startswith("key.") and name.endswith("bias")) or parameter.grad.abs().amax() > 1e-4, name


def test_dropout_applies_in_training_only(name):
    mixer = randomised(MIXERS[name](dropout=0.5))
    x, mask = torch.randn(2, 7, WIDTH), Mask(MASK)
    assert torch.equal(mixer(x, mask), mixer(x, mask))
    mixer.train()
    assert not torch.equal(mixer(x, mask), mixer(x, mask))
    assert not torch.equal(mixer(x, mask, record=Record()), mixer(x, mask, record=Record()))


class OfTensors(nn.Module):
    """A mixer with a signature that `torch.export` supports."""

    def __init__(self, mixer: Mixer) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.mixer(x, Mask(mask))


@pytest.mark.parametrize("name", EXPORTED)
def test_it_exports_with_any_batch_and_length(name):
    mixer = randomised(MIXERS[name]())
    dynamic = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("tokens", min=2, max=64)}
    example = (torch.randn(2, 7, WIDTH), MASK)
    exported = torch.export.export(OfTensors(mixer), example, dynamic_shapes=(dynamic, dynamic)).module()
    x, mask = torch.randn(3, 10, WIDTH), torch.rand(3, 10) < 0.8
    torch.testing.assert_close(exported(x, mask), mixer(x, Mask(mask)), rtol=1e-6, atol=1e-6)
