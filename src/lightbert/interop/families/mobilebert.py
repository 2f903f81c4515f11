"""MobileBERT: bottleneck blocks; the last feed-forward of a block is named differently from the others."""

from lightbert.errors import InputError
from lightbert.interop.families.family import Family, Heads, Settings
from lightbert.interop.families.rows import (
    ATTENTION,
    EMBEDDINGS,
    POOLED_HEADS,
    POSITION_IDS,
    PREDICTIONS,
    TOKEN_HEADS,
)
from lightbert.interop.keymap import Keymap, Row, TiedCopy

_NORMS = {"no_norm": "none", "layer_norm": "layer"}
# transformers doesn't pass layer_norm_eps to two of its layer norms, so they use PyTorch's default.
_DEFAULT_EPS = 1e-5

_LAYER = "encoder.layer.{i}"
_BOTTLENECK = (
    Row("blocks.{i}.enter.{p}", f"{_LAYER}.bottleneck.input.dense.{{p}}"),
    Row("blocks.{i}.enter_norm.{p}", f"{_LAYER}.bottleneck.input.LayerNorm.{{p}}"),
    Row("blocks.{i}.shared.{p}", f"{_LAYER}.bottleneck.attention.dense.{{p}}"),
    Row("blocks.{i}.shared_norm.{p}", f"{_LAYER}.bottleneck.attention.LayerNorm.{{p}}"),
    Row("blocks.{i}.leave.{p}", f"{_LAYER}.output.bottleneck.dense.{{p}}"),
    Row("blocks.{i}.leave_norm.{p}", f"{_LAYER}.output.bottleneck.LayerNorm.{{p}}"),
)
_FEEDFORWARDS = (
    Row("blocks.{i}.feedforward.{last}.up.{p}", f"{_LAYER}.intermediate.dense.{{p}}"),
    Row("blocks.{i}.feedforward.{last}.down.{p}", f"{_LAYER}.output.dense.{{p}}"),
    Row("blocks.{i}.feedforward.{last}.norm.{p}", f"{_LAYER}.output.LayerNorm.{{p}}"),
    Row("blocks.{i}.feedforward.{j}.up.{p}", f"{_LAYER}.ffn.{{j}}.intermediate.dense.{{p}}"),
    Row("blocks.{i}.feedforward.{j}.down.{p}", f"{_LAYER}.ffn.{{j}}.output.dense.{{p}}"),
    Row("blocks.{i}.feedforward.{j}.norm.{p}", f"{_LAYER}.ffn.{{j}}.output.LayerNorm.{{p}}"),
)


def _read(theirs: Settings) -> Settings:
    for key in ("use_bottleneck", "trigram_input"):
        if not theirs[key]:
            raise InputError(f"'{key}' in config.json must be true, got false; lightbert's MobileBERT always has it")
    norm = theirs["normalization_type"]
    if norm not in _NORMS:
        raise InputError(f"'normalization_type' in config.json must be {' or '.join(map(repr, _NORMS))}, got {norm!r}")
    if norm == "layer_norm":
        _check_eps(theirs["layer_norm_eps"])
    return {"mixer_input": _mixer_input(theirs), "norm": _NORMS[norm], "padding": "released"}


def _mixer_input(theirs: Settings) -> str:
    narrow, shared = theirs["use_bottleneck_attention"], theirs["key_query_shared_bottleneck"]
    if narrow and shared:
        raise InputError(
            "'use_bottleneck_attention' and 'key_query_shared_bottleneck' must not both be true in config.json, which "
            "leaves half of the bottleneck weights unused"
        )
    if not narrow and not shared:
        _check_wide(theirs["hidden_size"], theirs["intra_bottleneck_size"])
    return "narrow" if narrow else "shared" if shared else "wide"


def _write(ours: Settings, heads: Heads) -> Settings:
    if ours["mixer_input"] == "wide":
        _check_wide(ours["width"], ours["block_width"])
    if ours["norm"] == "layer":
        _check_eps(ours["eps"])
    return {
        "trigram_input": True,
        "use_bottleneck": True,
        "use_bottleneck_attention": ours["mixer_input"] == "narrow",
        "key_query_shared_bottleneck": ours["mixer_input"] == "shared",
        "normalization_type": next(theirs for theirs, norm in _NORMS.items() if norm == ours["norm"]),
        "classifier_activation": _has_pooler(heads),
    }


def _has_pooler(heads: Heads) -> bool:
    """Return whether transformers builds poolers, its default, which heads on the raw [CLS] state contradict.

    A body without heads has no weights for a pooler either.
    """
    raw = any(_reads_raw_state(kind, settings) for kind, settings in heads.items())
    return "pooler" in heads or (bool(heads) and not raw)


def _reads_raw_state(kind: str, settings: Settings) -> bool:
    if kind == "nsp":
        return settings.get("pooled") is False
    return kind in ("classify", "regress", "choice") and settings.get("hidden") is None


def _check_wide(width: int, block_width: int) -> None:
    if width != block_width:
        raise InputError(
            f"mixer_input = 'wide' requires block_width ({block_width}) == width ({width}) in transformers' "
            "MobileBERT, whose query and key layers have the block's width"
        )


def _check_eps(eps: float) -> None:
    if eps != _DEFAULT_EPS:
        raise InputError(
            f"eps must be {_DEFAULT_EPS} in transformers' MobileBERT with layer norms, got {eps}: two of its layer "
            f"norms ignore the config and always use {_DEFAULT_EPS}"
        )


def _heads(ours: Settings, theirs: Settings) -> Heads:
    pooled = bool(theirs["classifier_activation"])
    hidden = "tanh" if pooled else None
    heads: Heads = {
        "mlm": {"hidden": ours["width"], "activation": ours["activation"], "eps": ours["eps"]},
        "nsp": {"pooled": pooled},
        "classify": {"hidden": hidden},
        "regress": {"hidden": hidden},
        "choice": {"hidden": hidden},
        "tokens": {},
        "span": {},
    }
    return {**heads, "pooler": {}} if pooled else heads


MOBILEBERT = Family(
    model_type="mobilebert",
    stem="MobileBert",
    ours="mobilebert",
    keymap=Keymap(
        rows=(
            *EMBEDDINGS,
            Row("embeddings.project.{p}", "embeddings.embedding_transformation.{p}"),
            *_BOTTLENECK,
            *ATTENTION,
            *_FEEDFORWARDS,
            *PREDICTIONS,
            Row("heads.mlm.extra", "cls.predictions.dense.weight", "transpose"),
            *POOLED_HEADS,
            *TOKEN_HEADS,
        ),
        redundant=(
            POSITION_IDS,
            TiedCopy("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
            TiedCopy("cls.predictions.decoder.bias", "cls.predictions.bias"),
        ),
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
    heads=_heads,
    fields={
        "narrow": "embedding_size",
        "block_width": "intra_bottleneck_size",
        "feedforwards": "num_feedforward_networks",
    },
    read=_read,
    write=_write,
)
