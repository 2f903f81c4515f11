"""What a family of transformers needs in order to be read and written: a few tables and the exceptions to them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightbert.errors import InputError, unknown
from lightbert.interop.keymap import Keymap

Settings = dict[str, Any]
"""A config as plain values: our fields, or those of a config.json of theirs."""
Heads = dict[str, Settings]
"""Settings of heads by kind."""

NATIVE_WORKS = "the native folder works there as it is, once lightbert is imported"
"""What to do about a model that transformers' own classes cannot represent."""

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
_DEFAULTS = {
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
}
# The first name of each activation is the one that is written.
_ACTIVATIONS = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new"),
    "relu": ("relu",),
    "relu6": ("relu6",),
}
# What an encoder of ours can be: (their key, the only value that is read, what another value would mean).
_ONLY: tuple[tuple[str, Any, str], ...] = (
    ("is_decoder", False, "decoders"),
    ("add_cross_attention", False, "cross-attention"),
    ("position_embedding_type", "absolute", "relative positions"),
    ("pruned_heads", {}, "pruned heads"),
    ("quantization_config", None, "quantized weights"),
)


@dataclass(frozen=True)
class Family:
    """One `model_type` of transformers, which is also the name its head classes give to the body."""

    model_type: str
    stem: str
    """What its class names begin with."""
    ours: str
    """The family of ours that holds the same models."""
    keymap: Keymap
    defaults: Mapping[str, Any]
    """What transformers assumes where config.json is silent, beyond what all families assume alike."""
    heads: Callable[[Settings, Settings], Heads]
    """From our config and theirs: the heads that its classes have, each with the settings that the class fixes."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Further fields, ours to theirs, that carry over as they are."""
    read: Callable[[Settings], Settings] = lambda theirs: {}
    """Our fields that need more than a new name; raises for what we cannot represent."""
    write: Callable[[Settings, Heads], Settings] = lambda ours, heads: {}
    """The inverse of `read`, with our heads' settings; raises for what transformers cannot represent."""
    fits: Callable[[Settings], bool] = lambda ours: True
    """Whether a config of our family may be one of this `model_type`, where several share the family."""

    def to_ours(self, theirs: Settings) -> Settings:
        """Our config fields for their config.json."""
        for key, value, meaning in _ONLY:
            if theirs.get(key, value) not in (value, None):
                raise InputError(f"'{key}' is {theirs[key]!r} in config.json: lightbert has no {meaning}")
        theirs = self.with_defaults(theirs)
        for key, default in {**_DEFAULTS, **self.defaults}.items():
            _check_type(key, theirs[key], type(default))
        names = {**_FIELDS, **self.fields}
        ours = {name: theirs[their] for name, their in names.items()}
        return {**ours, "activation": _read_activation(theirs["hidden_act"]), **self.read(theirs)}

    def to_theirs(self, ours: Settings, heads: Heads) -> Settings:
        """Their config.json for our config fields; of the heads only what concerns the body."""
        if ours["positions"] == 0:
            raise InputError(f"the model has no positions table, and transformers' {self.stem} cannot do without one")
        names = {**_FIELDS, **self.fields}
        theirs = {their: ours[name] for name, their in names.items()}
        return {**theirs, "hidden_act": _ACTIVATIONS[ours["activation"]][0], **self.write(ours, heads)}

    def with_defaults(self, theirs: Settings) -> Settings:
        """Their config.json with the keys it leaves out."""
        return {**_DEFAULTS, **self.defaults, **theirs}


def _check_type(key: str, value: Any, kind: type) -> None:
    if kind is bool or kind is str:
        accepted, expected = isinstance(value, kind), "true or false" if kind is bool else "a text"
    elif kind is int:
        accepted, expected = type(value) is int and value > 0, "a whole number above 0"
    else:
        # A whole number is a valid dropout for them too.
        accepted, expected = type(value) in (int, float) and value >= 0, "a number, 0 or above"
    if not accepted:
        raise InputError(f"'{key}' in config.json must be {expected}, not {value!r}")


def _read_activation(name: str) -> str:
    for ours, theirs in _ACTIVATIONS.items():
        if name in theirs:
            return ours
    raise unknown("hidden_act", name, [theirs for names in _ACTIVATIONS.values() for theirs in names])
