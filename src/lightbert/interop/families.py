"""The families of transformers that lightbert reads and writes: tables of fields, tensors and heads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightbert.errors import InputError, unknown
from lightbert.interop.keymap import Keymap, PositionIds, Row, TiedCopy

Settings = dict[str, Any]
"""A config as plain values: our fields, or the keys of their config.json."""
Heads = dict[str, Settings]
"""The settings of heads, by kind."""

NATIVE_WORKS = "transformers reads the native folder when lightbert is imported"
"""The remedy for a model that transformers' own classes can't represent."""

_FIELDS = {
    "vocab": "vocab_size",
    "positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "inner": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "eps": "layer_norm_eps",
}
# Fields that all families translate, and those that only matter together with others.
_WITHOUT_EFFECT = (
    "activation",
    "narrow",
    "padding",
    "kernel",
    "radius",
    "outside",
    "local_kernel",
    "mixer_input",
    "initial",
)
_DEFAULTS = {
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
}
# The first name of each activation is the one to write.
_ACTIVATIONS = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new"),
    "relu": ("relu",),
    "relu6": ("relu6",),
}
# Keys with only one supported value: (key, supported value, the unsupported feature).
_ONLY: tuple[tuple[str, Any, str], ...] = (
    ("is_decoder", False, "decoders"),
    ("add_cross_attention", False, "cross-attention"),
    ("position_embedding_type", "absolute", "relative positions"),
    ("pruned_heads", {}, "pruned heads"),
    ("quantization_config", None, "quantized weights"),
)


@dataclass(frozen=True)
class Family:
    """A `model_type` of transformers, which is also the prefix of the body in its head classes."""

    model_type: str
    stem: str
    """The prefix of its class names."""
    ours: str
    """The name of our corresponding family."""
    keymap: Keymap
    defaults: Mapping[str, Any]
    """The defaults of config.json that differ from those all families share."""
    heads: Callable[[Settings, Settings], Heads]
    """From our config and theirs: the supported heads, with the settings that each class fixes."""
    gelu_heads: tuple[str, ...] = ()
    """The heads that are supported only if hidden_act is gelu."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Further fields that only need renaming, ours to theirs."""
    read: Callable[[Settings], Settings] = lambda theirs: {}
    """From their config: our fields that need more than renaming; raises if we can't represent it."""
    write: Callable[[Settings, Heads], Settings] = lambda ours, heads: {}
    """The inverse of `read`, from our config and heads; raises if transformers can't represent it."""
    fits: Callable[[Settings], bool] = lambda ours: True
    """Whether one of our configs can have this `model_type`, if several types share our family."""
    translated: tuple[str, ...] = ()
    """The fields that `read` and `write` translate. All others must have the defaults of our family."""

    def to_ours(self, theirs: Settings) -> Settings:
        """Translate their config.json to our fields."""
        for key, value, meaning in _ONLY:
            if theirs.get(key, value) not in (value, None):
                raise InputError(
                    f"'{key}' in config.json must be {value!r}, got {theirs[key]!r}; lightbert has no {meaning}"
                )
        theirs = self.with_defaults(theirs)
        for key, default in {**_DEFAULTS, **self.defaults}.items():
            _check_type(key, theirs[key], type(default))
        ours = {name: theirs[key] for name, key in {**_FIELDS, **self.fields}.items()}
        names = {name: activation for activation, names in _ACTIVATIONS.items() for name in names}
        if theirs["hidden_act"] not in names:
            raise unknown("hidden_act", theirs["hidden_act"], names)
        return {**ours, "activation": names[theirs["hidden_act"]], **self.read(theirs)}

    def check_others(self, ours: Settings, defaults: Settings) -> None:
        """Check the fields that their config.json can't express."""
        known = {*_FIELDS, *_WITHOUT_EFFECT, *self.fields, *self.translated}
        for name in ours.keys() - known:
            if ours[name] != defaults[name]:
                rule = f"{name} must be {defaults[name]!r} in transformers' {self.stem}"
                raise InputError(f"{rule}, got {ours[name]!r}; {NATIVE_WORKS}")

    def to_theirs(self, ours: Settings, heads: Heads) -> Settings:
        """Translate our fields to their config.json; `heads` only matter for settings of the body."""
        if ours["positions"] == 0:
            raise InputError(
                f"transformers' {self.stem} requires position embeddings, got positions = 0; {NATIVE_WORKS}"
            )
        theirs = {key: ours[name] for name, key in {**_FIELDS, **self.fields}.items()}
        return {**theirs, "hidden_act": _ACTIVATIONS[ours["activation"]][0], **self.write(ours, heads)}

    def with_defaults(self, theirs: Settings) -> Settings:
        """Return their config.json completed with its defaults."""
        return {**_DEFAULTS, **self.defaults, **theirs}


def _check_type(key: str, value: Any, kind: type) -> None:
    if kind is bool or kind is str:
        accepted, expected = isinstance(value, kind), "true or false" if kind is bool else "a string"
    elif kind is int:
        accepted, expected = type(value) is int and value > 0, "an integer > 0"
    else:
        # transformers accepts an integer as a dropout too.
        accepted, expected = type(value) in (int, float) and value >= 0, "a number >= 0"
    if not accepted:
        raise InputError(f"'{key}' in config.json must be {expected}, got {value!r}")


# Tensors. The other families kept the names of BERT where they have the same layers.


def _layers(names: Mapping[str, str]) -> tuple[Row, ...]:
    """Rows for the weights and biases of layers, ours to theirs."""
    return tuple(Row(f"{ours}.{{p}}", f"{theirs}.{{p}}") for ours, theirs in names.items())


TEXT_HEADS = ("classify", "regress")
"""The heads of ForSequenceClassification: one output per label, or a single number."""

_LAYER = "encoder.layer.{i}"
_EMBEDDINGS = (
    Row("embeddings.word.weight", "embeddings.word_embeddings.weight"),
    Row("embeddings.position.weight", "embeddings.position_embeddings.weight"),
    Row("embeddings.segment.weight", "embeddings.token_type_embeddings.weight"),
    *_layers({"embeddings.norm": "embeddings.LayerNorm", "embeddings.project": "embeddings_project"}),
)
_BLOCKS = _layers(
    {
        "blocks.{i}.mixer.query": f"{_LAYER}.attention.self.query",
        "blocks.{i}.mixer.key": f"{_LAYER}.attention.self.key",
        "blocks.{i}.mixer.value": f"{_LAYER}.attention.self.value",
        "blocks.{i}.output": f"{_LAYER}.attention.output.dense",
        "blocks.{i}.norm": f"{_LAYER}.attention.output.LayerNorm",
        "blocks.{i}.feedforward.up": f"{_LAYER}.intermediate.dense",
        "blocks.{i}.feedforward.down": f"{_LAYER}.output.dense",
        "blocks.{i}.feedforward.norm": f"{_LAYER}.output.LayerNorm",
    }
)
_TOKEN_HEADS = _layers({"heads.tokens.output": "classifier", "heads.span.output": "qa_outputs"})
# BERT and MobileBERT: all [CLS] heads share the pooler of the body.
_BERT_HEADS = (
    *_layers({f"heads.{kind}.dense": "pooler.dense" for kind in ("pooler", "nsp", *TEXT_HEADS, "choice")}),
    *_layers({f"heads.{kind}.output": "classifier" for kind in (*TEXT_HEADS, "choice")}),
    *_layers(
        {
            "heads.nsp.output": "cls.seq_relationship",
            "heads.mlm.transform": "cls.predictions.transform.dense",
            "heads.mlm.norm": "cls.predictions.transform.LayerNorm",
        }
    ),
    Row("heads.mlm.bias", "cls.predictions.bias"),
    *_TOKEN_HEADS,
)
# ELECTRA and ConvBERT: no pooler; each head has its own hidden layer.
_ELECTRA_HEADS = (
    *_layers(
        {
            "heads.mlm.transform": "generator_predictions.dense",
            "heads.mlm.norm": "generator_predictions.LayerNorm",
            "heads.rtd.dense": "discriminator_predictions.dense",
            "heads.rtd.output": "discriminator_predictions.dense_prediction",
        }
    ),
    Row("heads.mlm.bias", "generator_lm_head.bias"),
    *_layers({f"heads.{kind}.dense": "classifier.dense" for kind in TEXT_HEADS}),
    *_layers({f"heads.{kind}.output": "classifier.out_proj" for kind in TEXT_HEADS}),
    *_TOKEN_HEADS,
)
_POSITION_IDS = PositionIds("embeddings.position_ids")
_BERT_COPIES = (
    _POSITION_IDS,
    TiedCopy("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
    TiedCopy("cls.predictions.decoder.bias", "cls.predictions.bias"),
)
_ELECTRA_COPIES = (_POSITION_IDS, TiedCopy("generator_lm_head.weight", "embeddings.word_embeddings.weight"))


def _bert_heads(ours: Settings, *, pooled: bool = True) -> Heads:
    hidden = "tanh" if pooled else None
    return {
        **({"pooler": {}} if pooled else {}),
        "mlm": {"hidden": ours["width"], "activation": ours["activation"], "eps": ours["eps"]},
        "nsp": {"pooled": pooled},
        **{head: {"hidden": hidden} for head in (*TEXT_HEADS, "choice")},
        "tokens": {},
        "span": {},
    }


BERT = Family(
    model_type="bert",
    stem="Bert",
    ours="bert",
    keymap=Keymap((*_EMBEDDINGS, *_BLOCKS, *_BERT_HEADS), _BERT_COPIES),
    defaults={"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    heads=lambda ours, theirs: _bert_heads(ours),
    read=lambda theirs: {"narrow": theirs["hidden_size"]},
    fits=lambda ours: bool(ours["narrow"] == ours["width"]),
)


def _electra_heads(ours: Settings, theirs: Settings) -> Heads:
    # The generator head and the classifier always use gelu, independently of hidden_act.
    return {
        "mlm": {"hidden": ours["narrow"], "activation": "gelu", "eps": ours["eps"]},
        "rtd": {"activation": ours["activation"]},
        **{head: {"hidden": "gelu"} for head in TEXT_HEADS},
        "tokens": {},
        "span": {},
    }


ELECTRA = Family(
    model_type="electra",
    stem="Electra",
    ours="bert",
    keymap=Keymap((*_EMBEDDINGS, *_BLOCKS, *_ELECTRA_HEADS), _ELECTRA_COPIES),
    defaults={
        "embedding_size": 128,
        "hidden_size": 256,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
    heads=_electra_heads,
    fields={"narrow": "embedding_size"},
)

# ConvBERT: span-based convolution only, half of the heads, no head for replaced-token detection. The hidden layer of
# its classifier uses hidden_act; ours supports gelu only, as published.
_GELU_HEADS = TEXT_HEADS


def _read_convbert(theirs: Settings) -> Settings:
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


def _write_convbert(ours: Settings, heads: Heads) -> Settings:
    if ours["kernel"] % 2 == 0:
        raise InputError(f"kernel must be odd in transformers' ConvBERT, got {ours['kernel']}; {NATIVE_WORKS}")
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


def _convbert_heads(ours: Settings, theirs: Settings) -> Heads:
    unsupported = {"rtd", *(() if ours["activation"] == "gelu" else _GELU_HEADS)}
    return {kind: settings for kind, settings in _electra_heads(ours, theirs).items() if kind not in unsupported}


_CONVOLUTION, _SELF = "blocks.{i}.mixer.convolution", f"{_LAYER}.attention.self"
CONVBERT = Family(
    model_type="convbert",
    stem="ConvBert",
    ours="convbert",
    keymap=Keymap(
        (
            *_EMBEDDINGS,
            Row(f"{_CONVOLUTION}.depthwise.weight", f"{_SELF}.key_conv_attn_layer.depthwise.weight", "depthwise"),
            Row(f"{_CONVOLUTION}.pointwise.weight", f"{_SELF}.key_conv_attn_layer.pointwise.weight", "trailing"),
            Row(f"{_CONVOLUTION}.pointwise.bias", f"{_SELF}.key_conv_attn_layer.bias", "trailing"),
            *_layers(
                {
                    f"{_CONVOLUTION}.kernel": f"{_SELF}.conv_kernel_layer",
                    f"{_CONVOLUTION}.value": f"{_SELF}.conv_out_layer",
                }
            ),
            *_BLOCKS,
            *_ELECTRA_HEADS,
        ),
        _ELECTRA_COPIES,
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
    heads=_convbert_heads,
    gelu_heads=_GELU_HEADS,
    fields={"narrow": "embedding_size", "kernel": "conv_kernel_size", "groups": "num_groups"},
    read=_read_convbert,
    write=_write_convbert,
    translated=("convolution", "head_ratio"),
)

_NORMS = {"no_norm": "none", "layer_norm": "layer"}
# transformers doesn't pass layer_norm_eps to two of MobileBERT's layer norms, so they use PyTorch's default.
_DEFAULT_EPS = 1e-5


def _read_mobilebert(theirs: Settings) -> Settings:
    for key in ("use_bottleneck", "trigram_input"):
        if not theirs[key]:
            raise InputError(f"'{key}' in config.json must be true, got false; lightbert's MobileBERT always has it")
    norm = theirs["normalization_type"]
    if norm not in _NORMS:
        raise InputError(f"'normalization_type' in config.json must be {' or '.join(map(repr, _NORMS))}, got {norm!r}")
    narrow, shared = theirs["use_bottleneck_attention"], theirs["key_query_shared_bottleneck"]
    if narrow and shared:
        raise InputError(
            "'use_bottleneck_attention' and 'key_query_shared_bottleneck' must not both be true in config.json, which "
            "leaves half of the bottleneck weights unused"
        )
    mixer_input = "narrow" if narrow else "shared" if shared else "wide"
    _check_mobilebert(
        mixer_input, (theirs["hidden_size"], theirs["intra_bottleneck_size"]), _NORMS[norm], theirs["layer_norm_eps"]
    )
    return {"mixer_input": mixer_input, "norm": _NORMS[norm], "padding": "released"}


def _check_mobilebert(mixer_input: str, widths: tuple[int, int], norm: str, eps: float) -> None:
    """Check what transformers' MobileBERT requires of the width and the block's width, and of layer norms."""
    if mixer_input == "wide" and widths[0] != widths[1]:
        raise InputError(
            f"mixer_input = 'wide' requires block_width ({widths[1]}) == width ({widths[0]}) in transformers' "
            "MobileBERT, whose query and key layers have the block's width"
        )
    if norm == "layer" and eps != _DEFAULT_EPS:
        raise InputError(
            f"eps must be {_DEFAULT_EPS} in transformers' MobileBERT with layer norms, got {eps}: two of its layer "
            f"norms ignore the config and always use {_DEFAULT_EPS}"
        )


def _write_mobilebert(ours: Settings, heads: Heads) -> Settings:
    _check_mobilebert(ours["mixer_input"], (ours["width"], ours["block_width"]), ours["norm"], ours["eps"])
    # transformers builds poolers by default, which heads on the raw [CLS] state contradict. A body without heads has no
    # weights for a pooler either.
    raw = heads.get("nsp", {}).get("pooled") is False or any(
        kind in heads and heads[kind].get("hidden") is None for kind in (*TEXT_HEADS, "choice")
    )
    return {
        "trigram_input": True,
        "use_bottleneck": True,
        "use_bottleneck_attention": ours["mixer_input"] == "narrow",
        "key_query_shared_bottleneck": ours["mixer_input"] == "shared",
        "normalization_type": next(theirs for theirs, norm in _NORMS.items() if norm == ours["norm"]),
        "classifier_activation": "pooler" in heads or (bool(heads) and not raw),
    }


# The last feed-forward of a MobileBERT block is named differently from the others.
_FEEDFORWARD = "blocks.{i}.feedforward"
MOBILEBERT = Family(
    model_type="mobilebert",
    stem="MobileBert",
    ours="mobilebert",
    keymap=Keymap(
        (
            *_layers(
                {
                    "embeddings.project": "embeddings.embedding_transformation",
                    "blocks.{i}.enter": f"{_LAYER}.bottleneck.input.dense",
                    "blocks.{i}.enter_norm": f"{_LAYER}.bottleneck.input.LayerNorm",
                    "blocks.{i}.shared": f"{_LAYER}.bottleneck.attention.dense",
                    "blocks.{i}.shared_norm": f"{_LAYER}.bottleneck.attention.LayerNorm",
                    "blocks.{i}.leave": f"{_LAYER}.output.bottleneck.dense",
                    "blocks.{i}.leave_norm": f"{_LAYER}.output.bottleneck.LayerNorm",
                    f"{_FEEDFORWARD}.{{last}}.up": f"{_LAYER}.intermediate.dense",
                    f"{_FEEDFORWARD}.{{last}}.down": f"{_LAYER}.output.dense",
                    f"{_FEEDFORWARD}.{{last}}.norm": f"{_LAYER}.output.LayerNorm",
                    f"{_FEEDFORWARD}.{{j}}.up": f"{_LAYER}.ffn.{{j}}.intermediate.dense",
                    f"{_FEEDFORWARD}.{{j}}.down": f"{_LAYER}.ffn.{{j}}.output.dense",
                    f"{_FEEDFORWARD}.{{j}}.norm": f"{_LAYER}.ffn.{{j}}.output.LayerNorm",
                }
            ),
            *_EMBEDDINGS,
            *_BLOCKS,
            Row("heads.mlm.extra", "cls.predictions.dense.weight", "transpose"),
            *_BERT_HEADS,
        ),
        _BERT_COPIES,
    ),
    defaults={
        "hidden_size": 512,
        "num_hidden_layers": 24,
        "num_attention_heads": 4,
        "intermediate_size": 512,
        "hidden_act": "relu",
        "hidden_dropout_prob": 0.0,
        "embedding_size": 128,
        "intra_bottleneck_size": 128,
        "trigram_input": True,
        "use_bottleneck": True,
        "use_bottleneck_attention": False,
        "key_query_shared_bottleneck": True,
        "num_feedforward_networks": 4,
        "normalization_type": "no_norm",
        "classifier_activation": True,
    },
    heads=lambda ours, theirs: _bert_heads(ours, pooled=bool(theirs["classifier_activation"])),
    fields={
        "narrow": "embedding_size",
        "block_width": "intra_bottleneck_size",
        "feedforwards": "num_feedforward_networks",
    },
    read=_read_mobilebert,
    write=_write_mobilebert,
    translated=("mixer_input", "norm"),
)

FAMILIES: dict[str, Family] = {family.model_type: family for family in (BERT, ELECTRA, CONVBERT, MOBILEBERT)}
"""The supported families by `model_type`."""
