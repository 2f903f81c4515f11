"""Models read from variables written by hand, compared with the releases' forward pass in numpy."""

import numpy as np
import torch
from releases import (
    IDS,
    MASK,
    SEGMENTS,
    convbert_checkpoint,
    convbert_states,
    gelu,
    mobilebert_checkpoint,
    mobilebert_states,
    relu,
)

from lightbert.interop.tf1 import read_checkpoint
from lightbert.models.convbert import ConvBert
from lightbert.models.mobilebert import MobileBert

HEADS = {"num_attention_heads": 2, "hidden_act": "relu"}


@torch.no_grad()
def states(model):
    return model(*(torch.from_numpy(array) for array in (IDS, MASK, SEGMENTS.astype(int))))


def assert_equal(ours, theirs):
    np.testing.assert_allclose(ours.detach().numpy()[MASK], theirs[MASK], rtol=2e-5, atol=2e-5)


def test_a_discriminator_equals_the_forward_of_its_variables():
    for groups in (1, 2):
        variables = convbert_checkpoint(groups)
        model = read_checkpoint(variables)
        assert isinstance(model.config, ConvBert)
        assert (model.config.n_heads, model.config.kernel, model.config.groups) == (4, 3, groups)
        theirs = convbert_states(variables, "electra", heads=2)
        assert_equal(states(model), theirs)
        logits = variables.apply("discriminator_predictions/dense", theirs)
        logits = variables.apply("discriminator_predictions/dense_1", gelu(logits))[..., 0]
        assert_equal(model.heads["rtd"](states(model)), logits)


def test_a_generator_equals_the_forward_of_its_variables():
    for groups in (1, 2):
        variables = convbert_checkpoint(groups)
        model = read_checkpoint(variables, part="generator")
        assert (model.config.width, model.config.n_heads, model.config.padding) == (8, 1, "released")
        theirs = convbert_states(variables, "generator", heads=1)
        assert_equal(states(model), theirs)
        features = gelu(variables.apply("generator_predictions/dense", theirs))
        features = variables.normalise("generator_predictions/LayerNorm", features)
        logits = features @ variables["electra/embeddings/word_embeddings"].T
        assert_equal(
            model.heads["mlm"](states(model), model.table), logits + variables["generator_predictions/output_bias"]
        )


def test_a_mobilebert_equals_the_forward_of_its_variables():
    variables = mobilebert_checkpoint()
    model = read_checkpoint(variables, config=HEADS)
    assert isinstance(model.config, MobileBert)
    theirs = mobilebert_states(variables, heads=2)
    assert_equal(states(model), theirs)
    features = relu(variables.apply("cls/predictions/transform/dense", theirs))
    features = variables.normalise("cls/predictions/transform/LayerNorm", features)
    tables = [variables["bert/embeddings/word_embeddings"], variables["cls/predictions/extra_output_weights"]]
    logits = features @ np.concatenate(tables, -1).T + variables["cls/predictions/output_bias"]
    assert_equal(model.heads["mlm"](states(model), model.table), logits)
    follows = theirs[:, 0] @ variables["cls/seq_relationship/output_weights"].T
    follows = follows + variables["cls/seq_relationship/output_bias"]
    np.testing.assert_allclose(model.heads["nsp"](states(model)).detach().numpy(), follows, rtol=2e-5, atol=2e-5)
