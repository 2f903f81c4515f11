"""ELECTRA and ConvBERT: a discriminator and a generator in one checkpoint, with the embeddings of both."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from torch import Tensor

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.interop.families import Settings
from lightbert.interop.keymap import Keymap, Row
from lightbert.interop.tf1.released_model import Choices, ReleasedModel, count, merge_config, shape
from lightbert.interop.tf1.rows import attention, dense, grouped, norm, tables
from lightbert.models.bert import Bert
from lightbert.models.convbert import ConvBert
from lightbert.nn.mixed import reduced_heads

PARTS = ("discriminator", "generator")

_FIELDS = {"head_ratio": "head_ratio", "conv_kernel_size": "kernel", "linear_groups": "groups"}
_CHOICES: Choices = {
    "hidden_act": {name: {"activation": name} for name in ("gelu", "relu")},
    "conv_type": {"sdconv": {"convolution": "span"}, "noconv": {"convolution": "none"}},
}
# Both releases use one head per 64 channels at these widths. They disagree at 384; other widths were never published.
_PUBLISHED_WIDTHS, _PUBLISHED_HEAD_WIDTH = (64, 256, 768, 1024), 64


def keymap(body: str, embeddings: str, *, groups: int) -> Keymap:
    """Build the keymap of an encoder in the scope `body` with its embedding tables in the scope `embeddings`."""
    layer = f"{body}/encoder/layer_{{i}}"
    convolution, theirs = "blocks.{i}.mixer.convolution", f"{layer}/attention/self"
    up_or_down, name = (dense, "dense") if groups == 1 else (grouped, "g_dense")
    return Keymap(
        (
            *tables(embeddings),
            *norm("embeddings.norm", f"{embeddings}/embeddings/LayerNorm"),
            *dense("embeddings.project", f"{body}/embeddings_project"),
            *attention(layer),
            *norm("blocks.{i}.norm", f"{layer}/attention/output/LayerNorm"),
            Row(f"{convolution}.depthwise.weight", f"{theirs}/conv_attn_key/depthwise_kernel", "separable depthwise"),
            Row(f"{convolution}.pointwise.weight", f"{theirs}/conv_attn_key/pointwise_kernel", "separable pointwise"),
            Row(f"{convolution}.pointwise.bias", f"{theirs}/conv_attn_key/bias"),
            *dense(f"{convolution}.kernel", f"{theirs}/conv_attn_kernel"),
            *dense(f"{convolution}.value", f"{theirs}/conv_attn_point"),
            *up_or_down("blocks.{i}.feedforward.up", f"{layer}/intermediate/{name}"),
            *up_or_down("blocks.{i}.feedforward.down", f"{layer}/output/{name}"),
            *norm("blocks.{i}.feedforward.norm", f"{layer}/output/LayerNorm"),
            *dense("heads.rtd.dense", "discriminator_predictions/dense"),
            *dense("heads.rtd.output", "discriminator_predictions/dense_1"),
            *dense("heads.mlm.transform", "generator_predictions/dense"),
            *norm("heads.mlm.norm", "generator_predictions/LayerNorm"),
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


def identify(tensors: Mapping[str, Tensor], given: Settings) -> ReleasedModel:
    """Identify the model that the tensors of one part make up. `given`: the release's JSON config of this part."""
    body = "generator" if _any(tensors, "generator/") else "electra"
    embeddings = "generator" if _any(tensors, "generator/embeddings/") else "electra"
    attention_width = shape(tensors, f"{body}/encoder/layer_0/attention/self/query/bias")[0]
    known = _settings_from_shapes(tensors, body, embeddings, attention_width)
    settings = merge_config(known, given, _FIELDS, _CHOICES)
    config = from_mapping(ConvBert, {**settings, "padding": "released"})
    if "n_heads" not in settings:
        config = replace(config, n_heads=_published_heads(config.width))
    config = replace(config, head_ratio=_head_ratio(config, attention_width, settings.get("head_ratio")))
    plain = config.convolution == "none" and config.groups == 1 and attention_width == config.width
    kinds = {"rtd": "discriminator_predictions/", "mlm": "generator_predictions/"}
    return ReleasedModel(
        family="electra" if plain else "convbert",
        config=_without_convolution(config) if plain else config,
        heads={kind: {} for kind, scope in kinds.items() if _any(tensors, scope)},
        keymap=keymap(body, embeddings, groups=config.groups),
    )


def _settings_from_shapes(tensors: Mapping[str, Tensor], body: str, embeddings: str, attention_width: int) -> Settings:
    layer = f"{body}/encoder/layer_0"
    vocab, narrow = shape(tensors, f"{embeddings}/embeddings/word_embeddings")
    known: Settings = {
        "vocab": vocab,
        "narrow": narrow,
        "positions": shape(tensors, f"{embeddings}/embeddings/position_embeddings")[0],
        "segments": shape(tensors, f"{embeddings}/embeddings/token_type_embeddings")[0],
        "width": shape(tensors, f"{layer}/attention/output/dense/bias")[0],
        "depth": count(tensors, f"{body}/encoder/layer_"),
        "convolution": "none",
        "groups": 1,
    }
    if f"{layer}/intermediate/g_dense/kernel" in tensors:
        known["groups"], _, share = shape(tensors, f"{layer}/intermediate/g_dense/kernel")
        known["inner"] = known["groups"] * share
    else:
        known["inner"] = shape(tensors, f"{layer}/intermediate/dense/bias")[0]
    if _any(tensors, f"{layer}/attention/self/conv_attn_key/"):
        kernel = shape(tensors, f"{layer}/attention/self/conv_attn_key/depthwise_kernel")[0]
        heads = shape(tensors, f"{layer}/attention/self/conv_attn_kernel/bias")[0] // kernel
        known |= {"convolution": "span", "kernel": kernel, "n_heads": known["width"] * heads // attention_width}
    return known


def _published_heads(width: int) -> int:
    if width not in _PUBLISHED_WIDTHS:
        raise InputError(
            f"the number of heads can't be determined from the width {width}; give 'num_attention_heads' in a config"
        )
    return width // _PUBLISHED_HEAD_WIDTH


def _head_ratio(config: ConvBert, attention_width: int, given: int | None) -> int:
    """Return the ratio that gives the queries this width; if several do, they build the same model."""
    if config.n_heads > 0 and config.width % config.n_heads == 0:
        for ratio in [given] if given else [2, *range(config.n_heads, 0, -1)]:
            if reduced_heads(config.n_heads, ratio) * (config.width // config.n_heads) == attention_width:
                return ratio
    raise InputError(
        f"{config.n_heads} heads and width {config.width} don't match queries of width {attention_width}; "
        "give the right 'num_attention_heads' and 'head_ratio' in a config"
    )


def _without_convolution(config: ConvBert) -> Bert:
    kept = {field.name for field in fields(Bert)}
    return Bert(**{name: value for name, value in to_mapping(config).items() if name in kept})


def _any(names: Iterable[str], scope: str) -> bool:
    return any(name.startswith(scope) for name in names)
