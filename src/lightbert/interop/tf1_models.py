"""The models in TensorFlow 1 checkpoints: identified by the shapes of their tensors, completed by a JSON config."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError, unknown
from lightbert.interop.families import Heads, Settings
from lightbert.interop.keymap import Keymap, Row, quote_names
from lightbert.models import PRESETS, Config
from lightbert.models.bert import Bert
from lightbert.models.convbert import ConvBert
from lightbert.models.mobilebert import MobileBert
from lightbert.nn.mixed import reduced_heads

Choices = Mapping[str, Mapping[Any, Settings]]
"""Key of a JSON config -> its possible values -> our fields for each."""

_FIELDS = {
    "vocab_size": "vocab",
    "max_position_embeddings": "positions",
    "type_vocab_size": "segments",
    "embedding_size": "narrow",
    "hidden_size": "width",
    "num_hidden_layers": "depth",
    "num_attention_heads": "n_heads",
    "intermediate_size": "inner",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}


@dataclass(frozen=True)
class ReleasedModel:
    """A released model: its config and heads in our terms, and the keymap of its tensors."""

    family: str
    """The `model_type` in transformers; ELECTRA is our BERT."""
    config: Config
    heads: Heads
    keymap: Keymap
    last: int = 0
    """The index of a block's last feed-forward, for keymaps that name it differently."""


def _merge_config(known: Settings, config: Settings, more_fields: Mapping[str, str], choices: Choices) -> Settings:
    """Complete the settings that are known from the shapes with a JSON config of the release.

    The config must not contradict the shapes. `more_fields` maps further keys to our field names; `choices` lists the
    keys whose values need translating.
    """
    names = {**_FIELDS, **more_fields}
    settings = dict(known)
    for key, value in config.items():
        if key == "initializer_range":
            continue
        if key in names:
            translated: Settings = {names[key]: value}
        elif key in choices:
            translations = [ours for choice, ours in choices[key].items() if choice == value]
            if not translations:
                raise unknown(key, str(value), map(str, choices[key]))
            translated = translations[0]
        else:
            raise unknown("key in the config", key, [*names, *choices])
        for field, ours in translated.items():
            if known.get(field, ours) != ours:
                raise InputError(
                    f"'{key}' is {value!r} in the config, but the checkpoint has {field} = {known[field]!r}; "
                    "correct the config"
                )
            settings[field] = ours
    return settings


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    """Return the shape of a tensor that every checkpoint of the family has."""
    if name not in tensors:
        raise InputError(f"the checkpoint has no tensor '{name}'; it is incomplete, so copy it again")
    return tuple(tensors[name].shape)


def _count(names: Iterable[str], stem: str) -> int:
    """Return 1 + the highest number that follows `stem` in a name, 0 if there is none."""
    numbers = [int(match[1]) for name in names if (match := re.match(rf"{re.escape(stem)}(\d+)/", name))]
    return max(numbers, default=-1) + 1


def _any(names: Iterable[str], scope: str) -> bool:
    return any(name.startswith(scope) for name in names)


# Rows for the variable names of TensorFlow's layers.


def _dense(ours: str, theirs: str) -> tuple[Row, ...]:
    """`tf.layers.dense`: the kernel is [in, out]."""
    return Row(f"{ours}.weight", f"{theirs}/kernel", "transpose"), Row(f"{ours}.bias", f"{theirs}/bias")


def _grouped(ours: str, theirs: str) -> tuple[Row, ...]:
    """ConvBERT's grouped layer: the kernel is [g, in/g, out/g], like ours."""
    return Row(f"{ours}.weight", f"{theirs}/kernel"), Row(f"{ours}.bias", f"{theirs}/bias")


def _norm(ours: str, theirs: str) -> tuple[Row, ...]:
    """`tf.contrib.layers.layer_norm`, or MobileBERT's NoNorm."""
    return Row(f"{ours}.weight", f"{theirs}/gamma"), Row(f"{ours}.bias", f"{theirs}/beta")


def _encoder(embeddings: str, layer: str) -> tuple[Row, ...]:
    """The word, position and segment embeddings; query, key, value and output projections."""
    return (
        Row("embeddings.word.weight", f"{embeddings}/embeddings/word_embeddings"),
        Row("embeddings.position.weight", f"{embeddings}/embeddings/position_embeddings"),
        Row("embeddings.segment.weight", f"{embeddings}/embeddings/token_type_embeddings"),
        *_dense("blocks.{i}.mixer.query", f"{layer}/attention/self/query"),
        *_dense("blocks.{i}.mixer.key", f"{layer}/attention/self/key"),
        *_dense("blocks.{i}.mixer.value", f"{layer}/attention/self/value"),
        *_dense("blocks.{i}.output", f"{layer}/attention/output/dense"),
    )


# ELECTRA and ConvBERT: a discriminator and a generator in one checkpoint, with the embeddings of both.

PARTS = ("discriminator", "generator")

_CONVBERT_FIELDS = {"head_ratio": "head_ratio", "conv_kernel_size": "kernel", "linear_groups": "groups"}
_CONVBERT_CHOICES: Choices = {
    "hidden_act": {name: {"activation": name} for name in ("gelu", "relu")},
    "conv_type": {"sdconv": {"convolution": "span"}, "noconv": {"convolution": "none"}},
}
# Both releases use one head per 64 channels at these widths. They disagree at 384; other widths were never published.
_PUBLISHED_WIDTHS, _PUBLISHED_HEAD_WIDTH = (64, 256, 768, 1024), 64


def electra_keymap(body: str, embeddings: str, *, groups: int) -> Keymap:
    """Build the keymap of an encoder in the scope `body` with its embedding tables in the scope `embeddings`."""
    layer = f"{body}/encoder/layer_{{i}}"
    convolution, theirs = "blocks.{i}.mixer.convolution", f"{layer}/attention/self"
    up_or_down, name = (_dense, "dense") if groups == 1 else (_grouped, "g_dense")
    return Keymap(
        (
            *_encoder(embeddings, layer),
            *_norm("embeddings.norm", f"{embeddings}/embeddings/LayerNorm"),
            *_dense("embeddings.project", f"{body}/embeddings_project"),
            *_norm("blocks.{i}.norm", f"{layer}/attention/output/LayerNorm"),
            Row(f"{convolution}.depthwise.weight", f"{theirs}/conv_attn_key/depthwise_kernel", "separable depthwise"),
            Row(f"{convolution}.pointwise.weight", f"{theirs}/conv_attn_key/pointwise_kernel", "separable pointwise"),
            Row(f"{convolution}.pointwise.bias", f"{theirs}/conv_attn_key/bias"),
            *_dense(f"{convolution}.kernel", f"{theirs}/conv_attn_kernel"),
            *_dense(f"{convolution}.value", f"{theirs}/conv_attn_point"),
            *up_or_down("blocks.{i}.feedforward.up", f"{layer}/intermediate/{name}"),
            *up_or_down("blocks.{i}.feedforward.down", f"{layer}/output/{name}"),
            *_norm("blocks.{i}.feedforward.norm", f"{layer}/output/LayerNorm"),
            *_dense("heads.rtd.dense", "discriminator_predictions/dense"),
            *_dense("heads.rtd.output", "discriminator_predictions/dense_1"),
            *_dense("heads.mlm.transform", "generator_predictions/dense"),
            *_norm("heads.mlm.norm", "generator_predictions/LayerNorm"),
            Row("heads.mlm.bias", "generator_predictions/output_bias"),
        )
    )


def names_of_part(names: list[str], part: str) -> list[str]:
    """Drop the names that only the other part uses."""
    own_body = _any(names, "generator/")
    if part == "discriminator":
        if _any(names, "generator_predictions/") and not own_body and not _any(names, "discriminator_predictions/"):
            raise InputError("the checkpoint has no discriminator; use part='generator'")
        others: tuple[str, ...] = ("generator/", "generator_predictions/")
    else:
        if not _any(names, "generator_predictions/"):
            raise InputError("the checkpoint has no generator; use part='discriminator'")
        others = ("discriminator_predictions/",)
        if own_body:
            others += ("electra/encoder/", "electra/embeddings_project/")
        if _any(names, "generator/embeddings/"):
            others += ("electra/embeddings/",)
    return [name for name in names if not name.startswith(others)]


def identify_electra(tensors: Mapping[str, Tensor], config: Settings) -> ReleasedModel:
    """Identify the model that the tensors of one part make up. `config`: the release's JSON config of this part."""
    body = "generator" if _any(tensors, "generator/") else "electra"
    embeddings = "generator" if _any(tensors, "generator/embeddings/") else "electra"
    layer = f"{body}/encoder/layer_0"
    attention_width = _shape(tensors, f"{layer}/attention/self/query/bias")[0]
    vocab, narrow = _shape(tensors, f"{embeddings}/embeddings/word_embeddings")
    known: Settings = {
        "vocab": vocab,
        "narrow": narrow,
        "positions": _shape(tensors, f"{embeddings}/embeddings/position_embeddings")[0],
        "segments": _shape(tensors, f"{embeddings}/embeddings/token_type_embeddings")[0],
        "width": _shape(tensors, f"{layer}/attention/output/dense/bias")[0],
        "depth": _count(tensors, f"{body}/encoder/layer_"),
        "convolution": "none",
        "groups": 1,
    }
    if f"{layer}/intermediate/g_dense/kernel" in tensors:
        known["groups"], _, share = _shape(tensors, f"{layer}/intermediate/g_dense/kernel")
        known["inner"] = known["groups"] * share
    else:
        known["inner"] = _shape(tensors, f"{layer}/intermediate/dense/bias")[0]
    if _any(tensors, f"{layer}/attention/self/conv_attn_key/"):
        kernel = _shape(tensors, f"{layer}/attention/self/conv_attn_key/depthwise_kernel")[0]
        heads = _shape(tensors, f"{layer}/attention/self/conv_attn_kernel/bias")[0] // kernel
        known |= {"convolution": "span", "kernel": kernel, "n_heads": known["width"] * heads // attention_width}
    settings = _merge_config(known, config, _CONVBERT_FIELDS, _CONVBERT_CHOICES)
    ours = from_mapping(ConvBert, {**settings, "padding": "released"})
    if "n_heads" not in settings:
        if ours.width not in _PUBLISHED_WIDTHS:
            raise InputError(
                f"the number of heads can't be determined from the width {ours.width}; give 'num_attention_heads' in a "
                "config"
            )
        ours = replace(ours, n_heads=ours.width // _PUBLISHED_HEAD_WIDTH)
    ours = replace(ours, head_ratio=_head_ratio(ours, attention_width, settings.get("head_ratio")))
    is_electra = ours.convolution == "none" and ours.groups == 1 and attention_width == ours.width
    kinds = {"rtd": "discriminator_predictions/", "mlm": "generator_predictions/"}
    return ReleasedModel(
        family="electra" if is_electra else "convbert",
        config=Bert(**{field.name: getattr(ours, field.name) for field in fields(Bert)}) if is_electra else ours,
        heads={kind: {} for kind, scope in kinds.items() if _any(tensors, scope)},
        keymap=electra_keymap(body, embeddings, groups=ours.groups),
    )


def _head_ratio(config: ConvBert, attention_width: int, head_ratio: int | None) -> int:
    """Return the ratio that gives the queries this width; if several do, they build the same model."""
    if config.n_heads > 0 and config.width % config.n_heads == 0:
        for ratio in [head_ratio] if head_ratio else [2, *range(config.n_heads, 0, -1)]:
            if reduced_heads(config.n_heads, ratio) * (config.width // config.n_heads) == attention_width:
                return ratio
    raise InputError(
        f"{config.n_heads} heads and width {config.width} don't match queries of width {attention_width}; "
        "give the right 'num_attention_heads' and 'head_ratio' in a config"
    )


# MobileBERT and its teacher IB-BERT, with the heads of BERT's pre-training.

_MOBILEBERT_FIELDS = {"intra_bottleneck_size": "block_width", "num_feedforward_networks": "feedforwards"}
_MOBILEBERT_CHOICES: Choices = {
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


def mobilebert_keymap(name: str) -> Keymap:
    """Build the keymap; `name` is the scope of the norms, "LayerNorm" or "FakeLayerNorm"."""
    layer = "bert/encoder/layer_{i}"
    last, before = "blocks.{i}.feedforward.{last}", "blocks.{i}.feedforward.{j}"
    return Keymap(
        (
            *_encoder("bert", layer),
            *_dense("embeddings.project", "bert/embeddings/embedding_transformation"),
            *_norm("embeddings.norm", f"bert/embeddings/{name}"),
            *_dense("blocks.{i}.enter", f"{layer}/bottleneck/input/dense"),
            *_norm("blocks.{i}.enter_norm", f"{layer}/bottleneck/input/{name}"),
            *_dense("blocks.{i}.shared", f"{layer}/bottleneck/attention/dense"),
            *_norm("blocks.{i}.shared_norm", f"{layer}/bottleneck/attention/{name}"),
            *_norm("blocks.{i}.norm", f"{layer}/attention/output/{name}"),
            *_dense(f"{last}.up", f"{layer}/intermediate/dense"),
            *_dense(f"{last}.down", f"{layer}/output/dense"),
            *_norm(f"{last}.norm", f"{layer}/output/{name}"),
            *_dense(f"{before}.up", f"{layer}/ffn_layer_{{j}}/intermediate/dense"),
            *_dense(f"{before}.down", f"{layer}/ffn_layer_{{j}}/output/dense"),
            *_norm(f"{before}.norm", f"{layer}/ffn_layer_{{j}}/output/{name}"),
            *_dense("blocks.{i}.leave", f"{layer}/output/bottleneck/dense"),
            *_norm("blocks.{i}.leave_norm", f"{layer}/output/bottleneck/{name}"),
            *_dense("heads.mlm.transform", "cls/predictions/transform/dense"),
            *_norm("heads.mlm.norm", "cls/predictions/transform/LayerNorm"),
            Row("heads.mlm.bias", "cls/predictions/output_bias"),
            Row("heads.mlm.extra", "cls/predictions/extra_output_weights"),
            *_dense("heads.pooler.dense", "bert/pooler/dense"),
            *_dense("heads.nsp.dense", "bert/pooler/dense"),
            Row("heads.nsp.output.weight", "cls/seq_relationship/output_weights"),
            Row("heads.nsp.output.bias", "cls/seq_relationship/output_bias"),
        )
    )


def identify_mobilebert(tensors: Mapping[str, Tensor], config: Settings) -> ReleasedModel:
    """Identify a published model by its shapes, or any model by its shapes and a JSON config."""
    layer = "bert/encoder/layer_0"
    norm_name = "FakeLayerNorm" if "bert/embeddings/FakeLayerNorm/gamma" in tensors else "LayerNorm"
    vocab, narrow = _shape(tensors, "bert/embeddings/word_embeddings")
    positions, width = _shape(tensors, "bert/embeddings/position_embeddings")
    read_width, block_width = _shape(tensors, f"{layer}/attention/self/query/kernel")
    known: Settings = {
        "vocab": vocab,
        "narrow": narrow,
        "positions": positions,
        "segments": _shape(tensors, "bert/embeddings/token_type_embeddings")[0],
        "width": width,
        "block_width": block_width,
        "depth": _count(tensors, "bert/encoder/layer_"),
        "inner": _shape(tensors, f"{layer}/intermediate/dense/bias")[0],
        "feedforwards": _count(tensors, f"{layer}/ffn_layer_") + 1,
        "norm": "none" if norm_name == "FakeLayerNorm" else "layer",
    }
    if f"{layer}/bottleneck/attention/dense/kernel" in tensors:
        known["mixer_input"] = "shared"
    elif width != block_width:
        known["mixer_input"] = "wide" if read_width == width else "narrow"
    settings = _merge_config(known, config, _MOBILEBERT_FIELDS, _MOBILEBERT_CHOICES)
    if config:
        # A config that sets neither of the two alternatives means "wide".
        settings.setdefault("mixer_input", "wide")
    for preset in PRESETS.values():
        # The shapes of a preset determine all settings.
        if isinstance(preset, MobileBert) and all(
            getattr(preset, key) == known[key] for key in known.keys() - _ANY_SIZE
        ):
            settings = {**to_mapping(preset), **settings}
            break
    if missing := [theirs for ours, theirs in _NOT_IN_SHAPES.items() if ours not in settings]:
        raise InputError(
            f"the shapes match no published MobileBERT and don't determine {quote_names(missing)}: "
            "give the JSON config that it was trained with"
        )
    pooled = "bert/pooler/dense/kernel" in tensors
    heads: Heads = {}
    if "cls/predictions/output_bias" in tensors:
        heads["mlm"] = {"eps": _HEAD_EPS}
    if "cls/seq_relationship/output_weights" in tensors:
        heads["nsp"] = {"pooled": pooled}
    elif pooled:
        heads["pooler"] = {}
    return ReleasedModel(
        family="mobilebert",
        config=from_mapping(MobileBert, {**settings, "padding": "released"}),
        heads=heads,
        keymap=mobilebert_keymap(norm_name),
        last=known["feedforwards"] - 1,
    )
