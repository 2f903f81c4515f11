"""Identify the model in a checkpoint: from the shapes of its tensors, completed by a JSON config."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lightbert.errors import InputError, unknown
from lightbert.interop.families import Heads, Settings
from lightbert.interop.keymap import Keymap
from lightbert.models import Config

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
_IGNORED_KEYS = {"initializer_range"}


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


def shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    """Return the shape of a tensor that every checkpoint of the family has."""
    if name not in tensors:
        raise InputError(f"the checkpoint has no tensor '{name}'; it is incomplete, so copy it again")
    return tuple(tensors[name].shape)


def count(names: Iterable[str], stem: str) -> int:
    """Return 1 + the highest number that follows `stem` in a name, 0 if there is none."""
    numbers = [int(match[1]) for name in names if (match := re.match(rf"{re.escape(stem)}(\d+)/", name))]
    return max(numbers, default=-1) + 1


def merge_config(known: Settings, given: Settings, fields: Mapping[str, str], choices: Choices) -> Settings:
    """Complete the settings that are known from the shapes with a JSON config of the release.

    The config must not contradict the shapes. `fields` maps further keys to our field names; `choices` lists the keys
    whose values need translating.
    """
    fields = {**_FIELDS, **fields}
    settings = dict(known)
    for key, value in given.items():
        if key in _IGNORED_KEYS:
            continue
        if key not in fields and key not in choices:
            raise unknown("key in the config", key, [*fields, *choices])
        translated = {fields[key]: value} if key in fields else _fields_of_choice(key, value, choices[key])
        for field, ours in translated.items():
            if known.get(field, ours) != ours:
                raise InputError(
                    f"'{key}' is {value!r} in the config, but the checkpoint has {field} = {known[field]!r}; "
                    "correct the config"
                )
            settings[field] = ours
    return settings


def _fields_of_choice(key: str, value: object, possible: Mapping[Any, Settings]) -> Settings:
    for choice, fields in possible.items():
        if choice == value:
            return fields
    raise unknown(key, str(value), map(str, possible))
