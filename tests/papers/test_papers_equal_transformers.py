"""The models of `papers` equal those of transformers in float64, with random weights and released padding."""

import re

import pytest
import torch
from torch import Tensor, nn

from lightbert.papers.bert import bert, mlm_logits, rtd_logits
from lightbert.papers.convbert import convbert
from lightbert.papers.mobilebert import mobilebert

transformers = pytest.importorskip("transformers")

Batch = tuple[Tensor, Tensor, Tensor]

EMBEDDINGS = [
    (r"embeddings\.word_embeddings", "embeddings.word"),
    (r"embeddings\.position_embeddings", "embeddings.position"),
    (r"embeddings\.token_type_embeddings", "embeddings.segment"),
    (r"embeddings\.LayerNorm", "embeddings.norm"),
    (r"embeddings_project", "embeddings.project"),
    (r"embeddings\.embedding_transformation", "embeddings.project"),
]
POST_NORM = [
    (r"encoder\.layer\.(\d+)\.attention\.self", r"blocks.\1.mixer"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense", r"blocks.\1.output"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm", r"blocks.\1.norm"),
    (r"encoder\.layer\.(\d+)\.intermediate\.dense", r"blocks.\1.feedforward.up"),
    (r"encoder\.layer\.(\d+)\.output\.dense", r"blocks.\1.feedforward.down"),
    (r"encoder\.layer\.(\d+)\.output\.LayerNorm", r"blocks.\1.feedforward.norm"),
]
SPAN = [
    (r"key_conv_attn_layer\.bias", "convolution.pointwise.bias"),
    (r"key_conv_attn_layer", "convolution"),
    (r"conv_kernel_layer", "convolution.kernel"),
    (r"conv_out_layer", "convolution.value"),
]
HEADS = [
    (r"^(electra|convbert|mobilebert)\.", ""),
    (r"discriminator_predictions\.dense_prediction", "heads.rtd.output"),
    (r"discriminator_predictions\.dense", "heads.rtd.dense"),
    (r"generator_predictions\.dense", "heads.mlm.transform"),
    (r"generator_predictions\.LayerNorm", "heads.mlm.norm"),
    (r"generator_lm_head\.bias", "heads.mlm.bias"),
    (r"cls\.predictions\.transform\.dense", "heads.mlm.transform"),
    (r"cls\.predictions\.transform\.LayerNorm", "heads.mlm.norm"),
    (r"cls\.predictions\.bias", "heads.mlm.bias"),
    (r"cls\.predictions\.dense\.weight", "heads.mlm.extra"),
]


def bottleneck(last: int) -> list[tuple[str, str]]:
    """MobileBERT's names; transformers names the last feed-forward of a block differently."""
    return [
        (r"encoder\.layer\.(\d+)\.bottleneck\.input\.dense", r"blocks.\1.enter"),
        (r"encoder\.layer\.(\d+)\.bottleneck\.input\.LayerNorm", r"blocks.\1.enter_norm"),
        (r"encoder\.layer\.(\d+)\.bottleneck\.attention\.dense", r"blocks.\1.shared"),
        (r"encoder\.layer\.(\d+)\.bottleneck\.attention\.LayerNorm", r"blocks.\1.shared_norm"),
        (r"encoder\.layer\.(\d+)\.output\.bottleneck\.dense", r"blocks.\1.leave"),
        (r"encoder\.layer\.(\d+)\.output\.bottleneck\.LayerNorm", r"blocks.\1.leave_norm"),
        *POST_NORM[:3],
        (r"encoder\.layer\.(\d+)\.ffn\.(\d+)\.intermediate\.dense", r"blocks.\1.feedforward.\2.up"),
        (r"encoder\.layer\.(\d+)\.ffn\.(\d+)\.output\.dense", r"blocks.\1.feedforward.\2.down"),
        (r"encoder\.layer\.(\d+)\.ffn\.(\d+)\.output\.LayerNorm", r"blocks.\1.feedforward.\2.norm"),
        (r"encoder\.layer\.(\d+)\.intermediate\.dense", rf"blocks.\1.feedforward.{last}.up"),
        (r"encoder\.layer\.(\d+)\.output\.dense", rf"blocks.\1.feedforward.{last}.down"),
        (r"encoder\.layer\.(\d+)\.output\.LayerNorm", rf"blocks.\1.feedforward.{last}.norm"),
    ]


def randomise(model: nn.Module) -> nn.Module:
    """Random weights, biases, norms and pad rows, large enough that each of them matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(mean=float(name.endswith("LayerNorm.weight")), std=0.3, generator=generator)
    return model.double().eval()


def renamed(model: nn.Module, table: list[tuple[str, str]]) -> dict[str, Tensor]:
    """The parameters of a transformers model under lightbert's names and in its shapes."""
    weights = {}
    for name, weight in model.named_parameters():
        for pattern, replacement in table:
            name = re.sub(pattern, replacement, name)
        match name.split("."):
            case [*_, "depthwise", "weight"]:
                weights[name] = weight[:, 0]
            case [*_, "pointwise", _]:
                weights[name] = weight[..., 0]
            case [*_, "extra"]:
                weights[name] = weight.T
            case _:
                weights[name] = weight
    return weights


@pytest.fixture
def batch() -> Batch:
    """Three texts of 13, 9 and 1 tokens: ids, mask and segments."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 50, (3, 13), generator=generator)
    keep = torch.arange(13) < torch.tensor([[13], [9], [1]])
    segments = torch.randint(0, 2, ids.shape, generator=generator)
    return ids * keep, keep, segments


SMALL = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 16,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    assert theirs.std() > 0.01
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9 * theirs.abs().max().item())


@pytest.mark.parametrize("narrow", [12, 24])
def test_bert_equals_electra(batch: Batch, narrow: int) -> None:
    ids, keep, segments = batch
    config = transformers.ElectraConfig(**SMALL, embedding_size=narrow)
    model = randomise(transformers.ElectraForPreTraining(config))
    weights = renamed(model, HEADS + EMBEDDINGS + POST_NORM)
    inputs = {"attention_mask": keep.long(), "token_type_ids": segments}
    states = bert(weights, ids, keep=keep, segments=segments, depth=2, n_heads=4)
    assert_same(states[keep], model.electra(ids, **inputs).last_hidden_state[keep])
    assert_same(rtd_logits(weights, states)[keep], model(ids, **inputs).logits[keep])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("kernel", "narrow"), [(9, 12), (3, 24)])
def test_convbert_equals_its_port_with_released_padding(batch: Batch, groups: int, kernel: int, narrow: int) -> None:
    ids, keep, segments = batch
    config = transformers.ConvBertConfig(**SMALL, embedding_size=narrow, conv_kernel_size=kernel, num_groups=groups)
    model = randomise(transformers.ConvBertForMaskedLM(config))
    weights = renamed(model, HEADS + SPAN + EMBEDDINGS + POST_NORM)
    inputs = {"attention_mask": keep.long(), "token_type_ids": segments}
    states = convbert(weights, ids, keep=keep, segments=segments, depth=2, n_heads=4, released_padding=True)
    assert_same(states, model.convbert(ids, **inputs).last_hidden_state)
    assert_same(mlm_logits(weights, states), model(ids, **inputs).logits)
    masked = convbert(weights, ids, keep=keep, segments=segments, depth=2, n_heads=4)
    assert (masked - states)[keep].abs().max() > 0.1


# transformers supports the teacher's "wide" input only if block_width == width.
@pytest.mark.parametrize(
    ("mixer_input", "width", "feedforwards", "norm", "activation"),
    # Every pair of an input, a number of feed-forwards and a norm.
    [
        ("shared", 24, 1, "none", "relu"),
        ("shared", 24, 3, "layer", "gelu_tanh"),
        ("narrow", 24, 1, "layer", "gelu_tanh"),
        ("narrow", 24, 3, "none", "relu"),
        ("wide", 16, 1, "none", "relu"),
        ("wide", 16, 3, "layer", "gelu_tanh"),
    ],
)
def test_mobilebert_equals_its_port_with_released_padding(
    batch: Batch, mixer_input: str, width: int, feedforwards: int, norm: str, activation: str
) -> None:
    ids, keep, segments = batch
    config = transformers.MobileBertConfig(
        **{**SMALL, "hidden_size": width, "layer_norm_eps": 1e-5},
        embedding_size=12,
        intra_bottleneck_size=16,
        num_feedforward_networks=feedforwards,
        use_bottleneck_attention=mixer_input == "narrow",
        key_query_shared_bottleneck=mixer_input == "shared",
        normalization_type={"none": "no_norm", "layer": "layer_norm"}[norm],
        hidden_act={"relu": "relu", "gelu_tanh": "gelu_pytorch_tanh"}[activation],
    )
    model = randomise(transformers.MobileBertForMaskedLM(config))
    weights = renamed(model, HEADS + EMBEDDINGS + bottleneck(last=feedforwards - 1))
    inputs = {"attention_mask": keep.long(), "token_type_ids": segments}
    # transformers doesn't pass eps to two of the norms, so they have PyTorch's 1e-5; here all of them do.
    settings = {"feedforwards": feedforwards, "mixer_input": mixer_input, "norm": norm, "activation": activation}
    states = mobilebert(
        weights, ids, keep=keep, segments=segments, depth=2, n_heads=4, released_padding=True, eps=1e-5, **settings
    )
    assert_same(states, model.mobilebert(ids, **inputs).last_hidden_state)
    assert_same(mlm_logits(weights, states, activation=activation, eps=1e-5), model(ids, **inputs).logits)
    masked = mobilebert(weights, ids, keep=keep, segments=segments, depth=2, n_heads=4, eps=1e-5, **settings)
    assert (masked - states)[keep].abs().max() > 0.01
