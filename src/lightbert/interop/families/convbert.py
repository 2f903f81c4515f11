"""ConvBERT in transformers: span-based convolution only, half of the heads, no head for replaced-token detection."""

from lightbert.errors import InputError
from lightbert.interop.families.family import NATIVE_WORKS, Family, Heads, Settings
from lightbert.interop.families.rows import (
    ATTENTION,
    EMBEDDINGS,
    EMBEDDINGS_PROJECT,
    FEEDFORWARD,
    GENERATOR_PREDICTIONS,
    POSITION_IDS,
    TOKEN_HEADS,
    UNPOOLED_HEADS,
)
from lightbert.interop.keymap import Keymap, Row, TiedCopy

_SELF = "encoder.layer.{i}.attention.self"
_CONVOLUTION = (
    Row("blocks.{i}.mixer.convolution.depthwise.weight", f"{_SELF}.key_conv_attn_layer.depthwise.weight", "depthwise"),
    Row("blocks.{i}.mixer.convolution.pointwise.weight", f"{_SELF}.key_conv_attn_layer.pointwise.weight", "trailing"),
    Row("blocks.{i}.mixer.convolution.pointwise.bias", f"{_SELF}.key_conv_attn_layer.bias", "trailing"),
    Row("blocks.{i}.mixer.convolution.kernel.{p}", f"{_SELF}.conv_kernel_layer.{{p}}"),
    Row("blocks.{i}.mixer.convolution.value.{p}", f"{_SELF}.conv_out_layer.{{p}}"),
)
# Their hidden layer uses hidden_act; ours supports gelu only, as published.
_GELU_HEADS = ("classify", "regress")


def _read(theirs: Settings) -> Settings:
    """Translate the heads: transformers has N heads of each kind, each 1/2N of the width, for every head_ratio.

    2N unreduced heads with head_ratio 2 are the same model, in our terms and in theirs.
    """
    if theirs["conv_kernel_size"] % 2 == 0:
        raise InputError(f"'conv_kernel_size' in config.json must be odd, got {theirs['conv_kernel_size']}")
    heads = max(1, theirs["num_attention_heads"] // theirs["head_ratio"])
    if theirs["hidden_size"] % (2 * heads):
        raise InputError(
            f"'hidden_size' in config.json must be a multiple of {2 * heads} ({heads} attention and {heads} "
            f"convolution heads), got {theirs['hidden_size']}"
        )
    return {"n_heads": 2 * heads, "head_ratio": 2, "convolution": "span", "padding": "released"}


def _write(ours: Settings, heads: Heads) -> Settings:
    if ours["convolution"] != "span":
        raise InputError(
            f"convolution must be 'span' in transformers' ConvBERT, got {ours['convolution']!r}; {NATIVE_WORKS}"
        )
    reduced = max(1, ours["n_heads"] // ours["head_ratio"])
    mixed = 2 * reduced * (ours["width"] // ours["n_heads"])
    if mixed != ours["width"]:
        raise InputError(
            f"the heads must have the width {ours['width']} in transformers' ConvBERT, but n_heads = {ours['n_heads']} "
            f"and head_ratio = {ours['head_ratio']} give {mixed}; {NATIVE_WORKS}"
        )
    # Unused, but transformers would set ids 0 and 2 by default.
    return {"num_attention_heads": 2 * reduced, "head_ratio": 2, "bos_token_id": None, "eos_token_id": None}


def _heads(ours: Settings, theirs: Settings) -> Heads:
    heads: Heads = {
        "mlm": {"hidden": ours["narrow"], "activation": "gelu", "eps": ours["eps"]},
        "tokens": {},
        "span": {},
    }
    if ours["activation"] == "gelu":
        heads |= {kind: {"hidden": "gelu"} for kind in _GELU_HEADS}
    return heads


CONVBERT = Family(
    model_type="convbert",
    stem="ConvBert",
    ours="convbert",
    keymap=Keymap(
        rows=(
            *EMBEDDINGS,
            EMBEDDINGS_PROJECT,
            *_CONVOLUTION,
            *ATTENTION,
            *FEEDFORWARD,
            *GENERATOR_PREDICTIONS,
            *UNPOOLED_HEADS,
            *TOKEN_HEADS,
        ),
        redundant=(POSITION_IDS, TiedCopy("generator_lm_head.weight", "embeddings.word_embeddings.weight")),
    ),
    defaults={
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "embedding_size": 768,
        "head_ratio": 2,
        "conv_kernel_size": 9,
        "num_groups": 1,
    },
    heads=_heads,
    gelu_heads=_GELU_HEADS,
    fields={"narrow": "embedding_size", "kernel": "conv_kernel_size", "groups": "num_groups"},
    read=_read,
    write=_write,
)
