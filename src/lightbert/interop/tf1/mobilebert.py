"""MobileBERT and its teacher IB-BERT, with the heads of BERT's pre-training."""

from collections.abc import Mapping

from torch import Tensor

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.interop.families import Heads, Settings
from lightbert.interop.keymap import Keymap, Row, quote_names
from lightbert.interop.tf1.released_model import Choices, ReleasedModel, count, merge_config, shape
from lightbert.interop.tf1.rows import attention, dense, norm, tables
from lightbert.models import PRESETS
from lightbert.models.mobilebert import MobileBert

_FIELDS = {"intra_bottleneck_size": "block_width", "num_feedforward_networks": "feedforwards"}
_CHOICES: Choices = {
    # The release computes gelu with its tanh approximation.
    "hidden_act": {
        "gelu": {"activation": "gelu_tanh"},
        "relu": {"activation": "relu"},
        "relu6": {"activation": "relu6"},
    },
    "normalization_type": {
        "no_norm": {"norm": "none"},
        "layer_norm": {"norm": "layer"},
        "manual_layer_norm": {"norm": "layer", "eps": 1e-6},
    },
    "key_query_shared_bottleneck": {True: {"mixer_input": "shared"}, False: {}},
    "use_bottleneck_attention": {True: {"mixer_input": "narrow"}, False: {}},
    "trigram_input": {True: {}},
    "use_bottleneck": {True: {}},
    # Determined by whether the checkpoint has a pooler.
    "classifier_activation": {True: {}, False: {}},
}
_ANY_SIZE = {"vocab", "positions", "segments"}
# The fields that shapes can't determine, with their keys in a JSON config.
_NOT_IN_SHAPES = {
    "n_heads": "num_attention_heads",
    "activation": "hidden_act",
    "mixer_input": "use_bottleneck_attention",
}
# The MLM head has a LayerNorm even when the blocks have NoNorm.
_HEAD_EPS = 1e-12
_LAYER = "bert/encoder/layer_0"


def keymap(name: str) -> Keymap:
    """Build the keymap; `name` is the scope of the norms, "LayerNorm" or "FakeLayerNorm"."""
    layer = "bert/encoder/layer_{i}"
    last, before = "blocks.{i}.feedforward.{last}", "blocks.{i}.feedforward.{j}"
    return Keymap(
        (
            *tables("bert"),
            *dense("embeddings.project", "bert/embeddings/embedding_transformation"),
            *norm("embeddings.norm", f"bert/embeddings/{name}"),
            *dense("blocks.{i}.enter", f"{layer}/bottleneck/input/dense"),
            *norm("blocks.{i}.enter_norm", f"{layer}/bottleneck/input/{name}"),
            *dense("blocks.{i}.shared", f"{layer}/bottleneck/attention/dense"),
            *norm("blocks.{i}.shared_norm", f"{layer}/bottleneck/attention/{name}"),
            *attention(layer),
            *norm("blocks.{i}.norm", f"{layer}/attention/output/{name}"),
            *dense(f"{last}.up", f"{layer}/intermediate/dense"),
            *dense(f"{last}.down", f"{layer}/output/dense"),
            *norm(f"{last}.norm", f"{layer}/output/{name}"),
            *dense(f"{before}.up", f"{layer}/ffn_layer_{{j}}/intermediate/dense"),
            *dense(f"{before}.down", f"{layer}/ffn_layer_{{j}}/output/dense"),
            *norm(f"{before}.norm", f"{layer}/ffn_layer_{{j}}/output/{name}"),
            *dense("blocks.{i}.leave", f"{layer}/output/bottleneck/dense"),
            *norm("blocks.{i}.leave_norm", f"{layer}/output/bottleneck/{name}"),
            *dense("heads.mlm.transform", "cls/predictions/transform/dense"),
            *norm("heads.mlm.norm", "cls/predictions/transform/LayerNorm"),
            Row("heads.mlm.bias", "cls/predictions/output_bias"),
            Row("heads.mlm.extra", "cls/predictions/extra_output_weights"),
            *dense("heads.pooler.dense", "bert/pooler/dense"),
            *dense("heads.nsp.dense", "bert/pooler/dense"),
            Row("heads.nsp.output.weight", "cls/seq_relationship/output_weights"),
            Row("heads.nsp.output.bias", "cls/seq_relationship/output_bias"),
        )
    )


def identify(tensors: Mapping[str, Tensor], given: Settings) -> ReleasedModel:
    """Identify a published model by its shapes, or any model by its shapes and a JSON config."""
    known = _settings_from_shapes(tensors)
    settings = merge_config(known, given, _FIELDS, _CHOICES)
    if given:
        # A config that sets neither of the two alternatives means "wide".
        settings.setdefault("mixer_input", "wide")
    settings = {**_settings_of_preset(known), **settings}
    if missing := [their for ours, their in _NOT_IN_SHAPES.items() if ours not in settings]:
        raise InputError(
            f"the shapes match no published MobileBERT and don't determine {quote_names(missing)}: "
            "give the JSON config that it was trained with"
        )
    return ReleasedModel(
        family="mobilebert",
        config=from_mapping(MobileBert, {**settings, "padding": "released"}),
        heads=_heads(tensors),
        keymap=keymap(_norm_name(tensors)),
        last=known["feedforwards"] - 1,
    )


def _settings_from_shapes(tensors: Mapping[str, Tensor]) -> Settings:
    vocab, narrow = shape(tensors, "bert/embeddings/word_embeddings")
    positions, width = shape(tensors, "bert/embeddings/position_embeddings")
    block_width, read = (shape(tensors, f"{_LAYER}/attention/self/query/kernel")[axis] for axis in (1, 0))
    known: Settings = {
        "vocab": vocab,
        "narrow": narrow,
        "positions": positions,
        "segments": shape(tensors, "bert/embeddings/token_type_embeddings")[0],
        "width": width,
        "block_width": block_width,
        "depth": count(tensors, "bert/encoder/layer_"),
        "inner": shape(tensors, f"{_LAYER}/intermediate/dense/bias")[0],
        "feedforwards": count(tensors, f"{_LAYER}/ffn_layer_") + 1,
        "norm": "none" if _norm_name(tensors) == "FakeLayerNorm" else "layer",
    }
    if f"{_LAYER}/bottleneck/attention/dense/kernel" in tensors:
        known["mixer_input"] = "shared"
    elif width != block_width:
        known["mixer_input"] = "wide" if read == width else "narrow"
    return known


def _settings_of_preset(known: Settings) -> Settings:
    """Return the settings of the preset that has these shapes; empty if there is none."""
    for preset in PRESETS.values():
        fields = to_mapping(preset)
        if isinstance(preset, MobileBert) and all(fields[name] == known[name] for name in known.keys() - _ANY_SIZE):
            return fields
    return {}


def _heads(tensors: Mapping[str, Tensor]) -> Heads:
    heads: Heads = {}
    pooled = "bert/pooler/dense/kernel" in tensors
    if "cls/predictions/output_bias" in tensors:
        heads["mlm"] = {"eps": _HEAD_EPS}
    if "cls/seq_relationship/output_weights" in tensors:
        heads["nsp"] = {"pooled": pooled}
    elif pooled:
        heads["pooler"] = {}
    return heads


def _norm_name(tensors: Mapping[str, Tensor]) -> str:
    return "FakeLayerNorm" if "bert/embeddings/FakeLayerNorm/gamma" in tensors else "LayerNorm"
