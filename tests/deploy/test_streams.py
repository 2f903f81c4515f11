"""A NoNorm is folded into the layers around it, whatever its scales are."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from small import VARIANTS, model_of

from extras import needs_onnx
from lightbert.deploy.onnx.graph import Graph, Linear, Node
from lightbert.deploy.onnx.lowering import lower
from lightbert.deploy.onnx.model import graph_of
from lightbert.deploy.onnx.streams import SPREAD, Stream
from lightbert.deploy.publication import reference
from lightbert.nn.norms import NoNorm
from lightbert.tasks.predict.exported import Session

pytestmark = needs_onnx

CONFIG = replace(VARIANTS["mobilebert"], depth=2)


def scaled_model(low, high):
    """A MobileBERT whose norms have scales between low and high, and one that is zero if low is."""
    model = deepcopy(model_of(CONFIG))
    generator = torch.Generator().manual_seed(0)
    for part in model.modules():
        if isinstance(part, NoNorm):
            part.weight.uniform_(low, high, generator=generator)
            part.weight[0] = low
    return model


def test_a_nonorm_adds_no_operators_to_a_block():
    graph, _ = graph_of(scaled_model(0.9, 1.1), "states")
    kinds = [node.kind for node in graph.nodes if isinstance(node, Node)]
    # One Mul of the trigrams with the mask, one of the embeddings' norm, one of the states at the end.
    assert kinds.count("Mul") == 3
    residuals = [node for node in graph.nodes if isinstance(node, Linear) and node.residual]
    # The output of attention, the feed-forwards and the output of the block.
    assert len(residuals) == CONFIG.depth * (2 + CONFIG.feedforwards)


@pytest.mark.parametrize(("low", "high"), [(0.9, 1.1), (-2.0, 2.0), (0.0, 1.0), (1e-4, 3.0)])
def test_the_states_are_the_same_for_all_scales(low, high):
    model = scaled_model(low, high)
    (expected,), (found,) = (
        compute(np.array([[5, 6, 7, 8]]), None, np.zeros((1, 4), np.int64))
        for compute in (reference(model, "states"), Session(lower(*graph_of(model, "states"))))
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * max(1, np.abs(expected).max()))


def test_scales_that_differ_too_much_are_applied():
    graph = Graph(torch.nn.Identity())
    near, far = (Stream("x", np.float32([1, factor]), np.zeros(2, np.float32)) for factor in (SPREAD, 2 * SPREAD))
    assert near.settled(graph) is near
    assert graph.nodes == []
    assert far.settled(graph).scale.tolist() == [1, 1]
    assert [node.kind for node in graph.nodes] == ["Mul"]
