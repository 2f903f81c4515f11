"""torch.compile compiles every family as one graph."""

from dataclasses import replace

import pytest
import torch
from small import FAMILIES, assert_same_states, ids, model_of

from lightbert.models import Config, build
from randomised import randomised


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES.keys())
def config(request: pytest.FixtureRequest) -> Config:
    torch.compiler.reset()
    # One block is enough, and takes half the time.
    return replace(request.param, depth=1, dropout=0.0, attention_dropout=0.0)


def test_the_forward_is_one_graph(config):
    model, rows = model_of(config), ids(2, 7)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for mask in (None, torch.tensor([[1, 1, 1, 2, 2, 2, 2], [1, 2, 2, 2, 0, 0, 0]])):
        assert_same_states(compiled(rows, mask), model(rows, mask))


@pytest.mark.prove
def test_compiled_code_trains_like_eager_code(config):
    model, rows, mask = randomised(build(config)).train(), ids(2, 7), torch.arange(7) < torch.tensor([[7], [4]])
    results = []
    for either in (model, torch.compile(model, fullgraph=True)):
        model.zero_grad()
        states = either(rows, mask)
        states.square().mean().backward()
        results.append((states.detach(), [parameter.grad for parameter in model.parameters()]))
    (states, gradients), (compiled_states, compiled_gradients) = results
    assert_same_states(compiled_states, states)
    for gradient, compiled_gradient in zip(gradients, compiled_gradients, strict=True):
        assert_same_states(compiled_gradient, gradient)
