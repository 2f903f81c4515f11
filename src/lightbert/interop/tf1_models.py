"""The models in TensorFlow 1 checkpoints: identified by the shapes of their tensors, completed by a JSON config."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError, unknown
from lightbert.interop.families import CONVBERT, MOBILEBERT, Family, Heads, Settings
from lightbert.interop.keymap import Keymap, Row, quote_names
from lightbert.models import PRESETS, Config
from lightbert.models.bert import Bert
from lightbert.models.convbert import ConvBert
from lightbert.models.mobilebert import MobileBert

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


# The end of a tensor's name in transformers -> its end in the releases, and how its layout there differs from ours.
_NAMES = {
    "LayerNorm.weight": ("LayerNorm/gamma", "same"),
    "LayerNorm.bias": ("LayerNorm/beta", "same"),
    "_embeddings.weight": ("_embeddings", "same"),
    "key_conv_attn_layer.depthwise.weight": ("conv_attn_key/depthwise_kernel", "separable depthwise"),
    "key_conv_attn_layer.pointwise.weight": ("conv_attn_key/pointwise_kernel", "separable pointwise"),
    "key_conv_attn_layer.bias": ("conv_attn_key/bias", "same"),
    "generator_lm_head.bias": ("generator_predictions/output_bias", "same"),
    "cls.predictions.bias": ("cls/predictions/output_bias", "same"),
    "cls.predictions.dense.weight": ("cls/predictions/extra_output_weights", "same"),
    "cls.seq_relationship.weight": ("cls/seq_relationship/output_weights", "same"),
    "cls.seq_relationship.bias": ("cls/seq_relationship/output_bias", "same"),
    ".weight": ("/kernel", "transpose"),
    ".bias": ("/bias", "same"),
}
# What else the names differ in.
_SCOPES = {
    "conv_kernel_layer": "conv_attn_kernel",
    "conv_out_layer": "conv_attn_point",
    "dense_prediction": "dense_1",
    "ffn.": "ffn_layer_",
    "layer.": "layer_",
    ".": "/",
}


def released_keymap(
    family: Family, body: str, *, embeddings: str = "", norm: str = "LayerNorm", grouped: bool = False
) -> Keymap:
    """Build the keymap of a release from that of transformers.

    body: the scope of the encoder. embeddings: that of the embedding tables, if it is another one.
    norm: the scope of the norms of the encoder. grouped: the feed-forwards are grouped; their kernels have our layout.
    """
    rows = []
    for row in family.keymap.rows:
        for parameter in ("weight", "bias") if row.ours.endswith("{p}") else ("",):
            ours, name = (text.replace("{p}", parameter) for text in (row.ours, row.theirs))
            ending = next(ending for ending in _NAMES if name.endswith(ending))
            renamed, reshaping = _NAMES[ending]
            name = name.removesuffix(ending) + renamed
            for theirs, released in _SCOPES.items():
                name = name.replace(theirs, released)
            if grouped and ".feedforward." in ours and name.endswith(("dense/kernel", "dense/bias")):
                name, reshaping = name.replace("/dense/", "/g_dense/"), "same"
            if not name.startswith("cls/"):
                name = name.replace("LayerNorm", norm)
            if name.startswith("embeddings/"):
                name = f"{embeddings or body}/{name}"
            elif name.startswith(("encoder/", "embeddings_project/", "pooler/")):
                name = f"{body}/{name}"
            rows.append(Row(ours, name, reshaping))
    return Keymap(tuple(rows))


# ELECTRA and ConvBERT: a discriminator and a generator in one checkpoint, with the embeddings of both.

PARTS = ("discriminator", "generator")

_CONVBERT_FIELDS = {"head_ratio": "head_ratio", "conv_kernel_size": "kernel", "linear_groups": "groups"}
_CONVBERT_CHOICES: Choices = {
    "hidden_act": {name: {"activation": name} for name in ("gelu", "relu")},
    "conv_type": {"sdconv": {"convolution": "span"}, "noconv": {"convolution": "none"}},
}
# Both releases use one head per 64 channels at these widths. They disagree at 384; other widths were never published.
_PUBLISHED_WIDTHS, _PUBLISHED_HEAD_WIDTH = (64, 256, 768, 1024), 64


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
        config=Bert(**{name: getattr(ours, name) for name in (*_FIELDS.values(), "activation")})
        if is_electra
        else ours,
        heads={kind: {} for kind, scope in kinds.items() if _any(tensors, scope)},
        keymap=released_keymap(CONVBERT, body, embeddings=embeddings, grouped=ours.groups > 1),
    )


def _head_ratio(config: ConvBert, attention_width: int, head_ratio: int | None) -> int:
    """Return the ratio that gives the queries this width; if several do, they build the same model."""
    if config.n_heads > 0 and config.width % config.n_heads == 0:
        for ratio in [head_ratio] if head_ratio else [2, *range(config.n_heads, 0, -1)]:
            heads = replace(config, head_ratio=ratio).reduced_heads
            if heads * (config.width // config.n_heads) == attention_width:
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
        keymap=released_keymap(MOBILEBERT, "bert", norm=norm_name),
        last=known["feedforwards"] - 1,
    )
