"""The output of a mixer for a text doesn't depend on padding or on other texts in its row."""

import pytest
import torch
from mixers import CONVOLVES, MIXERS, WIDTH
from torch import Tensor

from lightbert.nn.attention import Mixer
from lightbert.nn.mask import Mask
from randomised import randomised


@pytest.fixture(params=MIXERS.keys())
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def mixer(name: str) -> Mixer:
    return randomised(MIXERS[name]())


def alone(mixer: Mixer, text: Tensor) -> Tensor:
    return mixer(text[None], Mask(None))[0]


def same(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 3, 8])
@pytest.mark.parametrize("before", [0, 1, 6])
def test_padding_on_either_side_changes_nothing(mixer, tokens, before):
    text, row = torch.randn(tokens, WIDTH), 3 * torch.randn(1, 15, WIDTH)
    keep = torch.zeros(1, 15, dtype=torch.bool)
    row[0, before : before + tokens] = text
    keep[0, before : before + tokens] = True
    same(mixer(row, Mask(keep))[0, before : before + tokens], alone(mixer, text))


def test_texts_packed_into_a_row_do_not_affect_each_other(mixer):
    texts = [torch.randn(tokens, WIDTH) for tokens in (4, 1, 2, 5)]
    row = torch.cat([*texts, 3 * torch.randn(2, WIDTH)])[None]
    numbers = torch.tensor([[7] * 4 + [3] + [9] * 2 + [1] * 5 + [0] * 2])
    packed = mixer(row, Mask(numbers))[0]
    for text, part in zip(texts, packed.split([4, 1, 2, 5, 2]), strict=False):
        same(part, alone(mixer, text))


def test_a_row_of_padding_only_has_finite_outputs(mixer):
    x = torch.randn(2, 7, WIDTH)
    assert mixer(x, Mask(torch.zeros(2, 7, dtype=torch.bool))).isfinite().all()
    assert mixer(x, Mask(torch.zeros(2, 7, dtype=torch.int64))).isfinite().all()


def test_with_released_padding_only_convolutions_read_it(mixer, name):
    text, padding = torch.randn(5, WIDTH), torch.randn(4, WIDTH)
    keep = torch.tensor([[True] * 5 + [False] * 4])
    out = mixer(torch.cat([text, padding])[None], Mask(keep, released=True))[0, :5]
    difference = (out - alone(mixer, text)).abs().amax()
    assert difference > 0.1 if name in CONVOLVES else difference < 1e-5
