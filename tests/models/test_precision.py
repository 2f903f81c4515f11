"""Lower precision: bfloat16 for every family, fp16 for those with normalization."""

import pytest
import torch
from small import FAMILIES, VARIANTS, ids

from lightbert.errors import InputError
from lightbert.models import Config, build
from lightbert.nn.encoder import Encoder
from randomised import randomised

MASK = torch.arange(7) < torch.tensor([[7], [4]])
UNNORMALISED = ("mobilebert", "combined")


MODELS = FAMILIES | {"ib-bert": VARIANTS["ib-bert-large"]}


def fresh(config: Config) -> Encoder:
    return randomised(build(config)).train()


def test_bfloat16_autocast_trains_every_parameter(subtests):
    for family in MODELS:
        with subtests.test(family=family):
            model = fresh(MODELS[family])
            with torch.autocast("cpu", torch.bfloat16):
                states = model(ids(2, 7), MASK)
                loss = states.float().pow(3).mean()
            loss.backward()
            assert states.isfinite().all()
            for name, parameter in model.named_parameters():
                assert parameter.grad is not None, name
                assert parameter.grad.isfinite().all(), name
                assert parameter.grad.any() or name.endswith("key.bias"), name


def test_bfloat16_autocast_is_close_to_float32(subtests):
    for family in MODELS:
        with subtests.test(family=family):
            model, rows = fresh(MODELS[family]).eval(), ids(2, 7)
            states = model(rows, MASK)
            with torch.autocast("cpu", torch.bfloat16):
                rounded = model(rows, MASK).float()
            error = (rounded - states).norm() / states.norm()
            assert 0 < error < 0.05


def test_a_bfloat16_model_gives_bfloat16_states(subtests):
    for family in MODELS:
        with subtests.test(family=family):
            model = fresh(MODELS[family]).to(torch.bfloat16)
            states = model(ids(2, 7), MASK)
            assert states.dtype is torch.bfloat16
            assert states.isfinite().all()


def test_fp16_is_accepted_with_layer_norm(subtests):
    for family in [name for name in MODELS if name not in UNNORMALISED]:
        with subtests.test(family=family):
            model = fresh(MODELS[family])
            with torch.autocast("cpu", torch.float16):
                assert model(ids(2, 7), MASK).isfinite().all()
            assert model.half()(ids(2, 7), MASK).isfinite().all()


def test_fp16_without_normalization_is_an_error_with_the_reason():
    reason = (
        r"no normalization, so its activations \(up to 1e7\) overflow float16 \(max 65504\); use bfloat16 or float32"
    )
    for family in UNNORMALISED:
        model = fresh(MODELS[family])
        with torch.autocast("cpu", torch.float16), pytest.raises(InputError, match=reason):
            model(ids(2, 7))
        with pytest.raises(InputError, match=reason):
            model.half()(ids(2, 7))
