"""Linear layers that simulate int8: rounding, learned ranges, gradients, and the way back to plain layers."""

from copy import deepcopy

import pytest
import torch
from small import FAMILIES, ids, model_of
from torch import nn

from lightbert.nn.quantization import DECAY, SimulatedInt8Linear, remove_simulation, simulate_int8


def layer(inputs=6, outputs=4):
    torch.manual_seed(0)
    return SimulatedInt8Linear(nn.Linear(inputs, outputs))


def test_inputs_have_256_values_in_the_range_and_weights_255_per_channel():
    simulated = layer(1, 1)
    simulated.weight.data.fill_(127.0)
    simulated.bias.data.zero_()
    x = torch.linspace(-1, 2, 5000)[:, None]
    found = simulated(x) / 127
    assert len(found.unique()) == 256
    assert (found - x).abs().max() <= 3 / 255 / 2 + 1e-6
    assert found[found.abs().argmin()] == 0
    wide = layer(64, 3)
    wide.weight.data[1] *= 1000
    rounded = wide._rounded_weight()
    assert ((rounded - wide.weight).abs() <= wide.weight.abs().amax(1, keepdim=True) / 127 / 2 + 1e-6).all()


def test_the_range_is_that_of_the_first_batch_then_a_moving_average():
    simulated = layer()
    simulated(torch.tensor([[-1.0, 0, 0, 0, 0, 3]]))
    assert simulated.input_range.tolist() == [-1, 3]
    simulated(torch.tensor([[1.0, 2, 3, 4, 5, 13]]))
    # The range always contains 0.
    assert simulated.input_range.tolist() == pytest.approx([-DECAY, 3 + (1 - DECAY) * 10])


def test_evaluation_keeps_the_range_and_clips_to_it():
    simulated = layer(1, 1).eval()
    assert torch.isfinite(simulated(torch.tensor([[5.0]]))).all()
    assert simulated.input_range.tolist() == [0, 0]
    simulated.input_range.copy_(torch.tensor([-1.0, 1.0]))
    assert torch.equal(simulated(torch.tensor([[50.0]])), simulated(torch.tensor([[1.1]])))
    assert simulated.input_range.tolist() == [-1, 1]


def test_gradients_pass_through_the_rounding_but_not_through_clipped_values():
    simulated = layer().eval()
    simulated.input_range.copy_(torch.tensor([-1.0, 1.0]))
    x = torch.tensor([[0.1, -0.5, 0.9, 3.0, -7.0, 0.0]], requires_grad=True)
    simulated(x).sum().backward()
    expected = simulated._rounded_weight().sum(0)
    assert torch.allclose(x.grad[0, [0, 1, 2, 5]], expected[[0, 1, 2, 5]])
    assert x.grad[0, [3, 4]].tolist() == [0, 0]
    assert simulated.weight.grad is not None
    assert simulated.weight.grad.abs().sum() > 0
    assert simulated.input_range.grad is None


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_keeps_its_parameter_names_and_gets_its_layers_back(family):
    model = deepcopy(model_of(FAMILIES[family]))
    tokens = ids(2, 5)
    names, before = dict(model.named_parameters()), model(tokens)
    simulate_int8(model.train())
    changed = dict(model.named_parameters())
    assert {name for name in changed if not name.endswith("input_range")} == set(names)
    assert all(changed[name] is names[name] for name in names)
    with torch.no_grad():
        model(tokens)
        simulated = model.eval()(tokens)
    assert 0 < (simulated - before).abs().max() < 0.3 * before.abs().max()
    ranges = remove_simulation(model)
    assert not any(isinstance(part, SimulatedInt8Linear) for part in model.modules())
    assert torch.equal(model.eval()(tokens), before)
    assert ranges
    assert not any(name.startswith("embeddings") for name in ranges)
    assert all(low <= 0 <= high and low < high for low, high in ranges.values())
