"""The released models let convolutions and trigrams read the padding: an explicit option, saved in the config."""

from dataclasses import replace

import pytest
import torch
from small import VARIANTS, assert_same_states, ids, model_of
from torch import Tensor

from lightbert.errors import InputError
from lightbert.models import Config
from lightbert.nn.encoder import Encoder

LEAKS = {
    name: VARIANTS[name]
    for name in (
        "convbert-small",
        "convbert-medium-small",
        "convbert-base",
        "convbert-small-dynamic",
        "convbert-small-conventional",
        "mobilebert",
        "mobilebert-paper",
        "mobilebert-no-opt",
        "mobilebert-tiny",
        "ib-bert-large",
        "combined",
    )
}
TIGHT = {"convbert-small-bnk": VARIANTS["convbert-small-bnk"]}


def released(config: Config) -> Encoder:
    return model_of(replace(config, padding="released"))


def padded(text: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    row = torch.cat([text, ids(1, padding)], dim=1)
    return row, (torch.arange(row.shape[1]) < text.shape[1])[None]


def test_padding_changes_the_states_of_released_models_noticeably(subtests):
    for name, config in LEAKS.items():
        with subtests.test(name=name):
            text = ids(1, 10)
            row, keep = padded(text, 12)
            masked, leaking = model_of(config)(row, keep)[:, :10], released(config)(row, keep)[:, :10]
            assert (masked - leaking).abs().amax() > 0.1
            assert_same_states(masked, model_of(config)(text))


def test_the_content_of_the_padding_matters(subtests):
    for name, config in LEAKS.items():
        with subtests.test(name=name):
            text = ids(1, 10)
            (one, keep), (other, _) = padded(text, 6), padded(text, 6)
            difference = released(config)(one, keep)[:, :10] - released(config)(other, keep)[:, :10]
            assert difference.abs().amax() > 0.1


def test_without_padding_both_are_the_same(subtests):
    for name, config in LEAKS.items():
        with subtests.test(name=name):
            rows = ids(2, 10)
            assert_same_states(released(config)(rows), model_of(config)(rows))
            full = torch.ones(2, 10, dtype=torch.bool)
            assert_same_states(released(config)(rows, full), model_of(config)(rows, full))


def test_positions_count_the_padding_on_the_left():
    model, text = released(TIGHT["convbert-small-bnk"]), ids(1, 6)
    row, keep = torch.cat([ids(1, 4), text], dim=1), torch.tensor([[False] * 4 + [True] * 6])
    assert (model(row, keep)[:, 4:] - model(text)).abs().amax() > 0.1


def test_a_model_without_convolutions_does_not_read_padding_on_the_right():
    text = ids(1, 10)
    model = released(TIGHT["convbert-small-bnk"])
    assert_same_states(model(*padded(text, 6))[:, :10], model(text))


def test_packed_texts_are_an_error(subtests):
    sentence = r"must be boolean with padding = 'released', got torch\.int64; packed texts require 'masked'"
    for name, config in LEAKS.items():
        with subtests.test(name=name), pytest.raises(InputError, match=sentence):
            released(config)(ids(1, 4), torch.tensor([[1, 1, 2, 2]]))
