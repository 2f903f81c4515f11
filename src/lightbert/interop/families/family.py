"""The description of a transformers family: tables of fields and tensors, and functions for exceptions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightbert.errors import InputError, unknown
from lightbert.interop.keymap import Keymap

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
        names = {**_FIELDS, **self.fields}
        ours = {name: theirs[their] for name, their in names.items()}
        return {**ours, "activation": _read_activation(theirs["hidden_act"]), **self.read(theirs)}

    def to_theirs(self, ours: Settings, heads: Heads) -> Settings:
        """Translate our fields to their config.json; `heads` only matter for settings of the body."""
        if ours["positions"] == 0:
            raise InputError(
                f"transformers' {self.stem} requires position embeddings, got positions = 0; {NATIVE_WORKS}"
            )
        names = {**_FIELDS, **self.fields}
        theirs = {their: ours[name] for name, their in names.items()}
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


def _read_activation(name: str) -> str:
    for ours, theirs in _ACTIVATIONS.items():
        if name in theirs:
            return ours
    raise unknown("hidden_act", name, [theirs for names in _ACTIVATIONS.values() for theirs in names])
