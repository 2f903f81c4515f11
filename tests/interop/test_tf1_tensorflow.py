"""Checkpoints written by tensorflow. Opt-in: requires the extra `tf1`."""

import numpy as np
import pytest
import torch
from releases import convbert_checkpoint, mobilebert_checkpoint

import lightbert
from lightbert.cli import main
from lightbert.errors import InputError
from lightbert.interop.tf1 import read_checkpoint, read_tf1
from lightbert.nn.mask import Mask

# Ignore deprecations inside tensorflow.
pytestmark = [pytest.mark.prove, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def tf():
    return pytest.importorskip("tensorflow", reason="the extra tf1 is not installed")


def save(tf, variables, prefix):
    """Write variables as the releases' training scripts did, with a Saver over a graph."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, array in variables.items():
            tf.compat.v1.get_variable(name, initializer=tf.constant(array), use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(prefix), write_meta_graph=False)


def assert_same(read, expected):
    assert read.config == expected.config
    tensors = expected.state_dict()
    assert read.state_dict().keys() == tensors.keys()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in read.state_dict().items())


@pytest.mark.parametrize("part", ["discriminator", "generator"])
def test_a_convbert_is_read_and_saved_as_our_folder(tf, tmp_path, part):
    variables = convbert_checkpoint(groups=2)
    save(tf, variables, tmp_path / "model.ckpt-1000")
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]))
    model = read_tf1(tmp_path / "model.ckpt-1000", part=part)
    assert_same(model, read_checkpoint(variables, part=part))
    lightbert.save(model, tmp_path / "ours")
    again = lightbert.load(tmp_path / "ours")
    assert_same(again, model)
    assert again.tokenizer.token_to_id("[MASK]") == 4


def test_a_mobilebert_is_read_with_its_json_config(tf, tmp_path):
    variables = mobilebert_checkpoint()
    save(tf, variables, tmp_path / "mobilebert_variables.ckpt")
    settings = {"num_attention_heads": 2, "hidden_act": "relu"}
    (tmp_path / "config.json").write_text('{"num_attention_heads": 2, "hidden_act": "relu", "hidden_size": 8}')
    model = read_tf1(tmp_path / "mobilebert_variables.ckpt", config=tmp_path / "config.json")
    assert_same(model, read_checkpoint(variables, config=settings))


def test_the_command_line_converts_a_checkpoint_by_its_prefix(tf, tmp_path):
    variables = convbert_checkpoint()
    save(tf, variables, tmp_path / "model.ckpt")
    source, target = str(tmp_path / "model.ckpt"), str(tmp_path / "ours")
    assert main(["convert", source, target, "--to", "lightbert", "--part", "generator"]) == 0
    assert_same(lightbert.load(target), read_checkpoint(variables, part="generator"))


def test_the_separable_convolution_matches_tensorflow(tf):
    variables = convbert_checkpoint(groups=2)
    scope = "electra/encoder/layer_0/attention/self/conv_attn_key"
    x = np.random.default_rng(0).normal(size=(2, 9, 12)).astype(np.float32)
    # As tf.layers.separable_conv1d calls it: one row of pixels, "same" padding.
    theirs = tf.nn.separable_conv2d(
        x[:, None],
        variables[f"{scope}/depthwise_kernel"][None],
        variables[f"{scope}/pointwise_kernel"][None],
        strides=[1, 1, 1, 1],
        padding="SAME",
    )
    convolution = read_checkpoint(variables).blocks[0].mixer.convolution
    with torch.no_grad():
        stream, query = torch.from_numpy(x), torch.ones(2, 9, 6)
        ours = convolution.span(stream, query, Mask(None))
    np.testing.assert_allclose(ours, theirs[:, 0] + variables[f"{scope}/bias"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ending", [".index", ".data-00000-of-00001"])
def test_a_truncated_checkpoint_is_a_one_line_error(tf, tmp_path, ending):
    save(tf, convbert_checkpoint(groups=2), tmp_path / "model.ckpt")
    file = tmp_path / f"model.ckpt{ending}"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InputError, match="is truncated or a file is missing"):
        read_tf1(tmp_path / "model.ckpt")


def test_a_checkpoint_without_its_data_file_is_a_one_line_error(tf, tmp_path):
    save(tf, convbert_checkpoint(groups=2), tmp_path / "model.ckpt")
    (tmp_path / "model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(InputError, match="is truncated or a file is missing"):
        read_tf1(tmp_path / "model.ckpt")
